#!/usr/bin/env python3
"""What becomes of a connection after a request was refused: its body, of any
size, is read away or the connection is closed, and never taken for a request;
the next good request is served.  HTTP/1.1 and HTTP/2; group auth."""

import itertools
import json
import os
import re
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import h2                                                     # noqa: E402
from gateway import SLOW, Gateway, free_port, token, wait_for   # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
turns = itertools.count(1)
RUN = "v1/conversations/refusals/commands"
# a body that would be noticed if it were read as requests
SMUGGLED = b"POST /sandbox/v1/conversations/smuggled/commands HTTP/1.1\r\n" \
    b"Host: smuggled\r\nContent-Length: 2\r\n\r\n{}"
SIZES = (0, 1, 65536, 2 << 20, 20 << 20)

# name: method, path, what Authorization says, the status
REFUSALS = {
    "no token": ("POST", "/sandbox/" + RUN, None, 401),
    "another scheme": ("POST", "/sandbox/" + RUN, "Basic YWxpY2U6cHc=", 401),
    "forged": ("POST", "/sandbox/" + RUN, "forged", 401),
    "expired": ("POST", "/sandbox/" + RUN, "expired", 401),
    "no permission": ("POST", "/sandbox/" + RUN, "other", 403),
    "denied": ("POST", "/denied/" + RUN, "good", 403),
    "denied, any": ("POST", "/any/" + RUN, None, 401),
    "a password": ("POST", "/basic/" + RUN, "good", 401),
    "asked": ("POST", "/asked/" + RUN, "good", 403),
    "limited": ("POST", "/limited/" + RUN, "good", 429),
    "no such path": ("POST", "/sandbox/v1/nothing", "good", 404),
    "OPTIONS": ("OPTIONS", "/sandbox/" + RUN, None, 401),
    "PUT": ("PUT", "/sandbox/" + RUN, "good", 405),
}


def start():
    global g
    g = Gateway(runner="mock", workers=1)
    g.h2_port = free_port()
    g.write("htpasswd", "alice:{PLAIN}pw\n", 0o644)
    locations = """
        location /denied/ { deny all; %(on)s }
        location /any/ { satisfy any; deny all; %(on)s }
        location /basic/ {
            auth_basic people;
            auth_basic_user_file %(dir)s/htpasswd;
            %(on)s
        }
        location = /no { return 403; }
        location /asked/ { auth_request /no; %(on)s }
        location /limited/ {
            limit_req zone=limited;
            limit_req_status 429;
            %(on)s
        }
    """ % {"dir": g.dir, "on": "sandbox on; sandbox_jwt_secret_file "
                               "%s/jwt.key;" % g.dir}
    g.options["server"] = locations
    g.options["http"] = """
    client_max_body_size 1k;
    keepalive_requests 100000;
    limit_req_zone $http_x_turn zone=limited:1m rate=1r/m;
    server {
        listen 127.0.0.1:%d http2;
        location /sandbox/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
        }
        %s
    }
    """ % (g.h2_port, g.dir, locations)
    g.start()


def stop():
    try:
        nothing_smuggled()
    finally:
        g.stop()


def nothing_smuggled():
    """Each line of the access log is a request that a test made; "-" is one
    of HTTP/2 without a request line.  The last one may be half written."""
    log = g.read("logs/access.log").rpartition("\n")[0]
    wrong = [line for line in log.splitlines()
             if "smuggled" in line
             or not re.search(r'\] "((GET|POST|PUT|OPTIONS) /\w+/|-")', line)]
    check(not wrong, "a body was read as a request:", wrong[:3])


