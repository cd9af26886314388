#!/usr/bin/env python3
"""What nginx knows of engines: as the owner of their sessions tells it, however
it tells it, in health, v1/limits and metrics, over reloads and its end."""

import os
import re
import socket
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from dagger_mock import serve, shut                          # noqa: E402
from gateway import Gateway, wait_for                        # noqa: E402
from tap import check, main, same, test                      # noqa: E402

A, B = "tcp://127.0.0.1:1", "unix:///run/nobody.sock"
C, D = "tcp://127.0.0.1:2", "tcp://127.0.0.1:3"
MARK = "tcp://127.0.0.1:9"
MANY = ["tcp://127.0.0.1:%d" % n for n in range(20, 31)]
DIGEST = "sha256:" + "5a" * 32
GENERATION = 1700000000000

g = None
owner = None


def engine(name=A, **changes):
    """Fields of an ENGINE that is ready; None leaves one out."""
    fields = dict(ENGINE_NAME=name, READY=1, DETAIL=None,
                  ENGINE_GENERATION=GENERATION, ENGINE_METADATA="eyJhIjoxfQ==",
                  ENGINE_DOMAIN="abc.dagger.local")
    fields.update(changes)
    return wire.fields(*fields.items())


def down(name=A, detail="connect: Connection refused"):
    return engine(name, READY=0, DETAIL=detail, ENGINE_GENERATION=None,
                  ENGINE_METADATA=None, ENGINE_DOMAIN=None)


