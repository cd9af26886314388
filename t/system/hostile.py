#!/usr/bin/env python3
"""Agents that are their users' creatures, and peers that send anything: the
runner goes on, and nobody else loses a run slot or a place in the queue."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import TOP, wait_for                            # noqa: E402
from runner import KEY, Runner, session, tenant              # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")

SECONDS = 8
agent = None


def build():
    global agent
    agent = os.path.join(tempfile.mkdtemp(prefix="sandbox-hostile."), "agent")
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-static", "-Wall",
         "-Wextra", "-I" + TOP + "/src/wire", "-I" + TOP + "/src/runner",
         "-o", agent, TOP + "/t/system/hostile_agent.c",
         TOP + "/src/runner/message.c", TOP + "/src/wire/sandbox_wire.c"],
        check=True)


def remove():
    shutil.rmtree(os.path.dirname(agent))


def ask(r, rnd, out):
    name = "v%d" % rnd.randrange(6)
    key = {"session": session(name), "tenant": tenant("t%d" % (ord(name[1])
                                                             % 3))}
    client = wire.Client(r.socket, KEY, 2)
    kind = rnd.random()
    try:
        if kind < 0.6:
            a = client.call(wire.COMMAND, b"",
                            flags=rnd.choice((0, 0, wire.FRESH,
                                              wire.NO_CREATE)), **key)
        elif kind < 0.7:
            a = client.call(wire.DELETE, **key)
        elif kind < 0.8:
            a = client.call(wire.RESET, **key)
        elif kind < 0.9:
            a = client.call(wire.STATUS, **key)
        elif kind < 0.92:
            # what follows may have said it: any bytes are an operation
            a = client.call(wire.DRAIN, wire.fields(("DRAINING", 0)))
        elif kind < 0.95:
            a = client.call(wire.PING, wire.fields(
                ("IDLE_MS", rnd.choice((500, 60000))),
                ("MAX_SANDBOXES", rnd.choice((3, 1000)))))
        else:
            data = bytearray(wire.Preamble(
                rnd.randrange(20), key=KEY, session=session(name)).encode())
            for _ in range(rnd.randrange(4)):
                data[rnd.choice((7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 23, 24,
                                 31, 100, 112, 120, 124, 127))] \
                    = rnd.randrange(256)
            with client.connect() as s:
                s.sendall(bytes(data[:rnd.choice((128, 127, 60))])
                          + os.urandom(rnd.randrange(300)))
                a = client.answer(s)
        word = a.code or "ok"
    except (wire.Lost, OSError) as error:
        word = type(error).__name__
    out[word] = out.get(word, 0) + 1


@test("hostile/agents")
def agents():
    with Runner("--running", "3", "--queue", "30", "--per-tenant", "6",
                agent=agent) as r:
        out = {}
        end = time.monotonic() + SECONDS

        def goes_on():
            """For some time, and until it has answered often enough."""
            now = time.monotonic()
            return r.process.poll() is None and (
                now < end or out.get("ok", 0) < 21 and now < end + 150)

        def work(seed):
            rnd = random.Random(seed)
            while goes_on():
                ask(r, rnd, out)

        threads = [threading.Thread(target=work, args=(n,))
                   for n in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print("# " + " ".join("%s %d" % pair for pair in sorted(out.items())))

        check(r.process.poll() is None, "the runner lives", r.text()[-2000:])
        check(out.get("ok", 0) > 20, "it answers", out)
        same(r.complaints(), [], "no sanitizer complains")
        wait_for(lambda: len(os.listdir("/proc/%d/fd" % r.process.pid)) < 80,
                 60, "fewer descriptors")
        r.call(wire.DRAIN, head=wire.fields(("DRAINING", 0)))
        same(r.limits(MAX_SANDBOXES=1000)["READY"], 1)


@test("hostile/run-slots")
def run_slots():
    """One that asks for run slots all the time gets one, and those that it
    had replaced keep theirs until they are dead."""
    with Runner("--running", "8", agent=agent) as r:
        client = wire.Client(r.socket, KEY, 2)
        for _ in range(30):
            s = client.send(wire.COMMAND, b"", session=session("greedy"),
                            tenant=tenant("greedy"))
            time.sleep(0.1)
            s.close()
            slots = set(r.slots())
            numbers = r.limits()
            slots |= set(r.slots())
            # where many are long in dying at once, one for each
            check(numbers["RUNNING"] <= max(4, len(slots) - 1)
                  and numbers["QUEUED"] <= 130,
                  "what one sandbox takes", numbers, slots)
        # and all that were replaced do die, and give theirs back
        wait_for(lambda: r.limits()["RUNNING"] <= 1, 120,
                 "the end of all but one")


if __name__ == "__main__":
    main(build, remove)
