#!/usr/bin/env python3
"""What the kernel counts, keeps or shows once for a whole host: one sandbox
takes all that it can get of it, and the others, and the host, still have
theirs.  Each of these was a way from one tenant to the next."""

import ctypes
import fcntl
import os
import re
import resource
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, wait_for                        # noqa: E402
from tap import check, main, same, skip, test                # noqa: E402

g = None
libc = ctypes.CDLL(None, use_errno=True)

PRELUDE = r"""
import ctypes, errno, fcntl, os, resource, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    rc = libc.syscall(ctypes.c_long(number),
                      *[ctypes.c_long(a) if isinstance(a, int) else a
                        for a in arguments])
    return rc if rc != -1 else errno.errorcode.get(ctypes.get_errno())
def most(make, limit):
    n = 0
    while n < limit:
        try:
            got = make(n)
        except OSError as e:
            return n, errno.errorcode.get(e.errno)
        if not isinstance(got, int) or got < 0:
            return n, got
        n += 1
    return n, 'no end'
"""


def python(conversation, text):
    r = g.run(conversation, "python3 -", stdin=PRELUDE + text)
    same((r["exitCode"], r["stderr"]), (0, ""), "python in " + conversation)
    return r["stdout"].strip()


class Hold:
    """A sandbox that does this until the end of the block: what it said."""
    number = 0

    def __init__(self, text):
        self.text = PRELUDE + """
def ready(said):
    with open('ready.new', 'w') as f:
        f.write(str(said))
    os.rename('ready.new', 'ready')
    time.sleep(500)
""" + text

    def file(self, name):
        r = g.request("GET", "v1/conversations/%s/fs/%s" % (self.name, name))
        return r.body.decode() if r.status == 200 else None

    def __enter__(self):
        Hold.number += 1
        self.name = "holder-%d" % Hold.number
        r = g.command(self.name, "cat > h.py; exec python3 h.py",
                      background=True, commandId="held", stdin=self.text)
        same(r.status, 202, repr(r))
        self.said = wait_for(lambda: self.file("ready"), 100,
                             "what is held")
        return self.said

    def __exit__(self, *_):
        same(g.delete(self.name).status, 204)


# One user's share.  The kernel counts these once more for the owner of the
# user namespace: were that root, all sandboxes and the host had one limit.

@test("attack/shared-inotify")
def inotify():
    with Hold("ready(most(lambda n: libc.inotify_init(), 100000)[0])") as n:
        check(int(n) > 0, "instances:", n)
        same(python("other", "print(libc.inotify_init() >= 0)"), "True")
        fd = libc.inotify_init()
        check(fd >= 0, "root of the host has none left")
        os.close(fd)


@test("attack/shared-message-queues")
def queues():
    text = "lambda n: call(240, b'q%d' % n, 0o102, 0o600, 0)"
    with Hold("ready(most(%s, 100000)[0])" % text) as n:
        check(int(n) > 0, "queues:", n)
        check(int(python("other", "q = %s\nprint(q(0))" % text)) >= 0, "none")
    with Hold("ready(most(%s, 100000)[0])" % text) as n:
        check(int(n) > 0, "the end of a sandbox gives none back:", n)


@test("attack/shared-timers-and-signals")
def timers():
    """POSIX timers and queued signals have one limit together."""
    text = """
def timer(n):
    t = ctypes.c_int()
    return call(222, 1, 0, ctypes.byref(t))
"""
    with Hold(text + """
resource.setrlimit(resource.RLIMIT_SIGPENDING,
                   [resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]] * 2)
ready(most(timer, 300000)[0])""") as n:
        check(int(n) > 0, "timers:", n)
        same(python("other", text + "print(timer(0))"), "0")


@test("attack/shared-locked-memory")
def locked():
    text = """
import mmap
def lock(n):
    m = mmap.mmap(-1, 1 << 20)
    keep.append(m)
    return libc.mlock(ctypes.c_void_p(ctypes.addressof(
        ctypes.c_char.from_buffer(m))), ctypes.c_size_t(1 << 20))
keep = []
"""
    with Hold(text + "ready(most(lock, 100)[0])") as n:
        check(int(n) > 0, "MiB:", n)
        same(python("other", text + "print(lock(0))"), "0")


# The whole host's.

@test("attack/shared-terminals")
def terminals():
    """kernel.pty.max is 4096 for all: a sandbox has 64."""
    text = "lambda n: os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)"
    with Hold("ready(most(%s, 1000))" % text) as said:
        same(said, "(64, 'ENOSPC')")
        check(int(python("other", "print((%s)(0))" % text)) > 2, "none left")


