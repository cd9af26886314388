#!/usr/bin/env python3
"""Long and live commands on the runner's socket, without nginx: events and
their readers, ATTACH, CANCEL, STDIN, background commands, what is left over."""

import hashlib
import os
import re
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import alive, wait_for                          # noqa: E402
from hold import HOLD, held, let_go_of                       # noqa: E402
from runner import Runner, session, tenant                   # noqa: E402
from tap import SANITIZED, backends, check, main, same, test # noqa: E402

backends("local", why="runner")

r = None
DIGEST = bytes(32)


def start():
    global r
    r = Runner("--pool", "2")
    r.start()


def stop():
    r.end()
    complaints = r.complaints()
    r.close()
    same(complaints, [], "what a sanitizer said")


class Stream:
    """A connection that is still open, and what came on it so far."""

    def __init__(self, operation, name, head, stream=True, after=0, body=b"",
                 receive=None, **options):
        self.client = r.client
        options.setdefault("tenant", tenant(name))
        self.sock = self.client.send(operation, head, body,
                                     session=session(name), **options)
        if receive:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.out = wire.Answer(stream, after)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def until(self, true=None):
        return self.client.answer(self.sock, self.out, true)

    def end(self):
        with self.sock:
            return self.until()

    def ended(self):
        return self.out.result is not None or self.out.error is not None


def run(name, text, **fields):
    fields.setdefault("wall_ms", 250000)
    return r.command(name, text, **fields)


def stream(name, text, command_id=None, **fields):
    options = {n: fields.pop(n) for n in ("body", "receive", "flags")
               if n in fields}
    fields.setdefault("STREAM", 1)
    fields.setdefault("WALL_MS", 250000)
    fields.setdefault("CPU_MS", 60000)
    head = wire.fields(("COMMAND", text), ("COMMAND_ID", command_id),
                       ("DIGEST", DIGEST), *fields.items())
    return Stream(wire.COMMAND, name, head, bool(fields["STREAM"]), **options)


def attach(name, command_id, after=None, live=1, **options):
    head = wire.fields(("COMMAND_ID", command_id), ("AFTER", after),
                       ("STREAM", live))
    return Stream(wire.ATTACH, name, head, bool(live),
                  after or 0 if live else 0, **options)


def cancel(name, command_id, **options):
    with Stream(wire.CANCEL, name, wire.fields(("COMMAND_ID", command_id)),
                False, **options) as s:
        return s.until()


def stdin(name, command_id, data=b"", eof=None, chunks=None, **options):
    head = wire.fields(("COMMAND_ID", command_id), ("STDIN_EOF", eof))
    with Stream(wire.STDIN, name, head, False, body=data, chunks=chunks,
                **options) as s:
        return s.until()


def state(answer):
    return wire.COMMAND_STATES[answer.result["COMMAND_STATE"]]


def status(name):
    return r.call(wire.STATUS, name).result


def processes(name, text):
    """Those whose whole command line is like that."""
    return int(run(name, "pgrep -cfx '%s'; true" % text).stdout)


def agent_of(name):
    """The pid of its agent: the one that a command of it has as parent."""
    mark = ("%d" % int.from_bytes(os.urandom(6), "big")).encode()
    found = []

    def look():
        for pid in r.processes():
            try:
                with open("/proc/%d/cmdline" % pid, "rb") as f:
                    if mark not in f.read():
                        continue
                with open("/proc/%d/status" % pid) as f:
                    found.append(int(re.search(r"^PPid:\s+(\d+)", f.read(),
                                               re.M).group(1)))
            except FileNotFoundError:
                continue
        return found

    with stream(name, "exec sleep 30.%s" % mark.decode()) as s:
        s.until(lambda a: a.started)
        wait_for(look, 10, "the agent of " + name)
        s.sock.sendall(wire.frame(wire.CANCEL_FRAME))
        s.until()
    return found[0]


def memory(pid):
    """KiB of its own: how many others map its files now does not matter."""
    with open("/proc/%d/smaps_rollup" % pid) as f:
        found = re.findall(r"^(?:Anonymous|Pss_Shmem):\s+(\d+)", f.read(),
                           re.M)
    same(len(found), 2, "what the kernel tells of memory")
    return sum(int(n) for n in found)


# --- events ----------------------------------------------------------------

@test("streaming/first-event")
def first_event():
    with stream("first", "echo a; " + HOLD + "; echo b >&2; exit 3") as s:
        s.until(lambda a: a.stdout)
        let_go_of(r, "first")           # it comes before the end
        same((s.out.stdout, s.out.stderr, s.out.seq), (b"a\n", b"", [1, 2]))
        check(abs(s.out.started / 1000 - time.time()) < 60, "started",
              s.out.started)
        a = s.until()
    same((a.stderr, a.result["EXIT_CODE"], a.outcome), (b"b\n", 3, "exit"))
    same((a.result["SEQ"], a.seq), (4, [1, 2, 3]))
    same((a.result["STDOUT_BYTES"], a.result["STDERR_BYTES"], state(a)),
         (2, 2, "ended"))


