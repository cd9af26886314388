#!/usr/bin/env python3
"""kill -9 of the runner before the n-th change that it makes to the host while
it starts, makes a sandbox, wakes one, stops, replaces or deletes it.  The next
runner finds all of it: no mount, loop device, control group, folder, process,
id range or run slot stays, and no file is lost.

Each time other moments, a few of them; SANDBOX_CRASH_ALL=1 takes all.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import alive, cgroup_folders, die_with_parent   # noqa: E402
from gateway import loop_devices, mounts, wait_for           # noqa: E402
from kill_at import STEPS, KillAt, points                    # noqa: E402
from runner import Runner, tenant                            # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")

ALL = bool(os.environ.get("SANDBOX_CRASH_ALL"))
MOST = 3                                # deaths of each kind, in a short run
LONG = 3000 if ALL else 900
r = None
nothing = None


def start():
    global r, nothing
    r = Runner("--pool", "0", ephemeral=False)
    r.start()
    nothing = wait_for(settled, 30, "the end of the start")


def stop():
    r.close()


def host():
    """All that a sandbox needs of the host, by name."""
    groups = [os.path.join(top, name) for folder in cgroup_folders(r.group)
              for top, names, _ in os.walk(folder) for name in names
              if name.isdigit()]
    with open("/run/sandbox/ranges", "rb") as f:
        ranges = f.read()
    own = r.owner.to_bytes(8, "little")
    runtime = "/run/sandbox/" + r.group[8:]
    return {
        "slots": r.slots(), "processes": len(r.processes()),
        "groups": groups, "loops": loop_devices(r.state),
        # the runner has its own, and two when it was just copied
        "mounts": [m for m in mounts(r.state) if "disk.img" in m
                   or "/slots/" in m],
        "ranges": sum(ranges[i:i + 8] == own
                      for i in range(0, len(ranges), 8)),
        "runtime": sorted(os.listdir(runtime)
                          + os.listdir(runtime + "/oci")),
        "templates": [n for n in os.listdir(r.state + "/templates")
                      if not n.endswith(".img")],
    }


def settled():
    """What there is without a sandbox, once that of the start has gone."""
    one = host()
    return None if any(one[what] for what in one if what != "runtime") \
        or one != host() else one


def ask(function, *arguments, **fields):
    """An Answer; None when the runner or the agent was lost."""
    try:
        return function(*arguments, **fields)
    except (OSError, wire.Lost):
        return None


def done(answer):
    return answer is not None and answer.code is None


def state(name):
    return wire.STATES[r.call(wire.STATUS, name).result["STATE"]]


def again():
    """A runner after the one that died."""
    wait_for(lambda: not alive(r.process.pid), 30, "its death")
    r.process.wait()
    r.start()


def clean():
    """Nothing is left of anything, and all run slots are there."""
    last = {}

    def empty():
        last.update(host())
        return last == nothing
    try:
        wait_for(empty, 60, "an empty host")
    except AssertionError as error:
        raise AssertionError("%s: %r instead of %r, the log: %s" % (
            error, last, nothing, r.text()[-3000:])) from None
    numbers = r.limits()
    same((numbers["RUNNING"], numbers["QUEUED"], numbers["SANDBOXES"]),
         (0, 0, 0), "of the host")


def deaths(what, prepare, act, after):
    """act() in peace, then with a death before some of its calls."""
    prepare()
    with KillAt(r.process.pid, 0, STEPS) as k:
        answer = act()
    after(answer, None)
    clean()
    numbers = points(k.calls)
    check(len(numbers) > 3, "so few calls of", what, k.calls)
    if not ALL and len(numbers) > MOST:
        numbers = sorted(random.sample(numbers, MOST))
    names = []
    for n in numbers:
        prepare()
        with KillAt(r.process.pid, n, STEPS) as k:
            answer = act()
        if k.killed:
            names.append("%d:%s" % (n, k.killed))
            again()
        after(answer, k.killed)
        clean()
    print("# %s: %d of %d calls: %s" % (what, len(names), len(k.calls),
                                        " ".join(names)))


def one():
    return ask(r.command, "a", "echo kept > f; cat f")


def gone():
    """It is deleted, whatever there was."""
    for _ in range(2):
        answer = r.call(wire.DELETE, "a", tenant=tenant("a"))
        if answer.code is None:
            return
    check(False, "not deleted:", answer)


def asleep():
    """A sandbox with a file, that has been stopped."""
    same(one().stdout, b"kept\n")
    pid = int(r.record("a")["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: state("a") == "idle" and r.record("a")["pid"] == "0",
             30, "the stop")


def kept(name="a"):
    a = r.command(name, "cat f")
    same((a.code, a.stdout), (None, b"kept\n"), "its file, %r" % a)


@test("crash/runner-while-creating", seconds=LONG)
def creating():
    def after(answer, killed):
        if done(answer):
            same(answer.stdout, b"kept\n", "answered")
            kept()
        else:
            # it was not started, or it was: the history knows
            check(r.command("a", "cat f || echo none").stdout
                  in (b"kept\n", b"none\n"), "not usable")
        gone()
    deaths("creating", lambda: None, one, after)


@test("crash/runner-while-waking", seconds=LONG)
def waking():
    def after(answer, killed):
        if done(answer):
            same(answer.stdout, b"kept\n", "answered")
        kept()
        gone()
    deaths("waking", asleep, lambda: ask(r.command, "a", "cat f"), after)


@test("crash/runner-while-stopping", seconds=LONG)
def stopping():
    """Its agent has died, it is taken apart; then it is woken."""
    def prepare():
        same(one().stdout, b"kept\n")

    def act():
        pid = r.process.pid
        os.kill(int(r.record("a")["pid"]), signal.SIGKILL)
        wait_for(lambda: not alive(pid)
                 or r.record("a") and r.record("a")["pid"] == "0", 30,
                 "the stop")

    def after(answer, killed):
        kept()
        gone()
    deaths("stopping", prepare, act, after)


@test("crash/runner-while-deleting", seconds=LONG)
def deleting():
    def prepare():
        same(one().stdout, b"kept\n")

    def after(answer, killed):
        if done(answer):
            same(state("a"), "none", "what was answered")
        elif state("a") != "none":
            kept()
            gone()
    deaths("deleting", prepare, lambda: ask(
        r.call, wire.DELETE, "a", tenant=tenant("a")), after)


@test("crash/runner-while-replacing", seconds=LONG)
def replacing():
    """A RESET: the old one with its file, or the new one without."""
    def prepare():
        same(one().stdout, b"kept\n")

    def after(answer, killed):
        a = r.command("a", "cat f || echo none")
        check(a.stdout == b"none\n" or not done(answer)
              and a.stdout == b"kept\n", "got", answer, a)
        gone()
    deaths("replacing", prepare, lambda: ask(
        r.call, wire.RESET, "a", tenant=tenant("a")), after)


@test("crash/runner-while-running", seconds=LONG)
def running():
    """Commands run, wait and are answered; each runs once at most, those that
    were answered exactly once."""
    answers, threads = {}, []

    def prepare():
        answers.clear()
        same(r.command("a", "touch log").code, None)

    def act():
        def command(n):
            answers[n] = ask(r.command, "a", "echo %d >> log" % n)
        threads[:] = [threading.Thread(target=command, args=(n,))
                      for n in range(4)]
        for t in threads:
            t.start()
        # who waits for a run slot waits for the next runner
        wait_for(lambda: not alive(r.process.pid)
                 or not any(t.is_alive() for t in threads), 60, "answers")

    def after(answer, killed):
        for t in threads:
            t.join(200)
            check(not t.is_alive(), "a client still waits")
        a = r.command("a", "cat log")
        same((a.code, a.outcome), (None, "exit"), repr(a))
        log = a.stdout.split()
        same(len(log), len(set(log)), "each once")
        for n, a in answers.items():
            if done(a):
                check(b"%d" % n in log, "answered and lost", n, log)
            elif killed is None:
                check(False, "refused", a)
        gone()
    deaths("running", prepare, act, after)


@test("crash/runner-restarted-while-busy", seconds=LONG)
def busy():
    """SIGTERM, at any moment, while sandboxes are made, woken, replaced,
    deleted and used, and then another runner."""
    old = ("runs", "wakes", "goes", "resets")
    for _ in range(20 if ALL else 2):
        for name in old:
            same(r.command(name, "echo kept > f").code, None)
        pid = int(r.record("wakes")["pid"])
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: r.record("wakes")["pid"] == "0", 30, "the stop")

        jobs = {
            "runs": lambda: r.command("runs", "sleep 0.2; echo 1 >> log"),
            "wakes": lambda: r.command("wakes", "cat f"),
            "goes": lambda: r.call(wire.DELETE, "goes",
                                   tenant=tenant("goes")),
            "resets": lambda: r.call(wire.RESET, "resets",
                                     tenant=tenant("resets")),
            "new": lambda: r.command("new", "echo new"),
        }
        answers = {}
        threads = [threading.Thread(target=lambda n=n: answers.update(
            {n: ask(jobs[n])})) for n in jobs]
        for t in threads:
            t.start()
        time.sleep(random.random() / 3)
        same(r.end(signal.SIGTERM), 0)
        r.start()
        for t in threads:
            t.join(200)
            check(not t.is_alive(), "a client still waits")

        a = r.command("runs", "cat log")
        lines = len(a.stdout.split())
        check(lines == 1 or lines == 0 and not done(answers["runs"]),
              "what ran", lines, answers["runs"], a)
        for name in ("runs", "wakes"):
            kept(name)
        if done(answers["goes"]):
            same(state("goes"), "none", "what was answered")
        a = r.command("resets", "cat f || echo none").stdout
        check(a == b"none\n" or a == b"kept\n"
              and not done(answers["resets"]), "replaced", a)
        if done(answers["wakes"]):
            same(answers["wakes"].stdout, b"kept\n")
        for name in old + ("new",):
            same(r.call(wire.DELETE, name, tenant=tenant(name)).code, None)
        clean()


@test("crash/runner-while-starting", seconds=LONG)
def starting():
    """The probe's own sandbox, and one that is taken over meanwhile."""
    first = one()
    same(first.stdout, b"kept\n")
    pid = r.record("a")["pid"]

    def begin():
        """A runner that waits, so that whoever traces it misses nothing."""
        with open(r.log, "ab") as out:
            r.process = subprocess.Popen(
                ["bash", "-c", "read -r && exec \"$@\" < /dev/null", "begin"]
                + r.command_line(), stdin=subprocess.PIPE, stdout=out,
                stderr=out, start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGINT))

    def ready(size):
        with open(r.log) as f:
            f.seek(size)
            return "sandbox-runner: ready" in f.read() \
                or not alive(r.process.pid)

    names, calls = [], 0
    for n in [0] + [None] * (40 if ALL else 4):
        r.kill()
        size = os.path.getsize(r.log)
        begin()
        if n is None:
            n = random.randrange(1, calls)
        with KillAt(r.process.pid, n, STEPS) as k:
            with r.process.stdin as go:
                go.write(b"\n")
            wait_for(lambda: ready(size), 60, "the start, or its end")
        calls = max(calls, len(k.calls))
        if k.killed:
            names.append("%d:%s" % (n, k.killed))
            again()
        kept()
        same(r.record("a")["pid"], pid, "the same agent")
    gone()
    clean()
    print("# starting: %d calls, %s" % (calls, " ".join(names)))


if __name__ == "__main__":
    main(start, stop)
