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
static const char *volatile   ctl_live_file;


int
ctl_live_signals(void)
{
    if (pipe2(ctl_live_pipe, O_CLOEXEC|O_NONBLOCK) == -1) {
        return ctl_fault("no pipe: %s", strerror(errno));
    }

    return ctl_live_signal_also(SIGINT) == -1 ? -1
           : ctl_live_signal_also(SIGTERM);
}


int
ctl_live_signal_also(int number)
{
    struct sigaction  action;

    /* as nohup wants it */

    if (number == SIGHUP && sigaction(number, NULL, &action) == 0
        && action.sa_handler == SIG_IGN)
    {
        return 0;
    }

    memset(&action, 0, sizeof(action));
    action.sa_handler = ctl_live_caught;
    sigemptyset(&action.sa_mask);

    if (sigaction(number, &action, NULL) == -1) {
        return ctl_fault("no signals: %s", strerror(errno));
    }

    return 0;
}


void
ctl_live_signal_file(const char *name)
{
    ctl_live_file = name;
}


/* The second one: whatever this program is at, a write to stdout included. */

static void
ctl_live_caught(int number)
{
    int  error;

    if (ctl_live_number != 0) {
        if (ctl_live_file != NULL) {
            (void) unlink(ctl_live_file);
        }

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
