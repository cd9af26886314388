/*
 * Small files, clocks, random bytes: what every part of the runner needs and
 * libc does not have in one call.
 */

#ifndef RUNNER_FILE_H
#define RUNNER_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>


/* Milliseconds: monotonic, and since 1970. */
uint64_t runner_now_ms(void);
uint64_t runner_wall_ms(void);

/*
 * Reads at most `size` - 1 bytes and appends a NUL.  Returns their number,
 * -1 and errno; EFBIG if there are more.
 */
ssize_t runner_file_read(int dir, const char *path, char *buf, size_t size);

/* Writes a text to a file that exists, in one write.  0, or -1 and errno. */
int runner_file_write(int dir, const char *path, const char *text);

/*
 * Puts a file in place by a temporary name and a rename, mode 0600.  With
 * `sync` it is on the disk when this returns.  0, or -1 and errno.
 */
int runner_file_replace(int dir, const char *name, const void *data,
    size_t size, int sync);

/* Makes a directory and its parents.  0, or -1 and errno. */
int runner_mkdirs(const char *path, mode_t mode);

/*
 * Removes a directory with what is in it, follows no link, goes at most 8
 * levels deep and into no other file system.  0 also if it is not there.
 */
int runner_remove_tree(int dir, const char *name);

/* Fills with random bytes from the kernel; ends the process if it can't. */
void runner_random(void *p, size_t size);

/* FNV-1a of 64 bits. */
uint64_t runner_hash(const void *p, size_t size);

/* Lower case hex of `size` bytes, and a NUL: 2 * size + 1 bytes at dst. */
void runner_hex(char *dst, const uint8_t *src, size_t size);

/* The reverse: exactly 2 * size hex digits.  0, or -1. */
int runner_unhex(uint8_t *dst, size_t size, const char *src);

/* A decimal number of at most 20 digits and at most `max`.  0, or -1. */
int runner_number(const char *s, uint64_t max, uint64_t *value);


#endif /* RUNNER_FILE_H */
