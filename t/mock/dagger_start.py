#!/usr/bin/env python3
"""The way from a request to an agent on an engine: which engine, which address,
what a death on the way costs, and what a client is told."""

import json
import os
import re
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from dagger_mock import World                                # noqa: E402
from gateway import Gateway, alive, token, wait_for          # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
world = None


def start():
    global g, world
    world = World(engines=3)
    g = Gateway(runner=None, workers=2, log_level="info")
    g.options["location"] = world.lines("move=1h") \
        + "sandbox_store %s/store;" % g.dir
    g.options["http"] = "sandbox_zone sandbox:1m running=4;"
    g.options["server"] = """
        location /quick/ {
            sandbox on;
            sandbox_realm quick;
            sandbox_store %s/store;
            sandbox_jwt_secret_file %s/jwt.key;
            %s
        }
    """ % (g.dir, g.dir, world.lines("move=1s"))
    world.own(g)
    g.start()
    ready()


def stop():
    g.stop()
    world.end()


def ready(n=3):
    """nginx knows that so many engines are ready."""
    wait_for(lambda: g.request("GET", "v1/limits").json["engines"]["ready"]
             == n, 30, "%d engines that are ready" % n)


def run(conversation, text="echo", quick=False, **fields):
    """`quick`: where a conversation does not wait long for its engine."""
    if quick:
        return g.request("POST", "/quick/v1/conversations/%s/commands"
                         % conversation, dict(fields, command=text))
    return g.command(conversation, text, **fields)


def good(conversation, text="echo", **options):
    r = run(conversation, text, **options)
    same(r.status, 200, r)
    return r.json


def events(conversation, text="echo"):
    return g.request("POST", "v1/conversations/%s/commands" % conversation,
                     {"command": text},
                     headers={"Accept": "text/event-stream"})


def save(conversation):
    return g.request("POST", "v1/conversations/%s/files" % conversation,
                     {"path": "x.txt"})


def lost(result):
    return [n for n in result["stagingNotices"]
            if n["code"] == "sandbox_lost"]


def holder(conversation, **options):
    """The engine of a conversation that is new, and its agent."""
    agents = {a for e in world.engines for a in e.started}
    good(conversation, **options)
    new = [a for e in world.engines for a in e.started if a not in agents]
    return new[-1].engine, new[-1]


def open_descriptors():
    out = 0
    for pid in g.workers():
        for name in os.listdir("/proc/%d/fd" % pid):
            try:
                link = os.readlink("/proc/%d/fd/%s" % (pid, name))
            except OSError:
                continue
            out += link.startswith("socket:")
    return out


@test("dagger/first: a command reaches an agent, the next goes straight to it")
def first():
    begun = time.monotonic()
    engine, agent = holder("first")
    took = time.monotonic() - begun
    # the second one again, where its name did not come within a second
    before = list(engine.queries)
    same(before, ["volumes", "service"] + ["service"] * (len(before) - 2))
    check(len(before) <= 2 + int(took), "too many", before, took)
    asked = len(world.names.asked)
    for _ in range(5):
        same(lost(good("first")), [])
    same(engine.queries, before)
    same(len(world.names.asked), asked)
    same(agent.connections, 6)


@test("dagger/definition: what an agent is given, and what it is sent")
def definition():
    engine, agent = holder("definition")
    e = agent.environment
    same(e["SANDBOX_ENGINE_NETWORK"], "none")
    same(int(e["SANDBOX_ENGINE_EPOCH"]), engine.generation)
    import hashlib
    import hmac
    preamble = agent.preambles[-1]
    same(preamble.session.hex(), e["SANDBOX_ENGINE_SESSION"])
    secret = hmac.new(g.key, preamble.session
                      + engine.generation.to_bytes(8, "big"),
                      hashlib.sha256).digest()
    same(preamble.key, secret)
    same(e["SANDBOX_ENGINE_SECRET"], secret.hex())
    same(preamble.base, 600, "idle seconds, as sandbox_zone has them")