@test("streaming/one-end")
def one_end():
    for text, outcome, more in (
            ("exit 0", "exit", {}), ("kill -9 $$", "signal", {}),
            ("sleep 60", "timeout", {"WALL_MS": 500}),
            ("yes", "output_limit", {"OUTPUT_TOTAL": 1 << 20}),
            ("while :; do :; done", "cpu_limit", {"CPU_MS": 300})):
        with stream("ends", text, **more) as s:
            a = s.until()
            same((a.outcome, a.seq[:1]), (outcome, [1]), text)
            same(s.sock.recv(1), b"", "after the RESULT of " + text)
            same(a.result["SEQ"], len(a.seq) + 1 if not a.gaps
                 else a.seq[-1] + 1)


@test("streaming/not-asked-for")
def not_asked_for():
    a = run("plain", "echo a; echo b >&2")
    same((a.seq, a.started, a.stdout, a.stderr), ([1, 2], None, b"a\n",
                                                  b"b\n"))
    check(a.result["SEQ"] in (3, 4), "SEQ", a.result)


@test("streaming/resume")
def resume():
    # each line is an event, for the next one comes when it was seen
    with stream("resume", "for n in 1 2 3 4 5 6; do echo $n; " + HOLD
                + "; done", "it") as s:
        s.until(lambda a: len(a.seq) == 2)
        let_go_of(r, "resume")
        s.until(lambda a: len(a.seq) == 3)
    with attach("resume", "it", after=3) as s:
        let_go_of(r, "resume")
        s.until(lambda a: len(a.seq) == 1)
        same(s.out.stdout, b"3\n")
    with attach("resume", "it", after=4) as s:
        for n in range(1, 4):
            let_go_of(r, "resume")
            s.until(lambda a: len(a.seq) == n)
        let_go_of(r, "resume")
        a = s.until()
    same((a.stdout, a.started, a.result["SEQ"]), (b"4\n5\n6\n", None, 8))

    # it has ended: the same events, over and over
    a = attach("resume", "it").end()
    same((a.stdout, a.seq), (b"1\n2\n3\n4\n5\n6\n", [1, 2, 3, 4, 5, 6, 7]))
    check(a.started, "STARTED comes first")
    for after in range(1, 8):
        a = attach("resume", "it", after=after).end()
        same((a.stdout, a.result["SEQ"]), (b"1\n2\n3\n4\n5\n6\n"[
            2 * after - 2:], 8), "after %d" % after)
    a = attach("resume", "it", after=8).end()
    same((a.seq, a.outcome, a.result["SEQ"]), ([], "exit", 8), "RESULT alone")
    same(attach("resume", "it", after=9).end().code, "seq_unknown")
    same(attach("resume", "no").end().code, "command_not_found")

    with stream("resume", "sleep 30", "other") as s:
        s.until(lambda a: a.started)
        same(attach("resume", "other", after=2).end().code, "seq_unknown")
        same(attach("nobody", "it", flags=wire.NO_CREATE).end().code,
             "no_sandbox")
        same(cancel("resume", "other").outcome, "cancelled")
        same(s.until().outcome, "cancelled")


@test("streaming/repeated")
def repeated():
    """A COMMAND that repeats an id attaches: live or not, once or ten times,
    before it runs, while it runs, and afterwards."""
    first = stream("again", HOLD + "; echo x >> f; cat f", "first")
    queued = [stream("again", "echo y >> f; cat f", "second", STREAM=n % 2)
              for n in range(4)]
    more = [stream("again", "", "first", STREAM=n % 2) for n in range(6)]
    let_go_of(r, "again")
    for s in [first] + more:
        a = s.end()
        same((a.stdout, a.outcome), (b"x\n", "exit"))
        check(not s.out.stream or a.started, "STARTED")
    for s in queued + [stream("again", "", "second"),
                       stream("again", "", "second", STREAM=0)]:
        same(s.end().stdout, b"x\ny\n")
    head = wire.fields(("COMMAND", "true"), ("COMMAND_ID", "first"),
                       ("DIGEST", bytes(31) + b"x"), ("STREAM", 1))
    with Stream(wire.COMMAND, "again", head) as s:
        same(s.until().code, "command_id_reused")


@test("streaming/attach-without")
def attach_without():
    """ATTACH without STREAM never waits."""
    first = stream("look", HOLD + "; echo done", "first")
    first.until(lambda a: a.started)
    second = stream("look", "echo second", "second")
    wait_for(lambda: status("look")["QUEUED"] == 1, 10, "the second one")
    a = attach("look", "first", live=0).end()
    same((state(a), "OUTCOME" in a.result), ("running", False))
    check(a.result["SEQ"] == 1 and a.result["STARTED_MS"]
          >= a.result["ACCEPTED_MS"], "of its state:", a.result)
    a = attach("look", "second", live=0).end()
    same((state(a), "OUTCOME" in a.result), ("queued", False))
    same((a.result["SEQ"], "STARTED_MS" in a.result), (0, False))
    let_go_of(r, "look")
    first.end()
    second.end()
    a = attach("look", "first", live=0).end()
    same((state(a), a.outcome, a.stdout, a.seq), ("ended", "exit", b"done\n",
                                                  [1]))


