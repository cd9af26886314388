#!/usr/bin/env python3
"""Caps and filter of the agent in an engine's container, which has no cgroup.

All of it is inside a fence of this test's own (t/lib/agent_box.py)."""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from agent_box import Box, Fence, alone                      # noqa: E402
from gateway import wait_for                                 # noqa: E402
from tap import check, main, same, test                      # noqa: E402

MIB = 1 << 20
MEMORY, DISK, PROCESSES = 160, 64, 64
fence = None
box = None
# not at full speed: a busy machine must notice before the fence does
HOG = ("python3 -c \"import time\nx = []\nwhile True:\n"
       "  x.append(bytearray(b'x') * (1 << 20)); time.sleep(0.02)\"")


def start():
    global fence, box
    alone()
    fence = Fence(memory=2 << 30)
    check(fence.bounded == {"tasks", "memory"}, "the fence of this test needs "
          "cgroups with pids and memory:", fence.folders)
    box = Box(fence, MEMORY, DISK, PROCESSES, shm="256m").start()


def stop():
    try:
        if box is not None:
            box.stop()
    finally:
        if fence is not None:
            fence.remove()


def good(text, **options):
    a = box.run(text, **options)
    same((a.outcome, a.error), ("exit", None), text + ": " + repr(a))
    same(a.result["EXIT_CODE"], 0, text + ": " + repr(a))
    return a


def end_of(name):
    """The answer of a command in the background."""
    def ended():
        a = box.call(wire.ATTACH, [("COMMAND_ID", name)])
        same(a.error, None)
        return a if "OUTCOME" in a.result else None
    wait_for(ended, 60, "the end of " + name)
    return ended()


def files_are(full):
    """Until it is known that the disk is, or is not, full."""
    if not full:
        box.run("rm -rf big a b f* /tmp/x")

    def seen():
        a = box.call(wire.FILE_WRITE, [("PATH", "seen")], b"x" * 1024)
        if a.error is None and a.result["STATUS"] in (200, 201):
            return not full
        code = a.code or a.result["CODE"].decode()
        same(code, "disk_full")
        return full
    wait_for(seen, 60, "a disk that is %sfull" % ("" if full else "not "))


@test("caps/environment")
def environment():
    a = good("echo $UV_OFFLINE; cat /proc/self/oom_score_adj; grep -E "
             "'^(Seccomp|NoNewPrivs|CapPrm|CapBnd):' /proc/self/status")
    same(a.stdout.split(), b"1 1000 CapPrm: 0000000000000000 CapBnd: "
         b"0000000000000000 NoNewPrivs: 1 Seccomp: 2".split())


@test("caps/memory")
def memory():
    for text in (HOG, "for i in 1 2 3; do %s & done; wait" % HOG):
        a = box.run(text)
        same((a.outcome, a.result["EXIT_CODE"]), ("oom", 137), repr(a))
        check(b"%d MiB" % MEMORY in a.result["DETAIL"], "DETAIL", a.result)
        check(a.result["MEMORY_PEAK"] > MEMORY * MIB, "peak", a.result)
        good("echo on")


@test("caps/memory-of-many-that-share")
def shared():
    """Pages that several processes have count once."""
    a = good("python3 -c \"\nimport os, time\nx = bytearray(b'x') * (90 << 20)"
             "\nfor i in range(8):\n  if os.fork() == 0:\n    time.sleep(1)\n"
             "    os._exit(0)\nfor i in range(8): os.wait()\"")
    peak = a.result["MEMORY_PEAK"]
    check(90 * MIB < peak < MEMORY * MIB, "peak", peak)
    # shared by a mapping of one kind or another
    good("python3 -c \"\nimport mmap, os, time\nx = mmap.mmap(-1, 90 << 20)\n"
         "for i in range(90): x.write(b'x' * (1 << 20))\n"
         "for i in range(4):\n  if os.fork() == 0:"
         "\n    sum(x[::4096]); time.sleep(1); os._exit(0)\n"
         "for i in range(4): os.wait()\"")
    good("python3 -c \"\nfrom multiprocessing import shared_memory as s\n"
         "import time\nx = s.SharedMemory(create=True, size=60 << 20)\n"
         "for i in range(60): x.buf[i << 20:i + 1 << 20] = b'x' * (1 << 20)\n"
         "time.sleep(1); x.close(); x.unlink()\"")


