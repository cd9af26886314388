/*
 * What the tricks in C share: go on in the background, unless there is an
 * argument; say that the hiding is done; never end.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>


static inline void
background(int argc)
{
    if (argc == 1 && fork() != 0) {
        _exit(0);
    }
}


static inline void
ready(void)
{
    const char  *path;

    path = getenv("HIDE_READY");

    if (path != NULL) {
        close(open(path, O_WRONLY|O_CREAT, 0644));
    }
}


static inline void
forever(void)
{
    for ( ;; ) {
        pause();
    }
}
