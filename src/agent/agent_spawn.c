/*
 * From the agent to bash, or another program, as user 1000, straight into a
 * cgroup of its own.
 *
 * Not by vfork, though that is a little faster: from the moment the child is
 * user 1000, any process in the sandbox may stop it, and an agent that waits
 * for its exec would be stopped with it, holding its run slot for ever.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_caps.h"
#include "agent_filter.h"
#include "agent_keeper.h"
#include "sandbox_utf8.h"


#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP  0x200000000ULL
#endif

/*
 * The kernel takes no single argument over 128 KiB.  A longer command comes
 * in parts, and bash puts them together itself: no file, no descriptor, its
 * standard input stays its own, and every byte arrives.  `set --` leaves no
 * positional parameter behind.  120 KiB leave room for the cut at UTF-8
 * borders, which keeps each part valid text.
 */

#define AGENT_SPAWN_PART   (120 * 1024)
#define AGENT_SPAWN_PARTS  5             /* of 120 KiB: SANDBOX_WIRE_MAX_... */


#define AGENT_SPAWN_REPORTS    64        /* of those that have not ended */
#define AGENT_SPAWN_NICE       10        /* where nothing else holds them */
#define AGENT_SPAWN_DIRECTORY  3         /* of the child, after its streams */


typedef struct {
    int                 error;
    int                 directory;       /* it was fchdir() */
    int                 used;            /* by a child */
} agent_report_t;


static unsigned agent_spawn_report(void);
static char **agent_spawn_argv(const agent_request_t *request);
static void agent_spawn_child(const agent_program_t *child);
static void agent_spawn_limit(int what, rlim_t most);
static void agent_spawn_watched(const agent_program_t *child);


static const char  agent_spawn_script[] = "eval \"set --; $1$2$3$4$5\"";

/* shared with a child until its exec: what went wrong there */

static volatile agent_report_t  *agent_spawn_reports;

/* no command can have more than the agent itself */

static rlim_t  agent_spawn_open_files = RLIM_INFINITY;


int
agent_spawn_init(void)
{
    struct rlimit  limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        agent_spawn_open_files = limit.rlim_max;
    }

    agent_spawn_reports = mmap(NULL,
                               AGENT_SPAWN_REPORTS * sizeof(agent_report_t),
                               PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
                               -1, 0);

    return agent_spawn_reports == MAP_FAILED ? -1 : 0;
}


int
agent_spawn(agent_command_t *command)
{
    int                error;
    rlim_t             seconds;
    agent_program_t    child;
    agent_request_t   *request;

    request = &command->request;

    memset(&child, 0, sizeof(child));
    child.network = agent_egress_command(request) || agent.network;
    child.path = "/bin/bash";
    child.in = command->child_fd[0];
    child.out = command->child_fd[1];
    child.err = command->child_fd[2];
    child.directory = command->directory;
    child.argv = agent_spawn_argv(request);
    child.environment = agent_environment_build(request);

    if (child.argv == NULL || child.environment == NULL) {
        free(child.argv);
        free(child.environment);
        return ENOMEM;
    }

    /*
     * CPU time of one process, far behind the count of the whole tree, for the
     * kernel counts this one by its ticks, and on a busy host some ten per cent
     * too much.
     */

    seconds = (request->cpu_ms + 999) / 1000 * 2 + 1;

    child.cpu.rlim_cur = seconds;
    child.cpu.rlim_max = seconds + 2;
    child.open_files = request->open_files;
    child.file = agent_caps_file();
    child.tasks = agent_caps_tasks();

    error = agent_spawn_program(&child, &command->tree);

    free(child.argv);
    free(child.environment);

    if (error == 0) {
        command->pid = child.pid;
        command->report = child.report;
    }

    return error;
}


int
agent_spawn_program(agent_program_t *child, agent_tree_t *tree)
{
    int                error;
    long               pid;
    struct clone_args  args;

    child->report = agent_spawn_report();

    if (child->report == 0) {
        return EAGAIN;
    }

    if (child->open_files > agent_spawn_open_files) {
        child->open_files = agent_spawn_open_files;
    }

    if (tree->number) {
        memset(&args, 0, sizeof(args));
        args.exit_signal = SIGCHLD;
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = tree->directory;

        pid = syscall(SYS_clone3, &args, sizeof(args));
        error = errno;

        if (pid == 0) {
            agent_spawn_child(child);
        }

    } else {
        pid = agent_keeper_start(child, agent_spawn_child);
        error = errno;
    }

    if (pid == -1) {
        return error;
    }

    child->pid = pid;
    agent_spawn_reports[child->report - 1].used = 1;
    tree->keeper = pid;

    return 0;
}


int
agent_spawn_error(unsigned *number, int *directory)
{
    volatile agent_report_t  *report;

    if (*number == 0) {
        *directory = 0;
        return 0;
    }

    report = &agent_spawn_reports[*number - 1];
    *number = 0;
    report->used = 0;
    *directory = report->directory;

    return report->error;
}


void
agent_spawn_failed(const agent_program_t *program, int error)
{
    agent_spawn_reports[program->report - 1].error = error;
}


/* One that no other child has, set back; 0: there is none. */

