#!/usr/bin/env python3
"""HTTP as clients really speak it: methods, bodies, paths, types, limits,
HTTP/2, clients that leave; group http of the cases."""

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, free_port, token, wait_for      # noqa: E402
from tap import Skip, check, main, same, test                # noqa: E402

g = None
RUN = "v1/conversations/http/commands"


def start():
    global g
    g = Gateway(runner="mock", workers=1)
    g.h2_port = free_port()
    g.options["server"] = """
        location /small/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_command_size 1k;
            sandbox_wall_time 60s;
            access_log %s/logs/length.log length;
        }
    """ % (g.dir, g.dir)
    g.options["http"] = """
    log_format length "$status $upstream_response_length $body_bytes_sent";
    server {
        listen 127.0.0.1:%d http2;
        location /sandbox/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
        }
    }
    """ % (g.h2_port, g.dir)
    g.start()


def stop():
    g.stop()


def seen(conversation="http"):
    """How many commands the mock was asked so far in it."""
    result = g.run(conversation, "mock: seen")
    return json.loads(result["stdout"]).count("COMMAND") - 1


def post(body, headers=None, path=RUN, token_text=""):
    return g.request("POST", path, body, token_text, headers)


def problem(r, status, code=None):
    same(r.status, status, repr(r))
    same(r.headers["Content-Type"], "application/problem+json", repr(r))
    for name in ("type", "title", "status", "detail", "code"):
        check(name in r.json, "no %s in %r" % (name, r))
    same(r.json["status"], status)
    if code:
        same(r.json["code"], code, repr(r))
    return r.json


def raw(data, timeout=100, until=None):
    """Bytes to the server, all bytes of its answer."""
    with socket.create_connection(("127.0.0.1", g.port), timeout) as s:
        s.sendall(data)
        out = b""
        while until is None or out.count(until[0]) < until[1]:
            try:
                piece = s.recv(65536)
            except socket.timeout:
                break
            if not piece:
                break
            out += piece
        return out


def request_bytes(method="POST", path="/sandbox/" + RUN, headers=(),
                  body=b"", auth=True, length=True):
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: localhost"]
    if auth:
        lines.append("Authorization: Bearer " + token())
    if body or method == "POST":
        lines.append("Content-Type: application/json")
        if length:
            lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines + list(headers) + ["", ""]).encode() + body


@test("http/method-matrix")
def methods():
    before = seen()
    for path, allowed in ((RUN, "POST"), (RUN + "/x", "GET"),
                          (RUN + "/x/stdin", "POST"),
                          ("v1/conversations/http/reset", "POST"),
                          ("v1/conversations/http", "GET"),
                          ("v1/limits", "GET"), ("health", "GET")):
        for method in ("GET", "PUT", "DELETE", "PATCH", "POST", "MKCOL",
                       "OPTIONS"):
            if method == allowed \
                    or path.endswith(("/http", "/x")) and method == "DELETE" \
                    or path == RUN and method == "GET":
                continue
            r = g.request(method, path)
            problem(r, 405, "method_not_allowed")
            check(allowed in r.headers["Allow"], "Allow:", r)
    r = raw(request_bytes("FROBNICATE"), until=(b"\r\n\r\n", 1))
    check(b" 405 " in r[:20] or b" 501 " in r[:20], "made-up method:", r[:80])
    same(seen(), before + 1, "commands that ran")


@test("http/body-not-object")
def bodies():
    before = seen()
    c = g.connect()
    for body in (b"", b"null", b"[]", b'"echo hi"', b"5", b"true",
                 b'{"command":"id"', b'{"command":"id"}{"command":"id"}',
                 b'{"command":"id"} x', b'{"command":"id"},',
                 b'\xef\xbb\xbf{"command":"id"}',
                 '{"command":"id"}'.encode("utf-16"), b"{}",
                 b'{"command":"id",}', b"{'command':'id'}",
                 b'{"command":"id\xff"}', b'{"command":"\\ud800"}',
                 b'{"command":"id","command":"id"}',
                 b'{"command":"a\nb"}', b"command=id",
                 b'{"a":' * 3000, b"[" * 100000,
                 b'{"command":"id","env":' + b"[" * 3000 + b"]" * 3000 + b"}"):
        r = g.request("POST", RUN, body, connection=c)
        problem(r, 400)
    same(g.request("POST", RUN, {"command": "x"}, connection=c).status, 200,
         "the connection afterwards")
    c.close()
    same(seen(), before + 2, "commands that ran")


