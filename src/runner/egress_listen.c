/*
 * The listener inside a sandbox.  The thread of the loop enters its network
 * namespace for the few system calls that make a socket: some microseconds,
 * where a helper's start would cost more and could come late.
 *
 * Knows no sandboxes, only the descriptor of a process.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "egress_core.h"


#define RUNNER_EGRESS_BACKLOG  512


static int runner_egress_socket(void);


int
runner_egress_listen(int pidfd)
{
    int  own, fd, error;

    own = open("/proc/thread-self/ns/net", O_RDONLY|O_CLOEXEC);
    if (own == -1) {
        return -1;
    }

    if (setns(pidfd, CLONE_NEWNET) == -1) {
        error = errno;
        close(own);
        errno = error;
        return -1;
    }

    fd = runner_egress_socket();
    error = errno;

    if (setns(own, CLONE_NEWNET) == -1) {

        /*
         * There is no reason for this.  A runner in a sandbox's namespace is
         * worse than none: sandboxes go on, and the next one takes them over.
         */

        runner_log(RUNNER_LOG_ERROR, "the network namespace of the host can't "
                   "be entered again: %s; ending", strerror(errno));
        _exit(1);
    }

    close(own);
    errno = error;

    return fd;
}


static int
runner_egress_socket(void)
{
    int                 fd, on, error;
    struct sockaddr_in  address;

    memset(&address, 0, sizeof(address));
    address.sin_family = AF_INET;
    address.sin_port = htons(SANDBOX_EGRESS_PORT);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    fd = socket(AF_INET, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);
    if (fd == -1) {
        return -1;
    }

    /* connections of the one before may still be dying in there */

    on = 1;

    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == -1
        || bind(fd, (struct sockaddr *) &address, sizeof(address)) == -1
        || listen(fd, RUNNER_EGRESS_BACKLOG) == -1)
    {
        error = errno;
        close(fd);
        errno = error;
        return -1;
    }

    return fd;
}
