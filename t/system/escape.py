#!/usr/bin/env python3
"""Ways out of a container, each must be shut; group escape of the cases,
without terminals.  Everything is tried from inside, as a user's code would."""

import os
import re
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import TOP, Gateway, alive, in_namespace        # noqa: E402
from gateway import pid_namespace, pinned, wait_for          # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="isolation")

g = None

# raw system calls from Python: call(number, arguments...) -> errno or 0
SYSCALLS = r"""
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    rc = libc.syscall(ctypes.c_long(number),
                      *[ctypes.c_long(a) if isinstance(a, int) else a
                        for a in arguments])
    return errno.errorcode.get(ctypes.get_errno(), "0") if rc == -1 else "ok"
"""


def start():
    global g
    g = Gateway(pool=2)
    g.start()
    # the agent is static, the base may have no compiler: Python has ctypes
    g.run("escape", "cat > sc.py", stdin=SYSCALLS)


def stop():
    g.stop()


def run(text, conversation="escape", **fields):
    return g.run(conversation, text, **fields)


def out(text, **fields):
    return run(text, **fields)["stdout"]


def python(text, conversation="escape"):
    r = run("python3 -c \"exec(open('sc.py').read() + "
            "open('/dev/stdin').read())\"", conversation, stdin=text)
    if r["exitCode"] != 0:
        raise AssertionError("python ended badly: %r" % r)
    return r["stdout"]


def calls(text):
    """name(arguments) lines -> {name: what it said}."""
    lines = python("\n".join("print(%r, call(%s))" % tuple(line.split(": "))
                             for line in text.strip().splitlines()))
    return dict(line.split() for line in lines.splitlines())


@test("escape/identity")
def identity():
    text = out("cat /proc/self/status /proc/self/uid_map")
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        same(int(re.search(name + r":\s+(\w+)", text).group(1), 16), 0, name)
    same(re.search(r"NoNewPrivs:\s+(\d)", text).group(1), "1")
    same(re.search(r"Seccomp:\s+(\d)", text).group(1), "2")
    same(re.search(r"Uid:\s+(.*)", text).group(1).split(), ["1000"] * 4)
    same(re.search(r"Gid:\s+(.*)", text).group(1).split(), ["1000"] * 4)
    same(re.search(r"Groups:[ \t]*(.*)", text).group(1).split(), [])
    inside, outside, count = text.splitlines()[-1].split()
    check(inside == "0" and int(outside) >= 65536 and int(count) <= 65536,
          "uid map:", text.splitlines()[-1])


@test("escape/ids-of-its-own")
def own_ids():
    maps = {g.output("ids%d" % n, "cat /proc/self/uid_map").split()[1]
            for n in range(3)}
    same(len(maps), 3, "id ranges of three sandboxes")


@test("escape/mounts-namespaces")
def mounts_namespaces():
    got = calls("""
mount-tmpfs: 165, b'none', b'/tmp', b'tmpfs', 0, 0
mount-proc: 165, b'none', b'/tmp', b'proc', 0, 0
mount-bind: 165, b'/', b'/tmp', 0, 4096, 0
mount-remount: 165, b'none', b'/', 0, 32, 0
umount: 166, b'/proc', 2
pivot_root: 155, b'/', b'/'
chroot: 161, b'/tmp'
unshare-mnt: 272, 0x20000
unshare-pid: 272, 0x20000000
unshare-net: 272, 0x40000000
unshare-uts: 272, 0x4000000
unshare-ipc: 272, 0x8000000
unshare-cgroup: 272, 0x2000000
swapon: 167, b'/tmp/x', 0
swapoff: 168, b'/tmp/x'
reboot: 169, 0xfee1dead, 672274793, 0x1234567, 0
sethostname: 170, b'x', 1
open_tree: 428, -100, b'/', 1
fsopen: 430, b'tmpfs', 0
move_mount: 429, -100, b'/', -100, b'/tmp', 0
mount_setattr: 442, -100, b'/', 0, 0, 0
name_to_handle_at: 303, -100, b'/etc/passwd', 0, 0, 0
open_by_handle_at: 304, 3, 0, 0
quotactl: 179, 0, 0, 0, 0
acct: 163, 0
""")
    # a handle is good for nothing without open_by_handle_at
    got.pop("name_to_handle_at")
    bad = {n: v for n, v in got.items() if v not in ("EPERM", "ENOSYS")}
    same(bad, {}, "not refused with EPERM or ENOSYS")
    text = python("""
import glob
for pid in ('self', '1'):
    for path in sorted(glob.glob('/proc/%s/ns/*' % pid)):
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        print(path, call(308, fd, 0))
        os.close(fd)
""")
    check(len(text.splitlines()) >= 6, "namespaces tried:", text)
    for line in text.splitlines():
        check(line.split()[1] in ("EPERM", "EINVAL", "ENOSYS"), line)


