/*
 * The allow-list of system calls.
 *
 * What is not listed does not exist: ENOSYS, so that libraries which try a
 * newer call fall back to an older one.  What is refused although programs
 * know it says EPERM.  Only calls of another ABI (int 0x80, x32) end a
 * program, by SIGSYS.
 *
 * Knows nothing of the rest of the configuration.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/memfd.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>

#include "seccomp.h"


#define RUNNER_CLONE_NAMESPACES  0x7e020000u     /* CLONE_NEW*, all of them */
#define RUNNER_SECCOMP_LIMITS    16              /* RLIM_NLIMITS */
#define RUNNER_SECCOMP_OPTIONS   128             /* of a socket, by number */


static const char  *runner_seccomp_allowed[] = {

    /* files and directories */
    "open", "openat", "openat2", "creat", "close", "close_range", "read",
    "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev",
    "preadv2", "pwritev2", "lseek", "_llseek", "stat", "fstat", "lstat",
    "newfstatat", "fstatat64", "statx", "statfs", "fstatfs", "access",
    "faccessat", "faccessat2", "truncate", "ftruncate", "fallocate",
    "rename", "renameat", "renameat2", "link", "linkat", "symlink",
    "symlinkat", "unlink", "unlinkat", "readlink", "readlinkat", "mkdir",
    "mkdirat", "rmdir", "mknod", "mknodat", "chmod", "fchmod", "fchmodat",
    "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes",
    "utimensat", "futimesat", "getdents", "getdents64", "chdir", "fchdir",
    "getcwd", "umask", "dup", "dup2", "dup3", "fcntl", "fcntl64", "flock",
    "ioctl", "fsync", "fdatasync", "syncfs", "sync_file_range",
    "fadvise64", "readahead", "sendfile", "sendfile64", "splice", "tee",
    "vmsplice", "copy_file_range", "getxattr", "lgetxattr", "fgetxattr",
    "setxattr", "lsetxattr", "fsetxattr", "listxattr", "llistxattr",
    "flistxattr", "removexattr", "lremovexattr", "fremovexattr",
    "inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
    "name_to_handle_at",

    /* memory */
    "brk", "munmap", "mremap", "mprotect", "madvise", "mincore", "msync",
    "mlock", "mlock2", "munlock", "mlockall", "munlockall",
    "remap_file_pages", "pkey_alloc", "pkey_free", "pkey_mprotect",
    "membarrier", "map_shadow_stack", "mseal", "get_mempolicy",
    "process_madvise", "process_mrelease",

    /* processes and threads; namespaces are refused below and by sysctl */
    "clone3", "fork", "vfork", "execve", "execveat", "exit", "exit_group",
    "wait4", "waitid", "waitpid", "getpid", "getppid", "gettid", "getpgid",
    "setpgid", "getpgrp", "getsid", "setsid", "kill", "tkill", "tgkill",
    "pidfd_open", "pidfd_send_signal", "pidfd_getfd", "prctl", "arch_prctl",
    "set_tid_address", "set_robust_list", "get_robust_list", "rseq",
    "futex", "futex_waitv", "futex_wake", "futex_wait", "futex_requeue",
    "sched_yield", "sched_getaffinity", "sched_setaffinity",
    "sched_getparam", "sched_setparam", "sched_getscheduler",
    "sched_setscheduler", "sched_getattr", "sched_setattr",
    "sched_get_priority_max", "sched_get_priority_min",
    "sched_rr_get_interval", "getpriority", "setpriority", "ioprio_get",
    "ioprio_set", "getrlimit", "ugetrlimit", "getrusage", "times", "getcpu",
    "restart_syscall", "set_thread_area", "get_thread_area", "ptrace",
    "process_vm_readv", "process_vm_writev", "kcmp",

    /* ids: they are checked against the user namespace, which has two */
    "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid",
    "getgroups", "setuid", "setgid", "setreuid", "setregid", "setresuid",
    "setresgid", "setfsuid", "setfsgid", "setgroups", "capget", "capset",

    /* signals and time */
    "rt_sigaction", "rt_sigprocmask", "rt_sigpending", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
    "rt_sigreturn", "sigaltstack", "sigreturn", "sigaction", "sigprocmask",
    "signalfd", "signalfd4", "pause", "alarm", "nanosleep",
    "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday",
    "time", "getitimer", "setitimer", "timer_create", "timer_settime",
    "timer_gettime", "timer_getoverrun", "timer_delete", "timerfd_create",
    "timerfd_settime", "timerfd_gettime",

    /* waiting */
    "select", "_newselect", "pselect6", "poll", "ppoll", "epoll_create",
    "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_wait",
    "epoll_wait_old", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2",

    /* pipes, sockets (families are limited below), System V and POSIX IPC */
    "pipe", "pipe2", "bind", "listen", "accept", "accept4",
    "connect", "getsockname", "getpeername", "getsockopt",
    "shutdown", "send", "recv", "sendto", "recvfrom", "sendmsg", "recvmsg",
    "sendmmsg", "recvmmsg", "shmat", "shmdt", "shmctl", "semget",
    "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify",
    "mq_getsetattr",

    /* the system */
    "uname", "sysinfo", "getrandom", "landlock_create_ruleset",
    "landlock_add_rule", "landlock_restrict_self", "seccomp"
};