@test("dagger/choice: conversations spread, and each stays where it is")
def choice():
    place = {}
    while len(place) < 24 or len(set(place.values())) < 3:
        check(len(place) < 150, "conversations on three engines", place)
        engine, agent = holder("spread-%d" % len(place))
        place[len(place)] = engine
    for n in place:
        good("spread-%d" % n)
    same(sum(len(e.started) for e in world.engines),
         len({(a.session) for e in world.engines for a in e.started}),
         "agents, one a session")


@test("dagger/idle: an agent that ended is started again, unnoticed")
def idle():
    engine, agent = holder("idle")
    agent.end()
    same(lost(good("idle")), [])
    same(len([a for a in engine.started if a.session == agent.session]), 2)
    good("idle")
    same(len([a for a in engine.started if a.session == agent.session]), 2)


@test("dagger/backlog: one that ends with requests in its backlog")
def backlog():
    engine, agent = holder("backlog")
    agent.drop = 1
    same(lost(good("backlog")), [])
    # once more, not for ever
    agent.drop = 1000
    r = run("backlog")
    same((r.status, r.json["code"]), (503, "runner_lost"), r)
    check("nothing was started" in r.json["detail"], r.json)
    agent.drop = 0
    good("backlog")


@test("dagger/head: after HEAD nothing is sent again")
def head():
    engine, agent = holder("head")
    before = agent.connections
    r = run("head", "mock: head close")
    same((r.status, r.json["outcome"]), (200, "runner_lost"), r)
    same(agent.connections, before + 1)
    good("head")


@test("dagger/fenced: an agent that another one has fenced, a wrong secret")
def fenced():
    engine, agent = holder("fenced")
    agent.fenced = True
    before = agent.connections
    r = run("fenced")
    same((r.status, r.json["code"]), (503, "fenced"), r)
    same(agent.connections, before + 2, "it was tried twice")
    agent.fenced = False
    good("fenced")
    agent.secret = bytes(32)
    r = run("fenced")
    same((r.status, r.json["code"]), (503, "unauthorized_peer"), r)
    agent.end()
    good("fenced")


@test("dagger/coming: an agent listens some time after its start")
def coming():
    for engine in world.engines:
        engine.delay = 0.4
    try:
        for n in range(4):
            good("coming-%d" % n)
    finally:
        for engine in world.engines:
            engine.delay = 0


@test("dagger/name: the name server knows it some time after its start")
def name():
    world.names.missing = 3
    good("name")
    same(world.names.missing, 0)


@test("dagger/generation: another session of the engine, another agent")
def generation():
    engine, agent = holder("generation")
    engine.renew()
    result = good("generation")
    same(lost(result), [])
    second = engine.agent(agent.session)
    check(second is not agent and second.epoch > agent.epoch, second)
    good("generation")
    same(engine.agent(agent.session), second)


@test("dagger/generation: an owner that is slow to tell of it is waited for")
def late():
    engine, agent = holder("late")
    world.speaks.clear()
    try:
        engine.renew()
        before = world.questions
        got = []
        thread = threading.Thread(target=lambda: got.append(run("late")))
        thread.start()
        wait_for(lambda: world.questions > before, 60, "a question to it")
        time.sleep(1.5)             # more than an engine's own word is doubted
    finally:
        world.speaks.set()
    thread.join(120)
    check(got, "no answer")
    same(got[0].status, 200, got[0])
    same(lost(got[0].json), [])


@test("dagger/wiped: an engine that lost its volumes; the next result says so")
def wiped():
    engine, agent = holder("wiped")
    engine.down()
    engine.generation += 1000
    engine.up()
    result = good("wiped")
    notice, = lost(result)
    same(notice["name"], "")
    check("lost its files" in notice["detail"], notice)
    check(str(engine.port) not in json.dumps(result["stagingNotices"]), notice)
    same(lost(good("wiped")), [])