@test("escape/user-namespace")
def user_namespace():
    for text in ("unshare -Ur true", "unshare -Urn true", "unshare -U true",
                 "unshare -m true", "unshare -n true", "unshare -i true"):
        r = run(text)
        check(r["exitCode"] != 0, text, r)
    got = python("""
import signal
# clone and clone3 with each namespace flag; a child would end at once
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x4000000,
             0x8000000, 0x2000000, 0x10020000, 0x80):
    for how in ('clone', 'clone3')[flag == 0x80:]:
        ctypes.set_errno(0)
        if how == 'clone':
            pid = libc.syscall(ctypes.c_long(56),
                               ctypes.c_long(flag | signal.SIGCHLD), 0, 0, 0,
                               0)
        else:
            args = (ctypes.c_uint64 * 11)(flag, 0, 0, 0, signal.SIGCHLD)
            pid = libc.syscall(ctypes.c_long(435), ctypes.byref(args),
                               ctypes.c_long(88))
        if pid == 0:
            os._exit(0)
        if pid > 0:
            os.waitpid(pid, 0)
            print('made', how, hex(flag))
        else:
            print('refused', how, hex(flag), ctypes.get_errno())
""")
    same([x for x in got.splitlines() if not x.startswith("refused")], [])
    for name in ("user", "mnt", "pid", "net"):
        same(out("cat /proc/sys/user/max_%s_namespaces" % name), "0\n", name)


@test("escape/setuid")
def setuid():
    r = run("cp /bin/bash b; chmod u+s,g+s b; ./b -p -c 'id -u; id -un'")
    same(r["stdout"], "1000\nsandbox\n")
    for text in ("su -c id", "su root -c id", "sudo id", "sudo -n id",
                 "newuidmap $$ 0 0 1", "pkexec id"):
        r = run(text + " < /dev/null")
        check(r["exitCode"] != 0 and "uid=0" not in r["stdout"], text, r)
    r = run("cp /bin/bash c; setcap cap_sys_admin+ep c 2>&1; "
            "./c -c 'grep CapEff /proc/self/status'")
    check("0000000000000000" in r["stdout"], "capabilities:", r)
    got = calls("setuid: 105, 0\nsetgid: 106, 0\nsetresuid: 117, 0, 0, 0\n"
                "setgroups: 116, 0, 0\nsetfsuid: 122, 0\nchown: 92, b'sc.py', "
                "0, 0")
    for name in ("setuid", "setgid", "setresuid", "setgroups", "chown"):
        check(got[name] in ("EPERM", "EINVAL"), name, got)
    same(out("find / -xdev -perm /6000 -type f 2>/dev/null | grep -v "
             "^/home"), "")


@test("escape/device-nodes")
def devices():
    for text in ("mknod n c 1 3", "mknod n b 8 0", "mknod /tmp/n c 1 1"):
        check(run(text)["exitCode"] != 0, text)
    for name in ("mem", "kmem", "port", "kmsg", "fuse", "net/tun", "sda",
                 "vda", "loop0", "loop-control", "kvm", "mapper/control",
                 "snapshot", "uinput", "vhost-net", "nvme0", "autofs", "hpet",
                 "console", "ppp", "rtc", "watchdog", "btrfs-control"):
        r = run("exec 3<>/dev/%s" % name)
        check(r["exitCode"] != 0, "/dev/%s opens" % name)
    names = set(out("ls /dev").split())
    allowed = {"null", "zero", "full", "random", "urandom", "tty", "pts",
               "ptmx", "fd", "stdin", "stdout", "stderr", "shm", "mqueue",
               "core"}
    same(names - allowed, set(), "in /dev")
    same(out("printf x > /dev/null; head -c 3 /dev/zero | wc -c; "
             "head -c 5 /dev/urandom | wc -c; echo x > /dev/full; echo $?"),
         "3\n5\n1\n")


