#!/usr/bin/env python3
"""The Files panel: what a browser is told of a file, ranges, conditions,
signed links, readers; 50 MiB up and down without memory.  Group files."""

import base64
import glob
import hashlib
import io
import os
import random
import subprocess
import sys
import threading
import time
import urllib.parse
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import h2                                                     # noqa: E402
from gateway import SLOW, Gateway, free_port, token, wait_for # noqa: E402
from tap import check, main, same, test                       # noqa: E402

g = None
F = "v1/conversations/%s/files"
READER = {"permissions": ["files:read"]}


def start():
    global g
    g = Gateway(runner="mock", workers=1, location="""
        sandbox_permission_read files:read;
    """)
    g.store = g.dir + "/store"
    g.h2_port = free_port()
    g.plain_port = free_port()
    g.options["http"] = """
        sandbox_store %s;
        sandbox_file_size 64m;
        sendfile on;
        gzip on;
        gzip_types text/plain;
        server {
            listen 127.0.0.1:%d http2;
            http2_max_concurrent_streams 300;
            location /sandbox/ {
                sandbox on; sandbox_jwt_secret_file %s/jwt.key;
            }
        }
        server {
            listen 127.0.0.1:%d;
            sendfile off;
            location /sandbox/ {
                sandbox on; sandbox_jwt_secret_file %s/jwt.key;
            }
            location /plain/ { alias %s/plain/; }
        }
    """ % (g.store, g.h2_port, g.dir, g.plain_port, g.dir, g.dir)
    g.options["server"] = """
        location /other/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_realm other;
        }
    """ % g.dir
    g.start()


def stop():
    g.stop()


def url(conversation, name, query=""):
    if isinstance(name, str):
        name = name.encode()
    return F % conversation + "/" + urllib.parse.quote(name, safe="") + query


def put(conversation, name, data, status=201, **options):
    r = g.request("PUT", url(conversation, name), data, **options)
    same(r.status, status, "PUT %r" % name)
    return r


def get(conversation, name, headers=None, **options):
    return g.request("GET", url(conversation, name), headers=headers,
                     **options)


def archive(first):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name in ("docProps/app.xml", first, "[Content_Types].xml"):
            z.writestr(name, "<x/>")
    return out.getvalue()


PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQ"
                       "VR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
OFFICE = "application/vnd.openxmlformats-officedocument."


@test("files/types-by-content")
def types():
    for name, data, kind, shown in (
            ("a.png", PNG, "image/png", 1),
            ("a.html", PNG, "image/png", 1),
            ("a.png", b"<html><script>alert(1)</script>",
             "text/plain; charset=utf-8", 1),
            ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>",
             "text/plain; charset=utf-8", 1),
            ("a.txt", "отчёт\n".encode(), "text/plain; charset=utf-8", 1),
            ("a.txt", b"\xff\xfe<\0h\0", "application/octet-stream", 0),
            ("a.jpg", b"\xff\xd8\xff\xe0" + bytes(20), "image/jpeg", 1),
            ("a.gif", b"GIF89a" + bytes(20), "image/gif", 1),
            ("a.webp", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", 1),
            ("a.pdf", b"%PDF-1.7\n%\xe2\xe3", "application/pdf", 0),
            ("a.zip", archive("x/y"), "application/zip", 0),
            ("a.bin", archive("xl/workbook.xml"), OFFICE
             + "spreadsheetml.sheet", 0),
            ("a.bin", archive("word/document.xml"), OFFICE
             + "wordprocessingml.document", 0),
            ("a", b"", "application/x-empty", 0),
            ("a.exe", b"\x7fELF" + bytes(9), "application/octet-stream", 0)):
        g.request("PUT", url("types", name), data)
        r = get("types", name)
        same(r.headers["Content-Type"], kind, name)
        same(r.headers["Content-Disposition"].split(";")[0],
             "inline" if shown else "attachment", "%s %s" % (name, kind))
        same(r.headers["X-Content-Type-Options"], "nosniff")
        same(r.headers["Content-Security-Policy"], "sandbox")
        same(r.headers["Cache-Control"], "private, no-cache")
        check("no-store" not in r.headers["Cache-Control"], "kept nowhere")
        entry = g.request("GET", F % "types").json["files"]
        same([e["type"] for e in entry if e["name"] == name], [kind], "list")