static const char  *runner_seccomp_refused[] = {
    "mount", "umount", "umount2", "pivot_root", "chroot", "unshare", "setns",
    "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "open_by_handle_at", "swapon", "swapoff", "reboot",
    "kexec_load", "kexec_file_load", "init_module", "finit_module",
    "delete_module", "acct", "quotactl", "quotactl_fd", "syslog", "bpf",
    "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl",
    "clock_settime", "clock_adjtime", "settimeofday", "stime", "adjtimex",
    "sethostname", "setdomainname", "iopl", "ioperm", "vhangup",
    "lookup_dcookie", "nfsservctl", "fanotify_init", "fanotify_mark",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "set_mempolicy",
    "mbind", "move_pages", "migrate_pages", "modify_ldt"
};


/*
 * Asynchronous input and output of old is not there at all: its requests have
 * one limit for the whole host (fs.aio-max-nr), which one user could use up.
 * Nor are cachestat, which tells what others read, and memfd_secret.
 */


/*
 * What these make the kernel keep for a socket - reports, programs, keys,
 * groups, labels - is counted for nobody, or once for the whole host, and a
 * user can have many sockets.  Numbers where headers differ.
 */

static const struct {
    int  level;
    int  name;
} runner_seccomp_reports[] = {
    { SOL_SOCKET, SO_ATTACH_FILTER },
    { SOL_SOCKET, SO_ATTACH_BPF },
    { SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF },
    { SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF },
    { SOL_SOCKET, SO_TIMESTAMPING_OLD },
    { SOL_SOCKET, SO_TIMESTAMPING_NEW },
    { SOL_SOCKET, SO_ZEROCOPY },
    { SOL_SOCKET, SO_TXTIME },

    { IPPROTO_IP, IP_RECVERR },
    { IPPROTO_IP, 26 },                          /* IP_RECVERR_RFC4884 */
    { IPPROTO_IP, IP_ADD_MEMBERSHIP },
    { IPPROTO_IP, IP_BLOCK_SOURCE },
    { IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP },
    { IPPROTO_IP, IP_MSFILTER },
    { IPPROTO_IP, MCAST_JOIN_GROUP },
    { IPPROTO_IP, MCAST_BLOCK_SOURCE },
    { IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP },
    { IPPROTO_IP, MCAST_MSFILTER },

    { IPPROTO_IPV6, IPV6_RECVERR },
    { IPPROTO_IPV6, 31 },                        /* IPV6_RECVERR_RFC4884 */
    { IPPROTO_IPV6, IPV6_JOIN_GROUP },
    { IPPROTO_IPV6, IPV6_JOIN_ANYCAST },
    { IPPROTO_IPV6, 32 },                        /* IPV6_FLOWLABEL_MGR */
    { IPPROTO_IPV6, MCAST_JOIN_GROUP },
    { IPPROTO_IPV6, MCAST_BLOCK_SOURCE },
    { IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP },
    { IPPROTO_IPV6, MCAST_MSFILTER },

    { IPPROTO_TCP, 14 },                         /* TCP_MD5SIG */
    { IPPROTO_TCP, 31 },                         /* TCP_ULP */
    { IPPROTO_TCP, 32 },                         /* TCP_MD5SIG_EXT */
    { IPPROTO_TCP, 38 },                         /* TCP_AO_ADD_KEY */
    { IPPROTO_TCP, 39 },                         /* TCP_AO_DEL_KEY */
    { IPPROTO_TCP, 40 }                          /* TCP_AO_INFO */
};


