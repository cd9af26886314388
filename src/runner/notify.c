/*
 * systemd's protocol of readiness: one datagram a message, to a unix socket.
 * Nobody reads an answer, and a manager that does not listen holds nobody up.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "file.h"
#include "log.h"
#include "notify.h"


static void runner_notify(const char *text);


static struct sockaddr_un  runner_notify_address;
static socklen_t           runner_notify_size;   /* 0: nobody listens */
static int                 runner_notify_watched;


void
runner_notify_start(void)
{
    size_t       i, n;
    uint64_t     usec, pid;
    const char  *path, *text;

    static const char  *names[] = {
        "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS",
        "LISTEN_PID", "LISTEN_FDNAMES"
    };

    path = getenv("NOTIFY_SOCKET");
    n = path ? strlen(path) : 0;

    if (n > 1 && (path[0] == '/' || path[0] == '@')
        && n < sizeof(runner_notify_address.sun_path))
    {
        runner_notify_address.sun_family = AF_UNIX;
        memcpy(runner_notify_address.sun_path, path, n);

        if (path[0] == '@') {
            runner_notify_address.sun_path[0] = '\0';
        }

        runner_notify_size = offsetof(struct sockaddr_un, sun_path) + n;
    }

    text = getenv("WATCHDOG_USEC");

    if (text != NULL && runner_number(text, UINT64_MAX, &usec) == 0 && usec) {
        text = getenv("WATCHDOG_PID");
        runner_notify_watched = text == NULL
                                || (runner_number(text, INT32_MAX, &pid) == 0
                                    && (pid_t) pid == getpid());
    }

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void) unsetenv(names[i]);
    }
}


static void
runner_notify(const char *text)
{
    int  fd;

    if (runner_notify_size == 0) {
        return;
    }

    fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    if (fd == -1
        || sendto(fd, text, strlen(text), MSG_NOSIGNAL,
                  (struct sockaddr *) &runner_notify_address,
                  runner_notify_size) == -1)
    {
        runner_log(RUNNER_LOG_WARN, "the service manager could not be told "
                   "\"%s\": %s", text, strerror(errno));
    }

    if (fd != -1) {
        close(fd);
    }
}


void
runner_notify_ready(void)
{
    runner_notify("READY=1");
}


void
runner_notify_stopping(void)
{
    runner_notify("STOPPING=1");
}


void
runner_notify_alive(void)
{
    if (runner_notify_watched) {
        runner_notify("WATCHDOG=1");
    }
}