@test("streaming/last-bytes", seconds=180)
def last_bytes():
    for n in range(150):
        a = stream("last", "printf x; exit").end()
        same((a.stdout, a.result["STDOUT_BYTES"]), (b"x", 1), str(n))
    for n in range(30):
        for text, size in (("head -c 1M /dev/zero", 1 << 20),
                           ("python3 -c 'import os, fcntl\n"
                            "try: fcntl.fcntl(1, 1031, 1 << 20)\n"
                            "except OSError: pass\n"
                            "os.set_blocking(1, True)\n"
                            "os.write(1, bytes(900000))\nos._exit(0)'",
                            900000)):
            a = stream("last", text).end()
            same((len(a.stdout) + sum(g[1] for g in a.gaps),
                  a.result["STDOUT_BYTES"]), (size, size), str(n))


@test("streaming/order-across")
def order_across():
    a = stream("order", "for ((n = 0; n < 1000; n++)); do echo o$n; "
               "echo e$n >&2; done").end()
    same(a.stdout, b"".join(b"o%d\n" % n for n in range(1000)))
    same(a.stderr, b"".join(b"e%d\n" % n for n in range(1000)))
    same(a.seq, list(range(1, len(a.seq) + 1)))


@test("streaming/binary")
def binary():
    data = os.urandom(300000)
    a = stream("binary", "cat", body=data).end()
    same(a.stdout == data, True, "300,000 random bytes")
    a = stream("binary", "printf 'a\\n\\0\\nb\\n\\n\\n'").end()
    same(a.stdout, b"a\n\0\nb\n\n\n")


@test("streaming/slow-reader", seconds=900)
def slow_reader():
    """It stops for a while: the command does not, and gaps say how much."""
    had, block, blocks = {0: 0}, 500000, 40
    size = block * blocks

    def follow():
        """A fast one, that knows how many bytes there are at each number;
        what comes next waits until it has seen all of it."""
        seen, asked = 0, 0
        with attach("slow", "slow") as s:
            while True:
                kind, payload = wire.read_frame(s.sock)
                if kind == wire.STDOUT:
                    seen += len(payload) - 8
                if kind in (wire.STARTED, wire.STDOUT):
                    had[struct.unpack_from(">Q", payload)[0]] = seen
                if kind == wire.RESULT:
                    return
                check(kind != wire.GAP, "the fast one missed something")
                if seen == asked * block and asked <= blocks:
                    asked += 1
                    let_go_of(r, "slow")

    with stream("slow", HOLD + "; for n in $(seq %d); do head -c %d "
                "/dev/zero | tr '\\0' x; %s; done; echo end >&2"
                % (blocks, block, HOLD), "slow", receive=4096) as s:
        s.until(lambda a: a.started)
        t = held(follow)
        s.until(lambda a: len(a.stdout) > 10000)
        t.result()
        wait_for(lambda: state(attach("slow", "slow", live=0).end())
                 == "ended", 60, "the command, whose reader has stopped")
        a = s.until()
    same((a.outcome, a.stderr), ("exit", b"end\n"))
    check(a.gaps, "no gap in 20 MB")
    same(len(a.stdout) + sum(g[1] for g in a.gaps), size)
    # from any number on: what is not there any more is said exactly
    for seq in (1, 2, 3, 50, 100, 500, 1000, 1500, 2000):
        b = attach("slow", "slow", after=seq).end()
        same(had[seq] + len(b.stdout) + sum(g[1] for g in b.gaps), size,
             "after %d" % seq)
        same(b.stderr, b"end\n")


@test("streaming/many-readers", seconds=900)
def many_readers():
    """500 streams on one sandbox; half of them are slow."""
    run("many", "true")
    streams = [stream("many", "for n in $(seq 200); do echo line $n; done; "
                      + HOLD + "; head -c 3M /dev/zero; echo end", "many",
                      receive=4096)]
    streams[0].until(lambda a: a.started)
    for n in range(499):
        streams.append(attach("many", "many", receive=4096))
        if n % 50 == 0:         # a runner lets only so many wait for an agent
            streams[-1].until(lambda a: a.head)
    wait_for(lambda: status("many")["RUNNING"] == 1, 10, "one that runs")
    for s in streams[::2]:
        s.until(lambda a: a.stdout.count(b"\n") >= 200)
    let_go_of(r, "many")
    for s in streams:
        a = s.end()
        check(a.result, "refused:", a)
        same((a.outcome, a.result["STDOUT_BYTES"]
              - len(a.stdout) - sum(g[1] for g in a.gaps)), ("exit", 0))
        check(a.stdout.endswith(b"end\n"), "the end")