@test("attack/shared-asynchronous-io")
def aio():
    """fs.aio-max-nr is 65536 for all: a sandbox has none."""
    with open("/proc/sys/fs/aio-nr") as f:
        before = int(f.read())
    got = python("other", "c = ctypes.c_ulong()\n"
                 "print(call(206, 60000, ctypes.byref(c)))")
    same(got, "ENOSYS")
    with open("/proc/sys/fs/aio-nr") as f:
        check(int(f.read()) < before + 60000, "taken from the host")


@test("attack/shared-huge-pages")
def huge():
    """Whatever the host has reserved is its own."""
    same(python("other", """
print(call(9, 0, 1 << 21, 3, 0x40022, -1, 0),
      call(9, 0, 1 << 30, 3, 0x40022 | 30 << 26, -1, 0),
      call(319, b'x', 4), call(319, b'x', 4 | 21 << 26),
      call(29, 0, 1 << 21, 0o5600))
"""), "EPERM EPERM EPERM EPERM EPERM")


@test("attack/shared-socket-memory", seconds=200)
def socket_memory():
    """All TCP of a host has net.ipv4.tcp_mem: a sandbox that lets as much as
    it can lie in sockets, by far more than its memory, has a small part."""
    def pages():
        with open("/proc/net/sockstat") as f:
            return int(re.search(r"^TCP:.* mem (\d+)", f.read(), re.M)
                       .group(1))

    before = pages()
    with Hold(r"""
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen(1000)
def fill(n):
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
    c.connect(s.getsockname())
    a = s.accept()[0]
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
    c.setblocking(False)
    try:
        while c.send(bytes(1 << 20)):
            pass
    except BlockingIOError:
        pass
    keep.append((a, c))
    return 0
keep = []
ready(most(fill, 450))
""") as said:
        check(said.startswith("(4"), "sockets:", said)
        mib = (pages() - before) * os.sysconf("SC_PAGE_SIZE") >> 20
        check(mib < 256, "MiB of the host's memory for sockets:", mib)


@test("attack/shared-memory-of-nobody")
def nobodys():
    """Kernel memory that is in nobody's group: with these, some MiB of a user
    were gigabytes of the host."""
    options = [(1, n) for n in (26, 50, 51, 52, 37, 65, 60, 61)] \
        + [(0, n) for n in (11, 26, 35, 38, 39, 41, 42, 43, 46, 48)] \
        + [(41, n) for n in (25, 31, 20, 27, 32, 42, 43, 46, 48)] \
        + [(6, n) for n in (14, 31, 32, 38, 39, 40)]
    got = python("other", """
for level, name in %r:
    for family in (2, 10):
        for kind in (1, 2):
            s = socket.socket(family, kind)
            for value in (1, bytes(4), bytes(16), bytes(136), bytes(264)):
                try:
                    s.setsockopt(level, name, value)
                    print(level, name, 'is taken')
                except OSError as e:
                    if e.errno != errno.ENOPROTOOPT:
                        print(level, name, e)
            # the kernel looks at half of the argument
            buffer = ctypes.create_string_buffer(264)
            for high in (1 << 32, 1 << 63):
                for a, b in ((level + high, name), (level, name + high)):
                    if call(54, s.fileno(), a, b, buffer, 264) \\
                            not in ('ENOPROTOOPT', 'ENOSYS'):
                        print(level, name, high)
            s.close()
for level, name, value in ((1, 2, 1), (1, 7, 9999), (1, 8, 9999), (1, 9, 1),
                           (6, 1, 1), (6, 4, 60), (1, 15, 1), (1, 20, bytes(16)),
                           (0, 1, 16), (0, 2, 60)):
    socket.socket().setsockopt(level, name, value)
""" % (options,))
    same(got, "")


@test("attack/shared-memory-pressure")
def pressure():
    """Where the host has no memory left, sandboxes go before its programs:
    none is lower than what the runner gave its agent."""
    agent = g.agent("other")
    got = python("other", """
for n in (-1000, -999, -500, -1, 0, 100, 499):
    try:
        with open('/proc/self/oom_score_adj', 'w') as f:
            f.write(str(n))
    except OSError:
        pass
print(open('/proc/self/oom_score_adj').read().strip())
""")
    # only with this can the runner write what nobody gets below
    with open("/proc/self/status") as f:
        rights = int(re.search(r"CapEff:\s+(\w+)", f.read()).group(1), 16)
    least = 500 if rights & 1 << 24 else 0
    with open("/proc/%d/oom_score_adj" % agent) as f:
        check(int(f.read()) >= least, "the agent's")
    check(int(got) >= least, "a user's:", got)


@test("attack/shared-core-pattern")
def cores():
    """A limit of 0 would start the host's program for cores, as its root, and
    give it what the user has in memory: the limit is 1, and stays."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        skip("this process may not have more than 0 itself")
    text = g.output("other", """