@test("http/wrong-types")
def wrong_types():
    for fields in ({"command": 5}, {"command": None}, {"command": ["id"]},
                   {"command": {}}, {"command": True}, {},
                   {"command": ""},
                   {"command": "x", "cwd": 5}, {"command": "x", "cwd": ""},
                   {"command": "x", "cwd": ["/tmp"]},
                   {"command": "x", "env": []}, {"command": "x", "env": "A=1"},
                   {"command": "x", "env": {"A": 1}},
                   {"command": "x", "env": {"A": None}},
                   {"command": "x", "env": {"": "x"}},
                   {"command": "x", "env": {"A=B": "x"}},
                   {"command": "x", "stdin": 5},
                   {"command": "x", "stdinBase64": 5},
                   {"command": "x", "stdin": "a", "stdinBase64": "YQ=="},
                   {"command": "x", "background": "yes"},
                   {"command": "x", "fresh": 1},
                   {"command": "x", "fresh": "true"},
                   {"command": "x", "commandId": ""},
                   {"command": "x", "commandId": 5},
                   {"command": "x", "commandId": "a" * 65},
                   {"command": "x", "commandId": "a/b"},
                   {"command": "x", "commandId": "a b"},
                   {"command": "x", "onDisconnect": "explode"}):
        r = post(json.dumps(fields))
        problem(r, 400)


@test("http/null-means-absent-or-400")
def nulls():
    for name in ("cwd", "env", "stdin", "stdinBase64", "timeoutSeconds",
                 "fresh", "background", "commandId", "onDisconnect"):
        r = post(json.dumps({"command": "x", name: None}))
        check(r.status in (200, 400), "null %s: %r" % (name, r))


@test("http/unknown-field")
def unknown_field():
    before = seen()
    for body, unknown, known in (
            ({"command": "id", "timeout": 5}, "timeout", "timeoutSeconds"),
            ({"cmd": "id"}, "cmd", "command"),
            ({"command": "id", "Timeout_seconds": 5}, "Timeout_seconds",
             "timeoutSeconds"),
            ({"command": "id", "Command": "id"}, "Command", "command"),
            ({"command": "id", "workdir": "/tmp"}, "workdir", '"cwd"'),
            ({"command": "id", "working_directory": "/tmp"},
             "working_directory", '"cwd"'),
            ({"script": "id"}, "script", '"command"'),
            ({"command": "id", "environment": {}}, "environment", '"env"'),
            ({"command": "id", "x" * 5000: 1}, "xxx", "")):
        text = problem(post(body), 400, "unknown_field")["detail"]
        check(unknown in text and known in text, "detail:", text)
        check(len(text) < 1000, "a very long detail")
    same(seen(), before + 1, "commands that ran")


@test("http/timeout-values")
def timeouts():
    for value in ("0", "-1", "1.5", '"5"', "true", "[]", "{}", "-0",
                  "1e400", "0.999", "1e-3"):
        r = post('{"command":"x","timeoutSeconds":%s}' % value)
        problem(r, 400)
    for value, used in (("1", 1), ("5", 5), ("119", 119), ("120", 120),
                        ("121", 120), ("1000000000", 120),
                        ("9223372036854775807", 120)):
        r = post('{"command":"x","timeoutSeconds":%s}' % value)
        same(r.status, 200, "timeoutSeconds " + value)
        same(r.json["timeoutSeconds"], used, "timeoutSeconds " + value)
        same(json.loads(r.json["stdout"])["WALL_MS"], used * 1000)
    for value in ("9223372036854775808", "1e9"):
        r = post('{"command":"x","timeoutSeconds":%s}' % value)
        check(r.status in (200, 400), "timeoutSeconds %s: %r" % (value, r))


@test("http/nul-in-text")
def nul():
    before = seen()
    for fields in ({"command": "echo a\0b"},
                   {"command": "x", "cwd": "/home/sandbox\0"},
                   {"command": "x", "env": {"A": "x\0y"}},
                   {"command": "x", "env": {"A\0B": "x"}},
                   {"command": "x", "commandId": "a\0"}):
        text = problem(post(json.dumps(fields)), 400)["detail"]
        check("NUL" in text or "commandId" in text, "detail:", text)
    # as a byte it is in no JSON, also where a parser would skip it
    for text in ('{"command":"x","timeoutSeconds":5\0}', '{\0"command":"x"}',
                 '{"command":"x"}\0', '{"command":"a\0b"}'):
        problem(post(text), 400)
    same(seen(), before + 1, "commands that ran")
    # stdin as text, too; stdinBase64 takes all bytes
    problem(post(json.dumps({"command": "x", "stdin": "a\0b"})), 400)
    r = post(json.dumps({"command": "x", "stdinBase64": "YQBi"}))
    same(json.loads(r.json["stdout"])["body"], "a\0b")