@test("dagger/wiped-store: nor does a restart of nginx make it forget")
def wiped_store():
    engine, agent = holder("restart")
    wait_for(lambda: recorded("restart", engine), 60, "the note of its engine")
    g.end(g.nginx, signal.SIGTERM)
    engine.down()
    engine.generation += 1000
    engine.up()
    g.start_nginx()
    ready()
    notice, = lost(good("restart"))
    check("lost its files" in notice["detail"], notice)


@test("dagger/fresh: what was asked for is no loss")
def fresh():
    engine, agent = holder("fresh")
    same(lost(run("fresh", fresh=True).json), [])
    same(lost(good("fresh")), [])
    r = g.request("POST", "v1/conversations/fresh/reset")
    same(r.status, 200, r)
    same(lost(good("fresh")), [])
    same(g.request("DELETE", "v1/conversations/fresh").status, 204)
    same(lost(good("fresh")), [])


@test("dagger/moved: an engine that stays away: 503, then another one")
def moved():
    engine, agent = holder("moved", quick=True)
    n = 0
    while True:
        stays = holder("stays-%d" % n)
        if stays[0] is engine:
            break
        n += 1
    engine.down()
    # where it may stay away for an hour
    r = run("stays-%d" % n)
    same((r.status, r.json["code"]), (503, "engine_unreachable"), r)
    check("Retry-After" in r.headers, r)
    # where it is given up
    r = wait_for(lambda: [x for x in [run("moved", quick=True)]
                          if x.status == 200], 60, "another engine")[0]
    notice, = lost(r.json)
    check("engine is gone" in notice["detail"], notice)
    same(lost(good("moved", quick=True)), [])
    engine.generation += 1000
    engine.up()
    ready()
    same(lost(good("moved", quick=True)), [], "it stays where it is now")
    second = [a for e in world.engines for a in e.started
              if a.session == agent.session and e is not engine]
    same(len(second), 1)
    notice, = lost(good("stays-%d" % n))
    check("lost its files" in notice["detail"], notice)


@test("dagger/delete: what is deleted is so on the engine that has it")
def delete():
    # moved away from where a hash would have it, then nginx forgets
    engine, agent = holder("delete", quick=True)
    engine.down()
    wait_for(lambda: run("delete", quick=True).status == 200, 60,
             "another engine")
    second, = [e for e in world.engines if agent.session in e.volumes]
    wait_for(lambda: recorded("delete", second), 60, "the note of its engine")
    g.end(g.nginx, signal.SIGTERM)
    engine.generation += 1000
    engine.up()
    g.start_nginx()
    ready()
    before = len(second.queries)
    same(g.request("DELETE", "/quick/v1/conversations/delete").status, 204)
    check(len(second.queries) > before, "the engine that has it")
    check(agent.session not in engine.volumes, "the other was not asked")


def recorded(conversation, engine):
    """The conversation's mark in the store has the name of that engine."""
    for top, _, names in os.walk(g.path("store")):
        if "used" in names:
            with open(os.path.join(top, "used"), "rb") as f:
                if top.endswith("/" + conversation) \
                        and engine.name.encode() in f.read():
                    return True
    return False


@test("dagger/none: no engine at all is said at once, everywhere")
def none():
    for engine in world.engines:
        engine.down()
    ready(0)
    for r in (run("none"), events("none"), save("none"),
              g.request("GET", "v1/conversations/none"),
              g.request("GET", "v1/conversations/none/fs/x")):
        same((r.status, r.json["code"]), (503, "runner_unreachable"), r)
        check("Retry-After" in r.headers, r)
    for engine in world.engines:
        engine.generation += 1000
        engine.up()
    ready()


