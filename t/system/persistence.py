#!/usr/bin/env python3
"""What survives: runner and agent killed, nginx reloaded, workers killed;
group persistence of the cases, without idle stop."""

import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, alive, in_namespace             # noqa: E402
from gateway import pid_namespace, pinned, wait_for          # noqa: E402
from hold import HOLD, held, let_go                          # noqa: E402
from tap import BACKEND, check, main, same, test             # noqa: E402

g = None


def start():
    global g
    g = Gateway(pool=2)
    g.options["http"] = "sandbox_store %s/store;" % g.dir
    g.start()


def stop():
    g.stop()


def runs(name, queued=0):
    """One command of it runs, and so many wait."""
    wait_for(lambda: [g.status(name).get(n) for n in ("running", "queued")]
             == [1, queued], 60, "%s to run, %d in the queue" % (name, queued))


def later(*arguments, **fields):
    """A command in a thread: (thread, list that gets the Response)."""
    out = []

    def one():
        try:
            out.append(g.command(*arguments, **fields))
        except Exception as error:
            out.append(error)

    t = threading.Thread(target=one)
    t.start()
    return t, out


@test("persistence/files-stay")
def files_stay():
    g.run("files", "echo 1 > a; chmod 700 a; ln -s a l; mkdir d; "
          "touch -d 2001-02-03 d/old")
    same(g.run("files", "cat l; stat -c '%a %Y' a d/old | cut -c1-14")
         ["stdout"].split("\n")[:2][0], "1")


@test("persistence/runner-restart: killed during a command, and back",
      backends="local", why="runner")
def runner_killed():
    g.run("killed", "echo kept > kept; "
          "while :; do date +%s%N > next; mv next beat; sleep 0.1; done "
          "> /dev/null 2>&1 &")
    before = g.run("killed", "true")
    home = "/proc/%d/root/home/sandbox/" % g.agent("killed")
    t, out = later("killed", "for n in 1 2 3; do echo $n; done; %s; for n in "
                   "4 5 6; do echo $n; sleep 0.5; done; exit 3" % HOLD)
    runs("killed")
    g.kill_runner()
    with open(home + "go", "w"):
        pass
    t.join(200)
    check(out and not isinstance(out[0], Exception), "no answer:", out)
    r = out[0]
    same(r.status, 200, repr(r))
    same((r.json["outcome"], r.json["exitCode"]), ("exit", 3))
    same(r.json["stdout"], "1\n2\n3\n4\n5\n6\n")

    # without a runner: a clear refusal, not a hang
    r = g.command("killed", "echo x")
    check(r.status == 503 and r.json["code"] == "runner_unreachable", "got",
          r)

    g.start_runner()
    g.wait_ready()
    r = g.run("killed", "cat kept; one=$(cat beat); until "
              "[ \"$(cat beat)\" != \"$one\" ]; do sleep 0.1; done; echo on")
    same(r["stdout"], "kept\non\n", "the background process died")
    same(r["sandboxId"], before["sandboxId"])
    same(r["sandboxCreated"], False)
    # a new conversation works, too
    same(g.run("killed-new", "echo new")["stdout"], "new\n")
    g.run("killed", "pkill -f 'while :'; true")


@test("persistence/runner-killed-with-a-queue", backends="local", why="runner")
def runner_killed_queue():
    g.run("queue", "true")
    jobs = []
    for n in range(4):
        jobs.append(later("queue", "echo %d >> log; %s; echo %d" %
                          (n, "sleep 0.3" if n else HOLD, n)))
        runs("queue", n)
    g.kill_runner()
    time.sleep(1)
    g.start_runner()
    g.wait_ready()
    let_go(g, "queue")
    for t, out in jobs:
        t.join(200)
    # those handed over end; one that the runner still held was not started
    lines = g.output("queue", "cat log").split()
    for n, (t, out) in enumerate(jobs):
        check(out, "no answer of %d" % n)
        if not isinstance(out[0], Exception) and out[0].status == 200:
            same(out[0].json["stdout"], "%d\n" % n)
            check(str(n) in lines, "%d did not run" % n, lines)
        else:
            check(str(n) not in lines, "%d ran, and failed" % n, lines)
    same(lines, sorted(lines), "order")
    same(lines[:1], ["0"])
    check(len(set(lines)) == len(lines), "ran twice", lines)


