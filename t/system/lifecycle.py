#!/usr/bin/env python3
"""How sandboxes come and go: idle stops, who is stopped first, expiry, what
keeps one awake, draining, states of many; mostly a runner without nginx."""

import os
import select
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import Gateway, wait_for                        # noqa: E402
from hold import HOLD, held, let_go, let_go_of               # noqa: E402
from runner import Runner, session, tenant                   # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")

IDLE, RUNNING, NONE = (wire.STATES.index(s)
                       for s in ("idle", "running", "none"))
BIG = 32 << 20


def state(r, name):
    return r.call(wire.STATUS, name).result["STATE"]


def begin_read(r, name, path):
    """A client that has asked for a file and takes nothing of it yet."""
    sock = r.client.send(wire.FILE_READ, wire.fields(("PATH", path)),
                         session=session(name), tenant=tenant(name))
    sock.setsockopt(1, 8, 4096)             # SO_RCVBUF
    return sock


@test("lifecycle/open-transfer-is-not-idle")
def transfer_not_idle():
    with Runner("--pool", "1") as r:
        r.command("a", "head -c %d /dev/zero > big" % BIG)
        r.limits(IDLE_MS=500)
        with begin_read(r, "a", "big") as sock:
            begun(sock)
            time.sleep(4)       # longer than the runner believes it untold
            same(state(r, "a"), RUNNING, "while its client waits")
            answer = r.client.answer(sock)
        same(len(answer.data), BIG, "bytes of it")
        wait_for(lambda: state(r, "a") == IDLE, 15, "the stop after it")


@test("lifecycle/open-transfer-is-not-stopped-for-others")
def transfer_not_stopped():
    with Runner("--pool", "0", "--sandboxes", "1") as r:
        r.command("a", "head -c %d /dev/zero > big" % BIG)
        time.sleep(0.5)
        with begin_read(r, "a", "big") as sock:
            begun(sock)
            time.sleep(2.5)     # its agent has told of it, however busy it is
            for _ in range(8):
                time.sleep(0.15)
                answer = r.command("b", "true")
                same(answer.code, "at_capacity", "another one meanwhile")
            check(b" 1 sandboxes" in answer.error["DETAIL"], "what is full",
                  answer.error)
            same(len(r.client.answer(sock).data), BIG, "bytes of it")
        wait_for(lambda: r.command("b", "true").code is None, 10,
                 "room after it")
        same(r.command("a", "stat -c %s big").stdout, b"%d\n" % BIG)


def begun(sock):
    """What its answer begins with, which is left to be read."""
    while True:
        first = sock.recv(5, socket.MSG_PEEK | socket.MSG_WAITALL)
        if first[4:] != bytes([wire.PING_FRAME]):
            return first[4]
        wire.read_frame(sock)


