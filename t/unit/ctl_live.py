#!/usr/bin/env python3
"""sandboxctl run, logs and cancel against a gateway that is made up: what is
lost, late, twice or refused, which a real one seldom is.

    t/unit/run t/unit/ctl_live.py
"""

import base64
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

TOP = os.path.dirname(os.path.abspath(__file__)) + "/../.."
sys.path.insert(0, TOP + "/t/lib")

from tap import check, main, same, test                      # noqa: E402

CTL = os.path.abspath(os.environ.get("BUILD") or TOP + "/build") \
    + "/sandboxctl"
MOST = 250          # seconds, of what must come on a machine that is busy
server = None


class Script:
    """One conversation: what it is asked, and a function for each call."""

    def __init__(self, run=None, get=None, stdin=None, delete=None):
        self.run, self.get, self.stdin, self.delete = run, get, stdin, delete
        self.calls = []
        self.input = b""
        self.eof = threading.Event()
        self.cancelled = threading.Event()
        self.lock = threading.Lock()


scripts = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def events(self, *events):
        """The head of a stream if there is none yet, and some events."""
        if not getattr(self, "begun", False):
            self.begun = True
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
        for event in events:
            text = event if isinstance(event, bytes) \
                else (json.dumps(event) + "\n").encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def ping_until(self, event):
        """As a gateway does meanwhile, so that nobody thinks it is gone."""
        end = time.monotonic() + MOST
        while not event.wait(2) and time.monotonic() < end:
            self.events(b"\n")

    def end_well(self):
        self.wfile.write(b"0\r\n\r\n")

    def cut(self):
        """As if the worker had been killed."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def answer(self, status, value=None, after=None):
        text = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 300
                         else "application/problem+json")
        self.send_header("Content-Length", str(len(text)))
        if after is not None:
            self.send_header("Retry-After", str(after))
        self.end_headers()
        self.wfile.write(text)

    def problem(self, status, code, after=None):
        self.answer(status, {"code": code, "detail": "It is " + code + "."},
                    after)

    def serve(self):
        self.begun = False
        url = urllib.parse.urlsplit(self.path)
        parts = url.path.split("/")
        self.query = dict(urllib.parse.parse_qsl(url.query))
        self.body = self.rfile.read(int(self.headers.get("Content-Length")
                                        or 0))
        s = scripts[parts[4]]
        tail = parts[5:]
        with s.lock:
            kind = {("POST", 1): "run", ("GET", 2): "get",
                    ("DELETE", 2): "delete", ("POST", 3): "stdin"}[
                        self.command, len(tail)]
            s.calls.append((kind, self.query))
            n = sum(c[0] == kind for c in s.calls)
        if kind == "stdin" and s.stdin is None:
            s.input += self.body
            if self.query.get("eof") == "1":
                s.eof.set()
            return self.answer(200, {"bytes": len(self.body)})
        if kind == "delete" and s.delete is None:
            s.cancelled.set()
            return self.answer(200, {"commandId": tail[1],
                                     "outcome": "cancelled"})
        return getattr(s, kind)(self, n)

    def do_GET(self):
        try:
            self.serve()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_POST = do_DELETE = do_GET


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that hangs up is what some tests are about."""


def started():
    return {"type": "started", "seq": 1, "commandId": "x"}


def out(seq, data, name="stdout"):
    return {"type": name, "seq": seq, "data": data}


def result(seq, code=0, outcome="exit", **more):
    return dict(more, type="result", seq=seq, exitCode=code, outcome=outcome,
                signal=None, stagingNotices=[])


def start():
    global server
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def stop():
    server.shutdown()
    server.server_close()


def environment(port=None):
    return dict(os.environ, SANDBOX_TOKEN="x", SANDBOX_URL=(
        "http://127.0.0.1:%d/sandbox" % (port or server.server_port)))