static unsigned
agent_spawn_report(void)
{
    unsigned  i;

    for (i = 0; i < AGENT_SPAWN_REPORTS; i++) {
        if (!agent_spawn_reports[i].used) {
            agent_spawn_reports[i].error = 0;
            agent_spawn_reports[i].directory = 0;
            return i + 1;
        }
    }

    return 0;
}


static char **
agent_spawn_argv(const agent_request_t *request)
{
    char           *p, **argv;
    size_t          size, part;
    unsigned        n;
    const uint8_t  *text;

    argv = malloc((5 + AGENT_SPAWN_PARTS) * sizeof(char *)
                  + request->command_size + AGENT_SPAWN_PARTS + 1);
    if (argv == NULL) {
        return NULL;
    }

    p = (char *) (argv + 5 + AGENT_SPAWN_PARTS);
    text = request->command;
    size = request->command_size;

    argv[0] = (char *) "bash";
    argv[1] = (char *) "-c";
    n = 2;

    if (size > AGENT_SPAWN_PART) {
        argv[n++] = (char *) agent_spawn_script;
        argv[n++] = (char *) "bash";
    }

    do {
        part = size;

        if (part > AGENT_SPAWN_PART) {
            part = sandbox_utf8_head(text, AGENT_SPAWN_PART);
        }

        argv[n++] = p;

        memcpy(p, text, part);
        p[part] = '\0';

        p += part + 1;
        text += part;
        size -= part;

    } while (size && n < 4 + AGENT_SPAWN_PARTS);

    argv[n] = NULL;

    return argv;
}


/*
 * In the child, which never returns.  Of the C library only what is a plain
 * system call: its idea of threads and ids is the agent's.
 */

static void
agent_spawn_child(const agent_program_t *child)
{
    int       fd;
    uint64_t  none;

    none = 0;

    syscall(SYS_setsid);

    /* the first to go when memory runs out; root only by file ownership */

    fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj",
                 O_WRONLY|O_CLOEXEC);
    if (fd != -1) {
        (void) !syscall(SYS_write, fd, "1000", 4);
    }

    if (child->in != STDIN_FILENO) {
        syscall(SYS_dup3, child->in, STDIN_FILENO, 0);
    }

    syscall(SYS_dup3, child->out, STDOUT_FILENO, 0);
    syscall(SYS_dup3, child->err, STDERR_FILENO, 0);

    /*
     * Clients, runner and logs are closed while no process of the user can
     * stop this one; only the directory goes on, until exec.
     */

    if (child->directory != AGENT_SPAWN_DIRECTORY) {
        syscall(SYS_dup3, child->directory, AGENT_SPAWN_DIRECTORY, O_CLOEXEC);
    }

    syscall(SYS_close_range, AGENT_SPAWN_DIRECTORY + 1, ~0U, 0);

    syscall(SYS_prlimit64, 0, RLIMIT_CPU, &child->cpu, NULL);

    agent_spawn_limit(RLIMIT_NOFILE, child->open_files);

    if (child->data) {
        agent_spawn_limit(RLIMIT_DATA, child->data);
    }

    if (agent.tcp) {
        agent_spawn_watched(child);
    }

    if (syscall(SYS_setgroups, 0, NULL) == 0
        && syscall(SYS_setresgid, AGENT_GID, AGENT_GID, AGENT_GID) == 0
        && syscall(SYS_setresuid, AGENT_UID, AGENT_UID, AGENT_UID) == 0)
    {
        if (syscall(SYS_fchdir, AGENT_SPAWN_DIRECTORY) == -1) {
            agent_spawn_reports[child->report - 1].directory = 1;

        } else if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL,
                           sizeof(none))
                   == 0
                   && (!agent.tcp
                       || agent_filter_install(child->network) == 0))
        {
            syscall(SYS_execve, child->path, child->argv, child->environment);
        }
    }

    agent_spawn_reports[child->report - 1].error = errno;

    for ( ;; ) {
        syscall(SYS_exit_group, 127);
    }
}


static void
agent_spawn_limit(int what, rlim_t most)
{
    struct rlimit  limit;

    limit.rlim_cur = most;
    limit.rlim_max = most;
    syscall(SYS_prlimit64, 0, what, &limit, NULL);
}


/*
 * Without a cgroup and a disk of its own.  A file that is too large is an
 * error of the write, as on a full disk, and ends nobody.
 */

static void
agent_spawn_watched(const agent_program_t *child)
{
    struct {
        void          *handler;
        unsigned long  flags;
        void          *restorer;
        uint64_t       mask;
    } action;

    /* however many they are, the agent has its turn */

    syscall(SYS_setpriority, PRIO_PROCESS, 0, AGENT_SPAWN_NICE);

    if (child->file != RLIM_INFINITY) {
        memset(&action, 0, sizeof(action));
        action.handler = (void *) SIG_IGN;
        syscall(SYS_rt_sigaction, SIGXFSZ, &action, NULL,
                sizeof(action.mask));
        agent_spawn_limit(RLIMIT_FSIZE, child->file);
    }

    if (child->tasks != RLIM_INFINITY) {
        agent_spawn_limit(RLIMIT_NPROC, child->tasks);
    }
}
