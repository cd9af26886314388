#!/usr/bin/env python3
"""What a hostile command may try in an engine's container: ways to a network,
calls of the kernel, and bombs, which end, and hurt neither agent nor machine.

All of it is inside a fence of this test's own (t/lib/agent_box.py)."""

import errno
import os
import re
import socket
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../lib")

from agent_box import Box, Fence, alone                      # noqa: E402
from gateway import wait_for                                 # noqa: E402
from tap import check, main, same, skip, test                # noqa: E402

MEMORY, DISK, PROCESSES = 128, 48, 64
fence = None
box = None
listener = None
connected = []

REFUSED = """
    mount umount2 pivot_root chroot unshare setns open_tree move_mount fsopen
    fsconfig fsmount fspick mount_setattr open_by_handle_at bpf
    perf_event_open userfaultfd add_key request_key keyctl io_uring_setup
    io_uring_enter io_uring_register fanotify_init fanotify_mark kexec_load
    init_module finit_module delete_module reboot swapon swapoff syslog acct
    quotactl settimeofday clock_settime clock_adjtime adjtimex sethostname
    setdomainname iopl ioperm vhangup modify_ldt lookup_dcookie move_pages
    mbind migrate_pages set_mempolicy clone3 memfd_secret io_setup
""".split()

# Whatever may give a socket that is not AF_UNIX; prints what it got.
SOCKETS = r"""
import ctypes, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
SOCKET, PAIR = (41, 53) if os.uname().machine == "x86_64" else (198, 199)
pair = (ctypes.c_int * 2)()
tried = 0
for family in list(range(0, 64)) + [-1, 1 << 16 | 2, 1 << 31 | 2]:
    if family == socket.AF_UNIX:
        continue
    for high in (0, 1 << 32, 0xffffffff << 32):
        for kind in (1, 2, 3, 5, 10, 1 | 0x800, 2 | 0x80000):
            for protocol in (0, 6, 17, 1, 262):
                a = ctypes.c_ulong(high | family & 0xffffffff)
                tried += 1
                if libc.syscall(SOCKET, a, kind, protocol) != -1:
                    print("socket", family, high, kind, protocol)
                elif ctypes.get_errno() not in (errno.EAFNOSUPPORT,):
                    print("socket said", ctypes.get_errno(), family, kind)
                if libc.syscall(PAIR, a, kind, protocol, pair) != -1:
                    print("socketpair", family, high, kind, protocol)
for fd in os.listdir("/proc/self/fd"):
    try:
        s = socket.socket(fileno=os.dup(int(fd)))
        print("open", fd, s.family)
    except OSError:
        pass
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
    print("connected")
except OSError:
    pass
print("tried", tried)
"""

# A descriptor of an INET socket from anybody that has one: nobody here has.
RECEIVE = r"""
import os, socket
for pid in os.listdir("/proc"):
    if not pid.isdigit() or int(pid) == os.getpid():
        continue
    try:
        names = os.listdir("/proc/%s/fd" % pid)
    except OSError:
        continue
    for name in names:
        try:
            target = os.readlink("/proc/%s/fd/%s" % (pid, name))
            if target.startswith("socket:"):
                print("seen", pid, name, target)
        except OSError:
            pass
print("looked")
"""


def start():
    global fence, box, listener
    alone()
    fence = Fence(tasks=300)
    check(fence.bounded == {"tasks", "memory"}, "the fence of this test needs "
          "cgroups with pids and memory:", fence.folders)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, daemon=True).start()
    box = Box(fence, MEMORY, DISK, PROCESSES).start()


def accept():
    while True:
        try:
            connected.append(listener.accept())
        except OSError:
            return


def stop():
    try:
        if box is not None:
            box.stop()
    finally:
        if fence is not None:
            fence.remove()
        if listener is not None:
            listener.close()


def calm(what):
    """The agent answers, and nothing of it runs any more."""
    check(box.process.poll() is None, what + ": the agent ended", box.log())
    a = box.run("echo alive")
    same(a.stdout, b"alive\n", what + ": " + repr(a))
    wait_for(lambda: len(fence.inside()) <= 2, 60, "the end of " + what)