@test("persistence/runner-killed-during-fresh", seconds=200,
      backends="local", why="runner")
def runner_killed_fresh():
    """The request for a fresh sandbox is under way when the runner dies:
    killed at once, or deaf for a while before."""
    for n, deaf in enumerate((0, 0, 2)):
        name = "kfresh%d" % n
        g.run(name, "echo x > f")
        first = later(name, "sleep 1")
        time.sleep(0.3)
        second = later(name, "echo fresh", fresh=True, timeout=150)
        time.sleep(0.3)
        if deaf:
            g.runner.send_signal(signal.SIGSTOP)
            time.sleep(deaf)
        else:
            time.sleep(0.35 + n * 0.06)
        g.kill_runner()
        time.sleep(0.3)
        g.start_runner()
        g.wait_ready()
        r = g.command(name, "echo usable", timeout=150)
        check(r.status == 200 and r.json["stdout"] == "usable\n", "got", r)
        for t, out in (first, second):
            t.join(200)
            check(out, "no answer")


@test("persistence/runner-terminated", backends="local", why="runner")
def runner_terminated():
    """SIGTERM leaves sandboxes running, as --ephemeral's opposite; with
    --ephemeral it ends everything: here it is ephemeral."""
    with Gateway(pool=1) as h:
        h.run("term", "true")
        pid = h.agent("term")
        name, pin = pid_namespace(pid), pinned(pid)
        h.stop_runner(signal.SIGTERM)
        wait_for(lambda: not in_namespace(name), 20, "the end of it")
        os.close(pin)
        h.start_runner()
        h.wait_ready()


@test("persistence/agent-killed")
def agent_killed():
    g.run("agent", "echo kept > kept")
    old = g.run("agent", "true")["sandboxId"]
    pid = g.agent("agent")
    t, out = later("agent", "echo started; sleep 115")
    runs("agent")
    os.kill(pid, signal.SIGKILL)
    t.join(100)
    check(not t.is_alive(), "the loss was noticed late")
    r = out[0]
    same(r.status, 200, repr(r))
    same((r.json["outcome"], r.json["exitCode"]), ("runner_lost", None))
    r = g.run("agent", "cat kept; pgrep -fa '[s]leep 60'; true")
    same(r["stdout"], "kept\n")
    check(r["sandboxId"] == old or r["sandboxId"], "an id", r)


@test("persistence/agent-killed-with-a-queue")
def agent_killed_queue():
    """Those that wait were not started: they run in the successor."""
    g.run("aqueue", "echo kept > kept")
    pid = g.agent("aqueue")
    first = later("aqueue", "sleep 115")
    runs("aqueue")
    others = [later("aqueue", "cat kept; echo %d" % n) for n in range(3)]
    runs("aqueue", 3)
    os.kill(pid, signal.SIGKILL)
    for t, out in [first] + others:
        t.join(200)
        check(out and not isinstance(out[0], Exception), "no answer", out)
    same(first[1][0].json["outcome"], "runner_lost")
    for n, (t, out) in enumerate(others):
        r = out[0]
        check(r.status == 503 or (r.status == 200 and r.json["outcome"]
              in ("runner_lost", "exit")), "got", r)
    same(g.output("aqueue", "cat kept"), "kept\n")


def begin_upload(path):
    """Of 100,000 bytes, none of them sent."""
    c = g.connect()
    c.putrequest("PUT", "/sandbox/v1/conversations/upload/" + path)
    for name, value in g.headers("", None, None).items():
        c.putheader(name, value)
    c.putheader("Content-Length", "100000")
    c.endheaders()
    return c


@test("persistence/reload", seconds=240)
def reload():
    """Ten times during twenty commands and two uploads."""
    jobs = [later("reload%d" % (n % 5), "sleep 1; echo done %d" % n)
            for n in range(20)]
    time.sleep(0.5)
    uploads = [begin_upload(path) for path in ("fs/up", "files/up")]
    over = threading.Event()

    def trickle(c):
        """Who sends nothing for 10 s is refused, however long this takes."""
        for n in range(100000, 0, -20):
            if over.wait(0.05) or n <= 20:
                c.send(b"x" * n)
                return
            c.send(b"x" * 20)

    senders = [held(lambda c=c: trickle(c)) for c in uploads]
    old = set()
    for n in range(10):
        old |= g.reload()
        same(g.run("during", "echo x")["stdout"], "x\n")
    over.set()
    for c, sender in zip(uploads, senders):
        sender.result()
        r = c.getresponse()
        same((r.status, json.loads(r.read())["size"]), (201, 100000))
        c.close()
    same(g.output("upload", "wc -c < up"), "100000\n")
    for n, (t, out) in enumerate(jobs):
        t.join(120)
        check(out and not isinstance(out[0], Exception), "no answer", out)
        same(out[0].json["stdout"], "done %d\n" % n)
    old -= set(g.workers())
    wait_for(lambda: not any(alive(p) for p in old), 60,
             "the end of old workers")


