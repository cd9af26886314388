#!/usr/bin/env python3
"""Names that people, and those who mean harm, give their files: attached,
staged, read by a command, listed, read, saved, downloaded, linked to and
deleted under exactly that name; and those that are refused, everywhere alike.
Group files of the cases."""

import base64
import os
import re
import sys
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway                                  # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
V = "v1/conversations/"

NAMES = [n.encode() for n in (
    "report (1).txt", "it's.txt", "отчёт.xlsx", "🤣.txt", "a$b`c\"d.txt",
    "-rf", "--help", "x" * 255, "ж" * 127 + "x", "🤣" * 63 + "abc",
    "trailing.", "trailing ", " leading", " ", "new\nline.txt",
    "cr\r\nSet-Cookie: a=b", "tab\tand\x07bell\x1b[31m\x7f", "CON", "nul.txt",
    "%2e%2e", "%2F", "%00", "%41.txt", "100%.txt", "..hidden", "...",
    ".hidden", "e\u0301.txt", "\u00e9.txt", "\u202ecod.exe", "\ufeffbom.txt",
    "\u2028.txt", "a;b=c, d.txt", "#x", "a?b=c", "a&b+c", "a:b|c<d>e*",
    "back\\slash\\..\\x", "~", "~root", "$HOME.txt", "$(touch x)",
    "'; import os #", "{a,b}", "[a-z]", "*", "@", "null", "Case.txt",
    "case.txt", "x.meta", "usage", ".tmp", "link", "list")]

# what is not UTF-8: a lone byte, a surrogate, an overlong "/", cut short
BYTES = [b"\xff\xfe.bin", b"\xed\xa0\x80.txt", b"\xc0\xaf", b"cut\xe2\x82",
         b"\x80", b"caf\xe9.csv", b"\xff" * 255]
ALL = NAMES + BYTES

# and a path that has a segment like it
REFUSED = [b"x" * 256, "ж".encode() * 128, "🤣".encode() * 64]


def start():
    global g
    g = Gateway(pool=2)
    g.options["http"] = "sandbox_store %s/store;" % g.dir
    g.described = True
    g.start()
    g.connection = g.connect()


def stop():
    g.connection.close()
    g.stop()


def quote(name):
    return urllib.parse.quote(name, safe="")


def url(conversation, kind, name=None, more=""):
    return V + conversation + "/" + kind \
        + ("" if name is None else "/" + quote(name)) + more


def call(method, path, body=None, status=None, **options):
    r = g.request(method, path, body, connection=g.connection, **options)
    if status is not None:
        same(r.status, status, "%s %s: %r" % (method, path[:100], r))
    return r


def told(entry):
    """The bytes of a name, as a client has them of a list."""
    if "nameBase64" in entry:
        raw = base64.b64decode(entry["nameBase64"])
        same(raw.decode("utf-8", "surrogateescape").isprintable()
             and raw.isascii(), False, "nameBase64 of what is UTF-8")
        return raw
    return entry["name"].encode()


def listed(conversation, kind):
    """All names in a list, and that it has them by their bytes, in pages."""
    plural = "entries" if kind.startswith("fs") else kind
    out, cursor = [], ""
    while cursor is not None:
        r = call("GET", url(conversation, kind) + "?limit=25" + cursor,
                 status=200)
        out += [told(e) for e in r.json[plural]]
        cursor = r.json["next"] and "&cursor=" + r.json["next"]
    same(out, sorted(out), "the order")
    return out


def disposition(r, name):
    """One line of ASCII, and a client that reads it has the name."""
    values = r.headers.get_all("Content-Disposition")
    same(len(values), 1, "headers of %r" % name)
    check("Set-Cookie" not in r.headers, "a header came of a name")
    found = re.fullmatch(
        r'(inline|attachment); filename="([ -~]*)"'
        r"(?:; filename\*=UTF-8''([A-Za-z0-9!#$&+.^_`|~%-]+))?", values[0])
    check(found, "Content-Disposition", values[0])
    _, plain, star = found.groups()
    check(not re.search(r'["\\/%]', plain), "a fallback that is no name", plain)
    if star:
        same(urllib.parse.unquote_to_bytes(star), name, "filename*")
    elif name not in BYTES:
        same(plain.encode(), name, "filename")
    return found.group(1)


READ = """import os, sys
out = []
for n in sys.stdin.buffer.read().split(b"\\0")[:-1]:
    with open(n, "rb") as f:
        out.append(f.read() + b"\\0")
out.append(b"\\0")
out += [n + b"\\0" for n in sorted(os.listdir(b"."))]
sys.stdout.buffer.write(b"".join(out))"""


