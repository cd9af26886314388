/*
 * What the files of sandboxctl share: verbs, exit statuses, sentences for
 * people, small files.  One verb is one file.
 */

#ifndef SANDBOX_CTL_H
#define SANDBOX_CTL_H

#include <stddef.h>
#include <stdint.h>


#define CTL_VERSION  "0.1.0"

/* exit statuses; `run`, which has a command's, has CTL_SERVICE for both */

#define CTL_OK       0
#define CTL_FAULT    1
#define CTL_USAGE    2
#define CTL_SERVICE  125
#define CTL_CLOSED   141                         /* nobody reads stdout; as
                                                    SIGPIPE would have it */


typedef struct {
    const char  *name;
    const char  *summary;                        /* a line of --help */
    int        (*run)(int argc, char **argv);    /* argv[0] is the verb */
} ctl_verb_t;


int ctl_run(int argc, char **argv);
int ctl_logs(int argc, char **argv);
int ctl_ps(int argc, char **argv);
int ctl_wait(int argc, char **argv);
int ctl_cancel(int argc, char **argv);
int ctl_put(int argc, char **argv);
int ctl_get(int argc, char **argv);
int ctl_list(int argc, char **argv);
int ctl_save(int argc, char **argv);
int ctl_link(int argc, char **argv);
int ctl_reset(int argc, char **argv);
int ctl_remove(int argc, char **argv);
int ctl_skills(int argc, char **argv);
int ctl_status(int argc, char **argv);
int ctl_drain(int argc, char **argv);
int ctl_doctor(int argc, char **argv);
int ctl_token(int argc, char **argv);


/*
 * Prints "sandboxctl VERB: ..." and a newline to stderr; the text has no
 * control characters when it leaves.  Returns -1.
 */
int ctl_fault(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The verb that ctl_fault() names; a literal or of argv. */
void ctl_set_verb(const char *verb);

/* Takes a line of progress away before a sentence; NULL: there is none. */
void ctl_set_line(void (*clear)(void));

/*
 * Reads a whole file ("-": standard input) of at most `max` bytes; the caller
 * frees *data, which has a NUL behind its *size bytes.  0, or -1 after a
 * sentence that names the file.
 */
int ctl_file_read(const char *name, size_t max, uint8_t **data, size_t *size);

/* The same from a descriptor that is open, and stays so. */
int ctl_fd_read(int fd, const char *name, size_t max, uint8_t **data,
    size_t *size);

/* Writes all of it.  0, or -1 with errno. */
int ctl_write(int fd, const void *data, size_t size);

/*
 * Base64 with padding.  The caller frees the result; NULL: no memory, or in
 * what is decoded something else.
 */
char *ctl_base64_encode(const uint8_t *data, size_t size);
uint8_t *ctl_base64_decode(const char *text, size_t length, size_t *size);

/* A word of a gateway's, such as an id; NULL for what is none. */
const char *ctl_word(const char *text);

/* 0: fit to be that; -1 after a sentence. */
int ctl_conversation_check(const char *id);
int ctl_command_check(const char *id);


#endif /* SANDBOX_CTL_H */