/* Huge pages are the host's, reserved for its own programs, and not limited. */

static const struct {
    const char  *name;
    unsigned     flags;                          /* which argument */
    uint32_t     huge;
} runner_seccomp_pages[] = {
    { "mmap", 3, MAP_HUGETLB },
    { "memfd_create", 1, MFD_HUGETLB },
    { "shmget", 2, SHM_HUGETLB }
};


static int runner_seccomp_options(json_t *rules);
static int runner_seccomp_range(json_t *rules, int level, int first, int n);
static int runner_seccomp_memory(json_t *rules);
static int runner_seccomp_cores(json_t *rules);
static int runner_seccomp_nothing(json_t *rules, const char *name,
    json_t *args);
static json_t *runner_seccomp_names(const char **names, size_t n);
static int runner_seccomp_rule(json_t *rules, const char *name,
    const char *action, int error, json_t *args);
static json_t *runner_seccomp_arg(unsigned index, uint64_t value,
    uint64_t second, const char *op);


json_t *
runner_seccomp(void)
{
    int      rc;
    size_t   i, n;
    json_t  *seccomp, *rules;

    static const int       families[] = { AF_INET, AF_INET6 };
    static const int       protocols[] = { 0, IPPROTO_TCP, IPPROTO_UDP };
    static const uint64_t  personalities[] = { 0, 8, 0x20000, 0x20008,
                                               0x40000, 0xffffffff };

    rules = json_array();

    rc = json_array_append_new(rules, json_pack("{s:o, s:s}", "names",
             runner_seccomp_names(runner_seccomp_allowed,
                                  sizeof(runner_seccomp_allowed)
                                  / sizeof(char *)),
             "action", "SCMP_ACT_ALLOW"));

    rc |= json_array_append_new(rules, json_pack("{s:o, s:s, s:i}", "names",
             runner_seccomp_names(runner_seccomp_refused,
                                  sizeof(runner_seccomp_refused)
                                  / sizeof(char *)),
             "action", "SCMP_ACT_ERRNO", "errnoRet", EPERM));

    rc |= runner_seccomp_rule(rules, "clone", "SCMP_ACT_ALLOW", 0,
              json_pack("[o]", runner_seccomp_arg(0, RUNNER_CLONE_NAMESPACES,
                                                  0, "SCMP_CMP_MASKED_EQ")));

    /*
     * Sockets of this network namespace and nothing else: vsock in particular
     * reaches the hypervisor from any of them.
     */

    rc |= runner_seccomp_rule(rules, "socket", "SCMP_ACT_ALLOW", 0,
              json_pack("[o]", runner_seccomp_arg(0, AF_UNIX, 0,
                                                  "SCMP_CMP_EQ")));

    rc |= runner_seccomp_rule(rules, "socketpair", "SCMP_ACT_ALLOW", 0,
              json_pack("[o]", runner_seccomp_arg(0, AF_UNIX, 0,
                                                  "SCMP_CMP_EQ")));

    rc |= runner_seccomp_rule(rules, "socketpair", "SCMP_ACT_ERRNO",
              EAFNOSUPPORT,
              json_pack("[o]", runner_seccomp_arg(0, AF_UNIX, 0,
                                                  "SCMP_CMP_NE")));

    /* TCP and UDP only; who tries MPTCP first, as Go does, goes on with TCP */

    for (i = 0; i < sizeof(families) / sizeof(families[0]); i++) {

        for (n = 0; n < sizeof(protocols) / sizeof(protocols[0]); n++) {
            rc |= runner_seccomp_rule(rules, "socket", "SCMP_ACT_ALLOW", 0,
                      json_pack("[o, o]",
                                runner_seccomp_arg(0, families[i], 0,
                                                   "SCMP_CMP_EQ"),
                                runner_seccomp_arg(2, protocols[n], 0,
                                                   "SCMP_CMP_EQ")));
        }

        rc |= runner_seccomp_rule(rules, "socket", "SCMP_ACT_ERRNO",
                  EPROTONOSUPPORT,
                  json_pack("[o, o]",
                            runner_seccomp_arg(0, families[i], 0,
                                               "SCMP_CMP_EQ"),
                            runner_seccomp_arg(2, IPPROTO_UDP, 0,
                                               "SCMP_CMP_GT")));
    }

    /*
     * Not netlink, though getifaddrs asks by it: what waits in its sockets is
     * memory of the kernel's that is counted for nobody.
     */

    rc |= runner_seccomp_rule(rules, "socket", "SCMP_ACT_ERRNO",
              EAFNOSUPPORT,
              json_pack("[o]", runner_seccomp_arg(0, AF_NETLINK, 0,
                                                  "SCMP_CMP_GE")));

    for (i = 0; i < sizeof(personalities) / sizeof(personalities[0]); i++) {
        rc |= runner_seccomp_rule(rules, "personality", "SCMP_ACT_ALLOW", 0,
                  json_pack("[o]", runner_seccomp_arg(0, personalities[i], 0,
                                                      "SCMP_CMP_EQ")));
    }

    rc |= runner_seccomp_options(rules);
    rc |= runner_seccomp_memory(rules);
    rc |= runner_seccomp_cores(rules);

    /*
     * It would write out all file systems of the host, and wait for one that
     * hangs.  What is a sandbox's own is for syncfs and fsync.
     */

    rc |= runner_seccomp_nothing(rules, "sync", NULL);

    seccomp = json_pack("{s:s, s:i, s:[s], s:o}",
                        "defaultAction", "SCMP_ACT_ERRNO",
                        "defaultErrnoRet", ENOSYS,
                        "architectures",
#if (defined __aarch64__)
                        "SCMP_ARCH_AARCH64",
#else
                        "SCMP_ARCH_X86_64",
#endif
                        "syscalls", rules);

    if (rc != 0) {
        json_decref(seccomp);
        return NULL;
    }

    return seccomp;
}


