#!/usr/bin/env python3
"""The runner by itself: who may ask, run slots, limits, and every way in which
a runner can end and start again."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import loop_devices, mounts, wait_for           # noqa: E402
from hold import HOLD, held, let_go_of                       # noqa: E402
from runner import KEY, Runner, session, tenant, together    # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")


def states(answers):
    return [a if isinstance(a, Exception) else a.code or a.outcome
            for a in answers]


@test("runner/refusals")
def refusals():
    with Runner("--pool", "1") as r:
        c = r.client
        same(r.command("n", "true", flags=wire.NO_CREATE).code, "no_sandbox")
        same(r.command("n", "true", instance=5).code, "gone")
        same(r.command("n", "true", version=9).code, "version_mismatch")
        same(wire.Client(r.socket, bytes(32)).command("true").code,
             "unauthorized_peer")
        check("sandbox_runner_key" in r.text(), "the log says what to do")
        same(c.call(7).code, "bad_request")
        same(c.call(wire.STATUS, b"\0\1").code, "bad_request", "half a field")
        same(c.call(wire.PING, body=b"x").code, "bad_request", "a body")
        same(c.call(wire.PING, wire.fields(("IDLE_MS", 1))).code,
             "bad_request", "a limit out of bounds")
        same(c.call(wire.EGRESS, wire.fields(("EGRESS_DIGEST", bytes(32))),
                    b"x").code, "bad_request", "no table of policies")

        with c.connect() as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(200))
            same(c.answer(s).code, "bad_request", "HTTP")
        with c.connect() as s:
            s.sendall(b"SBXWIRE")
            same(c.answer(s).code, "slow_request", "half a preamble")

        # the reason arrives although the peer is still writing
        same(wire.Client(r.socket, bytes(32)).call(
            wire.COMMAND, b"", bytes(900 << 10)).code, "unauthorized_peer")
        same(r.limits()["SANDBOXES"], 0, "nothing was made for any of these")


@test("runner/pieces")
def pieces():
    with Runner("--pool", "1") as r:
        c = r.client
        head = wire.fields(("COMMAND", "echo pieces"))
        data = wire.Preamble(wire.COMMAND, key=KEY, session=session("p"),
                             head=len(head)).encode() + head
        for size in (2, 10, 47, 100, 127):
            with c.connect() as s:
                for i in range(0, 128, size):
                    s.sendall(data[i:min(i + size, 128)])
                    time.sleep(0.002)
                s.sendall(data[128:])
                same(c.answer(s).stdout, b"pieces\n", "by %d" % size)

        def late():
            """Of one who had no processor for 2 s; None: it was longer."""
            begun = time.monotonic()
            with c.connect() as s:
                time.sleep(2)
                try:
                    s.sendall(data)
                    answer = c.answer(s)
                except (OSError, wire.Lost) as error:
                    answer = error
                return answer if time.monotonic() - begun < 4.5 \
                    or states([answer]) == ["exit"] else None

        same(states([wait_for(late, 60, "2 s that are no more")]), ["exit"],
             "who is late on a busy host")

        before = len(os.listdir("/proc/%d/fd" % r.process.pid))
        for i in range(500):
            with c.connect() as s:
                s.sendall(data[:i % 140])
        same(r.command("p", "echo x").stdout, b"x\n", "after 500 hang-ups")
        wait_for(lambda: len(os.listdir("/proc/%d/fd" % r.process.pid))
                 <= before + 4, 60, "%d descriptors" % before)


@test("runner/peers")
def peers():
    with Runner("--pool", "0", "--peer-user", "www-data") as r:
        same(os.stat(r.socket).st_mode & 0o777, 0o600, "closed to others")
        os.chmod(r.socket, 0o666)
        os.chmod(r.dir, 0o755)

        def as_user(uid):
            ends = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                    a = r.command("p", "echo ok")
                    os.write(ends[1], (a.code or a.stdout.decode()).encode())
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            os.close(ends[1])
            with os.fdopen(ends[0]) as f:
                return f.read()

        same(as_user(65534), "unauthorized_peer", "nobody")
        same(as_user(33), "ok\n", "www-data")


@test("runner/run-slots")
def run_slots():
    with Runner("--running", "2", "--queue", "6", "--pool", "4") as r:
        names = ["a0", "a1", "a2", "a3", "a4", "b0"]
        together(*(lambda n=n: r.command(n, "true", tenant=tenant(n[0]))
                   for n in names))

        def begin(name, text):
            return held(lambda: r.command(name, text, tenant=tenant(name[0])))

        def counts():
            limits = r.limits()
            return [limits["RUNNING"], limits["QUEUED"]]

        def running():
            return [n for n in names if r.call(
                wire.STATUS, n, tenant=tenant(n[0])).result["RUNNING"]]

        jobs = []
        for i, name in enumerate(names):
            jobs.append(begin(name, HOLD))
            want = [min(i + 1, 2), max(i - 1, 0)]
            wait_for(lambda: counts() == want, 60, "two run, others wait")
        for name in names[:2]:
            let_go_of(r, name, name[0])
        wait_for(lambda: counts() == [2, 2] and len(running()) == 2, 60,
                 "the next two")
        check("b0" in running(), "another tenant is not last", running())
        for name in names[2:]:
            let_go_of(r, name, name[0])
        same(states([t.result() for t in jobs]), ["exit"] * 6)

        jobs = [begin("q%d" % i, HOLD) for i in range(2)]
        wait_for(lambda: counts() == [2, 0], 60, "two that run")
        more = [begin("q%d" % i, "true") for i in range(2, 14)]
        wait_for(lambda: sum(not t.is_alive() for t in more) == 6, 60,
                 "those for whom there is no room")
        for i in range(2):
            let_go_of(r, "q%d" % i, "q")
        same(sorted(states([t.result() for t in jobs + more])),
             ["at_capacity"] * 6 + ["exit"] * 8,
             "two run, six wait, the rest is told")
        wait_for(lambda: counts() == [0, 0], 60, "all given back")


def patient(function):
    """Its answer when there is room: who was just served is not stopped."""
    def answer():
        a = function()
        return a if a.code not in ("at_capacity", "too_many_sandboxes") \
            else None
    return wait_for(answer, 60, "room")


def beside_held(r, names, whose, function):
    """States of commands that run, and of what is asked for meanwhile."""
    jobs = [held(lambda name=name: patient(lambda: r.command(
        name, HOLD, tenant=tenant(whose or name)))) for name in names]
    wait_for(lambda: r.limits()["RUNNING"] == len(names), 60, "they run")
    answer = function()
    for name in names:
        let_go_of(r, name, whose)
    return states([t.result() for t in jobs] + [answer])


@test("runner/limits")
def limits():
    with Runner("--sandboxes", "4", "--per-tenant", "2") as r:
        one = {"tenant": tenant("one")}
        for name in "ab":
            r.command(name, "echo %s > f" % name, **one)
        same(patient(lambda: r.command("c", "true", **one)).outcome, "exit",
             "a third stops the least recently used")
        wait_for(lambda: r.call(wire.STATUS, "a").result["STATE"]
                 == wire.STATES.index("idle"), 10, "a is idle")
        same(r.command("a", "cat f", **one).stdout, b"a\n", "and wakes")

        busy = {"tenant": tenant("busy")}
        same(beside_held(r, ["d1", "d2"], "busy",
                         lambda: r.command("d3", "true", **busy)),
             ["exit", "exit", "too_many_sandboxes"])
        same(beside_held(r, ["x%d" % n for n in range(4)], None,
                         lambda: r.command("z", "true")),
             ["exit"] * 4 + ["at_capacity"])

        same(patient(lambda: r.command(
            "m", "python3 -c 'bytearray(200<<20)'; echo $?", memory=64))
             .stdout, b"137\n", "memory of the preamble")
        check(b"No space left" in patient(lambda: r.command(
            "n", "dd if=/dev/zero of=x bs=1M count=100 2>&1", disk=64)).stdout,
            "disk of the preamble")


@test("runner/many-containers")
def many_containers():
    """A runner makes any number of them: nothing of one that is gone stays,
    neither on the host nor in what only the runner sees."""
    with Runner("--pool", "0", "--log-level", "info") as r:

        def seen():
            """Control groups, in the runner's own mounts; and its mounts."""
            root = "/proc/%d/root/sys/fs/cgroup" % r.process.pid
            out = {os.path.relpath(top, root) + "/" + name
                   for top, names, _ in os.walk(root) for name in names
                   if r.group in top and name.isdigit()}
            with open("/proc/%d/mountinfo" % r.process.pid) as f:
                mounts = len(f.readlines())
            return ({n.split("/")[0] for n in out},
                    {n.rsplit("/", 1)[1] for n in out}, mounts,
                    len(os.listdir("/proc/%d/fd" % r.process.pid)))

        r.call(wire.RESET, "n", tenant=tenant("n"))
        wait_for(lambda: len(r.slots()) == 1, 20, "one slot")
        wait_for(lambda: len(seen()[1]) == 1, 20, "one group")
        wait_for(lambda: "of the base were read ahead" in r.text(), 60,
                 "the end of what it does at its start")
        first = seen()
        for _ in range(5):
            same(r.call(wire.RESET, "n", tenant=tenant("n")).code, None)
        wait_for(lambda: len(r.slots()) == 1, 20, "one slot again")
        wait_for(lambda: len(seen()[1]) == 1, 20, "one group again")
        wait_for(lambda: all(a <= b for a, b in zip(seen()[2:], first[2:])),
                 20, "%r mounts and descriptors, there are %r"
                 % (first[2:], seen()[2:]))