class Owner:
    """Answers PING with `engines`, or with `answer`, bytes as they are."""

    def __init__(self, path):
        self.path = path
        self.engines = []
        self.answer = None
        self.asked = 0
        self.open = 0               # questions that nginx is not done with
        self.lock = threading.Lock()
        self.marks = 0
        self.listener = None

    def up(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        os.chmod(self.path, 0o666)
        listener.listen(64)
        self.listener = serve(listener, self.one)

    def end(self):
        if self.listener:
            shut(self.listener)
            os.unlink(self.path)
            self.listener = None

    def one(self, sock):
        with self.lock:
            self.open += 1
        try:
            self.told(sock)
        finally:
            with self.lock:
                self.open -= 1

    def told(self, sock):
        sock.settimeout(60)
        preamble = wire.Preamble.decode(wire.receive(sock, 128))
        wire.receive(sock, preamble.head)
        if preamble.operation != wire.PING:
            return
        answer = self.answer
        if answer is None:
            answer = wire.frame(wire.RESULT, wire.fields(
                ("READY", 1), ("VERSION", "1.2.3"),
                *[("ENGINE", e) for e in self.engines]))
        sock.sendall(wire.frame(wire.HEAD,
                                wire.fields(("STATUS", 200))) + answer)
        self.asked += 1
        # it closes when it has made known all that there was in it
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass

    def tell(self, *engines):
        """Until nginx has heard it: it counts sessions of one more engine,
        and knows the rest of it a moment later."""
        self.marks += 1
        before = metric("sandbox_engine_sessions_total", MARK)
        self.answer = None
        self.engines = list(engines) + [
            engine(MARK, ENGINE_GENERATION=GENERATION + self.marks)]
        wait_for(lambda: metric("sandbox_engine_sessions_total", MARK)
                 > before, 60, "nginx to ask")
        wait_for(lambda: self.open == 0, 60, "nginx to know all of it")


def location(path, lines):
    return """
        location %s {
            sandbox on;
            sandbox_realm %s;
            sandbox_jwt_secret_file %s/jwt.key;
            %s
        }""" % (path, path.strip("/"), g.dir, lines)


def start():
    global g, owner
    g = Gateway(runner=None, log_level="info")
    owner = Owner(g.socket)
    g.options["http"] = "sandbox_dagger_image 127.0.0.1:5000/s@%s;" % DIGEST
    g.options["location"] = "sandbox_dagger %s %s;" % (A, B)
    g.options["server"] = (
        location("/one/", "sandbox_dagger %s;" % A)
        + location("/far/", "sandbox_dagger %s resolver=off isolated;" % C)
        + location("/mark/", "sandbox_dagger %s;" % MARK)
        + location("/many/", "sandbox_dagger %s;" % " ".join(MANY))
        + location("/both/", "sandbox_dagger %s; sandbox_dagger %s "
                   "resolver=off isolated;" % (A, C))
        + "location /metrics { sandbox_metrics; }")
    g.start()


def stop():
    owner.end()
    g.stop()


def limits(path="/sandbox/"):
    r = g.request("GET", path + "v1/limits")
    same(r.status, 200, r)
    return r.json


def health(path="/sandbox/"):
    return g.request("GET", path + "health", token=None).json["status"]


def known(status, ready, path="/sandbox/"):
    wait_for(lambda: health(path) == status
             and limits(path)["engines"]["ready"] == ready, 60,
             "%s to be %s, %d ready" % (path, status, ready))


def metric(name, label):
    text = g.request("GET", "/metrics", token=None).body.decode()
    found = re.search(r'(?m)^%s{engine="%s"} (\d+)$'
                      % (name, re.escape(label)), text)
    check(found, "no " + name, text)
    return int(found.group(1))


@test("dagger/health: no owner, one without engines, one with them")
def appears():
    known("unreachable", 0)
    got = limits()
    same((got["backend"], got["route"]), ("dagger", None))
    check("sandbox-runner --dagger" in got["reason"], got)
    check("/" not in got["reason"] and "tcp" not in got["reason"],
          "no path, no address", got)
    same(g.request("GET", "health?ready", token=None).status, 503)

    owner.up()
    owner.tell()
    same(health(), "unreachable")
    check("was not told of it" in limits()["reason"], limits())
    r = g.command("none", "echo")
    same((r.status, r.json["code"]), (503, "runner_unreachable"), r)
    check(int(r.headers["Retry-After"]) > 0 and "nothing was started"
          in r.json["detail"] and "v1/limits" in r.json["detail"],
          "what to do", r)

    owner.tell(down(), engine(B))
    known("ready", 1)
    got = limits()
    same((got["reason"], got["route"], got["engines"], got["unsupported"]),
         (None, "service", {"ready": 1, "total": 2}, []))
    same((got["hardCaps"], got["version"]), (["cpu", "network"], "1.2.3"))
    same((got["sandboxes"]["queued"], got["sandboxes"]["max"],
          got["sandboxes"]["perTenant"], got["base"]),
         (0, None, None, "default"))
    same(health("/one/"), "unreachable")
    check("Connection refused" in limits("/one/")["reason"], limits("/one/"))

    owner.tell(engine(A), engine(B), engine(C))
    known("ready", 2)
    known("ready", 1, "/one/")
    same(g.request("GET", "health?ready", token=None).status, 200)


@test("dagger/health: containers out of reach, some or all")
def routes():
    owner.tell(engine(A), engine(C))
    known("ready", 1, "/far/")
    less = ["stream", "stdin", "background", "resume"]
    same((limits("/far/")["route"], limits("/far/")["unsupported"]),
         ("exec", less))
    known("ready", 2, "/both/")
    same((limits("/both/")["route"], limits("/both/")["unsupported"]),
         ("mixed", less))
    owner.tell(engine(A), down(C))
    known("ready", 1, "/both/")
    same((limits("/both/")["route"], limits("/both/")["unsupported"]),
         ("service", []))


@test("dagger/health: strange answers of an owner make no engine ready")
def strange():
    wrong = (
        dict(READY=None), dict(READY=2), dict(ENGINE_GENERATION=0),
        dict(ENGINE_GENERATION=None), dict(ENGINE_METADATA=""),
        dict(ENGINE_GENERATION=1 << 63), dict(ENGINE_METADATA=None),
        dict(ENGINE_METADATA="x" * 1025), dict(ENGINE_METADATA="a b"),
        dict(ENGINE_METADATA="a\r\nX-Other: b"), dict(ENGINE_DOMAIN=None),
        dict(ENGINE_METADATA=b"\xff"), dict(ENGINE_DOMAIN="x" * 65),
        dict(ENGINE_DOMAIN="a/b"), dict(ENGINE_DOMAIN=b"a\0b"),
        dict(ENGINE_NAME=None))
    for some in (wrong[:len(MANY)], wrong[len(MANY):]):
        owner.tell(*[engine(name) for name in MANY])
        same(limits("/many/")["engines"], {"ready": 11, "total": 11})
        owner.tell(*[engine(**dict(dict(name=name), **changes))
                     for name, changes in zip(MANY, some)])
        same((health("/many/"), limits("/many/")["engines"]["ready"]),
             ("unreachable", 0), some)
        check("no engine is ready" in limits("/many/")["reason"], "a reason",
              some)
    # cut short, too long, of another, empty
    bad = [engine(MANY[0])[:-1], engine(MANY[1]) + b"\0",
           engine(MANY[2] + "0"), engine(MANY[3][:-1]), b"", b"\0" * 40,
           wire.field("ENGINE_NAME", MANY[4])
           + engine(MANY[4], ENGINE_NAME=None)[:-20]]
    owner.tell(*[engine(name) for name in MANY])
    same(health("/many/"), "ready")
    owner.tell(*bad)
    same(health("/many/"), "unreachable")
    # a reason is a line of text, and not for ever
    owner.tell(down(detail="a\r\n\0\x1b[1m\xff" + "\u00e9" * 300))
    reason = limits("/one/")["reason"]
    check(reason.startswith("the engine is not ready: a ")
          and reason.isprintable() and len(reason.encode()) <= 200, reason)
    # the limits of what is taken, and whichever comes first
    owner.tell(engine(ENGINE_METADATA="x" * 1024, ENGINE_DOMAIN="y" * 64),
               down(A), *[engine("tcp://10.0.0.1:%d" % n) for n in range(60)])
    known("ready", 1, "/one/")


@test("dagger/health: answers that are none")
def none():
    result = wire.frame(wire.RESULT, b"x" * 16384)
    for answer in (result, wire.frame(wire.RESULT), b"\xff" * 100,
                   wire.frame(wire.ERROR, wire.fields(
                       ("CODE", "internal"), ("DETAIL", "no room"))),
                   result[:-1], wire.frame(wire.HEAD) * 100, b""):
        owner.tell(engine(A), engine(B))
        known("ready", 2)
        owner.answer = answer
        known("unreachable", 0)
        check(limits()["reason"], "a reason", answer[:20])
    owner.tell(engine(A))
    known("ready", 1)


@test("dagger/health: sessions are counted, and the log has each change once")
def sessions():
    owner.tell(engine(A))
    known("ready", 1)
    before = metric("sandbox_engine_sessions_total", A)
    for n in range(1, 4):
        owner.tell(engine(A, ENGINE_GENERATION=GENERATION + n))
    same(metric("sandbox_engine_sessions_total", A), before + 3)
    same((metric("sandbox_engine_ready", A), metric("sandbox_engine_ready", B),
          metric("sandbox_engine_reached", A),
          metric("sandbox_engine_reached", C)), (1, 0, 1, 0))
    told = '"%s" is ready, with a new session' % A
    same(g.error_log.count(told), before + 2, "lines of the log")
    owner.tell(engine(A, ENGINE_GENERATION=GENERATION))
    wait_for(lambda: "older than the one before" in g.error_log, 30,
             "a word on the clock")


@test("dagger/health: a reload keeps it, an owner that ends takes it along")
def reloads():
    owner.tell(engine(A), engine(B))
    known("ready", 2)
    before = metric("sandbox_engine_sessions_total", A)
    for _ in range(5):
        g.reload()
        same((health(), limits()["engines"]["ready"]), ("ready", 2))
    same(metric("sandbox_engine_sessions_total", A), before)
    # an engine more, and one less
    g.reload(location="sandbox_dagger %s %s;" % (B, D))
    same((health(), limits()["engines"]), ("ready", {"ready": 1, "total": 2}))
    owner.end()
    known("unreachable", 0)
    owner.up()
    owner.tell(engine(D))
    known("ready", 1)


main(start, stop)