@test("files/content-disposition")
def disposition():
    for name, ascii_name, other in (
            ("a.txt", "a.txt", False), ("a b;c.txt", "a b;c.txt", False),
            ("it's.txt", "it's.txt", False), ("отчёт.xlsx", "_____.xlsx", True),
            ("🤣.txt", "_.txt", True), ("a\"b\\c.txt", "a_b_c.txt", True),
            ("new\r\nSet-Cookie: x=1", "new__Set-Cookie: x=1", True),
            ("100%.txt", "100_.txt", True), ("-rf", "-rf", False),
            ("x" * 255, "x" * 255, False), ("Ж" * 127, "_" * 127, True),
            (b"\xff.txt", "_.txt", False)):
        put("disposition", name, b"x")
        r = get("disposition", name)
        same(r.status, 200)
        values = r.headers.get_all("Content-Disposition")
        same(len(values), 1, "headers")
        check("Set-Cookie" not in r.headers, "a header came of a name")
        value = values[0]
        check(value.isascii() and value.isprintable(), value)
        check(value.startswith('inline; filename="%s"' % ascii_name), value)
        star = value.partition("; filename*=UTF-8''")[2]
        same(bool(star), other, "filename* of %r" % name)
        if other:
            same(urllib.parse.unquote(star), name)


@test("files/range")
def ranges():
    data = bytes(i % 251 for i in range(1000))
    put("range", "x", data)
    for text, status, content, body in (
            ("bytes=0-0", 206, "bytes 0-0/1000", data[:1]),
            ("bytes=5-", 206, "bytes 5-999/1000", data[5:]),
            ("bytes=-5", 206, "bytes 995-999/1000", data[-5:]),
            ("bytes=0-999999", 206, "bytes 0-999/1000", data),
            ("bytes=999-", 206, "bytes 999-999/1000", data[999:]),
            ("bytes=-2000", 206, "bytes 0-999/1000", data),
            ("bytes=1000-", 416, "bytes */1000", None),
            ("items=0-1", 200, None, data),
            ("bytes=5-4", 200, None, data),
            ("bytes=0-1,5-4", 200, None, data),
            ("bytes=x", 200, None, data)):
        for port in (g.port, g.plain_port):
            r = g.request("GET", url("range", "x"), headers={"Range": text},
                          connection=connect(port))
            same((r.status, r.headers["Content-Range"]), (status, content),
                 text)
            check(status != 200 or r.headers["Accept-Ranges"] == "bytes",
                  "ranges are not offered")
            if status == 416:
                same(r.json["code"], "range_not_satisfiable")
                same(len(r.headers.get_all("Cache-Control")), 1)
                check("Content-Disposition" not in r.headers, "of a problem")
            else:
                check(r.body == body, "other bytes: " + text)
    r = g.request("GET", url("range", "x"), headers={"Range":
                                                     "bytes=0-1,5-6"})
    same(r.status, 206)
    check(r.headers["Content-Type"].startswith("multipart/byteranges"),
          "several ranges", r)
    for part, piece in ((b"bytes 0-1/1000", data[:2]),
                        (b"bytes 5-6/1000", data[5:7])):
        check(part in r.body and piece in r.body, "a part is missing", part)
    # If-Range with an old tag: all of it
    tag = get("range", "x").headers["ETag"]
    same(get("range", "x", {"Range": "bytes=0-1", "If-Range": tag}).status,
         206)
    same(get("range", "x", {"Range": "bytes=0-1", "If-Range": '"old"'})
         .status, 200)
    put("range", "empty", b"")
    check(get("range", "empty", {"Range": "bytes=0-0"}).status in (200, 416),
          "a range of nothing")


def connect(port):
    import http.client
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


@test("files/etag")
def etag():
    put("etag", "x", b"one")
    r = get("etag", "x")
    tag = r.headers["ETag"]
    same(tag, '"%s"' % hashlib.sha256(b"one").hexdigest()[:32])
    for value in (tag, "*", '"a", ' + tag, "W/" + tag):
        r = get("etag", "x", {"If-None-Match": value})
        same((r.status, r.body), (304, b""), value)
        same(r.headers["ETag"], tag)
    put("etag", "x", b"two", 200)       # same length, same second
    r = get("etag", "x", {"If-None-Match": tag})
    same((r.status, r.body), (200, b"two"))
    check(r.headers["ETag"] != tag, "one tag for two contents")
    r = get("etag", "x", {"If-Match": tag})
    same((r.status, r.json["code"]), (412, "precondition_failed"))
    same(len(r.headers.get_all("Cache-Control")), 1)
    same(get("etag", "x", {"If-Match": r.headers.get("ETag") or "*"}).status,
         200)
    last = get("etag", "x").headers["Last-Modified"]
    same(get("etag", "x", {"If-Modified-Since": last}).status, 304)
    r = g.request("HEAD", url("etag", "x"))
    same((r.status, r.body, r.headers["Content-Length"]), (200, b"", "3"))
    # conditions of a request that changes things are not those of its answer
    r = g.request("PUT", url("etag", "x"), b"three", headers={
        "If-Match": get("etag", "x").headers["ETag"]})
    same(r.status, 200)