@test("escape/leaked-fd")
def leaked_fd():
    text = python("""
for pid in [p for p in os.listdir('/proc') if p.isdigit()]:
    try:
        names = os.listdir('/proc/%s/fd' % pid)
    except OSError:
        continue
    for fd in names:
        try:
            target = os.readlink('/proc/%s/fd/%s' % (pid, fd))
        except OSError:
            continue
        print(target)
""")
    for line in set(text.split("\n")) - {""}:
        check(line.startswith(("pipe:", "/proc/", "/dev/null", "/memfd",
                               "/home/sandbox", "/dev/urandom")),
              "a descriptor of", line)
    r = run("ls -l /proc/1/fd /proc/1/exe /proc/1/root /proc/1/cwd")
    check(r["exitCode"] != 0 and r["stdout"].count("->") == 0,
          "of the agent:", r)


@test("escape/cgroup-escape")
def cgroup():
    for kind in ("cgroup", "cgroup2"):
        got = calls("mount: 165, b'none', b'/tmp', b'%s', 0, b'memory'"
                    % kind)
        same(got["mount"], "EPERM", kind)
    r = run("ls -A /sys; find / -xdev \\( -name release_agent -o -name "
            "cgroup.procs -o -name notify_on_release \\) 2>/dev/null")
    same(r["stdout"], "", "control groups inside")
    text = out("cat /proc/self/cgroup")
    check("sandbox-" not in text and g.dir not in text, "host names:", text)


@test("escape/host-paths")
def host_paths():
    text = out("cat /proc/self/mountinfo /proc/mounts /proc/self/cgroup "
               "/proc/cmdline /etc/hosts /etc/hostname /etc/resolv.conf "
               "/proc/self/maps 2>/dev/null; hostname; env")
    for word in (g.dir, "/var/cache/sandbox", "/run/sandbox", TOP + "/",
                 socket.gethostname() + "\n"):
        check(word not in text, "seen inside:", word,
              [x for x in text.splitlines() if word.strip() in x][:3])


@test("escape/debug-agent")
def debug_agent():
    got = calls("""
ptrace-attach: 101, 16, 1, 0, 0
ptrace-seize: 101, 0x4206, 1, 0, 0
process_vm_readv: 310, 1, 0, 0, 0, 0, 0
process_vm_writev: 311, 1, 0, 0, 0, 0, 0
kcmp: 312, 1, 1, 0, 0, 0
prlimit: 302, 1, 7, 0, b'x' * 16
kill: 62, 1, 9
kill-stop: 62, 1, 19
tgkill: 234, 1, 1, 9
rt_sigqueueinfo: 129, 1, 9, b'\\t' + bytes(7) + b'\\xff' * 4 + bytes(116)
setpriority: 141, 0, 1, 19
sched_setaffinity: 203, 1, 8, b'\\1' + bytes(7)
ioprio_set: 251, 1, 1, 0
""")
    # process_vm_readv of nothing says ok; what matters is tried below
    got.pop("process_vm_readv"), got.pop("process_vm_writev")
    bad = {n: v for n, v in got.items()
           if v not in ("EPERM", "ENOSYS", "ESRCH", "EACCES")}
    same(bad, {}, "not refused")
    text = python("""
fd = call(434, 1, 0)
print('pidfd_open', fd)
for path in ('mem', 'environ', 'maps', 'exe', 'root', 'cwd', 'fd', 'fd/0',
             'fd/3', 'map_files', 'stack', 'syscall', 'auxv', 'io',
             'ns/net'):
    path = '/proc/1/' + path
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, 'rb').read(1)
        print('opened', path)
    except OSError as e:
        print('refused', path, e.errno)
for path in ('oom_score_adj', 'comm', 'coredump_filter', 'timerslack_ns',
             'clear_refs', 'attr/current', 'loginuid', 'autogroup'):
    path = '/proc/1/' + path
    try:
        with open(path, 'w') as f:
            f.write('1')
        print('written', path)
    except OSError as e:
        print('refused', path, e.errno)
""")
    check("opened" not in text and "written" not in text, "of PID 1:", text)
    text = python("""
import struct
b = ctypes.create_string_buffer(64)
local = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 64)
remote = (ctypes.c_uint64 * 2)(0x400000, 64)
print(call(310, 1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))
p = libc.syscall(ctypes.c_long(434), ctypes.c_long(1), ctypes.c_long(0))
if p >= 0:
    for fd in range(12):
        print(call(438, p, fd, 0))
    print(call(424, p, 9, 0, 0))
""")
    check("ok" not in text, "memory or descriptors of PID 1:", text)
    same(out("echo alive"), "alive\n")