@test("caps/memory-peak")
def peak():
    a = good("python3 -c \"x = bytearray(b'x') * (70 << 20)\"")
    check(70 * MIB < a.result["MEMORY_PEAK"] < 100 * MIB, "one", a.result)
    for seconds in (3, 15, 60):         # somebody must come to look
        a = good("python3 -c \"\nimport os, time\nfor i in range(2):\n"
                 "  if os.fork() == 0:\n    x = bytearray(b'x') * (50 << 20)\n"
                 "    time.sleep(%d); os._exit(0)\nos.wait(); os.wait()\""
                 % seconds)
        if a.result["MEMORY_PEAK"] > 100 * MIB:
            break
    check(100 * MIB < a.result["MEMORY_PEAK"] < MEMORY * MIB, "two", a.result)
    a = good("true")
    check(0 < a.result["MEMORY_PEAK"] < 50 * MIB, "none", a.result)


@test("caps/memory-files")
def memory_files():
    """Files of memory stay when who wrote them is gone: they can go."""
    text = ("for i in $(seq 24); do head -c 10M /dev/zero > /dev/shm/$i; done;"
            " sleep 60")
    a = box.run(text)
    same(a.outcome, "oom", repr(a))
    a = good("cat /dev/shm/* | wc -c; sleep 1; rm /dev/shm/*; echo gone")
    check(int(a.stdout.split()[0]) > 100 * MIB, "files", a.stdout)
    same(a.stdout.split()[1], b"gone")
    a = box.run("python3 -c \"\nimport os, time\nfds = []\nwhile True:\n"
                "  fds.append(os.memfd_create('x'))\n"
                "  os.write(fds[-1], b'x' * (8 << 20)); time.sleep(0.1)\"")
    same(a.outcome, "oom", "in memfd: " + repr(a))
    good("echo on")


@test("caps/memory-of-the-background")
def background():
    """Who has most of it ends, not who runs beside him."""
    a = box.run("until [ -e go ]; do sleep 0.1; done; " + HOG, DETACH=1,
                COMMAND_ID="hog")
    same(a.error, None)
    a = box.run("touch go; until [ -e on ]; do sleep 0.1; done; echo well",
                COMMAND_ID="fine", DETACH=1)
    same(end_of("hog").outcome, "oom")
    good("touch on")
    a = end_of("fine")
    same((a.outcome, a.stdout), ("exit", b"well\n"), repr(a))
    good("rm go on")


@test("caps/processes")
def processes():
    for text in ("for i in $(seq 200); do sleep 100 & done; wait",
                 "python3 -c \"\nimport threading, time\n"
                 "for i in range(200):\n  threading.Thread(target=time.sleep, "
                 "args=(100,), daemon=True).start()\ntime.sleep(100)\""):
        a = box.run(text)
        same((a.outcome, a.result["EXIT_CODE"]), ("signal", 137), repr(a))
        check(b"more than the %d processes" % PROCESSES
              in a.result["DETAIL"], "DETAIL", a.result)
        wait_for(lambda: good("pgrep -c 'sleep|python3'; true").stdout
                 == b"0\n", 60, "the end of all of them")
    good("for i in $(seq 40); do sleep 1 & done; wait")


@test("caps/processes-beside")
def processes_beside():
    """Another command goes on, unless it is a race with all of them."""
    box.run("until [ -e on ]; do sleep 0.1; done; echo well", DETACH=1,
            COMMAND_ID="beside")
    a = box.run("for i in $(seq 100); do sleep 100 & done; wait")
    same(a.outcome, "signal", repr(a))
    good("touch on")
    a = end_of("beside")
    same((a.outcome, a.stdout), ("exit", b"well\n"), repr(a))
    good("rm on")


@test("caps/disk")
def disk():
    files_are(full=False)
    a = box.run("for i in $(seq 12); do head -c 10M /dev/zero > f$i; done; "
                "sleep 100")
    same((a.outcome, a.result["EXIT_CODE"]), ("disk_full", 137), repr(a))
    check(b"remove" in a.result["DETAIL"], "DETAIL", a.result)
    files_are(full=True)
    a = good("ls f* | wc -l; rm f*; sleep 3; echo tidied")
    check(a.stdout.endswith(b"\ntidied\n"), "to tidy up", a.stdout)
    files_are(full=False)
    good("head -c 1M /dev/zero > g && rm g")


