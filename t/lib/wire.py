"""The sandbox wire protocol once more, independent of src/wire.

Written from docs/wire.md, so that a mistake in the C code does not repeat
itself here.  Both sides: a client (what nginx does) and what a server needs.
Strict as a reader; as a writer it will write anything a test wants.
"""

import os
import re
import socket
import struct

MAGIC = b"SBXWIRE"
VERSION = 1
PREAMBLE_SIZE = 128
CHUNKED = 2 ** 64 - 1

# operations
PING, STATUS, DELETE, RESET, SESSIONS, DRAIN, EGRESS = 1, 2, 3, 4, 5, 6, 7
COMMAND, ATTACH, CANCEL, STDIN, HISTORY = 16, 17, 18, 19, 20
FILE_READ, FILE_WRITE, FILE_REMOVE, FILE_SEARCH = 21, 22, 23, 24
OPERATIONS = {PING: "PING", STATUS: "STATUS", DELETE: "DELETE",
              RESET: "RESET", COMMAND: "COMMAND", ATTACH: "ATTACH",
              CANCEL: "CANCEL", STDIN: "STDIN", HISTORY: "HISTORY",
              FILE_READ: "FILE_READ", FILE_WRITE: "FILE_WRITE",
              FILE_REMOVE: "FILE_REMOVE", FILE_SEARCH: "FILE_SEARCH",
              SESSIONS: "SESSIONS", DRAIN: "DRAIN", EGRESS: "EGRESS"}

# flags of the preamble
FRESH, NO_CREATE = 1, 2

# frames: type, (shortest, longest payload)
HEAD, STDOUT, STDERR, GAP, DATA, PING_FRAME, RESULT, ERROR, STARTED, \
    CANCEL_FRAME = range(1, 11)
BOUNDS = {HEAD: (0, 4096), STDOUT: (9, 65544), STDERR: (9, 65544),
          GAP: (17, 17), DATA: (1, 65536), PING_FRAME: (0, 0),
          RESULT: (0, 16384), ERROR: (0, 4096), STARTED: (16, 16),
          CANCEL_FRAME: (0, 0)}

