/*
 * Ctrl-C and SIGTERM, as a number and a descriptor that can be waited for.
 * Knows no command.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                              /* pipe2() */
#endif

#include "ctl.h"
#include "live.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>


static void ctl_live_caught(int number);


static int                    ctl_live_pipe[2] = { -1, -1 };
static volatile sig_atomic_t  ctl_live_number;


int
ctl_live_signals(void)
{
    struct sigaction  action;

    if (pipe2(ctl_live_pipe, O_CLOEXEC|O_NONBLOCK) == -1) {
        return ctl_fault("no pipe: %s", strerror(errno));
    }

    memset(&action, 0, sizeof(action));
    action.sa_handler = ctl_live_caught;
    sigemptyset(&action.sa_mask);

    if (sigaction(SIGINT, &action, NULL) == -1
        || sigaction(SIGTERM, &action, NULL) == -1)
    {
        return ctl_fault("no signals: %s", strerror(errno));
    }

    return 0;
}


/* The second one: whatever this program is at, a write to stdout included. */

static void
ctl_live_caught(int number)
{
    int  error;

    if (ctl_live_number != 0) {
        _exit(128 + number);
    }

    error = errno;
    ctl_live_number = number;
    (void) !write(ctl_live_pipe[1], "", 1);
    errno = error;
}


int
ctl_live_signal(void)
{
    return ctl_live_number;
}


int
ctl_live_signal_fd(void)
{
    return ctl_live_pipe[0];
}
