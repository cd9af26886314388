#!/usr/bin/env python3
"""The container's file system over HTTP, with real containers: bytes in and
out, ranges, conditions, listings, what must not be reached; group files.
files_h2.py has them once more over HTTP/2."""

import base64
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import h2                                                    # noqa: E402
import mcp                                                   # noqa: E402
from gateway import H2, Gateway, wait_for                    # noqa: E402
from tap import BACKEND, check, main, same, skip, test       # noqa: E402

g = None
C = "v1/conversations/%s/fs/%s"
V = "v1/conversations/"
MB = 1 << 20


def start():
    global g
    g = Gateway(pool=2)
    g.options["http"] = "sandbox_file_size 9m; sandbox_store %s/store;" \
        % g.dir
    g.described = True
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


BYTES = (("every", bytes(range(256))), ("empty", b""), ("one", b"x"),
         ("crlf.txt", b"a\r\nb\r\n"), ("nul", b"a\r\nb\0"),
         ("big", random.Random(7).randbytes(8 * MB)))


@test("files/roundtrip-bytes")
def roundtrip():
    for name, data in BYTES:
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


@test("files/roundtrip-bytes: attached, saved")
def roundtrip_store():
    for name, data in BYTES:
        for kind in ("attachments", "files"):
            r = g.request("PUT", V + "bytes/%s/%s" % (kind, name), data)
            same((r.status, r.json["size"]), (201, len(data)))
            r = g.request("GET", V + "bytes/%s/%s" % (kind, name))
            check(r.body == data, "other bytes", kind, name, len(r.body))
        # into the sandbox, and out of it
        r = g.request("POST", V + "bytes/commands", {
            "command": "sha256sum < attachments/" + name})
        same(r.json["stdout"].split()[0], hashlib.sha256(data).hexdigest())
        r = g.request("POST", V + "bytes/files", {
            "path": "attachments/" + name, "name": "saved-" + name})
        same((r.status, r.json["size"]), (201, len(data)))
        r = g.request("GET", V + "bytes/files/saved-" + name)
        check(r.body == data, "other bytes, saved", name, len(r.body))


@test("files/upload-new-dirs")
def parents():
    put("dirs", "a/b/c/d.txt", b"deep")
    same(g.output("dirs", "touch a/b/x a/b/c/x && cat a/b/c/d.txt && "
                  "stat -c %U:%G:%a a a/b a/b/c a/b/c/d.txt"),
         "deep" + "sandbox:sandbox:755\n" * 3 + "sandbox:sandbox:644\n")
    # a folder that is a link to one within, and one that is a file
    g.output("dirs", "ln -s a link; : > file")
    put("dirs", "link/b/new/f", b"1")
    same(g.output("dirs", "cat a/b/new/f"), "1")
    code(call("PUT", "dirs", "file/x", b""), 409, "not_a_directory")


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
    put("use", "data.csv", b"a,b\n1,2\n")
    size, owner, now = g.output(
        "use", "wc -c < data.csv; stat -c '%U:%G %a' data.csv; "
        "echo $(($(date +%s) - $(stat -c %Y data.csv)))").splitlines()
    same((size, owner), ("8", "sandbox:sandbox 644"))
    check(-2 <= int(now) < 600, "its time is %s s off" % now)
    put("use", "in.csv", b"a,b\n1,2\n3,4\n")
    g.output("use", "awk -F, 'NR>1{s+=$2}END{print s}' in.csv > out.txt")
    same(get("use", "out.txt").body, b"6\n")


