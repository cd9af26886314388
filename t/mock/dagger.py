#!/usr/bin/env python3
"""Answers of engines to POST /query, byte for byte as engines give them, and
such as no engine should: what a client is told, and that a worker is none the
worse for it.  Each test has an engine of its own."""

import base64
import json
import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from dagger_mock import Engine, World, listen, serve, shut   # noqa: E402
from gateway import Gateway, free_port, token, wait_for      # noqa: E402
from tap import check, main, same, test                      # noqa: E402

REFUSED = 502, "engine_failed"
LOST = 503, "engine_unreachable"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

ENGINES = 14

g = None
world = None
raws = queue.Queue()            # engines that no test has at the moment
h2_port = free_port()


def answer(body, status="200 OK", kind=JSON, more=""):
    body = body.encode() if isinstance(body, str) else body
    return ("HTTP/1.1 %s\r\nContent-Type: %s\r\n%sDate: Mon, 30 Nov 2026 "
            "07:00:00 GMT\r\nContent-Length: %d\r\n\r\n"
            % (status, kind, more, len(body))).encode() + body


def chunks(body, size, end=b"0\r\n\r\n"):
    out = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" \
        b"Transfer-Encoding: chunked\r\n\r\n"
    for i in range(0, len(body), size):
        piece = body[i:i + size]
        out += b"%x\r\n%s\r\n" % (len(piece), piece)
    return out + end


def error(message, **more):
    return json.dumps({"data": None, "errors": [dict(more, message=message)]})


# name, what volumes and service are answered with, status and code, and what
# the log has of it