@test("files/roundtrip-panel")
def roundtrip():
    noise = random.Random(9).randbytes(3 << 20)
    for data in (b"", b"x", bytes(range(256)), noise):
        g.request("PUT", url("bytes", "data"), data)
        for port in (g.port, g.plain_port):
            r = g.request("GET", url("bytes", "data"),
                          connection=connect(port))
            check(r.body == data, "other bytes", len(data), port)
        out = curl(url("bytes", "data"), g.h2_port,
                   "--http2-prior-knowledge")
        check(out == data, "other bytes by HTTP/2", len(data))


def curl(path, port, *options):
    return subprocess.run(
        ["curl", "-sS", "--noproxy", "*", "-H", "Authorization: Bearer "
         + token(), *options, "http://127.0.0.1:%d/sandbox/%s"
         % (port, path)], capture_output=True, timeout=300 * SLOW,
        check=True).stdout


@test("files/gzip")
def gzip():
    """nginx may compress what is text: the tag says that it did."""
    put("gzip", "x", b"text " * 1000)
    r = get("gzip", "x", {"Accept-Encoding": "gzip"})
    same((r.status, r.headers.get("Content-Encoding")), (200, "gzip"))
    check(r.headers["ETag"].startswith("W/"), "a strong tag")
    same(get("gzip", "x", {"If-None-Match": r.headers["ETag"]}).status, 304)


@test("files/overwrite-while-read")
def overwrite_while_read():
    """Who reads goes on reading what was there."""
    old, new = b"o" * (8 << 20), b"n" * (8 << 20)
    put("reading", "x", old)
    c = g.connect()
    c.request("GET", "/sandbox/" + url("reading", "x"), None,
              g.headers("", None, None))
    r = c.getresponse()
    begun = r.read(1000)
    put("reading", "x", new, 200)
    check(begun + r.read() == old, "a mixture")
    c.close()
    check(get("reading", "x").body == new, "not the new one")


@test("auth/readers-files")
def readers():
    """The permission of readers: GET and HEAD, nothing else, no link."""
    who = token(**READER)
    put("readers", "x", b"x")
    for method, path, status in (
            ("GET", F % "readers", 200), ("GET", url("readers", "x"), 200),
            ("HEAD", url("readers", "x"), 200),
            ("GET", "v1/conversations/readers/attachments", 200),
            ("PUT", url("readers", "y"), 403),
            ("DELETE", url("readers", "x"), 403),
            ("POST", url("readers", "x") + "/link", 403),
            ("POST", "v1/conversations/readers/attachments?name=x", 403)):
        r = g.request(method, path, b"" if method in ("PUT", "POST") else None,
                      token=who)
        same(r.status, status, "%s %s" % (method, path))
    same(get("readers", "x", token=token(permissions=["x"])).status, 403)


def link(conversation, name, query="", **options):
    r = g.request("POST", url(conversation, name) + "/link" + query,
                  **options)
    same(r.status, 200, "link")
    return r.json["url"]


@test("files/link")
def links():
    put("link", "chart.png", PNG)
    put("link", "other", b"other")
    before = time.time()
    r = g.request("POST", url("link", "chart.png") + "/link")
    after = time.time()
    where = r.json["url"]
    check(where.startswith("/sandbox/dl/"), where)
    expires = time.mktime(time.strptime(r.json["expiresAt"][:19],
                                        "%Y-%m-%dT%H:%M:%S")) - time.timezone
    check(before + 590 < expires <= after + 601, "not ten minutes", r.json)
    r = g.request("GET", where, token=None)
    same((r.status, r.body), (200, PNG))
    same(r.headers["Content-Type"], "image/png")
    same(r.headers["Content-Security-Policy"], "sandbox")
    same(g.request("HEAD", where, token=None).status, 200)
    same(g.request("GET", where, token=None, headers={
        "Range": "bytes=0-3"}).body, PNG[:4])
    # a token of whoever does not matter, neither good nor bad
    same(g.request("GET", where, token="nonsense").status, 200)
    for method in ("PUT", "DELETE", "POST"):
        r = g.request(method, where, b"x", token=None)
        check(r.status in (401, 405), method, r)
    # longest name and id
    put("c" * 128, "Ж" * 127, b"long")
    same(g.request("GET", link("c" * 128, "Ж" * 127), token=None).body,
         b"long")


