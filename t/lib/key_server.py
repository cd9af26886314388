"""A server of key sets for tests: on loopback, a thread a connection, and it
misbehaves when told to.

    with KeyServer(jwks(key)) as server:
        server.url                      # http://127.0.0.1:PORT/jwks.json
        server.answer(b"...", status=500, headers={"X": "y"})
        server.hang()                   # accepts, reads, says nothing
        server.drip()                   # a byte now and then
        server.seen                     # [(when, method, target, headers)]

With a certificate (Authority.server()) it speaks TLS.
"""

import os
import socket
import ssl
import struct
import threading
import time

from gateway import free_port
from jose import folder, openssl


class Authority:
    """A certificate authority of our own."""
    count = 0

    def __init__(self, name="tests"):
        Authority.count += 1
        self.base = "%s/ca%d" % (folder(), Authority.count)
        self.file = self.base + ".pem"
        self.number = 0
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", "/CN=" + name, "-keyout", self.base + ".key",
                "-out", self.file)

    def server(self, names="DNS:localhost,IP:127.0.0.1"):
        """(certificate, key) for those names."""
        self.number += 1
        base = "%s.%d" % (self.base, self.number)
        openssl("req", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=server",
                "-keyout", base + ".key", "-out", base + ".csr")
        with open(base + ".ext", "w") as f:
            f.write("subjectAltName=%s\n" % names)
        openssl("x509", "-req", "-in", base + ".csr", "-CA", self.file,
                "-CAkey", self.base + ".key", "-CAcreateserial", "-days", "2",
                "-extfile", base + ".ext", "-out", base + ".pem")
        return base + ".pem", base + ".key"


class KeyServer:
    def __init__(self, body="", certificate=None, port=0):
        self.lock = threading.Lock()
        self.open = set()
        self.seen = []
        self.connections = 0
        self.tls = None
        if certificate:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*certificate)
        # it stays ours while nobody listens there
        self.port = port or free_port()
        self.listener = None
        self.answer(body)
        self.listen()

    @property
    def url(self):
        return "%s://127.0.0.1:%d/jwks.json" % (
            "https" if self.tls else "http", self.port)

    # life

    def listen(self):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(64)
        threading.Thread(target=self.accept, args=(self.listener,),
                         daemon=True).start()

    def refuse(self):
        """Nobody listens any more; listen() begins again."""
        if self.listener:
            # an accept() that waits holds on to a socket that is closed
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
        self.drop()

    def drop(self):
        """Resets every connection."""
        with self.lock:
            connections = list(self.open)
        for c in connections:
            try:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             struct.pack("ii", 1, 0))
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.refuse()

    # behaviour

    def answer(self, body, status=200, headers=None, cut=None, raw=None,
               after=0):
        """`cut`: only so many bytes of the body; `raw`: instead of it all."""
        if isinstance(body, str):
            body = body.encode()
        if raw is None:
            head = {"Content-Type": "application/json",
                    "Content-Length": str(len(body)), "Connection": "close"}
            head.update(headers or {})
            raw = ("HTTP/1.1 %d x\r\n%s\r\n" % (status, "".join(
                "%s: %s\r\n" % h for h in head.items() if h[1] is not None))
                   ).encode() + (body if cut is None else body[:cut])

        def behave(c):
            if after:
                time.sleep(after)
            c.sendall(raw)
        self.behave = behave

    def hang(self):
        self.behave = lambda c: self.wait(c)

    def drip(self):
        def behave(c):
            c.sendall(b"HTTP/1.1 200 x\r\nContent-Length: 9000\r\n\r\n{")
            while True:
                c.sendall(b" ")
                time.sleep(0.02)
        self.behave = behave

    @staticmethod
    def wait(c):
        """Until the client closes."""
        c.settimeout(None)
        while c.recv(4096):
            pass

    # requests

    @property
    def fetches(self):
        with self.lock:
            return len(self.seen)

    def accept(self, listener):
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                self.open.add(c)
            threading.Thread(target=self.serve, args=(c,),
                             daemon=True).start()

    def serve(self, plain):
        c = plain
        try:
            c.settimeout(30)
            if self.tls:
                c = self.tls.wrap_socket(plain, server_side=True)
                with self.lock:
                    self.open.discard(plain)
                    self.open.add(c)
            data = b""
            while b"\r\n\r\n" not in data:
                more = c.recv(4096)
                if not more:
                    return
                data += more
                if data[0] == 0x16:         # TLS, to a server without
                    c.sendall(b"HTTP/1.1 400 x\r\n\r\n")
                    return
            lines = data.decode("latin-1").split("\r\n\r\n")[0].split("\r\n")
            method, target, _ = lines[0].split(" ")
            headers = {}
            for line in lines[1:]:
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            with self.lock:
                self.seen.append((time.monotonic(), method, target, headers))
            self.behave(c)
        except (OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.open.discard(c)
                self.open.discard(plain)
            c.close()


class SilentServer(KeyServer):
    """Accepts, and does not even do the handshake of TLS."""

    def serve(self, plain):
        try:
            with self.lock:
                self.seen.append((time.monotonic(), "", "", {}))
            self.wait(plain)
        except OSError:
            pass
        finally:
            with self.lock:
                self.open.discard(plain)
            plain.close()


def client_of(port):
    """Pids of processes that have a connection to that port of 127.0.0.1."""
    inodes = set()
    with open("/proc/net/tcp") as f:
        for line in f.readlines()[1:]:
            fields = line.split()
            if fields[2] == "0100007F:%04X" % port and fields[9] != "0":
                inodes.add("socket:[%s]" % fields[9])
    out = set()
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            fds = os.listdir("/proc/%s/fd" % pid)
        except OSError:
            continue
        for fd in fds:
            try:
                if os.readlink("/proc/%s/fd/%s" % (pid, fd)) in inodes:
                    out.add(int(pid))
            except OSError:
                pass                    # closed meanwhile
    return out
