#!/usr/bin/env python3
"""The runner ends and is started again: who waits at its socket meanwhile,
with a service manager that holds it, and without one."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import RUNNER, Gateway, wait_for                # noqa: E402
from service import Service, activate                        # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")


def together(jobs):
    threads = [threading.Thread(target=job) for job in jobs]
    for t in threads:
        t.start()
    return threads


def join(threads):
    for t in threads:
        t.join(200)
        check(not t.is_alive(), "a client still waits")


@test("crash/socket-held", seconds=120)
def held():
    """Clients that come while no runner is there are served by the next one,
    and what runs does not notice."""
    with Service(pool=1) as g:
        g.run("old", "true")
        wait_for(lambda: "WATCHDOG=1" in g.told(), 20, "a sign of life")

        answers = {}

        def one(name, text):
            answers[name] = g.command(name.split("-")[0], text)

        running = together([lambda: one(
            "runs", "until [ -e go ]; do sleep 0.1; done; echo done")])
        wait_for(lambda: g.status("runs").get("running"), 20, "a command")
        g.kill_runner()
        names = ["old-%d" % n for n in range(4)] + ["new%d-" % n
                                                    for n in range(3)]
        waiting = together([lambda n=n: one(n, "echo %s >> log; cat log" % n)
                            for n in names])
        # those that wait are in the socket of ours
        wait_for(lambda: backlog(g.socket) >= len(names), 20, "a queue")
        check(not answers, "an answer from nobody", answers)
        g.start_runner()
        join(waiting)
        for name in names:
            r = answers[name]
            check(r.status == 200 and name in r.json["stdout"].split(),
                  "got", name, r)
        same(sorted(g.output("old", "cat log").split()),
             sorted(n for n in names if n[:3] == "old"), "each once")
        g.request("PUT", "v1/conversations/runs/fs/go", b"")
        join(running)
        same(answers["runs"].json["stdout"], "done\n")

        # an orderly end leaves the socket alone, and says that it comes
        g.stop_runner(signal.SIGTERM)
        check("STOPPING=1" in g.told(), "told", g.heard)
        check(os.path.exists(g.socket), "the socket is gone")
        waiting = together([lambda: one("old-x", "echo x")])
        g.start_runner()
        join(waiting)
        same(answers["old-x"].json["stdout"], "x\n")


def backlog(path):
    """Connections to that socket that nobody has accepted."""
    with open("/proc/net/unix") as f:
        lines = [line.split() for line in f if line.rstrip().endswith(path)]
    return len([line for line in lines if line[5] == "02"])


@test("crash/socket-held-again-and-again", seconds=180)
def again():
    """kill -9 at any moment while clients come and come: who is told 503, or
    has waited in vain for a runner that starts slowly, tries again with the
    same id, and nothing runs twice."""
    rounds = int(os.environ.get("SANDBOX_CRASH_ROUNDS") or 4)
    with Service(pool=1) as g:
        wrong, over = [], threading.Event()
        count = {n: 0 for n in range(4)}

        def client(n):
            name = "c%d" % n
            while not over.is_set():
                text = "%d-%d" % (n, count[n])
                end = time.monotonic() + 100
                while True:
                    try:
                        r = g.command(name, "echo %s >> log; echo %s"
                                      % (text, text), commandId=text)
                    except OSError as error:
                        wrong.append(repr(error))
                        return
                    if r.status not in (503, 504) or time.monotonic() > end:
                        break
                    if r.status == 503 and "Retry-After" not in r.headers:
                        wrong.append(r)
                    time.sleep(0.2)
                if r.status != 200 or r.json["stdout"] != text + "\n":
                    wrong.append(r)
                    return
                count[n] += 1

        clients = together([lambda n=n: client(n) for n in count])
        for _ in range(rounds):
            before = dict(count)
            wait_for(lambda: wrong or any(count[n] > before[n] + 3
                                          for n in count), 60, "progress")
            time.sleep(random.random() / 5)
            g.kill_runner()
            time.sleep(random.random() / 5)
            g.start_runner()
        over.set()
        join(clients)
        same(wrong, [], "answers")
        for n in count:
            same(g.output("c%d" % n, "cat log").split(),
                 ["%d-%d" % (n, i) for i in range(count[n])], "each once")
        print("# %d commands, %d kills" % (sum(count.values()), rounds))


@test("crash/socket-own", seconds=120)
def own():
    """A runner that made its socket itself: while it is away clients are told
    so at once, and nothing that was told 503 has run."""
    g = Gateway(pool=1)
    g.ephemeral = False
    g.expected.append("connect() to unix:%s failed" % g.socket)
    with g:
        got, over = [], threading.Event()

        def client(n):
            i = 0
            while not over.is_set():
                text = "%d-%d" % (n, i)
                begun = time.monotonic()
                r = g.command("own%d" % n if n else "new%d" % i,
                              "echo %s >> log" % text, commandId=text)
                got.append((text, r, time.monotonic() - begun))
                i += 1
                if r.status != 200:
                    time.sleep(0.05)

        clients = together([lambda n=n: client(n) for n in (0, 1, 2)])
        for number in (signal.SIGTERM, signal.SIGKILL):
            before = len(got)
            wait_for(lambda: len(got) > before + 5, 60, "progress")
            g.end(g.runner, number)
            before = len(got)
            wait_for(lambda: len([r for _, r, _ in got[before:]
                                  if r.status != 200]) > 3, 60, "refusals")
            g.start_runner()
            before = len(got)
            wait_for(lambda: [r for _, r, _ in got[before:]
                              if r.status == 200], 60, "answers again")
        over.set()
        join(clients)
        refused = [(text, r) for text, r, _ in got if r.status != 200]
        check(len(refused) > 3, "so few refusals", refused)
        for text, r in refused:
            same(r.status, 503, r)
            check(r.json["code"] in ("runner_unreachable", "runner_stopping",
                                     "runner_lost"), "got", r)
            check(r.json["code"] == "runner_stopping"
                  or "nothing was started" in r.json["detail"], "got", r)
            check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
        check(max(took for _, _, took in got) < 100, "a client hung")
        for n in (1, 2):
            same(g.output("own%d" % n, "cat log").split(),
                 [text for text, r, _ in got if r.status == 200
                  and text.startswith("%d-" % n)], "in all, once, in order")
        print("# of %d: %s" % (len(got), sorted(Counter(
            r.json["code"] for _, r in refused).items())))


@test("crash/socket-mistakes")
def mistakes():
    """What is passed must be the socket that nginx knows."""
    folder = tempfile.mkdtemp(prefix="sandbox-socket.")
    path = folder + "/socket"
    key = folder + "/key"
    with open(key, "w") as f:
        os.chmod(key, 0o600)
        f.write("00" * 32)

    def refused(s, words, *options, **variables):
        command = [RUNNER, "--key-file", key, "--state", folder + "/state",
                   "--base", "/nonexistent", "--agent", "/nonexistent"]
        done = activate(s, command + list(options), stderr=subprocess.PIPE,
                        env=dict(os.environ, **variables))
        text = done.communicate(timeout=60)[1].decode()
        same(done.returncode, 1, text)
        check(words in text, "another reason than '%s':" % words, text)

    def unix(kind, where=None):
        s = socket.socket(socket.AF_UNIX, kind)
        if where is not None:
            s.bind(where)
        return s

    no_base = "there is no root file system"
    try:
        with unix(socket.SOCK_STREAM, path) as s:
            refused(s, "not a listening unix stream socket")
            s.listen(5)
            os.chmod(path, 0o660)
            refused(s, no_base)
            refused(s, no_base, "--socket", path)
            refused(s, "they must be the same", "--socket", path + "2")
            refused(s, "exactly one socket", fds="2")
            os.chmod(path, 0o666)
            refused(s, "SocketMode=0660")
            os.unlink(path)
            refused(s, "its file is gone")
        with unix(socket.SOCK_DGRAM, path) as s:
            refused(s, "not a listening unix stream socket")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen(5)
            refused(s, "not a listening unix stream socket")
        with unix(socket.SOCK_STREAM, "\0sandbox-test-%d" % os.getpid()) as s:
            s.listen(5)
            refused(s, "has no path")
        # variables of another process are none of its business
        for pid, words in (("1", "--socket is missing"), ("x", "LISTEN_PID")):
            done = subprocess.run(
                [RUNNER, "--key-file", key, "--state", folder + "/state",
                 "--base", "/nonexistent", "--agent", "/nonexistent"],
                env=dict(os.environ, LISTEN_PID=pid, LISTEN_FDS="1"),
                stderr=subprocess.PIPE, timeout=60)
            check(words in done.stderr.decode(), words, done.stderr)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