def begin(conversation, text="mock: sleep=200"):
    """A command that is not waited for (text None: only asks); its socket."""
    body = json.dumps({"command": text}).encode() if text else b""
    sock = socket.create_connection(("127.0.0.1", g.port), 30)
    sock.sendall(b"%s /sandbox/v1/conversations/%s%s HTTP/1.1\r\n"
                 b"Host: x\r\nAuthorization: Bearer %s\r\n"
                 b"Content-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n"
                 % (b"POST" if text else b"GET", conversation.encode(),
                    b"/commands" if text else b"", token().encode(),
                    len(body)) + body)
    return sock


def busy(names):
    """Four commands that run, whose clients wait; one more is refused."""
    def arrived():
        return sum(p.operation == wire.COMMAND for e in world.engines
                   for a in e.started for p in a.preambles)
    before = arrived()
    socks = [begin(name) for name in names]
    wait_for(lambda: arrived() == before + 4, 60, "four commands that run")
    r = run("probe")
    same((r.status, r.json["code"]), (503, "too_many_running"), r)
    check("Retry-After" in r.headers, r)
    return socks


def leave(socks):
    """Their clients go, and nginx has seen it."""
    def gone():
        return g.read("logs/access.log").count('" 499 ')
    before = gone()
    for sock in socks:
        sock.close()
    wait_for(lambda: gone() >= before + len(socks), 60,
             "the end of %d requests" % len(socks))


@test("dagger/running: as many commands as may, then 503; all ways give back")
def running():
    names = ["run-%d" % n for n in range(4)]
    for name in names + ["probe"]:
        good(name)
    socks = busy(names)
    # other operations take none
    same(g.request("GET", "v1/conversations/probe").status, 200)
    leave(socks)
    good("probe")
    # a worker that dies
    socks = busy(names)
    g.expected.append("exited on signal 9")
    old = set(g.workers())
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(set(g.workers()) - old) == 2, 60, "new workers")
    for sock in socks:
        sock.close()
    socks = busy(names)
    # one that leaves keeps what ends in it
    old = g.reload()
    r = run("probe")
    same((r.status, r.json["code"]), (503, "too_many_running"), r)
    leave(socks)
    good("probe")
    wait_for(lambda: not any(alive(p) for p in old), 60, "old workers' end")
    for e in world.engines:
        e.end_agents()
    leave(busy(names))


@test("dagger/reload: new workers find what the old ones knew")
def reload():
    engine, agent = holder("reload")
    n = len(engine.queries)
    g.reload()
    same(lost(good("reload")), [])
    same(len(engine.queries), n)


def clean(before, what):
    """Nothing is left of requests whose clients went."""
    wait_for(lambda: sum(e.open for e in world.engines) == 0, 60,
             "the end of questions: " + what)
    wait_for(lambda: open_descriptors() <= before, 60,
             "as many sockets as before: " + what)


# resolvers of engines have a socket each, from their first use on

RESOLVERS = 3 * 2
GUESTS = 20                     # more than these


@test("dagger/client: one that leaves while an engine or an agent is waited for")
def client():
    good("leave")
    good("probe")
    wait_for(lambda: len(g.workers()) == 2, 60, "workers")
    before = open_descriptors() + RESOLVERS + 4
    for kind in ("volumes", "service"):
        for engine in world.engines:
            engine.hang.add(kind)
        socks = [begin("leave-%s-%d" % (kind, n)) for n in range(4)]
        socks += [begin("ask-%s-%d" % (kind, n), None) for n in range(GUESTS)]
        wait_for(lambda: sum(e.open for e in world.engines) == len(socks), 60,
                 "questions of all")
        same(run("probe").json["code"], "too_many_running")
        leave(socks)
        clean(before, kind)
        for engine in world.engines:
            engine.hang.clear()
    # in front of names that are not told, and of agents that do not listen
    world.names.silent = True
    asked = len(world.names.asked)
    socks = [begin("names-%d" % n, None) for n in range(GUESTS)]
    wait_for(lambda: len(set(world.names.asked[asked:])) == GUESTS, 60,
             "names that are asked for")
    leave(socks)
    world.names.silent = False
    clean(before, "names")
    for engine in world.engines:
        engine.deaf = True
    n = sum(len(e.started) for e in world.engines)
    socks = [begin("deaf-%d" % n, None) for n in range(GUESTS)]
    wait_for(lambda: sum(len(e.started) for e in world.engines)
             >= n + GUESTS, 60, "services")
    leave(socks)
    clean(before, "deaf agents")
    for engine in world.engines:
        engine.deaf = False
        engine.end_agents()
    # whatever they had is there for others
    leave(busy(["leave-%d" % n for n in range(4)]))