@test("streaming/flood-memory", seconds=900)
def flood_memory():
    """`yes` for its whole CPU cap, a reader of 1 kB/s."""
    agent = agent_of("flood")
    run("flood", "seq 100000")
    before = memory(agent)
    most = 0
    with stream("flood", "yes", "flood", receive=4096, CPU_MS=2500,
                WALL_MS=600000, OUTPUT_TOTAL=1 << 40) as s:
        s.until(lambda a: a.started)
        end = time.monotonic() + 550
        while time.monotonic() < end:
            s.sock.recv(100)
            time.sleep(0.1)
            most = max(most, memory(agent))
            if most and not alive(agent):
                break
            if state(attach("flood", "flood", live=0).end()) == "ended":
                break
    a = attach("flood", "flood", live=0).end()
    same(a.outcome, "cpu_limit")
    time.sleep(1)
    after = memory(agent)
    print("# agent: %d KiB before, at most %d KiB, %d KiB afterwards; "
          "%d MiB were written" % (before, most, after,
                                   a.result["STDOUT_BYTES"] >> 20))
    check(SANITIZED or most <= before + 2048, "KiB before and at most:",
          before, most)
    check(a.result["STDOUT_BYTES"] > 50 << 20, "written", a.result)


@test("streaming/hang-up")
def hang_up():
    """A client that goes away ends nothing."""
    with stream("gone", HOLD + "; echo x > f; echo done", "gone") as s:
        s.until(lambda a: a.started)
    let_go_of(r, "gone")
    a = attach("gone", "gone").end()
    same((a.stdout, a.outcome), (b"done\n", "exit"))
    same(run("gone", "cat f").stdout, b"x\n")


@test("streaming/chaos", seconds=600)
def chaos():
    """Clients that do all of this at once, and leave in the middle: after it
    the agent has no descriptor more than before, and everything works."""
    agent = agent_of("chaos")
    run("chaos", "true")
    files = "/proc/%d/fd" % agent
    before = len(os.listdir(files))
    failures = []
    texts = ("echo hi", "sleep 0.1; echo x", "cat", "yes | head -c 3M",
             "sleep 5 & echo left", "cat & exec sleep 0.3", "exit 3",
             "head -c 100k; sleep 0.2", "seq 1000; sleep 0.5 & seq 1000 >&2")

    def pick(random):
        return "c%d" % random.randrange(12)

    def one(n):
        random = __import__("random").Random(n)
        end = time.monotonic() + 12
        while time.monotonic() < end:
            what = random.randrange(6)
            name = pick(random)
            try:
                if what < 2:
                    s = stream("chaos", random.choice(texts),
                               random.choice((None, name)),
                               STREAM=random.randrange(2),
                               DETACH=random.randrange(2),
                               STDIN_OPEN=random.randrange(2),
                               PENDING=50, WALL_MS=1500,
                               receive=random.choice((None, 4096)),
                               body=os.urandom(random.choice((0, 9, 99999))))
                elif what == 2:
                    s = attach("chaos", name, random.choice((0, 1, 2, 50)),
                               random.randrange(2),
                               receive=random.choice((None, 4096)))
                elif what == 3:
                    s = Stream(wire.CANCEL, "chaos",
                               wire.fields(("COMMAND_ID", name)), False)
                else:
                    head = wire.fields(("COMMAND_ID", name),
                                       ("STDIN_EOF", random.randrange(2)))
                    s = Stream(wire.STDIN, "chaos", head, False,
                               body=os.urandom(random.choice((0, 9, 300000))))
                with s:
                    how = random.randrange(4)
                    if how == 1:
                        time.sleep(random.random() / 10)
                        s.sock.sendall(wire.frame(wire.CANCEL_FRAME))
                    if how > 1:
                        s.until(lambda a: len(a.seq) > 3)
            except (wire.Lost, OSError):
                pass
            except Exception as error:
                failures.append("%d: %s %s" % (what, type(error).__name__,
                                               error))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(failures[:3], [], "failures")
    check(alive(agent), "the agent was lost")
    for n in range(12):
        cancel("chaos", "c%d" % n)
    same(run("chaos", "echo next").stdout, b"next\n")
    run("chaos", "pkill -9 sleep; pkill -9 cat; true")
    wait_for(lambda: status("chaos")["BACKGROUND"] == 0, 30, "nothing left")
    wait_for(lambda: len(os.listdir(files)) <= before, 30,
             "%d descriptors, it has %d" % (before, len(os.listdir(files))))


# --- CANCEL ----------------------------------------------------------------

@test("concurrency/cancel")
def cancel_running():
    text = "setsid sleep 6101 & (trap '' TERM; sleep 6102) & echo a; sleep 6103"
    s = stream("cancel", text, "one")
    s.until(lambda a: a.stdout)
    second = stream("cancel", "echo second", "two")
    third = stream("cancel", "echo third", "three", STREAM=0)
    wait_for(lambda: status("cancel")["QUEUED"] == 2, 10, "two that wait")

    a = cancel("cancel", "two")
    same((a.outcome, state(a), a.stdout, a.result["EXIT_CODE"]),
         ("cancelled", "queued", b"", 137))
    b = second.end()
    same((b.outcome, b.seq, b.result["SEQ"]), ("cancelled", [], 1))

    begin = time.monotonic()
    a = cancel("cancel", "one")
    check(time.monotonic() - begin < 100, "it took long")
    same((a.outcome, state(a), a.stdout), ("cancelled", "running", b"a\n"))
    b = s.end()
    same((b.outcome, b.stdout, b.result["BACKGROUND"]), ("cancelled", b"a\n",
                                                         0))
    same(third.end().stdout, b"third\n", "the next one runs")
    same(processes("cancel", "sleep 610."), 0)

    for n in range(2):
        a = cancel("cancel", "one")
        same((a.outcome, state(a), a.stdout), ("cancelled", "ended", b"a\n"))
    a = cancel("cancel", "three")
    same((a.outcome, state(a), a.stdout), ("exit", "ended", b"third\n"))
    same(cancel("cancel", "four").code, "command_not_found")
    same(run("cancel", "echo next").stdout, b"next\n")


