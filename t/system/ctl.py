#!/usr/bin/env python3
"""sandboxctl with commands that are live: streams, stdin, Ctrl-C, logs, a
worker that dies meanwhile."""

import hashlib
import os
import pty
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import (BUILD, Gateway, alive, in_namespace,         # noqa: E402
                     of_users, pid_namespace, token, wait_for)
from hold import HOLD, let_go                                     # noqa: E402
from tap import check, main, same, test                           # noqa: E402

CTL = BUILD + "/sandboxctl"
g = None


def start():
    global g
    g = Gateway(pool=2)
    g.start()


def stop():
    g.stop()


def popen(*arguments, stdin=subprocess.DEVNULL):
    environment = dict(os.environ, SANDBOX_URL="http://127.0.0.1:%d/sandbox"
                       % g.port, SANDBOX_TOKEN=token())
    return subprocess.Popen([CTL] + list(arguments), stdin=stdin,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment)


def finish(process, data=None, seconds=150):
    try:
        a, b = process.communicate(data, timeout=seconds)
    finally:
        process.kill()
    return a, b, process.returncode


def ctl(*arguments, data=None, seconds=150):
    return finish(popen(*arguments, stdin=subprocess.DEVNULL if data is None
                        else subprocess.PIPE), data, seconds)


def processes(conversation):
    """Host pids of what commands have started in its sandbox."""
    agent = g.agent(conversation)
    return of_users(in_namespace(pid_namespace(agent)), agent)


def nothing_left(conversation):
    """Of commands at once, of what the agent itself had for them soon."""
    same(processes(conversation), [])
    agent = g.agent(conversation)
    space = pid_namespace(agent)
    wait_for(lambda: [p for p in in_namespace(space) if alive(p)] == [agent],
             20, "the end of what the agent had for it")


@test("ctl/streams-promptly")
def streams():
    # it goes on when what it said has been read, so all comes before its end
    process = popen("run", "live", "for n in 1 2 3 4 5; do echo $n; "
                    "echo e$n >&2; " + HOLD + "; done; exit 3")
    for n in range(1, 6):
        same(process.stdout.readline(), b"%d\n" % n)
        same(process.stderr.readline(), b"e%d\n" % n)
        let_go(g, "live")
    same(finish(process), (b"", b"", 3))


@test("ctl/exit-status")
def statuses():
    for text, status in (("true", 0), ("exit 42", 42), ("kill -9 $$", 137),
                         ("kill -SEGV $$", 139), ("no-such-program", 127)):
        same(ctl("run", "live", text)[2], status, text)
    a, b, rc = ctl("run", "live", "--timeout", "8s", "echo x; sleep 90")
    same((a, rc), (b"x\n", 124))
    check(b"timeout" in b, "why?", b)
    same(ctl("run", "--cwd", "/etc", "live", "true")[2], 125)


@test("ctl/refused-after-waiting")
def refused_late():
    """A command whose turn comes late, and then can't have its directory."""
    before = popen("run", "late", "mkdir gone; " + HOLD + "; rm -r gone")
    wait_for(lambda: g.request("GET", "v1/conversations/late/fs/gone").status
             == 200, 20, "the first one")
    after = popen("run", "--cwd", "/home/sandbox/gone", "late", "pwd")
    wait_for(lambda: g.status("late")["queued"] == 1, 20, "the second one")
    time.sleep(9)                       # for longer than one waits for a word
    let_go(g, "late")
    a, b, rc = finish(after)
    same((a, rc), (b"", 125))
    check(b"cwd_missing" in b and b"422" in b, "why?", b)
    same(finish(before), (b"", b"", 0))