def read_by_command(conversation, folder, names):
    """What a command reads by exactly those names, and what it finds."""
    out = g.run(conversation, "mkdir -p %s; cd %s; python3 -c '%s'"
                % (folder, folder, READ), query="?encoding=base64",
                stdinBase64=base64.b64encode(
                    b"".join(n + b"\0" for n in names)).decode())
    same((out["exitCode"], base64.b64decode(out["stderrBase64"])), (0, b""),
         "that command")
    same(out["stagingNotices"], [], "notices")
    read, _, found = base64.b64decode(out["stdoutBase64"]).partition(
        b"\0\0" if names else b"\0")
    return read.split(b"\0") if names else [], found.split(b"\0")[:-1]


@test("files/names-odd: attached")
def attached():
    for name in ALL:
        r = call("PUT", url("att", "attachments", name), b"of " + name, 201)
        same(told(r.json), name, "the answer")
    same(listed("att", "attachments"), sorted(ALL))
    for name in ALL:
        r = call("GET", url("att", "attachments", name), status=200)
        same(r.body, b"of " + name)
        disposition(r, name)


@test("files/names-odd: staged, and read by that name")
def staged():
    contents, found = read_by_command("att", "attachments", ALL)
    same(contents, [b"of " + n for n in ALL])
    same(found, sorted(ALL))
    # by the container's files, too
    same(listed("att", "fs/attachments"), sorted(ALL))
    for name in ALL:
        r = call("GET", url("att", "fs/attachments", name), status=200)
        same(r.body, b"of " + name)
        disposition(r, name)


@test("files/names-odd: removed, and out of the sandbox with the next command")
def removed():
    for name in ALL[::2]:
        call("DELETE", url("att", "attachments", name), status=204)
        call("GET", url("att", "attachments", name), status=404)
    same(read_by_command("att", "attachments", [])[1], sorted(ALL[1::2]))
    for name in ALL[1::2]:
        call("DELETE", url("att", "attachments", name), status=204)
    same(listed("att", "attachments"), [])
    same(read_by_command("att", "attachments", [])[1], [])


@test("files/names-odd: in the container")
def container():
    for n, name in enumerate(ALL):
        r = call("PUT", url("fs", "fs/d", name), b"%d" % n, 201)
        same(r.json["size"], len(b"%d" % n))
    same(read_by_command("fs", "d", ALL),
         ([b"%d" % n for n in range(len(ALL))], sorted(ALL)))
    same(listed("fs", "fs/d"), sorted(ALL))
    for n, name in enumerate(ALL):
        r = call("GET", url("fs", "fs/d", name), status=200)
        same(r.body, b"%d" % n)
        disposition(r, name)
        r = call("HEAD", url("fs", "fs/d", name), status=200)
        same(r.headers["Content-Length"], str(len(b"%d" % n)))
    # made by commands, found by the client
    g.output("fs", "cd d && for f in ./* ./.[!.]* ./..?*; do "
             "[ -e \"$f\" ] && mv -- \"$f\" \"$f.\" 2>/dev/null; done; true")
    renamed = [n + b"." if len(n) < 255 else n for n in ALL]
    same(listed("fs", "fs/d"), sorted(renamed), "after the renames")
    for name in renamed:
        call("DELETE", url("fs", "fs/d", name), status=204)
    same(listed("fs", "fs/d"), [])


@test("files/name-as-reported: folders, too")
def folders():
    """The path that is told is the path."""
    for name in ALL[::3]:
        path = name + b"/" + name[:40] + b"/f"
        quoted = urllib.parse.quote(path)
        r = call("PUT", V + "dirs/fs/d/" + quoted, name, 201)
        same(base64.b64decode(r.json["pathBase64"]) if "pathBase64" in r.json
             else r.json["path"].encode(), b"d/" + path)
        same(call("GET", V + "dirs/fs/d/" + quoted, status=200).body, name)
    same(g.output("dirs", "find d -type f -printf x"), "x" * len(ALL[::3]))
    for name in ALL[::3]:
        call("DELETE", url("dirs", "fs/d", name) + "?recursive=1", status=204)
    same(listed("dirs", "fs/d"), [])