@test("files/range")
def ranges():
    data = bytes(n % 251 for n in range(1000))
    put("range", "r", data)
    same(get("range", "r").headers["Accept-Ranges"], "bytes")

    for text, first, last in (("0-0", 0, 0), ("10-19", 10, 19),
                              ("5-", 5, 999), ("-5", 995, 999),
                              ("999-", 999, 999), ("0-999999", 0, 999),
                              ("-2000", 0, 999)):
        r = get("range", "r", 206, headers={"Range": "bytes=" + text})
        same(r.body, data[first:last + 1])
        same(r.headers["Content-Range"], "bytes %d-%d/1000" % (first, last))
        same(r.headers["Content-Length"], str(last - first + 1))

    for text in ("bytes=5-4", "bytes=0-1,5-6", "bytes=x-y", "bytes=-",
                 "bytes=", "bytes=1", "items=0-1"):
        r = get("range", "r", headers={"Range": text})
        check(r.body == data and "Content-Range" not in r.headers, r)

    for text in ("1000-", "-0", "5000-6000"):
        r = get("range", "r", 416, headers={"Range": "bytes=" + text})
        code(r, 416, "range_not_satisfiable")
        same(r.headers["Content-Range"], "bytes */1000")

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
    # the Files panel: not by accident, but there is a way
    save = V + "over/files"
    r = g.request("POST", save, {"path": "o"})
    same((r.status, r.json["name"]), (201, "o"))
    first = r.json["etag"]
    put("over", "o", b"new", 200)
    r = g.request("POST", save, {"path": "o"})
    code(r, 409, "file_exists")
    check("overwrite" in r.json["detail"], "what to do", r)
    same(g.request("GET", save + "/o").body, b"3")
    r = g.request("POST", save, {"path": "o", "overwrite": True})
    same((r.status, r.json["size"]), (200, 3))
    check(r.json["etag"] != first, "an old tag")
    code(g.request("PUT", save + "/o", b"6", headers={"If-Match": first}),
         412, "precondition_failed")
    same(g.request("GET", save + "/o").body, b"new")
    # by a time: of what is read, but no change is made by half a condition
    past = {"If-Unmodified-Since": "Tue, 15 Nov 1994 12:45:26 GMT"}
    for path in (save + "/o", V + "over/fs/o"):
        for method in ("PUT", "DELETE"):
            r = g.request(method, path, b"7" if method == "PUT" else None,
                          headers=past)
            code(r, 400, "bad_request")
            check("If-Match" in r.json["detail"], "what to do", r)
        check(g.request("GET", path).body == b"new", "changed", path)
    code(g.request("GET", save + "/o", headers=past), 412,
         "precondition_failed")
    r = g.request("PUT", save + "/o", b"8", headers=dict(past, **{
        "If-Match": "*"}))
    same(r.status, 200)


@test("files/directory-as-file")
def directory():
    put("dir", "d/x", b"1")
    r = get("dir", "d")
    same([e["name"] for e in r.json["entries"]], ["x"])
    code(call("PUT", "dir", "d", b""), 409, "is_a_directory")
    code(call("GET", "dir", "d/x", query="?list"), 409, "not_a_directory")
    code(call("GET", "dir", "d/x/y"), 409, "not_a_directory")
    same(call("HEAD", "dir", "d").status, 200)
    # a slash at the end changes nothing
    same([e["name"] for e in get("dir", "d/").json["entries"]], ["x"])
    code(call("PUT", "dir", "d/", b""), 409, "is_a_directory")
    same(get("dir", "d/x/").body, b"1")
    for path in ("d", "./d//", ".", "/", "/home/sandbox"):
        code(g.request("POST", V + "dir/files", {"path": path, "name": "n"}),
             409, "is_a_directory")
    code(g.request("POST", V + "dir/files", {"path": ""}), 400, "bad_request")
    r = g.request("POST", V + "dir/files", {"path": ".//d/./x"})
    same((r.status, r.json["name"]), (201, "x"))
    code(g.request("POST", V + "dir/files", {"path": "d/x/y"}), 409,
         "not_a_directory")
    code(call("DELETE", "dir", "d"), 409, "not_empty")
    same(call("DELETE", "dir", "d", query="?recursive=1").status, 204)
    code(get("dir", "d", 404), 404, "file_not_found")


@test("files/list-large", seconds=900)
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