ANSWERS = [
    ("an unknown field", answer(
        '{"errors":[{"message":"Cannot query field \\"nope\\" on type '
        '\\"Query\\". Did you mean \\"node\\"?","locations":[{"line":1,'
        '"column":2}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}],'
        '"data":null}', "422 Unprocessable Entity"),
     REFUSED, 'Cannot query field "nope" on type'),
    ("a syntax error", answer(
        '{"errors":[{"message":"Expected Name, found \\u003cEOF\\u003e",'
        '"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}],"data":null}',
        "422 Unprocessable Entity"), REFUSED, "Expected Name, found <EOF>"),
    ("no JSON", answer(
        '{"errors":[{"message":"json request body could not be decoded: EOF"}]'
        ',"data":null}', "400 Bad Request"), REFUSED, "could not be decoded"),
    ("JSON with a type of text", answer(
        '{"errors":[{"message":"transport not supported"}],"data":null}',
        "400 Bad Request", TEXT), REFUSED, "transport not supported"),
    ("no metadata", answer(
        "failed to get client metadata: failed to JSON-unmarshal X-Dagger-"
        "Client-Metadata: unexpected end of JSON input\n",
        "500 Internal Server Error", TEXT), REFUSED,
     "failed to get client metadata"),
    ("another version", answer("incompatible client version v0.18.0\n",
                               "500 Internal Server Error", TEXT),
     REFUSED, "incompatible client version"),
    ("a session that is over", answer(
        error("waiting for client session attachables: context deadline "
              "exceeded"), kind=TEXT), REFUSED, "waiting for client session"),
    ("a sentence with 200", answer(
        'session attachables for client "c1" already exist', kind=TEXT),
     REFUSED, "already exist"),
    ("an unknown path", answer("404 page not found\n", "404 Not Found", TEXT),
     REFUSED, "404 page not found"),
    ("an image that is not there", answer(
        error('failed to resolve image "127.0.0.1:5000/sandbox": not found',
              path=["container", "from"])), REFUSED, "failed to resolve"),
    ("a stale id", answer(
        error('arg "id": resolve ID input "engineResult(4463): Container!": '
              "resolve result 4463: missing shared result")), REFUSED,
     "missing shared result"),
    ("its end", answer('{"errors":[{"message":"engine is shutting down",'
                       '"path":["container"]}],"data":null}'),
     REFUSED, "engine is shutting down"),
    ("a command that failed", answer(
        error("exit code: 137 [traceparent:00-0]", extensions={
            "_type": "EXEC_ERROR", "cmd": ["x"], "exitCode": 137,
            "stdout": "out", "stderr": ""})), REFUSED, "exit code: 137"),
    ("data and errors", answer('{"data":{"a":1},"errors":[{"message":"half"}]'
                               "}"), REFUSED, "half"),
    ("an error without words", answer('{"errors":[{}]}'), REFUSED,
     "it does not say why"),
    ("errors of another kind", answer('{"errors":"no"}'), LOST,
     "not the JSON that was expected"),
    ("no data", answer('{"data":null}'), LOST, "not the JSON that was"),
    ("other data", answer('{"data":{"version":"v0.21.5"}}'), REFUSED,
     "no ids of volumes"),
    ("ids of another kind", answer('{"data":{"home":{"id":1},"skills":{"id":'
                                   '"a"},"meta":{"id":"b"}}}'), REFUSED,
     "no ids of volumes"),
    ("a name twice", answer('{"data":{},"data":{}}'), LOST, "not the JSON"),
    ("deep", answer('{"data":{"a":%s%s}}' % ("[" * 70, "]" * 70)), LOST,
     "not the JSON that was expected"),
    ("many", answer('{"data":[%s1]}' % ("1," * 5000)), LOST, "not the JSON"),
    ("JSON that is no object", answer("[]"), LOST, "not the JSON"),
    ("HTML of a proxy", answer("<html>Bad Gateway</html>", "502 Bad Gateway",
                               "text/html"), REFUSED, "<html>Bad Gateway"),
    ("nothing at all", answer(""), LOST, "its answer is empty"),
    ("terminals", answer("a\x1b[31mred\u202e\u0085\nb", kind=TEXT), REFUSED,
     "refuses a query: a [31mred"),
    ("HTTP of old", answer('{"data":{}}').replace(b"HTTP/1.1", b"HTTP/1.0"),
     LOST, "does not begin as HTTP/1.1"),
    ("no length", b"HTTP/1.1 200 OK\r\n\r\n{\"data\":{}}", LOST,
     "does not say where it ends"),
    ("a switch", b"HTTP/0.0 101 Switching Protocols\r\nConnection: Upgrade\r\n"
     b"Upgrade: h2c\r\n\r\n", LOST, "does not begin as HTTP/1.1"),
    ("a length that is none", answer("{}").replace(b"Length: 2",
                                                   b"Length: 2, 2"), LOST,
     "its length is no number"),
    ("foreign bytes", random.Random(3).randbytes(5000), LOST,
     "was asked and gave no answer"),
    ("no answer", b"", LOST, "closed the connection before the end"),
    ("half a header", b"HTTP/1.1 200 OK\r\nContent-Le", LOST,
     "closed the connection before the end"),
    ("half a body", answer('{"data":{"home":{"id":"abc"}}}')[:-9], LOST,
     "closed the connection before the end"),
    ("half of the chunks", chunks(b'{"data":{"home":{"id":"abc"}}}', 7, b""),
     LOST, "closed the connection before the end"),
    ("too long", answer('{"data":{"x":"%s"}}' % ("y" * 70000)), LOST,
     "it is too long"),
    ("too many chunks", chunks(b'{"data":{"x":"%s"}}' % (b"y" * 70000), 4096),
     LOST, "it is too long"),
    ("a chunk that is too long", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
     b"chunked\r\n\r\nffffffffffffffff\r\nx", LOST, "it is too long"),
]


class Raw:
    """An engine whose answers are bytes, or what a function does."""

    def __init__(self, number):
        self.number = number
        self.engine = world.engines[number]
        self.usual = self.engine.answer
        self.said = {}
        self.engine.answer = self.answer

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.said.clear()
        self.engine.hang.clear()
        raws.put(self)

    def answer(self, sock, data=None, error=None):
        said = self.said.get(self.engine.now.kind)
        if said is None:
            self.usual(sock, data, error)
        elif callable(said):
            said(sock, data)
        else:
            sock.sendall(said)

    def path(self, conversation):
        return "/e%d/v1/conversations/%s/commands" % (self.number,
                                                      conversation)

    def run(self, conversation, **more):
        return g.request("POST", self.path(conversation),
                         {"command": "echo"}, **more)

    def well(self, conversation):
        """It answers as it should, and nothing is left of what was."""
        self.said.clear()
        r = self.run(conversation)
        same(r.status, 200, "afterwards: %r" % r)

    def send(self, conversation):
        """A request over a connection of its own."""
        body = b'{"command":"echo"}'
        sock = socket.create_connection(("127.0.0.1", g.port), 60)
        sock.sendall(("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                      "%s\r\nContent-Type: application/json\r\n"
                      "Content-Length: %d\r\n\r\n" % (
                          self.path(conversation), token(), len(body))
                      ).encode() + body)
        return sock

    def lines(self, text):
        """Of the log, about this engine."""
        return [line for line in g.error_log.splitlines()
                if '"%s"' % self.engine.name in line and text in line]


