#!/usr/bin/env python3
"""Large files with real containers: 100 MiB up and down by every way, offsets
beyond 32 bits, what can't have room, attachments of more than a command may
have in memory, transfers that take longer than a sandbox may be idle; group
files."""

import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, free_port, token                # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
C = "/sandbox/v1/conversations/%s/%s"
SIZE = 100 << 20
GIB = 1 << 30


def start():
    global g
    g = Gateway(pool=2, h2=False)
    g.h2_port = free_port()
    g.store = g.path("store")
    os.mkdir(g.store, 0o700)
    subprocess.run(["chown", "www-data", g.store], check=True)
    g.options["http"] = "sandbox_zone sandbox:1m idle=2s; " \
        "sandbox_file_size 4g; sandbox_store %s; sendfile on;" % g.store
    g.options["server"] = "listen 127.0.0.1:%d http2;" % g.h2_port
    g.write("large", random.Random(9).randbytes(SIZE))
    with open(g.path("large"), "rb") as f:
        g.digest = hashlib.sha256(f.read()).hexdigest()
    g.start()


def stop():
    g.stop()


def curl(path, protocol, *options, stdin=None):
    """Status and SHA-256 of the body."""
    where = "http://127.0.0.1:%d%s" % (g.port if protocol == "--http1.1"
                                       else g.h2_port, path)
    out = g.path("got")
    p = subprocess.run(
        ["curl", "-sS", "--noproxy", "*", protocol, "-o", out, "-w",
         "%{http_code}", "-H", "Authorization: Bearer " + token(), *options,
         where], stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE,
        timeout=280, check=True)
    with open(out, "rb") as f:
        return int(p.stdout), hashlib.sha256(f.read()).hexdigest()


@test("files/large: 100 MiB up and down, with a length and without", 900)
def ways():
    for kind in ("fs", "files", "attachments"):
        for protocol in ("--http1.1", "--http2-prior-knowledge"):
            path = C % ("ways", kind) + "/large"
            for chunked in (False, True):
                if chunked:
                    with open(g.path("large"), "rb") as f:
                        status, _ = curl(path, protocol, "-T", "-", stdin=f)
                else:
                    status, _ = curl(path, protocol, "-T", g.path("large"))
                check(status in (200, 201), "PUT %s" % kind, status)
                same(curl(path, protocol), (200, g.digest),
                     (kind, protocol, chunked))
    same(g.output("ways", "sha256sum < large").split()[0], g.digest)
    same(g.output("ways", "sha256sum < attachments/large").split()[0],
         g.digest, "staged")


@test("files/large: from the sandbox to the panel")
def save():
    curl(C % ("save", "fs") + "/large", "--http1.1", "-T", g.path("large"))
    r = g.request("POST", C % ("save", "files"), {"path": "large"})
    same((r.status, r.json["size"]), (201, SIZE), r)
    same(curl(C % ("save", "files") + "/large", "--http1.1"),
         (200, g.digest))


@test("files/large: ranges beyond 32 bits", backends="local", why="disk")
def offsets():
    g.output("offsets", "truncate -s 5G sparse; for at in 2147483646 "
             "4294967294; do printf 0123456789 | dd of=sparse bs=1 "
             "seek=$at conv=notrunc status=none; done")
    path = C % ("offsets", "fs") + "/sparse"
    r = g.request("HEAD", path)
    same((r.status, r.headers["Content-Length"]), (200, str(5 * GIB)))
    for at in (2147483646, 4294967294):
        r = g.request("GET", path,
                      headers={"Range": "bytes=%d-%d" % (at, at + 9)})
        same((r.status, r.body, r.headers["Content-Range"]),
             (206, b"0123456789", "bytes %d-%d/%d" % (at, at + 9, 5 * GIB)))
    r = g.request("GET", path, headers={"Range": "bytes=-4"})
    same((r.status, r.body), (206, bytes(4)))
    r = g.request("GET", path, headers={"Range": "bytes=%d-" % (5 * GIB)})
    same(r.status, 416)


def refused(kind, length, body=b"", more=""):
    """The answer to a PUT whose body does not follow."""
    with socket.create_connection(("127.0.0.1", g.port), 150) as s:
        s.sendall(("PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s"
                   "\r\n%s\r\n%s\r\n" % (C % ("room", kind) + "/x", token(),
                                         length, more)).encode() + body)
        text = b""
        while b'"code"' not in text or b"}" not in text:
            piece = s.recv(65536)
            if not piece:
                break
            text += piece
    head, _, rest = text.partition(b"\r\n\r\n")
    start, end = rest.find(b"{"), rest.rfind(b"}")
    return int(head.split()[1]), json.loads(rest[start:end + 1])["code"]


@test("files/large: what can't have room is refused at once")
def room():
    g.output("room", "true")
    for kind in ("fs", "files", "attachments"):
        same(refused(kind, "Content-Length: %d" % (3 * GIB)),
             (507, "disk_full"), kind)
        same(refused(kind, "Content-Length: %d" % (4 * GIB + 1)),
             (413, "file_too_large"), kind)


@test("files/large: a disk that fills up on the way",
      backends="local", why="disk")
def full():
    """Of a length that is not known: as soon as there is no room."""
    g.output("room", "true")
    free = int(g.output("room", "df --output=avail -B1 . | tail -1"))
    g.output("room", "fallocate -l %d filler" % (free - (8 << 20)))
    piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    same(refused("fs", "Transfer-Encoding: chunked", piece * 16),
         (507, "disk_full"))
    g.output("room", "rm filler; ! test -e x")


@test("files/large: attachments of 150 MiB in all are staged")
def attachments():
    for name in ("a", "b", "c"):
        r = subprocess.run(["head", "-c", str(50 << 20), g.path("large")],
                           stdout=subprocess.PIPE, check=True)
        same(g.request("PUT", C % ("staged", "attachments") + "/" + name,
                       r.stdout).status, 201)
    same(g.output("staged", "cat attachments/* | wc -c; cat",
                  stdin="and stdin"), "%d\nand stdin" % (150 << 20))


@test("files/large: a transfer that takes longer than idle=2s", 60)
def idle():
    """Nothing else happens in the sandbox: it is in use all the same."""
    auth = "Authorization: Bearer %s\r\n" % token()
    g.output("idle", "head -c 40000000 /dev/zero > zeros")
    with socket.create_connection(("127.0.0.1", g.port), 200) as up, \
            socket.create_connection(("127.0.0.1", g.port), 200) as down:
        down.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        up.sendall(("PUT " + C % ("idle", "fs") + "/slow HTTP/1.1\r\n"
                    "Host: x\r\nContent-Length: 12\r\n" + auth
                    + "\r\n").encode())
        down.sendall(("GET " + C % ("idle", "fs") + "/zeros HTTP/1.1\r\n"
                      "Host: x\r\nConnection: close\r\n" + auth
                      + "\r\n").encode())
        got = len(down.recv(100))
        check(got, "no answer")             # so it is in use now
        before = g.status("idle")
        for _ in range(12):
            up.sendall(b"x")
            time.sleep(0.5)
        check(up.recv(1000).startswith(b"HTTP/1.1 201"), "PUT")
        while True:
            piece = down.recv(1 << 20)
            if not piece:
                break
            got += len(piece)
        check(40000000 < got < 40002000, "GET", got)
    after = g.status("idle")
    same(after["sandboxId"], before["sandboxId"])


main(start, stop)