def body_of(size):
    return (SMUGGLED * (size // len(SMUGGLED) + 1))[:size]


def authorization(kind):
    if kind is None:
        return None
    if kind == "good":
        return "Bearer " + token()
    if kind == "forged":
        return "Bearer " + token(secret=b"another secret of over 32 bytes!!")
    if kind == "expired":
        return "Bearer " + token(exp=int(time.time()) - 3600)
    if kind == "other":
        return "Bearer " + token(permissions=["other"])
    return kind


def prepare(name):
    """What is to be limited has had its request of this minute, each time
    another's: no minute ends before the next one."""
    more = {}
    if name == "limited":
        more["X-Turn"] = "turn-%d" % next(turns)
        same(g.request("GET", "/limited/v1/limits", headers=more).status, 200,
             "the one that counts")
    return REFUSALS[name] + (more,)


def head(name, more=()):
    method, path, kind, _, turn = prepare(name)
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: localhost",
             "Content-Type: application/json"]
    lines += ["%s: %s" % one for one in turn.items()]
    value = authorization(kind)
    if value:
        lines.append("Authorization: " + value)
    return ("\r\n".join(lines + list(more)) + "\r\n\r\n").encode()


def refused(name, body, chunked=False):
    """The bytes of such a request."""
    if not chunked:
        return head(name, ["Content-Length: %d" % len(body)]) + body
    out = [head(name, ["Transfer-Encoding: chunked"])]
    for at in range(0, len(body), 65536):
        piece = body[at:at + 65536]
        out.append(b"%x\r\n%s\r\n" % (len(piece), piece))
    return b"".join(out) + b"0\r\n\r\n"


def good(mark, close=False):
    body = json.dumps({"command": "mock: stdout=" + mark}).encode()
    return ("POST /sandbox/%s HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\nAuthorization: Bearer %s\r\n"
            "%sContent-Length: %d\r\n\r\n"
            % (RUN, token(), "Connection: close\r\n" if close else "",
               len(body))).encode() + body


class Client:
    """A connection that writes while it reads."""

    def __init__(self):
        self.sock = socket.create_connection(("127.0.0.1", g.port),
                                             150 * SLOW)
        self.data = b""
        self.writer = None
        self.lost = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if self.writer:
            self.writer.join(10)
        self.sock.close()

    def send(self, data):
        if self.writer:
            self.writer.join(150 * SLOW)
            check(not self.writer.is_alive(), "the server does not read")

        def write():
            try:
                self.sock.sendall(data)
            except OSError:
                self.lost = True
        self.writer = threading.Thread(target=write, daemon=True)
        self.writer.start()

    def fill(self):
        try:
            piece = self.sock.recv(65536)
        except ConnectionResetError:
            piece = b""
        self.data += piece
        return piece != b""

    def answer(self, body=True):
        """Status, headers, body of the next answer; None at the end."""
        while True:
            while b"\r\n\r\n" not in self.data:
                if not self.fill():
                    check(not self.data, "an answer cut short:",
                          self.data[:300])
                    return None
            top, _, self.data = self.data.partition(b"\r\n\r\n")
            lines = top.decode("latin-1").split("\r\n")
            check(re.match(r"HTTP/1\.1 \d{3} ", lines[0]), "no answer:",
                  top[:300])
            status = int(lines[0].split()[1])
            if status >= 200:
                break
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        size = int(headers.get("content-length", 0)) if body else 0
        check("transfer-encoding" not in headers, "chunked:", headers)
        while len(self.data) < size:
            check(self.fill(), "a body cut short")
        text, self.data = self.data[:size], self.data[size:]
        return status, headers, text


def status_of(name, body):
    with Client() as c:
        c.send(refused(name, body))
        return c.answer()[0]


def ends(headers):
    return headers.get("connection", "").lower() == "close"


def next_one(c, headers, mark, what):
    """The good request that is next, here or on a new connection."""
    if ends(headers):
        check(c.answer() is None, what + ": more after the last answer")
        return False
    answer = c.answer()
    check(answer, what + ": closed without saying so")
    same(answer[0], 200, what + ", the good one after it")
    same(json.loads(answer[2])["stdout"], mark, what)
    return True


def each_refusal(size, chunked):
    """One connection for each: refused, good, refused and good at once."""
    kept = 0
    for name in REFUSALS:
        what = "%s, %d bytes%s" % (name, size, " chunked" * chunked)
        status = REFUSALS[name][3]
        data = refused(name, body_of(size), chunked)
        for together in (False, True):
            with Client() as c:
                c.send(data + (good("then") if together else b""))
                answer = c.answer()
                check(answer, what + ": no answer")
                same(answer[0], status, what)
                if status == 401:
                    check("www-authenticate" in answer[1], what, answer)
                check(b"problem+json" in answer[1]["content-type"].encode(),
                      what, answer)
                if not together and not ends(answer[1]):
                    c.send(good("then"))
                kept += next_one(c, answer[1], "then", what)
    nothing_smuggled()
    print("# %d bytes%s: %d of %d connections kept"
          % (size, " chunked" * chunked, kept, 2 * len(REFUSALS)))
    return kept


@test("auth/refused-then-good")
def no_body():
    same(each_refusal(0, False), 2 * len(REFUSALS), "connections kept")


@test("auth/refused-then-good-1-byte")
def one_byte():
    same(each_refusal(1, False), 2 * len(REFUSALS), "connections kept")
    each_refusal(1, True)


@test("auth/refused-then-good-64k")
def small_body():
    each_refusal(65536, False)
    each_refusal(65536, True)


@test("auth/refused-then-good-2m", seconds=240)
def body_of_two():
    each_refusal(2 << 20, False)
    each_refusal(2 << 20, True)


@test("auth/refused-then-good-20m", seconds=240)
def body_of_twenty():
    each_refusal(20 << 20, False)


@test("auth/refused-chunked-20m")
def chunked_twenty():
    for name in ("no token", "no permission", "denied", "no such path"):
        data = refused(name, body_of(20 << 20), True)
        with Client() as c:
            c.send(data)
            same(c.answer()[0], REFUSALS[name][3], name)
    nothing_smuggled()


@test("auth/refused-many-pipelined")
def many_pipelined():
    """All kinds at once in one connection, each answered in its turn."""
    names = [n for n in REFUSALS for _ in range(3)]
    with Client() as c:
        c.send(b"".join(refused(n, body_of(n != "denied" and 100))
                        + good("after-%d" % at)
                        for at, n in enumerate(names)))
        for at, name in enumerate(names):
            answer = c.answer()
            check(answer, "closed before", name, at)
            same(answer[0], REFUSALS[name][3], name)
            check(next_one(c, answer[1], "after-%d" % at, name),
                  "closed after", name)
    nothing_smuggled()


@test("auth/refused-body-in-pieces")
def pieces():
    """The answer does not wait for the body, the next one does."""
    body = body_of(5000)
    for name in ("no token", "no permission", "denied", "limited"):
        with Client() as c:
            c.send(head(name, ["Content-Length: %d" % len(body)])
                   + body[:10])
            answer = c.answer()
            same(answer[0], REFUSALS[name][3], name)
            if ends(answer[1]):
                continue
            for at in range(10, len(body), 1000):
                c.send(body[at:at + 1000])
            c.send(good("late"))
            next_one(c, answer[1], "late", name)
    nothing_smuggled()


@test("auth/refused-body-never-comes")
def never():
    """A client that leaves in the middle of the body."""
    for name in ("no token", "no permission", "denied"):
        for chunked in (False, True):
            with Client() as c:
                c.send(refused(name, body_of(100000), chunked)[:5000])
                same(c.answer()[0], REFUSALS[name][3], name)
    same(g.request("GET", "v1/limits").status, 200, "afterwards")
    same(len(g.workers()), 1, "workers")


@test("auth/refused-bad-chunks")
def bad_chunks():
    """What is no chunk ends the connection, and is no request."""
    for name in ("no token", "no permission", "denied"):
        with Client() as c:
            c.send(head(name, ["Transfer-Encoding: chunked"])
                   + b"zz\r\n" + SMUGGLED * 3)
            answer = c.answer()
            check(answer is None or answer[0] in (400, REFUSALS[name][3]),
                  name, answer)
            while answer:
                answer = c.answer()
                check(answer is None or answer[0] == 400, name, answer)
    nothing_smuggled()


@test("auth/refused-expect-100")
def expect():
    """With or without "100 Continue": the refusal comes, the next works."""
    for name in REFUSALS:
        for size in (1, 100000, 2 << 20):
            body = body_of(size)
            with Client() as c:
                c.send(head(name, ["Content-Length: %d" % size,
                                   "Expect: 100-continue"]))
                answer = None
                while b"\r\n\r\n" not in c.data:
                    check(c.fill(), name + ": no answer to Expect")
                told = c.data.startswith(b"HTTP/1.1 100 ")
                if told:
                    c.send(body + good("then"))
                    answer = c.answer()
                else:
                    # a client that waits sends no body after a refusal
                    answer = c.answer()
                    if not ends(answer[1]):
                        c.send(body + good("then"))
                same(answer[0], REFUSALS[name][3], name)
                next_one(c, answer[1], "then", "%s, %d bytes" % (name, size))
    nothing_smuggled()


@test("auth/inherited-body-limit")
def inherited_limit():
    """client_max_body_size 1k of http{} is not ours."""
    for size in (2000, 65536, 200000):
        stdin = "x" * size
        r = g.request("POST", RUN, {"command": "mock: stdout=big",
                                    "stdin": stdin})
        same(r.status, 200, "%d bytes" % size)
        same(r.json["stdout"], "big")
    # and where it would refuse, ours refuses before it
    for name in ("no token", "forged"):
        for body in (body_of(2000), body_of(3 << 20)):
            same(status_of(name, body), 401, name)
    r = g.request("POST", RUN, None, headers={
        "Content-Type": "application/json", "Content-Length": "0"})
    same(r.status, 400, "no body")


@test("auth/refused-nothing-ran")
def nothing_ran():
    for name in ("no token", "forged", "no permission", "denied", "asked"):
        body = json.dumps({"command": "mock: stdout=7711"}).encode()
        path = REFUSALS[name][1]
        with Client() as c:
            c.send(refused(name, body).replace(
                path.encode(), path.replace("refusals", "nothing").encode()))
            status, _, text = c.answer()
            same(status, REFUSALS[name][3], name)
            check(b"7711" not in text, name, text)
    seen = json.loads(g.run("nothing", "mock: seen")["stdout"])
    same(seen, ["COMMAND"], "what the runner was asked")


# HTTP/2

def stream(c, name, body=None, **more):
    method, path, kind, _, turn = prepare(name)
    headers = [("content-type", "application/json")]
    headers += [(n.lower(), value) for n, value in turn.items()]
    value = authorization(kind)
    if value:
        headers.append(("authorization", value))
    return c.request(method, path, tuple(headers), body, **more)


def good_stream(c, mark):
    return c.request("POST", "/sandbox/" + RUN, (
        ("content-type", "application/json"),
        ("authorization", "Bearer " + token())),
        json.dumps({"command": "mock: stdout=" + mark}).encode())


@test("auth/h2-refused-then-good", seconds=240)
def h2_refused():
    """Each kind, each size, a good stream after it and one beside it."""
    for size in SIZES:
        for name, (_, _, _, status) in REFUSALS.items():
            what = "%s, %d bytes" % (name, size)
            with h2.Connection(g.h2_port, 150 * SLOW) as c:
                one = stream(c, name, body_of(size) if size else None)
                beside = good_stream(c, "beside")
                same(c.wait(one, beside), [status, 200], what)
                after = good_stream(c, "after")
                same(c.wait(after), [200], what + ", the next stream")
                same(json.loads(beside.body)["stdout"], "beside", what)
                same(json.loads(after.body)["stdout"], "after", what)
                check(one.reset in (None, 0), what, one.reset)
                same(c.goaway, None, what)
    nothing_smuggled()
    same(len(g.workers()), 1, "workers")


@test("auth/h2-refused-before-the-body")
def h2_before():
    """Answered at once; what comes of the body later is let go."""
    for name, (_, _, _, status) in REFUSALS.items():
        with h2.Connection(g.h2_port, 150 * SLOW) as c:
            one = stream(c, name, body_of(65536), hold=True)
            same(c.wait(one), [status], name)
            if one.reset is None:
                c.go(one)
            after = good_stream(c, "after")
            same(c.wait(after), [200], name + ", the next stream")
    same(len(g.workers()), 1, "workers")


@test("auth/h2-refused-many")
def h2_many():
    """A hundred streams of one connection, in no order."""
    with h2.Connection(g.h2_port, 150 * SLOW) as c:
        names = list(REFUSALS) * 4
        streams = [stream(c, n, body_of(300)) for n in names]
        fine = [good_stream(c, "%d" % n) for n in range(40)]
        same(c.wait(*streams), [REFUSALS[n][3] for n in names])
        same(set(c.wait(*fine)), {200})
        same([json.loads(s.body)["stdout"] for s in fine],
             ["%d" % n for n in range(40)])
    nothing_smuggled()


@test("auth/h2-token-size")
def h2_token_size():
    """As with HTTP/1.1; what nginx itself finds too long ends the
    connection, and only that one."""
    for size, statuses in ((1000, (200,)), (4000, (200,)), (7500, (200,)),
                           (12000, (200, 400, 401, 431, None)),
                           (40000, (400, 401, 431, None))):
        text = token(filler="x" * (size * 3 // 4))
        with h2.Connection(g.h2_port) as c:
            one = c.request("GET", "/sandbox/v1/limits",
                            (("authorization", "Bearer " + text[:16000]),))
            try:
                c.wait(one)
            except h2.Lost:
                check(c.goaway, "closed without GOAWAY")
            check(one.status in statuses, "%d bytes:" % size, one.status)
    same(len(g.workers()), 1, "workers")


@test("auth/h2-two-authorization")
def h2_two_headers():
    for first, second in ((token(), "a.b.c"), ("a.b.c", token()),
                          (token(), token())):
        with h2.Connection(g.h2_port) as c:
            one = c.request("GET", "/sandbox/v1/limits", (
                ("authorization", "Bearer " + first),
                ("authorization", "Bearer " + second)))
            check(c.wait(one)[0] in (400, 401), "taken:", one.status)
            # and the connection goes on
            same(c.wait(good_stream(c, "x")), [200])


@test("auth/refused-no-leak-of-connections")
def no_leak():
    """All of them are closed, and the worker has let go of them."""
    def count():
        with open("/proc/%d/net/tcp" % os.getpid()) as f:
            return sum(1 for line in f if (":%04X " % g.port)
                       in line.split()[1] + " " and line.split()[3] == "01")
    wait_for(lambda: count() == 0, 30, "the end of all connections")


main(start, stop)