@test("attack/engine-no-inet")
def no_inet():
    port = listener.getsockname()[1]
    box.run("cat > s.py; cat > r.py <<'END'\n" + RECEIVE + "END",
            stdin=SOCKETS.encode())
    a = box.run("python3 s.py %d" % port)
    lines = a.stdout.decode().splitlines()
    same(lines[:-1], [], "sockets: " + repr(a))
    check(re.match(r"tried \d{4}", lines[-1]), "tried", lines)
    a = box.run("python3 r.py")
    same(a.stdout, b"looked\n", repr(a))
    for text in ("exec 3<>/dev/tcp/127.0.0.1/%d" % port,
                 "exec 3<>/dev/udp/127.0.0.1/%d" % port,
                 "curl -s http://127.0.0.1:%d" % port,
                 "setsid python3 s.py %d | grep -x connected" % port):
        a = box.run(text)
        check(a.result["EXIT_CODE"] != 0, text, a)
    # the other programs that the agent starts, and what it left running
    box.run("(setsid python3 s.py %d > s.out 2>&1 &)" % port)
    wait_for(lambda: b"tried" in box.run("cat s.out").stdout, 60, "its end")
    same(len(box.run("cat s.out").stdout.splitlines()), 1)
    same(connected, [], "connections that came out")
    calm("sockets")


@test("attack/engine-calls")
def calls():
    """As locally: refused, or not there; other ABIs end who uses them."""
    names = {}
    with open("/usr/include/%s-linux-gnu/asm/unistd_64.h"
              % os.uname().machine) as f:
        for line in f:
            found = re.match(r"#define __NR_(\w+)\s+(\d+)", line)
            if found:
                names[found.group(1)] = int(found.group(2))
    with open(HERE + "/calls.c", "rb") as f:
        a = box.run("cat > c.c && gcc -O1 -w -o c c.c && ./c",
                    stdin=f.read())
    results, abis = {}, {}
    for line in a.stdout.decode().splitlines():
        words = line.split()
        if words[0] == "abi":
            abis[words[1]] = int(words[2])
        else:
            results.setdefault(int(words[0]), []).append(int(words[2]))
    check(len(results) > 580, "numbers tried", len(results), a)
    bad = ["%s: %s" % (name, results[names[name]]) for name in REFUSED
           if name in names and set(results[names[name]])
           - {errno.EPERM, errno.ENOSYS}]
    same(bad, [], "neither EPERM nor ENOSYS")
    same([n for n, v in results.items() if 1031 in v], [], "ended by SIGSYS")
    if os.uname().machine != "x86_64":
        skip("only x86-64 has other ABIs")
    same(abis, {"int80": 31, "x32": 31})


@test("attack/engine-agent-is-out-of-reach")
def agent():
    a = box.run("kill -9 1; kill -9 -1; cat /proc/1/environ /proc/1/maps "
                "/proc/1/mem /proc/1/fd/*; ls /proc/1/fd; ls -A "
                "/var/lib/sandbox; cat /var/lib/sandbox/*; "
                "strings -a /proc/1/cmdline")
    check(b"SANDBOX_ENGINE" not in a.stdout + a.stderr, "environment", a)
    a = box.run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    check(b"SANDBOX_ENGINE" not in a.stdout, "environment", a)
    same(box.run("ls -A /var/lib/sandbox").stdout, b"")
    calm("kill")


BOMBS = {
    "fork": ":(){ :|:& };:; sleep 100",
    "fork-sessions": "python3 -c \"\nimport os\nwhile True:\n  try:\n"
                     "    if os.fork() == 0: os.setsid()\n"
                     "  except OSError: pass\"",
    "fork-and-go": "python3 -c \"\nimport os, time\nwhile True:\n  try:\n"
                   "    if os.fork(): os._exit(0)\n    os.fork()\n"
                   "    os.setsid()\n  except OSError: pass\"; sleep 100",
    "fork-deaf": "python3 -c \"\nimport os, signal\n"
                 "for n in range(1, 65):\n  try: signal.signal(n, "
                 "signal.SIG_IGN)\n  except Exception: pass\n"
                 "while True:\n  try: os.fork()\n  except OSError: pass\"",
    "threads": "python3 -c \"\nimport threading, time\n"
               "threading.stack_size(65536)\nwhile True:\n  try: "
               "threading.Thread(target=time.sleep, args=(100,)).start()\n"
               "  except Exception: time.sleep(0.1)\"",
}


@test("attack/engine-bombs-of-processes", seconds=900)
def processes():
    for name, text in BOMBS.items():
        a = box.run(text)
        # many of them may have too much memory before they are too many
        check(a.outcome in ("signal", "oom"), name, a)
        check(b"processes" in a.result["DETAIL"] or a.outcome == "oom",
              name, a.result)
        calm(name)


