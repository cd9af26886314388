/*
 * From the agent to bash as user 1000, in one clone3.  The child shares the
 * agent's memory until exec, so it runs on a stack of its own, makes raw
 * system calls only, and reports by plain stores what went wrong.
 */

#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox_utf8.h"


#ifndef __x86_64__
#error "the entry of the child is written for x86-64 only"
#endif

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP  0x200000000ULL
#endif

#define AGENT_SPAWN_STACK  (32 * 1024)

/*
 * The kernel takes no single argument over 128 KiB.  A longer command comes
 * in parts, and bash puts them together itself: no file, no descriptor, its
 * standard input stays its own, and every byte arrives.  `set --` leaves no
 * positional parameter behind.  120 KiB leave room for the cut at UTF-8
 * borders, which keeps each part valid text.
 */

#define AGENT_SPAWN_PART   (120 * 1024)
#define AGENT_SPAWN_PARTS  5             /* of 120 KiB: SANDBOX_WIRE_MAX_... */


typedef struct {
    int                 in;
    int                 out;
    int                 err;
    int                 directory;
    char              **argv;
    char              **environment;
    struct rlimit       cpu;
    struct rlimit       open_files;
    volatile int        error;           /* 0, or an errno of the child */
} agent_child_t;


static char **agent_spawn_argv(const agent_request_t *request);
static void agent_spawn_child(void *data);
static long agent_spawn_clone(struct clone_args *args, void (*child)(void *),
    void *data);
static inline long agent_spawn_call(long number, long a, long b, long c,
    long d);


static const char  agent_spawn_script[] = "eval \"set --; $1$2$3$4$5\"";

static uint8_t     agent_spawn_stack[AGENT_SPAWN_STACK]
                       __attribute__((aligned(64)));


int
agent_spawn(agent_command_t *command)
{
    long               pid;
    rlim_t             seconds;
    agent_child_t      child;
    struct rlimit      limit;
    agent_request_t   *request;
    struct clone_args  args;

    request = &command->request;

    memset(&child, 0, sizeof(child));
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
     * CPU time of one process, behind the count of the whole tree: SIGXCPU
     * comes first where there is no count.
     */

    seconds = (request->cpu_ms + 999) / 1000 + (command->tree.number != 0);
    child.cpu.rlim_cur = seconds;
    child.cpu.rlim_max = seconds + 2;

    child.open_files.rlim_max = request->open_files;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0
        && limit.rlim_max < child.open_files.rlim_max)
    {
        child.open_files.rlim_max = limit.rlim_max;
    }

    child.open_files.rlim_cur = child.open_files.rlim_max;

    memset(&args, 0, sizeof(args));
    args.flags = CLONE_VM|CLONE_VFORK;
    args.exit_signal = SIGCHLD;
    args.stack = (uintptr_t) agent_spawn_stack;
    args.stack_size = sizeof(agent_spawn_stack);

    if (command->tree.number) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = command->tree.directory;
    }

    pid = agent_spawn_clone(&args, agent_spawn_child, &child);

    free(child.argv);
    free(child.environment);

    if (pid < 0) {
        return -pid;
    }

    /* also if exec failed: its end is reaped like any other */

    command->pid = pid;
    command->tree.session = pid;

    return child.error;
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
 * In the child.  Nothing here may return, allocate, take a lock or touch
 * errno: the memory is the agent's.
 */

static void
agent_spawn_child(void *data)
{
    long            fd, rc;
    uint64_t        none;
    agent_child_t  *child;

    child = data;
    none = 0;

    agent_spawn_call(SYS_setsid, 0, 0, 0, 0);

    /* the first to go when memory runs out; root only by file ownership */

    fd = agent_spawn_call(SYS_openat, AT_FDCWD,
                          (long) "/proc/self/oom_score_adj",
                          O_WRONLY|O_CLOEXEC, 0);
    if (fd >= 0) {
        agent_spawn_call(SYS_write, fd, (long) "1000", 4, 0);
    }

    if (child->in != STDIN_FILENO) {
        agent_spawn_call(SYS_dup3, child->in, STDIN_FILENO, 0, 0);
    }

    agent_spawn_call(SYS_dup3, child->out, STDOUT_FILENO, 0, 0);
    agent_spawn_call(SYS_dup3, child->err, STDERR_FILENO, 0, 0);

    agent_spawn_call(SYS_prlimit64, 0, RLIMIT_CPU, (long) &child->cpu, 0);
    agent_spawn_call(SYS_prlimit64, 0, RLIMIT_NOFILE,
                     (long) &child->open_files, 0);

    rc = agent_spawn_call(SYS_setgroups, 0, 0, 0, 0);

    if (rc == 0) {
        rc = agent_spawn_call(SYS_setresgid, AGENT_GID, AGENT_GID, AGENT_GID,
                              0);
    }

    if (rc == 0) {
        rc = agent_spawn_call(SYS_setresuid, AGENT_UID, AGENT_UID, AGENT_UID,
                              0);
    }

    if (rc == 0) {
        rc = agent_spawn_call(SYS_fchdir, child->directory, 0, 0, 0);
    }

    if (rc == 0) {
        agent_spawn_call(SYS_rt_sigprocmask, SIG_SETMASK, (long) &none, 0,
                         sizeof(none));

        rc = agent_spawn_call(SYS_execve, (long) "/bin/bash",
                              (long) child->argv, (long) child->environment,
                              0);
    }

    child->error = -rc;

    for ( ;; ) {
        agent_spawn_call(SYS_exit_group, 127, 0, 0, 0);
    }
}


static inline long
agent_spawn_call(long number, long a, long b, long c, long d)
{
    long           rc;
    register long  r10 __asm__("r10") = d;

    __asm__ volatile ("syscall"
                      : "=a" (rc)
                      : "0" (number), "D" (a), "S" (b), "d" (c), "r" (r10)
                      : "rcx", "r11", "memory");

    return rc;
}


/*
 * clone3 from C would let the child return on its parent's stack.  Here the
 * child calls its function on the new stack, straight from the system call.
 */

static long
agent_spawn_clone(struct clone_args *args, void (*child)(void *), void *data)
{
    long             rc;
    register void  (*function)(void *) __asm__("r12") = child;
    register void   *argument __asm__("r13") = data;

    __asm__ volatile ("syscall\n\t"
                      "testq %%rax, %%rax\n\t"
                      "jnz 1f\n\t"
                      "xorl %%ebp, %%ebp\n\t"
                      "movq %%r13, %%rdi\n\t"
                      "call *%%r12\n\t"
                      "ud2\n"
                      "1:"
                      : "=a" (rc)
                      : "0" ((long) SYS_clone3), "D" (args),
                        "S" (sizeof(*args)), "r" (function), "r" (argument)
                      : "rcx", "r11", "memory");

    return rc;
}