static int
runner_seccomp_options(json_t *rules)
{
    int     rc;
    size_t  i;

    static const int  levels[] = {
        SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP
    };

    rc = runner_seccomp_rule(rules, "setsockopt", "SCMP_ACT_ALLOW", 0,
             json_pack("[o]", runner_seccomp_arg(1, IPPROTO_UDP, 0,
                                                 "SCMP_CMP_EQ")));

    for (i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        rc |= runner_seccomp_range(rules, levels[i], 0,
                                   RUNNER_SECCOMP_OPTIONS);
    }

    return rc;
}


/*
 * Options from `first` on, n of them: by one rule, or in halves if some of
 * them are refused.  One rule for all would go before those for some.
 */

static int
runner_seccomp_range(json_t *rules, int level, int first, int n)
{
    size_t  i;
    int     refused;

    refused = 0;

    for (i = 0; i < sizeof(runner_seccomp_reports)
                    / sizeof(runner_seccomp_reports[0]); i++)
    {
        refused |= runner_seccomp_reports[i].level == level
                   && runner_seccomp_reports[i].name >= first
                   && runner_seccomp_reports[i].name < first + n;
    }

    if (refused && n > 1) {
        return runner_seccomp_range(rules, level, first, n / 2)
               | runner_seccomp_range(rules, level, first + n / 2, n / 2);
    }

    return runner_seccomp_rule(rules, "setsockopt",
               refused ? "SCMP_ACT_ERRNO" : "SCMP_ACT_ALLOW",
               refused ? ENOPROTOOPT : 0,
               json_pack("[o, o]",
                         runner_seccomp_arg(1, level, 0, "SCMP_CMP_EQ"),
                         runner_seccomp_arg(2, UINT32_MAX - (n - 1), first,
                                            "SCMP_CMP_MASKED_EQ")));
}


