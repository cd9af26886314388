#!/usr/bin/env python3
"""The container's file system over HTTP, with real containers: bytes in and
out, ranges, conditions, listings, what must not be reached; group files."""

import hashlib
import os
import random
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway                                  # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
C = "v1/conversations/%s/fs/%s"


def start():
    global g
    g = Gateway(pool=2)
    g.options["http"] = "sandbox_file_size 4m;"
    g.start()


def stop():
    g.stop()


def call(method, conversation, path, body=None, query="", **options):
    if isinstance(path, str):
        path = path.encode()
    return g.request(method, C % (conversation, urllib.parse.quote(path))
                     + query, body, **options)


def put(conversation, path, body, status=201, **options):
    r = call("PUT", conversation, path, body, **options)
    same(r.status, status, "PUT of %r: %r" % (path, r))
    return r


def get(conversation, path, status=200, **options):
    r = call("GET", conversation, path, **options)
    same(r.status, status, "GET of %r: %r" % (path, r))
    return r


def code(r, status, text):
    same((r.status, r.json["code"]), (status, text))


@test("files/roundtrip-bytes")
def roundtrip():
    every = bytes(range(256)) * 64
    for name, data in (("bin", every), ("empty", b""),
                       ("crlf.txt", b"a\r\nb\r\n\0"),
                       ("big", random.Random(7).randbytes(3 << 20))):
        r = put("round", name, data)
        same((r.json["path"], r.json["size"]), (name, len(data)))
        check(r.headers["ETag"] == r.json["etag"], r)
        again = get("round", name)
        check(again.body == data, "%s comes back as %d bytes"
              % (name, len(again.body)))
        same(again.headers["Content-Length"], str(len(data)))
        same(again.headers["ETag"], r.headers["ETag"])
        same(g.output("round", "sha256sum < " + name).split()[0],
             hashlib.sha256(data).hexdigest())


@test("files/upload-new-dirs")
def parents():
    put("dirs", "a/b/c/d.txt", b"deep")
    same(g.output("dirs", "cat a/b/c/d.txt; stat -c %U:%a a/b/c/d.txt"),
         "deepsandbox:644\n")


@test("files/exec-bit")
def mode():
    put("mode", "run.sh", b"#!/bin/sh\necho ran\n", query="?mode=755")
    same(g.output("mode", "./run.sh"), "ran\n")
    put("mode", "run.sh", b"#!/bin/sh\necho again\n", 200)
    same(g.output("mode", "./run.sh; stat -c %a run.sh"), "again\n755\n")
    for bad in ("", "8", "7777", "01777", "rwx"):
        code(call("PUT", "mode", "x", b"", "?mode=" + bad), 400,
             "bad_request")


@test("files/upload-then-use")
def then_use():
    put("use", "in.csv", b"a,b\n1,2\n3,4\n")
    g.output("use", "awk -F, 'NR>1{s+=$2}END{print s}' in.csv > out.txt")
    same(get("use", "out.txt").body, b"6\n")


@test("files/range")
def ranges():
    data = bytes(range(200))
    put("range", "r", data)

    for text, first, last in (("0-0", 0, 0), ("10-19", 10, 19),
                              ("190-", 190, 199), ("-5", 195, 199),
                              ("150-9999", 150, 199), ("-999", 0, 199)):
        r = get("range", "r", 206, headers={"Range": "bytes=" + text})
        same(r.body, data[first:last + 1])
        same(r.headers["Content-Range"], "bytes %d-%d/200" % (first, last))
        same(r.headers["Content-Length"], str(last - first + 1))

    for text in ("5-2", "0-1,4-5", "x-y", "-", "", "1"):
        r = get("range", "r", headers={"Range": "bytes=" + text})
        check(r.body == data and "Content-Range" not in r.headers, r)

    for text in ("200-", "-0", "500-600"):
        r = get("range", "r", 416, headers={"Range": "bytes=" + text})
        code(r, 416, "range_not_satisfiable")
        same(r.headers["Content-Range"], "bytes */200")

    tag = get("range", "r").headers["ETag"]
    for value, status in ((tag, 206), ('"other"', 200), ("W/" + tag, 200),
                          ("Tue, 15 Nov 1994 12:45:26 GMT", 200)):
        get("range", "r", status,
            headers={"Range": "bytes=1-2", "If-Range": value})


