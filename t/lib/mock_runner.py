#!/usr/bin/env python3
"""A runner for the module's tests that does what the command tells it.

    mock_runner.py --socket PATH [--key-file FILE] [--log FILE]

A command whose text begins with "mock:" is a list of steps, divided by
blanks; values are percent-encoded where they hold blanks or bytes.  Any other
command is answered with exit 0 and the request as JSON on stdout.

  N:STEP          only at the N-th connection with this command text and
                  session; steps without a number always
  noread          must be first: nothing of the request is consumed
  deaf            must be first: a request that has a body is not consumed
  head[=STATUS]   HEAD (without it: before the first output or the result)
  nohead          no HEAD by itself
  stdout=TEXT stderr=TEXT fill=STREAM,BYTE,COUNT   output
  gap=STREAM,N    N bytes left out
  data=TEXT       a DATA frame
  ping[=N]        PING frames
  sleep=SECONDS
  echo            the request as JSON on stdout
  seen            the operations of this session so far, as JSON on stdout
  FIELD=VALUE     a field of the RESULT, in lower case: exit_code=3
  without=FIELD   leaves a field of the RESULT out
  result          RESULT now (without it: at the end)
  error=CODE[,RETRY] detail=TEXT status=N    ERROR; detail, status before it
  needed=I,...    indices of STAGE for the next error=stage_needed
  frame=TYPE,TEXT a frame of any type and payload
  raw=TEXT        bytes
  cut=N           of the next frame only N bytes are sent, then close
  close           end of the connection
  linger          reads until the other side closes, then closes
  on=OPERATION,STEPS   from now on that operation of this session takes these
                  steps (percent-encoded); on=OPERATION, forgets them
  skip=N          the next event has a number that is N higher
  nostarted       no STARTED by itself
  await           waits for a CANCEL frame or a hang-up, and notes in `seen`
                  "cancel-frame" or "hang-up"
  keep            must be first: the command goes on without its connection,
                  its events stay; ATTACH, CANCEL, STDIN, a repeated id find it
  copy            (with keep) stdin to stdout as it comes, until its end
  forget          (with keep) its events, but not its receipt
  slow=SECONDS    from now on files of this session take that long, and again
                  for each part of an answer
  lines=N,SECONDS N lines of numbers on stdout, that far apart
  flow=SECONDS    (with keep) such lines until the end of stdin
  wait=NAME       until a command of anybody has said go=NAME
  taken           until the other side has read all that was sent
  policies        how often a table of egress policies came, the one in
                  force, and the ids in the latest preambles of this session
                  by operation, as JSON on stdout
  counted=NAME,OPEN,TUNNELS,REFUSED,FAILED,UP,DOWN   from now on PING says that
                  of the policy

With STREAM there is a STARTED before the first output or the result, and the
result has its SEQ.  Files are those of mock_files.py.  PING answers ready, STATUS a sandbox that exists once
there was a command, DELETE and RESET what they should, HISTORY what there was.
"""

import argparse
import fcntl
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import termios
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import mock_files                                              # noqa: E402
import wire                                                    # noqa: E402


class Close(Exception):
    pass


class Session:
    def __init__(self, number):
        self.number = number
        self.instance = 0
        self.used = 0
        self.created = 0
        self.commands = 0
        self.seen = []
        self.egress = {}            # operation: id of the last preamble
        self.attempts = {}
        self.steps = {}
        self.kept = {}
        self.receipts = []
        self.files = {}             # path: (bytes, number of the writing)
        self.written = 0
        self.slow = 0

    @property
    def sandbox_id(self):
        return "sbx_%016x%04x" % (self.number, self.instance)

    def touch(self):
        """Makes the sandbox if there is none; whether it did."""
        self.used = int(time.time() * 1000)
        if self.instance and self.created:
            return False
        self.instance += 1
        self.created = self.used
        return True


class Kept:
    """A command that goes on without a connection."""

    def __init__(self, digest, label=None):
        self.digest = digest
        self.label = label
        self.events = []            # (seq, frame), pings have no seq
        self.seq = 0
        self.changed = threading.Condition()
        self.state = "running"
        self.cancelled = False
        self.forgotten = False
        self.stdin = []
        self.eof = False

    def tell(self, change):
        with self.changed:
            change()
            self.changed.notify_all()

    def add(self, seq, data):
        def change():
            self.seq = seq or self.seq
            self.events.append((seq, data))
        self.tell(change)

    def wait(self, seconds=0.05):
        with self.changed:
            self.changed.wait(seconds)