# fields: name -> (tag, kind); N a number of 8 bytes, B bytes
FIELDS = {
    "COMMAND": (1, "B"), "CWD": (2, "B"), "ENV": (3, "B"),
    "COMMAND_ID": (4, "B"), "WALL_MS": (5, "N"), "CPU_MS": (6, "N"),
    "OUTPUT": (7, "N"), "OUTPUT_TOTAL": (8, "N"), "OPEN_FILES": (9, "N"),
    "PENDING": (10, "N"), "DIGEST": (11, "B"), "STREAM": (12, "N"),
    "DETACH": (13, "N"), "STDIN_OPEN": (14, "N"), "AFTER": (15, "N"),
    "STDIN_EOF": (16, "N"), "LIMIT": (17, "N"), "BEFORE": (18, "N"),
    "PATH": (19, "B"), "ROOT": (20, "N"), "NO_BODY": (21, "N"),
    "LIST": (22, "N"), "CURSOR": (23, "B"), "RANGE_FIRST": (24, "N"),
    "RANGE_LAST": (25, "N"), "RANGE_SUFFIX": (26, "N"),
    "IF_RANGE": (27, "B"), "IF_MATCH": (28, "B"),
    "IF_NONE_MATCH": (29, "B"), "RECURSIVE": (30, "N"), "STAGE": (31, "B"),
    "STAGE_BODY": (32, "N"), "STDIN_BYTES": (33, "N"),
    "LABEL": (34, "B"), "PATTERN": (35, "B"), "GLOB": (36, "B"),
    "LITERAL": (37, "N"), "IGNORE_CASE": (38, "N"),

    "SANDBOX_ID": (64, "B"), "INSTANCE": (65, "N"), "EXIT_CODE": (66, "N"),
    "SIGNAL": (67, "B"), "OUTCOME": (68, "N"), "STDOUT_BYTES": (69, "N"),
    "STDERR_BYTES": (70, "N"), "TRUNCATED": (71, "N"),
    "DURATION_US": (72, "N"), "QUEUED_US": (73, "N"), "CPU_US": (74, "N"),
    "MEMORY_PEAK": (75, "N"), "BACKGROUND": (76, "N"), "CREATED": (77, "N"),
    "SEQ": (78, "N"), "COMMAND_STATE": (79, "N"),
    "OUTPUT_EXPIRED": (80, "N"), "BYTES": (81, "N"), "ORDINAL": (82, "N"),
    "NEXT": (83, "N"), "ACCEPTED_MS": (84, "N"), "STARTED_MS": (85, "N"),
    "ENDED_MS": (86, "N"), "DETACHED": (87, "N"),

    "STATUS": (96, "N"), "CODE": (97, "B"), "DETAIL": (98, "B"),
    "RETRY_AFTER": (99, "N"),

    "STATE": (112, "N"), "CREATED_MS": (113, "N"), "USED_MS": (114, "N"),
    "COMMANDS": (115, "N"), "RUNNING": (116, "N"), "QUEUED": (117, "N"),
    "DISK_BYTES": (118, "N"), "MEMORY_BYTES": (119, "N"),
    "CPU_TOTAL_US": (120, "N"), "EXPIRES_MS": (121, "N"),

    "MAX_SANDBOXES": (128, "N"), "MAX_PER_TENANT": (129, "N"),
    "MAX_RUNNING": (130, "N"), "MAX_QUEUED": (131, "N"),
    "IDLE_MS": (132, "N"), "READY": (133, "N"), "SANDBOXES": (134, "N"),
    "POOL": (135, "N"), "RUNTIME": (136, "B"), "VERSION": (137, "B"),
    "HARD_CAPS": (138, "N"), "EXPIRE_MS": (139, "N"), "LIVE": (140, "N"),
    "CREATING": (141, "N"), "FAILED": (142, "N"), "DRAINING": (143, "N"),

    "FILE_NAME": (144, "B"), "FILE_TYPE": (145, "N"),
    "FILE_SIZE": (146, "N"), "FILE_MODE": (147, "N"),
    "MODIFIED_NS": (148, "N"), "ETAG": (149, "B"), "TARGET": (150, "B"),
    "NEXT_NAME": (151, "B"), "NEEDED": (152, "B"), "NOTICE": (153, "B"),
    "LINE": (154, "N"), "TEXT": (155, "B"), "MORE": (156, "N"),

    "SESSION": (160, "B"), "VERSION_MIN": (161, "N"),
    "VERSION_MAX": (162, "N"), "SLOTS": (163, "N"), "WANTED": (164, "N"),
    "OPEN": (165, "N"),

    "EGRESS_DIGEST": (176, "B"), "EGRESS_POLICY": (177, "B"),
    "EGRESS_ID": (178, "N"), "EGRESS_NAME": (179, "B"),
    "EGRESS_HOST": (180, "B"), "EGRESS_CONNECTIONS": (181, "N"),
    "EGRESS_BYTES": (182, "N"), "EGRESS_TIME_MS": (183, "N"),
    "EGRESS_INDEX": (184, "B"), "EGRESS_CA": (185, "B"),
    "EGRESS_COUNT": (186, "B"), "EGRESS_OPEN": (187, "N"),
    "EGRESS_TUNNELS": (188, "N"), "EGRESS_REFUSED": (189, "N"),
    "EGRESS_FAILED": (190, "N"), "EGRESS_UP": (191, "N"),
    "EGRESS_DOWN": (192, "N"), "EGRESS_PROXY": (193, "B"),
    "EGRESS_TOKEN": (194, "B"), "EGRESS_KEY": (195, "B"),

    "ENGINE": (208, "B"), "ENGINE_NAME": (209, "B"),
    "ENGINE_GENERATION": (210, "N"), "ENGINE_METADATA": (211, "B"),
    "ENGINE_DOMAIN": (212, "B"),
}
TAGS = {tag: (name, kind) for name, (tag, kind) in FIELDS.items()}

OUTCOMES = ["exit", "signal", "timeout", "cpu_limit", "oom", "output_limit",
            "disk_full", "cancelled", "sandbox_deleted", "runner_lost"]
STATES = ["none", "creating", "running", "idle", "failed"]
COMMAND_STATES = ["queued", "running", "ended"]
FILE_TYPES = ["file", "directory", "link", "other"]

STATUS_OF = {
    "bad_request": 400, "bad_pattern": 400, "not_available": 501,
    "seq_unknown": 400, "slow_request": 408,
    "command_not_found": 404, "expired": 410, "command_ended": 409,
    "stdin_closed": 409, "file_not_found": 404, "is_a_directory": 409,
    "not_a_directory": 409, "not_empty": 409, "stage_needed": 409,
    "precondition_failed": 412, "not_a_file": 422, "path_outside": 422,
    "not_permitted": 422, "no_sandbox": 404, "gone": 410,
    "command_id_reused": 409, "file_busy": 409, "command_too_large": 413,
    "cwd_missing": 422, "cwd_outside": 422, "too_many_pending": 429,
    "too_many_sandboxes": 429, "spawn_failed": 503,
    "not_on_this_backend": 501, "unauthorized_peer": 503,
    "version_mismatch": 503, "at_capacity": 503, "runner_stopping": 503,
    "unknown_base": 503,
    "sandbox_failed": 503, "runner_lost": 503, "disk_full": 507,
    "internal": 500, "fenced": 503,
}