@test("dagger/deaf: an agent that never listens is a failure of its engine")
def deaf():
    for engine in world.engines:
        engine.deaf = True
    try:
        r = events("deaf")
        same((r.status, r.json["code"]), (502, "engine_failed"), r)
        same(r.headers["Content-Type"], "application/problem+json")
    finally:
        for engine in world.engines:
            engine.deaf = False
            engine.end_agents()
    good("deaf")


@test("dagger/refuse: what an engine says is for the log, not for clients")
def refuse():
    for engine in world.engines:
        engine.refuse["service"] = "failed to resolve image \"secret/place\""
    try:
        for r in (run("refuse"), events("refuse"), save("refuse"), tool()):
            check("secret/place" not in r.body.decode(), r)
            if r.status == 200:
                check(r.json["result"]["isError"], r)
                check("engine_failed" in r.body.decode(), r)
            else:
                same((r.status, r.json["code"]), (502, "engine_failed"), r)
    finally:
        for engine in world.engines:
            engine.refuse.clear()
    check(any("[error]" in line and "secret/place" in line
              for line in g.error_log.splitlines()), "the log has it")
    good("refuse")


def tool():
    return g.request("POST", "v1/conversations/refuse/mcp", {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "run_command", "arguments": {"command": "echo"}}},
        headers={"Accept": "application/json, text/event-stream",
                 "MCP-Protocol-Version": "2025-11-25"})


@test("dagger/list: conversations as store and zone know them")
def listing():
    bob = token(sub="lister")
    same(g.request("PUT", "v1/conversations/only-files/attachments/a", b"x",
                   bob).status, 201)
    same(g.command("used", "echo", bob).status, 200)

    def names():
        r = g.request("GET", "v1/conversations", token=bob)
        same(r.status, 200, r)
        return {c["conversationId"]: c for c in r.json["conversations"]}
    wait_for(lambda: len(names()) == 2, 60, "two conversations")
    got = names()
    same(got["only-files"]["state"], "none")
    same(got["used"]["state"], "idle")
    check(got["used"]["createdAt"] and got["used"]["lastUsedAt"], got)
    same(g.request("DELETE", "v1/conversations/used", token=bob).status, 204)
    same(set(names()), {"only-files"})


@test("dagger/exec: where containers are out of reach an exec brings all of it")
def execs():
    far = World(engines=1)
    far.names.silent = True
    try:
        gateway = Gateway(runner=None, workers=1, log_level="info",
                          location=far.lines())
        gateway.options["server"] = "location /metrics { sandbox_metrics; }"
        gateway.options["location"] += "sandbox_store %s/store;" % gateway.dir
        far.own(gateway)
        with gateway as e:
            e.wait_ready()
            through(e, far.engines[0])
    finally:
        far.end()