def hung_up(socks):
    """Those whose other end is closed."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock, 0)
    return [fd for fd, events in poll.poll(0) if events & select.POLLHUP]


@test("lifecycle/stalled-clients-lock-nobody-out", seconds=300)
def stalled():
    """More clients than an agent serves, and none of them reads."""
    with Runner("--pool", "0") as r:
        r.command("a", "head -c %d /dev/zero > big" % BIG)
        socks, refused = [], []
        try:
            # one by one: a runner lets only so many wait for their agent
            for _ in range(540):
                sock = begin_read(r, "a", "big")
                (socks if begun(sock) == wire.HEAD else refused).append(sock)
            # where that took long, the first have gone for the last
            check(refused or hung_up(socks), "540 are served at once")
            for sock in refused:
                same(r.client.answer(sock).code, "too_many_pending")
            wait_for(lambda: r.command("a", "true").code is None, 60,
                     "room for those who do read")
            check(hung_up(socks), "no stalled one has gone")
            for _ in range(20):
                same(r.command("a", "echo in").stdout, b"in\n")
        finally:
            for sock in socks + refused:
                sock.close()
        same(r.command("a", "stat -c %s big").stdout, b"%d\n" % BIG)


@test("lifecycle/base-is-read-ahead")
def read_ahead():
    with Runner("--pool", "0", "--log-level", "info") as r:
        wait_for(lambda: " files of the base were read ahead" in r.text(), 60,
                 "its line in the log")
        line = [x for x in r.text().splitlines() if "read ahead" in x][0]
        check(int(line.split("info: ")[1].split()[0]) > 500, "few", line)


@test("lifecycle/background-is-not-idle")
def background_not_idle():
    """What a command leaves running, and one in the background, keep a
    sandbox awake until their own caps, and no longer."""
    with Runner("--pool", "1") as r:
        r.limits(IDLE_MS=500)
        for seconds in (4, 15, 60):
            begun = time.monotonic()
            r.command("left", "sleep %d > /dev/null 2>&1 & echo $!" % seconds)
            r.command("back", "sleep 100", detach=1, wall_ms=seconds * 1000)
            time.sleep(1.8)
            states = [state(r, n) for n in ("left", "back")]
            if time.monotonic() - begun < seconds - 0.5:
                break                   # they were asked in time
        same(states, [RUNNING] * 2)
        wait_for(lambda: [state(r, n) for n in ("left", "back")]
                 == [IDLE] * 2, 100, "both stops")


@test("lifecycle/least-recently-used-first")
def least_recently_used():
    with Runner("--pool", "0", "--sandboxes", "3", "--per-tenant", "2") as r:
        one = {"tenant": tenant("one")}
        r.command("old", "echo old > f")
        for name in ("a", "b"):
            r.command(name, "echo %s > f" % name, **one)
        r.command("a", "true", **one)           # now b is the older one
        same(r.command("c", "true", **one).code, None, "a third of a tenant")
        wait_for(lambda: state(r, "b") == IDLE, 10, "b gives way")
        same([state(r, n) for n in ("old", "a", "c")], [RUNNING] * 3)
        same(r.command("d", "true").code, None, "a fourth of the host")
        wait_for(lambda: state(r, "old") == IDLE, 10, "the oldest gives way")
        for name in ("b", "old"):
            same(r.command(name, "cat f", **(one if name == "b" else {}))
                 .stdout.strip(), name.encode(), "nothing is lost")


@test("lifecycle/expiry")
def expiry():
    with Runner("--pool", "1") as r:
        r.command("gone", "echo 1 > f", command_id="known")
        r.command("kept", "echo 1 > f")
        check("EXPIRES_MS" not in r.call(wire.STATUS, "gone").result,
              "expires without being told to")
        ends, ahead, slowest = [], [], [0]

        def used(expire):
            """Somebody comes back again and again, with small wishes."""
            r.limits(IDLE_MS=500, EXPIRE_MS=expire)
            end = time.monotonic() + 100
            del ends[:], ahead[:]
            slowest[0] = 0
            while time.monotonic() < end and state(r, "gone") != NONE:
                begun = time.monotonic()
                r.command("kept", "true", wall_ms=1000)
                ends.append(r.call(wire.STATUS, "kept").result["EXPIRES_MS"])
                ahead.append(ends[-1] - time.time() * 1000)
                time.sleep(0.3)
                state(r, "gone")
                slowest[0] = max(slowest[0], time.monotonic() - begun)

        for expire in (2500, 10000, 30000):
            used(expire)
            begun = time.monotonic()
            r.limits(EXPIRE_MS=0)
            slowest[0] += time.monotonic() - begun
            if slowest[0] * 1000 < expire - 1000:
                break                   # it was in time to be kept
            r.command("gone", "echo 1 > f", command_id="known")
            r.command("kept", "echo 1 > f")
        same(state(r, "gone"), NONE, "who never came back")
        same(ends, sorted(ends), "an end never comes nearer")
        check(max(ahead) > 1000, "the end", ahead)
        same(r.call(wire.ATTACH, "gone", wire.fields(("COMMAND_ID", "known")),
                    flags=wire.NO_CREATE).code, "no_sandbox")
        fresh = r.command("gone", "cat f")
        same((fresh.result["CREATED"], fresh.result["EXIT_CODE"]), (1, 1),
             "a fresh one, and it says so")
        same(r.command("kept", "cat f").stdout, b"1\n")
        wait_for(lambda: len(r.slots()) <= 3, 10, "its disk to be gone")
        check("nobody has used it" in r.text(), "a line of the log")


@test("lifecycle/expiry-not-while-busy")
def expiry_busy():
    """The silence of a long command is no disuse."""
    with Runner("--pool", "0") as r:
        r.limits(IDLE_MS=500, EXPIRE_MS=500)
        t = held(lambda: r.command("a", HOLD + "; echo done",
                                   wall_ms=200000))
        wait_for(lambda: r.limits()["RUNNING"] == 1, 60, "a command")
        for _ in range(5):
            time.sleep(0.5)
            same(state(r, "a"), RUNNING)
        let_go_of(r, "a")
        same(t.result().stdout, b"done\n")


@test("persistence/not-idle-while-running")
def not_idle():
    """Three idle periods without output and without a client."""
    with Gateway(pool=1, http="sandbox_zone sandbox:1m idle=1s;") as g:
        wait_for(lambda: "idle after 1 s" in g.runner_log, 15, "the limits")
        g.run("c", "true")
        try:
            g.command("c", HOLD + "; echo whole", commandId="silent",
                      timeout=2)
            raise AssertionError("it should have taken longer")
        except OSError:
            pass
        time.sleep(3)
        same(g.status("c")["state"], "running", "after three idle periods")
        let_go(g, "c")
        path = "v1/conversations/c/commands/silent"
        r = wait_for(lambda: (lambda r: r if r.json.get("outcome") else None)(
            g.request("GET", path)), 30, "its end")
        same((r.json["outcome"], r.json["stdout"]), ("exit", "whole\n"))
        wait_for(lambda: g.status("c")["state"] == "idle", 15, "the stop")
        same(g.run("c", "echo woken")["stdout"], "woken\n")


@test("persistence/ttl-not-shortened")
def ttl():
    """Whatever is asked for, and by how many: the end never moves nearer."""
    with Gateway(pool=1, http="sandbox_zone sandbox:1m idle=1h expire=2h;") \
            as g:
        wait_for(lambda: "removed after 7200 s" in g.runner_log, 15,
                 "the limits")
        g.run("c", "echo x > f")
        ends = [g.status("c")["expiresAt"]]

        def then(function):
            function()
            ends.append(g.status("c")["expiresAt"])
            time.sleep(0.05)

        for _ in range(2):
            then(lambda: g.run("c", "true", timeoutSeconds=1))
            then(lambda: g.run("c", "sleep 3", timeoutSeconds=1))
            then(lambda: g.request("GET", "v1/conversations/c/fs/f"))
            then(lambda: g.status("c"))
        same(ends, sorted(ends))
        check(ends[0] < ends[-1], "use puts it off", ends)
        same(g.status("c")["state"], "running")
        g.reload(http="sandbox_zone sandbox:1m idle=1h;")
        wait_for(lambda: "expiresAt" not in g.status("c"), 15,
                 "that there is no end any more")


@test("lifecycle/sessions")
def sessions():
    """States of many in one answer, a tenant's own ones only."""
    def ask(r, names, whose="t"):
        head = b"".join(wire.field("SESSION", session(n)) for n in names)
        answer = r.call(wire.SESSIONS, "", head, tenant=tenant(whose))
        if answer.code:
            return answer.code
        out, data = [], answer.data
        while data:
            size = struct.unpack_from(">I", data)[0]
            out.append(wire.unique(wire.read_fields(data[4:4 + size])))
            data = data[4 + size:]
        return out

    with Runner("--pool", "2") as r:
        own = {"tenant": tenant("t")}
        same(ask(r, ["none"]), [])
        same(ask(r, []), [])
        for name in "ab":
            r.command(name, "true", **own)
        r.command("other", "true")
        r.command("b", "sleep 1000 > /dev/null 2>&1 & true", **own)
        wait_for(lambda: ask(r, ["b"])[0]["BACKGROUND"] == 1, 10,
                 "what b left running")
        got = ask(r, ["none", "b", "other", "a"])
        same([g["SESSION"] for g in got], [session("b"), session("a")])
        same([g["STATE"] for g in got], [RUNNING] * 2)
        same([g["COMMANDS"] for g in got], [2, 1])
        check(abs(got[0]["CREATED_MS"] / 1000 - time.time()) < 60, "a time")
        same(len(ask(r, ["a"] * 1000)), 1000, "as many as may be asked for")
        same(ask(r, ["a"] * 1001), "bad_request")
        same(ask(r, ["a"], "other"), [], "somebody else asks")
        same(r.call(wire.SESSIONS, "", wire.field("SESSION", b"short"),
                    tenant=tenant("t")).code, "bad_request")
        r.call(wire.DELETE, "a")
        same([g["SESSION"] for g in ask(r, ["a", "b"])], [session("b")])

        # a client that takes nothing of a long answer holds nobody up
        with r.client.send(wire.SESSIONS, b"".join(
                wire.field("SESSION", session("b")) for _ in range(1000)),
                tenant=tenant("t")):
            same(r.command("b", "echo x", **own).stdout, b"x\n")