@test("escape/next-command")
def next_command():
    """What one command leaves behind must not change the next one's shell."""
    run("echo 'echo evil' >> ~/.bashrc; echo 'echo evil' >> ~/.profile; "
        "echo 'echo evil' >> ~/.bash_profile; echo 'echo evil' >> ~/.bash_env"
        "; export BASH_ENV=~/.bash_env LD_PRELOAD=/home/sandbox/x.so")
    same(out("echo clean; echo ${BASH_ENV-none} ${LD_PRELOAD-none}"),
         "clean\nnone none\n")
    run("rm ~/.bashrc ~/.profile ~/.bash_profile ~/.bash_env")


@test("escape/io-uring")
def io_uring():
    got = calls("setup: 425, 8, b'x' * 120\nenter: 426, 0, 0, 0, 0, 0\n"
                "register: 427, 0, 0, 0, 0")
    for name, value in got.items():
        check(value in ("EPERM", "ENOSYS"), name, value)


@test("escape/dangerous-calls")
def dangerous_calls():
    got = calls("""
bpf: 321, 0, 0, 0
perf_event_open: 298, 0, 0, 0, 0, 0
userfaultfd: 323, 0
keyctl: 250, 0, 0, 0, 0, 0
add_key: 248, b'user', b'x', b'y', 1, 0
request_key: 249, b'user', b'x', 0, 0
kexec_load: 246, 0, 0, 0, 0
init_module: 175, 0, 0, 0
finit_module: 313, 0, 0, 0
delete_module: 176, b'x', 0
iopl: 172, 3
ioperm: 173, 0, 1, 1
syslog: 103, 3, 0, 0
lookup_dcookie: 212, 0, 0, 0
move_pages: 279, 1, 0, 0, 0, 0, 0
mbind: 237, 0, 0, 0, 0, 0, 0
fanotify_init: 300, 0, 0
vhangup: 153
nfsservctl: 180, 0, 0, 0
uselib: 134, b'x'
modify_ldt: 154, 0, 0, 0
setns: 308, 0, 0
landlock_bad: 444, 0, 0, 99
pidfd_getfd: 438, 0, 0, 0
personality: 135, 0x0040000
""")
    harmless = {"landlock_bad", "move_pages", "mbind", "modify_ldt",
                "pidfd_getfd", "personality"}
    bad = {n: v for n, v in got.items()
           if n not in harmless and v not in ("EPERM", "ENOSYS")}
    same(bad, {}, "not refused with EPERM or ENOSYS")


@test("escape/metadata-address")
def metadata():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(8)
    port = listener.getsockname()[1]
    started = time.monotonic()
    text = python("""
import socket, time
for family, where in (
        (2, ('169.254.169.254', 80)), (2, ('127.0.0.1', %d)),
        (2, ('127.0.0.1', %d)), (2, ('10.0.0.1', 80)),
        (2, ('172.17.0.1', 80)), (2, ('192.168.0.1', 80)),
        (2, ('1.1.1.1', 53)), (2, ('2852039166', 80)),
        (2, ('0xa9fea9fe', 80)), (10, ('fd00:ec2::254', 80)),
        (10, ('::ffff:169.254.169.254', 80)), (10, ('::ffff:127.0.0.1', %d)),
        (10, ('2606:4700:4700::1111', 443)), (2, ('0.0.0.0', %d))):
    s = socket.socket(family)
    s.settimeout(10)
    try:
        s.connect(where)
        print('connected', where)
    except OSError as e:
        print('refused', where, e)
for kind in (socket.SOCK_RAW, ):
    try:
        socket.socket(socket.AF_INET, kind, 1)
        print('connected: a raw socket', kind)
    except OSError:
        pass
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    print('connected: a packet socket')
except OSError:
    pass
""" % (port, g.port, g.port, port))
    listener.close()
    check("connected" not in text, text)
    same(text.count("refused ("), 14, text)
    check(time.monotonic() - started < 100, "it took long")
    for text in ("curl -sS http://example.org/", "curl -sS https://1.1.1.1/",
                 "curl -sS http://127.0.0.1:%d/sandbox/health" % g.port,
                 "getent hosts example.org"):
        started = time.monotonic()
        check(run(text)["exitCode"] != 0, text)
        check(time.monotonic() - started < 100, "not at once:", text)
    same(out("getent hosts localhost | grep -c ."), "1\n")
    text = out("cat /proc/net/dev")
    names = re.findall(r"^\s*(\w+):", text, re.M)
    same(names, ["lo"], "interfaces")


