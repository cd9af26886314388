#!/usr/bin/env python3
"""sandbox-agent --once: one operation as base64, as an engine's exec has it.

All of it is inside a fence of this test's own (t/lib/agent_box.py)."""

import base64
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from agent_box import Box, Fence, alone                      # noqa: E402
from gateway import wait_for                                 # noqa: E402
from tap import check, main, same, test                      # noqa: E402

fence = None
box = None
slow = None         # a box of its own, whose command takes longer than PINGs
slow_process = None
SLOW = [("COMMAND", "sleep 6; echo late")]


def start():
    global fence, box, slow, slow_process
    alone()
    fence = Fence()
    box = Box(fence, 160, 64, 64)
    slow = Box(fence, 160, 64, 64)
    slow_process = slow.begin()
    slow_process.stdin.write(base64.b64encode(
        slow.request(wire.COMMAND, SLOW)))
    slow_process.stdin.flush()


def stop():
    try:
        for one in (box, slow):
            if one is not None:
                one.stop()
    finally:
        if fence is not None:
            fence.remove()


def run(text, stdin=b"", **fields):
    fields.setdefault("WALL_MS", 100000)
    pairs = [("COMMAND", text)]
    if "COMMAND_ID" in fields:
        pairs.append(("DIGEST", bytes(32)))
    return box.once(wire.COMMAND, pairs + list(fields.items()), stdin)[0]


def nothing_left():
    """Of box; slow has its command and those above it."""
    wait_for(lambda: not [p for p in fence.inside()
                          if box.folder.encode() in command_line(p)
                          or b"sleep\x009" in command_line(p)], 60,
             "the end of all that was started")