@test("lifecycle/drain", seconds=600)
def drain():
    for wall in (3000, 15000, 60000):
        if drained(wall):
            return              # what ends in time did so
    raise AssertionError("what ends in time was cut short")


def drained(wall):
    with Runner("--pool", "2") as r:
        r.command("idle", "echo kept > f")
        r.command("left", "sleep 1000 > /dev/null 2>&1 & true")
        short = held(lambda: r.command("short", HOLD + "; echo whole",
                                       wall_ms=200000))
        wait_for(lambda: r.limits()["RUNNING"] == 1, 10, "a command")
        home = "/proc/%s/root/home/sandbox/" % r.record("short")["pid"]

        answer = []
        t = threading.Thread(target=lambda: answer.append(r.call(
            wire.DRAIN, "", wire.fields(("WALL_MS", wall)))))
        t.start()
        wait_for(lambda: r.limits()["DRAINING"] == 1, 10, "a drain")
        refused = r.command("new", "true")
        same((refused.code, refused.error["RETRY_AFTER"]),
             ("runner_stopping", 30))
        same(r.command("idle", "true").code, "runner_stopping")
        same(r.call(wire.RESET, "left").code, "runner_stopping")
        try:
            with open(home + "go", "w"):
                pass
        except OSError:
            pass                # it was not in time
        t.join()
        try:
            whole = short.result().stdout == b"whole\n"
        except wire.Lost:
            whole = False
        same((answer[0].result["SANDBOXES"], answer[0].result["DRAINING"]),
             (3, 1))
        same(r.agents(), [], "agents")
        host = r.limits()
        same([host[n] for n in ("LIVE", "CREATING", "POOL", "RUNNING",
                                "QUEUED", "READY")], [0] * 6)
        same(r.call(wire.DELETE, "left").code, None, "DELETE goes on")

        same(r.call(wire.DRAIN, "", wire.fields(("DRAINING", 0)))
             .result["DRAINING"], 0)
        same(r.command("idle", "cat f").stdout, b"kept\n", "woken")
        wait_for(lambda: r.limits()["POOL"] == 2, 20, "the pool again")
        return whole


@test("lifecycle/drain-is-roots")
def drain_root():
    """nginx has the key, too, and may not."""
    with Runner("--pool", "0", "--peer-user", "www-data") as r:
        r.command("a", "true")
        os.chmod(r.dir, 0o711)
        os.chmod(r.socket, 0o666)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(33)
                os.setuid(33)
                code = r.call(wire.DRAIN).code
                os._exit(0 if code == "unauthorized_peer" else 1)
            finally:
                os._exit(2)
        same(os.waitpid(child, 0)[1], 0, "refused")
        same(r.limits()["DRAINING"], 0)
        same(state(r, "a"), RUNNING)


main()