@test("concurrency/cancel-frame")
def cancel_frame():
    bytes_ = wire.frame(wire.CANCEL_FRAME)

    s = stream("frame", "sleep 6201", "one", STREAM=0)
    wait_for(lambda: status("frame").get("RUNNING"), 20, "the command")
    queued = stream("frame", "echo no", "two")
    last = stream("frame", "echo last", "three")
    queued.sock.sendall(bytes_)
    same(queued.end().outcome, "cancelled")

    # byte by byte, and gone at once
    for b in bytes_:
        s.sock.sendall(bytes([b]))
        time.sleep(0.02)
    s.sock.close()
    same(last.end().stdout, b"last\n")
    same(attach("frame", "one").end().outcome, "cancelled")
    same(processes("frame", "sleep 6201"), 0)

    # in one write with the request
    head = wire.fields(("COMMAND", "sleep 6202"), ("COMMAND_ID", "four"),
                       ("DIGEST", DIGEST))
    with Stream(wire.COMMAND, "frame", head, False) as s:
        s.sock.sendall(bytes_)
        same(s.until().outcome, "cancelled")
    first = wire.Preamble(wire.COMMAND, head=len(head), key=r.client.key,
                          session=session("frame"), tenant=tenant("frame"))
    head = head.replace(b"four", b"five")
    with r.client.connect() as sock:
        sock.sendall(first.encode() + head + bytes_)
        same(r.client.answer(sock).outcome, "cancelled")

    # something else behind the request ends the connection, nothing more
    s = stream("frame", HOLD + "; echo lived", "six")
    s.until(lambda a: a.started)
    s.sock.sendall(wire.frame(wire.PING_FRAME))
    try:
        s.end()
        raise AssertionError("a PING of a client was taken")
    except wire.Lost:
        pass
    let_go_of(r, "frame")
    same(attach("frame", "six").end().stdout, b"lived\n")

    # too late: it changes nothing
    with stream("frame", "echo quick", "seven") as s:
        a = s.until()
        try:
            s.sock.sendall(bytes_)
        except OSError:
            pass
    same((a.outcome, attach("frame", "seven").end().outcome), ("exit", "exit"))


@test("concurrency/cancel-left")
def cancel_left():
    """What a command left running is ended with it, after its end, too."""
    for name, text in (("plain", "sleep 6301 & echo up"),
                       ("hidden", "setsid bash -c 'trap \"\" TERM HUP; "
                        "sleep 6302 & sleep 6303' > /dev/null 2>&1 & "
                        "echo up")):
        a = run("left", text, command_id=name, digest=DIGEST)
        same(a.stdout, b"up\n")
        check(a.result["BACKGROUND"] > 0, "BACKGROUND", a.result)
    wait_for(lambda: processes("left", "sleep 630.") == 3, 10, "three")
    wait_for(lambda: status("left")["BACKGROUND"] >= 3, 10, "all in STATUS")
    a = cancel("left", "hidden")
    same((a.outcome, state(a)), ("exit", "ended"))
    same(processes("left", "sleep 630."), 1)
    same(state(cancel("left", "plain")), "ended")
    same(processes("left", "sleep 630."), 0)
    wait_for(lambda: status("left")["BACKGROUND"] == 0, 10, "none in STATUS")


# --- STDIN -----------------------------------------------------------------

@test("stdin/waits")
def stdin_waits():
    """Several at once, before it runs and while it reads nothing."""
    blocker = stream("wait", HOLD, "blocker")
    blocker.until(lambda a: a.started)
    s = stream("wait", "sleep 1; cat", "cat", STDIN_OPEN=1)
    wait_for(lambda: status("wait")["QUEUED"] == 1, 10, "the queue")
    writers = []
    for n in range(20):
        head = wire.fields(("COMMAND_ID", "cat"),
                           ("STDIN_EOF", 1 if n == 19 else None))
        writers.append(Stream(wire.STDIN, "wait", head, False,
                              body=b"%d\n" % n * 3000))
        time.sleep(0.01)
    let_go_of(r, "wait")
    for w in writers:
        check(w.end().result["BYTES"] >= 6000, "BYTES", w.out)
    a = s.end()
    same(a.stdout, b"".join(b"%d\n" % n * 3000 for n in range(20)))
    blocker.end()


