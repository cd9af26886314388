/*
 * The filter of system calls for commands in a container that was not made by
 * us, as in an engine's: the same calls as locally, of sockets only those that
 * can't leave the container, unless there is a network for it.  It comes on
 * top of the engine's own and is there for the whole life of a process and
 * all that it starts.
 *
 * Knows nothing of commands.  The names it shares with who configures local
 * containers.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <linux/audit.h>
#include <linux/memfd.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent_filter.h"
#include "sandbox_calls.h"


#define AGENT_FILTER_CALLS  1024         /* numbers; none is beyond */
#define AGENT_FILTER_TYPE   0xf          /* of a socket, without its flags */
#define AGENT_FILTER_X32    0x40000000u

#if (defined __aarch64__)
#define AGENT_FILTER_ARCH   AUDIT_ARCH_AARCH64
#else
#define AGENT_FILTER_ARCH   AUDIT_ARCH_X86_64
#endif

#define AGENT_FILTER_REFUSE(error)  (SECCOMP_RET_ERRNO | (error))

/* the number of a call, as text; the name itself where there is none */

#define AGENT_FILTER_TEXT(number)   #number
#define AGENT_FILTER_NUMBER(number) AGENT_FILTER_TEXT(number)
#define AGENT_FILTER_CALL(name)     AGENT_FILTER_NUMBER(__NR_ ## name),


typedef struct {
    struct sock_filter  *p;
    size_t               n;
    size_t               most;           /* more than these are counted only */
} agent_filter_t;


static void agent_filter_start(agent_filter_t *f);
static void agent_filter_sockets(agent_filter_t *f, int network);
static void agent_filter_options(agent_filter_t *f);
static void agent_filter_memory(agent_filter_t *f);
static void agent_filter_limits(agent_filter_t *f);
static void agent_filter_processes(agent_filter_t *f);
static void agent_filter_names(agent_filter_t *f);
static void agent_filter_mark(uint8_t *calls, const char **names, size_t n,
    uint8_t mark);
static void agent_filter_put(agent_filter_t *f, uint16_t code, uint8_t yes,
    uint8_t no, uint32_t k);
static void agent_filter_load(agent_filter_t *f, unsigned argument);
static void agent_filter_return(agent_filter_t *f, uint32_t what);
static void agent_filter_if(agent_filter_t *f, uint32_t value, uint32_t what);
static size_t agent_filter_begin(agent_filter_t *f, uint32_t value);
static void agent_filter_end(agent_filter_t *f, size_t at);


static const char  *agent_filter_allowed[] = {
    SANDBOX_CALLS_ALLOWED(AGENT_FILTER_CALL)
};

static const char  *agent_filter_refused[] = {
    SANDBOX_CALLS_REFUSED(AGENT_FILTER_CALL)
};


static struct sock_filter  agent_filter_code[2][AGENT_FILTER_MOST];
static struct sock_fprog   agent_filter_programs[2];


int
agent_filter_init(void)
{
    int     i;
    size_t  n;

    for (i = 0; i < 2; i++) {
        n = agent_filter_build(agent_filter_code[i], AGENT_FILTER_MOST, i);

        if (n == 0) {
            errno = E2BIG;
            return -1;
        }

        agent_filter_programs[i].filter = agent_filter_code[i];
        agent_filter_programs[i].len = (unsigned short) n;
    }

    return 0;
}


int
agent_filter_install(int network)
{
    struct sock_fprog  *program;

    program = &agent_filter_programs[network != 0];

    if (program->len == 0) {
        errno = EINVAL;
        return -1;
    }

    return (int) syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program);
}


size_t
agent_filter_build(struct sock_filter *p, size_t n, int network)
{
    agent_filter_t  f;

    f.p = p;
    f.n = 0;
    f.most = n;

    agent_filter_start(&f);
    agent_filter_memory(&f);
    agent_filter_processes(&f);
    agent_filter_sockets(&f, network);
    agent_filter_options(&f);
    agent_filter_limits(&f);
    agent_filter_names(&f);
    agent_filter_return(&f, AGENT_FILTER_REFUSE(ENOSYS));

    return f.n <= f.most ? f.n : 0;
}