def popen(*arguments, stdin=subprocess.DEVNULL, port=None):
    return subprocess.Popen([CTL] + list(arguments), stdin=stdin,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(port))


def finish(process, seconds=MOST):
    try:
        a, b = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return a, b, process.returncode


def ctl(*arguments, data=None, seconds=MOST):
    process = popen(*arguments, stdin=subprocess.DEVNULL if data is None
                    else subprocess.PIPE)
    if data is None:
        return finish(process, seconds)
    return communicate(process, data, seconds)


def communicate(process, data, seconds=MOST):
    try:
        a, b = process.communicate(data, timeout=seconds)
    finally:
        process.kill()
    return a, b, process.returncode


@test("ctl/streams")
def streams():
    def run(h, n):
        h.events(started(), out(2, "a\u00e4\n"), out(3, "e\n", "stderr"),
                 {"type": "stdout", "seq": 4, "dataBase64": "/wD+"},
                 {"type": "later", "seq": 5}, b"\n", result(6, 3))
        h.end_well()
    scripts["s"] = s = Script(run)
    same(ctl("run", "s", "x"), ("a\u00e4\n".encode() + b"\xff\0\xfe",
                                b"e\n", 3))
    same([c[0] for c in s.calls], ["run"])


@test("ctl/statuses")
def statuses():
    for code, outcome, status in ((0, "exit", 0), (7, "exit", 7),
                                  (139, "signal", 139), (124, "timeout", 124),
                                  (137, "oom", 137), (137, "cancelled", 137),
                                  (None, "runner_lost", 125),
                                  (137, "sandbox_deleted", 125),
                                  (300, "exit", 125), (None, "exit", 125)):
        scripts["t"] = Script(lambda h, n: (h.events(
            started(), result(2, code, outcome)), h.end_well()))
        same(ctl("run", "t", "x")[2], status, outcome)


@test("ctl/resumes")
def resumes():
    """Cut within an event, behind one, before the first; and events that
    come twice."""
    events = [started()] + [out(n, "line %d\n" % n) for n in range(2, 40)] \
        + [result(40)]
    lines = [(json.dumps(e) + "\n").encode() for e in events]

    def run(h, n):
        h.events(*lines[:9], lines[9][:20])
        h.cut()

    def get(h, n):
        after = int(h.query["after"])
        if n == 1:
            h.cut()
        elif n == 2:
            h.events(*lines[after:after + 5])
            h.cut()
        elif n == 3:
            h.events(*lines[max(0, after - 3):after + 5])
            h.end_well()
        elif n == 4:
            h.problem(503, "runner_unreachable")
        else:
            h.events(*lines[after:])
            h.end_well()
    scripts["r"] = s = Script(run, get)
    a, b, status = ctl("run", "r", "x")
    same((a.decode(), status),
         ("".join("line %d\n" % n for n in range(2, 40)), 0), b)
    same([c[0] for c in s.calls], ["run"] + ["get"] * 5)
    same(s.calls[1][1]["after"], "9")


@test("ctl/lost-or-not")
def doubt():
    """A result that the gateway made up is asked about."""
    lost = result(1, None, "runner_lost")

    def get(h, n):
        if n < 3:
            h.events(lost)
        else:
            h.events(out(2, "here\n"), result(3, 6))
        h.end_well()

    def run(h, n):
        h.events(started(), lost)
        h.end_well()
    scripts["q"] = Script(run, get)
    same(ctl("run", "q", "x"), (b"here\n", b"", 6))
    scripts["q"] = s = Script(run, lambda h, n: h.problem(404, "no_sandbox"))
    a, b, rc = ctl("run", "q", "x")
    same((a, rc, len(s.calls)), (b"", 125, 2))
    check(b"runner_lost" in b, b)
    # the agent's own has a number, and is the last word
    scripts["q"] = s = Script(lambda h, n: (h.events(
        started(), result(2, None, "runner_lost")), h.end_well()))
    same((ctl("run", "q", "x")[2], len(s.calls)), (125, 1))