@test("stdin/bad-body")
def stdin_bad():
    with stream("bad", "cat", "cat", STDIN_OPEN=1) as s:
        head = wire.fields(("COMMAND_ID", "cat"))
        with Stream(wire.STDIN, "bad", head, False) as w:
            same(w.until().result["BYTES"], 0)
        first = wire.Preamble(wire.STDIN, head=len(head), body=wire.CHUNKED,
                              key=r.client.key, session=session("bad"),
                              tenant=tenant("bad")).encode()
        with r.client.connect() as sock:
            sock.sendall(first + head + b"\xff\xff\xff\xff")
            same(r.client.answer(sock).code, "bad_request")
        with r.client.connect() as sock:
            sock.sendall(first + head + struct.pack(">I", 100) + b"abc")
            s.until(lambda a: a.stdout == b"abc")
        same(stdin("bad", "cat", b"def", eof=1).result["BYTES"], 3)
        same(s.until().stdout, b"abcdef")


# --- background ------------------------------------------------------------

@test("background/returns")
def background_returns():
    a = run("back", "echo up; " + HOLD + "; echo over; sleep 0.5; exit 5",
            command_id="server", digest=DIGEST, detach=1)
    same((state(a), "OUTCOME" in a.result, a.stdout), ("running", False, b""))
    wait_for(lambda: status("back")["BACKGROUND"] >= 1, 20, "it in STATUS")
    same(status("back")["RUNNING"], 0)
    same(run("back", "echo beside").stdout, b"beside\n")
    with attach("back", "server") as s:
        s.until(lambda a: a.stdout)
        same(s.out.stdout, b"up\n")
        let_go_of(r, "back")
        a = s.until()
    same((a.stdout, a.result["EXIT_CODE"], a.outcome, a.result["DETACHED"]),
         (b"up\nover\n", 5, "exit", 1))
    a = attach("back", "server", live=0).end()
    same((a.stdout, state(a)), (b"up\nover\n", "ended"))
    wait_for(lambda: status("back")["BACKGROUND"] == 0, 20, "none in STATUS")
    a = run("back", "", command_id="server", digest=DIGEST, detach=1)
    same((a.stdout, a.outcome), (b"up\nover\n", "exit"), "repeated")


@test("background/stream-and-stdin")
def background_stream():
    s = stream("bstream", "cat; echo end", "it", DETACH=1, STDIN_OPEN=1)
    s.until(lambda a: a.started)
    same(run("bstream", "echo beside").stdout, b"beside\n")
    same(stdin("bstream", "it", b"hello ").result["BYTES"], 6)
    s.until(lambda a: a.stdout == b"hello ")
    same(stdin("bstream", "it", b"you\n", eof=1).result["BYTES"], 4)
    same(s.end().stdout, b"hello you\nend\n")


@test("background/limits")
def background_limits():
    a = run("blimits", "sleep 100", command_id="t", digest=DIGEST, detach=1,
            wall_ms=700)
    same(attach("blimits", "t").end().outcome, "timeout")
    same(a.result["WALL_MS"], 700)
    run("blimits", "while :; do :; done", command_id="c", digest=DIGEST,
        detach=1, cpu_ms=300)
    same(attach("blimits", "c").end().outcome, "cpu_limit")
    run("blimits", "sleep 6401 & sleep 6402", command_id="k", digest=DIGEST,
        detach=1)
    s = attach("blimits", "k")
    s.until(lambda a: a.started)
    a = cancel("blimits", "k")
    same((a.outcome, state(a), s.end().outcome), ("cancelled", "running",
                                                  "cancelled"))
    same(processes("blimits", "sleep 640."), 0)

    for n in range(16):
        same(state(run("blimits", "sleep 6403", detach=1, command_id="n%d" % n,
                       digest=DIGEST, wall_ms=250000)), "running")
    same(run("blimits", "sleep 6403", detach=1).code, "too_many_pending")
    same(run("blimits", "echo beside").stdout, b"beside\n")
    for n in range(16):
        same(cancel("blimits", "n%d" % n).outcome, "cancelled")
    same(state(run("blimits", "true", detach=1)), "running")
    same(processes("blimits", "sleep 6403"), 0)


@test("background/run-slot")
def background_slot():
    """It gives its run slot back once it runs."""
    with Runner("--pool", "1", "--running", "1") as other:
        a = other.command("one", "sleep 200", detach=1, command_id="it",
                          digest=DIGEST, wall_ms=200000)
        same(state(a), "running")
        for name in ("one", "two", "one"):
            same(other.command(name, "echo go").stdout, b"go\n")
        head = wire.fields(("COMMAND_ID", "it"))
        same(other.client.call(wire.CANCEL, head, session=session("one"))
             .outcome, "cancelled")
        for name in ("one", "two", "one"):
            same(other.command(name, "echo go").stdout, b"go\n")


@test("background/not-idle", seconds=90)
def background_not_idle():
    """A sandbox with a background command is not stopped."""
    with Runner("--pool", "0", "--idle", "1") as other:
        other.command("one", "sleep 250; echo over", detach=1,
                      command_id="it", digest=DIGEST, wall_ms=250000)
        time.sleep(6)
        head = wire.fields(("COMMAND_ID", "it"))
        a = other.client.call(wire.ATTACH, head, session=session("one"))
        same(state(a), "running")


# --- what is left over, what is told -----------------------------------------

