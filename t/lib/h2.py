"""HTTP/2 from the client's side, as little of it as tests need: streams of
one connection, bodies under flow control, the order of frames in the test's
own hands.  Header lines go out as literals; of an answer only the status is
decoded, which nginx sends first and without Huffman."""

import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW = range(9)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
STATIC = {0x88: 200, 0x89: 204, 0x8a: 206, 0x8b: 304, 0x8c: 400, 0x8d: 404,
          0x8e: 500}


class Lost(Exception):
    """The connection ended before what was waited for."""


class Stream:
    def __init__(self, number, window, body):
        self.number = number
        self.window = window
        self.todo = body            # of the request, not sent yet
        self.sent = body is None    # END_STREAM went out
        self.status = None
        self.body = b""
        self.ended = False          # END_STREAM came
        self.reset = None           # the code of RST_STREAM

    @property
    def done(self):
        return self.ended or self.reset is not None


def integer(value, prefix, first):
    most = (1 << prefix) - 1
    if value < most:
        return bytes([first | value])
    out = [first | most]
    value -= most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + [value])


def literal(name, value):
    """Never indexed, no Huffman."""
    name, value = name.encode(), value.encode()
    return b"\x10" + integer(len(name), 7, 0) + name \
        + integer(len(value), 7, 0) + value


def status_of(block):
    while block and block[0] & 0xe0 == 0x20:        # size of the table
        block = block[1:]
    if block and block[0] in STATIC:
        return STATIC[block[0]]
    if block[:1] in (b"\x48", b"\x08") and block[1:2] == b"\x03":
        return int(block[2:5])
    raise AssertionError("no status in %r" % block[:20])


class Connection:
    def __init__(self, port, timeout=150):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.timeout = timeout
        self.data = b""
        self.streams = {}
        self.next = 1
        self.window = 65535
        self.initial = 65535
        self.goaway = None
        self.sock.sendall(PREFACE + self.frame(
            SETTINGS, 0, 0, struct.pack(">HI", 4, (1 << 31) - 1)))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.sock.close()

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] \
            + struct.pack(">BBI", kind, flags, stream) + payload

    def request(self, method, path, headers=(), body=None, hold=False):
        """Begins a stream; hold keeps the body back for `go`."""
        stream = Stream(self.next, self.initial, body)
        self.next += 2
        self.streams[stream.number] = stream
        block = b"".join(literal(n.lower(), v) for n, v in (
            (":method", method), (":scheme", "http"), (":path", path),
            (":authority", "localhost")) + tuple(headers))
        flags = END_HEADERS | (END_STREAM if body is None else 0)
        self.sock.sendall(self.frame(HEADERS, flags, stream.number, block))
        if not hold:
            self.push(stream)
        return stream

    def go(self, stream):
        self.push(stream)

    def push(self, stream):
        """As much of the body as the windows let out."""
        while not stream.sent and not stream.done:
            size = min(len(stream.todo), 16384, self.window, stream.window)
            if size <= 0 and stream.todo:
                return
            piece, stream.todo = stream.todo[:size], stream.todo[size:]
            self.window -= size
            stream.window -= size
            stream.sent = not stream.todo
            self.sock.sendall(self.frame(
                DATA, END_STREAM if stream.sent else 0, stream.number, piece))

    def read(self, size):
        while len(self.data) < size:
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Lost("GOAWAY %r" % self.goaway)
            self.data += piece
        out, self.data = self.data[:size], self.data[size:]
        return out

    def one(self):
        """Takes one frame."""
        head = self.read(9)
        size = int.from_bytes(head[:3], "big")
        kind, flags, number = struct.unpack(">BBI", head[3:])
        payload = self.read(size)
        stream = self.streams.get(number)
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, size, 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == 4:
                    for s in self.streams.values():
                        s.window += value - self.initial
                    self.initial = value
            self.sock.sendall(self.frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.sock.sendall(self.frame(PING, ACK, 0, payload))
        elif kind == WINDOW:
            more = struct.unpack(">I", payload)[0]
            if stream:
                stream.window += more
            elif not number:
                self.window += more
        elif kind == GOAWAY:
            self.goaway = struct.unpack_from(">I", payload, 4)[0]
        elif kind == HEADERS and stream:
            status = status_of(payload)
            stream.status = status
            stream.ended = bool(flags & END_STREAM)
        elif kind == DATA:
            if stream:
                stream.body += payload
                stream.ended = stream.ended or bool(flags & END_STREAM)
            # the window is everybody's, whosever data this was
            if size:
                self.sock.sendall(self.frame(WINDOW, 0, 0,
                                             struct.pack(">I", size)))
        elif kind == RST and stream:
            stream.reset = struct.unpack(">I", payload)[0]
        for s in list(self.streams.values()):
            self.push(s)

    def wait(self, *streams):
        """Until all of them are answered; their statuses."""
        end = time.monotonic() + self.timeout
        for stream in streams:
            while not stream.done:
                if time.monotonic() > end:
                    raise Lost("stream %d is not answered" % stream.number)
                self.one()
        return [s.status for s in streams]