@test("runner/idle")
def idle():
    with Runner("--pool", "1") as r:
        r.limits(IDLE_MS=1000)
        a = r.command("i", "echo a > a; touch -d 2001-01-01 a; chmod 750 a; "
                      "ln -s a l; sleep 3")
        same(a.outcome, "exit", "a silent command is not idle")
        wait_for(lambda: r.call(wire.STATUS, "i").result["STATE"]
                 == wire.STATES.index("idle"), 10, "the stop")
        wait_for(lambda: r.record("i")["pid"] == "0", 10, "its record")
        b = r.command("i", "cat l; stat -c '%a %y' a | cut -c1-14")
        same(b.stdout, b"a\n750 2001-01-01\n", "woken with its files")
        same(b.result["INSTANCE"], a.result["INSTANCE"])
        same(b.result["CREATED"], 0)


@test("runner/term-leaves-int-stops")
def term_and_int():
    r = Runner(ephemeral=False)
    try:
        r.start()
        r.command("a", "echo 1 > f; sleep 1000 & true", wall_ms=1000000)
        r.command("b", "echo 2 > f")
        pid = r.record("a")["pid"]
        same(r.end(signal.SIGTERM), 0)
        same(len(r.agents()), 2, "two sandboxes and no pool")
        r.start()
        same(r.command("a", "cat f; pgrep -c sleep").stdout, b"1\n1\n",
             "taken over, with what it left running")
        same(r.record("a")["pid"], pid)
        same(r.end(signal.SIGINT), 0)
        same(r.left(slots=2), {}, "only files are kept")
        r.start()
        same(r.command("b", "cat f").stdout, b"2\n", "woken")
    finally:
        r.close()