def start():
    global g, world
    world = World(engines=ENGINES + 1)
    g = Gateway(runner=None, workers=2, zone="4m running=500", h2=False)
    world.engines[-1].__class__ = UnixEngine
    world.engines[-1].bind(g.path("engine.sock"))
    locations = "listen 127.0.0.1:%d http2;" % h2_port
    for n, engine in enumerate(world.engines):
        locations += """
        location /e%d/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_backend dagger;
            sandbox_dagger %s resolver=127.0.0.1:%d;
            sandbox_dagger_image 127.0.0.1:5000/sandbox@sha256:%s;
        }""" % (n, g.dir, engine.name, world.names.port, "0" * 64)
    g.options["server"] = locations
    g.options["location"] = world.lines()
    world.own(g)
    g.start()
    g.wait_ready()
    for n in range(ENGINES):
        raws.put(Raw(n))


def stop():
    g.stop()
    world.end()


class UnixEngine(Engine):
    def bind(self, path):
        shut(self.listener)
        self.where = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        os.chmod(path, 0o666)
        self.listener.listen(64)
        serve(self.listener, self.one)

    @property
    def name(self):
        return "unix://" + self.where


def one_answer(name, said, expected, logged):
    @test("an answer is " + name, beside=True)
    def check_it():
        with raws.get() as raw:
            conversation = name.replace(" ", "-")
            raw.said["volumes"] = said
            r = raw.run(conversation)
            same((r.status, r.json["code"]), expected, "answer")
            wait_for(lambda: raw.lines(logged), 60, "a line with " + logged)
            raw.well(conversation)


for n, given in enumerate(ANSWERS):
    one_answer(*given)


def good(raw, split):
    """The usual answers, in the way of split()."""
    def send(sock, data):
        split(sock, json.dumps({"data": data}).encode())
    raw.said.update(volumes=send, service=send)


@test("answers in chunks of any size are answers", beside=True)
def chunked():
    with raws.get() as raw:
        for size in (1, 3, 64, 5000):
            good(raw, lambda sock, body, n=size: sock.sendall(
                chunks(body, n, b"0\r\nA: b\r\n\r\n")))
            same(raw.run("chunks-%d" % size).status, 200, size)


@test("answers that come byte by byte are answers", beside=True)
def dripped():
    with raws.get() as raw:
        def drip(sock, body):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in form(body):
                sock.sendall(bytes([byte]))
        good(raw, drip)
        for n, form in enumerate((answer, lambda body: chunks(body, 5))):
            same(raw.run("bytes-%d" % n).status, 200)


@test("an answer with a type of text, and a status of errors, is an answer",
      beside=True)
def untrusted():
    with raws.get() as raw:
        good(raw, lambda sock, body: sock.sendall(
            answer(body, "500 Internal Server Error", TEXT)))
        same(raw.run("untrusted").status, 200)


@test("the second question may fail, too", beside=True)
def second():
    with raws.get() as raw:
        raw.said["service"] = answer(error("exec format error"))
        r = raw.run("second")
        same((r.status, r.json["code"]), REFUSED)
        wait_for(lambda: raw.lines("exec format error"), 60, "a line")
        raw.said["service"] = answer('{"data":{"version":1}}')
        same(raw.run("second").json["code"], "engine_failed")
        raw.said["service"] = b"HTTP/1.1 200 OK\r\n"
        same(raw.run("second").json["code"], "engine_unreachable")
        raw.well("second")


@test("an engine that repeats what it was asked tells no secret", beside=True)
def secrets():
    with raws.get() as raw:
        asked = []

        def repeat(sock, data):
            asked.append(data)
            sock.sendall(answer(error(
                "what is " + asked_text(raw) + " to mean? " + "long " * 400)))
        raw.said["service"] = repeat
        r = raw.run("secrets")
        same((r.status, r.json["code"]), REFUSED)
        line = wait_for(lambda: raw.lines("refuses a query: what is"), 60,
                        "a line")[-1]
        check("value ... to mean" in line, "no mark in", line)
        check(len(line) < 1500, "a long line")
        check(secret_of(raw) not in g.error_log, "the secret is in the log")
        check(secret_of(raw) not in r.body.decode(), "the secret is told")


