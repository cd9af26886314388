#!/usr/bin/env python3
"""Many at once: group concurrency of the cases."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import H2, Gateway, cgroup_of, in_cgroup       # noqa: E402
from gateway import token, wait_for                          # noqa: E402
from tap import check, main, same, skip, test                # noqa: E402

g = None


def start():
    global g
    g = Gateway(pool=2, location="sandbox_pending 20;")
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


@test("concurrency/serial-order")
def serial_order():
    g.run("serial", "true")
    sockets = []
    order = []
    lock = threading.Lock()

    def one(n):
        g.run("serial", "echo start %d >> log; sleep 0.2; echo end %d >> log"
              % (n, n))
        with lock:
            order.append(n)

    for n in range(10):
        t = threading.Thread(target=one, args=(n,))
        t.start()
        sockets.append(t)
        time.sleep(0.05)
    for t in sockets:
        t.join()
    lines = g.output("serial", "cat log").splitlines()
    same(lines, [x for n in range(10)
                 for x in ("start %d" % n, "end %d" % n)])


@test("concurrency/queue-limit")
def queue_limit():
    t = threading.Thread(target=g.run, args=("queue", "sleep 4"))
    t.start()
    wait_for(lambda: g.status("queue")["state"] == "running", 20, "running")
    time.sleep(0.5)
    results = together(30, lambda n: g.command("queue", "echo %d" % n))
    t.join()
    good = [r for r in results if r.status == 200]
    full = [r for r in results if r.status == 429]
    same(len(good) + len(full), 30)
    same(len(good), 20, "waiting ones")
    for r in full:
        same(r.json["code"], "too_many_pending")
        check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
    queued = [r.json["queuedMs"] for r in good]
    check(max(queued) > 1000, "queuedMs", queued)


@test("concurrency/no-mixing", seconds=240)
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


@test("concurrency/too-many-of-one-id", seconds=240)
def too_many_of_one_id():
    """More repeats of one request than an agent keeps connections."""
    if H2:
        skip("540 processes of curl do not ask at the same time")
    g.run("one-id", "true")
    results = together(540, lambda n: g.command(
        "one-id", "sleep 5; echo once >> log; cat log", commandId="one"))
    good = [r for r in results if r.status == 200]
    check(good, "nobody was answered", results[0])
    same({r.json["stdout"] for r in good}, {"once\n"})
    same({r.json["code"] for r in results if r.status != 200},
         {"too_many_pending"})
    for n in range(3):
        same(g.run("one-id", "echo %d" % n)["stdout"], "%d\n" % n)


@test("concurrency/status-while-running")
def status_while_running():
    t = threading.Thread(target=g.run, args=("busy", "sleep 3"))
    t.start()
    time.sleep(0.5)
    started = time.monotonic()
    r = g.status("busy")
    check(time.monotonic() - started < 2.4, "it waited for the command")
    same(r["state"], "running")
    t.join()


@test("concurrency/delete-while-running")
def delete_while_running():
    results = []

    def one(text):
        results.append(g.command("doomed", text))

    g.run("doomed", "echo x > file")
    threads = [threading.Thread(target=one, args=(text,)) for text in
               ("echo before; sleep 60", "echo second", "echo third")]
    for t in threads:
        t.start()
        time.sleep(0.3)
    started = time.monotonic()
    same(g.delete("doomed").status, 204)
    for t in threads:
        t.join()
    check(time.monotonic() - started < 30, "they did not end")
    same(len(results), 3)
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
    results = []
    g.run("reset", "echo x > file")
    t = threading.Thread(target=lambda: results.append(
        g.command("reset", "sleep 60")))
    t.start()
    time.sleep(0.5)
    old = g.status("reset")["sandboxId"]
    r = g.request("POST", "v1/conversations/reset/reset")
    same(r.status, 200)
    check(r.json["sandboxId"] != old, "the same sandbox")
    t.join()
    check(results[0].status == 200
          and results[0].json["outcome"] == "sandbox_deleted",
          "ended with", results)
    same(g.run("reset", "ls file; true")["stdout"], "")


@test("concurrency/fresh-keeps-its-place")
def fresh_place():
    g.run("fresh", "echo old > file")
    results = {}

    def one(name, text, **fields):
        results[name] = g.run("fresh", text, **fields)

    jobs = [("a", "sleep 1.5; cat file", {}),
            ("b", "cat file || echo none; echo new > file", {"fresh": True}),
            ("c", "cat file", {})]
    threads = [threading.Thread(target=one, args=j[:2], kwargs=j[2])
               for j in jobs]
    for t in threads:
        t.start()
        time.sleep(0.4)
    for t in threads:
        t.join()
    same(results["a"]["stdout"], "old\n")
    same(results["b"]["stdout"], "none\n")
    same(results["b"]["sandboxCreated"], True)
    same(results["c"]["stdout"], "new\n")
    check(results["a"]["sandboxId"] != results["b"]["sandboxId"]
          == results["c"]["sandboxId"], "ids", results)


@test("concurrency/create-burst", seconds=240)
def create_burst():
    def one(n):
        r = g.command("burst%d" % n, "echo %d" % n)
        if r.status == 200:
            same(r.json["stdout"], "%d\n" % n)
        else:
            check(r.status in (429, 503), "got", r)
            check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
        return r.status

    statuses = together(100, one)
    check(statuses.count(200) >= 90, "statuses", statuses)
    group = cgroup_of(g.agent("burst0"))
    many = len(in_cgroup(group))
    deleted = together(100, lambda n: g.delete("burst%d" % n).status)
    same(set(deleted), {204})
    wait_for(lambda: len(in_cgroup(group)) <= many - 90, 20,
             "the end of the deleted ones")


main(start, stop)
