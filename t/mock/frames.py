#!/usr/bin/env python3
"""A runner, or an agent, that answers with anything: what is right in part,
in another order, too long, too short, cut off, with bytes changed.  Whatever
it is, nginx lives, its client gets an answer or a connection that breaks off,
what looks like JSON is JSON, no connection is left, and the log stays short.

    SANDBOX_TEST_FUZZ=N     so many requests (1200)
    SANDBOX_TEST_SEED=N     of one run again
"""

import http.client
import json
import os
import random
import shutil
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import Gateway, token, wait_for                 # noqa: E402
from tap import SLOW, check, main, same, test                # noqa: E402

COUNT = int(os.environ.get("SANDBOX_TEST_FUZZ") or 1200) // SLOW
SEED = int(os.environ.get("SANDBOX_TEST_SEED") or 1)
THREADS = 6

HARM = [b"", b"x", b"\n", b"\r\nX-Evil: 1\r\n\r\n", b"\x1b[2J", b"\x00", b"\"",
        b"\\", b"</script>", b"\xff\xfe", b"\xed\xa0\x80", "‮".encode(),
        b"../../etc/passwd", b"%s%n", b"a" * 64, b"b" * 300, b"c" * 5000,
        b"data: {\"type\":\"result\"}\n\n", b"sbx_0123456789abcdef0123"]
NUMBERS = [0, 1, 2, 3, 4, 99, 100, 127, 200, 201, 204, 206, 255, 256, 304,
           404, 412, 416, 500, 511, 1000, 65535, 65536, 2 ** 31 - 1, 2 ** 31,
           2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1, 2 ** 53, 2 ** 63 - 1, 2 ** 63,
           2 ** 64 - 1]
CODES = [code.encode() for code in wire.STATUS_OF] + [
    b"", b"made_up", b"a b", b"x" * 65, b"\n", b"keys_unavailable"]


class Liar:
    """Answers on the runner's socket; PINGs of nginx get what is right."""

    def __init__(self, path):
        self.rnd = random.Random(SEED)
        self.lock = threading.Lock()
        self.true = False           # answers PING only
        self.pings = False          # lies about itself, too
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        os.chmod(path, 0o666)
        self.socket.listen(512)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            s, _ = self.socket.accept()
            with self.lock:
                seed = self.rnd.getrandbits(64)
            threading.Thread(target=self.one, args=(s, random.Random(seed)),
                             daemon=True).start()

    def one(self, s, rnd):
        try:
            with s:
                s.settimeout(20)
                first = wire.Preamble.decode(wire.receive(
                    s, wire.PREAMBLE_SIZE))
                head = wire.receive(s, first.head) if first.head else b""
                if first.operation == wire.PING and not self.pings:
                    s.sendall(frames([(wire.HEAD, [("STATUS", 200)]),
                                      (wire.RESULT, [("READY", 1)])]))
                elif not self.true:
                    self.lie(s, rnd, first, head)
        except (OSError, wire.Lost, wire.Bad):
            pass

    def lie(self, s, rnd, first, head):
        data = mangled(rnd, answer(rnd, first.operation, head))
        if rnd.random() < 0.1:
            s.settimeout(0.02)      # some of the body
            try:
                s.recv(65536)
            except OSError:
                pass
        while data:
            n = rnd.choice((1, 7, 100, 4096, 1 << 20))
            s.sendall(data[:n])
            data = data[n:]
            if n < 100 and len(data) > 2000:
                s.sendall(data)
                data = b""
        if rnd.random() < 0.5:
            s.shutdown(socket.SHUT_WR)
            s.settimeout(0.5)
            try:
                while s.recv(65536):
                    pass
            except OSError:
                pass


def field(name, value):
    if isinstance(value, int):
        value = struct.pack(">Q", value)
    tag = name if isinstance(name, int) else wire.FIELDS[name][0]
    return struct.pack(">HI", tag, len(value)) + value


def fields(pairs):
    return b"".join(field(*pair) for pair in pairs)