/* Only calls of this ABI: others (int 0x80, x32) have other numbers. */

static void
agent_filter_start(agent_filter_t *f)
{
    agent_filter_put(f, BPF_LD|BPF_W|BPF_ABS, 0, 0,
                     offsetof(struct seccomp_data, arch));
    agent_filter_put(f, BPF_JMP|BPF_JEQ|BPF_K, 1, 0, AGENT_FILTER_ARCH);
    agent_filter_return(f, SECCOMP_RET_KILL_PROCESS);

    agent_filter_put(f, BPF_LD|BPF_W|BPF_ABS, 0, 0,
                     offsetof(struct seccomp_data, nr));

#if (defined __x86_64__)

    /* -1 is what a tracer puts in place of a call that is not to be */

    agent_filter_put(f, BPF_JMP|BPF_JGE|BPF_K, 0, 2, AGENT_FILTER_X32);
    agent_filter_put(f, BPF_JMP|BPF_JEQ|BPF_K, 1, 0, UINT32_MAX);
    agent_filter_return(f, SECCOMP_RET_KILL_PROCESS);

#endif
}


/*
 * Without a network only what stays in the container: names of AF_UNIX end
 * at its mounts and its network namespace.  With one TCP and UDP, neither raw
 * nor of other protocols; vsock in particular reaches the hypervisor.
 */

static void
agent_filter_sockets(agent_filter_t *f, int network)
{
    size_t  call, family, i, n;

    static const uint32_t  families[] = { AF_INET, AF_INET6 };
    static const uint32_t  protocols[] = { 0, IPPROTO_TCP, IPPROTO_UDP };

    call = agent_filter_begin(f, __NR_socketpair);
    agent_filter_load(f, 0);
    agent_filter_if(f, AF_UNIX, SECCOMP_RET_ALLOW);
    agent_filter_return(f, AGENT_FILTER_REFUSE(EAFNOSUPPORT));
    agent_filter_end(f, call);

    call = agent_filter_begin(f, __NR_socket);
    agent_filter_load(f, 0);
    agent_filter_if(f, AF_UNIX, SECCOMP_RET_ALLOW);

    for (i = 0; network && i < sizeof(families) / sizeof(families[0]); i++) {
        family = agent_filter_begin(f, families[i]);

        agent_filter_load(f, 1);
        agent_filter_put(f, BPF_ALU|BPF_AND|BPF_K, 0, 0, AGENT_FILTER_TYPE);
        agent_filter_put(f, BPF_JMP|BPF_JEQ|BPF_K, 2, 0, SOCK_STREAM);
        agent_filter_put(f, BPF_JMP|BPF_JEQ|BPF_K, 1, 0, SOCK_DGRAM);
        agent_filter_return(f, AGENT_FILTER_REFUSE(EPERM));

        agent_filter_load(f, 2);

        for (n = 0; n < sizeof(protocols) / sizeof(protocols[0]); n++) {
            agent_filter_if(f, protocols[n], SECCOMP_RET_ALLOW);
        }

        /* who tries MPTCP first goes on with TCP */

        agent_filter_return(f, AGENT_FILTER_REFUSE(EPROTONOSUPPORT));
        agent_filter_end(f, family);
    }

    agent_filter_return(f, AGENT_FILTER_REFUSE(EAFNOSUPPORT));
    agent_filter_end(f, call);
}


static void
agent_filter_options(agent_filter_t *f)
{
    size_t  call, level, i, n;

    static const uint32_t  levels[] = {
        SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP
    };

    call = agent_filter_begin(f, __NR_setsockopt);
    agent_filter_load(f, 1);
    agent_filter_if(f, IPPROTO_UDP, SECCOMP_RET_ALLOW);

    for (i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        level = agent_filter_begin(f, levels[i]);
        agent_filter_load(f, 2);

        for (n = 0; n < sizeof(sandbox_calls_reports)
                        / sizeof(sandbox_calls_reports[0]); n++)
        {
            if ((uint32_t) sandbox_calls_reports[n].level == levels[i]) {
                agent_filter_if(f, sandbox_calls_reports[n].name,
                                AGENT_FILTER_REFUSE(ENOPROTOOPT));
            }
        }

        agent_filter_put(f, BPF_JMP|BPF_JGE|BPF_K, 1, 0,
                         SANDBOX_CALLS_OPTIONS);
        agent_filter_return(f, SECCOMP_RET_ALLOW);
        agent_filter_return(f, AGENT_FILTER_REFUSE(ENOSYS));
        agent_filter_end(f, level);
    }

    agent_filter_return(f, AGENT_FILTER_REFUSE(ENOSYS));
    agent_filter_end(f, call);
}


