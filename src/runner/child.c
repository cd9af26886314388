/*
 * Reaping without taking the status of a child that a thread waits for.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "child.h"


#define RUNNER_CHILD_TURN  1024                  /* orphans at once */


/* read: a child is waited for; write: there is none */

static pthread_rwlock_t  runner_child_lock = PTHREAD_RWLOCK_INITIALIZER;


void
runner_child_begin(void)
{
    pthread_rwlock_rdlock(&runner_child_lock);
}


void
runner_child_end(void)
{
    pthread_rwlock_unlock(&runner_child_lock);
}


int
runner_child_wait(pid_t pid, int ms)
{
    int            n, status;
    struct pollfd  p;

    /* nobody has reaped it: the pid is its */

    p.fd = syscall(SYS_pidfd_open, pid, 0);
    p.events = POLLIN;
    n = 0;

    if (p.fd != -1) {
        do {
            n = poll(&p, 1, ms);
        } while (n == -1 && errno == EINTR);

        close(p.fd);
    }

    if (n != 1) {
        kill(pid, SIGKILL);
    }

    while (waitpid(pid, &status, 0) == -1) {
        if (errno != EINTR) {
            return -1;
        }
    }

    return status;
}


void
runner_child_reap(void)
{
    int  n;

    if (pthread_rwlock_trywrlock(&runner_child_lock) != 0) {
        return;
    }

    for (n = 0; n < RUNNER_CHILD_TURN; n++) {
        if (waitpid(-1, NULL, WNOHANG) <= 0) {
            break;
        }
    }

    pthread_rwlock_unlock(&runner_child_lock);
}


int
runner_child_unlimited(void)
{
    struct __user_cap_data_struct    data[_LINUX_CAPABILITY_U32S_3];
    struct __user_cap_header_struct  header;

    memset(data, 0, sizeof(data));
    header.version = _LINUX_CAPABILITY_VERSION_3;
    header.pid = 0;

    return syscall(SYS_capget, &header, data) == 0
           && (data[0].effective & CAP_TO_MASK(CAP_SYS_RESOURCE)) != 0;
}