def frames(list_):
    out = b""
    for kind, payload in list_:
        if isinstance(payload, list):
            payload = fields(payload)
        out += struct.pack(">IB", len(payload), kind) + payload
    return out


def records(rnd, list_):
    out = b""
    for pairs in list_:
        data = fields(bend(rnd, pairs))
        n = len(data)
        if rnd.random() < 0.1:
            n = rnd.choice((0, 1, n + 1, n - 1, 70000, 2 ** 32 - 1))
        out += struct.pack(">I", max(n, 0)) + data
    return out


def receipt(rnd):
    return [("COMMAND_ID", b"cmd-1"), ("SANDBOX_ID", b"sbx_" + b"0" * 20),
            ("INSTANCE", 7), ("CWD", rnd.choice([b"/home/sandbox"] + HARM)),
            ("WALL_MS", 1000), ("EXIT_CODE", 0),
            ("OUTCOME", rnd.randrange(10)), ("STDOUT_BYTES", 5),
            ("STDERR_BYTES", 0), ("TRUNCATED", 0), ("DURATION_US", 10),
            ("QUEUED_US", 10), ("CPU_US", 10), ("MEMORY_PEAK", 10),
            ("BACKGROUND", 0), ("CREATED", 1), ("SEQ", rnd.randrange(12)),
            ("COMMAND_STATE", rnd.randrange(3)),
            ("DETAIL", rnd.choice(HARM)),
            ("NOTICE", b"\0".join(rnd.choice(HARM) for _ in range(3)))]


def listed(rnd):
    return [("FILE_NAME", rnd.choice([b"name.txt"] + HARM)),
            ("FILE_TYPE", rnd.randrange(4)), ("FILE_SIZE", 5),
            ("FILE_MODE", 0o644), ("MODIFIED_NS", 1764460800 * 10 ** 9),
            ("TARGET", rnd.choice(HARM)), ("LINE", 3),
            ("TEXT", rnd.choice(HARM))]


def output(rnd):
    out, seq = [], 0
    for _ in range(rnd.randrange(6)):
        seq += 1 if rnd.random() < 0.9 else rnd.choice((0, 2, -1, 2 ** 60))
        kind = rnd.choice((wire.STDOUT, wire.STDERR, wire.STDOUT, wire.GAP,
                           wire.STARTED, wire.PING_FRAME))
        number = struct.pack(">Q", max(seq, 0))
        if kind == wire.GAP:
            out.append((kind, number + bytes([rnd.choice((2, 3, 9))])
                        + struct.pack(">Q", rnd.choice(NUMBERS))))
        elif kind == wire.STARTED:
            out.append((kind, number + struct.pack(">Q",
                                                   rnd.choice(NUMBERS))))
        elif kind == wire.PING_FRAME:
            seq -= 1
            out.append((kind, b""))
        else:
            out.append((kind, number + (rnd.choice(HARM) or b"y")
                        * rnd.choice((1, 1, 3, 200))))
    return out