def removed(folder):
    """A folder, whoever else makes and removes things there meanwhile."""
    def gone():
        shutil.rmtree(folder, ignore_errors=True)
        return not os.path.exists(folder)
    wait_for(gone, 60, "the end of " + folder)


@test("runner/unclean-end")
def unclean_end():
    """As after a power failure, with records that name foreign processes."""
    r = Runner(ephemeral=False)
    victim = subprocess.Popen(["sleep", "1000"])
    try:
        r.start()
        r.command("a", "echo 1 > f")
        r.kill()

        def dead():
            for pid in r.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass        # gone with its agent
            return not r.processes()
        wait_for(dead, 10, "the end of all")
        # who was making one for the pool lives on without his runner
        wait_for(lambda: not mounts(r.state) and not loop_devices(r.state),
                 60, "the end of what he mounted")
        removed("/run/sandbox/" + r.group[8:])

        with open("/proc/%d/stat" % victim.pid) as f:
            start = f.read().rpartition(")")[2].split()[19]
        for path in r.records():
            with open(path) as f:
                text = f.read()
            text = re.sub(r"(?m)^pid .*", "pid %d" % victim.pid, text)
            text = re.sub(r"(?m)^start .*", "start " + start, text)
            with open(path, "w") as f:
                f.write(text)
        os.makedirs(r.state + "/slots/900")
        with open(r.state + "/slots/900/record", "w") as f:
            f.write("sandbox-slot 1\nnumber 900\n")
        os.makedirs(r.state + "/slots/901/half-made")

        r.start()
        check(victim.poll() is None, "the process with that pid lives")
        same(r.command("a", "cat f").stdout, b"1\n", "files are there")
        wait_for(lambda: "901" not in r.slots(), 10, "the half-made one")
        check("900.damaged" in r.slots(), "an unreadable one is kept",
              r.slots())
        shutil.rmtree(r.state + "/slots/900.damaged")
    finally:
        victim.kill()
        victim.wait()
        r.close()