@test("escape/sockets-of-the-host")
def host_sockets():
    """Unix sockets by name and by abstract name stay in their world."""
    name = "sandbox-test-%d" % os.getpid()
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0" + name)
    s.listen(1)
    text = python("""
import socket
for where in (chr(0) + %r, '/run/systemd/notify', '/var/run/docker.sock',
              '/run/dbus/system_bus_socket', %r):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(where)
        print('connected', repr(where))
    except OSError as e:
        print('refused')
""" % (name, g.socket))
    s.close()
    check("connected" not in text, text)
    r = out("cat /proc/net/unix")
    check(name not in r and g.dir not in r, "sockets of the host:", r)
    for family in (17, 38, 40, 44, 31, 29):
        got = calls("socket: 41, %d, 3, 0" % family)
        check(got["socket"] != "ok", "address family %d" % family)


@test("escape/odd-sockets")
def odd_sockets():
    """Protocols of no use here."""
    got = calls("mptcp: 41, 2, 1, 262\nudplite: 41, 2, 2, 136\n"
                "sctp: 41, 2, 1, 132\ndccp: 41, 2, 6, 33\n"
                "raw: 41, 2, 3, 1\ntcp: 41, 2, 1, 0\nudp: 41, 2, 2, 17\n"
                "unix: 41, 1, 1, 0")
    same(sorted(n for n, v in got.items() if v == "ok"),
         ["tcp", "udp", "unix"])


@test("escape/other-disks")
def other_disks():
    """Nothing tells of the host's disks or of other sandboxes' ones."""
    same(out("find /proc/fs -type f 2>/dev/null | head -3"), "")


@test("escape/sysctl-write")
def sysctl():
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
                 "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches",
                 "/proc/sys/fs/binfmt_misc/register",
                 "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory",
                 "/proc/sys/net/ipv4/ip_forward", "/proc/1/oom_score_adj",
                 "/proc/sys/user/max_user_namespaces",
                 "/sys/kernel/uevent_helper", "/sys/power/state",
                 "/proc/self/oom_score_adj.x", "/proc/irq/default_smp_affinity",
                 "/proc/sys/kernel/pid_max", "/proc/sys/kernel/ns_last_pid"):
        r = run("echo 1 > " + path)
        check(r["exitCode"] != 0, path + " can be written")
    for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list",
                 "/proc/sched_debug", "/proc/kmsg", "/proc/kpagecount",
                 "/proc/latency_stats", "/proc/scsi", "/sys/firmware",
                 "/sys/kernel"):
        r = run("head -c 1 %s 2>/dev/null | wc -c; ls -A %s 2>/dev/null "
                "| wc -l" % (path, path))
        first, entries = r["stdout"].split()
        check(first == "0" and entries in ("0", "1"), path, r)
    check(run("echo -1000 > /proc/self/oom_score_adj")["exitCode"] != 0,
          "its own oom score can be lowered")


@test("escape/base-is-read-only")
def base_read_only():
    """Writes go to this sandbox's own layer, never to the base."""
    base = os.path.realpath((os.environ.get("CACHE") or "/var/cache/sandbox")
                            + "/base/current/rootfs")
    before = os.stat(base + "/etc/passwd").st_mtime_ns
    run("echo evil >> /etc/passwd; echo evil > /usr/bin/evil; "
        "rm -rf /opt/sandbox /usr/lib/python3* 2>/dev/null; true")
    same(os.stat(base + "/etc/passwd").st_mtime_ns, before)
    check(not os.path.exists(base + "/usr/bin/evil"), "written to the base")
    same(out("tail -1 /etc/passwd | grep -c evil; true"), "0\n")
    same(out("python3 -c 'import pandas; print(1)'"), "1\n")
    # root-owned in the image shows as root inside
    same(out("stat -c '%U %a' /etc/passwd /usr/bin /opt/sandbox"),
         "root 644\nroot 755\nroot 755\n")