def answer(rnd, operation, head):
    """What would be right for it, more or less."""
    if rnd.random() < 0.15:
        return [(wire.ERROR, bend(rnd, [
            ("STATUS", rnd.choice(NUMBERS)), ("CODE", rnd.choice(CODES)),
            ("DETAIL", rnd.choice(HARM)),
            ("RETRY_AFTER", rnd.choice(NUMBERS)),
            ("NEEDED", struct.pack(">I", rnd.choice((0, 1, 2, 255, 2 ** 31)))
             * rnd.choice((1, 1, 2, 300)))]))]
    start = [("STATUS", rnd.choice((200, 200, 200, rnd.choice(NUMBERS))))]
    middle, end = [], []
    if operation in (wire.COMMAND, wire.ATTACH, wire.CANCEL, wire.STDIN):
        start += receipt(rnd)[:3]
        middle, end = output(rnd), receipt(rnd) + [("BYTES", 3)]
    elif operation in (wire.HISTORY, wire.SESSIONS, wire.FILE_SEARCH) \
            or operation == wire.FILE_READ and rnd.random() < 0.4:
        some = [receipt(rnd) + listed(rnd)
                + [("SESSION", rnd.choice([bytes(32)] + HARM)),
                   ("STATE", rnd.randrange(5)), ("ORDINAL", 3),
                   ("COMMAND", rnd.choice(HARM))]
                for _ in range(rnd.choice((0, 1, 2, 5, 40)))]
        start += listed(rnd)[1:5]
        start[-4] = ("FILE_TYPE", 1)
        data = records(rnd, some)
        while data:
            n = rnd.choice((1, 5, 1000, 65536))
            middle.append((wire.DATA, data[:n]))
            data = data[n:]
        end = [("NEXT", rnd.choice(NUMBERS)), ("MORE", rnd.randrange(3)),
               ("NEXT_NAME", rnd.choice(HARM)), ("BYTES", 5)]
    elif operation == wire.FILE_READ:
        data = rnd.choice(HARM + [b"\x89PNG\r\n\x1a\n" + bytes(100),
                                  b"line\n" * 5000])
        start += listed(rnd)[2:5] + [("FILE_TYPE", 0), ("ETAG", b"tag")]
        start.append(("FILE_SIZE", len(data) if rnd.random() < 0.8
                      else rnd.choice(NUMBERS)))
        if rnd.random() < 0.3:
            start += [("RANGE_FIRST", rnd.choice(NUMBERS)),
                      ("RANGE_LAST", rnd.choice(NUMBERS))]
        if data:
            middle = [(wire.DATA, data)]
        end = [("BYTES", len(data))]
    else:
        end = [("STATE", rnd.randrange(5)), ("SANDBOX_ID", b"sbx_1"),
               ("INSTANCE", 3), ("CREATED_MS", 10 ** 12), ("COMMANDS", 3),
               ("STATUS", rnd.choice((200, 201, rnd.choice(NUMBERS)))),
               ("CODE", rnd.choice(CODES)), ("ETAG", b"tag"),
               ("FILE_SIZE", 3), ("FILE_TYPE", 0), ("MODIFIED_NS", 10 ** 18),
               ("READY", rnd.randrange(3)), ("DETAIL", rnd.choice(HARM)),
               ("RUNTIME", rnd.choice(HARM)), ("VERSION", rnd.choice(HARM)),
               ("HARD_CAPS", rnd.choice(NUMBERS)),
               ("SANDBOXES", rnd.choice(NUMBERS)),
               ("LIVE", rnd.choice(NUMBERS))]
    return [(wire.HEAD, bend(rnd, start))] + middle \
        + [(wire.RESULT, bend(rnd, end))]


def bend(rnd, pairs):
    """Some fields are others, twice there, or gone."""
    pairs = list(pairs)
    if not pairs or rnd.random() < 0.5:
        return pairs
    for _ in range(rnd.randrange(1, 4)):
        i = rnd.randrange(len(pairs))
        name = pairs[i][0]
        kind = rnd.randrange(7)
        if kind == 0:
            pairs[i] = (name, rnd.choice(NUMBERS))
        elif kind == 1:
            pairs[i] = (name, rnd.choice(HARM))
        elif kind == 2:
            pairs.append((name, rnd.choice(NUMBERS)))
        elif kind == 3:
            pairs.append((rnd.randrange(65536), rnd.choice(HARM)))
        elif kind == 4:
            pairs[i] = (rnd.choice(list(wire.FIELDS)), rnd.choice(NUMBERS))
        elif kind == 5:
            pairs += [(name, b"\0" * 3)] * rnd.choice((1, 2, 400))
        else:
            del pairs[i]
            if not pairs:
                break
    return pairs


