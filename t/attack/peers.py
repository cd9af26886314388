#!/usr/bin/env python3
"""Peers of the runner's socket: requests that are wrong in part, cut off, slow,
with the runner's key and without, handed over to real agents; and more
connections than there are descriptors."""

import os
import random
import resource
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import wait_for                                 # noqa: E402
from runner import KEY, Runner, session, tenant              # noqa: E402
from tap import check, main, same, test                      # noqa: E402

COUNT = int(os.environ.get("SANDBOX_TEST_FUZZ") or 600)
SEED = int(os.environ.get("SANDBOX_TEST_SEED") or 1)
THREADS = 6

BYTES = [b"", b"x", b"\0", b"\n", b"/", b"..", b"../../etc/passwd", b"a/b",
         b"\xff\xfe", b"\x1b[2J", b"*", b"true", b"cmd-1", b"A=b", b"=", b"(",
         bytes(32), b"n" * 255, b"n" * 256, b"/tmp", b"/proc/1/fd/3",
         b"/home/sandbox", b"s" * 5000, b"e" * 140000]
NUMBERS = [0, 1, 2, 3, 10, 255, 1000, 1001, 65535, 86400000, 2 ** 31,
           2 ** 32 - 1, 2 ** 32, 2 ** 63, 2 ** 64 - 1]
OF = {wire.COMMAND: ("COMMAND", "CWD", "ENV", "COMMAND_ID", "WALL_MS",
                     "OUTPUT", "OPEN_FILES", "PENDING", "DIGEST", "STREAM",
                     "DETACH", "STDIN_OPEN", "STAGE", "STAGE_BODY",
                     "STDIN_BYTES", "LABEL"),
      wire.ATTACH: ("COMMAND_ID", "AFTER", "STREAM"),
      wire.CANCEL: ("COMMAND_ID", "LABEL"),
      wire.STDIN: ("COMMAND_ID", "STDIN_EOF"),
      wire.HISTORY: ("LIMIT", "BEFORE"),
      wire.FILE_READ: ("PATH", "ROOT", "LIST", "LIMIT", "CURSOR", "NO_BODY",
                       "RANGE_FIRST", "RANGE_LAST", "RANGE_SUFFIX",
                       "IF_RANGE", "IF_MATCH", "IF_NONE_MATCH"),
      wire.FILE_WRITE: ("PATH", "ROOT", "FILE_MODE", "IF_MATCH"),
      wire.FILE_REMOVE: ("PATH", "ROOT", "IF_MATCH"),
      wire.FILE_SEARCH: ("PATH", "ROOT", "PATTERN", "GLOB", "LITERAL",
                         "IGNORE_CASE", "LIMIT"),
      wire.STATUS: (), wire.PING: ("IDLE_MS",), wire.RESET: (),
      wire.SESSIONS: ("SESSION",)}


def field(rnd, name):
    tag, kind = wire.FIELDS[name]
    if name == "COMMAND" and rnd.random() < 0.7:
        value = rnd.choice((b"true", b"echo x", b"cat", b"exit 3"))
    elif name == "WALL_MS":
        value = struct.pack(">Q", 2000)
    elif name == "STAGE":
        value = struct.pack(">BBH", rnd.randrange(4), 0,
                            rnd.choice((1, 3, 300))) + bytes(16) \
            + struct.pack(">Q", rnd.choice(NUMBERS)) + b"abc"
    elif (kind == "N") == (rnd.random() < 0.93):
        value = struct.pack(">Q", rnd.choice(NUMBERS))
    else:
        value = rnd.choice(BYTES)
    if rnd.random() < 0.03:
        tag = rnd.randrange(65536)
    size = len(value) if rnd.random() < 0.97 else rnd.choice(NUMBERS) % 2 ** 32
    return struct.pack(">HI", tag, size) + value


def request(rnd):
    """Its bytes; most of them are what an agent gets to see."""
    operation = rnd.choice(list(OF))
    if rnd.random() < 0.4:
        operation = wire.COMMAND
    head = b"".join(field(rnd, name) for name in OF[operation]
                    if rnd.random() < 0.6)
    if operation == wire.COMMAND and rnd.random() < 0.5:
        head = wire.fields(("COMMAND", "cat")) + head
    if operation == wire.COMMAND:
        head += wire.fields(("WALL_MS", 2000))
    body = rnd.choice((b"", b"", b"stdin", bytes(100000)))
    length = len(body)
    if rnd.random() < 0.3:
        length = wire.CHUNKED
        body = b"".join(struct.pack(">I", rnd.choice((n, n, n, 2 ** 32 - 1)))
                        + bytes(n) for n in (1, 5, 3000)) + struct.pack(
                            ">I", 0)
    data = bytearray(wire.Preamble(
        operation, key=KEY if rnd.random() < 0.9 else os.urandom(32),
        session=session("f%d" % rnd.randrange(2)), tenant=tenant("f"),
        flags=rnd.choice((0, 0, 0, wire.NO_CREATE)),
        head=len(head), body=length).encode() + head + body)
    kind = rnd.randrange(10)
    if kind == 0:
        for _ in range(rnd.choice((1, 1, 3))):
            # not another session, or each would have a sandbox
            at = rnd.choice(list(range(32)) + list(range(112, len(data))))
            data[at] = rnd.randrange(256)
    elif kind == 1:
        del data[rnd.randrange(len(data)):]
    elif kind == 2:
        data += rnd.choice((bytes(5), b"\0\0\0\0\x0a", os.urandom(40)))
    if data[8:9] == bytes([wire.DRAIN]):
        data[8] = wire.STATUS
    return bytes(data)