@test("escape/seccomp-compatible")
def compatible():
    text = python("""
import threading, time, mmap, select, signal, socket, sqlite3, subprocess
import multiprocessing, tempfile, ssl, hashlib, zoneinfo, asyncio, sched
import ctypes, uuid, zipfile, lzma, bz2, gzip, decimal, concurrent.futures
import numpy, pandas, httpx, resource, fcntl, shutil
t = [threading.Thread(target=lambda: time.sleep(0.01)) for n in range(20)]
[x.start() for x in t]; [x.join() for x in t]
fd = os.memfd_create('x'); os.write(fd, b'x')
os.stat('/tmp'); os.access('/tmp', os.R_OK, effective_ids=True)
signal.setitimer(signal.ITIMER_REAL, 10); signal.setitimer(
    signal.ITIMER_REAL, 0)
e = select.epoll(); a, b = socket.socketpair(); e.register(a)
db = sqlite3.connect(':memory:'); db.execute('select 1')
open('m', 'wb').write(bytes(4096)); f = open('m', 'r+b')
m = mmap.mmap(f.fileno(), 4096); m[0] = 1; m.flush()
fcntl.flock(f, fcntl.LOCK_EX)
os.copy_file_range(fd, os.memfd_create('y'), 1)
os.posix_fallocate(f.fileno(), 0, 8192)
os.mkfifo('fifo'); os.remove('fifo'); os.symlink('m', 'l'); os.remove('l')
os.link('m', 'h'); os.rename('h', 'h2'); os.remove('h2')
os.sched_yield(); os.sched_getaffinity(0); os.getrandom(8)
os.setxattr('m', 'user.x', b'1') if hasattr(os, 'setxattr') else None
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
c = socket.create_connection(s.getsockname())
async def main():
    p = await asyncio.create_subprocess_exec('true'); await p.wait()
asyncio.run(main())
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    print(sum(pool.map(abs, [-1, -2])))
print(subprocess.run(['git', '--version'], capture_output=True).returncode)
print('eventfd', call(290, 0, 0), 'timerfd', call(283, 1, 0),
      'inotify', call(294, 0), 'signalfd', call(289, -1, bytes(8), 8, 0),
      'close_range', call(436, 1000, 2000, 0), 'faccessat2',
      call(439, -100, b'/tmp', 4, 0x200), 'openat2', call(437, -100, b'/tmp',
      (ctypes.c_uint64 * 3)(0, 0, 0), 24), 'statx', call(332, -100, b'/tmp',
      0, 0x7ff, ctypes.create_string_buffer(256)), 'membarrier',
      call(324, 0, 0, 0), 'rseq-seen', call(334, 0, 0, 0, 0) != 'ENOSYS')
""")
    lines = text.splitlines()
    same(lines[0], "3")
    same(lines[1], "0")
    check("ENOSYS" not in text and "EPERM" not in lines[2], lines[2])
    for text in ("ls -la / | head -3", "find /usr -name '*.py' | head -1",
                 "tar c /etc/passwd 2>/dev/null | tar t", "sort /etc/passwd",
                 "awk 'BEGIN{print 1}'", "sed --version | head -1",
                 "date", "ps aux | head -1", "free", "df /",
                 "git init -q repo && cd repo && git -c user.name=a -c "
                 "user.email=a@b commit -q --allow-empty -m x && git log "
                 "--oneline", "jq -n 1", "rg -c root /etc/passwd", "unzip -v | head -1", "xargs --version",
                 "timeout 100 true", "nice true", "mktemp", "uv --version",
                 "seq 3 | shuf | sort", "openssl version || true",
                 "perl -e 'print 1'", "command -v cc && echo 'int main(){"
                 "return 0;}' > x.c && cc x.c -o x && ./x || true",
                 "stdbuf -oL echo x || true"):
        r = run(text)
        check(r["exitCode"] in (0, 141) and r["signal"] is None, text, r)