class Bad(Exception):
    """What came can't be right."""


class Lost(Exception):
    """The connection ended in the middle of something."""


# --- fields ---------------------------------------------------------------

def field(name, value):
    """One field by name; numbers become 8 bytes, text UTF-8."""
    tag, kind = FIELDS[name]
    if kind == "N":
        value = struct.pack(">Q", value)
    elif isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    return struct.pack(">HI", tag, len(value)) + value


def fields(*pairs):
    """Fields from (name, value) pairs; a value of None leaves it out."""
    return b"".join(field(n, v) for n, v in pairs if v is not None)


def read_fields(data):
    """A list of (name or tag, value) from bytes."""
    out = []
    at = 0
    while at < len(data):
        if len(data) - at < 6 or len(out) == 1024:
            raise Bad("a field is cut short, or there are too many")
        tag, length = struct.unpack_from(">HI", data, at)
        at += 6
        if length > len(data) - at:
            raise Bad("field %d is longer than its message" % tag)
        value = data[at:at + length]
        at += length
        name, kind = TAGS.get(tag, (tag, "B"))
        if kind == "N":
            if length != 8:
                raise Bad("number %s has %d bytes" % (name, length))
            value = struct.unpack(">Q", value)[0]
        out.append((name, value))
    return out


def unique(pairs, repeated=("ENV", "NOTICE", "STAGE", "STAGE_BODY",
                            "IF_MATCH", "IF_NONE_MATCH", "GLOB",
                            "EGRESS_POLICY", "EGRESS_HOST",
                            "EGRESS_COUNT", "ENGINE")):
    """A dictionary; a name that comes twice is refused, but for these."""
    out = {}
    for name, value in pairs:
        if name in repeated:
            out.setdefault(name, []).append(value)
        elif name in out:
            raise Bad("field %s comes twice" % name)
        else:
            out[name] = value
    return out


# --- preamble -------------------------------------------------------------

class Preamble:
    NAMES = ("operation", "flags", "head", "body", "instance", "key",
             "session", "tenant", "memory", "disk", "processes", "egress",
             "version", "base")

    def __init__(self, operation, flags=0, head=0, body=0, instance=0,
                 key=bytes(32), session=bytes(32), tenant=bytes(16),
                 memory=0, disk=0, processes=0, egress=0, version=VERSION,
                 base=0):
        for name in self.NAMES:
            setattr(self, name, locals()[name])

    def encode(self):
        return (MAGIC + bytes((self.version, self.operation))
                + struct.pack(">HBIQQ", self.base, self.flags, self.head,
                              self.body, self.instance)
                + self.key + self.session + self.tenant
                + struct.pack(">IIII", self.memory, self.disk,
                              self.processes, self.egress))

    @classmethod
    def decode(cls, data):
        if len(data) != PREAMBLE_SIZE or data[:7] != MAGIC:
            raise Bad("not a preamble")
        base, flags, head, body, instance = struct.unpack_from(
            ">HBIQQ", data, 9)
        memory, disk, processes, egress = struct.unpack_from(
            ">IIII", data, 112)
        if flags & ~3:
            raise Bad("a reserved bit of the preamble is set")
        most = {COMMAND: (64 << 20) + (256 << 32), FILE_WRITE: 4 << 30}
        if head > 768 * 1024 or (body != CHUNKED
                                 and body > most.get(data[8], 64 << 20)):
            raise Bad("head or body of the preamble is too long")
        return cls(data[8], flags, head, body, instance, data[32:64],
                   data[64:96], data[96:112], memory, disk, processes, egress,
                   data[7], base)


def base_number(name):
    """What a preamble has for the name of a base image."""
    h = 0x811c9dc5
    for b in name.encode():
        h = ((h ^ b) * 0x01000193) % 2 ** 32
    return 0 if name == "default" else 1 + h % 65535


# --- frames ---------------------------------------------------------------

def frame(kind, payload=b""):
    return struct.pack(">IB", len(payload), kind) + payload


def receive(sock, size):
    """Exactly so many bytes; b"" at an end between things, Lost within."""
    out = bytearray()
    while len(out) < size:
        piece = sock.recv(min(size - len(out), 1 << 20))
        if not piece:
            if out:
                raise Lost("ended after %d of %d bytes" % (len(out), size))
            return b""
        out += piece
    return bytes(out)