def secret_of(raw):
    return raw.engine.started[-1].environment["SANDBOX_ENGINE_SECRET"]


def asked_text(raw):
    return "value " + secret_of(raw)


@test("nobody listens at an engine that the owner still has", beside=True)
def refused():
    with raws.get() as raw:
        shut(raw.engine.listener)
        r = raw.run("nobody")
        same((r.status, r.json["code"]), LOST)
        check(r.headers["Retry-After"], "no Retry-After")
        wait_for(lambda: raw.lines("can't be connected to"), 60, "a line")
        raw.engine.listener = serve(listen("127.0.0.1", raw.engine.port),
                                    raw.engine.one)
        raw.well("nobody")


@test("an engine that takes its time is waited for", beside=True)
def slow():
    with raws.get() as raw:
        def wait(sock, body):
            time.sleep(1.5)
            sock.sendall(answer(body))
        good(raw, wait)
        same(raw.run("slow").status, 200)


@test("an answer that never ends is given up", beside=True)
def endless():
    with raws.get() as raw:
        left = threading.Event()

        def drip(sock, data):
            sock.sendall(chunks(b"", 1, b""))
            try:
                while not left.wait(0.1):
                    sock.sendall(b"1\r\nx\r\n")
            except OSError:
                left.set()
        raw.said["volumes"] = drip
        r = raw.run("endless")
        same((r.status, r.json["code"]), LOST)
        check(left.wait(60), "its connection is still open")
        wait_for(lambda: raw.lines("it takes too long to answer"), 60,
                 "a line")
        raw.well("endless")


@test("a client that leaves ends its question", beside=True)
def leaves():
    with raws.get() as raw:
        for kind in "volumes", "service":
            for way in "close", "reset", "half":
                conversation = "leaves-%s-%s" % (kind, way)
                raw.engine.hang.add(kind)
                sock = raw.send(conversation)
                wait_for(lambda: raw.engine.open, 60, "a question")
                if way == "half":
                    sock.shutdown(socket.SHUT_WR)
                if way == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                    b"\1\0\0\0\0\0\0\0")
                if way != "half":
                    sock.close()
                wait_for(lambda: not raw.engine.open, 60,
                         "the end of the question (%s)" % way)
                sock.close()
                raw.engine.hang.clear()
                raw.well(conversation)


@test("the same over HTTP/2, also where the connection stays", beside=True)
def leaves_h2():
    with raws.get() as raw:
        command = ["curl", "-s", "--noproxy", "*", "--http2-prior-knowledge",
                   "-H", "Authorization: Bearer " + token(), "-H",
                   "Content-Type: application/json", "-d",
                   '{"command":"echo"}', "http://127.0.0.1:%d%s"
                   % (h2_port, raw.path("h2"))]
        raw.engine.hang.add("volumes")
        with subprocess.Popen(command) as process:
            wait_for(lambda: raw.engine.open, 60, "a question")
            process.kill()
        wait_for(lambda: not raw.engine.open, 60, "the end of the question")
        # a timeout of curl is the end of a stream
        same(subprocess.run(command + ["-m", "1"], check=False).returncode,
             28, "curl")
        wait_for(lambda: not raw.engine.open, 60, "the end of the question")
        raw.engine.hang.clear()
        out = subprocess.run(command, stdout=subprocess.PIPE, timeout=120,
                             check=True).stdout
        same(json.loads(out)["exitCode"], 0)


