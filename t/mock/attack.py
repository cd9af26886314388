#!/usr/bin/env python3
"""What somebody may try who has good tokens, or none, and patience."""

import json
import os
import re
import select
import socket
import sys
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import TOP, Gateway, token, wait_for            # noqa: E402
from jose import Key, jwks                                   # noqa: E402
from key_server import KeyServer                             # noqa: E402
from tap import Skip, check, main, same, test                # noqa: E402


def keys(url):
    return """
        location /keys/ {
            sandbox on;
            sandbox_jwks_url %s interval=1s cooldown=1s;
        }
    """ % url


def padded(key):
    """A set of some pages."""
    return json.dumps(dict(json.loads(jwks(key)), x="x" * 20000))


@test("attack/keyset-room", seconds=120)
def keyset_room():
    """Tokens that hold one place on each page of the zone, and other sizes on
    what pages are left: a set of keys has its room all the same, so a key
    that was withdrawn is refused."""
    old, new = Key("RS256", kid="old"), Key("RS256", kid="new")
    with KeyServer(padded(old)) as server:
        g = Gateway(runner=None, ready=False, workers=1, zone="192k",
                    server=keys(server.url),
                    location="add_header X-Cache $sandbox_token_cache always;"
                             "add_header X-Evictions"
                             " $sandbox_token_cache_evictions always;")
        g.expected.append("[crit] ")    # there is no runner
        with g:
            def status(key):
                return g.request("GET", "/keys/v1/limits",
                                 token=key.token()).status

            wait_for(lambda: status(old) == 200, 20, "the first set")
            c = g.connect()

            def ask(text):
                r = g.request("GET", "v1/limits", token=text, connection=c)
                same(r.status, 200)
                return r

            small = [token(sub="s%03d" % n) for n in range(500)]
            for text in small:
                ask(text)
            for text in small[::16]:
                ask(text)
            for n in range(250):
                r = ask(token(sub="%03d" % n + "x" * 200, iss="y" * 300))
            check(int(r.headers["X-Evictions"]) > 0, "the cache is not full")

            server.answer(padded(new))
            wait_for(lambda: status(new) == 200, 20, "the new set")
            same(status(old), 401, "the key that was withdrawn")
            check("there is no room" not in g.error_log, g.error_log[-500:])

            # and tokens are known again from the second time on
            ask(small[0])
            same(ask(small[0]).headers["X-Cache"], "hit")
            c.close()


def written(name, pattern):
    """What our own documents tell administrators to write."""
    with open(os.path.join(TOP, name)) as f:
        return re.search(pattern, f.read(), re.S | re.M).group(0)


@test("attack/log-fields")
def log_fields():
    """A name with blanks in it adds no field to the log of the example."""
    log = written("conf.d/sandbox.conf", r"^log_format sandbox .*?;$")
    g = Gateway(runner="mock", http=log)
    g.options["server"] = """
        location /logged/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_tenant_claim org;
            access_log %s/logs/fields.log sandbox;
        }
    """ % (g.dir, g.dir)
    with g:
        text = token(sub='bob outcome=exit" tenant=b', org="a user=eve")
        same(g.request("GET", "/logged/v1/limits", token=text).status,
             200)
        line = wait_for(lambda: g.read("logs/fields.log"), 10, "a line")
        got = re.findall(r' ([a-z_]+)=("[^"]*"|[^ ]*)', line)
        check(len(dict(got)) == len(got), "a field twice", line)
        same(dict(got)["user"], '"bob outcome=exit\\x22 tenant=b"', line)
        same(dict(got)["tenant"], '"a user=eve"', line)