def read_frame(sock):
    """(type, payload), or None at the end of the connection."""
    start = receive(sock, 5)
    if not start:
        return None
    length, kind = struct.unpack(">IB", start)
    if kind not in BOUNDS:
        raise Bad("frame of unknown type %d" % kind)
    least, most = BOUNDS[kind]
    if not least <= length <= most:
        raise Bad("frame %d of %d bytes" % (kind, length))
    payload = receive(sock, length) if length else b""
    if len(payload) != length:
        raise Lost("ended within a frame")
    return kind, payload


class Answer:
    """All that came on one connection, checked against the grammar.

    With `stream` the frames are events: they have numbers of their own, from
    the one after `after` on, and a GAP stands for those that are left out.
    """

    def __init__(self, stream=False, after=0):
        self.stream = stream
        self.after = after
        self.started = None     # Unix time, ms
        self.pings = 0
        self.head = None
        self.result = None
        self.error = None
        self.pieces = []        # of DATA
        self.stdout = b""
        self.stderr = b""
        self.gaps = []          # (stream, bytes left out, bytes before it)
        self.seq = []

    def __repr__(self):
        return "Answer(head=%r result=%r error=%r stdout=%r stderr=%r)" % (
            self.head, self.result, self.error, self.stdout[:200],
            self.stderr[:200])

    @property
    def data(self):
        self.pieces = [b"".join(self.pieces)]
        return self.pieces[0]

    @property
    def code(self):
        return self.error and self.error["CODE"].decode()

    @property
    def outcome(self):
        return self.result and OUTCOMES[self.result["OUTCOME"]]

    def take(self, kind, payload):
        if self.result is not None or self.error is not None:
            raise Bad("frame %d after the end" % kind)
        if kind == PING_FRAME:
            self.pings += 1
            return
        if kind == ERROR:
            if self.head is not None:
                raise Bad("ERROR after HEAD")
            self.error = unique(read_fields(payload))
            code = self.error["CODE"].decode()
            if STATUS_OF.get(code) != self.error["STATUS"]:
                raise Bad("code %s with status %r"
                          % (code, self.error["STATUS"]))
            self.error["DETAIL"].decode()
            return
        if kind == HEAD:
            if self.head is not None:
                raise Bad("a second HEAD")
            self.head = unique(read_fields(payload))
            return
        if self.head is None:
            raise Bad("frame %d before HEAD" % kind)
        if kind == RESULT:
            self.result = unique(read_fields(payload))
            if self.stream and "OUTCOME" in self.result:
                last = self.seq[-1] if self.seq else self.after
                if self.result["SEQ"] not in (last, last + 1):
                    raise Bad("RESULT is event %d after %d"
                              % (self.result["SEQ"], last))
        elif kind == DATA:
            self.pieces.append(payload)
        else:
            seq = struct.unpack_from(">Q", payload)[0]
            last = self.seq[-1] if self.seq else self.after
            if seq <= last or (seq != last + 1
                               and not (self.stream and kind == GAP)):
                raise Bad("seq %d after %d" % (seq, last))
            self.seq.append(seq)
            if kind == STARTED:
                if not self.stream or seq != 1:
                    raise Bad("STARTED as event %d" % seq)
                self.started = struct.unpack_from(">Q", payload, 8)[0]
            elif kind == STDOUT:
                self.stdout += payload[8:]
            elif kind == STDERR:
                self.stderr += payload[8:]
            else:
                stream, left_out = struct.unpack_from(">BQ", payload, 8)
                if stream not in (2, 3) or not left_out:
                    raise Bad("GAP of stream %d, %d bytes"
                              % (stream, left_out))
                before = self.stdout if stream == 2 else self.stderr
                self.gaps.append((stream, left_out, len(before)))


# --- client ---------------------------------------------------------------

