#!/usr/bin/env python3
"""What a user's process finds when it looks around in its own sandbox: other
processes as they are born, descriptors, folders, /proc, randomness; and what
it leaves for whoever has to end it."""

import os
import re
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import TOP, Gateway, alive, all_pids, cgroup_folders  # noqa: E402
from gateway import cgroup_of, in_namespace, loop_devices    # noqa: E402
from gateway import mounts, pid_namespace, pinned            # noqa: E402
from gateway import token, wait_for                          # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
C = "inside"

PRELUDE = r"""
import ctypes, errno, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    rc = libc.syscall(ctypes.c_long(number),
                      *[ctypes.c_long(a) if isinstance(a, int) else a
                        for a in arguments])
    return rc if rc != -1 else errno.errorcode.get(ctypes.get_errno())
"""


def python(conversation, text):
    r = g.run(conversation, "python3 -", stdin=PRELUDE + text)
    same((r["exitCode"], r["stderr"]), (0, ""), "python in " + conversation)
    return r["stdout"]


# Each process that comes up is taken by all means as soon as it is seen: it is
# the agent's program until its exec, with the user's id already.
NEWBORN = PRELUDE + r"""
import threading
seen, wrong, own = {}, set(), os.getpid()
def closed(path):
    # it is still there, and before its exec
    try:
        os.readlink(path + 'exe')
    except PermissionError:
        return True
    except OSError:
        pass
    return False
def look(pid):
    path = '/proc/%d/' % pid
    try:
        exe = os.readlink(path + 'exe')
    except OSError:
        exe = None
    if exe and 'sandbox-agent' in exe:
        wrong.add(path + 'exe: ' + exe)
    for name in 'fd', 'map_files', 'task/%d/fd' % pid:
        try:
            for fd in os.listdir(path + name):
                to = os.readlink(path + name + '/' + fd)
                if 'sandbox-agent' in to or to.startswith(
                        ('socket:', '/sys', 'anon_inode:', '/memfd:words')):
                    wrong.add(path + name + ': ' + to)
        except OSError:
            pass
    if not exe:
        # closed to us, so all of this must be
        for name in 'mem', 'environ', 'maps', 'auxv', 'syscall', 'stack':
            try:
                with open(path + name, 'rb') as f:
                    if name == 'mem':
                        f.seek(0x400000)
                    if f.read(1) and closed(path):
                        wrong.add(path + name)
            except OSError:
                pass
        fd = call(434, pid, 0)
        if isinstance(fd, int):
            for n in range(3, 12):
                got = call(438, fd, n, 0)
                if isinstance(got, int):
                    to = os.readlink('/proc/self/fd/%d' % got)
                    if closed(path) or to.startswith(('socket:', 'anon')):
                        wrong.add('descriptor %d: %s' % (n, to))
                    os.close(got)
            os.close(fd)
    seen[pid] = exe
def race():
    while not os.path.exists('/tmp/enough'):
        for name in os.listdir('/proc'):
            if name.isdigit() and int(name) not in (1, own):
                look(int(name))
threads = [threading.Thread(target=race) for n in range(2)]
[t.start() for t in threads]
open('/tmp/racing', 'w').close()
[t.join() for t in threads]
with open('said.new', 'w') as f:
    f.write('%d %s' % (len(seen), sorted(wrong)))
os.rename('said.new', 'said')
"""


@test("attack/newborn-processes", seconds=200)
def newborn():
    r = g.command("newborn", "cat > n.py; exec python3 n.py",
                  background=True, stdin=NEWBORN)
    same(r.status, 202, repr(r))
    wait_for(lambda: "yes" in g.run("newborn", "[ -e /tmp/racing ] && echo "
                                    "yes")["stdout"], 60, "the race")
    for n in range(60):
        g.run("newborn", "sleep 0.01")
    g.run("newborn", "echo > /tmp/enough")
    got = wait_for(lambda: g.run("newborn", "cat said 2> /dev/null")["stdout"],
                   60, "what was seen")
    count, wrong = got.split(" ", 1)
    check(int(count) > 5, "processes seen:", got)
    same(wrong, "[]", "of the agent")