@test("attack/limit-of-another")
def limit_of_another():
    """Names that are put together in another way are another's names."""
    names = ((("a", "b/c"), ("a/b", "c")), (("a", "b c"), ("a b", "c")),
             (("a", "-"), ("-", "a")))
    for document in ("conf.d/sandbox.conf", "docs/access-control.md"):
        zone = written(document, r"^limit_req_zone .*?;$")
        g = Gateway(runner="mock", http=zone.replace("20r/s", "1r/m"))
        g.options["server"] = """
            location /limited/ {
                sandbox on;
                sandbox_jwt_secret_file %s/jwt.key;
                sandbox_tenant_claim org;
                limit_req zone=sandbox_calls;
            }
        """ % g.dir
        with g:
            def status(org, sub):
                return g.request("GET", "/limited/v1/limits",
                                 token=token(org=org, sub=sub)).status

            for one, other in names:
                same(status(*one), 200)
                check(status(*one) in (429, 503), "no limit", one)
                same(status(*other), 200, "held up by %r" % (one,))


def resident(g):
    total = 0
    for pid in g.workers():
        with open("/proc/%d/statm" % pid) as f:
            total += int(f.read().split()[1]) * 4096
    return total


@test("attack/results-not-read", seconds=120)
def results_not_read():
    """Clients that ask for a large result and do not read it: the answer is
    held once for each, and not what it was made of."""
    if "/asan/" in os.environ.get("SANDBOX_TEST_NGINX", ""):
        raise Skip("the address sanitizer keeps what is freed for a while")
    with Gateway(runner="mock", workers=1) as g:
        # each byte becomes six, "\\u0001"
        body = json.dumps({"command": "mock: fill=stdout,%01,262144 "
                           "fill=stderr,%01,262144"})
        r = g.request("POST", "v1/conversations/c/commands", body)
        same((r.status, len(r.body) > 3000000), (200, True))
        before = resident(g)
        held = []
        try:
            for _ in range(40):
                s = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.settimeout(100)
                s.connect(("127.0.0.1", g.port))
                s.sendall(("POST /sandbox/v1/conversations/c/commands "
                           "HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s"
                           "\r\nContent-Type: application/json\r\n"
                           "Content-Length: %d\r\n\r\n%s"
                           % (token(), len(body), body)).encode())
                same(s.recv(12), b"HTTP/1.1 200")
                held.append(s)
            each = (resident(g) - before) / len(held)
            check(each < 1.6 * len(r.body), "%d bytes for an answer of %d"
                  % (each, len(r.body)))
        finally:
            for s in held:
                s.close()


def held(g, text, body, sent=None, path="commands"):
    """A connection whose answer is not read; of the body the first part."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(100)
    s.connect(("127.0.0.1", g.port))
    try:
        s.sendall(("POST /sandbox/v1/conversations/c/%s HTTP/1.1\r\n"
                   "Host: localhost\r\nAuthorization: Bearer %s\r\n"
                   "Content-Type: application/json\r\n"
                   "Content-Length: %d\r\n\r\n"
                   % (path, text, len(body))).encode() + body[:sent])
    except ConnectionError:
        pass                        # its answer is there before its end
    return s


def refused(s):
    """1: the answer that has come is a refusal, with all it must have."""
    if not select.select([s], [], [], 0.02)[0]:
        return False
    try:
        data = s.recv(4096, socket.MSG_PEEK)
    except OSError:
        return False
    if b"too_many_pending" not in data:
        check(data[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 429", b""),
              "an answer", data)
        return False

    # of a tool that had begun it is the result
    check(b"429 Too Many" in data[:30] and b"\r\nRetry-After:" in data
          or b'"isError":true' in data and b"retryAfterSeconds" in data,
          "the refusal", data)
    return True


def memory_is_bounded(make, size="1m"):
    """Connections that make() opens take memory of a tenant, up to a bound;
    then he is told, others are not, and at their end all is as before."""
    mine, other = token(sub="many"), token(sub="other")
    with Gateway(runner="mock", workers=1,
                 location="sandbox_file_size %s;" % size) as g:
        kept = []
        try:
            while len(kept) < 40 and not any(refused(s) for s in kept[-9:]):
                kept.append(make(g, mine))
            if len(kept) == 40:
                wait_for(lambda: any(refused(s) for s in kept), 30, "a 429")
            check(len(kept) > 2, "connections", len(kept))
            r = g.command("c", "true", token=other)
            same(r.status, 200, r)
        finally:
            for s in kept:
                s.close()

        def again():
            s = make(g, mine)
            try:
                return not refused(s)
            finally:
                s.close()
        wait_for(again, 20, "memory that came back")


@test("attack/bodies-that-do-not-end")
def bodies():
    body = json.dumps({"command": "true", "stdin": "x" * 1000000,
                       "env": {"A": "y" * 100000}}).encode() + b" " * 3000000
    memory_is_bounded(lambda g, text: held(g, text, body, len(body) - 1))


@test("attack/answers-that-nobody-reads")
def answers():
    body = json.dumps({"command": "mock: fill=stdout,%01,262144 "
                       "fill=stderr,%01,262144"}).encode()
    memory_is_bounded(lambda g, text: held(g, text, body))


@test("attack/images-that-nobody-reads")
def images():
    """By MCP: an image is held with its base64."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                       "params": {"name": "read_file", "arguments":
                                  {"path": "a.png"}}}).encode()
    picture = b"\x89PNG\r\n\x1a\n" + bytes(3000000)
    put = []

    def one(g, text):
        if not put:
            g.run("c", "true", token=text)
            put.append(g.request("PUT", "v1/conversations/c/fs/a.png",
                                 picture, token=text).status)
            same(put, [201])
        return held(g, text, body, path="mcp")
    memory_is_bounded(one, "4m")