@test("files/list-large: tens of thousands", seconds=900)
def listing_larger():
    """A page has what was asked for, says that there is more, and costs
    nginx no more than that; files_wire.py has a hundred thousand."""
    g.output("many", "mkdir many; cd many; seq -f '%06g' 30000 | xargs touch")
    before = memory()
    r = get("many", "many")
    same([e["name"] for e in r.json["entries"]],
         ["%06d" % n for n in range(1, 101)])
    check(r.json["next"], "there is more", r)
    cursor = ""
    for n in range(1, 4001, 1000):
        r = get("many", "many", query="?limit=1000" + cursor)
        same([e["name"] for e in r.json["entries"]],
             ["%06d" % i for i in range(n, n + 1000)])
        cursor = "&cursor=" + r.json["next"]
    last = base64.urlsafe_b64encode(b"029990").rstrip(b"=").decode()
    r = get("many", "many", query="?cursor=" + last)
    same((len(r.json["entries"]), r.json["next"]), (10, None))
    check(memory() - before < 4096, "memory of nginx grew by %d KiB"
          % (memory() - before))
    same(call("DELETE", "many", "many", query="?recursive=1").status, 204)


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
    for name in ("отчёт (1).txt", "🤣.txt", "a\"b;c'd\\e.txt",
                 "new\r\nSet-Cookie: x=1"):
        put("head", name, b"x")
        r = get("head", name)
        value, = r.headers.get_all("Content-Disposition")
        check(value.isascii() and "Set-Cookie" not in r.headers, r)
        same(urllib.parse.unquote(value.partition("filename*=UTF-8''")[2]),
             name)


@test("files/traversal")
def traversal():
    """No spelling leads out of a root, or to bytes from outside."""
    g.output("trav", "true")
    sums = g.output("trav", "sha256sum /etc/passwd /etc/hostname; ls /")
    for raw in ("../../etc/passwd", "%2e%2e%2f", "..%2f", "..", "%2e%2e",
                "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%252e%252e%252f",
                "%252e%252e%252fetc%252fpasswd", "/etc/passwd", "a%2fb",
                "foo/../../x", "..%5c..%5cx", ".%00.", "x%00", "////etc/passwd",
                "%c0%ae%c0%ae/x", "..;/x", "../fs/../../../x"):
        for kind in ("fs", "attachments", "files"):
            path = V + "trav/%s/%s" % (kind, raw)
            for method in ("GET", "DELETE"):
                r = g.request(method, path)
                check(r.status in (400, 404), "%s %s" % (method, path), r)
                check(b"root:" not in r.body, "bytes from outside", r)
            if "etc" not in raw or "%" in raw:
                r = g.request("PUT", path, b"x")
                check(r.status in (201, 400, 404, 405, 409), "PUT " + path, r)
    same(g.output("trav", "sha256sum /etc/passwd /etc/hostname; ls /"), sums)
    # encoded twice, or in another alphabet: a strange name, no path
    found = [e["name"] for e in get("trav", "").json["entries"]]
    check({"%2e%2e%2f", "..\\..\\x"} <= set(found), "names", found)
    for path in ("../../etc/passwd", "../x", "a/../../x", "/../etc/passwd",
                 ".."):
        r = g.request("POST", V + "trav/files", {"path": path, "name": "p"})
        check(r.status in (400, 422), path, r)
    same([n for n in (f["name"] for f in g.request(
        "GET", V + "trav/files").json["files"]) if n == "p"], [])


def all_ways(conversation, path, status, text, skip=""):
    """Reads and writes of it in all ways there are: the same refusal."""
    for method, query in (("GET", ""), ("PUT", ""), ("GET", "?list"),
                          ("HEAD", "")):
        if method + query in skip.split():
            continue
        begun = time.monotonic()
        r = call(method, conversation, path, b"x" if method == "PUT" else None,
                 query)
        check(time.monotonic() - begun < 50, "it waited", method, path)
        same(r.status, status, "%s %s: %r" % (method, path, r))
        if method != "HEAD":
            same(r.json["code"], text, r)
    r = g.request("POST", V + conversation + "/files",
                  {"path": path, "name": "saved"})
    code(r, status, text)