def mangled(rnd, list_):
    """The bytes, after changes of frames and of bytes."""
    kind = rnd.randrange(14)
    list_ = list(list_)
    if kind == 0:
        rnd.shuffle(list_)
    elif kind == 1:
        list_.insert(rnd.randrange(len(list_) + 1), rnd.choice(list_))
    elif kind == 2:
        list_.insert(rnd.randrange(len(list_) + 1),
                     (rnd.randrange(256), rnd.choice(HARM)))
    elif kind == 3:
        del list_[rnd.randrange(len(list_))]
    elif kind == 4:
        list_ = [(wire.PING_FRAME, b"")] * rnd.choice((1, 50, 1500)) + list_
    data = bytearray(frames(list_))
    if kind == 5:
        del data[rnd.randrange(len(data) + 1):]
    elif kind == 6:
        for _ in range(rnd.choice((1, 1, 2, 10))):
            if data:
                data[rnd.randrange(len(data))] = rnd.randrange(256)
    elif kind == 7:
        at = rnd.randrange(len(data) + 1)
        data[at:at] = rnd.choice(HARM)
    elif kind == 8 and len(data) > 40:
        at = rnd.randrange(len(data) - 20)
        del data[at:at + rnd.randrange(20)]
    elif kind == 9:
        data += rnd.choice(HARM)
    return bytes(data)


