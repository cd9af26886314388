#!/usr/bin/env python3
"""Ways to hide a process from a time-out or a cancel: t/attack/hide has one
script each.  None may survive, seen from inside and from the host.

A script makes the file $HIDE_READY when it has hidden what it hides, and
returns; what goes on has $HIDE_MARK in its environment if it was left there.
Each is run three ways: into a time-out, into a cancel, and left behind by a
command that ends at once, until that command's wall clock.
"""

import base64
import collections
import glob
import io
import json
import os
import sys
import tarfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import (Gateway, cgroup_folders, cgroup_of,    # noqa: E402
                     in_namespace, pid_namespace, wait_for)
from tap import check, main, same, short, test                     # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__)) + "/hide"
FILES = sorted(os.path.basename(p) for p in glob.glob(HERE + "/*.*")
               if not p.endswith(".h"))
START = {"sh": "bash hide/%s.sh", "py": "python3 hide/%s.py", "c": "hide/%s"}
MARK = "hidden-%d" % os.getpid()
C = "hide"
HOLD = "; sleep 9999 & wait"

# which need the whole sandbox, so only one of them at a time
CROWDS = ("fork_bomb", "fork_on_signal", "chain", "heavy")

# and those that stop what runs beside them

STOPPERS = ("signals_all", "stop_shell")

# seconds that a trick has for its hiding, the next where that was too short

BUSY = (1, 5, 20, 60)

g = agent = space = groups = None
rows = collections.OrderedDict()
over = []                       # durationMs - time-out
late = []                       # the client's clock - time-out
cancels = []                    # ms of DELETE


# What is alive, from the host.  A process whose first thread has ended is
# shown as a zombie, so all threads are looked at.

def living(pid):
    try:
        for tid in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/stat" % (pid, tid)) as f:
                if f.read().rpartition(")")[2].split()[0] not in "ZX":
                    return True
    except OSError:
        pass
    return False


def hidden():
    return [p for p in in_namespace(space) if p != agent and living(p)]


def grouped():
    """Pids in the control groups of this sandbox, in each hierarchy."""
    out = set()
    for top in groups:
        for folder, _, _ in os.walk(top):
            try:
                with open(folder + "/cgroup.procs") as f:
                    out.update(int(line) for line in f)
            except OSError:
                pass
    return out - {agent}


def tasks():
    """How many there are beside the agent, zombies too, by the kernel's own
    count: a list of those that live for microseconds is mostly empty."""
    for top in groups:
        try:
            with open(top + "/pids.current") as f:
                return int(f.read()) - 1
        except OSError:
            pass
    return len(hidden())


def describe(pids):
    out = []
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid) as f:
                stat = f.read()
            with open("/proc/%d/cmdline" % pid) as f:
                line = f.read().replace("\0", " ")
            with open("/proc/%d/cgroup" % pid) as f:
                group = f.read().split()[-1]
            out.append("%s... %s in %s" % (stat[:40], line[:80], group))
        except OSError:
            pass
    return short("; ".join(out) or "nothing")