def listed(conversation, path=""):
    return {e["name"]: e for e in
            get(conversation, path, query="?list&limit=1000")
            .json["entries"]}


@test("files/symlink-out")
def outside():
    sums = g.output("out", "ln -s /etc/passwd x; ln -s ../../etc/passwd rel;"
                    " ln -s ../../../../etc up; ln -s /usr/bin dirlink;"
                    " ln -s /proc/self/root/etc/passwd magic;"
                    " sha256sum /etc/passwd")
    for path in ("x", "rel", "up/passwd", "dirlink/env", "magic"):
        all_ways("out", path, 422, "path_outside")
    for path in ("up", "dirlink"):
        code(get("out", path, 422), 422, "path_outside")
        code(call("PUT", "out", path + "/new", b""), 422, "path_outside")
        code(call("DELETE", "out", path + "/passwd"), 422, "path_outside")
    entries = listed("out")
    for name, target in (("x", "/etc/passwd"), ("up", "../../../../etc")):
        same((entries[name]["type"], entries[name]["target"]),
             ("link", target))
    for name in ("x", "up", "dirlink"):
        same(call("DELETE", "out", name).status, 204)
        check(name not in listed("out"), "it is still there", name)
    same(g.output("out", "sha256sum /etc/passwd"), sums)


@test("files/delete-roots")
def delete_roots():
    g.output("roots", "echo 1 > kept; mkdir d; echo 1 > /tmp/kept")
    for path, query in (("", ""), (".", ""), ("", "?root=/"),
                        ("home/sandbox", "?root=/"), ("tmp", "?root=/"),
                        ("skills", "?root=/"), ("home", "?root=/"),
                        ("usr", "?root=/"), ("etc/passwd", "?root=/"),
                        ("proc", "?root=/"), ("dev/shm", "?root=/"),
                        ("./.", ""), ("d/..", ""), ("d/../..", "")):
        for more in ("", "recursive=1"):
            query_ = query + ("&" if query else "?") + more if more else query
            r = g.request("DELETE", V + "roots/fs/" + path + query_)
            check(r.status in (400, 403, 404, 409, 422), path, query_, r)
    r = g.request("DELETE", V + "roots/fs?recursive=1")
    check(r.status in (400, 404, 405, 409, 422), r)
    for kind in ("attachments", "files"):
        for path in ("", "/", "/.", "/..", "/%2e"):
            r = g.request("DELETE", V + "roots/" + kind + path)
            check(r.status in (400, 404, 405), kind, path, r)
    same(g.output("roots", "cat kept /tmp/kept; ls -d d /skills; head -c 4 "
                  "/etc/passwd"), "1\n1\n/skills\nd\nroot")


@test("files/symlink-inside")
def inside():
    put("in", "data/real.txt", b"content")
    g.output("in", "ln -s data/real.txt link.txt; ln -s data folder;"
                   " ln -s /home/sandbox/data/real.txt absolute;"
                   " ln -s nothing dangling; ln -s self self;"
                   " ln -s l2 l1; ln -s l1 l2")
    for path in ("link.txt", "absolute", "folder/real.txt"):
        same(get("in", path).body, b"content", path)
        put("in", path, path.encode(), 200)
        same(get("in", "data/real.txt").body, path.encode())
        put("in", path, b"content", 200)
    same(g.output("in", "cat data/real.txt; readlink link.txt absolute"),
         "contentdata/real.txt\n/home/sandbox/data/real.txt\n")
    r = g.request("POST", V + "in/files", {"path": "link.txt"})
    same((r.status, r.json["name"], r.json["size"]), (201, "link.txt", 7))
    for path in ("dangling", "dangling/x"):
        code(get("in", path, 404), 404, "file_not_found")
    code(g.request("POST", V + "in/files", {"path": "dangling"}), 404,
         "file_not_found")
    for path in ("self", "l1"):
        all_ways("in", path, 422, "not_a_file")
    same([listed("in")[n]["type"] for n in ("link.txt", "dangling", "self")],
         ["link"] * 3)