@test("a file's bytes wait while an engine is asked", beside=True)
def bodies():
    with raws.get() as raw:
        data = random.Random(9).randbytes(3 << 20)
        g.write("body", data, 0o644)
        slow = []

        def wait(sock, body):
            time.sleep(0.3)
            slow.append(1)
            sock.sendall(answer(body))
        for n, options in enumerate((
                ["--http1.1"], ["--http1.1", "-H", "Transfer-Encoding: "
                                "chunked"], ["--http2-prior-knowledge"])):
            good(raw, wait)
            url = "http://127.0.0.1:%d/e%d/v1/conversations/body-%d/fs/big" % (
                h2_port if n == 2 else g.port, raw.number, n)
            out = subprocess.run(
                ["curl", "-s", "--noproxy", "*", "-H", "Expect:",
                 "-H", "Authorization: Bearer " + token()] + options
                + ["-T", g.path("body"), url, "-w", "%{http_code}"],
                stdout=subprocess.PIPE, timeout=120, check=True).stdout
            check(out[-3:] in (b"200", b"201"), "another answer:", out)
            check(len(slow) >= 2 * n + 2, "not enough questions", len(slow))
            r = g.request("GET", url.partition(str(g.port))[2] if n < 2 else
                          url.partition(str(h2_port))[2])
            same((r.status, r.body == data), (200, True), options)


@test("a client that leaves in mid-body ends its question", beside=True)
def leaves_body():
    with raws.get() as raw:
        raw.engine.hang.add("volumes")
        with socket.create_connection(("127.0.0.1", g.port), 60) as sock:
            sock.sendall(("PUT /e%d/v1/conversations/mid/fs/big HTTP/1.1\r\n"
                          "Host: x\r\nAuthorization: Bearer %s\r\n"
                          "Content-Length: 1000000\r\n\r\n" % (
                              raw.number, token())).encode() + bytes(70000))
            wait_for(lambda: raw.engine.open, 60, "a question")
            sock.sendall(bytes(10000))
        wait_for(lambda: not raw.engine.open, 60, "the end of the question")
        raw.engine.hang.clear()
        raw.well("mid")


@test("the questions of MCP are such, too", beside=True)
def mcp():
    with raws.get() as raw:
        def call():
            r = g.request("POST", "/e%d/mcp" % raw.number, {
                "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": {"name": "run_command",
                           "arguments": {"command": "echo"}}},
                headers={"Accept": "application/json, text/event-stream",
                         "Sandbox-Conversation": "mcp"})
            return r
        raw.said["volumes"] = answer("client_id is missing", kind=TEXT)
        r = call()
        check(b"engine_failed" in r.body, "another answer:", r)
        raw.said["volumes"] = b"HTTP"
        r = call()
        check(b"engine_unreachable" in r.body, "another answer:", r)
        raw.said.clear()
        r = call()
        check(b'"isError":true' not in r.body, "another answer:", r)
        same(r.status, 200)


@test("many at a time, of which every third fails", beside=True)
def many():
    with raws.get() as raw:
        turns, lock = {}, threading.Lock()

        def third(sock, data):
            # an agent that takes its time is asked for once more
            with lock:
                turn = turns.setdefault(data["home"]["id"], len(turns))
            if turn % 3 == 0:
                sock.sendall(answer(error("every third")))
            else:
                raw.usual(sock, data)
        raw.said["volumes"] = third
        got = []

        def one(n):
            got.append(raw.run("many-%d" % n).status)
        threads = [threading.Thread(target=one, args=(n,)) for n in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        same(sorted(set(got)), [200, 502], "statuses")
        same((len(got), got.count(502)), (30, 10), "how many failed")


@test("an engine on a unix socket")
def unix():
    r = g.request("POST", "/e%d/v1/conversations/unix/commands" % ENGINES,
                  {"command": "echo"})
    same(r.status, 200, r)


@test("a question goes on when nginx is reloaded")
def reload():
    with raws.get() as raw:
        raw.engine.hang.add("volumes")
        got = []
        thread = threading.Thread(
            target=lambda: got.append(raw.run("reload").status))
        thread.start()
        wait_for(lambda: raw.engine.open, 60, "a question")
        g.reload()
        check(raw.engine.open, "the question was ended")
        raw.engine.hang.clear()
        thread.join(120)
        same(got, [200])


@test("no log has a question, or what opens an engine")
def logs():
    log = g.error_log
    for engine in world.engines:
        check(engine.metadata not in log, "metadata are in the log")
        for agent in engine.started:
            check(agent.environment["SANDBOX_ENGINE_SECRET"] not in log,
                  "a secret is in the log")
    for text in "cacheVolume", "SANDBOX_ENGINE", "asService":
        check(text not in log, "a question is in the log", text)
    check(base64.b64encode(b'{"client_id')[:12].decode() not in log,
          "metadata are in the log")


main(start, stop)