@test("ctl/asks-again-before-the-first-word")
def again():
    """The request got there and nothing came back: the same one again."""
    bodies = []

    def run(h, n):
        bodies.append(h.body)
        if n < 3:
            return h.cut()
        h.events(started(), result(2, 5))
        h.end_well()
    scripts["a"] = Script(run)
    same(ctl("run", "a", "x")[2], 5)
    same(len(set(bodies)), 1, "different requests")
    check(json.loads(bodies[0])["commandId"], "no id")


@test("ctl/refusals")
def refusals():
    for status, code in ((429, "too_many_pending"), (401, "invalid_token"),
                         (503, "sandbox_failed")):
        scripts["f"] = s = Script(lambda h, n: h.problem(status, code))
        a, b, rc = ctl("run", "f", "x")
        same((a, rc, len(s.calls)), (b"", 125, 1))
        check(code.encode() in b, "which?", b)

    scripts["f"] = s = Script(
        lambda h, n: (h.events(started()), h.cut()),
        lambda h, n: h.problem(410, "expired"))
    a, b, rc = ctl("run", "f", "x")
    same((rc, len(s.calls)), (125, 2))
    check(b"expired" in b, "which?", b)


@test("ctl/nothing-was-started")
def busy():
    """Asked again with the same request, when the gateway says so."""
    bodies = []

    def run(h, n):
        bodies.append(h.body)
        if n <= 3:
            return h.problem(503, ("runner_unreachable", "runner_stopping",
                                   "at_capacity")[n - 1], (None, 2, 1)[n - 1])
        if n == 4:
            h.events({"type": "refused", "seq": 1, "status": 503,
                      "code": "at_capacity", "retryAfter": 1})
        else:
            h.events(started(), out(2, "here\n"), result(3, 6))
        h.end_well()
    scripts["k"] = Script(run)
    begin = time.monotonic()
    same(ctl("run", "k", "x"), (b"here\n", b"", 6))
    check(time.monotonic() - begin > 4, "sooner than it was told")
    same((len(bodies), len(set(bodies))), (5, 1))

    # --json as well
    scripts["k"] = s = Script(
        lambda h, n: h.problem(503, "at_capacity", 1) if n == 1
        else h.answer(200, result(0, 4)))
    same((ctl("run", "--json", "k", "x")[2], len(s.calls)), (4, 2))

    # not longer than 15 seconds in all
    scripts["k"] = s = Script(
        lambda h, n: h.problem(503, "at_capacity", (1, 15)[n - 1]))
    a, b, rc = ctl("run", "k", "x")
    same((a, rc, len(s.calls)), (b"", 125, 2))
    check(b"at_capacity" in b, "which?", b)

    # Ctrl-C meanwhile: there is nothing to cancel
    scripts["k"] = s = Script(
        lambda h, n: h.problem(503, "at_capacity", 14))
    process = popen("run", "k", "x")
    while not s.calls:
        time.sleep(0.01)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    same(finish(process), (b"", b"", 130))
    check(time.monotonic() - begin < 12, "it took its time")
    same([c[0] for c in s.calls if c[0] == "run"], ["run"])


@test("ctl/no-events")
def no_events():
    for text in (b"hello\n", b"{}\n", b"x" * (1 << 20) + b"x\n"):
        scripts["n"] = Script(lambda h, n: (h.events(text), h.end_well()))
        a, b, rc = ctl("run", "n", "x")
        same((a, rc), (b"", 125))
        check(b"events" in b, "what was wrong?", b)


