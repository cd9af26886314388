#!/usr/bin/env python3
"""Files that change or are held while a client reads them over HTTP: they
grow, shrink, are replaced, leased; group files of the cases."""

import http.client
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway                                  # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
V = "v1/conversations/"
SIZE = 48 << 20          # no buffers on its way take all of it


def start():
    global g
    g = Gateway(pool=2)
    g.options["http"] = "sandbox_store %s/store; sandbox_file_size 100m;" \
        % g.dir
    g.start()


def stop():
    g.stop()


def slow_get(conversation, path):
    """A GET whose answer has begun, and whose client does not read on."""
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=150)
    c.connect()
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    c.request("GET", "/sandbox/%s%s/fs/%s" % (V, conversation, path),
              headers=g.headers("", None, None))
    return c, c.getresponse()


@test("files/grows-while-read")
def grows():
    g.output("grow", "head -c %d /dev/zero > f" % SIZE)
    c, r = slow_get("grow", "f")
    same((r.status, int(r.headers["Content-Length"])), (200, SIZE))
    g.output("grow", "head -c %d /dev/urandom >> f" % SIZE)
    body = r.read()
    c.close()
    same((len(body), body.count(0)), (SIZE, SIZE))
    # while somebody writes to it without end, each answer is whole; a file
    # that is nearly too large to be read grows slowly
    writer = threading.Thread(target=g.run, args=("grow", "until [ -e go ]; "
                              "do for i in 1 2 3 4 5 6 7 8 9; do echo line; "
                              "done >> log; [ $((n++)) -lt 400000 ] || "
                              "sleep 0.05; done"))
    writer.start()
    seen, last = 0, 0
    begun = time.monotonic()
    while seen < 6 or time.monotonic() - begun < 4:
        check(time.monotonic() - begun < 250, "only %d reads" % seen)
        r = g.request("GET", V + "grow/fs/log")
        if r.status == 200:
            seen += 1
            # a write that goes over a page's end becomes longer in two steps
            whole = b"line\n" * (len(r.body) // 5 + 1)
            check(r.body == whole[:len(r.body)], "other bytes", r.body[-50:])
            check(len(r.body) >= last, "it became shorter")
            last = len(r.body)
        else:
            same(r.status, 404, repr(r))
    same(g.request("PUT", V + "grow/fs/go", b"").status, 201)
    writer.join()


@test("files/shrinks-while-read")
def shrinks():
    g.output("shrink", "head -c %d /dev/urandom > f" % SIZE)
    c, r = slow_get("shrink", "f")
    same((r.status, int(r.headers["Content-Length"])), (200, SIZE))
    g.output("shrink", ": > f")
    try:
        body = r.read()
        check(False, "an answer that seems whole", len(body))
    except (http.client.IncompleteRead, ConnectionError):
        pass
    c.close()
    # one that is replaced is read to its end as it was
    g.output("shrink", "head -c %d /dev/zero > f" % SIZE)
    c, r = slow_get("shrink", "f")
    same(r.status, 200)
    g.output("shrink", "echo new > g; mv g f")
    same(r.read(), bytes(SIZE))
    c.close()
    same(g.request("GET", V + "shrink/fs/f").body, b"new\n")
    # removed: the same
    g.output("shrink", "head -c %d /dev/zero > f" % SIZE)
    c, r = slow_get("shrink", "f")
    same(g.request("DELETE", V + "shrink/fs/f").status, 204)
    same(r.read(), bytes(SIZE))
    c.close()


@test("files/leased")
def leased():
    """An answer at once, not after the 45 s of a lease that nobody breaks."""
    g.output("lease", """echo old > f; (exec python3 -c '
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
f = os.open("f", os.O_RDWR)
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open("ready", "w")
time.sleep(100)' > /dev/null 2>&1 &)
while [ ! -e ready ]; do sleep 0.05; done""")
    begun = time.monotonic()
    for method, path, body in (("GET", "lease/fs/f", None),
                               ("POST", "lease/files", {"path": "f"})):
        r = g.request(method, V + path, body)
        same((r.status, r.json["code"]), (409, "file_busy"), path)
    same(g.request("HEAD", V + "lease/fs/f").status, 409)
    entries = g.request("GET", V + "lease/fs?list").json["entries"]
    check("f" in [e["name"] for e in entries], "entries", entries)
    same(g.request("PUT", V + "lease/fs/f", b"new").status, 200)
    same(g.request("GET", V + "lease/fs/f").body, b"new")
    same(g.request("DELETE", V + "lease/fs/f").status, 204)
    check(time.monotonic() - begun < 40, "it waited for the lease")


main(start, stop)
