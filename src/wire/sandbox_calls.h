/*
 * The system calls that programs in a sandbox may make, by name; both who
 * writes a container's configuration and who filters by himself read them
 * here.  What stands in neither list does not exist: ENOSYS, so that libraries
 * which try a newer call fall back to an older one.  What is refused although
 * programs know it says EPERM.
 *
 * Not listed, since their arguments decide: clone, socket, socketpair,
 * setsockopt, personality, setrlimit, prlimit64, mmap, memfd_create, shmget,
 * sync.
 */

#ifndef SANDBOX_CALLS_H
#define SANDBOX_CALLS_H

#include <netinet/in.h>
#include <sys/socket.h>


#define SANDBOX_CALLS_NAMESPACES  0x7e020000u    /* CLONE_NEW*, all of them */
#define SANDBOX_CALLS_LIMITS      16             /* RLIM_NLIMITS */
#define SANDBOX_CALLS_OPTIONS     128            /* of a socket, by number */


#define SANDBOX_CALLS_ALLOWED(CALL)                                          \
    /* files and directories */                                              \
    CALL(open) CALL(openat) CALL(openat2) CALL(creat) CALL(close)            \
    CALL(close_range) CALL(read) CALL(write) CALL(readv) CALL(writev)        \
    CALL(pread64) CALL(pwrite64) CALL(preadv) CALL(pwritev) CALL(preadv2)    \
    CALL(pwritev2) CALL(lseek) CALL(_llseek) CALL(stat) CALL(fstat)          \
    CALL(lstat) CALL(newfstatat) CALL(fstatat64) CALL(statx) CALL(statfs)    \
    CALL(fstatfs) CALL(access) CALL(faccessat) CALL(faccessat2)              \
    CALL(truncate) CALL(ftruncate) CALL(fallocate) CALL(rename)              \
    CALL(renameat) CALL(renameat2) CALL(link) CALL(linkat) CALL(symlink)     \
    CALL(symlinkat) CALL(unlink) CALL(unlinkat) CALL(readlink)               \
    CALL(readlinkat) CALL(mkdir) CALL(mkdirat) CALL(rmdir) CALL(mknod)       \
    CALL(mknodat) CALL(chmod) CALL(fchmod) CALL(fchmodat) CALL(fchmodat2)    \
    CALL(chown) CALL(fchown) CALL(lchown) CALL(fchownat) CALL(utime)         \
    CALL(utimes) CALL(utimensat) CALL(futimesat) CALL(getdents)              \
    CALL(getdents64) CALL(chdir) CALL(fchdir) CALL(getcwd) CALL(umask)       \
    CALL(dup) CALL(dup2) CALL(dup3) CALL(fcntl) CALL(fcntl64) CALL(flock)    \
    CALL(ioctl) CALL(fsync) CALL(fdatasync) CALL(syncfs)                     \
    CALL(sync_file_range) CALL(fadvise64) CALL(readahead) CALL(sendfile)     \
    CALL(sendfile64) CALL(splice) CALL(tee) CALL(vmsplice)                   \
    CALL(copy_file_range) CALL(getxattr) CALL(lgetxattr) CALL(fgetxattr)     \
    CALL(setxattr) CALL(lsetxattr) CALL(fsetxattr) CALL(listxattr)           \
    CALL(llistxattr) CALL(flistxattr) CALL(removexattr) CALL(lremovexattr)   \
    CALL(fremovexattr) CALL(inotify_init) CALL(inotify_init1)                \
    CALL(inotify_add_watch) CALL(inotify_rm_watch) CALL(name_to_handle_at)   \
                                                                             \
    /* memory */                                                             \
    CALL(brk) CALL(munmap) CALL(mremap) CALL(mprotect) CALL(madvise)         \
    CALL(mincore) CALL(msync) CALL(mlock) CALL(mlock2) CALL(munlock)         \
    CALL(mlockall) CALL(munlockall) CALL(remap_file_pages) CALL(pkey_alloc)  \
    CALL(pkey_free) CALL(pkey_mprotect) CALL(membarrier)                     \
    CALL(map_shadow_stack) CALL(mseal) CALL(get_mempolicy)                   \
    CALL(process_madvise) CALL(process_mrelease)                             \
                                                                             \
    /* processes and threads; namespaces are refused below and by sysctl */  \
    CALL(clone3) CALL(fork) CALL(vfork) CALL(execve) CALL(execveat)          \
    CALL(exit) CALL(exit_group) CALL(wait4) CALL(waitid) CALL(waitpid)       \
    CALL(getpid) CALL(getppid) CALL(gettid) CALL(getpgid) CALL(setpgid)      \
    CALL(getpgrp) CALL(getsid) CALL(setsid) CALL(kill) CALL(tkill)           \
    CALL(tgkill) CALL(pidfd_open) CALL(pidfd_send_signal) CALL(pidfd_getfd)  \
    CALL(prctl) CALL(arch_prctl) CALL(set_tid_address) CALL(set_robust_list) \
    CALL(get_robust_list) CALL(rseq) CALL(futex) CALL(futex_waitv)           \
    CALL(futex_wake) CALL(futex_wait) CALL(futex_requeue) CALL(sched_yield)  \
    CALL(sched_getaffinity) CALL(sched_setaffinity) CALL(sched_getparam)     \
    CALL(sched_setparam) CALL(sched_getscheduler) CALL(sched_setscheduler)   \
    CALL(sched_getattr) CALL(sched_setattr) CALL(sched_get_priority_max)     \
    CALL(sched_get_priority_min) CALL(sched_rr_get_interval)                 \
    CALL(getpriority) CALL(setpriority) CALL(ioprio_get) CALL(ioprio_set)    \
    CALL(getrlimit) CALL(ugetrlimit) CALL(getrusage) CALL(times)             \
    CALL(getcpu) CALL(restart_syscall) CALL(set_thread_area)                 \
    CALL(get_thread_area) CALL(ptrace) CALL(process_vm_readv)                \
    CALL(process_vm_writev) CALL(kcmp)                                       \
                                                                             \
    /* ids: they are checked against the user namespace, which has two */    \
    CALL(getuid) CALL(geteuid) CALL(getgid) CALL(getegid) CALL(getresuid)    \
    CALL(getresgid) CALL(getgroups) CALL(setuid) CALL(setgid) CALL(setreuid) \
    CALL(setregid) CALL(setresuid) CALL(setresgid) CALL(setfsuid)            \
    CALL(setfsgid) CALL(setgroups) CALL(capget) CALL(capset)                 \
                                                                             \
    /* signals and time */                                                   \
    CALL(rt_sigaction) CALL(rt_sigprocmask) CALL(rt_sigpending)              \
    CALL(rt_sigsuspend) CALL(rt_sigtimedwait) CALL(rt_sigqueueinfo)          \
    CALL(rt_tgsigqueueinfo) CALL(rt_sigreturn) CALL(sigaltstack)             \
    CALL(sigreturn) CALL(sigaction) CALL(sigprocmask) CALL(signalfd)         \
    CALL(signalfd4) CALL(pause) CALL(alarm) CALL(nanosleep)                  \
    CALL(clock_nanosleep) CALL(clock_gettime) CALL(clock_getres)             \
    CALL(gettimeofday) CALL(time) CALL(getitimer) CALL(setitimer)            \
    CALL(timer_create) CALL(timer_settime) CALL(timer_gettime)               \
    CALL(timer_getoverrun) CALL(timer_delete) CALL(timerfd_create)           \
    CALL(timerfd_settime) CALL(timerfd_gettime)                              \
                                                                             \
    /* waiting */                                                            \
    CALL(select) CALL(_newselect) CALL(pselect6) CALL(poll) CALL(ppoll)      \
    CALL(epoll_create) CALL(epoll_create1) CALL(epoll_ctl)                   \
    CALL(epoll_ctl_old) CALL(epoll_wait) CALL(epoll_wait_old)                \
    CALL(epoll_pwait) CALL(epoll_pwait2) CALL(eventfd) CALL(eventfd2)        \
                                                                             \
    /* pipes, sockets (families are limited below), System V and POSIX IPC */\
    CALL(pipe) CALL(pipe2) CALL(bind) CALL(listen) CALL(accept)              \
    CALL(accept4) CALL(connect) CALL(getsockname) CALL(getpeername)          \
    CALL(getsockopt) CALL(shutdown) CALL(send) CALL(recv) CALL(sendto)       \
    CALL(recvfrom) CALL(sendmsg) CALL(recvmsg) CALL(sendmmsg) CALL(recvmmsg) \
    CALL(shmat) CALL(shmdt) CALL(shmctl) CALL(semget) CALL(semop)            \
    CALL(semtimedop) CALL(semctl) CALL(msgget) CALL(msgsnd) CALL(msgrcv)     \
    CALL(msgctl) CALL(mq_open) CALL(mq_unlink) CALL(mq_timedsend)            \
    CALL(mq_timedreceive) CALL(mq_notify) CALL(mq_getsetattr)                \
                                                                             \
    /* the system */                                                         \
    CALL(uname) CALL(sysinfo) CALL(getrandom) CALL(landlock_create_ruleset)  \
    CALL(landlock_add_rule) CALL(landlock_restrict_self) CALL(seccomp)