@test("runner/killed-in-the-middle")
def killed_in_the_middle():
    r = Runner(ephemeral=False)
    try:
        r.start()
        r.command("a", "echo 1 > f")
        makers = threading.Thread(target=together, args=[
            lambda i=i: r.command("z%d" % i, "true") for i in range(10)])
        makers.start()
        time.sleep(0.08)
        s = r.client.send(wire.DELETE, session=session("a"))
        wait_for(lambda: r.record("a") is None, 10, "the tombstone")
        r.kill()
        makers.join()
        s.close()
        r.start()
        a = r.command("a", "ls")
        check(b"f\n" not in a.stdout and a.result["CREATED"] == 1,
              "the deletion was finished", a)

        # the state is removed below living containers
        r.kill()
        check(r.agents(), "some live")
        before = set(r.agents())
        removed(r.state)
        r.start()
        wait_for(lambda: not before & set(r.agents()), 20, "their end")
        same(r.end(signal.SIGINT, signal.SIGINT, signal.SIGTERM), 0,
             "a second signal does not stop the clearing up")
        same(r.left(), {})
    finally:
        r.close()


@test("runner/interrupted-start")
def interrupted_start():
    for ms in (0, 20, 50, 80, 120, 200):
        r = Runner()
        r.process = subprocess.Popen(r.command_line(),
                                     stderr=subprocess.DEVNULL)
        time.sleep(ms / 1000)
        r.process.send_signal(signal.SIGINT)
        r.process.wait(150)
        r.close()


@test("runner/two-runners")
def two_runners():
    with Runner("--pool", "1") as a:
        b = Runner("--pool", "1")
        b.state, state = a.state, b.state
        done = subprocess.run(b.command_line(), stderr=subprocess.PIPE)
        same(done.returncode, 1, "not two with one state")
        check(b"another sandbox-runner uses" in done.stderr, "why",
              done.stderr)
        b.state = state
        with b:
            a.command("x", "echo a > f")
            b.command("x", "echo b > f")
            same(a.command("x", "cat f").stdout, b"a\n")
            check(a.record("x")["ids"] != b.record("x")["ids"],
                  "no id range twice")
        same(a.command("x", "cat f").stdout, b"a\n", "after the other's end")


@test("runner/passed-socket")
def passed_socket():
    """A client that comes while no runner is there waits for the next one."""
    r = Runner(ephemeral=False)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(r.socket)
        listener.listen(100)
        r.passed = listener.fileno()
        r.start()
        r.command("l", "echo l > l")
        r.end(signal.SIGTERM)
        out = []
        t = threading.Thread(
            target=lambda: out.append(r.command("l", "cat l")))
        t.start()
        time.sleep(0.5)
        check(not out, "it waits")
        r.start()
        t.join()
        same(out[0].stdout, b"l\n")
    finally:
        listener.close()
        if r.process.poll() is None:
            r.end()
        os.unlink(r.socket)
        r.passed = None
        r.close()


@test("runner/stopped-agent")
def stopped_agent():
    with Runner() as r:
        r.command("s", "true")
        pid = int(r.record("s")["pid"])
        os.kill(pid, signal.SIGSTOP)
        sockets = [r.client.send(wire.COMMAND, wire.fields(
            ("COMMAND", "true"), ("PENDING", 5)), session=session("s"))
            for _ in range(300)]
        same(r.command("other", "echo x").stdout, b"x\n",
             "others are served meanwhile")
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass                # all of that took long, and it has a successor
        out = []
        for s in sockets:
            out.append(r.client.answer(s))
            s.close()
        check(set(states(out)) <= {"exit", "too_many_pending"},
              "all are answered", set(states(out)))
        check(states(out).count("exit") >= 5, "some have run")