@test("escape/terminal-injection")
def terminal():
    """There is no terminal of anybody's; what is pushed into one of the
    user's own stays there, or is refused."""
    text = python("""
import fcntl, select, struct, termios
def ioctl(fd, number, data):
    try:
        fcntl.ioctl(fd, number, data)
        return 'ok'
    except OSError as e:
        return errno.errorcode[e.errno]
try:
    os.open('/dev/tty', os.O_RDWR)
    print('a controlling terminal')
except OSError as e:
    print('none', errno.errorcode[e.errno])
for fd in range(3):
    print(os.isatty(fd), ioctl(fd, 0x5412, b'x'), ioctl(fd, 0x541c, b'\\2'))
master, slave = os.openpty()
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.open('/dev/tty', os.O_RDWR)
    out = [ioctl(slave, 0x5412, bytes([c])) for c in b'echo evil\\n']
    print('TIOCSTI', *sorted(set(out)))
    print('TIOCLINUX', *sorted({ioctl(slave, 0x541c, bytes([n]) + bytes(63))
                                for n in range(18)}))
    # console, line discipline of a mouse or a modem, locks
    for name, number, data in (
            ('TIOCCONS', 0x541d, 0), ('TIOCSETD', 0x5423, struct.pack('i', 2)),
            ('TIOCSLCKTRMIOS', 0x5457, bytes(60)),
            ('TIOCVHANGUP', 0x5437, 0), ('KDSETMODE', 0x4b3a, 1)):
        print(name, ioctl(slave, number, data))
    sys.stdout.flush()
    os._exit(0)
os.wait()
print('others', [n for n in os.listdir('/dev/pts')
                 if n not in ('ptmx', os.path.basename(os.ttyname(slave)))])
""")
    lines = text.splitlines()
    same(lines[0], "none ENXIO")
    for line in lines[1:4]:
        same(line.split()[0], "False", "a terminal")
        check("ok" not in line, line)
    said = dict(line.split(" ", 1) for line in lines[4:])
    check(said["TIOCSTI"] in ("ok", "EIO", "EPERM"), said)
    for name in ("TIOCLINUX", "TIOCCONS", "TIOCSLCKTRMIOS", "TIOCVHANGUP",
                 "KDSETMODE"):
        check("ok" not in said[name], name, said)
    same(said["others"], "[]", "terminals of others")
    same(out("echo fine"), "fine\n")


@test("escape/clock")
def clock():
    before = time.time()
    check(run("date -s 2001-01-01")["exitCode"] != 0, "date -s")
    got = calls("clock_settime: 227, 0, bytes(16)\n"
                "settimeofday: 164, bytes(16), 0\n"
                "adjtimex: 159, b'\\1' + bytes(207)\n"
                "clock_adjtime: 305, 0, b'\\1' + bytes(207)")
    for name, value in got.items():
        check(value in ("EPERM", "ENOSYS"), name, value)
    check(abs(time.time() - before) < 100, "the host's clock moved")


HIDING = r"""
import ctypes, os, signal, subprocess, sys, time
libc = ctypes.CDLL(None)

def child(name):
    # double fork, a session of its own, one trick each
    if os.fork():
        os.wait()
        return True
    if os.fork():
        os._exit(0)
    os.setsid()
    for fd in range(3):
        os.close(fd)
    os.open('/dev/null', os.O_RDWR); os.dup(0); os.dup(0)
    return False

def forever():
    while True:
        time.sleep(1)

def ignore():
    for n in range(1, 64):
        try: signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError): pass

tricks = []
def trick(f): tricks.append(f); return f

@trick
def plain(): forever()
@trick
def ignores(): ignore(); forever()
@trick
def renamed(): libc.prctl(15, b'kworker/0:1'); forever()
@trick
def stopped(): os.kill(os.getpid(), signal.SIGSTOP); forever()
@trick
def parent_stopped():
    if os.fork() == 0: forever()
    os.kill(os.getpid(), signal.SIGSTOP); forever()
@trick
def group(): os.setpgid(0, 0) if os.getpid() != os.getsid(0) else 0; forever()
@trick
def memfd():
    fd = os.memfd_create('x')
    os.write(fd, open('/bin/sleep', 'rb').read())
    os.execve(fd, ['[kthreadd]', '9999'], {})
@trick
def deleted():
    open('/tmp/d', 'wb').write(open('/bin/sleep', 'rb').read())
    os.chmod('/tmp/d', 0o755)
    if os.fork() == 0: os.execv('/tmp/d', ['x', '9999'])
    time.sleep(0.3); os.remove('/tmp/d'); forever()
@trick
def no_argv(): os.execv('/bin/sleep', ['', '9999'])
@trick
def traced():
    pid = os.fork()
    if pid == 0: libc.ptrace(0, 0, 0, 0); os.kill(os.getpid(), 19); forever()
    forever()
@trick
def threads():
    import threading
    for n in range(5): threading.Thread(target=forever).start()
    forever()
@trick
def forker():
    while True:
        if os.fork() == 0:
            time.sleep(0.2); 
            continue
        os._exit(0)
@trick
def pipe_holder():
    r, w = os.pipe(); os.read(r, 1)
@trick
def subreaper(): libc.prctl(36, 1, 0, 0, 0); forever()
@trick
def pdeath(): libc.prctl(1, 0, 0, 0, 0); forever()
@trick
def undumpable(): libc.prctl(4, 0, 0, 0, 0); forever()
@trick
def busy():
    while True: pass
@trick
def cwd_gone():
    os.mkdir('/tmp/g'); os.chdir('/tmp/g'); os.rmdir('/tmp/g'); forever()
@trick
def locked():
    try: libc.mlockall(3)
    except Exception: pass
    forever()
@trick
def server():
    import socket
    s = socket.socket(); s.bind(('0.0.0.0', 0)); s.listen(); s.accept()
@trick
def niced(): os.nice(19); forever()
@trick
def vforked(): subprocess.Popen(['sleep', '9999'], start_new_session=True); \
    forever()
@trick
def shell(): os.execv('/bin/bash', ['bash', '-c', "trap '' 1 2 3 15; while :; "
                                    "do sleep 1; done"])
@trick
def zombie_maker():
    for n in range(5):
        if os.fork() == 0: os._exit(0)
    forever()
@trick
def inotify(): libc.inotify_init(); forever()

for f in tricks:
    if not child(f.__name__):
        try: f()
        finally: os._exit(0)
print(len(tricks))
"""