class Client:
    """Where a runner (unix socket) or an agent (host, port) listens."""

    def __init__(self, where, key=bytes(32), timeout=150):
        self.where = where
        self.key = key
        self.timeout = timeout

    def connect(self):
        if isinstance(self.where, tuple):
            return socket.create_connection(self.where, self.timeout)
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(self.timeout)
        sock.connect(self.where)
        return sock

    def send(self, operation, head=b"", body=b"", chunks=None, **preamble):
        """Sends a whole request, gives back the connection."""
        preamble.setdefault("key", self.key)
        length = CHUNKED if chunks is not None else len(body)
        first = Preamble(operation, head=len(head), body=length, **preamble)
        if chunks is not None:
            body = b"".join(struct.pack(">I", len(c)) + c for c in chunks)
            body += bytes(4)
        # the preamble goes in one write, as the runner peeks at it, and soon
        data = first.encode() + head + body
        sock = self.connect()
        try:
            sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass                # the reason may still be there to read
        return sock

    def call(self, operation, head=b"", body=b"", **options):
        with self.send(operation, head, body, **options) as sock:
            return self.answer(sock)

    def answer(self, sock, out=None, until=None):
        """All of it, or until that is true of what came so far."""
        out = out or Answer()
        while not (until and until(out)):
            try:
                got = read_frame(sock)
            except ConnectionResetError:
                if out.result or out.error:
                    return out          # what we sent was not read to its end
                raise Lost("reset") from None
            if got is None:
                if out.result is None and out.error is None:
                    raise Lost("ended without RESULT or ERROR: %r" % out)
                return out
            out.take(*got)
        return out

    def command(self, text, session=bytes(32), stdin=b"", cwd=None, env=(),
                command_id=None, wall_ms=60000, cpu_ms=30000,
                output=262144, output_total=1 << 30, open_files=1024,
                pending=10, digest=None, stream=None, detach=None,
                stdin_open=None, **options):
        head = fields(("COMMAND", text), ("CWD", cwd),
                      *(("ENV", e) for e in env),
                      ("COMMAND_ID", command_id), ("WALL_MS", wall_ms),
                      ("CPU_MS", cpu_ms), ("OUTPUT", output),
                      ("OUTPUT_TOTAL", output_total),
                      ("OPEN_FILES", open_files), ("PENDING", pending),
                      ("DIGEST", digest or os.urandom(32)),
                      ("STREAM", stream), ("DETACH", detach),
                      ("STDIN_OPEN", stdin_open))
        with self.send(COMMAND, head, stdin, session=session,
                       **options) as sock:
            return self.answer(sock, Answer(bool(stream)))


# --- agreement with the header --------------------------------------------

def differences(header):
    """What src/wire/sandbox_wire.h says otherwise: a list of sentences."""
    with open(header, encoding="ascii") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    found = {}
    for body in re.findall(r"enum\s*{(.*?)}", text, flags=re.S):
        value = -1
        for item in filter(None, (i.strip() for i in body.split(","))):
            name, _, number = (p.strip() for p in item.partition("="))
            value = int(number, 0) if number else value + 1
            found[name] = value
    for name, number in re.findall(r"#define\s+(\w+)\s+(0x[0-9a-f]+|\d+)\s",
                                   text):
        found[name] = int(number, 0)

    expected = {"SANDBOX_TAG_" + n: t for n, (t, _) in FIELDS.items()}
    expected.update({"SANDBOX_OPERATION_" + n: v
                     for v, n in OPERATIONS.items()})
    expected.update({
        "SANDBOX_FRAME_HEAD": HEAD, "SANDBOX_FRAME_STDOUT": STDOUT,
        "SANDBOX_FRAME_STDERR": STDERR, "SANDBOX_FRAME_GAP": GAP,
        "SANDBOX_FRAME_DATA": DATA, "SANDBOX_FRAME_PING": PING_FRAME,
        "SANDBOX_FRAME_RESULT": RESULT, "SANDBOX_FRAME_ERROR": ERROR,
        "SANDBOX_FLAG_FRESH": FRESH, "SANDBOX_FLAG_NO_CREATE": NO_CREATE,
        "SANDBOX_WIRE_VERSION": VERSION,
        "SANDBOX_WIRE_PREAMBLE_SIZE": PREAMBLE_SIZE,
        "SANDBOX_WIRE_MAX_ERROR": BOUNDS[ERROR][1],
        "SANDBOX_FRAME_STARTED": STARTED,
        "SANDBOX_FRAME_CANCEL": CANCEL_FRAME,
        "SANDBOX_COMMAND_LAST": len(COMMAND_STATES),
        "SANDBOX_FILE_LAST": len(FILE_TYPES), "SANDBOX_ROOT_LAST": 2,
        "SANDBOX_OUTCOME_LAST": len(OUTCOMES),
        "SANDBOX_STATE_LAST": len(STATES)})

    out = ["%s is %r there, %r here" % (n, found.get(n), v)
           for n, v in sorted(expected.items()) if found.get(n) != v]
    out += ["%s is not known here" % n for n in sorted(found)
            if re.match(r"SANDBOX_(TAG|OPERATION|FRAME|FLAG)_", n)
            and n not in expected]
    return out