@test("caps/disk-one-file")
def one_file():
    for _ in range(10):
        files_are(full=False)
        a = box.run("head -c 200M /dev/zero > big")
        if a.outcome != "exit" or b"File too large" not in a.stderr:
            break
        # an answer waits a second for the disk: nobody could look so soon
    same(a.outcome, "disk_full", repr(a))
    # it fails by itself, or was found with a full disk as it was about to
    check(a.result["EXIT_CODE"] == 137
          or (a.result["EXIT_CODE"] == 1 and b"File too large" in a.stderr),
          "its end", a)
    same(good("stat -c %s big").stdout, b"%d\n" % (DISK * MIB))
    same(box.call(wire.FILE_REMOVE, [("PATH", "big")]).error, None)
    files_are(full=False)


@test("caps/disk-writes")
def writes():
    """What clients bring counts, and is refused when there is no room."""
    def announce(path, size):
        """Only its length: who is refused need not send it."""
        head = wire.fields(("PATH", path))
        with box.client.connect() as s:
            s.sendall(wire.Preamble(wire.FILE_WRITE, head=len(head),
                                    body=size, key=box.client.key,
                                    **box.preamble({})).encode() + head)
            return box.client.answer(s).code

    def write(path, size):
        data = b"x" * 65536
        a = box.call(wire.FILE_WRITE, [("PATH", path)],
                     chunks=[data] * (size // len(data)))
        return a.code or a.result.get("CODE", b"").decode()
    files_are(full=False)
    same(announce("a", (DISK + 1) * MIB), "disk_full")
    same(write("a", DISK * MIB * 5 // 8), "")
    same(announce("b", DISK * MIB * 5 // 8), "disk_full")
    same(write("b", DISK * MIB * 5 // 8), "disk_full")
    same(box.call(wire.FILE_REMOVE, [("PATH", "a")]).error, None)
    files_are(full=False)
    # /tmp and what has no name count as well
    a = box.run("head -c 40M /dev/zero > /tmp/x; exec 3> y; rm y; "
                "head -c 40M /dev/zero >&3; sleep 100")
    same(a.outcome, "disk_full", repr(a))
    good("rm /tmp/x")
    files_are(full=False)


@test("caps/network-none")
def network_none():
    a = box.run("python3 -m http.server 8000 --bind 127.0.0.1")
    check(b"Address family not supported" in a.stderr, "said", a.stderr)
    a = box.run("curl -sS http://127.0.0.1:%d/" % box.port)
    check(a.result["EXIT_CODE"] != 0, "curl", a.result)
    good("python3 -c \"\nimport socket\na, b = socket.socketpair()\n"
         "a.send(b'x'); assert b.recv(1) == b'x'\ns = socket.socket(1)\n"
         "s.bind('\\0name'); s.listen()\nc = socket.socket(1)\n"
         "c.connect('\\0name')\nimport asyncio\n"
         "asyncio.run(asyncio.sleep(0))\"")


@test("caps/network-open")
def network_open():
    global box
    other = box
    box = Box(fence, network="open")
    try:
        box.start()
        a = good("python3 -c \"\nimport socket\ns = socket.socket()\n"
                 "s.bind(('127.0.0.1', 0)); s.listen()\n"
                 "c = socket.create_connection(s.getsockname())\n"
                 "socket.socket(10, 2).close()\n"
                 "for kind in ((2, 3, 0), (2, 3, 6), (17, 3, 0), (16, 3, 0), "
                 "(40, 1, 0), (2, 2, 1), (38, 5, 0)):\n"
                 "  try: socket.socket(*kind); print('open', kind)\n"
                 "  except OSError: pass\"; echo \"$UV_OFFLINE.\"")
        same(a.stdout, b".\n")
    finally:
        box.stop()
        box = other


@test("caps/search")
def search():
    """What looks for files has the same filter, and is not counted."""
    good("echo needle > hay")
    a = box.call(wire.FILE_SEARCH, [("PATH", ""), ("PATTERN", "needle")])
    same((a.error, a.data.count(b"needle")), (None, 1))
    good("rm hay")


@test("caps/nothing-left")
def left():
    """All of it was done by one agent, which measures no more."""
    good("pgrep -c . ; true")
    wait_for(lambda: len(fence.inside()) <= 2, 60, "only crun and the agent")
    time.sleep(0.1)
    check(box.process.poll() is None, "the agent ended", box.log())


main(start, stop)