def command_line(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read()
    except OSError:
        return b""


@test("once/no-sandbox")
def none():
    a = box.once(wire.STATUS)[0]
    same(a.result["STATE"], 0, repr(a))
    a = box.once(wire.COMMAND, [("COMMAND", "true")], flags=2)[0]
    same(a.code, "no_sandbox")


@test("once/command")
def command():
    a = run("echo out; echo err >&2; cat | wc -c; pwd; id -u; exit 3",
            b"x" * 1000)
    same((a.stdout, a.stderr), (b"out\n1000\n/home/sandbox\n1000\n",
                                b"err\n"))
    same((a.result["EXIT_CODE"], a.outcome, a.result["CREATED"]),
         (3, "exit", 1))
    a = run("cat > big; wc -c < big; sha256sum < /dev/null | cut -c 1-4",
            os.urandom(20 << 20))
    same(a.stdout, b"%d\ne3b0\n" % (20 << 20))
    same(a.result["CREATED"], 0)
    a = run("seq 1 1000000", OUTPUT=4 << 20)
    check(a.stdout.startswith(b"1\n2\n") and a.stdout.endswith(b"1000000\n"),
          "output", a)
    check(len(a.stdout) > 4000000, "all of it", len(a.stdout))
    # nobody lives on: who is left running is ended with it
    a = run("(setsid sleep 9999 &) ; sleep 9998 & echo $UV_OFFLINE")
    same(a.stdout, b"1\n")
    nothing_left()
    a = run("sleep 9999", WALL_MS=300)
    same((a.outcome, a.result["EXIT_CODE"]), ("timeout", 124))
    nothing_left()


@test("once/known")
def known():
    """What was done once is answered by the next, and not done again."""
    for _ in range(2):
        a = run("echo x >> times; wc -l < times", COMMAND_ID="one")
        same(a.stdout, b"1\n")
    same(run("wc -l < times").stdout, b"1\n")
    a = box.once(wire.HISTORY, [("LIMIT", 10)])[0]
    check(b"echo x >> times" in a.data, "history", a)


@test("once/files")
def files():
    data = os.urandom(3 << 20)
    a = box.once(wire.FILE_WRITE, [("PATH", "a/b")], data)[0]
    same(a.result["STATUS"], 201, repr(a))
    a, text = box.once(wire.FILE_READ, [("PATH", "a/b")])
    check(a.data == data, "the same bytes", len(a.data))
    same(len(text) % 4, 0, "base64 of one piece")
    a = box.once(wire.FILE_READ, [("PATH", "a"), ("LIST", 1)])[0]
    check(b"b" in a.data, "list", a)
    run("echo a needle > a/hay")
    a = box.once(wire.FILE_SEARCH, [("PATH", "a"), ("PATTERN", "needle")])[0]
    same((a.error, a.data.count(b"needle")), (None, 1))
    a = box.once(wire.FILE_REMOVE, [("PATH", "a"), ("RECURSIVE", 1)])[0]
    same(a.error, None)
    # what the one before has written is known to the next
    same(run("head -c 40M /dev/zero > big").result["EXIT_CODE"], 0)
    a = box.once(wire.FILE_WRITE, [("PATH", "c")], bytes(30 << 20))[0]
    same(a.code, "disk_full", repr(a))
    run("rm big")
    a = box.once(wire.FILE_WRITE, [("PATH", "c")], bytes(1 << 20))[0]
    same(a.result["STATUS"], 201, repr(a))
    stage = b"\1\0\0\1" + bytes(16) + (3).to_bytes(8, "big") + b"f"
    head = [("COMMAND", "cat attachments/f"), ("STAGE", stage)]
    same(box.once(wire.COMMAND, head)[0].code, "stage_needed")
    same(box.once(wire.COMMAND, head + [("STDIN_BYTES", 0),
                                        ("STAGE_BODY", 0)], b"new"
                  )[0].stdout, b"new")
    same(box.once(wire.COMMAND, head)[0].stdout, b"new", "it is known")


@test("once/refused")
def refused():
    command = ("COMMAND", "touch /home/sandbox/broken-in")
    for operation, pairs in (
            (wire.COMMAND, [command, ("STREAM", 1)]),
            (wire.COMMAND, [command, ("DETACH", 1)]),
            (wire.COMMAND, [command, ("STDIN_OPEN", 1)]),
            (wire.ATTACH, [("COMMAND_ID", "one")]),
            (wire.STDIN, [("COMMAND_ID", "one"), ("STDIN_EOF", 1)])):
        a = box.once(operation, pairs)[0]
        same((a.code, a.error["STATUS"]), ("not_on_this_backend", 501))
    same(box.once(wire.COMMAND, [command, ("STREAM", 0)])[0].error, None)
    run("rm broken-in")
    other = wire.Preamble(wire.COMMAND, head=len(wire.fields(command)),
                          session=box.preamble({})["session"]
                          ).encode() + wire.fields(command)
    same(box.once(None, text=base64.b64encode(other))[0].code,
         "unauthorized_peer")
    text = base64.b64encode(box.request(wire.COMMAND, [command]))
    for bad in (b"%" + text, text[:40] + b"=" + text[40:], b"\0"):
        same(box.once(None, text=bad)[0].code, "bad_request")
    for cut in (b"", text[:100], text[:-8]):
        try:
            raise AssertionError(repr(box.once(None, text=cut)))
        except wire.Lost:
            pass
    same(run("ls broken-in 2>&1 | grep -c such").stdout, b"1\n")
    lines = b"\n".join(text[n:n + 76] for n in range(0, len(text), 76))
    same(box.once(None, text=lines + b"\n")[0].error, None)
    run("rm broken-in")


@test("once/one-after-the-other")
def order():
    """One waits for the other, and ends it not."""
    first = box.begin()
    text = base64.b64encode(box.request(wire.COMMAND, [
        ("COMMAND", "touch begun; until [ -e go ]; do sleep 0.05; done; "
                    "echo 1 >> log")]))
    first.stdin.write(text)
    first.stdin.flush()
    wait_for(lambda: os.path.exists(box.folder + "/home/begun"), 60, "begun")
    others = [box.begin() for _ in range(2)]
    text = base64.b64encode(box.request(wire.COMMAND, [
        ("COMMAND", "echo 2 >> log; cat log")]))
    for one in others:
        one.stdin.write(text)
        one.stdin.flush()
    with open(box.folder + "/home/go", "w"):
        pass
    same(box.ended(first, b"")[0].outcome, "exit")
    got = sorted(box.ended(one, b"")[0].stdout for one in others)
    same(got, [b"1\n2\n", b"1\n2\n2\n"])
    run("rm go log begun")


@test("once/nobody-waits")
def gone():
    """Whoever asked goes away, or says so: the command's tree ends."""
    text = base64.b64encode(box.request(wire.COMMAND, [
        ("COMMAND", "touch begun; (setsid sleep 9999 &); sleep 9998")]))
    for how in ("closed", "TERM"):
        process = box.begin()
        process.stdin.write(text)
        process.stdin.close()
        wait_for(lambda: os.path.exists(box.folder + "/home/begun"), 60,
                 "begun")
        if how == "closed":
            process.stdout.close()
        else:
            box.kill(process, "TERM")
            out = process.stdout.read()
            check(len(out) % 4 == 0, "base64", out)
            process.stdout.close()
        same(process.wait(120), 0, how)
        nothing_left()
        same(run("rm begun; echo on").stdout, b"on\n", how)


@test("once/and-a-service")
def service():
    """A service ends for it; and it for a service that is begun."""
    box.start()
    same(box.run("echo served").stdout, b"served\n")
    same(run("echo once").stdout, b"once\n")
    wait_for(lambda: box.process.poll() is not None, 60,
             "the end of the service")
    process = box.begin()
    process.stdin.write(base64.b64encode(box.request(wire.COMMAND, [
        ("COMMAND", "touch begun; sleep 9999")])))
    process.stdin.flush()
    wait_for(lambda: os.path.exists(box.folder + "/home/begun"), 60, "begun")
    box.start()
    same(box.ended(process, b"")[0].outcome, "runner_lost")
    same(box.run("echo served").stdout, b"served\n")
    box.kill(box.process)
    box.process.wait(60)


@test("once/fresh-and-the-end")
def fresh():
    before = box.once(wire.STATUS)[0].result
    a = box.once(wire.COMMAND, [("COMMAND", "ls; echo in")], flags=1)[0]
    check(b"times" not in a.stdout and a.stdout.endswith(b"in\n"), "fresh", a)
    check(a.result["INSTANCE"] > before["INSTANCE"], "instance", a.result)
    same(a.result["CREATED"], 1)
    b = box.once(wire.RESET)[0].result
    check(b["INSTANCE"] > a.result["INSTANCE"], "instance", b)
    a = box.once(wire.COMMAND, [("COMMAND", "true")],
                 instance=before["INSTANCE"])[0]
    same(a.code, "gone")
    same(box.once(wire.DELETE)[0].error, None)
    same(box.once(wire.STATUS)[0].result["STATE"], 0)
    same(sorted(os.listdir(box.folder + "/home")), [])
    nothing_left()


@test("once/pings")
def pings():
    """The one that began first took longer than a PING: it has none."""
    a = slow.ended(slow_process, b"")[0]
    same((a.stdout, a.pings), (b"late\n", 0))
    wait_for(lambda: not fence.inside(), 60, "the end of all of them")


main(start, stop)