@test("ctl/gap")
def gap():
    """Output that is not all there is no success."""
    for stream in ("stdout", "stderr"):
        for code, status in ((0, 125), (7, 7)):
            scripts["g"] = Script(lambda h, n: (h.events(
                started(), {"type": "gap", "seq": 7, "stream": stream,
                            "bytes": 1000}, out(8, "more\n"),
                {"type": "gap", "seq": 20, "stream": stream, "bytes": 234},
                out(21, "end\n"), result(22, code)), h.end_well()))
            a, b, rc = ctl("run", "g", "x")
            same((a, rc), (b"more\nend\n", status), stream)
            check(b"1234 bytes of " + stream.encode() in b
                  and b.count(b"\n") == 2, "what was left out?", b)


@test("ctl/stdin")
def stdin():
    def run(h, n):
        s = scripts["i"]
        s.request = json.loads(h.body)
        h.events(started())
        if s.request["stdinOpen"]:
            h.ping_until(s.eof)
        h.events(result(2))
        h.end_well()

    def check_input(data, opened, r):
        s = scripts["i"]
        same(r[2], 0, r[1])
        got = base64.b64decode(s.request.get("stdinBase64", "")) + s.input
        check(got == data, "another input", len(got), len(data))
        same(s.request["stdinOpen"], opened)

    # a file, and a writer that has gone, are read before the request
    scripts["i"] = Script(run)
    check_input(b"", False, ctl("run", "i", "x"))
    data = os.urandom(3000)
    scripts["i"] = Script(run)
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    check_input(data, False, finish(popen("run", "i", "x", stdin=read)))
    os.close(read)

    # what is longer, or comes later, goes there while the command runs
    data = os.urandom(3000000)
    scripts["i"] = Script(run)
    check_input(data, True, ctl("run", "i", "x", data=data))
    scripts["i"] = s = Script(run)
    process = popen("run", "i", "x", stdin=subprocess.PIPE)
    for part in (b"one\n", b"two\n", b"three\n"):
        before = len(s.input)
        process.stdin.write(part)
        process.stdin.flush()
        end = time.monotonic() + MOST
        while len(s.input) == before and time.monotonic() < end:
            time.sleep(0.01)
        same(s.input[before:], part, "a line that was typed")
    check_input(b"one\ntwo\nthree\n", True, communicate(process, None))

    scripts["i"] = Script(run)
    check_input(b"", False, ctl("run", "-n", "i", "x", data=b"not this"))


@test("ctl/stdin-nobody-reads")
def unread():
    """The command ends before it has read all: no fault of anybody."""
    done = threading.Event()

    def run(h, n):
        h.events(started())
        h.ping_until(done)
        time.sleep(0.2)
        h.events(result(2, 4))
        h.end_well()

    def taken(h, n):
        done.set()
        h.problem(409, "command_ended")
    scripts["u"] = Script(run, stdin=taken)
    a, b, rc = ctl("run", "u", "x", data=bytes(1 << 20))
    same((a, b, rc), (b"", b"", 4))


@test("ctl/stdin-breaks")
def stdin_breaks():
    """What may be there in part only is never sent twice, and is said."""
    def run(h, n):
        h.events(started())
        h.ping_until(scripts["b"].cancelled)
        h.events(result(2, 137, "cancelled"))
        h.end_well()
    scripts["b"] = s = Script(run, stdin=lambda h, n: h.cut())
    a, b, rc = ctl("run", "b", "x", data=bytes(1 << 20))
    same(rc, 125)
    check(b"in part" in b and s.cancelled.is_set(), "was it said?", b)
    same(sum(c[0] == "stdin" for c in s.calls), 1, "sent again")


def begun(process, text=b"go\n"):
    same(process.stdout.readline(), text)
    return process


@test("ctl/cancel")
def cancel():
    def run(h, n):
        h.events(started(), out(2, "go\n"))
        h.ping_until(scripts["c"].cancelled)
        h.events(out(3, "last words\n"), result(4, 137, "cancelled"))
        h.end_well()
    for number in (signal.SIGINT, signal.SIGTERM):
        scripts["c"] = s = Script(run)
        process = begun(popen("run", "c", "x"))
        process.send_signal(number)
        same(finish(process), (b"last words\n", b"", 128 + number))
        check(s.cancelled.is_set(), "not cancelled")