@test("ctl/stdin-10-megabytes")
def ten_megabytes():
    data = os.urandom(10 * 1000 * 1000)
    a, b, rc = ctl("run", "live", "sha256sum", data=data)
    same((a.split(), rc), ([hashlib.sha256(data).hexdigest().encode(), b"-"],
                           0), b)
    # a file, and a reader who stops early
    path = g.write("ten", data, 0o644)
    same(ctl("run", "--stdin", path, "live", "wc -c"),
         (b"10000000\n", b"", 0))
    same(ctl("run", "live", "head -c 5 | wc -c; exit 6", data=data),
         (b"5\n", b"", 6))


@test("ctl/stdin-as-it-comes")
def dialogue():
    process = popen("run", "live", "while read -r l; do echo \"<$l>\"; done; "
                    "echo end", stdin=subprocess.PIPE)
    for word in (b"one", b"two", b"three"):
        process.stdin.write(word + b"\n")
        process.stdin.flush()
        same(process.stdout.readline(), b"<" + word + b">\n")
    same(finish(process), (b"end\n", b"", 0))
    # nothing to read is the end at once, not a wait
    same(ctl("run", "live", "cat; echo end"), (b"end\n", b"", 0))


@test("ctl/ctrl-c")
def ctrl_c():
    for number in (signal.SIGINT, signal.SIGTERM):
        process = popen("run", "live", "setsid sleep 9999 & trap '' INT TERM; "
                        "echo go; while :; do sleep 9999; done")
        same(process.stdout.readline(), b"go\n")
        process.send_signal(number)
        same(finish(process), (b"", b"", 128 + number))
        # the answer to the cancelling comes when the tree is gone
        nothing_left("live")
    r = g.request("GET", "v1/conversations/live/commands?limit=9").json
    check(any(c["outcome"] == "cancelled" for c in r["commands"]), r)