static int
runner_seccomp_memory(json_t *rules)
{
    int       rc;
    size_t    i;
    uint64_t  huge;

    rc = 0;

    for (i = 0; i < sizeof(runner_seccomp_pages)
                    / sizeof(runner_seccomp_pages[0]); i++)
    {
        huge = runner_seccomp_pages[i].huge;

        rc |= runner_seccomp_rule(rules, runner_seccomp_pages[i].name,
                  "SCMP_ACT_ALLOW", 0,
                  json_pack("[o]",
                            runner_seccomp_arg(runner_seccomp_pages[i].flags,
                                               huge, 0,
                                               "SCMP_CMP_MASKED_EQ")));

        rc |= runner_seccomp_rule(rules, runner_seccomp_pages[i].name,
                  "SCMP_ACT_ERRNO", EPERM,
                  json_pack("[o]",
                            runner_seccomp_arg(runner_seccomp_pages[i].flags,
                                               huge, huge,
                                               "SCMP_CMP_MASKED_EQ")));
    }

    return rc;
}


/*
 * The limit of cores is 1 byte, which only looks odd: none is written, as with
 * 0, but 0 would still start the program of the host's core_pattern, as root,
 * with the core as its input.  So 1 has to stay; who sets another is told that
 * it was done.  The kernel looks at half of the argument: so do we.
 */

static int
runner_seccomp_cores(json_t *rules)
{
    int       rc;
    uint64_t  i;

    rc = 0;

    for (i = 0; i < RUNNER_SECCOMP_LIMITS; i++) {

        if (i == RLIMIT_CORE) {
            continue;
        }

        rc |= runner_seccomp_rule(rules, "setrlimit", "SCMP_ACT_ALLOW", 0,
                  json_pack("[o]", runner_seccomp_arg(0, UINT32_MAX, i,
                                                      "SCMP_CMP_MASKED_EQ")));

        rc |= runner_seccomp_rule(rules, "prlimit64", "SCMP_ACT_ALLOW", 0,
                  json_pack("[o]", runner_seccomp_arg(1, UINT32_MAX, i,
                                                      "SCMP_CMP_MASKED_EQ")));
    }

    rc |= runner_seccomp_rule(rules, "prlimit64", "SCMP_ACT_ALLOW", 0,
              json_pack("[o, o]",
                        runner_seccomp_arg(1, UINT32_MAX, RLIMIT_CORE,
                                           "SCMP_CMP_MASKED_EQ"),
                        runner_seccomp_arg(2, 0, 0, "SCMP_CMP_EQ")));

    rc |= runner_seccomp_nothing(rules, "prlimit64",
              json_pack("[o, o]",
                        runner_seccomp_arg(1, UINT32_MAX, RLIMIT_CORE,
                                           "SCMP_CMP_MASKED_EQ"),
                        runner_seccomp_arg(2, 0, 0, "SCMP_CMP_NE")));

    rc |= runner_seccomp_nothing(rules, "setrlimit",
              json_pack("[o]", runner_seccomp_arg(0, UINT32_MAX, RLIMIT_CORE,
                                                  "SCMP_CMP_MASKED_EQ")));

    return rc;
}


/* says yes and does nothing; owns args, which may be NULL */

static int
runner_seccomp_nothing(json_t *rules, const char *name, json_t *args)
{
    json_t  *rule;

    rule = json_pack("{s:[s], s:s, s:i}", "names", name, "action",
                     "SCMP_ACT_ERRNO", "errnoRet", 0);

    if (args != NULL && json_object_set_new(rule, "args", args) == -1) {
        json_decref(rule);
        return -1;
    }

    return json_array_append_new(rules, rule);
}


static json_t *
runner_seccomp_names(const char **names, size_t n)
{
    size_t   i;
    json_t  *array;

    array = json_array();

    for (i = 0; i < n; i++) {
        if (json_array_append_new(array, json_string(names[i])) == -1) {
            json_decref(array);
            return NULL;
        }
    }

    return array;
}


/* owns args */

static int
runner_seccomp_rule(json_t *rules, const char *name, const char *action,
    int error, json_t *args)
{
    json_t  *rule;

    rule = json_pack("{s:[s], s:s, s:o}", "names", name, "action", action,
                     "args", args);

    if (error && json_object_set_new(rule, "errnoRet", json_integer(error))) {
        json_decref(rule);
        return -1;
    }

    return json_array_append_new(rules, rule);
}


static json_t *
runner_seccomp_arg(unsigned index, uint64_t value, uint64_t second,
    const char *op)
{
    return json_pack("{s:i, s:I, s:I, s:s}", "index", (int) index,
                     "value", (json_int_t) value,
                     "valueTwo", (json_int_t) second, "op", op);
}
