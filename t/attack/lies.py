#!/usr/bin/env python3
"""An agent that its own user has taken over says what is not so, in each
field and as often as it can: runner and nginx stay sane, run slots come back,
logs stay short, other tenants notice nothing, and its own user is told what
the interface promises."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import gateway                                               # noqa: E402
import wire                                                  # noqa: E402
from gateway import BUILD, TOP, Gateway, token, wait_for     # noqa: E402
from tap import check, main, same, test                      # noqa: E402

agent = g = None


def start():
    """The agent with two of its functions wrapped, behind a gateway."""
    global agent, g
    agent = os.path.join(tempfile.mkdtemp(prefix="sandbox-lies."), "agent")
    objects = [f for room in ("agent", "wire", "tar")
               for f in glob.glob(BUILD + "/obj/src/%s/*.o" % room)]
    if not objects:
        raise AssertionError("no objects of the agent below %s: make" % BUILD)
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-static", "-Wall",
         "-Wextra"] + ["-I%s/src/%s" % (TOP, room)
                       for room in ("agent", "wire", "tar")]
        + ["-Wl,--wrap=agent_queue_enter", "-Wl,--wrap=accept4",
           "-o", agent, TOP + "/t/attack/lying_agent.c"] + objects,
        check=True)
    gateway.AGENT = agent

    # what a liar keeps is taken from him after that time; what a neighbour
    # does takes a small part of it, even where he is starved
    g = Gateway(http="sandbox_zone z:1m running=12 queue=40 per_tenant=4;",
                location="sandbox_wall_time 6s; sandbox_disk 64m;"
                         "sandbox_memory 64m;",
                runner_options=["--run-grace", "1"], pool=1)
    g.start()


def stop():
    try:
        if g:
            g.stop()
    finally:
        shutil.rmtree(os.path.dirname(agent), ignore_errors=True)


def runner(operation, *numbers):
    client = wire.Client(g.socket, g.key, 150)
    return client.call(operation, wire.fields(*numbers)).result


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


class Neighbour:
    """Another tenant's work goes on, in a sandbox that is at hand."""

    def __init__(self):
        self.token = token(sub="neighbour")
        self.end = threading.Event()
        self.wrong, self.n, self.longest = [], 0, 0
        g.run("good", "true", token=self.token)
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while not self.end.is_set():
            began = time.monotonic()
            r = g.command("good", "echo fine", token=self.token)
            self.longest = max(self.longest, time.monotonic() - began)
            self.n += 1
            if r.status != 200 or r.json["stdout"] != "fine\n":
                self.wrong.append(r)
            self.end.wait(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()
        print("# %d commands of a neighbour, the longest took %.2f s"
              % (self.n, self.longest))
        same(self.wrong, [], "the neighbour's answers")
        check(self.n > 0 and self.longest < 60, "the neighbour waited",
              self.longest)


def lie(name, conversation="bad", **options):
    return g.command(conversation, "lie: " + name,
                     token=token(sub="liar " + conversation), **options)


def settled():
    """All run slots are free, nobody waits."""
    def free():
        numbers = runner(wire.PING)
        return numbers["RUNNING"] == 0 and numbers["QUEUED"] == 0
    wait_for(free, 60, "all run slots")


def lost(r):
    same(r.status, 503, r)
    same(r.json["code"], "runner_lost", r)
    check(int(r.headers["Retry-After"]) > 0, "no Retry-After", r)
    same(r.headers["Content-Type"], "application/problem+json", r)


def place(name):
    return "c-" + name.replace(" ", "-")


def all_of(names, seconds=300, do=None):
    """Each in a conversation and for a tenant of its own, some at a time."""
    out, todo = {}, list(names)

    def work():
        while True:
            try:
                name = todo.pop()
            except IndexError:
                return
            try:
                out[name] = do(name) if do else lie(name, place(name),
                                                    timeout=seconds)
            except Exception as error:
                out[name] = error

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def deleted(names):
    def delete(name):
        return g.delete(place(name), token=token(sub="liar " + place(name)))
    for name, r in all_of(names, do=delete).items():
        check(getattr(r, "status", 0) in (200, 204), "DELETE", name, r)


@test("attack/agent-messages", seconds=900)
def messages():
    """What is no message of the control channel, or not at this time: its
    sender is ended, and the command goes to its successor, which says it
    again."""
    before = len(g.runner_log)
    kinds = ["bad " + c for c in "0123456789abc-"] + ["descriptors"]
    with Neighbour():
        answers = all_of(kinds)
    for name in kinds:
        check(not isinstance(answers[name], Exception), name, answers[name])
        lost(answers[name])
    settled()
    said = g.runner_log[before:].splitlines()
    check(len(said) <= 5 * len(kinds), "lines of the log", len(said))
    deleted(kinds)


@test("attack/agent-floods", seconds=900)
def floods():
    """Messages without end, run slots asked for and given back, connections
    that nobody made, fresh sandboxes without end, a run slot that is kept for
    ever."""
    kinds = ["states", "wants", "slots", "returns", "replace"]
    before = len(g.runner_log)
    fds = descriptors(g.runner.pid)
    with Neighbour() as neighbour:
        kept = []
        keeper = threading.Thread(
            target=lambda: kept.append(lie("keep", "c-keep", timeout=300)))
        keeper.start()

        # whose clients have enough of it after some seconds
        answers = all_of(kinds, seconds=4)
        count = neighbour.n
        deleted(kinds)
        keeper.join()
        wait_for(lambda: neighbour.n > count + 5, 60, "a neighbour's turn")
    for name in kinds:
        if not isinstance(answers[name], OSError):
            check(answers[name].status in (429, 503), name, answers[name])

    # it was ended, its run slot went to its successor, which kept it, too
    lost(kept[0])
    settled()
    wait_for(lambda: descriptors(g.runner.pid) < fds + 20, 60,
             "descriptors of the runner")
    said = g.runner_log[before:].splitlines()
    check([one for one in said if "keeps a run slot" in one], "the reason")
    check(len(said) < 200, "lines of the log", len(said), said[-5:])


@test("attack/agent-words", seconds=700)
def words():
    """What an agent says without end is kept nowhere, and its last words are
    one line of the log."""
    with Neighbour():
        lost(lie("words", "c-words", timeout=300))
        lost(lie("forged", "c-words", timeout=300))
    size = sum(os.path.getsize(f)
               for f in glob.glob(g.state + "/slots/*/*")
               if os.path.basename(f) != "disk.img")
    check(size < 1000000, "beside the disks there are %d bytes" % size)
    line = [one for one in g.runner_log.splitlines() if "forged" in one]
    check(line, "no last words")
    for one in line:
        check("last words: " in one and "\033" not in one and "\r" not in one,
              "the line", one)
        check("\u202e" not in one and "\x9b" not in one, "the line", one)


@test("attack/agent-frames", seconds=700)
def frames():
    """PINGs without end, output without end, a status that is none, and no
    answer at all."""
    with Neighbour():
        answers = all_of(["frames p", "frames o", "frames s"])
        same(answers["frames p"].status, 502, answers["frames p"])
        same(answers["frames p"].json["code"], "bad_upstream")
        for name in ("frames o", "frames s"):
            same(answers[name].status, 200, answers[name])
            same(answers[name].json["outcome"], "runner_lost")
            same(answers[name].json["exitCode"], None)
    settled()


if __name__ == "__main__":
    main(start, stop)
