/*
 * Sentences to stderr, small files, base64: what every verb needs.
 */

#include "ctl.h"
#include "name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>


#define CTL_ID  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


static int ctl_id_valid(const char *id, const char *letters, size_t max);


static const char  *ctl_verb = "";
static void       (*ctl_line)(void);


void
ctl_set_verb(const char *verb)
{
    ctl_verb = verb;
}


void
ctl_set_line(void (*clear)(void))
{
    ctl_line = clear;
}


int
ctl_fault(const char *fmt, ...)
{
    char      text[2048];
    va_list   args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    /* some of it comes from elsewhere, and the reader has a terminal */

    ctl_name_blank(text);

    if (ctl_line != NULL) {
        ctl_line();
    }

    fprintf(stderr, "sandboxctl%s%s: %s\n", *ctl_verb == '\0' ? "" : " ",
            ctl_verb, text);

    return -1;
}


int
ctl_file_read(const char *name, size_t max, uint8_t **data, size_t *size)
{
    int  fd, rc;

    if (strcmp(name, "-") == 0) {
        return ctl_fd_read(STDIN_FILENO, name, max, data, size);
    }

    fd = open(name, O_RDONLY|O_CLOEXEC|O_NOCTTY);

    if (fd == -1) {
        return ctl_fault("can't open %s: %s", name, strerror(errno));
    }

    rc = ctl_fd_read(fd, name, max, data, size);
    close(fd);

    return rc;
}


int
ctl_fd_read(int fd, const char *name, size_t max, uint8_t **data,
    size_t *size)
{
    size_t    n, room;
    ssize_t   got;
    uint8_t  *buf, *larger;

    n = 0;
    got = 0;
    room = 0;
    buf = NULL;

    /* the size of a pipe is not known, so a file's is not asked for either */

    do {
        n += (size_t) got;

        if (n >= room) {
            room = room == 0 ? 4096 : room * 2;
            larger = realloc(buf, room + 1);

            if (larger == NULL) {
                free(buf);
                return ctl_fault("no memory for %s", name);
            }

            buf = larger;
        }

        do {
            got = read(fd, buf + n, room - n);
        } while (got == -1 && errno == EINTR);

    } while (got > 0 && n + (size_t) got <= max);

    if (got != 0) {
        free(buf);

        return got == -1
               ? ctl_fault("can't read %s: %s", name, strerror(errno))
               : ctl_fault("%s has more than %zu bytes", name, max);
    }

    buf[n] = '\0';
    *data = buf;
    *size = n;

    return 0;
}


int
ctl_write(int fd, const void *data, size_t size)
{
    ssize_t      n;
    const char  *p;

    for (p = data; size > 0; p += n, size -= (size_t) n) {
        n = write(fd, p, size);

        if (n == -1) {
            if (errno != EINTR) {
                return -1;
            }

            n = 0;
        }
    }

    return 0;
}


/* Lengths are those of OpenSSL: an int. */

char *
ctl_base64_encode(const uint8_t *data, size_t size)
{
    char  *text;

    if (size > INT32_MAX / 2) {
        return NULL;
    }

    text = malloc((size + 2) / 3 * 4 + 1);

    if (text != NULL) {
        EVP_EncodeBlock((uint8_t *) text, data, (int) size);
    }

    return text;
}


uint8_t *
ctl_base64_decode(const char *text, size_t length, size_t *size)
{
    int       n;
    uint8_t  *data;

    if (length % 4 != 0 || length > INT32_MAX / 2) {
        return NULL;
    }

    data = malloc(length / 4 * 3 + 1);
    if (data == NULL) {
        return NULL;
    }

    n = EVP_DecodeBlock(data, (const uint8_t *) text, (int) length);

    if (n != (int) (length / 4 * 3)) {
        free(data);
        return NULL;
    }

    /* padding is decoded to zeros */

    if (length > 0 && text[length - 1] == '=') {
        n -= text[length - 2] == '=' ? 2 : 1;
    }

    *size = (size_t) n;

    return data;
}


int
ctl_conversation_check(const char *id)
{
    if (ctl_id_valid(id, CTL_ID "._:-", 128) && strcmp(id, ".") != 0
        && strcmp(id, "..") != 0)
    {
        return 0;
    }

    return ctl_fault("\"%s\" is not a conversation: 1 to 128 letters, digits "
                     "and ._:-", id);
}


int
ctl_command_check(const char *id)
{
    if (ctl_id_valid(id, CTL_ID "._-", 64) && strcmp(id, ".") != 0
        && strcmp(id, "..") != 0)
    {
        return 0;
    }

    return ctl_fault("\"%s\" is not a command's id: 1 to 64 letters, digits "
                     "and ._-", id);
}


const char *
ctl_word(const char *text)
{
    return text != NULL && ctl_id_valid(text, CTL_ID "._-", 64) ? text : NULL;
}


static int
ctl_id_valid(const char *id, const char *letters, size_t max)
{
    size_t  n;

    n = strspn(id, letters);

    return n > 0 && n <= max && id[n] == '\0';
}