@test("ctl/cancel-before-it-is-there")
def cancel_early():
    """The DELETE overtakes the POST: it is repeated."""
    def run(h, n):
        scripts["e"].cancelled.wait(MOST)
        h.events(result(1, 137, "cancelled"))
        h.end_well()

    def delete(h, n):
        if n < 3:
            return h.problem(404, "command_not_found")
        scripts["e"].cancelled.set()
        h.answer(200, {"outcome": "cancelled"})
    scripts["e"] = s = Script(run, delete=delete)
    process = popen("run", "e", "x")
    while not s.calls:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    same(finish(process)[2], 130)
    same(sum(c[0] == "delete" for c in s.calls), 3)


@test("ctl/second-signal")
def second():
    def run(h, n):
        h.events(started(), out(2, "go\n"))
        over.wait(MOST)
    over = threading.Event()
    scripts["d"] = s = Script(run, delete=lambda h, n: over.wait(MOST))
    process = begun(popen("run", "d", "x"))
    process.send_signal(signal.SIGINT)
    while len(s.calls) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        same(finish(process), (b"", b"", 130))
    finally:
        over.set()


@test("ctl/reader-gone")
def reader_gone():
    """Like `yes | head -1`: what nobody reads need not run on."""
    def run(h, n):
        h.events(started(), out(2, "go\n"))
        for seq in range(3, 100000):
            if scripts["h"].cancelled.is_set():
                break
            h.events(out(seq, "y\n" * 1000))
        h.end_well()
    scripts["h"] = s = Script(run)
    process = begun(popen("run", "h", "x"))
    process.stdout.close()
    same((process.wait(MOST), process.stderr.read()), (141, b""))
    check(s.cancelled.is_set(), "cancelled")
    process.stderr.close()

    # who only looks on ends nothing
    scripts["h"] = s = Script(get=lambda h, n: run(h, n))
    process = begun(popen("logs", "-f", "h", "id"))
    process.stdout.close()
    same((process.wait(MOST), process.stderr.read()), (141, b""))
    process.stderr.close()
    same([c[0] for c in s.calls], ["get"])
    s.cancelled.set()

    # one answer
    scripts["h"] = Script(lambda h, n: h.answer(200, result(0)))
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [CTL, "run", "--json", "h", "x"], stdin=subprocess.DEVNULL,
        stdout=write, stderr=subprocess.PIPE, timeout=MOST, env=environment())
    os.close(write)
    same((process.returncode, process.stderr), (141, b""))

    # another failure has a sentence
    scripts["h"] = s = Script(run)
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [CTL, "run", "h", "x"], stdin=subprocess.DEVNULL, stdout=full,
            stderr=subprocess.PIPE, timeout=MOST, env=environment())
    same(process.returncode, 125)
    check(b"write" in process.stderr and s.cancelled.is_set(), "cancelled")


@test("ctl/nothing-there")
def nothing():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        begin = time.monotonic()
        a, b, rc = finish(popen("run", "x", "x", port=port))
    same(rc, 125)
    check(b"nothing answers" in b and time.monotonic() - begin < 50, b)


@test("ctl/background-and-json")
def single():
    def run(h, n):
        request = json.loads(h.body)
        same(h.headers["Accept"], "application/json")
        if request.get("background"):
            return h.answer(202, {"commandId": request["commandId"],
                                  "state": "running"})
        h.answer(200, result(0, 6, stdout="hi\n"))
    scripts["j"] = Script(run)
    same(ctl("run", "--background", "--id", "my-id", "j", "x"),
         (b"my-id\n", b"", 0))
    a, b, rc = ctl("run", "--json", "j", "x")
    same((json.loads(a)["stdout"], rc), ("hi\n", 6))


