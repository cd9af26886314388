"""Streams of events as a client sees them: HTTP/1.1 by Python, HTTP/2 by
curl; server-sent events by the rules of their specification, or JSON a line.

    with Stream(g, "C", "echo a; sleep 1; echo b") as s:
        for event in s: ...          # dictionaries, "type" and the rest
        s.result                     # the last of them

A stream that breaks a rule (an id that is not the event's seq, a seq that does
not rise, anything after the result) is an AssertionError.
"""

import base64
import json
import os
import select
import signal
import subprocess
import time
import zlib

from gateway import SLOW, token as default_token


class Parser:
    """Bytes to events; `pings` and `retry` beside them."""

    def __init__(self, kind):
        self.kind = kind            # "sse" or "ndjson"
        self.rest = b""
        self.fields = {}
        self.last_id = None
        self.pings = 0
        self.retry = None
        self.blocks = 0

    def feed(self, data):
        self.rest += data
        out = []
        while b"\n" in self.rest:
            line, _, self.rest = self.rest.partition(b"\n")
            event = self.line(line) if self.kind == "sse" \
                else self.json_line(line)
            if event is not None:
                out.append(event)
        return out

    def json_line(self, line):
        if not line:
            self.pings += 1
            return None
        return json.loads(line)

    def line(self, line):
        line = line.rstrip(b"\r")
        if line.startswith(b":"):
            self.pings += 1
            return None
        if line:
            name, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            name, value = name.decode(), value.decode()
            if name == "data":
                self.fields.setdefault("data", []).append(value)
            elif name == "retry":
                self.retry = int(value)
            elif name in ("id", "event"):
                self.fields[name] = value
            else:
                raise AssertionError("a field %r" % line)
            return None
        fields, self.fields = self.fields, {}
        if "id" in fields:
            self.last_id = fields["id"]
        if "data" not in fields:
            return None
        event = json.loads("\n".join(fields["data"]))
        if fields.get("event") != event["type"]:
            raise AssertionError("event %r is %r" % (fields, event))
        if "id" in fields and int(fields["id"]) != event["seq"]:
            raise AssertionError("id %r is %r" % (fields, event))
        return event


class Stream:
    def __init__(self, g, conversation=None, text=None, method="POST",
                 path=None, accept="text/event-stream", token="", h2=False,
                 headers=None, timeout=150, after=None, body=None, port=None,
                 last_event_id=None, **fields):
        self.g = g
        self.timeout = timeout * SLOW
        self.events = []
        self.ready = []             # read, and not taken yet
        self.result = None
        self.times = []
        self.open = True
        self.process = self.connection = None
        if path is None:
            path = "v1/conversations/%s/commands" % conversation
            if method == "GET":
                path += "/" + text
                if after is not None:
                    path += "?after=%d" % after
            elif text is not None:
                body = json.dumps(dict(fields, command=text)).encode()
        if not path.startswith("/"):
            path = "/sandbox/" + path
        self.sent = {"Accept": accept}
        if token is not None:
            self.sent["Authorization"] = "Bearer " + (
                token or default_token())
        if body is not None:
            self.sent["Content-Type"] = "application/json"
        if last_event_id is not None:
            self.sent["Last-Event-ID"] = str(last_event_id)
        self.sent.update(headers or {})
        if h2:
            self.open_h2(method, path, body, port or g.port)
        else:
            self.open_h1(method, path, body, port)
        self.kind = {"text/event-stream": "sse",
                     "application/x-ndjson": "ndjson"}.get(
            self.headers.get("content-type", "").split(";")[0])
        self.parser = Parser(self.kind)
        self.inflate = zlib.decompressobj(31) \
            if self.headers.get("content-encoding") == "gzip" else None
        self.seq = after or int(last_event_id or 0)

    # opening

    def open_h1(self, method, path, body, port):
        import http.client
        self.connection = http.client.HTTPConnection(
            "127.0.0.1", port or self.g.port, timeout=self.timeout)
        self.connection.request(method, path, body, self.sent)
        self.socket = self.connection.sock
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.headers = {k.lower(): v for k, v in
                        self.response.headers.items()}

    def open_h2(self, method, path, body, port):
        command = ["curl", "-sNi", "--http2-prior-knowledge", "-X", method,
                   "-m", str(int(self.timeout)),
                   "http://127.0.0.1:%d%s" % (port, path)]
        for name, value in self.sent.items():
            command += ["-H", "%s: %s" % (name, value)]
        if body is not None:
            command += ["--data-binary", "@-"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.process.stdin.write(body or b"")
        self.process.stdin.close()
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.piece()
            if not piece:
                raise AssertionError("no answer over HTTP/2: %r" % head)
            head += piece
        head, _, self.early = head.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    # reading

    def piece(self):
        if self.process is None:
            return self.response.read1(65536)
        early, self.early = getattr(self, "early", b""), b""
        if early:
            return early
        fd = self.process.stdout.fileno()
        if not select.select([fd], [], [], self.timeout)[0]:
            raise TimeoutError("nothing came for %d s" % self.timeout)
        return os.read(fd, 65536)

    def take(self, event):
        if self.result is not None:
            raise AssertionError("%r after the result" % event)
        made_up = event.get("outcome") == "runner_lost" \
            or event["type"] == "refused"
        if event["seq"] <= self.seq and not made_up:
            raise AssertionError("seq %d after %d" % (event["seq"], self.seq))
        self.seq = event["seq"]
        self.times.append(time.monotonic())
        self.events.append(event)
        if event["type"] == "result":
            self.result = event
        return event

    def __iter__(self):
        """Events until the stream ends; what was taken is in self.events."""
        while self.open:
            while self.ready:
                yield self.take(self.ready.pop(0))
            data = self.piece()
            if not data:
                self.open = False
                if self.parser.rest or self.parser.fields:
                    raise AssertionError("cut within an event: %r %r" % (
                        self.parser.rest, self.parser.fields))
                return
            if self.inflate:
                data = self.inflate.decompress(data)
            self.ready += self.parser.feed(data)

    def until(self, kind, count=1):
        """Reads until so many events of that type came; the last of them."""
        found = [e for e in self.events if e["type"] == kind]
        have = len(found)
        if have >= count:
            return found[count - 1]
        for event in self:
            if event["type"] == kind:
                have += 1
                if have == count:
                    return event
        raise AssertionError("the stream ended after %d of %d %s: %r" % (
            have, count, kind, self.events[-3:]))

    def until_text(self, text):
        """Reads until that is in what stdout said."""
        while text not in self.text:
            for _ in self:
                break
            else:
                raise AssertionError("no %r in %r" % (text, self.text))

    def finish(self):
        """Reads to the end; the result."""
        for _ in self:
            pass
        if self.result is None:
            raise AssertionError("no result: %r" % self.events[-3:])
        return self.result

    def bytes(self, name):
        """What came of one of the streams."""
        return b"".join(base64.b64decode(e["dataBase64"])
                        if "dataBase64" in e else e["data"].encode()
                        for e in self.events if e["type"] == name)

    @property
    def text(self):
        return self.bytes("stdout").decode()

    @property
    def kinds(self):
        return [e["type"] for e in self.events]

    def body(self):
        """All of an answer that is no stream."""
        out = b""
        while True:
            data = self.piece()
            if not data:
                return out
            out += data

    def close(self, reset=False):
        self.open = False
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process.stdout.close()
        if self.connection is not None:
            if reset:
                import socket
                import struct
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                       struct.pack("ii", 1, 0))
            self.response.close()
            self.connection.close()
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