def calls(rnd):
    """Method, path, body, headers of a request."""
    c = "v1/conversations/c%d" % rnd.randrange(3)
    json_ = {"Content-Type": "application/json"}
    sse = dict(json_, Accept="text/event-stream")
    ndjson = dict(json_, Accept="application/x-ndjson")
    ranged = {"Range": rnd.choice(("bytes=0-1", "bytes=5-", "bytes=-3"))}
    run = {"command": "true"}

    def tool(name, **arguments):
        return ("POST", c + "/mcp", {
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": name, "arguments": arguments}}, json_)

    return rnd.choice((
        ("GET", c, None, {}), ("GET", "v1/conversations", None, {}),
        ("DELETE", c, None, {}), ("POST", c + "/reset", None, {}),
        ("POST", c + "/commands", run, json_),
        ("POST", c + "/commands", dict(run, background=True), json_),
        ("POST", c + "/commands?encoding=base64", run, json_),
        ("POST", c + "/commands", run, sse),
        ("POST", c + "/commands", dict(run, commandId="x"), ndjson),
        ("GET", c + "/commands", None, {}),
        ("GET", c + "/commands/x", None, {}),
        ("GET", c + "/commands/x?after=3", None,
         {"Accept": "text/event-stream"}),
        ("DELETE", c + "/commands/x", None, {}),
        ("POST", c + "/commands/x/stdin", b"abc", {}),
        ("GET", c + "/fs/a/b.txt", None, {}),
        ("GET", c + "/fs/a/b.txt", None, ranged),
        ("GET", c + "/fs/a/b.txt", None, {"If-None-Match": '"tag"'}),
        ("GET", c + "/fs/a?list", None, {}),
        ("HEAD", c + "/fs/a/b.png", None, {}),
        ("PUT", c + "/fs/a/b.txt", b"contents", {}),
        ("DELETE", c + "/fs/a/b.txt", None, {}),
        ("POST", c + "/files", {"path": "a/b.png"}, json_),
        tool("run_command", command="true"),
        tool("run_command", command="true", target={"id": "sbx_1"}),
        tool("read_file", path="a"), tool("save_file", path="a", content="b"),
        tool("edit_file", path="a", old_string="line", new_string="x",
             replace_all=True),
        tool("delete_file", path="a"), tool("download_file", path="a"),
        tool("search_files", pattern="x")))


class Wrong(Exception):
    pass


def judge(method, path, r, body):
    """An answer of the gateway that has come to its end."""
    kind = r.headers.get("Content-Type", "")
    for name, value in r.headers.items():
        if "evil" in name.lower() or any(ord(c) < 32 for c in value):
            raise Wrong("a header %r: %r" % (name, value))
    if "text/html" in kind:
        raise Wrong("an answer of nginx's own, %d" % r.status)
    if method == "HEAD":
        if body:
            raise Wrong("HEAD has a body")
    elif kind == "application/problem+json":
        got = json.loads(body)
        if got["status"] != r.status or r.status < 400 or not got["code"]:
            raise Wrong("a problem %d %r" % (r.status, got))
        if r.status in (429, 503) and "Retry-After" not in r.headers:
            raise Wrong("no Retry-After")
    elif r.status >= 400:
        raise Wrong("a status %d without a problem" % r.status)
    elif kind == "application/json" and body:
        json.loads(body)
        if path.endswith("/mcp"):
            same(json.loads(body)["jsonrpc"], "2.0")
    elif kind == "text/event-stream":
        for line in body.split(b"\n"):
            if line and line.split(b":")[0] not in (b"id", b"event", b"data",
                                                    b"retry", b""):
                raise Wrong("a line %r" % line[:100])
            if line.startswith(b"data: "):
                json.loads(line[6:])
    elif kind == "application/x-ndjson":
        for line in body.split(b"\n"):
            if line:
                json.loads(line)


def whole(r):
    """The body; not in memory for what a header promises."""
    out = []
    while True:
        piece = r.read(65536)
        if not piece:
            break
        out.append(piece)
    if r.length:
        raise http.client.IncompleteRead(b"".join(out))
    return b"".join(out)


def client(g, number, count, tally, wrong):
    rnd = random.Random(SEED * 1000 + number)
    c = g.connect(timeout=150 * SLOW)
    for _ in range(count):
        method, path, body, extra = calls(rnd)
        headers = dict(extra, Authorization="Bearer " + token())
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        try:
            c.request(method, "/sandbox/" + path, body, headers)
            r = c.getresponse()
            data = whole(r)
        except (http.client.IncompleteRead, ConnectionError,
                http.client.RemoteDisconnected) as error:
            word = type(error).__name__
            c.close()
        except (http.client.HTTPException, OSError) as error:
            wrong.append("%s %s: %s: %s" % (method, path,
                                            type(error).__name__, error))
            c.close()
            continue
        else:
            word = str(r.status)
            try:
                judge(method, path, r, data)
            except Exception as error:
                wrong.append("%s %s: %s: %s %r" % (
                    method, path, type(error).__name__, error, data[:300]))
        tally[word] = tally.get(word, 0) + 1
    c.close()


def sockets(g):
    """Open descriptors of the workers."""
    return sum(len(os.listdir("/proc/%d/fd" % pid)) for pid in g.workers())


@test("attack/frames-of-a-liar", seconds=900)
def liar():
    print("# SANDBOX_TEST_SEED=%d" % SEED)
    g = Gateway(runner=None, workers=2, log_level="error")
    os.mkdir(g.path("store"), 0o700)
    shutil.chown(g.path("store"), "www-data")
    g.options["location"] = """
        sandbox_store %s;
        sandbox_send_timeout 5s;
    """ % g.path("store")
    liar_ = Liar(g.socket)
    with g:
        g.wait_ready()
        same(g.request("PUT", "v1/conversations/c0/attachments/one.txt",
                       b"one", headers={"Content-Type": "text/plain"}).status,
             201)
        pids, before, tally, wrong = g.workers(), sockets(g), {}, []
        threads = [threading.Thread(target=client, args=(
            g, n, COUNT // THREADS, tally, wrong)) for n in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print("# " + " ".join("%s %d" % pair
                              for pair in sorted(tally.items())))
        same(wrong[:3], [], "%d wrong answers" % len(wrong))
        same(g.workers(), pids, "the workers are the same")
        check(tally.get("200", 0) > COUNT // 20 and len(tally) > 5,
              "few kinds of answers", tally)

        lines = g.error_log.count("\n")
        check(lines < 3 * COUNT, "lines of the log", lines)
        for line in g.error_log.split("\n"):
            check("\x1b" not in line and "\r" not in line, "a line", line)

        # who lies about itself
        liar_.pings = True
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            for path in ("health", "v1/limits"):
                r = g.request("GET", path)
                check(r.status == 200 and r.json, path, r)
            time.sleep(0.05)
        liar_.pings = False
        liar_.true = True
        wait_for(lambda: sockets(g) <= before + 4, 60, "descriptors")
        same(g.workers(), pids, "the workers are the same")


if __name__ == "__main__":
    main()