def judged(s):
    """How it ends; wire.Bad for frames that may not come, or not now."""
    begun = False
    while True:
        got = wire.read_frame(s)
        if got is None:
            return "lost" if begun else "closed"
        kind, payload = got
        if kind == wire.PING_FRAME:
            continue
        if kind == wire.ERROR:
            fields = wire.unique(wire.read_fields(payload))
            code = fields["CODE"].decode()
            fields["DETAIL"].decode()
            if begun or wire.STATUS_OF.get(code) != fields["STATUS"]:
                raise wire.Bad("ERROR %r" % fields)
            return code
        if (kind == wire.HEAD) == begun:
            raise wire.Bad("frame %d" % kind)
        begun = True
        if kind in (wire.HEAD, wire.RESULT):
            wire.unique(wire.read_fields(payload))
        if kind == wire.RESULT:
            return "answered"


def one(r, rnd, tally):
    data = request(rnd)
    word = "closed"
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(r.socket)
        try:
            if rnd.random() < 0.05:
                for at in range(0, min(len(data), 150), 10):
                    s.sendall(data[at:at + 10])
                    time.sleep(0.002)
                data = data[150:]
            s.sendall(data)
            if rnd.random() < 0.3:
                s.shutdown(socket.SHUT_WR)
            elif rnd.random() < 0.1:
                return
            s.settimeout(rnd.choice((0.05, 0.3, 1)))
            word = judged(s)
        except wire.Lost:
            pass
        except (TimeoutError, ConnectionError):
            word = "left"
    tally[word] = tally.get(word, 0) + 1


@test("attack/forged-requests", seconds=900)
def forged():
    """No agent dies, no run slot and no descriptor is lost, and what comes
    back is frames in their order."""
    print("# SANDBOX_TEST_SEED=%d" % SEED)
    with Runner("--pool", "1", "--sandboxes", "8") as r:
        for n in range(2):
            same(r.command("f%d" % n, "true", tenant=tenant("f")).outcome,
                 "exit")
        agents = sorted(r.agents())
        before = len(os.listdir("/proc/%d/fd" % r.process.pid))
        tally, wrong = {}, []

        def work(number):
            rnd = random.Random(SEED * 1000 + number)
            try:
                for _ in range(COUNT // THREADS):
                    one(r, rnd, tally)
            except Exception as error:
                wrong.append("%s: %s" % (type(error).__name__, error))

        threads = [threading.Thread(target=work, args=(n,))
                   for n in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print("# " + " ".join("%s %d" % pair
                              for pair in sorted(tally.items())))
        same(wrong, [], "what can't be right")
        check(tally.get("answered"), "answers", tally)
        same(r.process.poll(), None, "the runner lives")
        same(r.complaints(), [], "no sanitizer complains")

        # RESET makes others of the two, and the pool is filled again
        wait_for(lambda: len(r.agents()) >= len(agents), 60,
                 "%d agents" % len(agents))
        said = [line for line in r.text().splitlines()
                if " died" in line or "ending the container" in line]
        same(said, [], "agents that died")

        # one whose time was changed, too, has the agent's own 120 s
        wait_for(lambda: r.limits()["RUNNING"] == 0
                 and r.limits()["QUEUED"] == 0, 180, "all run slots")
        for n in range(2):
            same(r.command("f%d" % n, "echo fine",
                           tenant=tenant("f")).stdout, b"fine\n")
        wait_for(lambda: len(os.listdir("/proc/%d/fd" % r.process.pid))
                 < before + 10, 60, "%d descriptors" % before)


@test("attack/slot-of-a-refused-command")
def refused():
    """What is refused while it is read gives its run slot back, without
    another request."""
    with Runner("--pool", "1") as r:
        same(r.command("s", "true").outcome, "exit")
        stage = struct.pack(">BBH", 1, 0, 3) + bytes(16) + struct.pack(
            ">Q", 5) + b"abc"
        for head, code in (
                (wire.fields(("COMMAND", "true"), ("STAGE", stage)),
                 "stage_needed"),
                (wire.fields(("COMMAND", "true"), ("STAGE", b"x")),
                 "bad_request"), (wire.fields(("CWD", "/")), "bad_request")):
            same(r.call(wire.COMMAND, "s", head).code, code)
            wait_for(lambda: r.limits()["RUNNING"] == 0, 30,
                     "a run slot after %s" % code)


def seconds_used(pid):
    with open("/proc/%d/stat" % pid) as f:
        values = f.read().rsplit(")", 1)[1].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


@test("attack/descriptors-of-the-runner", seconds=600)
def descriptors():
    """Silent connections take all that it may have: it waits instead of
    spinning, and goes on when they are gone."""
    with Runner("--pool", "0") as r:
        same(r.command("d", "echo x").stdout, b"x\n")
        pid = r.process.pid
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, 100))
        held, first = [], time.monotonic()
        try:
            for n in range(200):
                s = socket.socket(socket.AF_UNIX)
                s.settimeout(100)
                s.connect(r.socket)
                held.append(s)
                try:
                    s.sendall(b"SBX" if n % 2 else b"")
                except ConnectionError:
                    pass                # we were late, its time is over
            wait_for(lambda: "no descriptor for a connection" in r.text(), 30,
                     "what it lacks")
            used, began = seconds_used(pid), time.monotonic()
            time.sleep(2)
            share = (seconds_used(pid) - used) / (time.monotonic() - began)
            check(share < 0.5, "it spins: %d %% of a processor"
                  % (100 * share))

            # one a second
            lines = r.text().count("no descriptor for a connection")
            check(lines < 3 + time.monotonic() - first, "lines of the log",
                  lines)

            # they have five seconds each, so others get their turn
            same(r.command("d", "echo x").stdout, b"x\n", "meanwhile")
        finally:
            for s in held:
                s.close()
        same(r.command("d", "echo x").stdout, b"x\n", "afterwards")


if __name__ == "__main__":
    main()
