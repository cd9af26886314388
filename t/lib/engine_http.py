"""One connection of an engine's HTTP, as Go's server speaks it.

Small answers have a length, those above 2 KB come in one piece of their own
chunking; HTTP/1.0 gets them until the end; what is no request is refused in
plain words.
"""

import select
import time

SMALL = 2048
MOST_HEAD, MOST_BODY = 1 << 20, 256 << 20

TEXT, JSON = "text/plain; charset=utf-8", "application/json"
WORDS = {200: "OK", 204: "No Content", 400: "Bad Request", 404: "Not Found",
         405: "Method Not Allowed", 422: "Unprocessable Entity",
         500: "Internal Server Error"}


class Gone(Exception):
    pass


class Bad(Exception):
    pass


def ready(reads, writes=(), seconds=None):
    """Of these (files, sockets or numbers), what can be read or written."""
    poll, by_number = select.poll(), {}
    for file in reads:
        number = file if isinstance(file, int) else file.fileno()
        by_number[number] = file
        poll.register(number, select.POLLIN)
    for file in writes:
        by_number[file.fileno()] = file
        poll.register(file.fileno(), select.POLLOUT)
    return [by_number[n] for n, _ in poll.poll(
        None if seconds is None else seconds * 1000)]


class Http:
    def __init__(self, sock):
        self.sock = sock
        self.buffered = b""
        self.old = False
        self.keep = True

    def more(self):
        data = self.sock.recv(65536)
        if not data:
            raise Gone()
        self.buffered += data

    def line(self):
        while b"\r\n" not in self.buffered:
            if len(self.buffered) > MOST_HEAD:
                raise Bad("400 Bad Request")
            self.more()
        line, self.buffered = self.buffered.split(b"\r\n", 1)
        return line.decode("latin-1")

    def take(self, size):
        parts, got = [self.buffered], len(self.buffered)
        while got < size:
            data = self.sock.recv(1 << 20)
            if not data:
                raise Gone()
            parts.append(data)
            got += len(data)
        whole = b"".join(parts)
        self.buffered = whole[size:]
        return whole[:size]

    def read(self):
        """(method, path, headers, body); Gone when there is none."""
        while b"\r\n\r\n" not in self.buffered:
            if len(self.buffered) > MOST_HEAD:
                raise Bad("400 Bad Request")
            self.more()
        part = self.line().split(" ")
        headers = {}
        while True:
            line = self.line()
            if not line:
                break
            name, colon, value = line.partition(":")
            if not colon:
                raise Bad("400 Bad Request")
            headers.setdefault(name.lower(), value.strip())
        if len(part) != 3 or not part[1]:
            raise Bad("400 Bad Request")
        if part[2] not in ("HTTP/1.0", "HTTP/1.1"):
            raise Bad("505 HTTP Version Not Supported: unsupported protocol "
                      "version")
        self.old = part[2] == "HTTP/1.0"
        if not self.old and "host" not in headers:
            raise Bad("400 Bad Request: missing required Host header")
        wish = headers.get("connection", "").lower()
        self.keep = wish == "keep-alive" if self.old else wish != "close"
        return part[0], part[1], headers, self.body(headers)

    def body(self, headers):
        if headers.get("expect", "").lower() == "100-continue":
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                size = int(self.line(), 16)
                if size + len(body) > MOST_BODY:
                    raise Bad("400 Bad Request")
                body += self.take(size)
                if self.take(2) != b"\r\n":
                    raise Bad("400 Bad Request")
                if size == 0:
                    return body
        size = headers.get("content-length", "0")
        if not size.isdigit() or int(size) > MOST_BODY:
            raise Bad("400 Bad Request")
        return self.take(int(size))

    def refuse(self, text):
        self.sock.sendall(("HTTP/1.1 %s\r\nContent-Type: %s\r\nConnection: "
                           "close\r\n\r\n%s" % (text, TEXT, text)).encode())

    def answer(self, status, kind, body):
        """True: the next request may come."""
        lines = ["HTTP/1.%d %d %s" % (not self.old, status, WORDS[status])]
        if kind and body and not (kind == TEXT and status in (200, 400)):
            lines.append("Content-Type: " + kind)
        if kind == TEXT and status in (404, 500):
            lines.append("X-Content-Type-Options: nosniff")
        lines.append("Date: " + time.strftime("%a, %d %b %Y %H:%M:%S GMT",
                                              time.gmtime()))
        chunked = len(body) > SMALL and not self.old
        if len(body) <= SMALL and status not in (204, 405):
            lines.append("Content-Length: %d" % len(body))
            if kind == TEXT and body and status in (200, 400):
                lines.append("Content-Type: " + kind)
        elif self.old:
            self.keep = False
        if not self.keep and not self.old:
            lines.append("Connection: close")
        if self.keep and self.old:
            lines.append("Connection: keep-alive")
        if chunked:
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
        self.sock.sendall("\r\n".join(lines + ["", ""]).encode() + body)
        return self.keep
