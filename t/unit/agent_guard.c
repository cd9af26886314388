/*
 * Where the agent may run, and that its sweep does nothing elsewhere.  This
 * test runs on the host, so whatever asks for the sweep runs in a child in
 * which the kernel refuses kill(2), and a refusal by the kernel is a failure.
 */

/* link: src/agent/agent_guard.c src/agent/agent_sandbox.c src/agent/agent_caps_take.c */
/* link: src/wire/sandbox_wire.c */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "test.h"


static void maps(void);
static int in_child(int (*function)(void));
static int disarm(void);
static int armed(void);
static int sweep(void);
static int sweep_mapped(void);
static int check_runner(void);
static int check_tcp(void);


int
main(void)
{
    maps();

    /* errno of the child's kill(2): the filter works, or all ends here */

    if (!ok(in_child(armed) == EPERM, "kill is refused in the children")) {
        return test_done();
    }

    is_number(in_child(sweep), 1, "no sweep at first");
    is_number(in_child(sweep_mapped), 1, "no sweep outside, whatever is set");
    is_number(in_child(check_runner), 1, "it does not start here");
    is_number(in_child(check_tcp), 1, "nor on TCP");

    return test_done();
}


static void
maps(void)
{
    unsigned  i;

    static const struct {
        const char  *text;
        int          good;
        const char  *name;
    } cases[] = {
        { "         0     200000      65536\n", 1, "a range of its own" },
        { "0 200000 1000\n1000 300000 1\n", 1, "two ranges" },
        { "         0          0 4294967295\n", 0, "the host's namespace" },
        { "0 0 1\n", 0, "root is root" },
        { "0 200000 1000\n1000 0 1\n", 0, "a user is root" },
        { "1000 0 1\n", 0, "root by another name" },
        { "1000 200000 10\n", 0, "no inner root" },
        { "", 0, "nothing" },
        { "\n", 0, "an empty line" },
        { "0 200000 0\n", 0, "an empty range" },
        { "0 200000\n", 0, "two numbers" },
        { "0 200000 65536", 0, "no end of line" },
        { "0 200000 65536 7\n", 0, "four numbers" },
        { "0 -1 65536\n", 0, "a negative number" },
        { "0 200000 65536\nx\n", 0, "something else" }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_number(agent_guard_map(cases[i].text), cases[i].good,
                  "map: %s", cases[i].name);
    }
}


static int
in_child(int (*function)(void))
{
    int    status;
    pid_t  pid;

    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        (void) !freopen("/dev/null", "w", stderr);
        _exit(disarm() == 0 ? function() : 99);
    }

    if (pid == -1 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
        return -1;
    }

    return WEXITSTATUS(status);
}


static int
disarm(void)
{
    struct sock_filter  filter[] = {
        BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, SYS_kill, 0, 1),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ERRNO|EPERM),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW)
    };

    struct sock_fprog   program = { 4, filter };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
           || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == -1;
}


/* signal 0 to itself: allowed to everybody but us */

static int
armed(void)
{
    return syscall(SYS_kill, getpid(), 0) == 0 ? 0 : errno;
}


/* 1: refused before it came to the kernel, which would have set EPERM */

static int
sweep(void)
{
    errno = 0;

    return agent_guard_sweep() == -1 && errno != EPERM;
}


static int
sweep_mapped(void)
{
    agent.mapped = 1;

    return sweep();
}


static int
check_runner(void)
{
    return agent_guard_check(0) == -1;
}


static int
check_tcp(void)
{
    return agent_guard_check(1) == -1;
}
