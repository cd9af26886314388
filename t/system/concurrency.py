#!/usr/bin/env python3
"""Many at once: group concurrency of the cases."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import H2, Gateway, alive, token, wait_for      # noqa: E402
from hold import HOLD, held, let_go                          # noqa: E402
from tap import BACKEND, check, main, same, skip, test       # noqa: E402

g = None


def start():
    global g
    # room for all that a test asks in one worker: the other may be late
    g = Gateway(pool=2, location="sandbox_pending 20;"
                "sandbox_wall_time 600s;", connections=4096,
                main="worker_rlimit_nofile 8192;")
    g.start()


def stop():
    g.stop()


def together(count, function):
    """Runs function(n) in threads; their values, in order of n."""
    out = [None] * count
    failures = []

    def one(n):
        try:
            out[n] = function(n)
        except Exception as error:
            failures.append("%d: %s" % (n, error))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(failures[:3], [], "failures")
    return out


@test("concurrency/first-touch")
def first_touch():
    results = together(20, lambda n: g.run(
        "first-touch", "echo %d >> all; readlink /proc/self/ns/pid" % n))
    same(len({r["sandboxId"] for r in results}), 1, "sandboxes")
    same(len({r["stdout"] for r in results}), 1, "containers")
    same(sum(r["sandboxCreated"] for r in results), 1, "created")
    lines = g.output("first-touch", "sort -n all").split()
    same(lines, [str(n) for n in range(20)], "commands that ran")


def in_place(conversation, queued):
    """One runs, and so many wait."""
    wait_for(lambda: [g.status(conversation).get(n)
                      for n in ("running", "queued")] == [1, queued], 60,
             "%d in the queue" % queued)


@test("concurrency/serial-order")
def serial_order():
    g.run("serial", "true")
    jobs = []
    for n in range(10):
        jobs.append(held(lambda n=n: g.run(
            "serial", "echo start %d >> log; %s; echo end %d >> log"
            % (n, "sleep 0.1" if n else HOLD, n))))
        in_place("serial", n)
    let_go(g, "serial")
    for t in jobs:
        t.result()
    lines = g.output("serial", "cat log").splitlines()
    same(lines, [x for n in range(10)
                 for x in ("start %d" % n, "end %d" % n)])


@test("concurrency/queue-limit")
def queue_limit():
    first = held(lambda: g.run("queue", HOLD))
    in_place("queue", 0)
    many = [held(lambda n=n: g.command("queue", "echo %d" % n))
            for n in range(30)]
    wait_for(lambda: sum(not t.is_alive() for t in many) == 10, 60,
             "ten that are refused")
    in_place("queue", 20)
    begun = time.monotonic()
    time.sleep(0.5)
    waited = (time.monotonic() - begun) * 1000 - 50
    let_go(g, "queue")
    first.result()
    results = [t.result() for t in many]
    good = [r for r in results if r.status == 200]
    full = [r for r in results if r.status == 429]
    same(len(good) + len(full), 30)
    same(len(good), 20, "waiting ones")
    for r in full:
        same(r.json["code"], "too_many_pending")
        check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
    queued = [r.json["queuedMs"] for r in good]
    check(min(queued) >= waited, "queuedMs", queued, waited)


@test("concurrency/no-mixing", seconds=500)
def no_mixing():
    def one(n):
        c = g.connect()
        who = token(sub="user%d" % (n % 5))
        for m in range(20):
            secret = "secret-%d-%d-%s" % (n, m, "x" * (m * 100))
            r = g.command("mix%d" % n, "echo %s; echo %s >&2"
                          % (secret, secret), token=who, connection=c)
            same(r.status, 200, repr(r))
            same(r.json["stdout"], secret + "\n")
            same(r.json["stderr"], secret + "\n")
        c.close()

    together(15, one)


@test("concurrency/too-many-of-one-id", seconds=500)
def too_many_of_one_id():
    """More repeats of one request than an agent keeps connections."""
    if H2:
        skip("540 processes of curl do not ask at the same time")
    g.run("one-id", "true")
    agent = g.agent("one-id")
    many = [held(lambda: g.command("one-id", HOLD + "; echo once >> log; "
                                   "cat log", commandId="one"))
            for n in range(540)]
    # an agent has 528 connections, and a runner lets fewer wait for it
    wait_for(lambda: sum(not t.is_alive() for t in many) >= 12, 100,
             "those for whom there is no room")
    # from outside: a request for it would find no room, either
    os.close(os.open("/proc/%d/root/home/sandbox/go" % agent,
                     os.O_CREAT | os.O_WRONLY, 0o644))
    results = [t.result() for t in many]
    good = [r for r in results if r.status == 200]
    check(good, "nobody was answered", results[0])
    same({r.json["stdout"] for r in good}, {"once\n"})
    same({r.json["code"] for r in results if r.status != 200},
         {"too_many_pending"})
    for n in range(3):
        same(g.run("one-id", "echo %d" % n)["stdout"], "%d\n" % n)


@test("concurrency/status-while-running")
def status_while_running():
    t = held(lambda: g.run("busy", HOLD))
    in_place("busy", 0)
    same(g.status("busy")["state"], "running", "it does not wait")
    let_go(g, "busy")
    t.result()


@test("concurrency/delete-while-running")
def delete_while_running():
    g.run("doomed", "echo x > file")
    jobs = []
    for n, text in enumerate(("echo before; touch said; sleep 110",
                              "echo second", "echo third")):
        jobs.append(held(lambda text=text: g.command("doomed", text)))
        in_place("doomed", n)
    wait_for(lambda: g.request(
        "GET", "v1/conversations/doomed/fs/said").status == 200, 60,
        "the first word")
    started = time.monotonic()
    same(g.delete("doomed").status, 204)
    results = [t.result() for t in jobs]
    check(time.monotonic() - started < 100, "they did not end")
    for r in results:
        check(r.status == 200 and r.json["outcome"] == "sandbox_deleted"
              or r.status in (409, 410, 503), "ended with", r)
    same([r.json["stdout"] for r in results if r.status == 200
          and "before" in r.json["stdout"]], ["before\n"])
    r = g.run("doomed", "ls; echo code $?")
    same(r["stdout"].count("file"), 0, "old files")
    same(r["sandboxCreated"], True)


@test("concurrency/reset-while-running")
def reset_while_running():
    g.run("reset", "echo x > file")
    t = held(lambda: g.command("reset", "sleep 110"))
    in_place("reset", 0)
    old = g.status("reset")["sandboxId"]
    r = g.request("POST", "v1/conversations/reset/reset")
    same(r.status, 200)
    check(r.json["sandboxId"] != old, "the same sandbox")
    r = t.result()
    check(r.status == 200 and r.json["outcome"] == "sandbox_deleted",
          "ended with", r)
    same(g.run("reset", "ls file; true")["stdout"], "")


@test("concurrency/fresh-keeps-its-place")
def fresh_place():
    g.run("fresh", "echo old > file")
    jobs = {}
    for name, text, fields in (
            ("a", HOLD + "; cat file", {}),
            ("b", "cat file || echo none; echo new > file", {"fresh": True}),
            ("c", "cat file", {})):
        n = len(jobs)
        jobs[name] = held(lambda text=text, fields=fields:
                          g.run("fresh", text, **fields))
        in_place("fresh", n)
    let_go(g, "fresh")
    results = {name: t.result() for name, t in jobs.items()}
    same(results["a"]["stdout"], "old\n")
    same(results["b"]["stdout"], "none\n")
    same(results["b"]["sandboxCreated"], True)
    same(results["c"]["stdout"], "new\n")
    check(results["a"]["sandboxId"] != results["b"]["sandboxId"]
          == results["c"]["sandboxId"], "ids", results)


@test("concurrency/create-burst", seconds=700)
def create_burst():
    def one(n):
        r = g.command("burst%d" % n, "echo %d" % n)
        if r.status == 200:
            same(r.json["stdout"], "%d\n" % n)
        else:
            check(r.status in (429, 503), "got", r)
            check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
        return r.status

    def until_there(n):
        return wait_for(lambda: one(n) == 200, 200, "number %d" % n)

    # an engine starts all of them at the same time
    most = 100 if BACKEND == "local" else 20
    statuses = together(most, one)
    check(statuses.count(200) >= 0.9 * most, "statuses", statuses)
    together(most, until_there)
    agents = [g.agent("burst%d" % n) for n in range(0, most, 10)]
    deleted = together(most, lambda n: g.delete("burst%d" % n).status)
    same(set(deleted), {204})
    wait_for(lambda: not any(alive(p) for p in agents), 20,
             "the end of the deleted ones")


main(start, stop)