#define SANDBOX_CALLS_REFUSED(CALL)                                          \
    CALL(mount) CALL(umount) CALL(umount2) CALL(pivot_root) CALL(chroot)     \
    CALL(unshare) CALL(setns) CALL(open_tree) CALL(move_mount) CALL(fsopen)  \
    CALL(fsconfig) CALL(fsmount) CALL(fspick) CALL(mount_setattr)            \
    CALL(open_by_handle_at) CALL(swapon) CALL(swapoff) CALL(reboot)          \
    CALL(kexec_load) CALL(kexec_file_load) CALL(init_module)                 \
    CALL(finit_module) CALL(delete_module) CALL(acct) CALL(quotactl)         \
    CALL(quotactl_fd) CALL(syslog) CALL(bpf) CALL(perf_event_open)           \
    CALL(userfaultfd) CALL(add_key) CALL(request_key) CALL(keyctl)           \
    CALL(clock_settime) CALL(clock_adjtime) CALL(settimeofday) CALL(stime)   \
    CALL(adjtimex) CALL(sethostname) CALL(setdomainname) CALL(iopl)          \
    CALL(ioperm) CALL(vhangup) CALL(lookup_dcookie) CALL(nfsservctl)         \
    CALL(fanotify_init) CALL(fanotify_mark) CALL(io_uring_setup)             \
    CALL(io_uring_enter) CALL(io_uring_register) CALL(set_mempolicy)         \
    CALL(mbind) CALL(move_pages) CALL(migrate_pages) CALL(modify_ldt)


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
} sandbox_calls_reports[] = {
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


#endif /* SANDBOX_CALLS_H */