/* Huge pages are the host's, reserved for its own programs, and not limited. */

static void
agent_filter_memory(agent_filter_t *f)
{
    size_t  call, i;

    static const struct {
        uint32_t  number;
        unsigned  flags;                 /* which argument */
        uint32_t  huge;
    } pages[] = {
        { __NR_mmap, 3, MAP_HUGETLB },
        { __NR_memfd_create, 1, MFD_HUGETLB },
        { __NR_shmget, 2, SHM_HUGETLB }
    };

    for (i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        call = agent_filter_begin(f, pages[i].number);
        agent_filter_load(f, pages[i].flags);
        agent_filter_put(f, BPF_JMP|BPF_JSET|BPF_K, 0, 1, pages[i].huge);
        agent_filter_return(f, AGENT_FILTER_REFUSE(EPERM));
        agent_filter_return(f, SECCOMP_RET_ALLOW);
        agent_filter_end(f, call);
    }
}


/* No core of a command, nor a program of the host's that would take one. */

static void
agent_filter_limits(agent_filter_t *f)
{
    size_t  call, core;

    call = agent_filter_begin(f, __NR_prlimit64);
    agent_filter_load(f, 1);
    core = agent_filter_begin(f, RLIMIT_CORE);

    /* who only asks gives no new one: both halves of it are 0 */

    agent_filter_load(f, 2);
    agent_filter_put(f, BPF_JMP|BPF_JEQ|BPF_K, 1, 0, 0);
    agent_filter_return(f, AGENT_FILTER_REFUSE(0));
    agent_filter_put(f, BPF_LD|BPF_W|BPF_ABS, 0, 0,
                     offsetof(struct seccomp_data, args[2])
                     + sizeof(uint32_t));
    agent_filter_put(f, BPF_JMP|BPF_JEQ|BPF_K, 1, 0, 0);
    agent_filter_return(f, AGENT_FILTER_REFUSE(0));
    agent_filter_return(f, SECCOMP_RET_ALLOW);
    agent_filter_end(f, core);

    agent_filter_put(f, BPF_JMP|BPF_JGE|BPF_K, 1, 0, SANDBOX_CALLS_LIMITS);
    agent_filter_return(f, SECCOMP_RET_ALLOW);
    agent_filter_return(f, AGENT_FILTER_REFUSE(ENOSYS));
    agent_filter_end(f, call);

#ifdef __NR_setrlimit

    call = agent_filter_begin(f, __NR_setrlimit);
    agent_filter_load(f, 0);
    agent_filter_if(f, RLIMIT_CORE, AGENT_FILTER_REFUSE(0));
    agent_filter_put(f, BPF_JMP|BPF_JGE|BPF_K, 1, 0, SANDBOX_CALLS_LIMITS);
    agent_filter_return(f, SECCOMP_RET_ALLOW);
    agent_filter_return(f, AGENT_FILTER_REFUSE(ENOSYS));
    agent_filter_end(f, call);

#endif
}


/*
 * Not clone3, whose flags a filter can't see: C libraries go on with clone.
 * sync would write out all file systems of the host: it says yes, no more.
 */

