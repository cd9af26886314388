/*
 * The key file.  Knows no other option.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "file.h"
#include "key.h"
#include "sandbox_wire.h"


int
runner_key_read(const char *path, uint8_t *key, runner_error_t *err)
{
    int          fd;
    char         text[256];
    ssize_t      n;
    struct stat  st;

    fd = open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY|O_NONBLOCK);

    if (fd == -1 && errno == EACCES && geteuid() != 0) {
        return runner_error(err, "bad_key_file", errno, "can't open the key "
                            "file \"%s\" (sandbox-runner needs root)", path);
    }

    if (fd == -1) {
        return runner_error(err, "bad_key_file", errno, "can't open the key "
                            "file \"%s\" (make one: openssl rand -hex 32 > "
                            "FILE; chmod 600 FILE)", path);
    }

    if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        close(fd);
        return runner_error(err, "bad_key_file", 0, "the key file \"%s\" is "
                            "not a regular file", path);
    }

    if (st.st_uid != 0 || (st.st_mode & 077) != 0) {
        close(fd);
        return runner_error(err, "bad_key_file", 0, "the key file \"%s\" "
                            "(owner %u, mode %04o) must be root's and closed "
                            "to others: chown root:root %s; chmod 600 %s",
                            path, st.st_uid, st.st_mode & 07777, path, path);
    }

    n = read(fd, text, sizeof(text));
    close(fd);

    if (n == -1 || runner_key_parse(text, n, key) == -1) {
        explicit_bzero(text, sizeof(text));
        return runner_error(err, "bad_key_file", 0, "the key file \"%s\" must "
                            "hold exactly 64 hex digits: openssl rand -hex 32 "
                            "> %s", path, path);
    }

    explicit_bzero(text, sizeof(text));

    return 0;
}


int
runner_key_parse(const char *text, size_t size, uint8_t *key)
{
    int   rc;
    char  digits[2 * SANDBOX_WIRE_KEY_SIZE + 1];

    if (size == sizeof(digits) && text[size - 1] == '\n') {
        size--;
    }

    if (size != 2 * SANDBOX_WIRE_KEY_SIZE) {
        return -1;
    }

    memcpy(digits, text, size);
    digits[size] = '\0';

    rc = runner_unhex(key, SANDBOX_WIRE_KEY_SIZE, digits);
    explicit_bzero(digits, sizeof(digits));

    return rc;
}


int
runner_key_make(const char *path, runner_error_t *err)
{
    int          fd, rc, error;
    char         temporary[PATH_MAX], digits[2 * SANDBOX_WIRE_KEY_SIZE + 2];
    uint8_t      key[SANDBOX_WIRE_KEY_SIZE];
    struct stat  st;

    if (lstat(path, &st) == 0) {
        rc = runner_key_read(path, key, err);
        explicit_bzero(key, sizeof(key));
        return rc;
    }

    if (snprintf(temporary, sizeof(temporary), "%s.%d", path, (int) getpid())
        >= (int) sizeof(temporary))
    {
        return runner_error(err, "bad_key_file", 0, "the path of the key file "
                            "is too long");
    }

    runner_random(key, sizeof(key));
    runner_hex(digits, key, sizeof(key));
    strcat(digits, "\n");

    fd = open(temporary, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);
    rc = fd == -1 ? -1 : 0;

    if (rc == 0
        && (write(fd, digits, strlen(digits)) != (ssize_t) strlen(digits)
            || fsync(fd) == -1
            || (link(temporary, path) == -1 && errno != EEXIST)))
    {
        rc = -1;
    }

    error = errno;

    if (fd != -1) {
        close(fd);
        (void) unlink(temporary);
    }

    explicit_bzero(key, sizeof(key));
    explicit_bzero(digits, sizeof(digits));

    if (rc == -1) {
        return runner_error(err, "bad_key_file", error, "can't make the key "
                            "file \"%s\"", path);
    }

    return 0;
}
