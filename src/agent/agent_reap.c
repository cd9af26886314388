/*
 * Signals and the death of children.  As process 1 the agent inherits every
 * orphan; all of them and the commands' shells are waited for here and
 * nowhere else, so no status is ever taken from the one it belongs to.
 */

#include "agent.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_keeper.h"
#include "agent_search.h"


#define AGENT_REAP_ROUND  1024


static void agent_reap_default(int number);
static void agent_reap_signal(agent_watch_t *watch, uint32_t events);
static void agent_reap_more(agent_timer_t *timer);


static agent_watch_t  agent_reap_watch;
static agent_timer_t  agent_reap_timer;


int
agent_reap_init(void)
{
    int       number;
    sigset_t  set;

    /*
     * Blocked, not ignored: a command inherits what is ignored, even over
     * exec, but unblocking is one call in the child.  SIGPIPE stays blocked
     * and is never taken; writes then just fail.
     */

    for (number = 1; number < NSIG; number++) {
        agent_reap_default(number);
    }

    sigfillset(&set);
    sigdelset(&set, SIGSEGV);
    sigdelset(&set, SIGBUS);
    sigdelset(&set, SIGFPE);
    sigdelset(&set, SIGILL);
    sigdelset(&set, SIGABRT);
    sigdelset(&set, SIGTRAP);
    sigdelset(&set, SIGSYS);

    if (sigprocmask(SIG_SETMASK, &set, NULL) == -1) {
        return -1;
    }

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);

    agent_reap_watch.fd = signalfd(-1, &set, SFD_NONBLOCK|SFD_CLOEXEC);
    if (agent_reap_watch.fd == -1) {
        return -1;
    }

    agent_reap_watch.handler = agent_reap_signal;

    return agent_watch_set(&agent_reap_watch, EPOLLIN);
}


/*
 * By the kernel's call: a C library refuses the signals it keeps for itself,
 * and one of those, ignored by who started the runner, would stay ignored.
 */

static void
agent_reap_default(int number)
{
    struct {
        unsigned long  handler;
        unsigned long  flags;
        unsigned long  restorer;
        uint64_t       mask;
    } action;

    memset(&action, 0, sizeof(action));

    (void) syscall(SYS_rt_sigaction, number, &action, NULL,
                   sizeof(action.mask));
}


void
agent_reap(void)
{
    int            i, status;
    pid_t          pid;
    uint64_t       cpu;
    struct rusage  usage;

    for (i = 0; i < AGENT_REAP_ROUND; i++) {
        pid = wait4(-1, &status, WNOHANG, &usage);

        /* a keeper says how its shell ended before it ends itself */

        agent_keeper_read();

        if (pid <= 0) {
            return;
        }

        cpu = ((uint64_t) usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
              * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;

        agent_reap_ended(pid, status, cpu);
    }

    /* so many died at once that others must have their turn before */

    agent_reap_timer.handler = agent_reap_more;
    agent_timer_set(&agent_reap_timer, 1);
}


void
agent_reap_ended(pid_t pid, int status, uint64_t cpu)
{
    if (!agent_end_reaped(pid, status, cpu)) {
        (void) agent_search_reaped(pid, status);
    }
}


static void
agent_reap_signal(agent_watch_t *watch, uint32_t events)
{
    int                      stop;
    unsigned                 i;
    ssize_t                  n;
    struct signalfd_siginfo  info[8];

    stop = 0;
    n = read(watch->fd, info, sizeof(info));

    for (i = 0; n > 0 && i < n / sizeof(info[0]); i++) {
        stop |= info[i].ssi_signo != SIGCHLD;
    }

    agent_reap();

    if (stop) {
        if (agent.host != NULL) {
            agent.host->stop();

        } else {
            agent_queue_stop(SANDBOX_OUTCOME_DELETED);
        }
    }
}


static void
agent_reap_more(agent_timer_t *timer)
{
    agent_reap();
}