@test("files/link-forged")
def forged():
    put("link", "chart.png", PNG, 201 if get("link", "chart.png").status
        == 404 else 200)
    where = link("link", "chart.png")
    start_, text = where.rsplit("/", 1)
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    wrong = set()
    for i in range(len(raw)):
        for bit in (1, 0x80):
            bad = bytearray(raw)
            bad[i] ^= bit
            r = g.request("GET", start_ + "/" + base64.urlsafe_b64encode(bad)
                          .rstrip(b"=").decode(), token=None)
            wrong.add((r.status, r.json["code"]))
    for bad in ("x", "A" * 40, "A" * 3000, text[:-1], text[:40], text + "A",
                text + text, "%00", "..%5c", text[:-43],
                base64.urlsafe_b64encode(raw[:-32] + bytes(32)).rstrip(b"=")
                .decode()):
        r = g.request("GET", start_ + "/" + bad, token=None)
        if bad == "%00":
            same(r.status, 400)
        else:
            wrong.add((r.status, r.json["code"]))
    same(wrong, {(403, "bad_link")})
    # of another realm, on another path
    same(g.request("GET", "/other/dl/" + text, token=None).status, 403)
    same(g.request("GET", where, token=None).status, 200, "still good")


@test("files/link-expired")
def expired():
    put("expire", "x", b"one")
    where = link("expire", "x", "?seconds=1")
    changed = link("expire", "x")
    end = time.monotonic() + 20
    while True:
        r = g.request("GET", where, token=None)
        if r.status != 200 or time.monotonic() > end:
            break
        time.sleep(0.1)
    same((r.status, r.json["code"]), (410, "link_expired"))
    same(g.request("GET", changed, token=None).body, b"one")
    put("expire", "x", b"two", 200)
    r = g.request("GET", changed, token=None)
    same((r.status, r.json["code"]), (410, "link_expired"), "another content")
    put("expire", "x", b"one", 200)
    same(g.request("GET", changed, token=None).status, 200, "the same again")
    same(g.request("DELETE", url("expire", "x")).status, 204)
    same(g.request("GET", changed, token=None).status, 404, "it is gone")
    same(g.request("POST", url("expire", "x") + "/link").status, 404)
    put("expire", "x", b"one")
    for query in ("?seconds=0", "?seconds=601", "?seconds=x", "?seconds=-1"):
        same(g.request("POST", url("expire", "x") + "/link" + query).status,
             400, query)
    # who may not read it gets no link
    same(g.request("POST", url("expire", "x") + "/link",
                   token=token(sub="bob")).status, 404)


@test("files/link-reload")
def reloaded():
    put("reload", "x", b"stays")
    where = link("reload", "x")
    g.reload()
    same(g.request("GET", where, token=None).body, b"stays")
    check("stays" not in g.read("logs/access.log"), "content in a log")


@test("files/variables")
def variables():
    same(g.request("GET", url("none", "x")).status, 404)
    same(g.request("GET", F % "none").json, {"files": [], "next": None})


