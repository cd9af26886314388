/*
 * The helper that enters a container.
 *
 * The system call filter can't see the flags of clone3, which the agent needs;
 * the limits of the user namespace refuse there, too.  A process with threads
 * can't enter a user namespace, so a child does.
 *
 * Knows no sandboxes, only the descriptor of a process.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "child.h"
#include "file.h"
#include "inside.h"


/* the step that failed: exit status of the child */

enum {
    RUNNER_INSIDE_OK = 0, RUNNER_INSIDE_ENTER, RUNNER_INSIDE_LOOPBACK,
    RUNNER_INSIDE_LIMITS, RUNNER_INSIDE_SOCKETS
};


static int runner_inside_child(int pidfd);
static int runner_inside_loopback(void);


int
runner_inside_prepare(int pidfd, runner_error_t *err)
{
    int    status;
    pid_t  pid;

    static const char  *steps[] = {
        "", "its namespaces can't be entered",
        "its loopback interface can't be brought up",
        "its limits of namespaces can't be set",
        "the buffers of its sockets can't be limited"
    };

    runner_child_begin();

    pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0) {
        _exit(runner_inside_child(pidfd));
    }

    status = -1;

    if (pid == -1) {
        runner_error(err, "spawn_failed", errno, "fork");

    } else {
        while (waitpid(pid, &status, 0) == -1 && errno == EINTR) { /* void */ }
    }

    runner_child_end();

    if (pid == -1) {
        return -1;
    }

    if (!WIFEXITED(status) || WEXITSTATUS(status) > RUNNER_INSIDE_SOCKETS) {
        return runner_error(err, "internal", 0, "the helper in the container "
                            "died");
    }

    if (WEXITSTATUS(status) != RUNNER_INSIDE_OK) {
        return runner_error(err, "no_namespaces", 0, "the container is not "
                            "closed: %s.  Remedy: Linux 5.8 or later, run as "
                            "root on the host", steps[WEXITSTATUS(status)]);
    }

    return 0;
}


int
runner_inside_processes(int pidfd, pid_t pid, uint32_t processes)
{
    int            status;
    pid_t          helper;
    struct rlimit  limit;

    limit.rlim_cur = processes;
    limit.rlim_max = processes;

    runner_child_begin();

    helper = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

    if (helper == 0) {
        if (dup2(pidfd, 0) == 0) {
            (void) syscall(SYS_close_range, 1, ~0U, 0);
        }

        if (setns(0, CLONE_NEWUSER) == -1
            || prlimit(pid, RLIMIT_NPROC, &limit, NULL) == -1)
        {
            _exit(errno);
        }

        _exit(0);
    }

    status = -1;

    if (helper != -1) {
        while (waitpid(helper, &status, 0) == -1 && errno == EINTR) {
            /* void */
        }
    }

    runner_child_end();

    errno = WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;

    return errno ? -1 : 0;
}


static int
runner_inside_child(int pidfd)
{
    size_t  i;

    static const char  *limits[] = {
        "/proc/sys/user/max_user_namespaces",
        "/proc/sys/user/max_mnt_namespaces",
        "/proc/sys/user/max_pid_namespaces",
        "/proc/sys/user/max_net_namespaces",
        "/proc/sys/user/max_ipc_namespaces",
        "/proc/sys/user/max_uts_namespaces",
        "/proc/sys/user/max_cgroup_namespaces",
        "/proc/sys/user/max_time_namespaces"
    };

    /* no descriptor of ours goes where an agent could reach it */

    if (dup2(pidfd, 0) == -1) {
        return RUNNER_INSIDE_ENTER;
    }

    (void) syscall(SYS_close_range, 1, ~0U, 0);

    /* in one call: once inside, the agent's process may be closed to us */

    if (setns(0, CLONE_NEWUSER|CLONE_NEWNET) == -1) {
        return RUNNER_INSIDE_ENTER;
    }

    if (runner_inside_loopback() == -1) {
        return RUNNER_INSIDE_LOOPBACK;
    }

    /* all TCP of the host has one pool of memory: less of it for each socket */

    if (runner_file_write(AT_FDCWD, "/proc/sys/net/ipv4/tcp_rmem",
                          "4096 65536 262144")
        == -1
        || runner_file_write(AT_FDCWD, "/proc/sys/net/ipv4/tcp_wmem",
                             "4096 16384 262144")
           == -1)
    {
        return RUNNER_INSIDE_SOCKETS;
    }

    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (runner_file_write(AT_FDCWD, limits[i], "0") == -1
            && errno != ENOENT)
        {
            return RUNNER_INSIDE_LIMITS;
        }
    }

    return RUNNER_INSIDE_OK;
}


static int
runner_inside_loopback(void)
{
    int           fd, rc;
    struct ifreq  request;

    fd = socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, 0);
    if (fd == -1) {
        return -1;
    }

    memset(&request, 0, sizeof(request));
    strcpy(request.ifr_name, "lo");

    rc = ioctl(fd, SIOCGIFFLAGS, &request);

    if (rc == 0) {
        request.ifr_flags |= IFF_UP;
        rc = ioctl(fd, SIOCSIFFLAGS, &request);
    }

    close(fd);

    return rc;
}
