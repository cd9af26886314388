/*
 * A command's processes where there is no cgroup, as in a container of an
 * engine.  Between agent and shell stands a keeper: a process of root's that
 * all orphans below it come to, as a subreaper, so that none of them leaves
 * its tree, whatever it does.  It ends when it has no children any more.  By
 * it the tree is found in /proc, counted, timed and ended.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_caps.h"
#include "agent_keeper.h"


#define AGENT_KEEPER_READ  64            /* of its pipe, at once */


/* one write into the pipe, which takes it whole */

typedef struct {
    pid_t     keeper;
    int       status;                    /* of the shell */
    uint64_t  cpu;                       /* us, of all that had ended */
    uint64_t  memory;                    /* bytes, of the largest of them */
    uint64_t  written;                   /* bytes, to disks */
} agent_keeper_end_t;


static void agent_keeper_event(agent_watch_t *watch, uint32_t events);
static long agent_keeper_clone(void);
static void agent_keeper_main(const agent_program_t *program,
    agent_keeper_shell_t shell);


static agent_watch_t  agent_keeper_watch = { .fd = -1 };
static int            agent_keeper_pipe = -1;    /* its other end */


int
agent_keeper_init(void)
{
    int  fds[2];

    if (pipe2(fds, O_CLOEXEC|O_NONBLOCK) == -1) {
        return -1;
    }

    agent_keeper_watch.fd = fds[0];
    agent_keeper_watch.handler = agent_keeper_event;
    agent_keeper_pipe = fds[1];

    return agent_watch_set(&agent_keeper_watch, EPOLLIN);
}


static void
agent_keeper_event(agent_watch_t *watch, uint32_t events)
{
    agent_reap();
}


void
agent_keeper_read(void)
{
    ssize_t             i, n;
    agent_keeper_end_t  ends[AGENT_KEEPER_READ];

    if (agent_keeper_watch.fd == -1) {
        return;
    }

    n = read(agent_keeper_watch.fd, ends, sizeof(ends));

    for (i = 0; i < n / (ssize_t) sizeof(ends[0]); i++) {
        agent_caps_ended(ends[i].keeper, ends[i].memory, ends[i].written);
        agent_reap_ended(ends[i].keeper, ends[i].status, ends[i].cpu);
    }
}


pid_t
agent_keeper_start(const agent_program_t *program, agent_keeper_shell_t shell)
{
    long  pid;

    if (agent_keeper_pipe == -1) {
        errno = EMFILE;
        return -1;
    }

    pid = agent_keeper_clone();

    if (pid == 0) {
        agent_keeper_main(program, shell);
    }

    return (pid_t) pid;
}


/* the plain call: engines' filters of calls do not know clone3() */

static long
agent_keeper_clone(void)
{
    return syscall(SYS_clone, SIGCHLD, 0, NULL, NULL, 0);
}


/* In the keeper, which never returns.  All its signals are blocked. */

static void
agent_keeper_main(const agent_program_t *program, agent_keeper_shell_t shell)
{
    int                 status;
    long                pid, first;
    struct rusage       usage;
    agent_keeper_end_t  end;

    memset(&end, 0, sizeof(end));

    end.keeper = (pid_t) syscall(SYS_getpid);

    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == -1) {
        syscall(SYS_exit_group, 127);
    }

    first = agent_keeper_clone();

    if (first == 0) {
        shell(program);
    }

    if (first == -1) {
        agent_spawn_failed(program, errno);
    }

    /* nothing of the agent's stays open here but the pipe */

    (void) dup3(agent_keeper_pipe, STDERR_FILENO, O_CLOEXEC);
    (void) close(STDIN_FILENO);
    (void) close(STDOUT_FILENO);
    (void) syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);

    for ( ;; ) {
        pid = syscall(SYS_wait4, -1, &status, 0, NULL);

        if (pid == -1 && errno == EINTR) {
            continue;
        }

        if (pid == first) {
            end.status = status;

            if (getrusage(RUSAGE_CHILDREN, &usage) == 0) {
                end.cpu = ((uint64_t) usage.ru_utime.tv_sec
                           + usage.ru_stime.tv_sec) * 1000000
                          + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
                end.memory = (uint64_t) usage.ru_maxrss * 1024;
                end.written = (uint64_t) usage.ru_oublock * 512;
            }

            (void) !write(STDERR_FILENO, &end, sizeof(end));
        }

        if (pid == -1) {
            syscall(SYS_exit_group, first == -1 ? 127 : 0);
        }
    }
}
