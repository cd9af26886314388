/*
 * Small files, clocks, random bytes.  Knows nothing of sandboxes.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "file.h"


#define RUNNER_TREE_DEPTH    8
#define RUNNER_TREE_ENTRIES  100000


static int runner_remove_entries(int fd, dev_t device, unsigned depth);


uint64_t
runner_now_ms(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_MONOTONIC, &t);

    return (uint64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}


uint64_t
runner_wall_ms(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_REALTIME, &t);

    return (uint64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}


ssize_t
runner_file_read(int dir, const char *path, char *buf, size_t size)
{
    int      fd, error;
    size_t   have;
    ssize_t  n;

    fd = openat(dir, path, O_RDONLY|O_CLOEXEC|O_NOCTTY);
    if (fd == -1) {
        return -1;
    }

    have = 0;
    error = 0;

    for ( ;; ) {
        n = read(fd, buf + have, size - have);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1) {
            error = errno;
            break;
        }

        if (n == 0) {
            break;
        }

        have += n;

        if (have == size) {
            error = EFBIG;
            break;
        }
    }

    close(fd);

    if (error) {
        errno = error;
        return -1;
    }

    buf[have] = '\0';

    return have;
}


int
runner_file_write(int dir, const char *path, const char *text)
{
    int      fd, error;
    size_t   length;
    ssize_t  n;

    fd = openat(dir, path, O_WRONLY|O_CLOEXEC|O_NOCTTY);
    if (fd == -1) {
        return -1;
    }

    length = strlen(text);

    do {
        n = write(fd, text, length);
    } while (n == -1 && errno == EINTR);

    error = n == (ssize_t) length ? 0 : n == -1 ? errno : EIO;
    close(fd);
    errno = error;

    return error ? -1 : 0;
}


int
runner_file_replace(int dir, const char *name, const void *data, size_t size,
    int sync)
{
    int          fd, error;
    char         temporary[NAME_MAX + 1];
    size_t       done;
    ssize_t      n;

    if (snprintf(temporary, sizeof(temporary), "%s.new", name)
        >= (int) sizeof(temporary))
    {
        errno = ENAMETOOLONG;
        return -1;
    }

    fd = openat(dir, temporary, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW,
                0600);
    if (fd == -1) {
        return -1;
    }

    error = 0;

    for (done = 0; done < size; done += n) {
        n = write(fd, (const char *) data + done, size - done);

        if (n == -1 && errno == EINTR) {
            n = 0;
            continue;
        }

        if (n == -1) {
            error = errno;
            break;
        }
    }

    if (!error && sync && fsync(fd) == -1) {
        error = errno;
    }

    if (close(fd) == -1 && !error) {
        error = errno;
    }

    if (!error && renameat(dir, temporary, dir, name) == -1) {
        error = errno;
    }

    if (error) {
        unlinkat(dir, temporary, 0);
        errno = error;
        return -1;
    }

    return sync ? fsync(dir) : 0;
}


int
runner_mkdirs(const char *path, mode_t mode)
{
    char    *p, s[PATH_MAX];
    size_t   length;

    length = strlen(path);

    if (length == 0 || length >= sizeof(s)) {
        errno = ENAMETOOLONG;
        return -1;
    }

    memcpy(s, path, length + 1);

    for (p = s + 1; *p; p++) {
        if (*p != '/') {
            continue;
        }

        *p = '\0';

        if (mkdir(s, 0755) == -1 && errno != EEXIST) {
            return -1;
        }

        *p = '/';
    }

    return mkdir(s, mode) == -1 && errno != EEXIST ? -1 : 0;
}


int
runner_remove_tree(int dir, const char *name)
{
    int          fd, rc;
    struct stat  st;

    fd = openat(dir, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return errno == ENOENT ? 0
               : errno == ENOTDIR || errno == ELOOP ? unlinkat(dir, name, 0)
               : -1;
    }

    if (fstat(fd, &st) == -1) {
        close(fd);
        return -1;
    }

    rc = runner_remove_entries(fd, st.st_dev, 1);

    if (rc == -1) {
        return -1;
    }

    return unlinkat(dir, name, AT_REMOVEDIR);
}


/* owns fd */

static int
runner_remove_entries(int fd, dev_t device, unsigned depth)
{
    DIR            *d;
    int             child, rc;
    unsigned        n;
    struct stat     st;
    struct dirent  *entry;

    d = fdopendir(fd);
    if (d == NULL) {
        close(fd);
        return -1;
    }

    rc = 0;

    for (n = 0; n < RUNNER_TREE_ENTRIES && (entry = readdir(d)) != NULL; n++) {

        if (strcmp(entry->d_name, ".") == 0
            || strcmp(entry->d_name, "..") == 0)
        {
            continue;
        }

        if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
            continue;
        }

        if (!S_ISDIR(st.st_mode)) {
            if (unlinkat(fd, entry->d_name, 0) == -1) {
                rc = -1;
            }

            continue;
        }

        if (depth == RUNNER_TREE_DEPTH || st.st_dev != device) {
            errno = EXDEV;
            rc = -1;
            continue;
        }

        child = openat(fd, entry->d_name,
                       O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

        if (child == -1
            || runner_remove_entries(child, device, depth + 1) == -1
            || unlinkat(fd, entry->d_name, AT_REMOVEDIR) == -1)
        {
            rc = -1;
        }
    }

    closedir(d);

    return rc;
}


void
runner_random(void *p, size_t size)
{
    size_t    done;
    ssize_t   n;
    uint8_t  *b;

    b = p;

    for (done = 0; done < size; done += n) {
        n = getrandom(b + done, size - done, 0);

        if (n == -1) {
            if (errno != EINTR) {
                abort();
            }

            n = 0;
        }
    }
}


uint64_t
runner_hash(const void *p, size_t size)
{
    size_t          i;
    uint64_t        h;
    const uint8_t  *b;

    b = p;
    h = 0xcbf29ce484222325;

    for (i = 0; i < size; i++) {
        h = (h ^ b[i]) * 0x100000001b3;
    }

    return h;
}


void
runner_hex(char *dst, const uint8_t *src, size_t size)
{
    size_t       i;
    static char  digits[] = "0123456789abcdef";

    for (i = 0; i < size; i++) {
        *dst++ = digits[src[i] >> 4];
        *dst++ = digits[src[i] & 15];
    }

    *dst = '\0';
}


int
runner_unhex(uint8_t *dst, size_t size, const char *src)
{
    size_t   i;
    uint8_t  c, v;

    for (i = 0; i < 2 * size; i++) {
        c = src[i];

        if (c >= '0' && c <= '9') {
            v = c - '0';

        } else if (c >= 'a' && c <= 'f') {
            v = c - 'a' + 10;

        } else if (c >= 'A' && c <= 'F') {
            v = c - 'A' + 10;

        } else {
            return -1;
        }

        dst[i / 2] = i % 2 ? dst[i / 2] | v : v << 4;
    }

    return src[i] == '\0' ? 0 : -1;
}


int
runner_number(const char *s, uint64_t max, uint64_t *value)
{
    size_t    i;
    uint64_t  v;

    v = 0;

    for (i = 0; s[i]; i++) {
        if (s[i] < '0' || s[i] > '9' || i == 20) {
            return -1;
        }

        if (v > (UINT64_MAX - (s[i] - '0')) / 10) {
            return -1;
        }

        v = v * 10 + (s[i] - '0');
    }

    if (i == 0 || v > max) {
        return -1;
    }

    *value = v;

    return 0;
}