@test("attack/engine-bombs-of-memory", seconds=900)
def memory():
    grow = ("python3 -c \"\nimport time\nx = []\nwhile True:\n"
            "  x.append(bytearray(b'x') * (1 << 20)); time.sleep(%g)\"")
    for name, text in (
            ("many", "for i in $(seq 20); do %s & done; wait" % (grow % 0.2)),
            ("orphans", "for i in 1 2 3; do (setsid %s &); done; sleep 100"
             % (grow % 0.03)),
            ("not to be looked into", "python3 -c \"\nimport ctypes, mmap, time\n"
             "libc = ctypes.CDLL(None)\nprint(libc.prctl(4, 0))\nx = []\n"
             "while True:\n  x.append(bytearray(b'x') * (1 << 20)); "
             "time.sleep(0.01)\""),
            ("first thread gone", "python3 -c \"\n"
             "import ctypes, threading, time, platform\n"
             "def grow():\n  x = []\n  while True:\n"
             "    x.append(bytearray(b'x') * (1 << 20)); time.sleep(0.01)\n"
             "threading.Thread(target=grow).start()\n"
             "ctypes.CDLL(None).syscall(60 if platform.machine() == "
             "'x86_64' else 93, 0)\""),
            ("shared", "python3 -c \"\nimport mmap, time\nx = []\n"
             "while True:\n  x.append(mmap.mmap(-1, 1 << 20))\n"
             "  x[-1].write(b'x' * (1 << 20)); time.sleep(0.01)\""),
            ("segments", "python3 -c \"\nimport ctypes, time\n"
             "libc = ctypes.CDLL(None)\n"
             "libc.shmat.restype = ctypes.c_void_p\nwhile True:\n"
             "  i = libc.shmget(0, 1 << 20, 0o1600)\n"
             "  p = libc.shmat(i, None, 0)\n  libc.shmctl(i, 0, None)\n"
             "  ctypes.memset(p, 1, 1 << 20); time.sleep(0.01)\"")):
        a = box.run(text)
        same(a.outcome, "oom", name + ": " + repr(a))
        calm(name)


@test("attack/engine-bombs-of-the-disk", seconds=900)
def disk():
    for name, text in (
            # not at full speed: all of it is to be removed again
            ("small files", "python3 -c \"\nimport os, time\ni = 0\n"
             "while True:\n  i += 1\n  if i % 2 == 0: time.sleep(0.001)\n"
             "  try: open('s%d' % i, 'w').write('x' * 16000)\n"
             "  except OSError: pass\""),
            ("deep", "python3 -c \"\nimport os, time\nwhile True:\n"
             "  try:\n    os.mkdir('d'); os.chdir('d')\n"
             "    open('f', 'w').write('x' * 100000); time.sleep(0.002)\n"
             "  except OSError: time.sleep(0.1)\""),
            ("no names", "python3 -c \"\nimport os, time\nfds = []\n"
             "while True:\n  fds.append(os.open('.', os.O_TMPFILE | "
             "os.O_RDWR, 0o600))\n  os.write(fds[-1], b'x' * (1 << 20))\n"
             "  time.sleep(0.02)\""),
            ("holes", "python3 -c \"\nimport mmap, os, time\ni = 0\n"
             "while True:\n  i += 1\n  f = open('h%d' % i, 'w+b')\n"
             "  f.truncate(1 << 20)\n  m = mmap.mmap(f.fileno(), 1 << 20)\n"
             "  m[:] = b'x' * (1 << 20); m.close(); f.close()\n"
             "  time.sleep(0.02)\""),
            ("closed", "mkdir c; python3 -c \"\nimport os, time\ni = 0\n"
             "while True:\n  i += 1\n  os.chmod('c', 0o700)\n"
             "  open('c/%d' % i, 'wb').write(b'x' * (1 << 20))\n"
             "  os.chmod('c', 0); time.sleep(0.02)\"")):
        a = box.run(text)
        same(a.outcome, "disk_full", name + ": " + repr(a))
        calm(name)
        a = box.run("chmod -f 700 c; find . -mindepth 1 -maxdepth 1 -name "
                    "'[sdhc]*' -exec rm -rf {} +; ls -d [sdhc]*; echo rest",
                    WALL_MS=600000)
        same(a.stdout, b"rest\n", name + ": " + repr(a))
        wait_for(lambda: box.run("echo x > y && rm y").result["EXIT_CODE"]
                 == 0, 60, "room after " + name)


main(start, stop)