@test("files/fifo")
def fifo():
    g.output("fifo", "mkfifo f; ln -s f to-f")
    for path in ("f", "to-f"):
        all_ways("fifo", path, 422, "not_a_file")
    r = call("GET", "fifo", "f")
    check("FIFO" in r.json["detail"] or "regular file" in r.json["detail"],
          "what it is", r)
    same(listed("fifo")["f"]["type"], "other")
    same(call("DELETE", "fifo", "f").status, 204)
    check("f" not in listed("fifo"), "it is still there")


@test("files/devices-proc")
def devices():
    g.output("dev", "for n in /dev/zero /dev/random /dev/null /proc/self/mem "
             "/proc/kmsg /proc/self/environ /proc/1/environ /proc/self/exe; "
             "do ln -s $n $(basename $n); done; python3 -c 'import socket; "
             "socket.socket(socket.AF_UNIX).bind(\"sock\")'")
    before = memory()
    for path in ("zero", "random", "null", "mem", "kmsg", "environ", "exe"):
        for method in ("GET", "PUT"):
            begun = time.monotonic()
            r = call(method, "dev", path, b"x" if method == "PUT" else None)
            check(r.status == 422 and r.json["code"] in (
                "path_outside", "not_a_file", "not_permitted"), path, r)
            check(time.monotonic() - begun < 50, "it waited", path)
    all_ways("dev", "sock", 422, "not_a_file")
    for path in ("dev/zero", "dev/null", "proc/self/environ", "proc/1/mem",
                 "proc/kmsg", "proc/cpuinfo", "sys/kernel"):
        begun = time.monotonic()
        r = call("GET", "dev", path, query="?root=/")
        check(r.status in (404, 422), path, r)
        check(time.monotonic() - begun < 50, "it waited", path)
    for text in ("mknod z c 1 5", "mknod b b 7 0", "mknod /tmp/k c 1 11"):
        r = g.run("dev", text)
        check(r["exitCode"] and "not permitted" in r["stderr"], text, r)
    check(memory() - before < 4096, "memory of nginx grew by %d KiB"
          % (memory() - before))


def memory():
    """Of nginx's workers, what is theirs alone, in KiB."""
    total = 0
    for pid in g.workers():
        with open("/proc/%d/smaps_rollup" % pid) as f:
            total += sum(int(line.split()[1]) for line in f
                         if line.startswith("Pss_Anon:"))
    return total


@test("files/path-injection")
def injection():
    """Paths are never code, whoever takes them."""
    words = ["$(touch ran)", "`touch ran`", "'; touch ran; '", "\"; touch ran",
             "a\ntouch ran\n", "'; import os; os.system('touch ran') #",
             "| touch ran", "&& touch ran", "%s%n%x", "${IFS}touch${IFS}ran",
             "-exec touch ran ;", "{{7*7}}", "\\x24(touch ran)"]
    for word in words:
        put("inject", "in/" + word, b"1")
        same(get("inject", "in/" + word).body, b"1")
        r = g.request("PUT", V + "inject/attachments/"
                      + urllib.parse.quote(word, safe=""), b"2")
        same(r.status, 201)
        r = g.request("POST", V + "inject/files", {"path": "in/" + word})
        same((r.status, r.json["name"]), (201, word))
        r = g.command("inject", "cat ./* | head -c 9", cwd="/home/sandbox/"
                      + word)
        code(r, 422, "cwd_missing")
        call("GET", "inject", "in", query="?list&cursor=" + base64
             .urlsafe_b64encode(word.encode()).rstrip(b"=").decode())
    same(sorted(listed("inject", "in")), sorted(words))
    same(sorted(listed("inject", "attachments")), sorted(words))
    r = g.run("inject", "printf '%s' \"$WORD\"; pwd",
              cwd="/home/sandbox/in", env={"WORD": words[0]})
    same(r["stdout"], words[0] + "/home/sandbox/in\n")
    for word in words:
        same(call("DELETE", "inject", "in/" + word).status, 204)
    same(g.output("inject", "find / -xdev -name ran -not -path '/proc/*' "
                  "2>/dev/null; true"), "")


