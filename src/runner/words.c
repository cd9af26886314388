/*
 * The last words of a container.  Knows no slots.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "words.h"


#define RUNNER_WORDS_SIZE  (64 * 1024)


int
runner_words_open(void)
{
    int  fd;

    fd = memfd_create("words", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd == -1) {
        return -1;
    }

    /* it has its size from the start, and what is written beyond is refused */

    if (fchmod(fd, 0600) == -1
        || ftruncate(fd, RUNNER_WORDS_SIZE) == -1
        || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW|F_SEAL_SHRINK|F_SEAL_SEAL) == -1)
    {
        close(fd);
        return -1;
    }

    return fd;
}


void
runner_words_read(int fd, char *text, size_t size)
{
    char     all[RUNNER_WORDS_SIZE];
    size_t   n, from;
    ssize_t  got;

    got = fd == -1 ? -1 : pread(fd, all, sizeof(all), 0);
    n = got > 0 ? strnlen(all, got) : 0;

    while (n > 0 && (all[n - 1] == '\n' || all[n - 1] == ' ')) {
        n--;
    }

    if (n == 0) {
        snprintf(text, size, "nothing");
        return;
    }

    from = n >= size ? n - size + 1 : 0;

    memcpy(text, all + from, n - from);
    text[n - from] = '\0';
}
