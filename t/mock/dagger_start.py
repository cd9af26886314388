#!/usr/bin/env python3
"""The way from a request to an agent on an engine: which engine, which address,
what a death on the way costs, and what a client is told."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from dagger_mock import World                               # noqa: E402
from gateway import Gateway, wait_for                       # noqa: E402
from tap import check, main, same, test                     # noqa: E402

g = None
world = None


def start():
    global g, world
    world = World(engines=3)
    g = Gateway(runner=None, workers=2, log_level="info",
                location=world.lines("move=2s"))
    world.own(g)
    g.start()
    g.wait_ready()


def stop():
    g.stop()
    world.end()


def run(conversation, text="echo", **fields):
    return g.command(conversation, text, **fields)


def holder(conversation):
    """The engine that has an agent of that conversation, and the agent."""
    return [(e, a) for e in world.engines for a in e.agents.values()
            if a.alive]


@test("a command reaches an agent, the next one goes straight to it")
def first():
    r = run("first")
    same(r.status, 200, r)
    engine, = [e for e in world.engines if e.queries]
    same(engine.queries, ["volumes", "service"])
    for _ in range(5):
        same(run("first").status, 200)
    same(engine.queries, ["volumes", "service"])
    same(len(world.names.asked), 1)


main(start, stop)