@test("attack/descriptors-and-folders")
def descriptors():
    """CVE-2024-21626: a folder or a descriptor that is still on the host."""
    text = python(C, r"""
inside = os.stat('/')
for pid in [p for p in os.listdir('/proc') if p.isdigit()] + ['self']:
    paths = ['/proc/%s/cwd' % pid, '/proc/%s/root' % pid]
    try:
        paths += ['/proc/%s/fd/%s' % (pid, n)
                  for n in os.listdir('/proc/%s/fd' % pid)]
    except OSError:
        pass
    for path in paths:
        for way in '', '/..', '/../../../../../../../..':
            try:
                st = os.stat(path + way)
            except OSError:
                continue
            top = os.path.join(path + way, 'etc/hostname')
            if os.path.exists(top):
                print(path + way, 'has', open(top).read().strip())
            if way and len(way) > 4 and (st.st_dev, st.st_ino) != (
                    inside.st_dev, inside.st_ino):
                if os.path.isdir(path):
                    print(path + way, 'is', st.st_dev, st.st_ino)
for n in range(3, 1024):
    try:
        print('open:', n, os.readlink('/proc/self/fd/%d' % n))
    except OSError:
        pass
""")
    lines = text.splitlines()
    check(len([x for x in lines if " has " in x]) > 1, "the root itself", text)
    for line in lines:
        check(" is " not in line, "another root:", line)
        if " has " in line:
            check(not line.endswith(" has " + socket.gethostname()),
                  "the host:", line)
        if line.startswith("open:"):
            check("/proc/" in line, "a descriptor:", line)
    for cwd in ("/proc/self/fd/7", "/proc/self/fd/4/../../..",
                "/proc/1/cwd/../../..", "/proc/self/cwd"):
        r = g.command(C, "pwd", cwd=cwd)
        check(r.status in (400, 422), cwd, r)


