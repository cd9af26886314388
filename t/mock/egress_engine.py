#!/usr/bin/env python3
"""The way out of sandboxes on engines as nginx has it: what a command brings
along for it, and what operators and clients are told."""

import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import egress                                                # noqa: E402
from dagger_mock import World                                # noqa: E402
from gateway import NGINX, Gateway, wait_for                 # noqa: E402
from key_server import Authority                             # noqa: E402
from tap import check, main, same, test                      # noqa: E402

LONG = 120
OURS = ("EGRESS_PROXY", "EGRESS_TOKEN", "EGRESS_INDEX", "EGRESS_CA")
POLICIES = """
    sandbox_egress_policy python { allow index.example.org;
        package_index https://index.example.org/simple/;
        ca_certificate %s; }
    sandbox_egress_policy git { allow git.example.com; }
    sandbox_egress_policy large { allow large.example.com;
        ca_certificate %s; }
    sandbox_egress_policy empty { }
"""

g = None
world = None
pem = None


def start():
    global g, world, pem
    world = World(engines=3)
    world.engines[0].proxy = "10.87.0.1:3128"
    world.engines[1].proxy = "[fd00::1]:3128"
    world.engines[2].proxy = "10.88.0.1:3128"
    last = world.engines[2].name
    g = Gateway(runner=None, workers=2, log_level="info")
    with open(Authority().file) as f:
        pem = f.read()
    g.write("ca.pem", pem, 0o644)
    g.write("large.pem", pem * (66000 // len(pem) + 1), 0o644)
    g.options["location"] = world.lines("move=1s").replace(" " + last, "") \
        + "sandbox_store %s/store; sandbox_egress python;" % g.dir
    g.options["http"] = POLICIES % (g.path("ca.pem"), g.path("large.pem"))
    g.options["server"] = "".join("""
        location /%s/ {
            sandbox on;
            sandbox_realm %s;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_egress %s;
            sandbox_wall_time 30s;
            sandbox_background_time 1h;
            sandbox_pending 3;
            sandbox_backend dagger;
            sandbox_dagger %s resolver=127.0.0.1:%d isolated;
            sandbox_dagger_image 127.0.0.1:5000/sandbox@sha256:%s;
        }
    """ % (name, name, g.dir, name, last, world.names.port, "0" * 64)
        for name in ("git", "large", "empty", "none"))
    world.own(g)
    g.start()
    wait_for(lambda: limits("sandbox")["inForce"], LONG, "the table in force")


def stop():
    g.stop()
    world.end()


def ours():
    """Those of /sandbox/, which are behind no firewall."""
    return world.engines[:2]


def limits(where):
    return g.request("GET", "/%s/v1/limits" % where).json["egress"]


def seen(conversation, text="show", where="sandbox", **fields):
    """What the agent got of a command, and its preamble."""
    r = g.request("POST", "/%s/v1/conversations/%s/commands"
                  % (where, conversation), dict({"command": text}, **fields))
    same(r.status, 200, r)
    return json.loads(r.json["stdout"])


def signed(head, policy, least, most):
    """Its token is one of that policy and session, for about so long."""
    expires = int(head["EGRESS_TOKEN"].split(":")[0][-16:], 16)
    same(head["EGRESS_TOKEN"],
         egress.token(g.key, bytes.fromhex(head["preamble"]["session"]),
                      policy, expires))
    check(least - 5 <= expires - time.time() <= most + 5, "how long",
          expires - time.time())


@test("egress/engine-token: a command's proxy, token, index, certificates")
def tokens():
    head = seen("a")
    check(head["EGRESS_PROXY"] in (e.proxy for e in ours()), "a proxy",
          head["EGRESS_PROXY"])
    # the longest command, ten before it in the queue, a minute
    signed(head, "python", 0, 600 + 10 * 120 + 60)
    signed(head, "python", 600 + 10 * 120 + 30, 1 << 40)
    same(head["EGRESS_INDEX"], "https://index.example.org/simple/")
    same(head["EGRESS_CA"].strip(), pem.strip())
    same(head["preamble"]["egress"], egress.policy_id("python"))
    same(head["COMMAND"], "show")

    head = seen("a", where="git")
    signed(head, "git", 3600 + 3 * 30, 3600 + 3 * 30 + 60)
    same([n for n in OURS if n in head], ["EGRESS_PROXY", "EGRESS_TOKEN"])

    for where in ("empty", "none"):
        head = seen("a", where=where)
        same([n for n in OURS if n in head], [], where)
        same(head["preamble"]["egress"], 0)
    # more certificates than a head has room for stay away
    head = seen("a", where="large")
    same([n for n in OURS if n in head], ["EGRESS_PROXY", "EGRESS_TOKEN"])


@test("egress/engine-token-once: a command that is sent again has one")
def again():
    same(g.request("PUT", "v1/conversations/st/attachments/a.txt", "x").status,
         201)
    # the mock refuses a head with a field that stands twice
    head = seen("st", "mock: 1:needed=0 1:error=stage_needed echo")
    signed(head, "python", 0, 1 << 40)
    same(head["body"], "x")
    # and one whose agent has ended meanwhile
    for engine in world.engines:
        engine.end_agents()
    head = seen("st")
    signed(head, "python", 0, 1 << 40)
    # with all the room that a head has
    env = {"V%03d" % n: "x" * 1300 for n in range(500)}
    r = g.request("POST", "v1/conversations/st/commands",
                  {"command": "show", "env": env})
    same(r.status, 200, r)
    env = {"V%03d" % n: "x" * 1560 for n in range(500)}
    r = g.request("POST", "v1/conversations/st/commands",
                  {"command": "show", "env": env})
    same((r.status, r.json.get("code")), (413, "body_too_large"), r)


@test("egress/engine-token-moves: another engine has another proxy")
def moves():
    head = seen("mv")
    old, new = sorted(ours(),
                      key=lambda e: e.proxy != head["EGRESS_PROXY"])
    old.down()
    try:
        def moved():
            r = g.request("POST", "v1/conversations/mv/commands",
                          {"command": "show"})
            return r.status == 200 and json.loads(r.json["stdout"])
        head = wait_for(moved, LONG, "the other engine")
        same(head["EGRESS_PROXY"], new.proxy)
        signed(head, "python", 0, 1 << 40)
    finally:
        old.up()
    wait_for(lambda: g.request("GET", "v1/limits").json["engines"]["ready"]
             == 2, LONG, "both engines")


@test("egress/engine-no-proxy: no network, in force nowhere, and why")
def no_proxy():
    before = [e.proxy for e in ours()]
    for engine in ours():
        engine.proxy = None
    g.reload()                  # a new worker asks at once
    try:
        wait_for(lambda: not limits("sandbox")["inForce"], LONG, "the limits")
        for _ in range(5):
            head = seen("np")
            same([n for n in OURS if n in head], [])
        words = 'has no egress proxy, so commands with policy "python"'
        wait_for(lambda: words in g.error_log, LONG, "the log")
        check(g.error_log.count(words) <= 4, "once of each worker")
        g.expected.append(words)
        # what can't be one is the protocol's breach
        world.engines[0].proxy = "10.0.0.1:80@evil"
        g.reload()
        wait_for(lambda: g.request("GET", "v1/limits").json["engines"]
                 ["ready"] == 1, LONG, "an engine that is not believed")
        wait_for(lambda: "breaks the protocol" in g.error_log, LONG,
                 "the log")
        g.expected.append("breaks the protocol")
    finally:
        for engine, proxy in zip(ours(), before):
            engine.proxy = proxy
    g.reload()
    wait_for(lambda: limits("sandbox")["inForce"], LONG, "in force again")
    check("EGRESS_PROXY" in seen("np"), "its proxy")


@test("egress/engine-limits: hard where a firewall is, and told at the start")
def told():
    same(limits("sandbox")["enforced"], "best_effort")
    same(limits("git")["enforced"], "hard")
    same("network" in g.request("GET", "v1/limits").json["hardCaps"], False)
    for where in ("git", "none"):
        check("network" in g.request("GET", "/%s/v1/limits" % where).json
              ["hardCaps"], where)
    done = subprocess.run([NGINX, "-t", "-c", g.path("nginx.conf")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    text = done.stdout.decode()
    same(done.returncode, 0, text)
    same(text.count("is best effort in location"), 1, text)
    check('"sandbox_egress python" is best effort in location "/sandbox/"'
          in text, "which", text)
    same(text.count("don't get it"), 1, text)
    check('"ca_certificate" of "sandbox_egress_policy large"' in text,
          "which", text)


main(start, stop)