def in_terminal(*arguments):
    """As typed: a session with a terminal of its own."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["SANDBOX_URL"] = "http://127.0.0.1:%d/sandbox" % g.port
        os.environ["SANDBOX_TOKEN"] = token()
        os.execv(CTL, [CTL] + list(arguments))
    return pid, fd


def read_to(fd, text):
    got = b""
    while text not in got:
        got += os.read(fd, 4096)
    return got


def terminal_status(pid, fd):
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        pass                             # that is how its end looks
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@test("ctl/terminal", seconds=60)
def terminal():
    # its input is left alone, but for -i
    pid, fd = in_terminal("run", "live", "cat; echo end; exit 7")
    read_to(fd, b"end\r\n")
    same(terminal_status(pid, fd), 7)

    pid, fd = in_terminal("run", "-i", "live", "sed -u s/^/got-/; exit 8")
    os.write(fd, b"typed\n")
    read_to(fd, b"got-typed\r\n")
    os.write(fd, b"\x04")
    same(terminal_status(pid, fd), 8)

    pid, fd = in_terminal("run", "-i", "live", "setsid sleep 9999 & echo go; "
                          "cat")
    read_to(fd, b"go\r\n")
    os.write(fd, b"\x03")
    same(terminal_status(pid, fd), 130)
    nothing_left("live")


def counted(conversation, disturb):
    """A command that counts while something happens to the gateway."""
    process = popen("run", conversation,
                    "for n in $(seq 1 60); do echo line $n; sleep 0.05; done; "
                    "exit 5")
    same(process.stdout.readline(), b"line 1\n")
    for _ in range(3):
        time.sleep(0.4)
        disturb()
    a, b, rc = finish(process)
    same(a.decode().split("\n"),
         ["line %d" % n for n in range(2, 61)] + [""], b)
    same(rc, 5, b)


@test("ctl/worker-killed")
def killed():
    """kill -9 of every worker in mid-stream, three times: every byte comes
    once and in order."""
    def kill():
        old = g.workers()
        for pid in old:
            g.expected.append("worker process %d exited on signal 9" % pid)
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: len(set(g.workers()) - set(old)) >= 2, 20,
                 "new workers")
    counted("live", kill)


@test("ctl/reloaded")
def reloaded():
    counted("live", g.reload)


@test("ctl/background")
def background():
    a, b, rc = ctl("run", "--background", "live", "echo begin; echo err >&2; "
                   "for n in 1 2 3 4 5 6; do echo $n; [ $n != 3 ] || { "
                   + HOLD + "; }; done; exit 4")
    same((b, rc), (b"", 0))
    name = a.decode().strip()
    check(re.fullmatch(r"ctl-[0-9a-f]{20}", name), "an id", a)

    line = [ln for ln in ctl("ps", "live")[0].decode().splitlines()
            if ln.startswith(name)]
    check(len(line) == 1 and "running" in line[0], "ps:", line)

    # what there is, without a wait for the end
    wait_for(lambda: b"3\n" in ctl("logs", "live", name)[0], 10, "a line")
    a, b, rc = ctl("logs", "live", name)
    same((a, b, rc), (b"begin\n1\n2\n3\n", b"err\n", 0))

    # others run beside it, and -f goes on to the end
    same(ctl("run", "live", "echo beside")[0], b"beside\n")
    whole = (b"begin\n1\n2\n3\n4\n5\n6\n", b"err\n", 0)
    follows = popen("logs", "-f", "live", name)
    for line in (b"begin\n", b"1\n", b"2\n", b"3\n"):
        same(follows.stdout.readline(), line)
    let_go(g, "live")
    same(finish(follows), (b"4\n5\n6\n", b"err\n", 0))
    same(ctl("logs", "live", name), whole)
    line = [ln for ln in ctl("ps", "live")[0].decode().splitlines()
            if ln.startswith(name)]
    check("exit 4" in line[0] and "echo begin" in line[0], "ps:", line)


@test("ctl/wait")
def wait():
    """A command's end, and its status, whenever one comes for it."""
    name = ctl("run", "-b", "live", "echo out; sleep 1.5; exit 7")[0]
    name = name.decode().strip()
    same(ctl("wait", "live", name), (b"", b"", 7))
    same(ctl("wait", "live", name), (b"", b"", 7))
    same(ctl("logs", "--status", "live", name), (b"out\n", b"", 7))
    name = ctl("run", "-b", "live", "echo go; sleep 1; kill -9 $$")[0]
    name = name.decode().strip()
    same(ctl("logs", "-s", "live", name), (b"go\n", b"", 137))
    for verb in (("wait",), ("logs", "-s")):
        a, b, rc = ctl(*verb, "live", "never-was")
        same((a, rc), (b"", 125), b)
        same(ctl(*verb, "live")[2], 125)

    # Ctrl-C ends the waiting only
    name = ctl("run", "-b", "live", HOLD + "; exit 5")[0].decode().strip()
    process = popen("wait", "live", name)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    same(finish(process)[2], -signal.SIGINT)
    let_go(g, "live")
    same(ctl("wait", "live", name)[2], 5)


@test("ctl/cancel")
def cancel():
    name = ctl("run", "-b", "live", "setsid sleep 9999 & sleep 9999")[0]
    name = name.decode().strip()
    wait_for(lambda: processes("live"), 10, "its processes")
    same(ctl("cancel", "live", name), (b"", b"", 0))
    nothing_left("live")
    line = [ln for ln in ctl("ps", "live")[0].decode().splitlines()
            if ln.startswith(name)]
    check("cancelled" in line[0], "ps:", line)
    a, b, rc = ctl("cancel", "live", name)
    same(rc, 0, b)
    a, b, rc = ctl("cancel", "live", "never-was")
    same((a, rc), (b"", 1))
    a, b, rc = ctl("logs", "live", "never-was")
    same((a, rc), (b"", 1))


@test("ctl/labels-once")
def labels():
    """A label in `status` says one thing."""
    for arguments in (("status",), ("status", "live")):
        a, b, rc = ctl(*arguments)
        same(rc, 0, b)
        names = [ln.split()[0] for ln in a.decode().splitlines()]
        same(sorted(set(names)), sorted(names))


main(start, stop)
