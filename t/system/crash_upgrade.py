#!/usr/bin/env python3
"""An upgrade while sandboxes live: their agents are of the release before,
and the new runner neither loses nor breaks what they do."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import TOP, alive, wait_for                     # noqa: E402
from runner import KEY, Runner, session, tenant              # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")

folder = None


def start():
    global folder
    folder = tempfile.mkdtemp(prefix="sandbox-upgrade.")
    os.chmod(folder, 0o755)


def stop():
    shutil.rmtree(folder)


def build(version, least):
    """Runner and agent that speak `least` to `version` of the wire."""
    out = "%s/%d-%d" % (folder, least, version)
    shutil.copytree(TOP + "/src", out + "/src")
    header = out + "/src/wire/sandbox_wire.h"
    with open(header) as f:
        text = f.read()
    for name, value in (("VERSION_MIN", least), ("VERSION", version)):
        text, n = re.subn(r"(?m)^(#define SANDBOX_WIRE_%s) +\d+" % name,
                          r"\1 %d" % value, text)
        same(n, 1, name)
    with open(header, "w") as f:
        f.write(text)

    shutil.copy(TOP + "/Makefile", out)
    done = subprocess.run(
        ["make", "-j2", "-C", out, "OPT=-O0", "BUILD=" + out,
         out + "/sandbox-runner", out + "/sandbox-agent"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    same(done.returncode, 0, done.stdout.decode())
    return out


class Release(Runner):
    """A Runner whose programs can be replaced."""

    where = None

    def command_line(self):
        line = super().command_line()
        if self.where:
            line[0] = self.where + "/sandbox-runner"
            line[line.index("--agent") + 1] = self.where + "/sandbox-agent"
        return line

    def ask(self, name, text, version=wire.VERSION, **fields):
        return wire.Client(self.socket, KEY, 200).command(
            text, session=session(name), tenant=tenant(name),
            version=version, **fields)


def later(function):
    out = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    return thread, out


@test("crash/upgrade-old-agents", seconds=900)
def old_agents():
    """The wire has gone on by two: nobody can ask the old agents any more."""
    new, now = build(wire.VERSION + 2, wire.VERSION + 1), wire.VERSION + 2
    r = Release(ephemeral=False)

    def host(version):
        return r.call(wire.PING, version=version).result

    try:
        r.start()
        idle = r.ask("idle", "echo kept > f; cat f")
        same(idle.stdout, b"kept\n")
        r.ask("busy", "echo kept > f")
        r.ask("left", "echo kept > f")
        # each goes on until it is told, so that no time matters
        busy = later(lambda: r.ask(
            "busy", "until [ -e go ]; do sleep 0.1; done; cat f; "
            "echo done > done", wall_ms=250000))
        r.ask("left", "(until [ -e go ]; do sleep 0.1; done; echo 1 > done) "
              "> /dev/null 2>&1 &", wall_ms=250000)
        pids = {n: r.record(n)["pid"] for n in ("idle", "busy", "left")}
        wait_for(lambda: r.call(wire.STATUS, "busy").result["RUNNING"] == 1,
                 20, "a command that runs")
        same(r.end(signal.SIGTERM), 0)

        r.where = new
        r.start()
        for name, pid in pids.items():
            same(r.record(name)["pid"], pid, "taken over: " + name)

        # one that was idle has another agent at once, and its files
        a = r.ask("idle", "cat f", now)
        same((a.stdout, a.result["INSTANCE"], a.result["CREATED"]),
             (b"kept\n", idle.result["INSTANCE"], 0), a)
        check(r.record("idle")["pid"] != pids["idle"], "the old agent")

        # the others finish first; who asks meanwhile waits
        waiting = [later(lambda name=name: r.ask(name, "cat f done", now))
                   for name in ("busy", "left")]
        wait_for(lambda: host(now)["QUEUED"] == 2, 20, "two that wait")
        for name in ("busy", "left"):
            same(r.record(name)["pid"], pids[name], "not ended: " + name)
            root = "/proc/%s/root/home/sandbox/" % pids[name]
            with open(root + "go", "w"):
                pass
        busy[0].join(200)
        same((busy[1][0].outcome, busy[1][0].stdout), ("exit", b"kept\n"),
             "the old agent's answer")
        for thread, out in waiting:
            thread.join(200)
        same(waiting[0][1][0].stdout, b"kept\ndone\n", waiting[0][1])
        same(waiting[1][1][0].stdout, b"kept\n1\n", waiting[1][1])
        for name, pid in pids.items():
            check(not alive(int(pid)), "an old agent lives: " + name)
            check(r.record(name)["pid"] not in (pid, "0"), name)
        same(host(now)["RUNNING"], 0, "run slots")
        same(len(re.findall("its agent is of another release", r.text())), 3)

        # the upgrade is taken back: what runs is lost, files are not
        same(r.end(signal.SIGTERM), 0)
        r.where = None
        r.start()
        same(r.ask("idle", "cat f").stdout, b"kept\n", "after the rollback")
        check("this release 1 to 1" in r.text() or wire.VERSION != 1,
              "the log says why", r.text())
    finally:
        r.where = None
        r.close()


if __name__ == "__main__":
    main(start, stop)
