"""One container of an engine: a root over an image's layers, namespaces, an
address, and the program as its first process, by crun.

As the engine has it: uid 0 without a user namespace, some capabilities, a
filter of system calls, no limits.  There is no cgroup for it.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import threading
import time

from engine_http import ready
from engine_network import libc, need

BIND, DETACH, PRIVATE = 4096, 2, 0x40000

CAPABILITIES = ["CAP_" + name for name in
                "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID "
                "SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE"
                .split()]

# What is left to a container; of clone what makes no namespaces.

CALLS = """
_llseek _newselect accept accept4 access adjtimex alarm arch_prctl bind brk
capget capset chdir chmod chown chown32 chroot clock_adjtime clock_getres
clock_gettime clock_nanosleep close close_range connect copy_file_range creat
dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait
epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit
exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir
fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr flistxattr flock
fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_waitv
futimesat get_robust_list get_thread_area getcpu getcwd
getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername
getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid
getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioctl
ioprio_get ioprio_set ipc kill landlock_add_rule landlock_create_ruleset
landlock_restrict_self lchown lgetxattr link linkat listen listxattr
llistxattr lremovexattr lseek lsetxattr lstat madvise membarrier memfd_create
memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap
modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
mq_timedsend mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock
munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2
pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc
pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64
process_mrelease process_vm_readv process_vm_writev pselect6 ptrace pwrite64
pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg
recvmsg remap_file_pages removexattr rename renameat renameat2
restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity
sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_setaffinity sched_setattr sched_setparam sched_setscheduler
sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg
sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid
setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid
setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl
shmdt shmget shutdown sigaltstack signalfd signalfd4 socketpair splice
stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee
tgkill time timer_create timer_delete timer_getoverrun timer_gettime
timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill
truncate ugetrlimit umask uname unlink unlinkat utime utimensat utimes vfork
vmsplice wait4 waitid waitpid write writev
""".split()

CLONE_NAMESPACES = 0x7e020000


def seccomp():
    return {
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86",
                          "SCMP_ARCH_X32"],
        "syscalls": [
            {"names": CALLS, "action": "SCMP_ACT_ALLOW"},
            # not AF_VSOCK
            {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [
                {"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]}] + [
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [
                {"index": 0, "value": value, "op": "SCMP_CMP_EQ"}]}
            for value in (0, 8, 0x20000, 0x20008, 0xffffffff)] + [
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [
                {"index": 0, "value": CLONE_NAMESPACES, "valueTwo": 0,
                 "op": "SCMP_CMP_MASKED_EQ"}]},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO",
             "errnoRet": 38}]}


def mounts():
    quiet = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc",
         "options": quiet},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
         "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666",
                     "mode=0620", "gid=5"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
         "options": quiet + ["mode=1777", "size=65536k"]},
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue",
         "options": quiet},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs",
         "options": quiet + ["ro"]}]


def need_mount(source, target, kind, flags, data=None):
    need(libc.mount(source.encode(), target.encode(),
                    kind and kind.encode(), flags, data and data.encode()),
         "mount of " + target)


def overlay(target, lower, upper, work):
    """`lower` with the lowest first."""
    need_mount("overlay", target, "overlay", 0,
               "lowerdir=%s,upperdir=%s,workdir=%s"
               % (":".join(reversed(lower)), upper, work))


class Container:
    """`box` says what it is: layers, binds [(path, folder)], env, args, cwd,
    user, hostname, init (or None)."""

    def __init__(self, folder, network, box, search):
        self.folder = folder
        self.network = network
        self.box = box
        self.search = search
        self.process = None
        self.pid = None
        self.address = None
        self.output = [b"", b""]
        self.ended = threading.Event()
        self.code = None
        self.undo = []

    def prepare(self):
        for name in ("/upper", "/work", "/rootfs", "/empty"):
            os.makedirs(self.folder + name)
        self.root = self.folder + "/rootfs"
        os.chmod(self.folder + "/upper", 0o755)
        overlay(self.root, [self.folder + "/empty"] + self.box["layers"],
                self.folder + "/upper", self.folder + "/work")
        self.undo.append(lambda: libc.umount2(self.root.encode(), DETACH))
        self.address = self.network.take()
        self.undo.append(lambda: self.network.give(self.address))
        space = self.folder + "/net"
        self.undo.append(lambda: libc.umount2(space.encode(), DETACH))
        self.network.container(space, self.address)

    def resolve(self, name, seen=0):
        """A path in the root, with links followed inside; None: none."""
        at = self.root
        parts = [p for p in name.split("/") if p]
        while parts:
            part = parts.pop(0)
            if part == "..":
                at = os.path.dirname(at) if at != self.root else at
                continue
            path = at + "/" + part
            if os.path.islink(path):
                seen += 1
                if seen > 40:
                    return None
                to = os.readlink(path)
                parts = [p for p in to.split("/") if p] + parts
                at = self.root if to.startswith("/") else at
            elif os.path.lexists(path):
                at = path
            else:
                return None
        return at

    def missing(self):
        """What is wrong with the program's name, as exec would say."""
        name = self.box["args"][0]
        if "/" in name:
            if not name.startswith("/"):
                name = self.box["cwd"].rstrip("/") + "/" + name
            return None if self.resolve(name) else (
                'fork/exec %s: no such file or directory' % name
                if self.box["init"] else
                'runc run failed: unable to start container process: exec: '
                '"%s": stat %s: no such file or directory' % (name, name))
        env = dict(e.partition("=")[::2] for e in self.box["env"])
        for place in env.get("PATH", "").split(":"):
            if place and self.resolve(place + "/" + name):
                return None
        text = 'exec: "%s": executable file not found in $PATH' % name
        return text if self.box["init"] else (
            "runc run failed: unable to start container process: " + text)

    def user(self):
        """Its numbers, of the image's own lists; ValueError."""
        user, _, group = self.box["user"].partition(":")
        uid, gid = user or "0", group
        for line in self.lines("/etc/passwd"):
            if uid in (line[0], line[2]) and len(line) > 5:
                uid, gid = line[2], gid or line[3]
                self.box["home"] = line[5]
                break
        if not uid.isdigit():
            raise ValueError("unable to find user %s: no matching entries in "
                             "passwd file" % user)
        if gid and not gid.isdigit():
            for line in self.lines("/etc/group"):
                if line[0] == gid:
                    gid = line[2]
        if gid and not gid.isdigit():
            raise ValueError("unable to find group %s: no matching entries "
                             "in group file" % group)
        return {"uid": int(uid), "gid": int(gid or 0),
                "additionalGids": [int(gid or 0)], "umask": 18}

    def lines(self, name):
        path = self.resolve(name)
        if not path:
            return []
        with open(path, errors="replace") as f:
            return [line.rstrip("\n").split(":") for line in f
                    if line.count(":") >= 3]

    def configure(self):
        """crun's bundle; the two files that each container has."""
        for name, text in (
                ("resolv.conf", "nameserver %s\nsearch %s\n"
                 % (self.network.gateway, self.search)),
                ("hosts", "127.0.0.1\tlocalhost %s\n::1\tlocalhost "
                 "ip6-localhost ip6-loopback\n" % self.box["hostname"])):
            with open(self.folder + "/" + name, "w") as f:
                f.write(text)
        bind = [{"destination": "/etc/" + name, "type": "bind",
                 "source": self.folder + "/" + name,
                 "options": ["rbind", "ro", "nosuid", "nodev", "noexec"]}
                for name in ("resolv.conf", "hosts")]
        bind += [{"destination": path, "type": "bind", "source": folder,
                  "options": ["rbind", "rw"]}
                 for path, folder in self.box["binds"]]
        args = self.box["args"]
        if self.box["init"]:
            bind.append({"destination": "/.init", "type": "bind",
                         "source": self.box["init"],
                         "options": ["rbind", "ro"]})
            args = ["/.init"] + args
        caps = CAPABILITIES
        user = self.user()
        self.cwd(user)
        env = list(self.box["env"])
        if not any(e.startswith("HOME=") for e in env):
            env.append("HOME=" + self.box.get("home", "/root"))
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "user": user, "args": args, "env": env,
                "cwd": self.box["cwd"], "noNewPrivileges": False,
                "capabilities": {
                    "bounding": caps,
                    "effective": caps if user["uid"] == 0 else [],
                    "permitted": caps if user["uid"] == 0 else []},
                "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 20000,
                             "soft": 20000}],
                "oomScoreAdj": 0},
            "root": {"path": self.root, "readonly": False},
            "hostname": self.box["hostname"],
            "mounts": mounts() + bind,
            "linux": {
                "namespaces": [{"type": t} for t in
                               ("pid", "ipc", "uts", "mount")]
                + [{"type": "network", "path": self.folder + "/net"}],
                "seccomp": seccomp(),
                "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys",
                                "/proc/latency_stats", "/proc/timer_list",
                                "/proc/timer_stats", "/proc/sched_debug",
                                "/proc/scsi", "/sys/firmware"],
                "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq",
                                  "/proc/sys", "/proc/sysrq-trigger"]}}
        with open(self.folder + "/config.json", "w") as f:
            json.dump(config, f)

    def cwd(self, user):
        """It is made, and is the user's then."""
        at = ""
        for part in self.box["cwd"].strip("/").split("/"):
            at += "/" + part
            if any(at == path or at.startswith(path + "/")
                   for path, _ in self.box["binds"]):
                return
            if part and not self.resolve(at):
                above = self.resolve(os.path.dirname(at))
                os.mkdir(above + "/" + part)
                os.chown(above + "/" + part, user["uid"], user["gid"])

    def start(self, stdin):
        """Returns when the program runs, or has ended."""
        self.configure()
        state = os.path.dirname(os.path.dirname(self.folder)) + "/crun"
        kept = self.folder + "/pid"
        self.process = subprocess.Popen(
            ["crun", "--root", state, "--cgroup-manager=disabled", "run",
             "--bundle", self.folder, "--pid-file", kept,
             os.path.basename(self.folder)],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        threading.Thread(target=self.follow, args=(stdin,),
                         daemon=True).start()
        while not self.ended.wait(0.002):
            try:
                with open(kept) as f:
                    self.pid = int(f.read())
                break
            except (FileNotFoundError, ValueError):
                pass

    def follow(self, stdin):
        """Its input and outputs, until it ends."""
        out, err = self.process.stdout, self.process.stderr
        pieces = {out: [], err: []}
        sizes = {out: 0, err: 0}
        stdin = memoryview(stdin or b"")
        into = self.process.stdin
        if into:
            os.set_blocking(into.fileno(), False)
        while out or err:
            can = ready([f for f in (out, err) if f], [into] if into else [])
            if into and into in can:
                try:
                    stdin = stdin[os.write(into.fileno(), stdin[:65536]):]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    stdin = stdin[:0]
                if not stdin:
                    into.close()
                    into = None
            for file in [f for f in (out, err) if f in can]:
                data = os.read(file.fileno(), 1 << 16)
                if data and sizes[file] < self.box["most"]:
                    pieces[file].append(data)
                    sizes[file] += len(data)
                if not data:
                    out = None if file is out else out
                    err = None if file is err else err
        if into:
            into.close()
        self.code = self.process.wait()
        self.output = [b"".join(pieces[f]) for f in (self.process.stdout,
                                                     self.process.stderr)]
        self.process.stdout.close()
        self.process.stderr.close()
        self.ended.set()

    def fail(self, text):
        """It has ended, since it can't be started."""
        self.code, self.output = 1, [b"", text.encode() + b"\n"]
        self.ended.set()

    def signal(self, number):
        if self.pid and not self.ended.is_set():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """Returns when it has ended."""
        if self.process is None or self.ended.is_set():
            return
        end = time.monotonic() + 60
        while not self.ended.wait(0.05) and time.monotonic() < end:
            if self.pid is None:
                self.process.kill()
            self.signal(signal.SIGKILL)

    def remove(self, keep=None):
        """What it was; `keep` is where its changes go, as a layer."""
        while self.undo:
            self.undo.pop()()
        if keep:
            os.rename(self.folder + "/upper", keep)
        shutil.rmtree(self.folder, ignore_errors=True)
