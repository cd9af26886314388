/*
 * sandbox-agent: the first process of a sandbox.  It runs the commands of
 * one conversation as an ordinary user, enforces their limits and answers
 * in the sandbox wire protocol.  It trusts nothing inside the sandbox.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <linux/magic.h>
#include <unistd.h>

#include "agent_engine.h"
#include "agent_file.h"
#include "agent_filter.h"
#include "agent_once.h"
#include "agent_spool.h"
#include "sandbox_control.h"


#define AGENT_EXIT_REFUSED  2
#define AGENT_STACK         (8 * 1024 * 1024)    /* bytes, of commands */
#define AGENT_LARGE         (128 * 1024)         /* bytes: a mapping */


/* how it was started; without any of these by a runner */

typedef struct {
    const char  *listen;                 /* ADDRESS:PORT */
    const char  *secret_file;
    const char  *engine;                 /* ADDRESS:PORT */
    int          once;                   /* standard input and output */
} agent_options_t;


static int agent_main_options(agent_options_t *options, int argc,
    char **argv);
static void agent_main_descriptors(int first);
static int agent_main_process(void);
static int agent_main_tcp(const agent_options_t *options);
static int agent_main_runner(void);


extern char  **environ;


int
main(int argc, char **argv)
{
    int              rc, alone;
    agent_options_t  options;

    if (agent_main_options(&options, argc, argv) == -1) {
        fprintf(stderr, "usage: sandbox-agent [--listen ADDRESS:PORT "
                "--secret-file FILE | --engine ADDRESS:PORT | --once]\n");
        return AGENT_EXIT_REFUSED;
    }

    alone = options.listen != NULL || options.engine != NULL || options.once;

    if (agent_guard_check(alone) == -1) {
        return AGENT_EXIT_REFUSED;
    }

    agent_main_descriptors(alone ? SANDBOX_FD_CONTROL
                                 : SANDBOX_FD_HISTORY + 1);

    if ((options.engine != NULL || options.once)
        && agent_engine_init(environ) == -1)
    {
        return AGENT_EXIT_REFUSED;
    }

    if (options.once && agent_once_init() == -1) {
        return AGENT_EXIT_REFUSED;
    }

    if (agent_main_process() == -1) {
        fprintf(stderr, "sandbox-agent: can't prepare itself: %s\n",
                strerror(errno));
        return 1;
    }

    if (agent_environment_init(AGENT_ENVIRONMENT, environ) == -1
        || agent_directory_init() == -1
        || agent_root_init() == -1)
    {
        return 1;
    }

    rc = alone ? agent_main_tcp(&options) : agent_main_runner();

    if (rc) {
        return rc == -1 ? 1 : rc;
    }

    for ( ;; ) {
        agent_event_round();
    }
}


static int
agent_main_options(agent_options_t *options, int argc, char **argv)
{
    int  i;

    memset(options, 0, sizeof(agent_options_t));

    if (argc == 2 && strcmp(argv[1], "--once") == 0) {
        options->once = 1;
        return 0;
    }

    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--listen") == 0) {
            options->listen = argv[i + 1];

        } else if (strcmp(argv[i], "--secret-file") == 0) {
            options->secret_file = argv[i + 1];

        } else if (strcmp(argv[i], "--engine") == 0) {
            options->engine = argv[i + 1];

        } else {
            return -1;
        }
    }

    return i == argc
           && (options->listen == NULL) == (options->secret_file == NULL)
           && (options->listen == NULL || options->engine == NULL)
           ? 0 : -1;
}


/* Nothing that is open here by accident may reach a command. */

static void
agent_main_descriptors(int first)
{
    int  fd;

    for (fd = SANDBOX_FD_CONTROL; fd < first; fd++) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }

    if (syscall(SYS_close_range, first, UINT_MAX, 0) == -1) {
        for (fd = first; fd < 1024; fd++) {
            close(fd);
        }
    }
}


static int
agent_main_process(void)
{
    int            fd;
    struct rlimit  limit;

    /* commands inherit their standard input from here */

    fd = open("/dev/null", O_RDONLY|O_CLOEXEC);

    if (fd == -1 || dup2(fd, STDIN_FILENO) == -1) {
        return -1;
    }

    if (fd > STDERR_FILENO) {
        close(fd);
    }

    /* 1: no core, nor a program of the host's that would take one */

    limit.rlim_cur = 1;
    limit.rlim_max = 1;

    if (setrlimit(RLIMIT_CORE, &limit) == -1) {
        memset(&limit, 0, sizeof(limit));

        if (setrlimit(RLIMIT_CORE, &limit) == -1) {
            return -1;
        }
    }

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }

    /* exec takes arguments up to a quarter of it: a long command needs that */

    if (getrlimit(RLIMIT_STACK, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max < AGENT_STACK ? limit.rlim_max
                                                      : AGENT_STACK;
        setrlimit(RLIMIT_STACK, &limit);
    }

    if (chdir("/") == -1
        || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1
        || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || agent_event_init() == -1
        || agent_spawn_init() == -1
        || agent_filter_init() == -1
        || agent_reap_init() == -1)
    {
        return -1;
    }

    /* output comes and goes in large pieces: each gives its memory back */

    mallopt(M_MMAP_THRESHOLD, AGENT_LARGE);
    agent_command_init();

    umask(022);

    return 0;
}


/* 0; -1: said why; or a status to exit with. */

static int
agent_main_tcp(const agent_options_t *options)
{
    int  rc;

    if (options->listen != NULL) {
        agent_tree_init(-1);

        if (!agent.network) {
            agent_egress_init();
        }

        return agent_tcp_init(options->listen, options->secret_file);
    }

    agent_tree_init(-1);
    rc = agent_engine_start();

    if (!options->once) {
        return rc ? rc : agent_tcp_listen(options->engine);
    }

    if (rc) {
        agent_once_failed(rc);
        exit(0);
    }

    return agent_once_start();
}


static int
agent_main_runner(void)
{
    int            cgroup, oom, peak;
    struct stat    st;
    struct statfs  fs;

    cgroup = SANDBOX_FD_CGROUP;
    oom = SANDBOX_FD_OOM;
    peak = SANDBOX_FD_PEAK;

    if (fstat(SANDBOX_FD_CONTROL, &st) == -1 || !S_ISSOCK(st.st_mode)
        || fcntl(SANDBOX_FD_CONTROL, F_SETFL, O_RDWR|O_NONBLOCK) == -1)
    {
        fprintf(stderr, "sandbox-agent: descriptor %d is not the runner's "
                "socket\n", SANDBOX_FD_CONTROL);
        return -1;
    }

    if (fstatfs(cgroup, &fs) == -1 || fs.f_type != CGROUP2_SUPER_MAGIC) {
        close(cgroup);
        cgroup = -1;
    }

    if (fstat(oom, &st) == -1 || !S_ISREG(st.st_mode)) {
        close(oom);
        oom = -1;
    }

    if (fstat(peak, &st) == -1 || !S_ISREG(st.st_mode)) {
        close(peak);
        peak = -1;
    }

    agent_tree_init(cgroup);
    agent_memory_init(oom, peak);
    agent_history_init(SANDBOX_FD_HISTORY);
    agent_spool_init();
    agent_egress_init();

    return agent_control_init(SANDBOX_FD_CONTROL);
}