@test("persistence/worker-killed", seconds=240)
def worker_killed():
    g.expected.append("exited on signal 9")
    c = g.run("worker", "true")
    for n in range(3):
        t, out = later("worker", "touch began.%d; %s; echo %d >> log"
                       % (n, HOLD, n))
        # this one, not the one before it, which may be about to end
        wait_for(lambda: g.request("GET", "v1/conversations/worker/fs/began.%d"
                                   % n).status == 200, 60, "the command")
        for pid in g.workers():
            os.kill(pid, signal.SIGKILL)
        t.join(200)
        wait_for(lambda: len(g.workers()) == 2, 20, "new workers")
        g.wait_ready()
        let_go(g, "worker")
    # nobody asked to end them: the commands ran to their end
    wait_for(lambda: g.output("worker", "cat log").split()
             == ["0", "1", "2"], 30, "all commands' traces")
    same(g.run("worker", "true")["sandboxId"], c["sandboxId"])


@test("persistence/client-gone")
def client_gone():
    """A lost connection never ends a command; its result waits."""
    text = "echo x >> times; %s; echo done > done; echo out" % HOLD
    t, out = later("gone", text, commandId="gone-1", timeout=1)
    t.join(200)
    check(out and isinstance(out[0], OSError), "it should have timed out", out)
    t, out = later("gone", text, commandId="gone-1")
    runs("gone")
    let_go(g, "gone")
    t.join(200)
    check(out and not isinstance(out[0], Exception), "no answer", out)
    same((out[0].status, out[0].json["stdout"]), (200, "out\n"), out[0])
    same(g.output("gone", "cat done times"), "done\nx\n", "once")


@test("persistence/nginx-restarted")
def nginx_restarted():
    old = g.run("restart", "echo kept > kept")["sandboxId"]
    g.end(g.nginx, signal.SIGQUIT)
    g.start_nginx()
    r = g.run("restart", "cat kept")
    same((r["stdout"], r["sandboxId"]), ("kept\n", old))


@test("persistence/expired-clear")
def deleted_is_clear():
    g.run("ended", "echo x > f")
    same(g.delete("ended").status, 204)
    same(g.status("ended")["state"], "none")
    r = g.run("ended", "ls f")
    check(r["exitCode"] != 0 and r["sandboxCreated"], "got", r)


@test("persistence/thousand-commands", seconds=900)
def many_commands():
    c, took = g.connect(), []
    for n in range(1000):
        begun = time.monotonic()
        r = g.command("long", "echo %d" % n, connection=c)
        took.append(time.monotonic() - begun)
        same((r.status, r.json["stdout"]), (200, "%d\n" % n))
    c.close()
    print("# medians: the first hundred %.1f ms, the last %.1f ms" % (
        sorted(took[:100])[50] * 1e3, sorted(took[-100:])[50] * 1e3))
    same(g.status("long")["commands"], 1000)


@test("persistence/delete-all")
def delete_all():
    g.run("all", "mkdir -p $(seq -s/ 1 60); dd if=/dev/zero of=big bs=1M "
          "count=50 2>/dev/null; sleep 1000 > /dev/null 2>&1 & kill -STOP $!; "
          "chmod -R 000 1; touch /dev/shm/x; (sleep 1000 &)")
    pid = g.agent("all")
    mine = in_namespace(pid_namespace(pid))
    check(len(mine) > 2, "so few processes", mine)
    started = time.monotonic()
    same(g.delete("all").status, 204)
    check(time.monotonic() - started < 100, "deletion hangs")
    check(BACKEND == "dagger" or not alive(pid), "the agent lives")
    wait_for(lambda: not any(alive(p) for p in mine), 20, "the end of all")
    same(g.run("all", "ls; df --output=used -BM ~ | tail -1")["exitCode"],
         0)


main(start, stop)