class Mock:
    def __init__(self, key):
        self.key = key
        self.lock = threading.Lock()
        self.sessions = {}
        self.runner_steps = {}
        self.table = b""            # of egress policies
        self.tables = 0
        self.counted = {}
        self.gone = set()           # names that commands need not wait for

    def policies(self):
        """{name: fields}, of what is in force."""
        found = {}
        for name, data in wire.read_fields(self.table):
            policy = wire.unique(wire.read_fields(data), ("EGRESS_HOST",))
            found[policy["EGRESS_NAME"].decode()] = policy
        return found

    def session(self, key):
        with self.lock:
            if key not in self.sessions:
                self.sessions[key] = Session(len(self.sessions) + 1)
            return self.sessions[key]


def unescape(text):
    return urllib.parse.unquote_to_bytes(text)


def text_of(value):
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "hex:" + value.hex()
    if isinstance(value, list):
        return [text_of(v) for v in value]
    return value


class Connection(mock_files.Files):
    def __init__(self, mock, sock):
        self.mock = mock
        self.sock = sock
        self.seq = 0
        self.cut = None
        self.headed = False
        self.ended = False
        self.detail = None
        self.status = None
        self.result = {}
        self.missing = set()
        self.body = b""
        self.fields = {}
        self.kept = None
        self.quiet = False          # no STARTED
        self.needed = None

    # what came

    def peek(self):
        """The preamble and the fields of a small head, not consumed."""
        deadline = time.monotonic() + 60
        want = wire.PREAMBLE_SIZE
        while True:
            data = self.sock.recv(65536, socket.MSG_PEEK)
            if len(data) >= wire.PREAMBLE_SIZE:
                first = wire.Preamble.decode(data[:wire.PREAMBLE_SIZE])
                want = wire.PREAMBLE_SIZE + first.head
                if len(data) >= want or want > 65536:
                    return first, data[wire.PREAMBLE_SIZE:want]
            if not data or time.monotonic() > deadline:
                raise Close
            time.sleep(0.002)

    def read(self):
        self.first = wire.Preamble.decode(
            wire.receive(self.sock, wire.PREAMBLE_SIZE))
        head = wire.receive(self.sock, self.first.head) \
            if self.first.head else b""
        self.body = bytearray()
        if self.first.body == wire.CHUNKED:
            self.fields = wire.unique(wire.read_fields(head))
            while True:
                length = wire.receive(self.sock, 4)
                if not length:
                    raise wire.Lost("the body is cut")
                size = struct.unpack(">I", length)[0]
                if not size:
                    break
                if size > 256 * 1024:
                    raise wire.Bad("a chunk of %d bytes" % size)
                piece = wire.receive(self.sock, size)
                self.body += piece
                self.input(piece)
        elif self.first.body:
            self.fields = wire.unique(wire.read_fields(head))
            while len(self.body) < self.first.body:
                piece = self.sock.recv(min(
                    self.first.body - len(self.body), 1 << 20))
                if not piece:
                    raise wire.Lost("the body is cut")
                self.body += piece
                self.input(piece)
        self.body = bytes(self.body)
        self.fields = wire.unique(wire.read_fields(head))

    def input(self, piece):
        """STDIN, before all of it is there."""
        if self.first.operation != wire.STDIN:
            return
        kept = self.mock.session(self.first.session).kept.get(
            self.fields.get("COMMAND_ID"))
        if kept and not kept.eof:
            kept.tell(lambda: kept.stdin.append(piece))

    def request(self):
        """All of the request, for a test to look at."""
        out = {name: text_of(value) for name, value in self.fields.items()}
        if "DIGEST" in self.fields:
            out["DIGEST"] = self.fields["DIGEST"].hex()
        out["preamble"] = {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in vars(self.first).items() if name != "key"}
        out["preamble"]["key"] = self.first.key == self.mock.key
        out["body"] = text_of(self.body)
        return json.dumps(out, sort_keys=True, ensure_ascii=False).encode()

    # what is answered

    def send(self, data):
        if self.cut is not None:
            self.sock.sendall(data[:self.cut])
            raise Close
        self.sock.sendall(data)

    def frame(self, kind, payload=b""):
        if kind in (wire.STDOUT, wire.STDERR, wire.GAP, wire.DATA,
                    wire.RESULT) and not self.headed:
            self.head()
        self.send(wire.frame(kind, payload))

    @property
    def streams(self):
        return self.kept is not None or self.fields.get("STREAM")

    def begin(self):
        if self.streams and not self.quiet:
            self.quiet = True
            self.seq = 1
            if not self.headed:
                self.head()
            self.event(wire.STARTED, struct.pack(
                ">QQ", 1, int(time.time() * 1000)))

    def number(self):
        """The next one; the first is STARTED's."""
        self.begin()
        self.seq += 1
        return self.seq

    def event(self, kind, payload):
        if self.kept is not None:
            self.kept.add(struct.unpack_from(">Q", payload)[0],
                          wire.frame(kind, payload))
        else:
            self.frame(kind, payload)

    def head(self, status=200):
        self.headed = True
        self.send(wire.frame(wire.HEAD, wire.fields(
            ("STATUS", status), ("SANDBOX_ID", self.session.sandbox_id),
            ("INSTANCE", self.session.instance),
            ("COMMAND_ID", self.command_id))))

    def output(self, kind, data):
        for at in range(0, len(data), 65536):
            self.event(kind, struct.pack(">Q", self.number())
                       + data[at:at + 65536])
        name = "STDOUT_BYTES" if kind == wire.STDOUT else "STDERR_BYTES"
        self.result[name] = self.result.get(name, 0) + len(data)

    def finish(self):
        if self.ended:
            return
        self.ended = True
        values = {"COMMAND_ID": self.command_id,
                  "SANDBOX_ID": self.session.sandbox_id,
                  "INSTANCE": self.session.instance,
                  "CWD": self.fields.get("CWD", b"/home/sandbox"),
                  "WALL_MS": self.fields.get("WALL_MS", 0),
                  "EXIT_CODE": 0, "OUTCOME": 0, "STDOUT_BYTES": 0,
                  "STDERR_BYTES": 0, "TRUNCATED": 0, "DURATION_US": 1234,
                  "QUEUED_US": 0, "CPU_US": 1000, "MEMORY_PEAK": 1048576,
                  "BACKGROUND": 0, "CREATED": int(self.created)}
        values.update(self.result)
        if self.streams:
            values.setdefault("SEQ", self.number())
        fields = wire.fields(
            *((n, v) for n, v in values.items() if n not in self.missing))
        self.session.receipts.append((values, self.text))
        if self.kept is not None:
            self.kept.add(values["SEQ"], wire.frame(wire.RESULT, fields))
            self.kept.tell(lambda: setattr(self.kept, "state", "ended"))
        else:
            self.frame(wire.RESULT, fields)

    def step(self, name, value):
        kind = {"stdout": wire.STDOUT, "stderr": wire.STDERR}.get(name)
        if kind:
            self.output(kind, unescape(value))
        elif name == "fill":
            stream, byte, count = value.split(",")
            self.output(wire.STDOUT if stream == "stdout" else wire.STDERR,
                        unescape(byte) * int(count))
        elif name == "gap":
            stream, count = value.split(",")
            self.event(wire.GAP, struct.pack(
                ">QBQ", self.number(), 2 if stream == "stdout" else 3,
                int(count)))
            field = stream.upper() + "_BYTES"
            self.result[field] = self.result.get(field, 0) + int(count)
            self.result["TRUNCATED"] = 1
        elif name == "data":
            self.frame(wire.DATA, unescape(value))
        elif name == "head":
            self.head(int(value or 200))
        elif name == "nohead":
            self.headed = True
        elif name == "ping":
            for _ in range(int(value or 1)):
                if self.kept is not None:
                    self.kept.add(0, wire.frame(wire.PING_FRAME))
                else:
                    self.frame(wire.PING_FRAME)
        elif name == "sleep":
            self.pause(float(value))
        elif name == "lines":
            count, _, seconds = value.partition(",")
            for line in range(int(count)):
                self.output(wire.STDOUT, b"%d\n" % line)
                self.pause(float(seconds or 0))
        elif name == "flow":
            line = 0
            while not self.kept.eof:
                self.output(wire.STDOUT, b"%d\n" % line)
                self.pause(float(value))
                line += 1
        elif name == "wait":
            for _ in range(30000):
                if value in self.mock.gone:
                    break
                self.pause(0.02)
        elif name == "go":
            self.mock.gone.add(value)
        elif name == "taken":
            for _ in range(30000):
                left = fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4))
                if not any(left):
                    break
                self.pause(0.002)
        elif name == "skip":
            self.seq += int(value)
        elif name == "slow":
            self.session.slow = float(value)
        elif name == "nostarted":
            self.quiet = True
        elif name == "await":
            self.sock.settimeout(60)
            what = wire.receive(self.sock, 5)
            self.session.seen.append(
                "cancel-frame" if what == wire.frame(wire.CANCEL_FRAME)
                else "hang-up" if not what else "?" + what.hex())
            raise Close
        elif name == "copy":
            self.copy()
        elif name == "forget":
            self.kept.forgotten = True
        elif name == "echo":
            self.output(wire.STDOUT, self.request())
        elif name == "seen":
            self.output(wire.STDOUT, json.dumps(self.session.seen).encode())
        elif name == "result":
            self.ended = False
            self.finish()
        elif name == "without":
            self.missing.add(value.upper())
        elif name == "detail":
            self.detail = value
        elif name == "status":
            self.status = int(value)
        elif name == "error":
            code, _, retry = value.partition(",")
            self.error(code, int(retry or 0))
        elif name == "needed":
            self.needed = b"".join(struct.pack(">I", int(index))
                                   for index in value.split(","))
        elif name == "frame":
            kind, _, payload = value.partition(",")
            self.send(wire.frame(int(kind), unescape(payload)))
        elif name == "policies":
            policies = {n: {f: text_of(v) for f, v in p.items()
                            if f != "EGRESS_CA"}
                        for n, p in self.mock.policies().items()}
            for policy, fields in self.mock.policies().items():
                pem = fields.get("EGRESS_CA", b"")
                policies[policy]["certificates"] = [
                    pem.count(b"BEGIN CERTIFICATE"), pem.count(b"#")]
            self.output(wire.STDOUT, json.dumps(
                {"times": self.mock.tables, "policies": policies,
                 "preambles": self.session.egress}).encode())
        elif name == "counted":
            policy, *numbers = value.split(",")
            self.mock.counted[policy] = [int(n) for n in numbers]
        elif name == "raw":
            self.send(unescape(value))
        elif name == "cut":
            self.cut = int(value)
        elif name == "close":
            raise Close
        elif name == "linger":
            self.ended = True
            self.sock.settimeout(30)
            while self.sock.recv(65536):
                pass
            raise Close
        elif name == "on":
            operation, _, steps = value.partition(",")
            where = self.mock.runner_steps \
                if operation in ("PING", "EGRESS") else self.session.steps
            where[operation] = unescape(steps).decode()
        elif name.upper() in wire.FIELDS:
            field = name.upper()
            self.result[field] = unescape(value) \
                if wire.FIELDS[field][1] == "B" else int(value)
        else:
            raise ValueError("the mock has no step %r" % name)

    def error(self, code, retry):
        self.ended = True
        detail = unescape(self.detail if self.detail is not None
                          else "The%20mock%20refuses.")
        self.send(wire.frame(wire.ERROR, wire.fields(
            ("STATUS", self.status or wire.STATUS_OF.get(code, 500)),
            ("CODE", unescape(code)), ("DETAIL", detail),
            ("NEEDED", self.needed), ("RETRY_AFTER", retry or None))))

    def steps(self, text, key):
        attempts = self.session.attempts
        attempts[key] = attempts.get(key, 0) + 1
        for word in text.split():
            only, colon, rest = word.partition(":")
            if colon and only.isdigit():
                if int(only) != attempts[key]:
                    continue
                word = rest
            if word not in ("noread", "deaf", "keep"):
                name, _, value = word.partition("=")
                self.step(name, value)

    # commands that are kept

    def pause(self, seconds):
        if self.kept is None:
            return time.sleep(seconds)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.kept.cancelled:
                raise Close
            self.kept.wait(min(0.05, end - time.monotonic()))

    def copy(self):
        kept = self.kept
        while True:
            if kept.cancelled:
                raise Close
            with kept.changed:
                pieces, kept.stdin = kept.stdin, []
                eof = kept.eof
            for piece in pieces:
                self.output(wire.STDOUT, piece)
            if eof and not pieces:
                return
            kept.wait()

    def keep(self, text):
        """The command in a thread of its own; this connection follows it."""
        recorder = Connection(self.mock, None)
        recorder.session, recorder.first = self.session, self.first
        recorder.fields, recorder.body = self.fields, self.body
        recorder.created, recorder.text = self.created, self.text
        recorder.command_id = self.command_id
        recorder.kept = kept = Kept(self.fields.get("DIGEST"),
                                    self.fields.get("LABEL"))
        recorder.headed = True
        if not self.fields.get("STDIN_OPEN"):
            kept.eof = True
        if self.body:
            kept.stdin.append(self.body)
        self.session.kept.pop(self.command_id, None)
        self.session.kept[self.command_id] = kept
        self.session.commands += 1      # who counts, finds it

        def run():
            try:
                if "nostarted" not in text:
                    recorder.begin()
                recorder.steps(text, text)
            except Close:
                recorder.result.update(OUTCOME=7, EXIT_CODE=137)
            recorder.finish()

        threading.Thread(target=run, daemon=True).start()
        if self.fields.get("DETACH") and not self.fields.get("STREAM"):
            return self.reply(
                ("COMMAND_ID", self.command_id), ("CWD", "/home/sandbox"),
                ("SANDBOX_ID", self.session.sandbox_id), ("QUEUED_US", 1500),
                ("WALL_MS", self.fields["WALL_MS"]), ("COMMAND_STATE", 1),
                ("CREATED", int(self.created)))
        return self.follow(kept)

    def follow(self, kept):
        """Events after AFTER, or the captured output, then the result."""
        after = self.fields.get("AFTER", 0)
        if self.fields.get("STREAM"):
            if after > kept.seq:
                return self.error("seq_unknown", 0)
            if kept.forgotten:
                return self.error("expired", 0)
        try:
            self.tell(kept, after)
        except (BrokenPipeError, ConnectionResetError):
            self.sock.setblocking(False)
            try:
                self.heard(kept, self.sock.recv(5))
            except OSError:
                pass
            raise Close from None

    def heard(self, kept, got):
        if got == wire.frame(wire.CANCEL_FRAME):
            self.session.seen.append("cancel-frame")
            kept.tell(lambda: setattr(kept, "cancelled", True))

    def tell(self, kept, after):
        self.head()
        at = 0
        quiet = time.monotonic()
        out = {wire.STDOUT: b"", wire.STDERR: b""}
        self.sock.setblocking(False)
        while True:
            try:
                got = self.sock.recv(5)
            except BlockingIOError:
                got = None
            self.heard(kept, got)
            if got is not None and not got:
                self.session.seen.append("hang-up")
                raise Close
            with kept.changed:
                more, state = kept.events[at:], kept.state
            at += len(more)
            self.sock.setblocking(True)
            if more:
                quiet = time.monotonic()
            elif time.monotonic() - quiet > 5:
                quiet = time.monotonic()
                self.send(wire.frame(wire.PING_FRAME))
            for seq, data in more:
                kind = data[4]
                if self.fields.get("STREAM"):
                    if not seq or seq > after or kind == wire.RESULT:
                        self.send(data)
                elif kind in out and not kept.forgotten:
                    out[kind] += data[13:]
            self.sock.setblocking(False)
            if state == "ended" and at == len(kept.events):
                break
            kept.wait()
        self.sock.setblocking(True)
        self.ended = True
        if not self.fields.get("STREAM"):
            self.seq = 0
            for kind, data in out.items():
                for piece in range(0, len(data), 65536):
                    self.seq += 1
                    self.send(wire.frame(kind, struct.pack(">Q", self.seq)
                                         + data[piece:piece + 65536]))
            data = kept.events[-1][1]
            if kept.forgotten:
                data = wire.frame(wire.RESULT, data[5:] + wire.fields(
                    ("OUTPUT_EXPIRED", 1)))
            self.send(data)

    def known(self):
        label = self.fields.get("LABEL")
        if label is not None and "COMMAND_ID" not in self.fields:
            for name, kept in reversed(list(self.session.kept.items())):
                if kept.label == label and kept.state != "ended":
                    self.fields["COMMAND_ID"] = name
                    break
        kept = self.session.kept.get(self.fields.get("COMMAND_ID"))
        if self.first.flags & wire.NO_CREATE and not self.session.created:
            self.error("no_sandbox", 0)
        elif kept is None:
            self.error("command_not_found", 0)
        else:
            self.command_id = self.fields["COMMAND_ID"]
        return kept

    def operation_attach(self):
        kept = self.known()
        if kept and not self.fields.get("STREAM") and kept.state != "ended":
            self.reply(("COMMAND_ID", self.command_id),
                       ("SANDBOX_ID", self.session.sandbox_id),
                       ("COMMAND_STATE", 1), ("STARTED_MS", 1764460800123))
        elif kept:
            self.follow(kept)

    def operation_cancel(self):
        kept = self.known()
        if kept:
            kept.tell(lambda: setattr(kept, "cancelled", True))
            self.fields.pop("STREAM", None)
            self.follow(kept)

    def operation_stdin(self):
        kept = self.known()
        if kept is None:
            return
        if kept.state == "ended":
            return self.error("command_ended", 0)
        if kept.eof:
            return self.error("stdin_closed", 0)
        if self.fields.get("STDIN_EOF"):
            kept.tell(lambda: setattr(kept, "eof", True))
        self.reply(("BYTES", len(self.body)))

    def operation_history(self):
        if self.first.flags & wire.NO_CREATE and not self.session.created:
            return self.error("no_sandbox", 0)
        limit, before = self.fields["LIMIT"], self.fields.get("BEFORE", 0)
        found = list(enumerate(self.session.receipts, 1))[::-1]
        found = [f for f in found if not before or f[0] < before]
        out = b""
        for ordinal, (values, text) in found[:limit]:
            values = dict(values, COMMAND=text.encode()[:256],
                          ORDINAL=ordinal, COMMAND_STATE=2,
                          DETACHED=int(bool(self.fields.get("DETACH"))),
                          ACCEPTED_MS=1764460800123,
                          STARTED_MS=1764460800124, ENDED_MS=1764460801000)
            record = wire.fields(*values.items())
            out += struct.pack(">I", len(record)) + record
        self.headed = True
        self.send(wire.frame(wire.HEAD, wire.fields(("STATUS", 200))))
        for at in range(0, len(out), 1009):
            self.send(wire.frame(wire.DATA, out[at:at + 1009]))
        more = found[limit - 1][0] if len(found) > limit else 0
        self.send(wire.frame(wire.RESULT, wire.fields(("NEXT", more))))

    # operations

    def serve(self):
        first, head = self.peek()
        text = ""
        if first.operation == wire.COMMAND and head.startswith(
                struct.pack(">H", 1)):
            length = struct.unpack_from(">I", head, 2)[0]
            text = head[6:6 + length].decode("utf-8", "replace")
        self.session = self.mock.session(first.session)
        name = wire.OPERATIONS.get(first.operation, str(first.operation))
        self.first = first
        self.command_id = "none"
        self.text = text
        if text.startswith("mock: noread") \
                or text.startswith("mock: deaf") and first.body:
            self.created = False
        else:
            self.read()
            text = self.fields.get("COMMAND", b"").decode("utf-8", "replace")
        if self.first.key != self.mock.key:
            return self.error("unauthorized_peer", 0)
        self.session.seen.append(name)
        self.session.egress[name] = self.first.egress
        if first.operation == wire.COMMAND:
            return self.command(text)
        forced = self.mock.runner_steps.get(name) \
            or self.session.steps.get(name)
        self.created = False
        if forced:
            return self.steps(forced, name)
        return getattr(self, "operation_" + name.lower())()

    def command(self, text):
        session = self.session
        if self.first.flags & wire.NO_CREATE and not session.created:
            return self.error("no_sandbox", 0)
        if self.first.flags & wire.FRESH:
            session.created = 0
        self.created = session.touch()
        kept = session.kept.get(self.fields.get("COMMAND_ID"))
        self.command_id = self.fields.get("COMMAND_ID")
        if kept and kept.digest != self.fields.get("DIGEST"):
            return self.error("command_id_reused", 0)
        if kept:
            return self.follow(kept)
        if self.command_id is None:
            self.command_id = b"cmd_%d_%d" % (session.number,
                                              session.commands + 1)
        self.text = text
        if text.startswith("mock: keep"):
            return self.keep(text[5:])
        session.commands += 1
        self.steps(text[5:] if text.startswith("mock:") else "echo", text)
        return self.finish()

    def reply(self, *pairs):
        self.send(wire.frame(wire.HEAD, wire.fields(("STATUS", 200))))
        self.send(wire.frame(wire.RESULT, wire.fields(*pairs)))

    def operation_ping(self):
        counts = []
        for name, policy in self.mock.policies().items():
            numbers = self.mock.counted.get(name, [0] * 6)
            counts.append(("EGRESS_COUNT", wire.fields(
                ("EGRESS_ID", policy["EGRESS_ID"]), ("EGRESS_NAME", name),
                *zip(("EGRESS_OPEN", "EGRESS_TUNNELS", "EGRESS_REFUSED",
                      "EGRESS_FAILED", "EGRESS_UP", "EGRESS_DOWN"),
                     numbers))))
        self.reply(("READY", 1), ("VERSION", "0.0-mock"),
                   ("RUNTIME", "mock 1"), ("HARD_CAPS", 31),
                   ("SANDBOXES", len(self.mock.sessions)), ("POOL", 4),
                   ("RUNNING", 0), ("QUEUED", 0),
                   ("EGRESS_DIGEST", hashlib.sha256(self.mock.table).digest()),
                   *counts)

    def operation_egress(self):
        digest = hashlib.sha256(self.body).digest()
        if digest != self.fields.get("EGRESS_DIGEST"):
            return self.error("bad_request", 0)
        self.mock.table = self.body
        self.mock.tables += 1
        self.reply(("EGRESS_DIGEST", digest))

    def state(self):
        return wire.STATES.index("running" if self.session.created
                                 else "none")

    def operation_delete(self):
        state = self.state()
        self.session.created = 0
        self.reply(("STATE", state))

    def operation_reset(self):
        self.session.created = 0
        self.session.touch()
        self.reply(("STATE", self.state()),
                   ("SANDBOX_ID", self.session.sandbox_id),
                   ("INSTANCE", self.session.instance))

    def operation_status(self):
        session = self.session
        if not session.created:
            return self.reply(("STATE", 0))
        return self.reply(
            ("STATE", self.state()), ("SANDBOX_ID", session.sandbox_id),
            ("INSTANCE", session.instance), ("CREATED_MS", session.created),
            ("USED_MS", session.used), ("COMMANDS", session.commands),
            ("RUNNING", 0), ("QUEUED", 0), ("BACKGROUND", 0),
            ("DISK_BYTES", 4096), ("MEMORY_BYTES", 1048576),
            ("CPU_TOTAL_US", 1500))


def one(mock, sock, log):
    connection = Connection(mock, sock)
    try:
        connection.serve()
    except (Close, BrokenPipeError, ConnectionResetError):
        pass
    except (wire.Bad, wire.Lost, ValueError, OSError) as error:
        print("%s: %s" % (type(error).__name__, error), file=log, flush=True)
    finally:
        sock.close()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--socket", required=True)
    options.add_argument("--key-file")
    options.add_argument("--log")
    options = options.parse_args()

    key = bytes(32)
    if options.key_file:
        with open(options.key_file, encoding="ascii") as f:
            key = bytes.fromhex(f.read().strip())
    log = open(options.log, "a") if options.log else sys.stderr

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))

    listener = socket.socket(socket.AF_UNIX)
    temporary = options.socket + ".new"
    for path in (temporary, options.socket):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    listener.bind(temporary)
    os.chmod(temporary, 0o666)
    listener.listen(512)
    os.rename(temporary, options.socket)

    mock = Mock(key)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=one, args=(mock, sock, log),
                         daemon=True).start()


if __name__ == "__main__":
    main()