@test("escape/hidden-survivors")
def hidden_survivors():
    r = run("cat > hide.py; python3 hide.py; sleep 1; ls /proc | grep -c "
            "'^[0-9]'", "hidden", stdin=HIDING)
    started, processes = (int(n) for n in r["stdout"].split())
    same(started, 25, "tricks")
    check(processes > 20, "processes", r)
    agent = g.agent("hidden")
    space, pin = pid_namespace(agent), pinned(agent)
    pids = in_namespace(space)
    check(len(pids) > 20, "seen from the host", len(pids))
    same(g.delete("hidden").status, 204)
    wait_for(lambda: not in_namespace(space), 60, "the end of all of them")
    os.close(pin)
    wait_for(lambda: not any(alive(p) for p in pids), 60, "their end")


@test("escape/hidden-survivors-of-a-command")
def survivors_of_timeout():
    """The same tricks under a command that runs into its time-out."""
    r = run("cat > hide.py; python3 hide.py; sleep 100", "hidden2",
            stdin=HIDING, timeoutSeconds=4)
    same(r["outcome"], "timeout")
    text = g.output("hidden2", "ls -d /proc/[0-9]*; cat /proc/*/comm "
                    "2>/dev/null | sort | uniq -c")
    check(text.count("/proc/") <= 6, "processes left:", text)


@test("escape/stop-everything", seconds=180)
def stop_everything():
    """A background process that stops all it can, in a loop: the clock is
    kept nevertheless, and the sandbox works again when it is over."""
    agent = g.agent("stopped")
    run("cat > stop.py; python3 stop.py > /dev/null 2>&1", "stopped", stdin="""
import os, signal, time
if os.fork() == 0:
    os.setsid()
    while not os.path.exists('go'):
        time.sleep(0.1)
    signal.alarm(12)
    while True:
        try:
            os.kill(-1, signal.SIGSTOP)
        except OSError:
            pass
""")
    # no process is started for that
    same(g.request("PUT", "v1/conversations/stopped/fs/go", b"").status, 201)
    started = time.monotonic()
    while time.monotonic() - started < 9:
        r = g.command("stopped", "echo next", timeoutSeconds=2)
        check(r.status == 200 and r.json["outcome"] in
              ("exit", "timeout", "signal"), "not kept in time:", r)
    check(alive(agent), "the agent is gone")
    # before its end one that got through would prove nothing
    wait_for(lambda: in_namespace(pid_namespace(agent)) == [agent], 40,
             "the end of it")
    same(run("echo next", "stopped", timeoutSeconds=60)["stdout"], "next\n")
    same(g.agent("stopped"), agent, "the same agent")


@test("escape/flood-of-signals")
def flood():
    """A user who signals all day does not reach agent or neighbours."""
    agent = g.agent("escape")
    run("python3 -c '\nimport os\nfor p in range(1, 400):\n"
        "    for s in (1, 2, 9, 15, 19):\n        try:\n"
        "            p != os.getpid() and p != os.getppid() and os.kill(p, s)"
        "\n        except OSError: pass'")
    check(alive(agent), "the agent is gone")
    same(out("echo alive"), "alive\n")
    same(g.agent("escape"), agent, "the same agent")


main(start, stop)