@test("files/path-injection files/symlink-out: by tools")
def injection_tools():
    c = mcp.Client(g, "tools")
    g.output("tools", "mkdir in; ln -s /etc/passwd out; ln -s /etc up")
    for word in ("$(touch ran)", "'; touch ran; '", "a\ntouch ran\n",
                 "'; import os; os.system('touch ran') #", "-exec", "--pre=sh",
                 "*", "{a,b}", "[x", "(", "\\"):
        path = "in/" + word
        c.done("save_file", path=path, content="needle " + word)
        check(word in json.dumps(c.call("read_file", path=path),
                                 ensure_ascii=False)
              or "\n" in word or "\\" in word or '"' in word, "read", word)
        look = dict(pattern=word, literal=True, path="in")
        if "\n" in word:
            same(c.refused("search_files", **look), "bad_pattern")
        else:
            found = c.done("search_files", **look)
            check(found["matches"], "search for", word, found)
        c.done("edit_file", path=path, old_string="needle",
               new_string=word)
        same(get("tools", path).body, (word + " " + word).encode())
        c.done("delete_file", path=path)
    for path in ("out", "up/passwd", "../../etc/passwd"):
        for tool, more in (("read_file", {}), ("save_file", {"content": "x"}),
                           ("edit_file", {"old_string": "root",
                                         "new_string": "x"}),
                           ("download_file", {})):
            same(c.refused(tool, path=path, **more), "path_outside",
                 tool + " " + path)
    same(c.done("search_files", pattern="root", path="in")["matches"], [])
    same(g.output("tools", "ls ran in 2>/dev/null; head -c 4 /etc/passwd"),
         "in:\nroot")


BASE64 = (
    ("", b""), ("YQ==", b"a"), ("YWI=", b"ab"), ("YWJj", b"abc"),
    ("AP/+", b"\0\xff\xfe"), ("+/+/", b"\xfb\xff\xbf"),
    ("YQ", None), ("YQ=", None), ("YQ===", None), ("YWJjYQ", None),
    ("YR==", None), ("YWJ=", None), ("=", None), ("====", None),
    ("YQ==YQ==", None), ("YQ==YWJj", None), ("-_-_", None),
    ("YW Jj", None), (" YWJj", None), ("YWJj ", None),
    ("YWJj\n", None), ("YW\nJj", None), ("YW\r\nJj", None),
    ("YWJj\0", None), ("YWJ\u00e9", None), ("YQ==\"", None),
    ("YQ=='; touch ran; '", None), ("YQ==$(touch ran)", None),
    ("data:text/plain;base64,YQ==", None))


@test("files/base64-strict")
def strict():
    """Decoded exactly, or refused; never guessed, nothing run."""
    for text, expected in BASE64:
        r = g.command("strict", "base64 -w0", stdinBase64=text)
        if expected is None:
            code(r, 400, "bad_request")
            check("stdinBase64" in r.json["detail"], "which field", r)
        else:
            same((r.status, r.json["stdout"]),
                 (200, base64.b64encode(expected).decode()), text)
    big = random.Random(5).randbytes(100000)
    r = g.run("strict", "sha256sum", stdinBase64=base64.b64encode(big)
              .decode())
    same(r["stdout"].split()[0], hashlib.sha256(big).hexdigest())
    c = mcp.Client(g, "strict")
    for text, expected in BASE64:
        r = c.request("tools/call", {"name": "upload_file", "arguments": {
            "path": "up", "contentBase64": text}}).json
        if expected is None:
            check("error" in r or r["result"]["isError"], text, r)
        else:
            check(not r["result"]["isError"], text, r)
            same(get("strict", "up").body, expected, text)
    same(g.output("strict", "ls ran 2>/dev/null; true"), "")