def through(e, engine):
    c = "v1/conversations/far/"
    r = e.command("far", "mock: stdout=hello exit_code=3")
    same((r.status, r.json["stdout"], r.json["exitCode"]), (200, "hello", 3),
         r)
    same([q for n, q in enumerate(engine.queries)
          if q not in engine.queries[:n]], ["volumes", "service", "exec"])
    limits = e.request("GET", "v1/limits").json
    same(limits["route"], "exec")
    started = len(engine.started)
    r = e.command("far", "echo", stdin="some input")
    same((r.status, json.loads(r.json["stdout"])["body"]),
         (200, "some input"), r)
    # files, of a length that is known, and not
    data = os.urandom(300000)
    same(e.request("PUT", c + "fs/a.bin", data).status, 201)
    r = e.request("GET", c + "fs/a.bin")
    same((r.status, r.body == data), (200, True))
    r = e.request("PUT", c + "fs/b.bin", iter([data[:1000], data[1000:]]))
    same(r.status, 201, r)
    same(e.request("GET", c + "fs/b.bin").body == data, True)
    r = e.request("POST", c + "files", {"path": "a.bin"})
    same(r.status, 201, r)
    same(e.request("GET", c + "files/a.bin").body == data, True)
    # attachments are asked for, and sent
    same(e.request("PUT", c + "attachments/in.csv", b"x,y\n" * 9).status, 201)
    r = e.command("far",
                  "mock: 1:needed=0 1:error=stage_needed 2:stdout=staged")
    same((r.status, r.json["stdout"]), (200, "staged"), r)
    # with files, which are read once, nothing goes twice
    do_exec, asked = engine.do_exec, engine.queries.count("exec")

    def needed(text):
        engine.refuse["exec"] = "not now"
        return do_exec(text)

    engine.do_exec = needed
    r = e.command("far", "mock: 1:needed=0 1:error=stage_needed")
    same((r.status, r.json["code"]), (502, "engine_failed"), r)
    same(engine.queries.count("exec"), asked + 2)
    engine.refuse.clear()

    # nor is a command begun again whose agent was killed at HEAD, or later
    for text in ("AAAAAA==", "AAA", "[omitting 9 bytes]..."):
        def killed(query):
            data = do_exec(query)
            leaf = data
            while "stdout" not in leaf:
                leaf, = leaf.values()
            leaf["stdout"] = text
            return data

        engine.do_exec, asked = killed, engine.queries.count("exec")
        r = e.command("far", "echo")
        same((r.status, r.json["code"]), (503, "runner_lost"), r)
        check("may still" in r.json["detail"], r)
        same(engine.queries.count("exec"), asked + 1)
    engine.do_exec = do_exec
    # what has no way
    for r in (e.request("POST", c + "commands", {"command": "echo"},
                        headers={"Accept": "text/event-stream"}),
              e.command("far", "echo", background=True),
              e.request("POST", c + "commands/x/stdin", b"x"),
              e.request("GET", c + "commands/x"),
              e.request("DELETE", c + "commands/x")):
        same((r.status, r.json["code"]), (501, "not_on_this_backend"), r)
    same(e.request("POST", c + "reset").status, 200)
    same(e.request("GET", c.rstrip("/")).json["state"], "running")
    same(e.request("DELETE", c.rstrip("/")).status, 204)
    same(len(engine.started), started, "no more services were started")
    # an engine that refuses, one that says nothing, one that is new
    engine.refuse["exec"] = "no such thing"
    r = e.command("far", "echo")
    same((r.status, r.json["code"]), (502, "engine_failed"), r)
    # one that is stopped meanwhile: what may have begun is not begun again
    engine.path = ["container", "from", "withExec", "stdout"]
    asked = engine.queries.count("exec")
    r = e.command("far", "echo")
    same((r.status, r.json["code"]), (503, "runner_lost"), r)
    same(engine.queries.count("exec"), asked + 1)
    engine.refuse.clear()
    engine.path = None
    text = e.request("GET", "/metrics", token=None).body.decode()
    for name in ("queries", "failures"):
        n = re.search(r"sandbox_engine_%s_total\{[^}]*\} (\d+)" % name, text)
        check(n and int(n.group(1)) > 0, name, text)
    engine.generation += 1000
    same(e.command("far", "echo").status, 200)


main(start, stop)