def environment(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as f:
            return f.read()
    except OSError:
        return b""


def gone(what, seconds=100.0):
    """None is left; the time it took to see that, in ms."""
    begin = time.monotonic()
    while hidden() or tasks():
        check(time.monotonic() < begin + seconds, what, describe(hidden()),
              tasks())
        time.sleep(0.002)
    took = (time.monotonic() - begin) * 1000
    wait_for(lambda: not grouped(), 60, "%s an empty control group (%s)"
             % (what, describe(grouped())))
    return took


# And from inside: every process but the first and those of this command, and
# the mark in what can be read of any.

LOOK = r"""
read -r mark
for p in /proc/[0-9]*; do
    case ${p#/proc/} in 1|$$) continue ;; esac
    echo "${p#/proc/} $(tr '\0' ' ' < "$p/cmdline")"
done 2> /dev/null
grep -la "$mark" /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null
true
"""


def nothing_inside(what):
    r = g.run(C, LOOK, stdin=MARK + "\n")
    same((r["outcome"], r["stdout"]), ("exit", ""), what + ", from inside")


# One trick

def words(name):
    trick, _, kind = name.rpartition(".")
    return trick, START[kind] % trick


def ready_path(trick):
    return "/tmp/ready-" + trick


def is_ready(trick):
    return os.path.exists("/proc/%d/root%s" % (agent, ready_path(trick)))


class Attempt(threading.Thread):
    """The command, in a thread, and its Response."""

    def __init__(self, trick, text, **fields):
        super().__init__(daemon=True)
        self.trick = trick
        self.text = "rm -f %s; %s" % (ready_path(trick), text)
        self.fields = dict(fields, env={"HIDE_READY": ready_path(trick),
                                        "HIDE_MARK": MARK})
        self.response = None
        try:
            os.unlink("/proc/%d/root%s" % (agent, ready_path(trick)))
        except OSError:
            pass
        self.start()

    def run(self):
        begin = time.monotonic()
        self.response = g.command(C, self.text, **self.fields)
        self.seconds = time.monotonic() - begin

    def hide(self):
        """Waits until it has hidden; how many processes there were."""
        while self.is_alive() and not is_ready(self.trick):
            time.sleep(0.005)
        return tasks()

    def result(self):
        self.join(200)
        check(self.response is not None, "no answer within 200 s")
        same(self.response.status, 200, repr(self.response))
        return self.response.json


def into_timeout(name):
    trick, start = words(name)

    # a machine that is busy may need more than a second for the hiding, or
    # for us to look at it

    for seconds in BUSY:
        attempt = Attempt(trick, start + HOLD, timeoutSeconds=seconds)
        count = attempt.hide()
        r = attempt.result()
        took = gone("%s survives a time-out:" % trick)
        if r["outcome"] == "timeout" and is_ready(trick) and count > 1 \
                and (trick != "chain" or r["cpuMs"] > 200):
            break

    same((r["outcome"], r["timedOut"], r["exitCode"]),
         ("timeout", True, 124), trick)
    check(is_ready(trick) and count > 1, trick, "has hidden nothing", r)
    nothing_inside("%s survives a time-out" % trick)
    check(trick != "chain" or r["cpuMs"] > 200, "no chain", r)

    over.append((r["durationMs"] - seconds * 1000, trick))
    late.append(((attempt.seconds - seconds) * 1000 - r["queuedMs"], trick))
    rows[trick] = ["%d" % count, "%+d" % over[-1][0], "%+.0f" % late[-1][0],
                   "%.0f" % took, "-"]


def into_cancel(name):
    trick, start = words(name)
    command = "cancel-" + trick
    attempt = Attempt(trick, start + HOLD, timeoutSeconds=100,
                      commandId=command)
    count = attempt.hide()
    check(is_ready(trick) and count > 1, trick, "has hidden nothing",
          attempt.response)

    begin = time.monotonic()
    r = g.request("DELETE", "v1/conversations/%s/commands/%s" % (C, command))
    took = (time.monotonic() - begin) * 1000
    check(r.status in (200, 204), "cancel:", r)
    gone("%s survives a cancel:" % trick)
    r = attempt.result()
    same(r["outcome"], "cancelled", trick)
    nothing_inside("%s survives a cancel" % trick)

    cancels.append((took, trick))
    rows.setdefault(trick, ["-"] * 5)[4] = "%.0f" % took


def leave(name, least):
    """Leaves it running; before that time its wall clock does not end it."""
    trick, start = words(name)
    for seconds in [s for s in BUSY if s >= least]:
        end = time.monotonic() + seconds
        r = Attempt(trick, start, timeoutSeconds=seconds).result()
        check(r["outcome"] in ("exit", "timeout"), trick, r)
        if r["backgroundProcesses"] > 0 or trick in STOPPERS + ("chain",):
            return end
    raise AssertionError("%s left nothing: %r" % (trick, r))


def left_behind(names, seconds):
    """The commands end at once and leave all of it running; the wall clock
    of each ends its own."""
    for name in names:
        end = leave(name, seconds)
    check(tasks() or time.monotonic() > end, "nothing was left to end")
    gone("the wall clock ends what was left:")
    nothing_inside("what was left")


def outcome(command):
    """Of a command whose processes have gone."""
    def ended():
        r = g.request("GET", "v1/conversations/%s/commands/%s" % (C, command))
        same(r.status, 200, repr(r))
        return r.json.get("outcome")
    return wait_for(ended, 60, "the outcome of " + command)


def make(name):
    trick = words(name)[0]

    @test("hide/timeout/" + trick, seconds=60)
    def timeout():
        into_timeout(name)

    @test("hide/cancel/" + trick, seconds=60)
    def cancel():
        into_cancel(name)


for file in FILES:
    make(file)


@test("hide/left-behind", seconds=900)
def left_at_once():
    left_behind([f for f in FILES if words(f)[0] not in CROWDS
                 + STOPPERS], 5)


@test("hide/left-behind-crowds", seconds=900)
def left_alone():
    for name in FILES:
        if words(name)[0] in CROWDS + STOPPERS:
            left_behind([name], 1)


@test("hide/hang-up", seconds=60)
def hang_up():
    """A client that wants it so goes away, and with it the tree."""
    for name in FILES:
        trick, start = words(name)
        if trick not in ("chain", "leader_gone", "vfork", "respawner",
                         "traced", "pipe_holder", "traps"):
            continue
        ready = "/proc/%d/root%s" % (agent, ready_path(trick))
        if os.path.exists(ready):
            os.unlink(ready)
        client = g.connect()
        body = json.dumps({
            "command": start + HOLD, "onDisconnect": "cancel",
            "commandId": "up-" + trick,
            "env": {"HIDE_READY": ready_path(trick), "HIDE_MARK": MARK}})
        client.request("POST", "/sandbox/v1/conversations/%s/commands" % C,
                       body, g.headers("", body, None))
        wait_for(lambda: os.path.exists(ready), 10, trick)
        check(tasks() > 1, trick, "has hidden nothing")
        client.close()
        wait_for(lambda: not tasks(), 10, "the end of " + trick)
        gone("%s survives a hang-up:" % trick)
        nothing_inside("%s survives a hang-up" % trick)
        same(outcome("up-" + trick), "cancelled", trick)


@test("hide/background", seconds=60)
def background():
    """Beside each other, in the background: the tree of each goes by itself,
    half of them by a cancel and half by the background's wall clock."""
    names = [f for f in FILES if words(f)[0] not in CROWDS + STOPPERS][:14]
    begun = time.monotonic()
    for name in names:
        trick, start = words(name)
        fields = {"timeoutSeconds": 8} if name in names[:len(names) // 2] \
            else {}
        attempt = Attempt(trick, start + HOLD, background=True,
                          commandId="back-" + trick, **fields)
        attempt.join(200)
        same(attempt.response.status, 202, repr(attempt.response))
    for name in names[len(names) // 2:]:
        trick = words(name)[0]
        r = g.request("DELETE", "v1/conversations/%s/commands/back-%s"
                      % (C, trick))
        same((r.status, r.json["outcome"]), (200, "cancelled"), trick)
        left = [p for p in hidden() if ready_path(trick).encode()
                in environment(p)]
        same(describe(left), "nothing", "%s survives:" % trick)
    check(tasks() or time.monotonic() - begun > 7,
          "all have gone, also those that were not cancelled")
    wait_for(lambda: not tasks(), 20, "the end of the others")
    nothing_inside("the background")
    for name in names[:len(names) // 2]:
        same(outcome("back-" + words(name)[0]), "timeout", name)


@test("hide/all-at-once")
def all_at_once():
    """Every trick but the crowds in one command."""
    text = "".join("%s & " % words(f)[1] for f in FILES
                   if words(f)[0] not in CROWDS + STOPPERS)
    text = "all=$HIDE_READY; export HIDE_READY=/tmp/ready-any; " + text
    for seconds in (6, 30, 90):
        attempt = Attempt("all", text + "wait; : > $all" + HOLD,
                          timeoutSeconds=seconds)
        count = attempt.hide()
        r = attempt.result()
        same(r["outcome"], "timeout")
        if count > 40:
            break
    check(count > 40, "few processes:", count)
    took = gone("all at once survives a time-out:")
    nothing_inside("all at once")
    ms = seconds * 1000
    rows["all-at-once"] = ["%d" % count, "%+d" % (r["durationMs"] - ms),
                           "%+.0f" % (attempt.seconds * 1000 - ms
                                      - r["queuedMs"]), "%.0f" % took, "-"]


@test("hide/as-the-shell", seconds=900)
def as_shell():
    """The command's first process is the trick itself."""
    for trick in ("leader_gone", "thread_exec", "vfork", "futex", "notify",
                  "traced"):
        for seconds in BUSY:
            attempt = Attempt(trick, "exec hide/%s stay" % trick,
                              timeoutSeconds=seconds)
            attempt.hide()
            r = attempt.result()
            same(r["outcome"], "timeout", trick)
            gone("%s survives as the shell:" % trick)
            if is_ready(trick):
                break
        check(is_ready(trick), trick, "has hidden nothing", r)
        nothing_inside(trick + " as the shell")
        over.append((r["durationMs"] - seconds * 1000,
                     trick + " as the shell"))


@test("hide/directories-do-not-pile-up")
def directories():
    """One control group a command, and each goes with its command."""
    def folders():
        return [f for top in groups for f, _, _ in os.walk(top)
                if os.path.basename(f).startswith("c")
                and os.path.basename(f)[1:].isdigit()]
    wait_for(lambda: len(folders()) < 6, 60,
             "the end of directories of commands")


def start():
    global g, agent, space, groups
    check(len(FILES) >= 25, "25 tricks are wanted", len(FILES))
    # `flood` must not end by what it writes
    g = Gateway(pool=1, location="sandbox_output_total 1000g; "
                                 "sandbox_cpu_time 1000s; "
                                 "sandbox_background_time 600s;")
    g.start()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(HERE, "hide")
    same(g.run(C, "tar x && cd hide && for f in *.c; do gcc -O1 -pthread -o "
               "${f%.c} $f || exit 1; done", stdinBase64=base64.b64encode(
                   data.getvalue()).decode())["exitCode"], 0, "gcc")
    agent = g.agent(C)
    space = pid_namespace(agent)
    with open("/proc/%d/cgroup" % agent) as f:
        slot = f.read().split()[-1].rpartition("/")[2]
    groups = [top + "/" + slot for top in cgroup_folders(cgroup_of(agent))]
    check([f for f in groups if os.path.isdir(f)], "no control group", groups)


def stop():
    table()
    g.stop()


def table():
    print("# %-16s %9s %9s %9s %9s %9s" % ("trick", "processes", "over ms",
                                           "client ms", "gone ms",
                                           "cancel ms"))
    for trick, row in rows.items():
        print("# %-16s %9s %9s %9s %9s %9s" % tuple([trick] + row))
    for what, values in (("durationMs - time-out", over),
                         ("the client's clock - time-out", late),
                         ("DELETE", cancels)):
        if values:
            ordered = sorted(values)
            print("# %s: median %.0f ms, most %.0f ms (%s)"
                  % (what, ordered[len(ordered) // 2][0], *ordered[-1]))


main(start, stop)