@test("attack/log-control-characters")
def log_control():
    """Names, ids, headers and what the runner says, with all that forges a
    line or a colour: each line of a log is nginx's own."""
    evil = "a\n2026/01/01 00:00:00 [alert] 1#1: forged \x1b[2J\r\x7f\u202e"
    quoted = urllib.parse.quote(evil)
    with Gateway(runner="mock", workers=1, log_level="info",
                 location="sandbox_tenant_claim org;") as g:
        c = "v1/conversations/c"
        text = token(org="x")
        for method, path, body in (
                ("GET", "v1/conversations/" + quoted, None),
                ("PUT", c + "/fs/" + quoted, b"x"),
                ("GET", c + "/fs/" + quoted, None),
                ("GET", c + "/fs/x?cursor=" + quoted, None),
                ("GET", c + "/commands/" + quoted, None),
                ("GET", quoted, None),
                ("POST", c + "/commands", {"command": evil, evil: evil}),
                ("POST", c + "/commands", {"command": "true", "cwd": evil}),
                ("POST", c + "/commands", {"command": "mock: detail=%s "
                                           "error=bad_request" % quoted}),
                ("POST", c + "/commands", {"command": "mock: detail=%s "
                                           "error=%s" % (quoted, quoted)}),
                ("POST", c + "/commands", {"command": "mock: frame=99,%s"
                                           % quoted}),
                ("POST", c + "/files", {"path": evil, "name": evil}),
                ("POST", c + "/mcp", {"jsonrpc": "2.0", "id": evil,
                                      "method": evil})):
            g.request(method, path, body, token=text,
                      headers={"Content-Type": "application/json"}
                      if body else {})
        for name in ("Sandbox-Conversation", "Mcp-Method", "Accept",
                     "Mcp-Session-Id", "Content-Type", "If-Match", "Range",
                     "User-Agent", "Authorization", "Origin"):
            with socket.create_connection(("127.0.0.1", g.port)) as s:
                s.settimeout(100)
                s.sendall(b"POST /sandbox/v1/conversations/c/mcp HTTP/1.1\r\n"
                          b"Host: localhost\r\nConnection: close\r\n"
                          b"Content-Length: 2\r\n%s: a\x1b[2J\x9b\xe2\x80\xae"
                          b"\x07z\r\n\r\n{}" % name.encode())
                while s.recv(4096):
                    pass
        same(g.request("GET", c, token=token(sub=evil, org=evil)).status, 401)
        for log in ("logs/error.log", "logs/access.log"):
            with open(g.path(log), "rb") as f:
                lines = f.read().split(b"\n")
            for line in lines:
                check(not re.search(rb"[\x00-\x1f\x7f]", line), log, line)
                check(not line.startswith(b"2026/01/01 00:00:00"), log, line)
            check(len(lines) > 10 or "error" in log, log, lines)


main()