@test("ctl/without-events")
def plain():
    """A backend that has none: the same command for one answer."""
    def run(h, n):
        if h.headers["Accept"] == "application/x-ndjson":
            return h.problem(501, "not_on_this_backend")
        request = json.loads(h.body)
        same(h.query, {"encoding": "base64"})
        check("stdinOpen" not in request, "stdinOpen", request)
        h.answer(200, result(0, 8, stderrBase64="", stdoutBase64=request.get(
            "stdinBase64", "/wD+")))
    scripts["w"] = s = Script(run)
    same(ctl("run", "w", "x"), (b"\xff\0\xfe", b"", 8))
    same(len(s.calls), 2)
    data = os.urandom(700000)
    same(ctl("run", "w", "x", data=data), (data, b"", 8))

    for code, status in ((0, 125), (7, 7)):
        scripts["w"] = Script(
            lambda h, n: h.problem(501, "not_on_this_backend") if n == 1
            else h.answer(200, result(0, code, stderrBase64="",
                                      stdoutBase64="/wD+", truncated=True)))
        a, b, rc = ctl("run", "w", "x")
        same((a, rc), (b"\xff\0\xfe", status))
        check(b"left out" in b, "not a word", b)


@test("ctl/logs")
def logs():
    def get(h, n):
        if h.headers["Accept"] != "application/x-ndjson":
            return h.answer(200, {"state": "running", "seq": 3})
        h.events(started(), out(2, "a\n"), out(3, "b\n", "stderr"))
        end = time.monotonic() + 1
        while time.monotonic() < end:
            time.sleep(0.1)
        h.events(out(4, "c\n"), result(5, 9))
        h.end_well()
    scripts["l"] = Script(get=get)
    same(ctl("logs", "l", "id"), (b"a\n", b"b\n", 0))
    same(ctl("logs", "-f", "l", "id"), (b"a\nc\n", b"b\n", 0))

    scripts["l"] = Script(get=lambda h, n: h.problem(404, "not_found"))
    same(ctl("logs", "l", "id")[2], 1)
    same(ctl("logs", "-f", "l", "id")[2], 1)


@test("ctl/cancel-verb")
def cancel_verb():
    scripts["v"] = s = Script()
    same(ctl("cancel", "v", "id"), (b"", b"", 0))
    same(s.calls, [("delete", {})])
    scripts["v"] = Script(delete=lambda h, n: h.answer(200, result(0)))
    a, b, rc = ctl("cancel", "v", "id")
    same(rc, 0)
    check(b"before" in b, "that it was over", b)


@test("ctl/usage")
def usage():
    for arguments, status in (((), 2), (("what",), 2), (("run",), 125),
                              (("run", "--what", "x", "y"), 125),
                              (("run", "bad id", "y"), 125),
                              (("run", "--id", "a/b", "x", "y"), 125),
                              (("wait", "x"), 125), (("logs", "x"), 2), (("logs", "x", "a b"), 2),
                              (("ps",), 2), (("ps", "-n", "0", "x"), 2),
                              (("cancel", "x"), 2), (("rm",), 2),
                              (("reset", "a b"), 2), (("status", "a b"), 2),
                              (("token",), 2), (("doctor", "x"), 2)):
        a, b, rc = ctl(*arguments)
        same((a, rc), (b"", status), repr(arguments))
        check(b"sandboxctl" in b, "not a word", arguments)
    for words in (("echo", "hi"), ("ls", "-l")):
        a, b, rc = ctl("run", "first", *words)
        same((a, rc), (b"", 125))
        check(b"quote" in b, "how then?", b)
    for verb in ("run", "logs", "ps", "wait", "cancel", "put", "get", "ls",
                 "save", "link", "rm", "reset", "status", "doctor", "token"):
        a, b, rc = ctl(verb, "--help")
        same((b, rc), (b"", 0))
        check(a.startswith(b"usage: sandboxctl " + verb.encode()), a)
        check(max(len(line) for line in a.splitlines()) < 80,
              a.decode())


main(start, stop)
