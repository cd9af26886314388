#!/usr/bin/env python3
"""Every system call there is, tried from a user's process: none ends it, none
that is privileged does anything, and what nobody has thought of says ENOSYS."""

import errno
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../lib")

from gateway import Gateway                                  # noqa: E402
from tap import check, main, same, skip, test                # noqa: E402

g = None
# of numbers; what the C library's headers may be too old for is here
names = dict(enumerate("""
    set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake
    futex_wait futex_requeue statmount listmount lsm_get_self_attr
    lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat
    removexattrat open_tree_attr file_getattr file_setattr
""".split(), 450))
results = {}        # number -> [three results]
abis = {}

# They must not be there, or refuse everybody.
PRIVILEGED = """
    mount umount2 pivot_root chroot unshare setns open_tree move_mount fsopen
    fsconfig fsmount fspick mount_setattr open_by_handle_at swapon swapoff
    reboot kexec_load kexec_file_load init_module finit_module delete_module
    create_module query_module get_kernel_syms acct quotactl quotactl_fd syslog
    bpf perf_event_open userfaultfd add_key request_key keyctl clock_settime
    clock_adjtime settimeofday adjtimex sethostname setdomainname iopl ioperm
    vhangup lookup_dcookie nfsservctl fanotify_init fanotify_mark
    io_uring_setup io_uring_enter io_uring_register set_mempolicy mbind
    move_pages migrate_pages modify_ldt uselib ustat sysfs _sysctl getpmsg
    putpmsg afs_syscall tuxcall security vserver
    io_setup io_submit io_cancel io_destroy io_getevents io_pgetevents
    memfd_secret cachestat set_mempolicy_home_node statmount listmount
    lsm_get_self_attr lsm_set_self_attr lsm_list_modules
    open_tree_attr file_getattr file_setattr
""".split()

# All that a user's process may ask for; whatever else says so is a hole in
# the filter, or new in it: then this list and docs/security.md are to follow.
ALLOWED = """
    read write open close stat fstat lstat poll lseek mmap mprotect munmap brk
    rt_sigaction rt_sigprocmask ioctl pread64 pwrite64 readv writev access pipe
    select sched_yield mremap msync mincore madvise shmget shmat shmctl dup dup2
    pause nanosleep getitimer alarm setitimer getpid sendfile socket connect
    accept sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname
    getpeername socketpair setsockopt getsockopt execve wait4 kill uname semget
    semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync fdatasync
    truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat
    link unlink symlink readlink chmod fchmod chown fchown lchown umask
    gettimeofday getrlimit getrusage sysinfo times ptrace getuid getgid setuid
    setgid geteuid getegid setpgid getppid getpgrp setsid setreuid setregid
    getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid
    setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo
    rt_sigsuspend sigaltstack utime mknod personality statfs fstatfs getpriority
    setpriority sched_setparam sched_getparam sched_setscheduler
    sched_getscheduler sched_get_priority_max sched_get_priority_min
    sched_rr_get_interval mlock munlock mlockall munlockall prctl arch_prctl
    setrlimit sync gettid readahead setxattr lsetxattr fsetxattr getxattr
    lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr
    fremovexattr tkill time futex sched_setaffinity sched_getaffinity
    set_thread_area get_thread_area epoll_create remap_file_pages getdents64
    set_tid_address restart_syscall semtimedop fadvise64 timer_create
    timer_settime timer_gettime timer_getoverrun timer_delete clock_gettime
    clock_getres clock_nanosleep epoll_wait epoll_ctl tgkill utimes mq_open
    mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr waitid
    ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch openat
    mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat
    symlinkat readlinkat fchmodat faccessat pselect6 ppoll set_robust_list
    get_robust_list splice tee sync_file_range vmsplice utimensat epoll_pwait
    signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime
    accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv
    pwritev rt_tgsigqueueinfo recvmmsg prlimit64 name_to_handle_at syncfs
    sendmmsg getcpu process_vm_readv process_vm_writev kcmp sched_setattr
    sched_getattr renameat2 seccomp getrandom memfd_create execveat membarrier
    mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free
    statx rseq pidfd_send_signal clone3 close_range openat2 pidfd_getfd
    faccessat2 process_madvise epoll_pwait2 landlock_create_ruleset
    landlock_add_rule landlock_restrict_self process_mrelease futex_waitv
    fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue mseal
    pidfd_open get_mempolicy epoll_ctl_old epoll_wait_old
""".split()

# The kernel lets them pass any filter; where no probe is they do nothing, or
# end who calls them.
PASSED_BY_THE_KERNEL = {335: "uretprobe", 336: "uprobe"}


def name(number):
    return names.get(number, "number %d" % number)


def said(number):
    return "%s: %s" % (name(number), " ".join(
        errno.errorcode.get(v, "ok" if v == -1 else str(v))
        for v in results[number]))


@test("attack/calls-end-nobody")
def end_nobody():
    check(len(results) > 580, "numbers tried:", len(results))
    bad = [said(n) for n, v in sorted(results.items()) if 1031 in v]
    same(bad, [], "ended by SIGSYS")


@test("attack/calls-privileged")
def privileged():
    found = [n for n in results if names.get(n) in PRIVILEGED]
    check(len(found) > 60, "privileged calls tried:", len(found))
    bad = [said(n) for n in sorted(found)
           if set(results[n]) - {errno.EPERM, errno.ENOSYS}]
    same(bad, [], "neither EPERM nor ENOSYS")


@test("attack/calls-unknown")
def unknown():
    """What is not on the list: not there, even if this kernel has it."""
    bad = [said(n) for n, v in sorted(results.items())
           if names.get(n) not in ALLOWED
           and not (n in PASSED_BY_THE_KERNEL and -1 not in v)
           and set(v) - {errno.EPERM, errno.ENOSYS}]
    same(bad, [], "not known to this test, but there")


@test("attack/calls-of-other-abis")
def other_abis():
    """They would go around the list: they end the program."""
    if os.uname().machine != "x86_64":
        skip("only x86-64 has others")
    same(abis, {"int80": 31, "x32": 31})


def start():
    global g
    with open("/usr/include/%s-linux-gnu/asm/unistd_64.h"
              % os.uname().machine) as f:
        for line in f:
            found = re.match(r"#define __NR_(\w+)\s+(\d+)", line)
            if found:
                names[int(found.group(2))] = found.group(1)
    g = Gateway(pool=1)
    g.start()
    with open(HERE + "/calls.c") as f:
        text = g.output("calls", "cat > c.c && gcc -O1 -w -o c c.c && ./c",
                        stdin=f.read(), timeoutSeconds=100)
    for line in text.splitlines():
        one, two, three = line.split()
        if one == "abi":
            abis[two] = int(three)
        else:
            results.setdefault(int(one), []).append(int(three))


def stop():
    g.stop()


main(start, stop)