@test("files/etag")
def etags():
    r = put("etag", "e", b"one")
    tag = r.headers["ETag"]
    check(tag[0] == tag[-1] == '"', tag)

    for value in (tag, "*", '"x", ' + tag, "W/" + tag):
        r = get("etag", "e", 304, headers={"If-None-Match": value})
        check(r.body == b"" and r.headers["ETag"] == tag, r)
    get("etag", "e", 200, headers={"If-None-Match": '"x"'})
    get("etag", "e", 200, headers={"If-Match": tag})
    for value in ('"x"', "W/" + tag):
        code(get("etag", "e", 412, headers={"If-Match": value}), 412,
             "precondition_failed")
    code(get("etag", "e", 400, headers={"If-Match": "bare"}), 400,
         "bad_request")

    other = put("etag", "e", b"two", 200).headers["ETag"]
    check(other != tag, "a new content has the old tag")
    g.output("etag", "printf six > e")
    third = get("etag", "e").headers["ETag"]
    check(third not in (tag, other), "the tag knows no command's change")


@test("files/overwrite-rules")
def overwrite():
    tag = put("over", "o", b"1").headers["ETag"]
    code(call("PUT", "over", "o", b"2", headers={"If-None-Match": "*"}), 412,
         "precondition_failed")
    put("over", "o", b"3", 200, headers={"If-Match": tag})
    code(call("PUT", "over", "o", b"4", headers={"If-Match": tag}), 412,
         "precondition_failed")
    same(get("over", "o").body, b"3")
    put("over", "new", b"5", headers={"If-None-Match": "*"})
    code(call("PUT", "over", "", b""), 409, "is_a_directory")


@test("files/directory-as-file")
def directory():
    put("dir", "d/x", b"1")
    r = get("dir", "d")
    same([e["name"] for e in r.json["entries"]], ["x"])
    code(call("PUT", "dir", "d", b""), 409, "is_a_directory")
    code(call("GET", "dir", "d/x", query="?list"), 409, "not_a_directory")
    code(call("DELETE", "dir", "d"), 409, "not_empty")
    same(call("DELETE", "dir", "d", query="?recursive=1").status, 204)
    code(get("dir", "d", 404), 404, "file_not_found")


@test("files/list-large")
def listing():
    g.output("list", "mkdir big && cd big && seq -w 1 2500 | xargs touch"
                     " && ln -s 0001 zz && mkdir zy && printf abc > zx")
    seen, cursor, pages = [], "", 0
    while True:
        r = get("list", "big", query="?limit=1000" + cursor)
        seen += r.json["entries"]
        pages += 1
        if r.json["next"] is None:
            break
        cursor = "&cursor=" + r.json["next"]
    same((pages, len(seen)), (3, 2503))
    names = [e["name"] for e in seen]
    same(names, sorted(names))
    by_name = {e["name"]: e for e in seen}
    same(by_name["zz"]["target"], "0001")
    same([by_name[n]["type"] for n in ("0001", "zy", "zz")],
         ["file", "directory", "link"])
    same((by_name["zx"]["size"], by_name["zx"]["mode"]), (3, "0644"))
    check(by_name["zx"]["modifiedAt"][:2] == "20", by_name["zx"])
    same(len(get("list", "big").json["entries"]), 100)
    check("big" in [e["name"] for e in get("list", "").json["entries"]],
          "fs/ lists the home")
    check("usr" in [e["name"] for e in
                    get("list", "", query="?root=/&list").json["entries"]],
          "root=/ lists the root")
    for bad in ("?limit=0", "?limit=1001", "?cursor=%21", "?root=x"):
        code(get("list", "big", 400, query=bad), 400, "bad_request")


@test("files/names-odd")
def names():
    odd = ["report (1).txt", "it's.txt", "отчёт.xlsx", "🤣.txt",
           "a$b`c\"d.txt", "-rf", "trailing.", "trailing ", "new\nline.txt",
           "x" * 255, "100%.txt", "#x", "a?b=c", "back\\slash"]
    for name in odd:
        put("odd", name, name.encode())
    put("odd", b"\xff\xfe.bin", b"raw")
    for name in odd:
        same(get("odd", name).body, name.encode())
    entries = get("odd", "").json["entries"]
    check(set(odd) <= {e["name"] for e in entries}, entries)
    same([e["nameBase64"] for e in entries if "nameBase64" in e],
         ["//4uYmlu"])
    for name in odd + [b"\xff\xfe.bin"]:
        same(call("DELETE", "odd", name).status, 204)
    check(not {e["name"] for e in get("odd", "").json["entries"]}
          & set(odd), "all are gone")


@test("files/content-disposition")
def headers():
    for name, kind, how in (("a.png", "image/png", "inline"),
                            ("a.html", "application/octet-stream",
                             "attachment"),
                            ("a.txt", "text/plain; charset=utf-8", "inline"),
                            ("a.svg", "application/octet-stream",
                             "attachment")):
        put("head", name, b"<script>")
        for method in ("GET", "HEAD"):
            r = call(method, "head", name)
            same(r.headers["Content-Type"], kind)
            check(r.headers["Content-Disposition"].startswith(how), r)
            same(r.headers["Cache-Control"], "private, no-cache")
            same(r.headers["X-Content-Type-Options"], "nosniff")
            same(r.headers["Content-Security-Policy"], "sandbox")
            same(r.headers["Content-Length"], "8")
            check(r.headers["Last-Modified"].endswith("GMT"), r)
            same(r.body, b"<script>" if method == "GET" else b"")
    same(call("HEAD", "head", "").status, 200)
    same(call("HEAD", "head", "none").status, 404)