@test("http/base64-strict")
def base64_strict():
    for text in ("YQ", "YQ=", "YQ===", "YR==", "Y Q==", "YQ==\n", "YQ-_",
                 "=", "====", "YQ==YQ==", "'; id"):
        problem(post({"command": "x", "stdinBase64": text}), 400)
    same(post({"command": "x", "stdinBase64": ""}).status, 200)


@test("http/content-type")
def content_types():
    before = seen()
    for value, status in (("application/json", 200),
                          ("application/json; charset=utf-8", 200),
                          ("application/json;charset=UTF-8", 200),
                          ('application/json; charset="utf-8"', 200),
                          ("Application/JSON", 200),
                          ("application/json; charset=latin1", 415),
                          ("text/plain", 415), ("", 415),
                          ("application/json-patch+json", 415),
                          ("application/x-www-form-urlencoded", 415),
                          ("multipart/form-data; boundary=x", 415),
                          ("application/jsonx", 415)):
        r = post({"command": "x"}, {"Content-Type": value})
        if status == 415:
            text = problem(r, 415, "unsupported_media_type")["detail"]
            check("application/json" in text, "detail:", text)
        else:
            same(r.status, status, repr(value))
    body = b'{"command":"x"}'
    r = raw(b"POST /sandbox/" + RUN.encode() + b" HTTP/1.1\r\nHost: x\r\n"
            b"Connection: close\r\nAuthorization: Bearer " + token().encode()
            + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    check(b" 415 " in r[:20], "none at all:", r[:100])
    same(seen(), before + 6, "commands that ran")


@test("http/path-spellings")
def spellings():
    body = b'{"command":"x"}'
    for path, status in (
            ("/sandbox/v1/conversations/p/commands", 200),
            ("//sandbox/v1/conversations/p/commands", 200),
            ("/sandbox//v1//conversations/p/commands", 200),
            ("/sandbox/v1/conversations/p/c%6fmmands", 200),
            ("/sandbox/./v1/conversations/p/commands", 200),
            ("/sandbox/v1/conversations/p/commands?", 200),
            ("/sandbox/x/../v1/conversations/p/commands", 400),
            ("/sandbox/v1/conversations/p/commands/../commands", 400),
            ("/sandbox/v1/conversations/p%2fcommands", 400),
            ("/sandbox/v1/conversations%2Fp/commands", 400),
            ("/sandbox/v1/conversations/p/commands/", 404),
            ("/SANDBOX/v1/conversations/p/commands", 404),
            ("/sandbox/V1/conversations/p/commands", 404),
            ("/sandbox/v1/conversations//commands", 405),
            ("/sandbox/v1/conversations/commands", 405),
            ("/sandbox", (301, 404)), ("/sandbox/", 404),
            ("/sandbox/v1", 404), ("/sandbox/v1/", 404),
            ("/sandbox/v2/conversations/p/commands", 404),
            ("/sandbox/v1/conversations/p/commands/x/y/z", 404)):
        for auth in (True, False):
            r = raw(request_bytes(path=path, body=body, auth=auth,
                                  headers=["Connection: close"]))
            got = int(r.split(b" ", 2)[1])
            wanted = status if isinstance(status, tuple) else (status,)
            if not auth:
                wanted += (401,)
                check(got != 200, "%s without a token: 200" % path)
            check(got in wanted, "%s auth=%s: got %d, expected %s"
                  % (path, auth, got, wanted))


@test("http/chunked-body")
def chunked():
    data = b"%x\r\n%s\r\n0\r\n\r\n"
    body = b'{"command":"chunked"}'
    r = raw(request_bytes(headers=["Transfer-Encoding: chunked",
                                   "Connection: close"], length=False,
                          body=data % (len(body), body)))
    check(b" 200 " in r[:20] and b"chunked" in r, "chunked:", r[:300])
    # one byte a chunk, one chunk a packet
    with socket.create_connection(("127.0.0.1", g.port), 100) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(request_bytes(headers=["Transfer-Encoding: chunked",
                                         "Connection: close"], length=False))
        for byte in body:
            s.sendall(b"1\r\n%c\r\n" % byte)
            time.sleep(0.002)
        s.sendall(b"0\r\n\r\n")
        r = b""
        while True:
            piece = s.recv(65536)
            if not piece:
                break
            r += piece
    check(b" 200 " in r[:20], "one byte at a time:", r[:300])


@test("http/chunked-over-limit")
def chunked_over_limit():
    """The answer comes while the client still sends."""
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    for auth, status in ((True, b" 413 "), (False, b" 401 ")):
        with socket.create_connection(("127.0.0.1", g.port), 100) as s:
            s.sendall(request_bytes(headers=["Transfer-Encoding: chunked"],
                                    length=False, auth=auth))
            try:
                for _ in range(640):
                    s.sendall(chunk)
            except (BrokenPipeError, ConnectionResetError):
                pass
            r = b""
            try:
                while b"\r\n\r\n" not in r:
                    piece = s.recv(65536)
                    if not piece:
                        break
                    r += piece
            except ConnectionResetError:
                pass
        # a reset may have eaten the answer: the client wrote on and on
        check(status in r[:20] or not r, "auth=%s: %r" % (auth, r[:100]))
    same(post({"command": "x"}).status, 200, "afterwards")


@test("http/length-over-limit")
def length_over_limit():
    for path, size in (("/small/v1/conversations/s/commands", 80 * 1024 * 1024),
                       ("/sandbox/" + RUN, 80 * 1024 * 1024)):
        r = raw(request_bytes(path=path, length=False, headers=[
            "Content-Length: %d" % size, "Connection: close"]))
        check(b" 413 " in r[:20], "%s: %r" % (path, r[:200]))
        check(b"problem+json" in r, "shape:", r[:400])
    for text in ("-1", "1x", "99999999999999999999", "0x10"):
        r = raw(request_bytes(length=False, headers=[
            "Content-Length: " + text, "Connection: close"]))
        check(b" 400 " in r[:20] or b" 413 " in r[:20], text, r[:100])


@test("http/pipelined-after-refusal")
def pipelined():
    second = request_bytes("GET", "/sandbox/v1/limits?second",
                           headers=["Connection: close"])
    big = b'{"command":"' + b"x" * 20000 + b'"}'
    for first, status in (
            (request_bytes(body=big, auth=False), b" 401 "),
            (request_bytes(path="/sandbox/v1/nothing", body=big), b" 404 "),
            (request_bytes("PUT", body=big), b" 405 "),
            (request_bytes(body=big, headers=["Content-Type: text/plain"])
             .replace(b"Content-Type: application/json\r\n", b""), b" 415 "),
            (request_bytes(path="/small/v1/conversations/s/commands",
                           body=big), b" 413 "),
            (request_bytes(body=b"[" + big), b" 400 ")):
        r = raw(first + second)
        check(status in r[:20], "first answer:", status, r[:100])
        rest = r[20:]
        at = rest.find(b"HTTP/1.1 ")
        # closing after the refusal is in sync as well
        if at >= 0:
            check(rest[at:].startswith(b"HTTP/1.1 200 "),
                  "second answer:", rest[at:at + 100])
            check(b"timeoutSeconds" in rest[at:] or b"wall" in rest[at:],
                  "not of the GET:", rest[at:])
        else:
            check(b"onnection: close" in r, "no second answer, not closed:",
                  r[:600])


@test("http/pipelined-commands")
def pipelined_commands():
    parts = [request_bytes(body=b'{"command":"mock: stdout=n%d"}' % n)
             for n in range(20)]
    r = raw(b"".join(parts), until=(b"stagingNotices", 20))
    wait = r.count(b'"stdout":"n')
    same(wait, 20, "answers")
    order = [r.index(b'"stdout":"n%d"' % n) for n in range(20)]
    same(order, sorted(order), "order")


@test("http/keep-alive")
def keep_alive():
    c = g.connect()
    for n in range(200):
        r = g.request("POST", RUN, {"command": "mock: stdout=%d" % n},
                      connection=c)
        same(r.json["stdout"], str(n))
    sock = c.sock
    check(sock is not None, "the connection was closed")
    c.close()


@test("http/expect-100")
def expect_100():
    body = b'{"command":"mock: stdout=hundred"}'
    with socket.create_connection(("127.0.0.1", g.port), 100) as s:
        s.sendall(request_bytes(headers=["Expect: 100-continue",
                                         "Connection: close",
                                         "Content-Length: %d" % len(body)],
                                length=False))
        first = s.recv(65536)
        check(first.startswith(b"HTTP/1.1 100"), "no 100:", first[:100])
        s.sendall(body)
        r = b""
        while True:
            piece = s.recv(65536)
            if not piece:
                break
            r += piece
    check(b" 200 " in r[:20] and b"hundred" in r, "answer:", r[:200])


def curl(*arguments, data=None):
    return subprocess.run(
        ["curl", "-sS", "--noproxy", "*", "--http2-prior-knowledge",
         "--max-time", "150", "-H", "Authorization: Bearer " + token(),
         "-H", "Content-Type: application/json", "-w", "\n%{http_code} "
         "%{http_version}"] + list(arguments),
        input=data, stdout=subprocess.PIPE, check=True).stdout.decode()


def h2(path):
    return "http://127.0.0.1:%d/sandbox/%s" % (g.h2_port, path)


@test("http/h2")
def http2():
    out = curl("-d", '{"command":"mock: stdout=two fill=stderr,y,200000"}',
               h2(RUN))
    body, _, last = out.rpartition("\n")
    same(last, "200 2")
    same(json.loads(body)["stdout"], "two")
    same(json.loads(body)["stderrBytes"], 200000)
    same(curl(h2("v1/limits")).rpartition("\n")[2], "200 2")
    same(curl("-X", "DELETE", h2("v1/conversations/h2"))
         .rpartition("\n")[2], "204 2")
    same(curl("-d", "[]", h2(RUN)).rpartition("\n")[2], "400 2")


@test("http/h2-no-length")
def h2_no_length():
    p = subprocess.Popen(
        ["curl", "-sS", "--noproxy", "*", "--http2-prior-knowledge",
         "--max-time", "150", "-X", "POST", "-T", "-", "-H",
         "Authorization: Bearer " + token(), "-H",
         "Content-Type: application/json", h2(RUN)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for piece in (b'{"comm', b'and":"mock: stdout=pie', b'ces"}'):
        p.stdin.write(piece)
        p.stdin.flush()
        time.sleep(0.1)
    out, _ = p.communicate()
    same(p.returncode, 0)
    same(json.loads(out)["stdout"], "pieces")


@test("http/h2-refusals")
def h2_refusals():
    big = json.dumps({"command": "x" * 300000}).encode()
    for _ in range(5):
        out = curl("--data-binary", "@-", h2(RUN), data=big)
        same(out.rpartition("\n")[2], "413 2")
    # curl 7.88 loses an answer that comes before its body has gone out
    body = g.write("big.json", big)
    out = subprocess.run(["nghttp", "-v", "-d", body, h2(RUN)],
                         stdout=subprocess.PIPE).stdout.decode()
    check(":status: 401" in out, "without a token:", out[-600:])


@test("http/client-abort")
def client_abort():
    data = request_bytes(path="/sandbox/v1/conversations/abort/commands",
                         body=b'{"command":"mock: head stdout=x sleep=0.5 '
                              b'stdout=y"}')
    for n in range(50):
        s = socket.create_connection(("127.0.0.1", g.port), 100)
        s.sendall(data)
        time.sleep(0.002 * (n % 10))
        if n % 2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                         b"\1\0\0\0\0\0\0\0")
        s.close()
    for n in range(10):
        s = socket.create_connection(("127.0.0.1", g.port), 100)
        s.sendall(data[:len(data) - n * 10])
        s.close()
    same(g.run("abort", "mock: stdout=fine")["stdout"], "fine")
    same(len(g.workers()), 1, "workers")


@test("http/slow-reader-json")
def slow_reader():
    sockets = []
    for _ in range(20):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", g.port))
        s.settimeout(100)
        s.sendall(request_bytes(
            path="/sandbox/v1/conversations/slow/commands",
            body=b'{"command":"mock: fill=stdout,x,200000"}'))
        sockets.append(s)
    for s in sockets:
        check(s.recv(100).startswith(b"HTTP/1.1 200"), "no answer")
    # the commands have ended; others are served meanwhile
    for n in range(20):
        same(g.run("slow-%d" % n, "mock: stdout=ok")["stdout"], "ok")
    total = len(sockets[0].recv(100))
    while True:
        piece = sockets[0].recv(65536)
        total += len(piece)
        if piece.endswith(b"}\n") or not piece:
            break
    check(total > 200000, "the slow one got only", total)
    for s in sockets:
        s.close()


@test("http/command-id")
def command_id():
    """The module's part: id and digest go to the agent as they should."""
    digests = {}
    for name, fields in (("a", {"command": "x"}), ("again", {"command": "x"}),
                         ("other", {"command": "y"}),
                         ("cwd", {"command": "x", "cwd": "/tmp"}),
                         ("env", {"command": "x", "env": {"A": "1"}}),
                         ("stdin", {"command": "x", "stdin": "1"}),
                         ("time", {"command": "x", "timeoutSeconds": 9}),
                         ("fresh", {"command": "x", "fresh": True})):
        r = post(dict(fields, commandId="the-id"))
        request = json.loads(r.json["stdout"])
        same(request["COMMAND_ID"], "the-id")
        digests[name] = request["DIGEST"]
    same(digests["a"], digests["again"], "the same request")
    different = [digests[n] for n in digests if n != "again"]
    same(len(set(different)), len(different), "digests that differ")

    # another cap is no other request: a reload between two attempts

    r = post({"command": "x", "commandId": "the-id"}, path="/small/" + RUN)
    request = json.loads(r.json["stdout"])
    same((request["DIGEST"], request["WALL_MS"]), (digests["a"], 60000))


@test("http/agent-bounds")
def agent_bounds():
    """What the agent would refuse is refused here, with the field's name."""
    for size, status in ((131071, 200), (131072, 400)):
        r = post({"command": "x", "env": {"A": "x" * (size - 2)}})
        same(r.status, status, "env of %d: %r" % (size, r))
    for size, status in ((4095, 200), (4096, 400)):
        r = post({"command": "x", "cwd": "/tmp/" + "x" * (size - 5)})
        same(r.status, status, "cwd of %d: %r" % (size, r))


@test("http/memory-comes-back", 900)
def memory_comes_back():
    """A worker does not keep what large bodies took."""
    if "/asan/" in os.environ.get("SANDBOX_TEST_NGINX", ""):
        raise Skip("the address sanitizer keeps what is freed for a while")
    before = resident()
    text = base64.b64encode(bytes(12 << 20)).decode()
    for _ in range(6):
        r = post({"command": "mock: stdout=ok", "stdinBase64": text})
        same(r.status, 200)
        problem(post({"command": "x", "unknown": text}), 400)
    check(resident() - before < 64 << 20,
          "%d bytes more than before" % (resident() - before))


def resident():
    total = 0
    for pid in g.workers():
        with open("/proc/%d/statm" % pid) as f:
            total += int(f.read().split()[1]) * 4096
    return total


@test("http/length-in-the-log")
def length_in_the_log():
    """The upstream's length is the answer's, though it came as frames."""
    r = post({"command": "mock: fill=stdout,x,100000"}, path="/small/" + RUN)
    line = "200 %d %d" % (len(r.body), len(r.body))
    wait_for(lambda: g.read("logs/length.log").endswith(line + "\n"), 10,
             line)


@test("http/many-at-once")
def many_at_once():
    failures = []

    def one(number):
        try:
            c = g.connect()
            for n in range(20):
                name = "%d-%d" % (number, n)
                r = g.request(
                    "POST", "v1/conversations/many%d/commands" % number,
                    {"command": "mock: sleep=0.01 stdout=" + name},
                    connection=c)
                if r.status != 200 or r.json["stdout"] != name:
                    failures.append(repr(r))
            c.close()
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(failures[:3], [], "answers that were not theirs")


@test("http/no-leak-of-connections")
def no_leak():
    def sockets():
        count = 0
        pid = g.workers()[0]
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                count += os.readlink("/proc/%d/fd/%s" % (pid, fd)) \
                    .startswith("socket:")
            except OSError:
                pass
        return count

    before = sockets()
    for n in range(30):
        post({"command": "mock: head close"})
        post({"command": "mock: error=at_capacity"})
        post({"command": "mock: stdout=x"})
        g.request("GET", RUN[:-9])
    wait_for(lambda: sockets() <= before + 2, 10,
             "the end of upstream connections (%d before, %d now)"
             % (before, sockets()))


main(start, stop)