static void
agent_filter_processes(agent_filter_t *f)
{
    size_t  call, i;

    static const uint32_t  personalities[] = { 0, 8, 0x20000, 0x20008,
                                               0x40000, 0xffffffff };

    agent_filter_if(f, __NR_clone3, AGENT_FILTER_REFUSE(ENOSYS));

    call = agent_filter_begin(f, __NR_clone);
    agent_filter_load(f, 0);
    agent_filter_put(f, BPF_JMP|BPF_JSET|BPF_K, 0, 1,
                     SANDBOX_CALLS_NAMESPACES);
    agent_filter_return(f, AGENT_FILTER_REFUSE(ENOSYS));
    agent_filter_return(f, SECCOMP_RET_ALLOW);
    agent_filter_end(f, call);

    call = agent_filter_begin(f, __NR_personality);
    agent_filter_load(f, 0);

    for (i = 0; i < sizeof(personalities) / sizeof(personalities[0]); i++) {
        agent_filter_if(f, personalities[i], SECCOMP_RET_ALLOW);
    }

    agent_filter_return(f, AGENT_FILTER_REFUSE(ENOSYS));
    agent_filter_end(f, call);

    agent_filter_if(f, __NR_sync, AGENT_FILTER_REFUSE(0));
}


/* Numbers that follow one another by one comparison. */

static void
agent_filter_names(agent_filter_t *f)
{
    uint8_t   calls[AGENT_FILTER_CALLS + 1];
    uint32_t  i, first;

    memset(calls, 0, sizeof(calls));

    agent_filter_mark(calls, agent_filter_allowed,
                      sizeof(agent_filter_allowed) / sizeof(char *), 1);
    agent_filter_mark(calls, agent_filter_refused,
                      sizeof(agent_filter_refused) / sizeof(char *), 2);

    for (i = 0, first = 0; i <= AGENT_FILTER_CALLS; i++) {

        if (calls[i] == calls[first]) {
            continue;
        }

        if (calls[first]) {
            agent_filter_put(f, BPF_JMP|BPF_JGE|BPF_K, 0, 2, first);
            agent_filter_put(f, BPF_JMP|BPF_JGE|BPF_K, 1, 0, i);
            agent_filter_return(f, calls[first] == 1
                                   ? SECCOMP_RET_ALLOW
                                   : AGENT_FILTER_REFUSE(EPERM));
        }

        first = i;
    }
}


/* What this machine, or the headers, do not have is no number. */

static void
agent_filter_mark(uint8_t *calls, const char **names, size_t n, uint8_t mark)
{
    size_t         i;
    char          *end;
    unsigned long  number;

    for (i = 0; i < n; i++) {
        number = strtoul(names[i], &end, 10);

        if (end != names[i] && *end == '\0' && number < AGENT_FILTER_CALLS) {
            calls[number] = mark;
        }
    }
}


static void
agent_filter_put(agent_filter_t *f, uint16_t code, uint8_t yes, uint8_t no,
    uint32_t k)
{
    if (f->n < f->most) {
        f->p[f->n].code = code;
        f->p[f->n].jt = yes;
        f->p[f->n].jf = no;
        f->p[f->n].k = k;
    }

    f->n++;
}


/* The lower half, which is all that the kernel looks at of these. */

static void
agent_filter_load(agent_filter_t *f, unsigned argument)
{
    agent_filter_put(f, BPF_LD|BPF_W|BPF_ABS, 0, 0,
                     offsetof(struct seccomp_data, args)
                     + argument * sizeof(uint64_t));
}


static void
agent_filter_return(agent_filter_t *f, uint32_t what)
{
    agent_filter_put(f, BPF_RET|BPF_K, 0, 0, what);
}


static void
agent_filter_if(agent_filter_t *f, uint32_t value, uint32_t what)
{
    agent_filter_put(f, BPF_JMP|BPF_JEQ|BPF_K, 0, 1, value);
    agent_filter_return(f, what);
}


/* What follows, up to the end, is for that value, and never goes beyond it. */

static size_t
agent_filter_begin(agent_filter_t *f, uint32_t value)
{
    agent_filter_put(f, BPF_JMP|BPF_JEQ|BPF_K, 0, 0, value);

    return f->n - 1;
}


static void
agent_filter_end(agent_filter_t *f, size_t at)
{
    size_t  n;

    n = f->n - at - 1;

    /* a jump has a byte: one that is too long must not become a short one */

    if (n > UINT8_MAX) {
        f->most = 0;

    } else if (at < f->most) {
        f->p[at].jf = (uint8_t) n;
    }
}