@test("files/names-odd: saved, downloaded, linked to")
def saved():
    for name in ALL:
        call("PUT", url("save", "fs/d", name), b"save " + name, 201)
    for name in NAMES:
        r = call("POST", url("save", "files"),
                 {"path": "d/" + name.decode()}, 201)
        same(told(r.json), name, "the answer")
    # JSON has no words for those: another name, by a command or a PUT
    for name in BYTES:
        call("PUT", url("save", "files", name), b"save " + name, 201)
    same(listed("save", "files"), sorted(ALL))
    for name in ALL:
        r = call("GET", url("save", "files", name), status=200)
        same(r.body, b"save " + name)
        disposition(r, name)
        r = call("HEAD", url("save", "files", name), status=200)
        same(r.headers["Content-Length"], str(5 + len(name)))
        where = call("POST", url("save", "files", name, "/link"),
                     status=200).json["url"]
        check(re.fullmatch(r"/sandbox/dl/[A-Za-z0-9_./-]+", where), where)
        r = call("GET", where, token=None, status=200)
        same(r.body, b"save " + name)
        disposition(r, name)
    for name in ALL:
        call("DELETE", url("save", "files", name), status=204)
        call("GET", url("save", "files", name), status=404)
    same(listed("save", "files"), [])


@test("files/attachments-same-name: free names")
def free():
    for given, taken in (
            ("a.png", "a (2).png"), ("отчёт.xlsx", "отчёт (2).xlsx"),
            ("без имени", "без имени (2)"), (".hidden", ".hidden (2)"),
            ("a.tar.gz", "a.tar (2).gz"), ("-rf", "-rf (2)"), ("x" * 255, None),
            ("ж" * 125 + ".txt", None), ("🤣" * 63, None),
            ("trailing.", None), ("e\u0301.txt", "e\u0301 (2).txt")):
        query = "?name=" + quote(given.encode())
        for n, expected in enumerate((given, taken)):
            r = call("POST", url("free", "attachments") + query,
                     b"%d" % n, 201)
            name = r.json["name"]
            check(name == expected or expected is None, "got", name, expected)
            check(len(name.encode()) <= 255, "a name that is too long", name)
            where = r.headers["Location"]
            same(call("GET", where, status=200).body, b"%d" % n)
            same(where, "/sandbox/" + url("free", "attachments",
                                          name.encode()))
    names = listed("free", "attachments")
    same(len(names), len(set(names)))
    contents, found = read_by_command("free", "attachments", names)
    same(found, names)
    check(set(contents) == {b"0", b"1"}, "their contents", contents)


def code(r, status, text):
    same((r.status, r.json["code"]), (status, text), r)


@test("files/names-odd: refused alike")
def refused():
    g.output("bad", "true")
    for name in REFUSED:
        for kind in ("attachments", "files"):
            for method in ("PUT", "GET", "HEAD", "DELETE"):
                r = call(method, url("bad", kind, name),
                         b"x" if method == "PUT" else None)
                same(r.status, 400, "%s of a long name" % method)
                if method != "HEAD":
                    code(r, 400, "bad_name")
                    check("255 bytes" in r.json["detail"], "the limit", r)
        code(call("POST", url("bad", "files", name, "/link")), 400,
             "bad_name")
        code(call("POST", url("bad", "attachments") + "?name=" + quote(name),
                  b"x"), 400, "bad_name")
        code(call("POST", url("bad", "files"),
                  {"path": ".bashrc", "name": name.decode()}), 400,
             "bad_name")
        for method in ("PUT", "GET", "DELETE"):
            r = call(method, url("bad", "fs/d", name),
                     b"x" if method == "PUT" else None)
            code(r, 400, "bad_path")
            check("255 bytes" in r.json["detail"], method, r)
        code(call("POST", url("bad", "files"),
                  {"path": "d/" + name.decode()}), 400, "bad_path")

    # no byte of a NUL, a slash, a "..": neither raw nor encoded, once or not
    for raw in ("%2f", "a%2Fb", "%2e", "%2e%2e", "..", "%2e.", ".%2E",
                "..%2f..%2fetc%2fpasswd", "a%00b", "%00"):
        for kind in ("attachments", "files", "fs", "fs/d"):
            for method in ("PUT", "GET", "DELETE"):
                r = call(method, V + "bad/%s/%s" % (kind, raw),
                         b"x" if method == "PUT" else None)
                same(r.status, 400, "%s %s/%s: %r" % (method, kind, raw, r))
    for name in ("", ".", "..", "a/b", "/", "a\0b"):
        code(call("POST", url("bad", "attachments")
                  + "?name=" + quote(name.encode()), b"x"), 400, "bad_name")
        if "\0" not in name:
            code(call("POST", url("bad", "files"),
                      {"path": ".bashrc", "name": name}), 400, "bad_name")
    r = call("POST", url("bad", "files"), b'{"path":"a\\u0000b"}')
    same(r.status, 400, r)
    r = call("POST", url("bad", "files"), b'{"path":"\xff"}')
    same(r.status, 400, r)
    same(listed("bad", "attachments") + listed("bad", "files"), [])
    same(g.output("bad", "ls -d d attachments/* 2>/dev/null; true"), "")


main(start, stop)