def words():
    """What is the host's, and nobody's business inside."""
    out = {g.dir, g.state, TOP, "/var/cache/sandbox", "/run/sandbox",
           "sandbox-runner", "www-data/", g.path("runner.sock")}
    out.add(cgroup_of(g.agent(C)))
    if len(socket.gethostname()) > 4:
        out.add(socket.gethostname())
    with open("/proc/cmdline") as f:
        out |= {w for w in f.read().split() if len(w) > 11}
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path) as f:
                out.add(f.read().strip())
        except OSError:
            pass
    for name in os.listdir("/sys/class/net"):
        try:
            with open("/sys/class/net/%s/address" % name) as f:
                address = f.read().strip()
        except OSError:
            continue                    # of another test, and it has gone
        if address and address != "00:00:00:00:00:00":
            out.add(address)
    done = subprocess.run(["ip", "-o", "addr"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False) \
        if os.path.exists("/sbin/ip") else None
    if done:
        out |= {a for a in re.findall(r"inet6? ([0-9a-f.:]+)/",
                                      done.stdout.decode())
                if a not in ("127.0.0.1", "::1")}
    # the neighbours
    out.add(g.run("neighbour", "echo $HOME")["sandboxId"])
    return {w for w in out if w and len(w) > 3}


@test("attack/leaks-of-the-host", seconds=600)
def leaks():
    found = words()
    r = g.run(C, "cat > look.py; python3 look.py", stdin=r"""
import os, sys, threading
words = [w.encode() for w in %r]
def read(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b''
    data = b''
    try:
        while len(data) < 1 << 18:
            more = os.read(fd, 1 << 16)
            if not more:
                break
            data += more
    except OSError:
        pass
    os.close(fd)
    return data
n = 0
for top in ('/proc', '/sys', '/dev', '/run', '/etc', '/var', '/tmp',
            '/usr/share/sandbox', '/usr/libexec'):
    for folder, folders, files in os.walk(top):
        if folder.startswith('/proc/self/task') or '/fdinfo' in folder:
            folders[:] = []
            continue
        for name in files + folders:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                try:
                    data = os.readlink(path).encode()
                except OSError:
                    continue
            elif not os.path.isfile(path):
                continue
            else:
                data = read(path)
            n += 1
            for w in words:
                if w in data:
                    at = data.index(w)
                    print(path, 'has', w, data[max(0, at - 40):at + 40])
print(n, 'files')
""" % (sorted(found),), timeoutSeconds=500, timeout=550)
    lines = r["stdout"].splitlines()
    check(lines and int(lines[-1].split()[0]) > 500, "files read:", r)
    # the script itself is below none of these
    same(lines[:-1], [])


@test("attack/netlink")
def netlink():
    text = python(C, r"""
for protocol in range(32):
    try:
        socket.socket(16, socket.SOCK_RAW, protocol)
        print(protocol)
    except OSError:
        pass
""")
    same(text.split(), [], "netlink protocols")
    same(g.output(C, "cat /proc/net/unix | grep -v ^Num | grep -c .; true"),
         "0\n", "unix sockets in its network namespace")


@test("attack/fake-overlay-attributes")
def attributes():
    """Marks by which an overlay finds files of other layers, or hides some."""
    text = python(C, r"""
os.makedirs('o/d', exist_ok=True)
for path in 'o', 'o/d', '/tmp':
    for name in ('trusted.overlay.opaque', 'trusted.overlay.redirect',
                 'trusted.overlay.metacopy', 'trusted.overlay.origin',
                 'trusted.overlay.overlay.redirect', 'trusted.x',
                 'security.capability', 'security.ima', 'security.x'):
        for value in b'y', b'/../../etc', bytes(20):
            try:
                os.setxattr(path, name, value)
                print('set', path, name)
            except OSError:
                pass
for path in 'o/w', '/home/w', '/skills/w', '/w':
    try:
        os.mknod(path, 0o020600, 0)
        print('a whiteout', path)
    except OSError:
        pass
for path in '/usr/bin/bash', '/etc/shadow', '/usr/libexec/sandbox-agent':
    try:
        os.link(path, 'o/hard')
        print('linked', path)
    except OSError:
        pass
# of the user's own kind they mean nothing
os.setxattr('o/d', 'user.overlay.opaque', b'y')
os.setxattr('o/d', 'user.overlay.redirect', b'/../../../etc')
print(os.listdir('o/d'))
""")
    same(text, "[]\n")


@test("attack/entropy")
def entropy():
    """What two fresh sandboxes draw, and one twice, differs.  boot_id is the
    host's, the same for all: docs/security.md says so."""
    drawn = []
    for name in ("random-1", "random-2", "random-3", "random-1"):
        drawn.append(g.output(name, "python3 -c '\n"
                              "import os, random, secrets, uuid, tempfile\n"
                              "print(os.getrandom(16).hex())\n"
                              "print(secrets.token_hex(16))\n"
                              "print(uuid.uuid4())\n"
                              "print(random.getrandbits(128))\n"
                              "print(hash(\"some text\"))\n"
                              "print(tempfile.mktemp())\n"
                              "print(open(\"/proc/self/auxv\", \"rb\").read()"
                              ".hex())\n"
                              "print(os.urandom(16).hex())\n"
                              "print([x.split()[0] for x in open("
                              "\"/proc/self/maps\") if \"[stack]\" in x])\n"
                              "'; cat /proc/sys/kernel/random/uuid; "
                              "mktemp -u XXXXXXXXXXXX; "
                              "head -c 16 /dev/random | od -An -tx1; "
                              "head -c 16 /dev/urandom | od -An -tx1; "
                              "openssl rand -hex 16").splitlines())
    for one in zip(*drawn):
        same(len(set(one)), len(one), "drawn twice: %r" % (one,))
    same(len(drawn[0]), 14)


@test("attack/another-agent")
def another_agent():
    """Neither host pids nor guesses reach another sandbox's processes."""
    other = g.agent("neighbour")
    r = python(C, """
bad = []
for pid in [%d] + list(range(2, 3000)):
    if pid in (os.getpid(), os.getppid()):
        continue
    for what in (lambda: os.kill(pid, 0), lambda: os.pidfd_open(pid),
                 lambda: os.sched_getaffinity(pid)):
        try:
            what()
            if os.stat('/proc/%%d' %% pid).st_uid != os.getuid():
                bad.append(pid)
        except OSError:
            pass
print(bad)
""" % other)
    same(r, "[]\n")
    check(alive(other), "the neighbour's agent is gone")
    same(g.output("neighbour", "echo alive"), "alive\n")


@test("attack/signals-to-the-agent")
def signals():
    """All 64, by all calls there are; the agent takes none of them."""
    agent = g.agent(C)
    got = python(C, r"""
out = set()
info = ctypes.create_string_buffer(128)
fd = call(434, 1, 0)
for n in range(1, 65):
    struct.pack_into('iii', info, 0, n, 0, -1)
    out |= {call(62, 1, n), call(200, 1, n), call(234, 1, 1, n),
            call(129, 1, n, info), call(297, 1, 1, n, info)}
    if isinstance(fd, int):
        out.add(call(424, fd, n, 0, 0))
print(sorted(map(str, out)))
""")
    check(set(eval(got)) <= {"EPERM", "EINVAL"}, "said:", got)
    same(g.agent(C), agent, "the same agent")


@test("attack/nothing-holds-a-delete", seconds=300)
def delete():
    """Trees, leases, locks, maps, deleted folders, dirty data, processes in
    each state that a user can bring about: DELETE ends, nothing is left."""
    r = g.command("busy", "cat > b.py; exec python3 b.py", background=True,
                  stdin=PRELUDE + r"""
import fcntl, mmap, threading
def child(f):
    if os.fork() == 0:
        try:
            os.setsid()
            f()
        finally:
            time.sleep(1000)
            os._exit(0)
def deep():
    for n in range(4000):
        os.mkdir('d')
        os.chdir('d')
def gone():
    os.mkdir('/home/sandbox/gone'); os.chdir('/home/sandbox/gone')
    os.rmdir('/home/sandbox/gone')
def maps():
    f = open('/home/sandbox/map', 'w+b'); f.truncate(64 << 20)
    m = mmap.mmap(f.fileno(), 64 << 20)
    os.remove('/home/sandbox/map')
    for n in range(0, 64 << 20, 4096): m[n] = 1
    time.sleep(1000)
def dirty():
    with open('/home/sandbox/dirty', 'wb') as f:
        for n in range(64): f.write(os.urandom(1 << 20))
        time.sleep(1000)
def lease():
    f = open('/home/sandbox/lease', 'w'); f.close()
    fd = os.open('/home/sandbox/lease', os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    fcntl.flock(fd, fcntl.LOCK_EX)
    time.sleep(1000)
def stopped(): os.kill(os.getpid(), signal.SIGSTOP)
def traced():
    pid = os.fork()
    if pid == 0:
        libc.ptrace(0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
def vfork():
    # the parent waits in the kernel until the child, which is stopped, execs
    f = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(
        lambda x: os.kill(os.getpid(), signal.SIGSTOP) or 0)
    stack = ctypes.create_string_buffer(1 << 20)
    libc.clone(f, ctypes.c_void_p(ctypes.addressof(stack) + (1 << 20) - 64),
               0x4100 | signal.SIGCHLD, None)
def fifo():
    os.mkfifo('/tmp/fifo'); open('/tmp/fifo')
def files():
    os.mkdir('/home/sandbox/many')
    keep = []
    for n in range(900):
        keep.append(open('/home/sandbox/many/%d' % n, 'w'))
        os.remove('/home/sandbox/many/%d' % n)
    time.sleep(1000)
def sockets():
    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(10)
    c = socket.create_connection(s.getsockname())
    a = s.accept()[0]
    c.setblocking(False)
    try:
        while True: c.send(bytes(65536))
    except BlockingIOError: pass
    os.fork()
    time.sleep(1000)
def shm():
    i = libc.shmget(0x77, 32 << 20, 0o1666)
    libc.shmat.restype = ctypes.c_void_p
    ctypes.memset(libc.shmat(i, None, 0), 1, 32 << 20)
    time.sleep(1000)
def signals():
    for n in range(1, 65):
        try: signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError): pass
    time.sleep(1000)
def terminal():
    a, b = os.openpty()
    libc.ioctl(b, 0x540e, 0)
    os.write(a, bytes(3000))
    libc.tcdrain(b)
for f in (deep, gone, maps, dirty, lease, stopped, traced, vfork, fifo, files,
          sockets, shm, signals, terminal):
    child(f)
time.sleep(3)
open('/tmp/busy', 'w').close()
time.sleep(1000)
""")
    same(r.status, 202, repr(r))
    wait_for(lambda: "yes" in g.run("busy", "[ -e /tmp/busy ] && echo yes")
             ["stdout"], 100, "all of it")
    agent = g.agent("busy")
    space, pin = pid_namespace(agent), pinned(agent)
    group = cgroup_of(agent)
    with open("/proc/%d/cgroup" % agent) as f:
        slot = f.read().split()[-1].rpartition("/")[2]

    # nothing else comes or goes meanwhile
    wait_for(lambda: wire.Client(g.socket, g.key, 150).call(wire.PING)
             .result["POOL"] == g.pool, 60, "a full pool")
    slots = len(os.listdir(g.state + "/slots"))
    folders = [top + "/" + slot for top in cgroup_folders(group)]
    loops = len(loop_devices(g.state))
    check(len(in_namespace(space)) > 14, "processes", in_namespace(space))
    check(any(os.path.isdir(f) for f in folders), "its control group")
    begin = time.monotonic()
    same(g.delete("busy").status, 204)
    check(time.monotonic() - begin < 100, "DELETE took long")
    wait_for(lambda: not in_namespace(space), 60, "the end of its processes")
    os.close(pin)
    wait_for(lambda: not any(os.path.isdir(f) for f in folders), 60,
             "the end of its control groups")
    wait_for(lambda: len(os.listdir(g.state + "/slots")) < slots, 60,
             "the end of its slot")
    wait_for(lambda: len(loop_devices(g.state)) < loops, 60,
             "the end of its disk")
    same(g.output("busy", "ls -A | grep -c many; true"), "0\n")


def start():
    global g
    g = Gateway(pool=2, location="sandbox_wall_time 600s;"
                                 "sandbox_cpu_time 600s;")
    g.start()
    g.run(C, "true")


def stop():
    g.stop()


main(start, stop)
