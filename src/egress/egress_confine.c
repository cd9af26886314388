/*
 * Giving up rights: an empty root, an id of nobody, no way to get anything
 * back, and no system calls but those that the work needs.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "egress.h"


#define EGRESS_DESCRIPTORS  65536


#if defined(__x86_64__)
#define EGRESS_ARCH  AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define EGRESS_ARCH  AUDIT_ARCH_AARCH64
#else
#error "the system call filter knows x86-64 and arm64 only"
#endif


static int egress_confine_limits(void);
static int egress_confine_filter(void);
static int egress_confine_failed(const char *what);


/* one each; those with arguments that matter are below */

static const unsigned  egress_confine_calls[] = {
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_close,
    SYS_fstat, SYS_lseek, SYS_fcntl, SYS_recvfrom, SYS_recvmsg, SYS_sendto,
    SYS_sendmsg, SYS_shutdown, SYS_connect, SYS_accept4, SYS_getsockname,
    SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_epoll_ctl,
    SYS_epoll_pwait, SYS_clock_gettime, SYS_gettimeofday, SYS_getrandom,
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_futex,
    SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_restart_syscall, SYS_getpid,
    SYS_gettid, SYS_tgkill, SYS_exit, SYS_exit_group,
#ifdef SYS_newfstatat
    SYS_newfstatat,                      /* glibc's fstat() */
#endif
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
#ifdef SYS_time
    SYS_time,
#endif
};


int
egress_confine(egress_t *egress)
{
    tzset();

    if (egress_confine_limits() == -1) {
        return egress_confine_failed("limits can't be set");
    }

    if (chroot(egress->root) == -1 || chdir("/") == -1) {
        return egress_confine_failed("its empty root can't be entered");
    }

    if (setgroups(0, NULL) == -1
        || setresgid(egress->gid, egress->gid, egress->gid) == -1
        || setresuid(egress->uid, egress->uid, egress->uid) == -1)
    {
        return egress_confine_failed("its user can't be taken");
    }

    if (setresuid((uid_t) -1, 0, (uid_t) -1) == 0 || geteuid() == 0) {
        errno = 0;
        return egress_confine_failed("root could be had again");
    }

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1
        || egress_confine_filter() == -1)
    {
        return egress_confine_failed("its system calls can't be limited");
    }

    return 0;
}


static int
egress_confine_failed(const char *what)
{
    runner_log(RUNNER_LOG_ERROR, "egress: %s: %s", what,
               errno ? strerror(errno) : "refusing to work");
    return -1;
}


static int
egress_confine_limits(void)
{
    struct rlimit  limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == -1) {
        return -1;
    }

    if (limit.rlim_max > EGRESS_DESCRIPTORS) {
        limit.rlim_max = EGRESS_DESCRIPTORS;
    }

    limit.rlim_cur = limit.rlim_max;

    if (setrlimit(RLIMIT_NOFILE, &limit) == -1) {
        return -1;
    }

    limit.rlim_cur = 0;
    limit.rlim_max = 0;

    return setrlimit(RLIMIT_CORE, &limit) == -1
           || setrlimit(RLIMIT_NPROC, &limit) == -1
           || setrlimit(RLIMIT_MEMLOCK, &limit) == -1 ? -1 : 0;
}


/*
 * What is not listed fails with EPERM; another ABI ends the process.  socket()
 * makes internet sockets only, mmap() maps nothing that could be run.
 */

static int
egress_confine_filter(void)
{
    size_t              i, n;
    struct sock_fprog   program;

    static struct sock_filter  f[16 + 2 * (sizeof(egress_confine_calls)
                                           / sizeof(unsigned))];

    n = 0;

#define ADD(...)  f[n++] = (struct sock_filter) __VA_ARGS__

    ADD(BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, arch)));
    ADD(BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, EGRESS_ARCH, 1, 0));
    ADD(BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_KILL_PROCESS));
    ADD(BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, nr)));

    /* x32 numbers are beyond all of these */

    for (i = 0; i < sizeof(egress_confine_calls) / sizeof(unsigned); i++) {

        if (egress_confine_calls[i] == SYS_mmap) {
            continue;
        }

        ADD(BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, egress_confine_calls[i], 0, 1));
        ADD(BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW));
    }

    ADD(BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, SYS_mmap, 0, 3));
    ADD(BPF_STMT(BPF_LD|BPF_W|BPF_ABS,
                 offsetof(struct seccomp_data, args[2])));
    ADD(BPF_JUMP(BPF_JMP|BPF_JSET|BPF_K, 4 /* PROT_EXEC */, 5, 0));
    ADD(BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW));

    ADD(BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, SYS_socket, 0, 3));
    ADD(BPF_STMT(BPF_LD|BPF_W|BPF_ABS,
                 offsetof(struct seccomp_data, args[0])));
    ADD(BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, AF_INET, 2, 0));
    ADD(BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, AF_INET6, 1, 0));

    ADD(BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ERRNO|EPERM));
    ADD(BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW));

#undef ADD

    program.len = n;
    program.filter = f;

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
