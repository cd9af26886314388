"""Egress for tests: a resolver that says what a test wants, a TLS server with
a certificate authority of its own, the table of policies, and an index of
packages.  All of it on loopback addresses that nothing else uses.
"""

import hashlib
import hmac
import http.server
import importlib.metadata
import io
import ipaddress
import os
import re
import socket
import ssl
import struct
import subprocess
import threading
import zipfile

import wire

# the world, as far as these tests go: of each process its own

HOST = "127.%d.%d.%d" % (64 + os.getpid() // 62500 % 16,
                         os.getpid() // 250 % 250, 1 + os.getpid() % 250)


def policy_id(name):
    """As nginx makes it of the name of a policy."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4],
                          "big") or 1


def policy(name, *hosts, connections=0, size=0, ms=0, index=None, ca=None):
    """One EGRESS_POLICY field of the table."""
    parts = [("EGRESS_ID", policy_id(name)), ("EGRESS_NAME", name)]
    parts += [("EGRESS_HOST", host) for host in hosts]
    parts += [("EGRESS_CONNECTIONS", connections), ("EGRESS_BYTES", size),
              ("EGRESS_TIME_MS", ms)]
    if index:
        parts.append(("EGRESS_INDEX", index))
    if ca:
        parts.append(("EGRESS_CA", ca))
    return ("EGRESS_POLICY", wire.fields(*parts))


def table(*policies):
    return wire.fields(*policies)


def push(client, body, digest=None):
    """Gives a runner the table, as nginx does; its Answer."""
    digest = digest or hashlib.sha256(body).digest()
    return client.call(wire.EGRESS, wire.fields(("EGRESS_DIGEST", digest)),
                       body)


def counts(result, name):
    """The counters of a policy in the RESULT of a PING, by lower-case name."""
    for data in result.get("EGRESS_COUNT", []):
        got = wire.unique(wire.read_fields(data))
        if got["EGRESS_ID"] == policy_id(name):
            return {k[7:].lower(): v for k, v in got.items()}
    return {k: 0 for k in ("open", "tunnels", "refused", "failed", "up",
                           "down")}


def token(key, session, name, expires, sign=None):
    """User and password of the proxy for sandboxes on engines, as nginx makes
    them of the runner's key; signed for (session, name, expires) of `sign`."""
    def text(session, name, expires):
        number = name if isinstance(name, int) else policy_id(name)
        return session + struct.pack(">IQ", number, expires)

    subkey = hmac.digest(key, b"egress", "sha256")
    mac = hmac.digest(subkey, b"sandbox-egress"
                      + text(*(sign or (session, name, expires))), "sha256")
    return "%s:%s" % (text(session, name, expires).hex(), mac.hex())


# what uv says when it was the way, and not the package

FAULT = re.compile(r"error sending request|timed? ?out|tunnel|reset by peer|"
                   r"connection (refused|closed)|failed to fetch|"
                   r"\b(429|50[0234])\b", re.I)


def real_index(base):
    """The hosts of the index that uv has by default and their addresses, by
    the lock of the base image; or (None, why they can't be used here)."""
    with open(base + "/usr/share/sandbox/home/uv.lock") as f:
        hosts = sorted(set(re.findall(r"https://([^/\"]+)", f.read())))
    addresses = set()
    for host in hosts:
        if host.endswith(".invalid"):
            return None, "the base image was made with a mirror"
        try:
            found = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
            socket.create_connection((host, 443), 5).close()
        except OSError as error:
            return None, "no package index is reached: %s" % error
        addresses |= {a[4][0] for a in found}
    return hosts, sorted(addresses)


def certificates(path):
    """A copy there of those that this machine trusts; None: too many."""
    source = os.environ.get("SSL_CERT_FILE") \
        or "/etc/ssl/certs/ca-certificates.crt"
    try:
        with open(source) as f:
            found = re.findall("-----BEGIN CERTIFICATE-----.*?"
                               "-----END CERTIFICATE-----\n", f.read(), re.S)
    except OSError:
        return None
    text = "".join(found)
    if not found or len(text) > 512 * 1024:
        return None
    with open(path, "w") as f:
        f.write(text)
    return path


class Resolver:
    """Answers A and AAAA over UDP: `names` has a list of addresses, or a list
    of such lists that is gone through, one for each question for A; a name
    that is not there does not exist, None is never answered."""

    def __init__(self, names):
        self.names = dict(names)
        self.asked = []
        self.turns = {}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.83.0.53", 0))
        self.address = "%s:%d" % self.socket.getsockname()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def close(self):
        self.socket.close()

    def work(self):
        while True:
            try:
                data, peer = self.socket.recvfrom(4096)
                answer = self.answer(data)
                if answer:
                    self.socket.sendto(answer, peer)
            except OSError:
                return

    def look_up(self, name, kind):
        found = self.names[name]
        if found and isinstance(found[0], list):
            turn = self.turns.get(name, 0)
            if kind == 1:
                self.turns[name] = turn + 1
            found = found[turn % len(found)]
        out = []
        for text in found:
            address = ipaddress.ip_address(text)
            if address.version == (4 if kind == 1 else 6):
                out.append(address.packed)
        return out

    def answer(self, data):
        at, labels = 12, []
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode())
            at += 1 + data[at]
        name = ".".join(labels).lower()
        kind = struct.unpack_from(">H", data, at + 1)[0]
        question = data[12:at + 5]
        self.asked.append(name)
        if name in self.names and self.names[name] is None:
            return None
        known = name in self.names
        found = self.look_up(name, kind) if known and kind in (1, 28) else []
        head = data[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183,
                                      1, len(found), 0, 0)
        return head + question + b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(a)) + a
            for a in found)