@test("exec/background-late-output")
def late_output():
    a = run("late", "(%s; echo late; echo again > f; echo more; "
            "echo end >> f) & echo now" % HOLD)
    same(a.stdout, b"now\n")
    check(a.result["BACKGROUND"] >= 1, "BACKGROUND", a.result)
    let_go_of(r, "late")
    wait_for(lambda: run("late", "cat f 2>/dev/null; true").stdout
             == b"again\nend\n", 20, "the late writer")
    # a flood after the end: read away, to nowhere
    a = run("late", "(%s; yes | head -c 20M; echo wrote > g) & echo now"
            % HOLD)
    same(a.stdout, b"now\n")
    let_go_of(r, "late")
    wait_for(lambda: run("late", "cat g 2>/dev/null; true").stdout
             == b"wrote\n", 20, "the flood")


@test("exec/disk-full", seconds=120)
def disk_full():
    a = run("full", "false", disk=64)
    same((a.outcome, a.result["EXIT_CODE"]), ("exit", 1))
    a = run("full", "head -c 200M /dev/zero > big")
    same((a.outcome, a.result["EXIT_CODE"]), ("disk_full", 1))
    # what the file system had set aside goes, too
    wait_for(lambda: int(run("full", "head -c 1M /dev/zero > more$RANDOM; "
                             "sync; df --output=avail -B1 ~ | tail -n 1")
                         .stdout) < 65536, 60, "the last of the disk")
    a = run("full", "head -c 1M /dev/zero > more")
    same((a.outcome, a.result["EXIT_CODE"]), ("exit", 1), "it was full before")
    a = run("full", "rm -f big more*; echo ok > small; cat small")
    same((a.stdout, a.outcome), (b"ok\n", "exit"))
    a = run("full", "head -c 200M /dev/zero > big; rm big; false")
    same(a.outcome, "exit", "there is room again")


@test("limits/overshoot")
def overshoot():
    """How long after its time a command is over: a figure."""
    late = []
    for n in range(20):
        a = run("shoot", "setsid sleep 6601 & sleep 6602", wall_ms=200)
        same(a.outcome, "timeout")
        late.append(a.result["DURATION_US"] / 1000 - 200)
    begin = []
    for n in range(20):
        t = time.monotonic()
        run("shoot", "setsid sleep 6601 & sleep 6602", wall_ms=200)
        begin.append((time.monotonic() - t) * 1000 - 200)
    print("# overshoot of 200 ms: shell gone after median %.1f, most %.1f ms; "
          "answered after median %.1f, most %.1f ms"
          % (sorted(late)[10], max(late), sorted(begin)[10], max(begin)))
    check(max(late) < 30000, "overshoot in ms", late)
    same(processes("shoot", "sleep 660."), 0)


# --- what mostly waits -------------------------------------------------------

@test("streaming/heartbeat", seconds=60, beside=True)
def heartbeat():
    a = stream("beat", "sleep 25").end()
    check(a.pings >= 2, "PINGs in 25 s:", a.pings)


@test("streaming/characters", beside=True)
def characters():
    """No event splits a character, and half of one does not wait for ever."""
    pieces = []

    def take(sock):
        while True:
            kind, payload = wire.read_frame(sock)
            if kind == wire.STDOUT:
                pieces.append(payload[8:])
            if kind == wire.RESULT:
                return

    for lead in range(3):
        # all of it comes at once, or the writer may stop within a character
        with stream("utf8", "python3 -c 'import fcntl, os\n"
                    "try: fcntl.fcntl(1, 1031, 1 << 20)\n"
                    "except OSError: pass\nos.set_blocking(1, True)\n"
                    "os.write(1, (\"x\" * %d + \"€\" * 70000).encode())'"
                    % lead) as s:
            take(s.sock)
    check(len(pieces) > 70, "pieces", len(pieces))
    for p in pieces:
        p.decode()
    with stream("utf8", "printf '\\342'; " + HOLD
                + "; printf '\\202\\254'") as s:
        s.until(lambda a: a.stdout)     # half a character is not kept
        let_go_of(r, "utf8")
        same(s.until().stdout, "€".encode())


@test("stdin/in-order", beside=True)
def stdin_in_order():
    s = stream("stdin", "cat", "cat", body=b"body ", STDIN_OPEN=1)
    s.until(lambda a: a.stdout == b"body ")
    a = stdin("stdin", "cat", b"one ")
    same((a.result["BYTES"], a.result["COMMAND_ID"]), (4, b"cat"))
    same(stdin("stdin", "cat", chunks=[b"tw", b"o", b" "]).result["BYTES"], 4)
    same(stdin("stdin", "cat").result["BYTES"], 0)
    s.until(lambda a: a.stdout == b"body one two ")
    same(stdin("stdin", "cat", b"end", eof=1).result["BYTES"], 3)
    a = s.end()
    same((a.stdout, a.outcome), (b"body one two end", "exit"))
    same(stdin("stdin", "cat", b"x").code, "command_ended")
    same(stdin("stdin", "no", b"x").code, "command_not_found")

    s = stream("stdin", HOLD + "; cat", "closed")
    s.until(lambda a: a.started)
    same(stdin("stdin", "closed", b"x").code, "stdin_closed", "without OPEN")
    let_go_of(r, "stdin")
    same(s.end().stdout, b"")

    s = stream("stdin", "cat; " + HOLD, "eof", STDIN_OPEN=1)
    s.until(lambda a: a.started)
    same(stdin("stdin", "eof", eof=1).result["BYTES"], 0)
    same(stdin("stdin", "eof", b"x").code, "stdin_closed", "after the end")
    let_go_of(r, "stdin")
    same(s.end().stdout, b"")

    s = stream("stdin", "exec < /dev/null; " + HOLD, "away", STDIN_OPEN=1)
    s.until(lambda a: a.started)
    wait_for(lambda: stdin("stdin", "away", b"x").code == "stdin_closed", 5,
             "the end of its reader")
    let_go_of(r, "stdin")
    s.end()


