/*
 * One child, its output, a deadline.  Knows nothing of what it runs.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* pipe2() */
#endif

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>


#define CTL_GRACE  10000                         /* milliseconds */


static void ctl_process_child(const char *const *argv, int fd);
static int ctl_process_read(int fd, int64_t deadline, char *output);
static int ctl_process_end(pid_t pid, int64_t deadline, int late);
static int ctl_process_wait(pid_t pid, int64_t deadline, int *status);
static int64_t ctl_now(void);


int
ctl_process(const char *const *argv, int wait, char **output)
{
    int      fds[2], late;
    pid_t    pid;
    int64_t  deadline;

    *output = malloc(CTL_MAX_OUTPUT + 1);

    if (*output == NULL || pipe2(fds, O_CLOEXEC) == -1) {
        free(*output);
        *output = NULL;
        return -1;
    }

    pid = fork();

    if (pid == 0) {
        ctl_process_child(argv, fds[1]);
    }

    close(fds[1]);

    if (pid == -1) {
        close(fds[0]);
        free(*output);
        *output = NULL;
        return -1;
    }

    deadline = ctl_now() + (int64_t) wait * 1000;
    late = ctl_process_read(fds[0], deadline, *output);
    close(fds[0]);

    return ctl_process_end(pid, deadline, late);
}


static void
ctl_process_child(const char *const *argv, int fd)
{
    int  null;

    /* in our process group, so that a Ctrl-C is for both of us */

    signal(SIGPIPE, SIG_DFL);

    null = open("/dev/null", O_RDONLY|O_CLOEXEC);

    if (null == -1 || dup2(null, STDIN_FILENO) == -1
        || dup2(fd, STDOUT_FILENO) == -1 || dup2(fd, STDERR_FILENO) == -1)
    {
        _exit(126);
    }

    /* execvp() has the type of the days before const */

    execvp(argv[0], (char *const *) argv);

    _exit(errno == ENOENT ? 127 : 126);
}


/* 1: the time was over before the output was. */

static int
ctl_process_read(int fd, int64_t deadline, char *output)
{
    char            more[4096];
    int             ready;
    size_t          n, size;
    int64_t         left;
    ssize_t         got;
    struct pollfd   p;

    n = 0;
    p.fd = fd;
    p.events = POLLIN;

    for ( ;; ) {
        output[n] = '\0';
        left = deadline - ctl_now();

        if (left <= 0) {
            return 1;
        }

        ready = poll(&p, 1, (int) left);

        if (ready == -1 && errno != EINTR) {
            return 0;
        }

        if (ready <= 0) {
            continue;
        }

        got = read(fd, more, sizeof(more));

        if (got == 0 || (got == -1 && errno != EINTR)) {
            return 0;
        }

        if (got > 0) {
            size = (size_t) got;

            if (size > CTL_MAX_OUTPUT - n) {
                size = CTL_MAX_OUTPUT - n;
            }

            memcpy(output + n, more, size);
            n += size;
        }
    }
}


static int
ctl_process_end(pid_t pid, int64_t deadline, int late)
{
    int  status;

    /* it may have closed its output and go on */

    if (!late && ctl_process_wait(pid, deadline, &status)) {
        return WIFEXITED(status) ? WEXITSTATUS(status)
                                 : 128 + WTERMSIG(status);
    }

    /* a chance to clean up */

    kill(pid, SIGINT);

    if (!ctl_process_wait(pid, ctl_now() + CTL_GRACE, &status)) {
        kill(pid, SIGKILL);

        while (waitpid(pid, &status, 0) == -1 && errno == EINTR) {
            /* once more */
        }
    }

    return 124;
}


/* 1: it has ended. */

static int
ctl_process_wait(pid_t pid, int64_t deadline, int *status)
{
    struct timespec  pause;

    pause.tv_sec = 0;
    pause.tv_nsec = 10 * 1000 * 1000;

    for ( ;; ) {
        if (waitpid(pid, status, WNOHANG) == pid) {
            return 1;
        }

        if (ctl_now() >= deadline) {
            return 0;
        }

        nanosleep(&pause, NULL);
    }
}


static int64_t
ctl_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