def pss():
    """Without what is mapped from files: who else has those open changes."""
    total = 0
    for pid in g.workers():
        with open("/proc/%d/smaps_rollup" % pid) as f:
            total += sum(int(line.split()[1]) for line in f
                         if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total


@test("files/large-no-memory", 1100)
def memory():
    """50 MiB, 50 times, with a length and without, both protocols."""
    size = 50 << 20
    g.write("large", random.Random(4).randbytes(size))
    digest = hashlib.sha256(open(g.path("large"), "rb").read()).hexdigest()
    plain = (g.port, "--http1.1")
    h2 = (g.h2_port, "--http2-prior-knowledge")

    def transfer(port, protocol, up, stdin):
        where = "http://127.0.0.1:%d/sandbox/%s" % (port, url("large", "x"))
        options = ["-T", "-" if stdin else g.path("large")] if up else []
        with open(g.path("large"), "rb") as f:
            out = subprocess.run(
                ["curl", "-sS", "--noproxy", "*", protocol, "-H",
                 "Authorization: Bearer " + token(), "-o", g.path("got"),
                 "-w", "%{http_code} %{time_total}", *options, where],
                stdin=f if stdin else subprocess.DEVNULL,
                capture_output=True, timeout=400, check=True).stdout.split()
        check(out[0] in (b"200", b"201"), protocol, out)
        if not up:
            with open(g.path("got"), "rb") as f:
                same(hashlib.sha256(f.read()).hexdigest(), digest, "bytes")
        return float(out[1])

    ways = [(*w, up, stdin) for w in (plain, h2)
            for up, stdin in ((True, False), (True, True), (False, False))]
    for way in ways:
        transfer(*way)
    # each thread of the pool has its stack and its arena: all of them have
    # had a whole file before anything is measured
    for _ in range(5):
        threads = [threading.Thread(target=lambda n: [
            g.request("PUT", url("warm", b"%d-%d" % (n, i)), b"x")
            for i in range(5)], args=(n,)) for n in range(16)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    before = pss()
    times = {}
    n = 2 if os.environ.get("SANDBOX_TEST_NGINX") else 50
    for i in range(n):
        way = ways[i % len(ways)]
        times.setdefault(way[1:], []).append(transfer(*way))
    grown = pss() - before
    print("# %d transfers of 50 MiB: %+d KiB of Pss; medians %s" % (
        n, grown, ", ".join("%s %s%s %.2f s" % (
            w[0].strip("-")[:5], "up" if w[1] else "down",
            " chunked" if w[2] else "", sorted(t)[len(t) // 2])
            for w, t in times.items())))
    if not os.environ.get("SANDBOX_TEST_NGINX"):
        check(grown <= 1024, "Pss grew by %d KiB" % grown)
    same(os.listdir(g.store + "/.tmp"), [])


@test("files/many-at-once")
def many():
    """A hundred uploads, then as many downloads, over one connection."""
    data = {b"%d" % i: random.Random(i).randbytes(1000 * i)
            for i in range(100)}
    auth = (("authorization", "Bearer " + token()),)
    with h2.Connection(g.h2_port, 300 * SLOW) as c:
        up = [c.request("PUT", "/sandbox/" + url("many", n), auth, d)
              for n, d in data.items()]
        same(c.wait(*up), [201] * 100, "PUT")
        down = {n: c.request("GET", "/sandbox/" + url("many", n), auth)
                for n in data}
        same(c.wait(*down.values()), [200] * 100, "GET")
    for n, stream in down.items():
        check(stream.body == data[n], "other bytes", n)


@test("files/stream-reset")
def reset():
    """Streams that are reset in mid-upload and mid-download."""
    put("reset", "x", b"x" * (4 << 20))
    auth = (("authorization", "Bearer " + token()),)
    for _ in range(20):
        with h2.Connection(g.h2_port, 300 * SLOW) as c:
            one = c.request("GET", "/sandbox/" + url("reset", "x"), auth)
            # its last byte never comes, however late the other one begins
            two = c.request("PUT", "/sandbox/" + url("reset", "x"), auth
                            + (("content-length", str((2 << 20) + 1)),),
                            b"y" * (2 << 20))
            while len(one.body) < 20000:
                c.one()
            for stream in (one, two):
                stream.sent = True
                c.sock.sendall(c.frame(h2.RST, 0, stream.number,
                                       b"\0\0\0\x08"))
            # and the connection is good for others
            same(c.wait(c.request("GET", "/sandbox/" + F % "reset", auth)),
                 [200])
    check(get("reset", "x").body == b"x" * (4 << 20), "another content")
    wait_for(lambda: not os.listdir(g.store + "/.tmp"), 20, "an empty .tmp")


@test("files/reader-gone")
def gone():
    """Clients that go away in the middle of a download leave nothing open."""
    put("gone", "x", b"x" * (16 << 20))

    def leave():
        c = g.connect()
        c.request("GET", "/sandbox/" + url("gone", "x"), None,
                  g.headers("", None, None))
        c.getresponse().read(10000)
        c.close()
    threads = [threading.Thread(target=leave) for _ in range(20)]
    [t.start() for t in threads]
    [t.join() for t in threads]

    def held():
        n = 0
        for pid in g.workers():
            for fd in glob.glob("/proc/%d/fd/*" % pid):
                try:
                    n += g.store in os.readlink(fd)
                except OSError:
                    pass
        return n
    wait_for(lambda: held() == 0, 20, "the end of open files")


main(start, stop)