@test("runner/silent-agent")
def silent_agent():
    """What it does not take goes to its successor, in order."""
    with Runner("--pool", "1") as r:
        r.command("s", "echo kept > f; echo > order")
        r.command("busy", "true")
        before = r.record("s")["pid"]
        os.kill(int(before), signal.SIGSTOP)
        sockets = []
        for i in range(5):
            sockets.append(r.client.send(wire.COMMAND, wire.fields(
                ("COMMAND", "cat f; echo %d >> order" % i), ("PENDING", 10)),
                session=session("s"), tenant=tenant("s")))
            time.sleep(0.02)
        same(r.command("busy", "echo x").stdout, b"x\n", "others work")
        answers = []
        for s in sockets:
            answers.append(r.client.answer(s))
            s.close()
        same(states(answers), ["exit"] * 5)
        same({a.stdout for a in answers}, {b"kept\n"}, "with their files")
        same(r.command("s", "cat order").stdout.split(),
             [b"%d" % i for i in range(5)], "each once, in order")
        check(r.record("s")["pid"] != before, "it is another one")
        check("takes no connections" in r.text(), "the log says why")
        same(r.limits()["RUNNING"], 0, "no run slot is lost")
        same(r.limits()["QUEUED"], 0, "nothing waits")


@test("runner/reset-of-a-stopped-one")
def reset_stopped():
    with Runner("--per-tenant", "1", "--pool", "0") as r:
        one = {"tenant": tenant("one")}
        r.command("a", "echo a > f", **one)
        same(patient(lambda: r.command("b", "true", **one)).outcome, "exit")
        wait_for(lambda: r.call(wire.STATUS, "a").result["STATE"]
                 == wire.STATES.index("idle"), 10, "a is stopped")
        same(beside_held(r, ["b"], "one",
                         lambda: r.call(wire.RESET, "a", **one)),
             ["exit", "too_many_sandboxes"])
        same(patient(lambda: r.command("a", "cat f", **one)).stdout, b"a\n",
             "a RESET that was refused has removed nothing")


@test("runner/no-room")
def no_room():
    """What is free is less than what must stay free: a runner does not start,
    but for the sandboxes that there are."""
    r = Runner("--pool", "0")
    os.makedirs(r.state)
    free = shutil.disk_usage(r.state).free >> 20
    reserve = ["--reserve", str(min(free * 2, 1048576))]
    try:
        done = subprocess.run(r.command_line() + reserve,
                              stderr=subprocess.PIPE)
        same(done.returncode, 1)
        check(b"MiB are free below" in done.stderr, "why", done.stderr)

        r.ephemeral = False
        r.start()
        r.command("a", "echo a > f")
        same(r.end(signal.SIGTERM), 0)
        r.options += reserve
        r.start()
        check("none is made or woken" in r.text(), "why", r.text())
        same(r.command("a", "cat f").stdout, b"a\n", "what lives")
        same(r.command("b", "true").code, "disk_full", "what is new")
        r.options = r.options[:2]
    finally:
        r.close()


@test("runner/probe")
def probe():
    r = Runner()
    r.start()
    r.end()
    line = r.command_line() + ["--probe"]
    done = subprocess.run(line, stdout=subprocess.PIPE)
    same(done.returncode, 0)
    check(b"ran a command in a sandbox" in done.stdout, "says so", done.stdout)
    for option, value, words in (("--agent", "/bin/true", b"FAIL agent"),
                                 ("--base", "/nonexistent", b"make base"),
                                 ("--runtime", "/nonexistent",
                                  b"FAIL runtime")):
        wrong = list(line)
        if option in wrong:
            wrong[wrong.index(option) + 1] = value
        else:
            wrong += [option, value]
        done = subprocess.run(wrong, stdout=subprocess.PIPE)
        same(done.returncode, 1, option)
        check(words in done.stdout, option, done.stdout)
    r.close()


@test("runner/runtime-that-does-not-delete")
def no_delete():
    """What the runtime leaves of a dead container is removed all the same."""
    r = Runner("--pool", "0")
    script = r.dir + "/crun"
    with open(script, "w") as f:
        f.write("#!/bin/sh\ncase \"$*\" in *' delete '*) exit 1;; esac\n"
                "exec crun \"$@\"\n")
    os.chmod(script, 0o755)
    r.options += ["--runtime", script]
    with r:
        same(r.command("a", "echo hi").stdout, b"hi\n")
        same(r.call(wire.DELETE, "a").code, None)


if __name__ == "__main__":
    main()