@test("files/traversal files/symlink-out files/delete-roots")
def outside():
    g.output("out", "ln -s /etc/passwd in; ln -s ../../../../etc up;"
                    " ln -s /root dirlink; ln -s self self")
    code(get("out", "in", 422), 422, "path_outside")
    code(get("out", "up/passwd", 422), 422, "path_outside")
    code(call("PUT", "out", "up/x", b""), 422, "path_outside")
    check(get("out", "self", 422).json["code"]
          in ("not_a_file", "path_outside"), "a link to itself")
    code(call("DELETE", "out", "", query="?recursive=1"), 422,
         "path_outside")
    for raw in ("../x", "a/../../x", "%2e%2e/x", "a%2fb"):
        r = g.request("GET", "v1/conversations/out/fs/" + raw)
        check(r.status in (400, 404), r)
    same(call("DELETE", "out", "in").status, 204)
    same(g.output("out", "head -c 4 /etc/passwd"), "root")


@test("files/symlink-inside")
def inside():
    put("in", "real.txt", b"content")
    g.output("in", "ln -s real.txt link.txt")
    same(get("in", "link.txt").body, b"content")
    put("in", "link.txt", b"changed", 200)
    same(g.output("in", "cat real.txt; readlink link.txt"),
         "changedreal.txt\n")


@test("files/fifo files/devices-proc")
def special():
    g.output("fifo", "mkfifo f")
    begun = time.monotonic()
    code(get("fifo", "f", 422), 422, "not_a_file")
    for path in ("dev/zero", "proc/self/environ", "proc/1/mem"):
        r = call("GET", "fifo", path, query="?root=/")
        check(r.status in (404, 422), r)
    check(time.monotonic() - begun < 20, "answered at once")


@test("concurrency/files-while-running")
def running():
    put("busy", "seed", b"1")
    c = g.connect()
    body = b'{"command":"sleep 5; cat late","commandId":"slow"}'
    c.request("POST", "/sandbox/v1/conversations/busy/commands", body,
              g.headers("", body, None))
    deadline = time.monotonic() + 30
    while g.request("GET", "v1/conversations/busy/commands/slow").status \
            == 404 and time.monotonic() < deadline:
        time.sleep(0.05)
    put("busy", "late", b"came meanwhile")
    same(get("busy", "seed").body, b"1")
    state = g.request("GET", "v1/conversations/busy/commands/slow").json
    same(state.get("state"), "running")
    r = c.getresponse()
    check(b"came meanwhile" in r.read(), "the command sees the file")
    c.close()


@test("a sandbox is made by PUT only")
def no_sandbox():
    code(get("never", "x", 404), 404, "no_sandbox")
    code(call("DELETE", "never", "x"), 404, "no_sandbox")
    put("never", "x", b"makes one")
    same(g.output("never", "cat x"), "makes one")


@test("a file that is too large")
def too_large():
    code(call("PUT", "large", "x", bytes((4 << 20) + 1)), 413,
         "file_too_large")
    p = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "PUT",
         "-H", "Transfer-Encoding: chunked", "-H", "Authorization: "
         + g.headers("", None, None)["Authorization"], "--data-binary", "@-",
         "http://127.0.0.1:%d/sandbox/%s" % (g.port, C % ("large", "y"))],
        input=bytes((4 << 20) + 1), stdout=subprocess.PIPE, timeout=60,
        check=False)
    same(p.stdout, b"413")
    put("large", "z", b"")
    same([e["name"] for e in get("large", "").json["entries"]
          if e["name"] in "xyz"], ["z"])


@test("files/atomic-upload")
def atomic():
    put("atomic", "a", b"old")
    c = g.connect()
    c.putrequest("PUT", "/sandbox/" + C % ("atomic", "a"))
    for name, value in g.headers("", None, None).items():
        c.putheader(name, value)
    c.putheader("Content-Length", "100000")
    c.endheaders()
    c.send(bytes(50000))
    same(get("atomic", "a").body, b"old")
    c.close()
    same(get("atomic", "a").body, b"old")
    left = {e["name"] for e in get("atomic", "").json["entries"]
            if e["type"] != "directory"}
    same(left, {"a", "pyproject.toml", "uv.lock"})


main(start, stop)