ulimit -c 0; ulimit -S -c unlimited; grep core /proc/self/limits
python3 -c '
import ctypes, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
libc = ctypes.CDLL(None)
none = (ctypes.c_ulong * 2)(0, 0)
for n in 4, 4 + (1 << 32), 4 + (1 << 63) - (1 << 64):
    libc.syscall(ctypes.c_long(302), ctypes.c_long(0), ctypes.c_long(n), none, 0)
    libc.syscall(ctypes.c_long(160), ctypes.c_long(n), none)
print(open("/proc/self/limits").read())' | grep core
(kill -SEGV $BASHPID); ls | grep -c '^core'; true""")
    lines = text.splitlines()
    same([x.split()[-3:-1] for x in lines[:2]], [["1", "1"]] * 2, text)
    same(lines[2], "0", "cores")


@test("attack/shared-file-systems")
def file_systems():
    """sync is for all of the host's file systems, and waits for one that
    hangs: it says yes and does nothing.  What is the user's own is synced."""
    got = python("other", """
with open('synced', 'w') as f:
    f.write('x')
    f.flush()
    os.fsync(f.fileno())
    print(call(306, f.fileno()), call(162))
for path in '/usr/bin/bash', '/dev/null', '/proc/self/status', '/tmp':
    fd = os.open(path, os.O_RDONLY)
    print(call(306, fd), call(74, fd) in (0, 'EINVAL'))
""")
    same(got.splitlines()[0], "0 0")
    check("EIO" not in got, got)


# The same files for all would tell what the others do.

@test("attack/shared-devices")
def devices():
    names = ("null", "zero", "full", "random", "urandom", "tty")
    ask = "import json\nprint([(os.stat('/dev/' + n).st_dev, " \
        "os.stat('/dev/' + n).st_ino) for n in %r])" % (names,)
    one, two = eval(python("other", ask)), eval(python("third", ask))
    for i, name in enumerate(names):
        check(one[i] != two[i], "/dev/%s is the same in two sandboxes" % name)
        st = os.stat("/dev/" + name)
        check(st.st_dev not in (one[i][0], two[i][0]),
              "/dev/%s is the host's" % name)


FILES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/urandom",
         "/usr/bin/id", "/usr/bin", "/etc/passwd", "/", "/proc/sys/kernel",
         "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/bus", "/proc/fs",
         "/proc/irq", "/usr/libexec", "/dev", "/dev/shm", "/dev/pts", "/tmp"]
LOCK = """
def lock(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return 0
    st = os.fstat(fd)
    if (st.st_dev, st.st_ino) in keep:      # what hides others, for one
        return 0
    keep[st.st_dev, st.st_ino] = fd
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return 1
keep = {}
files = %r
""" % FILES


@test("attack/shared-locks")
def locks():
    """A lock on a file that all sandboxes have holds in one of them."""
    with Hold(LOCK + "ready(sum([lock(p) for p in files]))") as n:
        check(int(n) > 9, "locked", n)
        same(python("other", LOCK + """
for path in files:
    try:
        lock(path)
    except BlockingIOError:
        print(path, 'is locked by another')
"""), "")
        for path in ("/dev/null", "/dev/zero", "/dev/urandom"):
            with open(path) as f:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


@test("attack/shared-watches")
def watches():
    """Who watches files that all sandboxes have sees what he does himself."""
    holder = Hold("""
fd = libc.inotify_init1(0o4000)
found = [p for p in %r if libc.inotify_add_watch(fd, p.encode(), 0xfff) > 0]
with open('ready', 'w') as f:
    f.write(str(len(found)))
seen = b''
while not os.path.exists('asked'):
    try:
        seen += os.read(fd, 65536)
    except BlockingIOError:
        time.sleep(0.05)
with open('said.new', 'w') as f:
    f.write('%%d: %%r' %% (len(seen), seen[:200]))
os.rename('said.new', 'said')
time.sleep(500)
""" % [f for f in FILES if f not in ("/", "/tmp")])
    with holder as n:
        check(int(n) > 12, "watched", n)
        for name in ("other", "third"):
            g.run(name, "id; cat /etc/passwd; head -c 3 /dev/zero; "
                  "head -c 3 /dev/urandom; echo > /dev/null; ls /proc/acpi "
                  "/proc/bus /proc/fs /proc/sys/kernel /dev/pts /dev/shm; "
                  "cat /proc/keys /dev/tty")
        with open("/dev/null", "w") as f:
            f.write("x")
        # no program is started in there to ask
        r = g.request("PUT", "v1/conversations/%s/fs/asked" % holder.name,
                      b"x")
        same(r.status, 201, repr(r))
        same(wait_for(lambda: holder.file("said"), 60, "what was seen"),
             "0: b''")


def stop():
    g.stop()


def start():
    global g
    g = Gateway(pool=3, location="sandbox_cpu_time 600s;")
    g.start()


main(start, stop)