@test("files/name-as-reported")
def reported():
    """What the client is told is what the next command opens."""
    name = "my file.csv"
    r = g.request("PUT", V + "told/attachments/my%20file.csv", b"a,b\n")
    told = "attachments/" + r.json["name"]
    same(told, "attachments/" + name)
    script = "import sys; sys.stdout.write(open(sys.stdin.read()).read())"
    read = "python3 -c '%s'" % script
    same(g.run("told", read, stdin=told)["stdout"], "a,b\n")
    r = g.request("POST", V + "told/attachments?name=my%20file.csv", b"c\n")
    check(r.json["name"] != name, r)
    same(g.run("told", read, stdin="attachments/" + r.json["name"])["stdout"],
         "c\n")
    r = put("told", "out dir/my file.csv", b"d\n")
    same(g.run("told", read, stdin=r.json["path"])["stdout"], "d\n")
    r = put("told", "tmp/my file.csv", b"e\n", query="?root=/")
    same(g.run("told", read, stdin="/" + r.json["path"])["stdout"], "e\n")
    # one that the user's command changed: the notice has the new one's name
    g.output("told", "echo mine > 'attachments/my file.csv'")
    g.request("PUT", V + "told/attachments/my%20file.csv", b"new\n")
    notice, = g.run("told", "true")["stagingNotices"]
    same((notice["name"], notice["code"]), (name, "renamed"))
    found = [n for n in listed("told", "attachments") if n in notice["detail"]
             and n != name]
    same(len(found), 1, notice)
    same(g.run("told", read, stdin="attachments/" + found[0])["stdout"],
         "new\n")
    same(g.run("told", read, stdin=told)["stdout"], "mine\n")
    # and by the paths of a listing
    for entry in get("told", "out dir").json["entries"]:
        same(get("told", "out dir/" + entry["name"]).body, b"d\n")


@test("concurrency/files-while-running")
def running():
    put("busy", "seed", b"1")
    out = []
    t = threading.Thread(target=lambda: out.append(g.command(
        "busy", "while [ ! -e go ]; do sleep 0.05; done; cat late",
        commandId="slow")))
    t.start()
    wait_for(lambda: g.request("GET", V + "busy/commands/slow").status == 200,
             30, "the command")
    put("busy", "late", b"came meanwhile")
    same(get("busy", "seed").body, b"1")
    state = g.request("GET", V + "busy/commands/slow").json
    same(state.get("state"), "running")
    put("busy", "go", b"")
    t.join(150)
    same(out[0].json["stdout"], "came meanwhile", out)


@test("a sandbox is made by PUT only")
def no_sandbox():
    code(get("never", "x", 404), 404, "no_sandbox")
    code(call("DELETE", "never", "x"), 404, "no_sandbox")
    put("never", "x", b"makes one")
    same(g.output("never", "cat x"), "makes one")


@test("a file that is too large")
def too_large():
    """Told by its length, and while it comes."""
    body = bytes(9 * MB + 1)
    if H2:
        # curl often does not tell an answer that comes while it sends
        with h2.Connection(g.port, 250) as c:
            for name in "xy":
                stream = c.request("PUT", "/sandbox/" + C % ("large", name),
                                   tuple(g.headers("", None, None).items()),
                                   body)
                same(c.wait(stream), [413])
    else:
        code(call("PUT", "large", "x", body), 413, "file_too_large")
        p = subprocess.run(
            ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X",
             "PUT", "-H", "Transfer-Encoding: chunked", "-H",
             "Authorization: " + g.headers("", None, None)["Authorization"],
             "--data-binary", "@-", "http://127.0.0.1:%d/sandbox/%s"
             % (g.port, C % ("large", "y"))],
            input=body, stdout=subprocess.PIPE, timeout=250, check=False)
        same(p.stdout, b"413")
    put("large", "z", b"")
    same([e["name"] for e in get("large", "").json["entries"]
          if e["name"] in "xyz"], ["z"])