class Authority:
    """A certificate authority and one certificate for all names given."""

    def __init__(self, folder, *names):
        self.folder = folder
        self.pem = os.path.join(folder, "ca.pem")
        self.certificate = os.path.join(folder, "server.pem")
        key = os.path.join(folder, "ca.key")
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                     "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                     "-subj", "/CN=Test CA", "-keyout", key, "-out", self.pem,
                     "-addext", "basicConstraints=critical,CA:TRUE",
                     "-addext", "keyUsage=critical,keyCertSign")
        request = os.path.join(folder, "server.csr")
        self.openssl("req", "-newkey", "ec", "-pkeyopt",
                     "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                     "/CN=" + names[0], "-keyout", self.certificate, "-out",
                     request)
        extra = os.path.join(folder, "extensions")
        with open(extra, "w") as f:
            f.write("subjectAltName=" + ",".join("DNS:" + n for n in names)
                    + "\nextendedKeyUsage=serverAuth\n"
                    "basicConstraints=CA:FALSE\n")
        done = subprocess.run(
            ["openssl", "x509", "-req", "-in", request, "-CA", self.pem,
             "-CAkey", key, "-CAcreateserial", "-days", "2", "-extfile",
             extra], check=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        with open(self.certificate, "ab") as f:
            f.write(done.stdout)

    @staticmethod
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def text(self):
        with open(self.pem, "rb") as f:
            return f.read()


class Server(http.server.ThreadingHTTPServer):
    """HTTPS on the world's port 443 (or `port`); serves `pages`, a dict from
    paths to bytes, (status, headers, bytes), or a function of the handler."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, authority, pages=None, address=HOST, port=443):
        self.pages = pages if pages is not None else {}
        self.seen = []
        super().__init__((address, port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.certificate)
        self.context = context
        self.thread = threading.Thread(target=self.serve_forever,
                                       kwargs={"poll_interval": 0.05},
                                       daemon=True)
        self.thread.start()

    def finish_request(self, request, client_address):
        request.settimeout(60)
        try:
            with self.context.wrap_socket(request, server_side=True) as tls:
                self.RequestHandlerClass(tls, client_address, self)
        except (OSError, ssl.SSLError):
            pass

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.headers.get("Host"), self.path))
        page = self.server.pages.get(self.path)
        if callable(page):
            page(self)
            return
        status, headers = 200, {}
        if page is None:
            status, page = 404, b"no such page\n"
        elif isinstance(page, tuple):
            status, headers, page = page
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    do_HEAD = do_POST = do_GET

    def log_message(self, *_):
        pass


def index_pages(wheels, rootfs):
    """The pages of an index of packages: file names to bytes of wheels, and
    what a resolver asks of those that the base image has installed."""
    pages, projects = {}, {}

    def add(name, data, metadata):
        project = name.split("-")[0].replace("_", "-").lower()
        projects.setdefault(project, []).append(
            '<a href="/files/%s#sha256=%s" data-core-metadata="sha256=%s">%s'
            "</a>" % (name, hashlib.sha256(data).hexdigest(),
                      hashlib.sha256(metadata).hexdigest(), name))
        pages["/files/" + name] = data
        pages["/files/%s.metadata" % name] = metadata

    for d in importlib.metadata.distributions(
            path=[rootfs + "/opt/sandbox/site-packages"]):
        name = "%s-%s-py3-none-any.whl" % (
            re.sub("[-_.]+", "_", d.metadata["Name"]).lower(), d.version)
        add(name, name.encode(), d.read_text("METADATA").encode())
    for name, data in wheels.items():
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            part = [n for n in z.namelist() if n.endswith("/METADATA")][0]
            add(name, data, z.read(part))
    for project, links in projects.items():
        body = "<!DOCTYPE html><html><body>" + "\n".join(links) \
            + "</body></html>"
        pages["/simple/%s/" % project] = (
            200, {"Content-Type": "text/html"}, body.encode())
    return pages