@test("stdin/back-pressure", seconds=120, beside=True)
def stdin_back_pressure():
    """20 MiB to a command that sleeps first: they wait in the client."""
    agent = agent_of("pressure")
    before = memory(agent)
    out = []
    s = stream("pressure", HOLD + "; sha256sum; sleep 0.1", "it", STDIN_OPEN=1)
    s.until(lambda a: a.started)
    data = os.urandom(20 << 20)
    chunks = [data[n:n + 200000] for n in range(0, len(data), 200000)]
    t = threading.Thread(target=lambda: out.append(
        stdin("pressure", "it", chunks=chunks, eof=1)))
    t.start()
    time.sleep(1)
    most = memory(agent)
    check(t.is_alive(), "20 MiB were taken by a command that sleeps")
    let_go_of(r, "pressure")
    t.join()
    same(out[0].result["BYTES"], len(data))
    same(s.end().stdout.decode().split()[0],
         hashlib.sha256(data).hexdigest())
    print("# agent: %d KiB before, %d KiB with a STDIN that waits"
          % (before, most))
    check(most < before + 1536, "KiB:", before, most)

    # nobody reads: PING until its end, then what was taken
    s = stream("pressure", "sleep 25", "sleeps", STDIN_OPEN=1)
    s.until(lambda a: a.started)
    a = stdin("pressure", "sleeps", data)
    check(0 < a.result["BYTES"] < 1 << 20 and a.pings >= 1, "got", a)
    s.end()
    # its reader leaves, but not before there was something to read
    s = stream("pressure", "head -c 1 > /dev/null; exec 0<&-; sleep 1",
               "sleeps2", STDIN_OPEN=1)
    s.until(lambda a: a.started)
    a = stdin("pressure", "sleeps2", data)
    check(0 < a.result["BYTES"] < 1 << 20, "got", a)
    s.end()


@test("background/queued", beside=True)
def background_queued():
    first = stream("bqueue", HOLD + "; echo first > f", "first")
    first.until(lambda a: a.started)
    second = stream("bqueue", "cat f; " + HOLD + "; echo over", "second",
                    DETACH=1, STREAM=0)
    third = stream("bqueue", "echo third", "third")
    wait_for(lambda: status("bqueue")["QUEUED"] == 2, 20, "both in the queue")
    let_go_of(r, "bqueue")
    same(second.end().result["COMMAND_STATE"], 1)
    same(third.end().stdout, b"third\n", "the next one does not wait")
    let_go_of(r, "bqueue")
    same(attach("bqueue", "second").end().stdout, b"first\nover\n")
    first.end()


@test("exec/left-until-its-wall", beside=True)
def left_wall():
    a = run("wall", "sleep 6501 & echo up", wall_ms=30000)
    same((a.stdout, a.outcome), (b"up\n", "exit"))
    same(processes("wall", "sleep 6501"), 1)
    wait_for(lambda: processes("wall", "sleep 6501") == 0, 100, "its cap")


@test("exec/receipt-true", beside=True)
def receipt_true():
    # four orphans of 250 ms each, whose parents are gone
    a = run("true", "for n in 1 2 3 4; do (setsid python3 -c 'import os, time"
            "\nwhile time.process_time() < 0.25: pass\n"
            "open(\"over.%d\" % os.getpid(), \"w\")' &) ; done; "
            "until [ $(ls | grep -c over.) = 4 ]; do sleep 0.2; done")
    check(900000 < a.result["CPU_US"] < 30000000, "CPU_US", a.result)
    a = run("true", "sleep 0.7; python3 -c 'x = bytearray(100 << 20)'")
    check(700000 <= a.result["DURATION_US"] < 60000000, "DURATION", a.result)
    check(a.result["MEMORY_PEAK"] == 0
          or 100 << 20 < a.result["MEMORY_PEAK"] < 400 << 20, "peak",
          a.result)
    first = stream("true", HOLD, "first")
    first.until(lambda a: a.started)
    t = held(lambda: run("true", "true"))
    wait_for(lambda: status("true")["QUEUED"] == 1, 20, "one that waits")
    time.sleep(0.7)
    let_go_of(r, "true")
    a = t.result()
    check(a.result["QUEUED_US"] > 500000, "QUEUED", a.result)
    first.end()


main(start, stop)