def begin(path, body, chunked):
    """A PUT of which half is there; ends it by what is called."""
    headers = g.headers("", None, None)
    half = len(body) // 2
    if H2:
        c = h2.Connection(g.port, 250)
        stream = c.request("PUT", "/sandbox/" + path,
                           tuple(headers.items()), body)
        while len(stream.todo) > half and not stream.done:
            c.one()
        return c.sock.close
    c = g.connect()
    c.putrequest("PUT", "/sandbox/" + path)
    for name, value in headers.items():
        c.putheader(name, value)
    if chunked:
        c.putheader("Transfer-Encoding", "chunked")
    else:
        c.putheader("Content-Length", str(len(body)))
    c.endheaders()
    c.send((b"%x\r\n" % len(body) if chunked else b"") + body[:half])
    return c.close


@test("files/atomic-upload", seconds=900)
def atomic():
    old = random.Random(1).randbytes(3 * MB)
    new = random.Random(2).randbytes(8 * MB)
    put("atomic", "big.bin", old)
    for kind in ("attachments", "files"):
        same(g.request("PUT", V + "atomic/%s/big.bin" % kind, old).status,
             201)
    # a volume of an engine has no size of its own
    free = "sync; df --output=used -k / | tail -n 1" if BACKEND == "local" \
        else "du -sk ~ | cut -f 1"
    used = int(g.output("atomic", free))
    for chunked in (False, True):
        for kind in ("fs", "attachments", "files"):
            end = begin(V + "atomic/%s/big.bin" % kind, new, chunked)
            path = V + "atomic/%s/big.bin" % kind
            check(g.request("GET", path).body == old, "meanwhile", kind)
            end()
            check(g.request("GET", path).body == old, "afterwards", kind)
    left = {e["name"] for e in get("atomic", "").json["entries"]
            if e["type"] != "directory"}
    same(left, {"big.bin", "pyproject.toml", "uv.lock"})
    for kind in ("attachments", "files"):
        r = g.request("GET", V + "atomic/" + kind)
        same([(f["name"], f["size"]) for f in r.json[kind]],
             [("big.bin", 3 * MB)])
    wait_for(lambda: int(g.output("atomic", free)) < used + 1024, 20,
             "its room in the sandbox")
    wait_for(lambda: not os.listdir(g.dir + "/store/.tmp"), 20,
             "an empty .tmp of the store")
    same(g.output("atomic", "sha256sum big.bin attachments/big.bin | "
                  "cut -c-64 | uniq"), hashlib.sha256(old).hexdigest() + "\n")


@test("http/pipelined-after-refusal: an upload that was refused early")
def early():
    """The rest of the body may still come: nginx will close, and says so."""
    if H2:
        skip("the streams of HTTP/2 end apart")
    g.output("early", "ln -s /etc out")
    for chunked in (False, True):
        c = g.connect()
        c.putrequest("PUT", "/sandbox/" + C % ("early", "out/passwd"))
        for name, value in g.headers("", None, None).items():
            c.putheader(name, value)
        c.putheader(*(("Transfer-Encoding", "chunked") if chunked
                      else ("Content-Length", "100")))
        c.endheaders()
        r = c.getresponse()
        same((r.status, r.headers["Connection"]), (422, "close"))
        r.read()
        c.close()
    # nginx's own refusal of an answer that was begun
    same(g.request("PUT", V + "early/files/f", b"x").status, 201)
    c = g.connect()
    for header, value in (("If-Match", '"x"'), ("If-Unmodified-Since",
                                                "Tue, 15 Nov 1994 12:45:26 "
                                                "GMT")):
        r = g.request("GET", V + "early/files/f", headers={header: value},
                      connection=c)
        same((r.status, r.headers["Connection"]), (412, "close"))
    c.close()
    # one that is all here costs no connection
    c = g.connect()
    for _ in range(3):
        r = call("PUT", "early", "out/passwd", b"", connection=c)
        same((r.status, r.headers["Connection"]), (422, "keep-alive"))
    c.close()


main(start, stop)
