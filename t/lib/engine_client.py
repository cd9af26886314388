"""A client of an engine for tests: holds a session as the owner does, asks as
nginx does.  And the registry that the engine takes the image from."""

import base64
import functools
import http.server
import json
import os
import socket
import struct
import subprocess
import threading

from engine import h2
from engine_network import domain_of
from gateway import CACHE, TOP

LONG = 200          # seconds, for a machine with other things to do
FILES = b"/moby.filesync.v1.FileSync/DiffCopy"


class Session:
    """Its ids, and queries; attached unless said otherwise."""

    def __init__(self, address, attach=True, **metadata):
        host, _, port = address.partition("://")[2].rpartition(":")
        self.peer = (host, int(port))
        self.metadata = {
            "client_id": "t-" + os.urandom(12).hex(),
            "session_id": "t-" + os.urandom(12).hex(),
            "client_secret_token": os.urandom(16).hex(),
            "client_version": "v0.19.0", "client_hostname": "nginx",
            "do_not_track": True, "labels": {}}
        self.metadata.update(metadata)
        for name in [n for n in metadata if metadata[n] is None]:
            del self.metadata[name]
        self.domain = domain_of(self.metadata.get("session_id", ""))
        self.held = None
        if attach:
            self.attach()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.request("POST", "/shutdown")
        except OSError:
            pass
        self.lose()

    def header(self):
        return "X-Dagger-Client-Metadata: %s\r\n" % base64.b64encode(
            json.dumps(self.metadata).encode()).decode()

    def attach(self):
        """None, or what the engine says instead."""
        sock = socket.create_connection(self.peer, LONG)
        sock.sendall(("GET /sessionAttachables HTTP/1.1\r\nHost: dagger\r\n"
                      + self.header() + "\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = sock.recv(1)
            if not data:
                raise OSError("closed in the handshake")
            head += data
        if b" 101 " not in head:
            text = sock.recv(4096).decode()
            sock.close()
            return text
        self.held = sock
        sock.sendall(b"\0")
        threading.Thread(target=self.serve, args=(sock,),
                         daemon=True).start()
        return None

    def serve(self, sock):
        conn = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=False, header_encoding=None))
        conn.initiate_connection()
        try:
            sock.sendall(conn.data_to_send())
            sock.settimeout(None)
            while True:
                data = sock.recv(65536)
                if not data:
                    return
                for event in conn.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        self.call(conn, event)
                sock.sendall(conn.data_to_send())
        except (OSError, h2.exceptions.ProtocolError):
            pass

    def call(self, conn, event):
        fields = dict(event.headers)
        begin = [(":status", "200"), ("content-type", "application/grpc")]
        message = None
        if fields[b":path"] == FILES:
            asked = json.loads(base64.b64decode(
                fields[b"x-dagger-local-import-opts"]))
            if asked["get_abs_path_only"]:
                message = b"\0\0\0\0\3\x0a\1/"
        else:
            message = b"\0\0\0\0\2\x08\1"
        if message is None:
            conn.send_headers(event.stream_id, begin
                              + [("grpc-status", "5")], end_stream=True)
            return
        conn.send_headers(event.stream_id, begin)
        conn.send_data(event.stream_id, message)
        conn.send_headers(event.stream_id, [("grpc-status", "0")],
                          end_stream=True)

    def lose(self):
        """The connection that holds it ends without a word."""
        if self.held:
            try:
                self.held.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self.held.close()

    # one request on a connection of its own

    def send(self, method, path, body=b"", kind="application/json"):
        sock = socket.create_connection(self.peer, LONG)
        sock.sendall(("%s %s HTTP/1.1\r\nHost: dagger\r\n%s%s"
                      "Content-Length: %d\r\n\r\n"
                      % (method, path, self.header(),
                         "Content-Type: %s\r\n" % kind if kind else "",
                         len(body))).encode() + body)
        return sock

    def request(self, *request, **options):
        """Status, type, body."""
        status, fields, body = self.whole(*request, **options)
        return (status, fields.get("content-type", "").partition(";")[0],
                body)

    def whole(self, *request, **options):
        """Status, the head's fields, body."""
        with self.send(*request, **options) as sock:
            file = sock.makefile("rb")
            line = file.readline()
            if not line:
                raise OSError("closed")
            fields = {}
            while True:
                name, _, value = file.readline().decode().partition(":")
                if not name.strip():
                    break
                fields[name.lower()] = value.strip()
            if "transfer-encoding" in fields:
                body = b""
                while True:
                    size = int(file.readline(), 16)
                    body += file.read(size)
                    file.readline()
                    if size == 0:
                        break
            else:
                body = file.read(int(fields.get("content-length", 0)))
            return int(line.split()[1]), fields, body

    def ask(self, text):
        """Status and the answer as it is."""
        status, _, body = self.request("POST", "/query", json.dumps(
            {"query": text}).encode())
        return status, json.loads(body)

    def get(self, text):
        """`data`, down to where it is more than one thing."""
        status, answer = self.ask(text)
        if status != 200 or "errors" in answer:
            raise AssertionError("%s: %d %s" % (text[:200], status, answer))
        return leaf(answer["data"])

    def error(self, text):
        """The one error of an answer, which has no data."""
        status, answer = self.ask(text)
        if status != 200 or len(answer.get("errors", ())) != 1 \
                or answer.get("data") is not None:
            raise AssertionError("%s: %d %s" % (text[:200], status, answer))
        return answer["errors"][0]


def leaf(value):
    while isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return value


def quoted(value):
    """As a value in a query."""
    return json.dumps(value)


def address_of(resolver, name, kind=1, port=53):
    """The address in a server's answer, else its flags."""
    question = b"".join(bytes((len(part),)) + part.encode()
                        for part in name.split(".")) + b"\0" \
        + struct.pack(">HH", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(20)
        for last in (False, False, True):
            sock.sendto(struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + question,
                        (resolver, port))
            try:
                data = sock.recv(2048)
                break
            except TimeoutError:
                if last:
                    raise
    if struct.unpack_from(">H", data, 6)[0] == 1:
        return socket.inet_ntoa(data[-4:])
    return struct.unpack_from(">H", data, 2)[0]


class Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def guess_type(self, path):
        return "application/vnd.oci.image.manifest.v1+json" \
            if "/manifests/" in path else "application/octet-stream"

    def send_head(self):
        self.server.asked.append((self.command, self.path))
        return super().send_head()

    def log_message(self, *_):
        pass


class Registry:
    """`with Registry(agent) as r:` r.image, what was asked is r.asked.
    Without an agent it is what the folder has."""

    def __init__(self, agent, folder=CACHE + "/registry"):
        self.folder = folder
        self.digest = ""
        if agent is None:
            return
        os.makedirs(folder, exist_ok=True)
        self.digest = subprocess.run(
            [TOP + "/tools/registry", os.path.realpath(
                CACHE + "/base/current/rootfs"), agent, folder], check=True,
            stdout=subprocess.PIPE, text=True).stdout.split()[-1]

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Files, directory=self.folder))
        self.server.daemon_threads = True
        self.asked = self.server.asked = []
        threading.Thread(target=self.server.serve_forever,
                         daemon=True).start()
        self.host = "127.0.0.1:%d" % self.server.server_port
        self.image = "%s/sandbox@%s" % (self.host, self.digest)
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
