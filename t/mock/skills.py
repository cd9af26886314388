#!/usr/bin/env python3
"""Skills over HTTP: the administrator's library, uploads as a plain tar, tars
that attack, names, limits, pages, what a command is told to bring along, and
"sandboxctl skills pack"; groups files, limits."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import shutil
import socket
import subprocess
import sys
import tarfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import BUILD, NGINX, Gateway, token, wait_for   # noqa: E402
from tap import check, main, same, skip, test                # noqa: E402

g = None
S = "v1/conversations/%s/skills"
MANUAL = b"---\nname: charts\ndescription: Draws \"charts\".\n---\n# Charts\n"


def entry(name, kind=tarfile.REGTYPE, target="", data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar(entries, form=tarfile.PAX_FORMAT, end=True):
    """Of (name, bytes), (name, None) for a folder, or what entry() makes; as
    they are, however wrong."""
    b = io.BytesIO()
    for name, data in entries:
        info = name if isinstance(name, tarfile.TarInfo) else entry(
            name, tarfile.DIRTYPE if data is None else tarfile.REGTYPE,
            data=data or b"")[0]
        b.write(info.tobuf(form, errors="surrogateescape"))
        b.write(data or b"")
        b.write(bytes(-len(data or b"") % 512))
    return b.getvalue() + bytes(1024 if end else 0)


GOOD = tar([("SKILL.md", MANUAL), ("charts.py", b"x = 1\n")])


def start():
    global g
    g = Gateway(runner="mock", workers=2)
    g.store = g.dir + "/store"
    g.library = g.dir + "/library"
    os.mkdir(g.library, 0o755)
    shelve("charts", GOOD)
    shelve("stats", tar([("SKILL.md", b"no front matter"),
                         ("a/requirements.txt", b"x\n")]))
    on = "sandbox on; sandbox_jwt_secret_file %s/jwt.key;" % g.dir
    g.options["http"] = """
        sandbox_store %s files=300 size=200m;
        sandbox_skills %s;
        sandbox_file_size 1m;
        sandbox_permission_read sandbox:read;
        sandbox_realm sandbox;
    """ % (g.store, g.library)
    g.options["server"] = """
        location /off/ { sandbox_skills off; %s }
        location /none/ { sandbox_store off; %s }
        location /small/ { sandbox_store %s files=2 size=64k;
            sandbox_realm small; %s }
        location /many/ { sandbox_skills %s/many; sandbox_realm many; %s }
        location /gone/ { sandbox_skills %s/gone; sandbox_realm gone; %s }
    """ % (on, on, g.store, on, g.dir, on, g.dir, on)
    os.mkdir(g.dir + "/many", 0o755)
    os.mkdir(g.dir + "/gone", 0o755)
    g.start()


def stop():
    g.stop()


def shelve(name, data):
    """Into the library as an administrator should: whole."""
    with open(g.library + "/.new", "wb") as f:
        f.write(data)
    os.rename(g.library + "/.new", g.library + "/%s.tar" % name)


def url(conversation, name=None, prefix=""):
    return prefix + S % conversation + ("" if name is None else "/" + name)


def load(conversation, name, status=201, code=None, prefix="", **options):
    r = g.request("POST", url(conversation, prefix=prefix), {"name": name},
                  **options)
    same((r.status, r.json.get("code")), (status, code), "load %s" % name)
    return r


def put(conversation, name, data, status=201, code=None, prefix="", **options):
    r = g.request("PUT", url(conversation, name, prefix), data, **options)
    same((r.status, r.json.get("code")), (status, code), "put %s" % name)
    return r


def names(conversation, query="", prefix=""):
    r = g.request("GET", url(conversation, prefix=prefix) + query)
    same(r.status, 200, r)
    return [s["name"] for s in r.json["skills"]]


def temporary():
    return os.listdir(g.store + "/.tmp") \
        if os.path.isdir(g.store + "/.tmp") else []


@test("files/skills: from the library, again, another version, removed")
def library():
    same(g.request("GET", url("lib")).json, {"skills": [], "next": None})
    r = g.request("GET", url("lib") + "?library=1").json
    same([(s["name"], s["source"], s["manifest"], s["size"], s["type"])
          for s in r["skills"]],
         [("charts", "library", {"name": "charts", "description":
                                 'Draws "charts".'}, len(GOOD),
           "application/x-tar"),
          ("stats", "library", None, 3072, "application/x-tar")])
    r = load("lib", "charts")
    same(r.headers["Location"], "/sandbox/" + url("lib", "charts"))
    first = r.json
    same((first["source"], first["files"], first["unpackedBytes"],
          first["notes"], first["etag"], r.headers["ETag"]),
         ("library", 2, len(MANUAL) + 6, [],
          '"%s"' % hashlib.sha256(GOOD).hexdigest()[:32], first["etag"]))
    same(load("lib", "charts", 200).json, first, "again changes nothing")
    note = load("lib", "stats").json["notes"]
    same([(n["code"], n["path"]) for n in note],
         [("requirements", "a/requirements.txt")])
    check("uv add -r /skills/stats/a/requirements.txt" in note[0]["detail"],
          note)
    r = g.request("GET", url("lib")).json
    same((r["skills"][0], [s["name"] for s in r["skills"]], r["next"]),
         (first, ["charts", "stats"], None))
    # the administrator has a new one
    shelve("charts", tar([("SKILL.md", b"2")]))
    try:
        again = load("lib", "charts", 200).json
        check(again["etag"] != first["etag"] and again["files"] == 1,
              "another version", again)
        same(again["createdAt"], first["createdAt"])
    finally:
        shelve("charts", GOOD)
    r = g.request("GET", url("lib", "charts"))
    same(r.body, tar([("SKILL.md", b"2")]), "kept until it is loaded again")
    os.unlink(g.library + "/stats.tar")
    load("lib", "stats", 404, "skill_not_found")
    same(names("lib"), ["charts", "stats"], "the conversation has it still")
    shelve("stats", GOOD)
    for name in ("charts", "stats"):
        same(g.request("DELETE", url("lib", name)).status, 204)
    r = g.request("DELETE", url("lib", "stats"))
    same((r.status, r.json["code"]), (404, "skill_not_found"))
    load("lib", "nothing", 404, "skill_not_found")
    load("lib", "charts", 404, "skill_not_found", "/off/")
    same(names("lib", "?library=1", "/off/"), [])
    # a location without a library has what the conversation has
    load("lib", "charts")
    same(names("lib", prefix="/off/"), ["charts"])


@test("files/skills: loading tells what is wrong with the request")
def requests():
    for body, code in ((b"", "bad_request"), (b"[]", "bad_request"),
                       (b"{}", "bad_request"), (b'{"name":1}', "bad_request"),
                       (b'{"name":"a","name":"b"}', "bad_request"),
                       (b'{"name":"a","version":1}', "unknown_field"),
                       (b'{"name":"a\\u0000b"}', "bad_name"),
                       (b'{"name":"."}', "bad_name"),
                       (b'{"name":"../charts"}', "bad_name"),
                       (b'{"name":""}', "bad_name")):
        r = g.request("POST", url("req"), body)
        same((r.status, r.json["code"]), (400, code), body)
    r = g.request("POST", url("req"), b'{"name":"%s"}' % (b"x" * 70000))
    same((r.status, r.json["code"]), (413, "body_too_large"))
    r = g.request("POST", url("req"), b"{}", headers={"Content-Type":
                                                      "text/plain"})
    same((r.status, r.json["code"]), (415, "unsupported_media_type"))
    for query in ("library=2", "library=", "library=yes", "limit=0",
                  "limit=1001", "cursor=%20"):
        r = g.request("GET", url("req") + "?" + query)
        same((r.status, r.json["code"]), (400, "bad_request"), query)
    same(names("req", "?library=0"), [])
    r = g.request("PATCH", url("req", "a"), b"")
    same((r.status, r.headers["Allow"]), (405, "GET, HEAD, PUT, DELETE"))
    r = g.request("DELETE", url("req"))
    same((r.status, r.headers["Allow"]), (405, "GET, HEAD, POST"))


@test("files/skill-archive: names")
def bad_names():
    for name in ("%2e", "%2e%2e", ".hidden", "-rf", "a%20b", "a%0ab", "_x",
                 "%D0%BE", "a$b", "x" * 65, "a%5cb", "a:b", "%7e"):
        for method, body in (("PUT", GOOD), ("GET", None), ("DELETE", None)):
            r = g.request(method, url("names", name), body)
            check(r.status == 400 and r.json["code"] in ("bad_name",
                                                         "bad_path"),
                  method, name, r)
    for name in ("..%2fx", "a%2fb"):
        r = g.request("PUT", url("names", name), GOOD)
        same((r.status, r.json["code"]), (400, "bad_path"), name)
    for name in ("a", "A", "0", "a.b", "a_b-c.2", "x" * 64, "json", "a.tar",
                 "con", "a..b"):
        put("names", name, GOOD)
    same(names("names"), sorted(["a", "A", "0", "a.b", "a_b-c.2", "x" * 64,
                                 "json", "a.tar", "con", "a..b"]))


def hostile():
    """name: (tar, what the answer's detail has in it)."""
    def link(name, target):
        return entry(name, tarfile.SYMTYPE, target)

    def kind(which, name="odd"):
        return tar([entry(name, which)])

    rest = [("z", b"last")]
    good = tar([("a", b"1"), ("b", b"2")])
    long = tar([("n" * 256, b"")])
    sparse, _ = entry("sparse")
    sparse.pax_headers = {"GNU.sparse.major": "1"}
    size, _ = entry("sized")
    size.pax_headers = {"size": "99999999999"}
    binary, _ = entry("binary")
    binary.size = 1 << 40
    return {
        "up": (tar([("a", b"1"), ("../x", b"1")] + rest), '"../x": A path of '
               'the tar has ".."'),
        "up-inside": (tar([("a/../../x", b"1")]), '"a/../../x"'),
        "up-end": (tar([("a/..", None)]), '"a/..'),
        "up-pax": (tar([("y" * 120 + "/../../x", b"1")]), '".."'),
        "absolute": (tar([("/etc/cron.d/x", b"1")]),
                     '"/etc/cron.d/x": A path of the tar is absolute'),
        "empty-part": (tar([("a//b", b"1")]), "empty part"),
        "char": (kind(tarfile.CHRTYPE), '"odd": The tar has something else'),
        "block": (kind(tarfile.BLKTYPE), "something else"),
        "fifo": (kind(tarfile.FIFOTYPE), "something else"),
        "hard": (tar([("a", b"1"), entry("h", tarfile.LNKTYPE, "a")]),
                 '"h": The tar has something else'),
        "hard-out": (tar([entry("h", tarfile.LNKTYPE, "/etc/passwd")]), "else"),
        "unknown": (kind(b"Z"), "something else"),
        "link-absolute": (tar([link("l", "/etc/passwd")]), '"l": A link leads'),
        "link-up": (tar([link("l", "../../etc/passwd")]), "A link leads out"),
        "link-up-inside": (tar([link("d/l", "a/../../../x")]), "leads out"),
        "link-in-two": (tar([link("x/y/z/k", "../../.."),
                             link("q", "x/y/z/k/../../etc/passwd")]),
                        '"q": A link leads out of the tar, or has a ".."'),
        "link-empty": (tar([link("l", "")]), "leads out"),
        "through-link": (tar([("d", None), link("l", "d"), ("l/x", b"1")]),
                         '"l/x": It is below a link'),
        "through-link-to-be": (tar([("l/x", b"1"), link("l", "d")]),
                               "two entries of that name"),
        "below-file": (tar([("a", b"1"), ("a/b", b"2")]), '"a/b": It is'),
        "twice": (tar([("a", b"1"), ("b", b""), ("a", b"2")]),
                  '"a": The tar has two entries'),
        "twice-dot": (tar([("a", b"1"), ("./a", b"2")]), "two entries"),
        "twice-link": (tar([("a", b"1"), link("a", "b")]), "two entries"),
        "twice-folder": (tar([("a", None), ("a", b"1")]), "two entries"),
        "cut": (good[:1500], '"a": The tar is cut short'),
        "no-end": (good[:2048], '"b": The tar is cut short'),
        "half-end": (good[:2560], "cut short"),
        "behind-end": (good + b"#!/bin/sh", "Something follows the end"),
        "second": (good + good, "Something follows the end"),
        "between": (tar([("a", b"1")], end=False) + bytes(512) + good,
                    "Something follows the end"),
        "nothing": (b"", "cut short"),
        "no-files": (tar([("a", None)]), "There is no file in the tar"),
        "text": (b"not a tar at all\n" * 100, "no plain tar, or damaged"),
        "sum": (good[:100] + b"1" + good[101:], "no plain tar, or damaged"),
        "json": (json.dumps({"name": "x"}).encode(), "cut short"),
        "sparse": (tar([(sparse, b"")]), "sparse"),
        "pax-size": (tar([(size, b"")]), "256 MiB"),
        "binary-size": (tar([(binary, b"")], tarfile.GNU_FORMAT), "size"),
        "deep": (tar([("/".join("d" * 33), b"1")]), "32 parts"),
        "long-name": (long, "255 bytes"),
        "long-path": (tar([("/".join(["n" * 200] * 6), b"1")]), "too long"),
        "many": (tar([("%d" % i, b"") for i in range(20001)]), "20,000"),
        "many-folders": (tar([("%d/b/c/d/e" % i, b"") for i in range(4001)]),
                         "20,000 files and folders"),
        "promises": (tar([(entry("x", data=b"")[0], b"")]).replace(
            b"00000000000\0", b"07777777777\0", 1), "no plain tar"),
        "odd-bytes": (tar([("a\x1b[2J\n\udcff/../x", b"1")],
                          tarfile.GNU_FORMAT), "\\x1b[2J\\x0a\\xff"),
    }


@test("files/skill-archive: what attacks is refused as a whole")
def archive():
    tars = hostile()
    for name, (data, detail) in tars.items():
        r = put("bad", name, data, 422, "skill_refused")
        check(detail in r.json["detail"], name, detail, r.json["detail"])
        check(len(r.body) < 1200 and r.json["detail"].isprintable(), name, r)
    for name, data in (("gzip", gzip.compress(GOOD)),
                       ("bzip2", bz2.compress(GOOD)),
                       ("xz", lzma.compress(GOOD)),
                       ("zstd", b"\x28\xb5\x2f\xfd" + bytes(100)),
                       ("zip", b"PK\x03\x04" + bytes(2000))):
        r = put("bad", name, data, 415, "unsupported_media_type")
        check(name in r.json["detail"], r)
    same(names("bad"), [], "nothing is kept")
    wait_for(lambda: not temporary(), 20, "no temporary file")
    # nor does it touch what is there
    put("bad", "kept", GOOD)
    put("bad", "kept", tars["up"][0], 422, "skill_refused")
    same(g.request("GET", url("bad", "kept")).body, GOOD)
    print("# %d tars refused" % len(tars))


@test("files/skill-archive: what is fine, from several makers")
def fine():
    put("fine", "links", tar([("a/b/c", b"1"),
                              entry("a/l", tarfile.SYMTYPE, "../a/b"),
                              entry("m", tarfile.SYMTYPE, "a/l"),
                              entry("self", tarfile.SYMTYPE, "./self"),
                              entry("none", tarfile.SYMTYPE, "not/there")]))
    put("fine", "late-folder", tar([("a/b", b"1"), ("a", None)]))
    put("fine", "dots", tar([("./", None), ("./a", b"1")]))
    put("fine", "deep", tar([("/".join("d" * 32), b"1")]))
    put("fine", "odd", tar([("отчёт 🤣\n'$(x)", b"1"), ("-rf", b""),
                            (" ", b""), ("n" * 255, b"")]))
    put("fine", "gnu", tar([("n" * 200 + "/" + "m" * 200, b"1")],
                           tarfile.GNU_FORMAT))
    same(put("fine", "most", tar([("%d" % i, b"") for i in range(20000)]))
         .json["files"], 20000)
    top = g.dir + "/made"
    os.makedirs(top + "/sub")
    for name in ("SKILL.md", "sub/x.py"):
        with open("%s/%s" % (top, name), "wb") as f:
            f.write(MANUAL)
    for form in ("gnu", "pax", "ustar", "v7"):
        data = subprocess.run(["tar", "-C", top, "-c", "--format=" + form,
                               "."], capture_output=True, check=True).stdout
        same(put("fine", "tar-" + form, data).json["manifest"]["name"],
             "charts")
    # the folder itself instead of what is in it
    data = subprocess.run(["tar", "-C", g.dir, "-c", "made"], check=True,
                          capture_output=True).stdout
    r = put("fine", "one-folder", data).json
    same([n["code"] for n in r["notes"]], ["one_folder"])
    shutil.rmtree(top)


@test("files/skills: a library with other things in it")
def odd_library():
    outside = g.dir + "/outside.tar"
    with open(outside, "wb") as f:
        f.write(GOOD)
    os.symlink(outside, g.library + "/link.tar")
    os.mkfifo(g.library + "/fifo.tar")
    os.mkdir(g.library + "/folder.tar")
    os.mkdir(g.library + "/plain")
    for name, data in (("broken", b"x" * 2000), ("gz", gzip.compress(GOOD)),
                       ("notes.txt", b""), ("bad name", GOOD)):
        with open(g.library + "/%s%s" % (name, "" if "." in name else ".tar"),
                  "wb") as f:
            f.write(data)
    with open(g.library + "/huge.tar", "wb") as f:
        f.truncate((64 << 20) + 1)
    with open(g.library + "/secret.tar", "wb") as f:
        f.write(GOOD)
    os.chmod(g.library + "/secret.tar", 0o600 if os.geteuid() == 0 else 0)
    g.expected += ['"sandbox_skills"']
    same(names("odd", "?library=1"),
         ["broken", "charts", "gz", "huge", "stats"])
    load("odd", "link", 500, "internal")
    load("odd", "fifo", 500, "internal")
    load("odd", "folder", 500, "internal")
    load("odd", "secret", 500, "internal")
    check("no plain tar" in load("odd", "broken", 422, "skill_refused")
          .json["detail"], "broken")
    check("64 MiB" in load("odd", "huge", 422, "skill_refused")
          .json["detail"], "huge")
    load("odd", "gz", 415, "unsupported_media_type")
    load("odd", "plain", 404, "skill_not_found")
    load("odd", "notes.txt", 404, "skill_not_found")
    load("odd", "x" * 64, 404, "skill_not_found")
    same(names("odd"), [])
    log = g.error_log
    for text in ('link.tar" in "sandbox_skills" failed: it must be a file',
                 'fifo.tar" in "sandbox_skills" failed: it must be a file',
                 'folder.tar" in "sandbox_skills" failed: it must be a file',
                 'secret.tar" in "sandbox_skills" failed: the user of nginx',
                 'broken.tar" of "sandbox_skills" is no skill: It is no plain',
                 'gz.tar" of "sandbox_skills" is no skill: It is compressed'):
        check(text in log, text)
    os.rmdir(g.dir + "/gone")
    load("odd", "x", 500, "internal", "/gone/")
    r = g.request("GET", url("odd", prefix="/gone/") + "?library=1")
    same((r.status, r.json["code"]), (500, "internal"))
    check('/gone" in "sandbox_skills" failed: the folder was there'
          in g.error_log, "gone")
    os.mkdir(g.dir + "/gone", 0o755)


@test("files/list-large: pages of the library, and of a conversation")
def pages():
    all_names = ["s%03d" % i for i in range(130)] + ["S", "a.b", "a-b", "a"]
    for name in all_names:
        with open(g.dir + "/many/%s.tar" % name, "wb") as f:
            f.write(GOOD)
    seen, cursor = [], ""
    while cursor is not None:
        r = g.request("GET", url("p", prefix="/many/") + "?library=1&limit=33"
                      + cursor).json
        check(len(r["skills"]) <= 33, "the limit")
        check(all(s["manifest"]["name"] == "charts" for s in r["skills"]), r)
        seen += [s["name"] for s in r["skills"]]
        cursor = r["next"] and "&cursor=" + r["next"]
    same(seen, sorted(all_names))
    same(len(names("p", "?library=1", "/many/")), 100, "without a limit")
    for name in ("b", "a", "c"):
        put("p", name, GOOD)
    r = g.request("GET", url("p") + "?limit=2").json
    same([s["name"] for s in r["skills"]], ["a", "b"])
    r = g.request("GET", url("p") + "?limit=2&cursor=" + r["next"]).json
    same(([s["name"] for s in r["skills"]], r["next"]), (["c"], None))


@test("files/overwrite-rules: uploads, downloads, conditions")
def uploads():
    first = put("up", "s", GOOD).json
    same((first["source"], first["createdAt"]), ("upload",
                                                 first["modifiedAt"]))
    r = g.request("GET", url("up", "s"))
    same((r.status, r.body, r.headers["Content-Type"], r.headers["ETag"]),
         (200, GOOD, "application/x-tar", first["etag"]))
    same(r.headers["Content-Disposition"], 'attachment; filename="s.tar"')
    r = g.request("HEAD", url("up", "s"))
    same((r.status, r.body, r.headers["Content-Length"]),
         (200, b"", str(len(GOOD))))
    r = g.request("GET", url("up", "s"), headers={"Range": "bytes=0-7"})
    same((r.status, r.body), (206, b"SKILL.md"))
    r = g.request("GET", url("up", "s"), headers={"If-None-Match":
                                                  first["etag"]})
    same(r.status, 304)
    put("up", "s", GOOD, 412, "precondition_failed",
        headers={"If-None-Match": "*"})
    put("up", "s", GOOD, 412, "precondition_failed",
        headers={"If-Match": '"x"'})
    r = g.request("DELETE", url("up", "s"), headers={"If-Match": '"x"'})
    same(r.status, 412)
    put("up", "s", tar([("v", b"2")]), 200, headers={"If-Match":
                                                     first["etag"]})
    # what is longer than "sandbox_file_size", and all of it in chunks
    data = tar([("x", random.Random(1).randbytes(3 << 20))])

    def chunks():
        for i in range(0, len(data), 70000):
            piece = data[i:i + 70000]
            yield b"%x\r\n" % len(piece) + piece + b"\r\n"
        yield b"0\r\n\r\n"

    r = put("up", "large", chunks(), headers={"Transfer-Encoding": "chunked"})
    same((r.json["size"], r.json["unpackedBytes"]), (len(data), 3 << 20))
    check(g.request("GET", url("up", "large")).body == data, "all of it")
    # the library's does not take the place of what was uploaded
    put("up", "charts", tar([("mine", b"")]))
    load("up", "charts", 409, "skill_exists")
    same(g.request("GET", url("up", "charts")).body, tar([("mine", b"")]))
    same(g.request("DELETE", url("up", "charts")).status, 204)
    load("up", "charts")
    same(put("up", "charts", GOOD, 200).json["source"], "upload")
    r = g.request("GET", url("up", "none"))
    same((r.status, r.json["code"]), (404, "skill_not_found"))


@test("limits/skills")
def limits():
    r = put("l", "s", b"", 413, "file_too_large",
            headers={"Content-Length": str((64 << 20) + 1)})
    check("67108864" in r.json["detail"], "its limit", r)
    for i in range(16):
        put("l", "s%d" % i, GOOD)
    r = put("l", "s16", GOOD, 507, "disk_full")
    check("16 skills" in r.json["detail"], "its limit", r)
    r = load("l", "charts", 507, "disk_full")
    put("l", "s3", tar([("other", b"")]), 200)
    same(g.request("DELETE", url("l", "s7")).status, 204)
    load("l", "charts")
    # they count among the files and bytes of a conversation
    put("l", "a", GOOD, prefix="/small/")
    put("l", "b", tar([("x", bytes(64 << 10))]), 507, "disk_full", "/small/")
    r = g.request("PUT", "/small/v1/conversations/l/attachments/f", b"x")
    same(r.status, 201)
    put("l", "c", GOOD, 507, "disk_full", "/small/")
    load("l", "charts", 404, "skill_not_found", "/off/")
    for method, path, body in (("GET", None, None), ("POST", None, {"name":
                                                                    "x"}),
                               ("PUT", "x", GOOD), ("GET", "x", None),
                               ("DELETE", "x", None)):
        r = g.request(method, url("l", path, "/none/"), body)
        same((r.status, r.json["code"]), (501, "no_store"))
    r = g.request("GET", "v1/limits").json
    same({k: r["store"][k] for k in ("skills", "skillBytes", "skillLibrary")},
         {"skills": 16, "skillBytes": 64 << 20, "skillLibrary": True})
    check("skills" not in r["unsupported"], "unsupported", r)


@test("files/skills: whose they are")
def tenants():
    put("whose", "s", GOOD)
    other = token(sub="bob")
    same(g.request("GET", url("whose"), token=other).json["skills"], [])
    same(g.request("GET", url("whose", "s"), token=other).status, 404)
    same(g.request("DELETE", url("whose", "s"), token=other).status, 404)
    reader = token(permissions=["sandbox:read"])
    for method, path, body in (("GET", None, None), ("GET", "s", None),
                               ("PUT", "s", GOOD), ("DELETE", "s", None),
                               ("POST", None, {"name": "charts"})):
        same(g.request(method, url("whose", path), body,
                       token=reader).status, 403)
        same(g.request(method, url("whose", path), body, token=None).status,
             401)
    same(names("whose"), ["s"])
    # with the conversation all of it is gone
    same(g.delete("whose").status, 204)
    same(names("whose"), [])


def staged(conversation, command="true"):
    result = g.run(conversation, command)
    request = json.loads(result["stdout"])
    found = []
    for item in request.get("STAGE") or []:
        raw = bytes.fromhex(item[4:]) if item.startswith("hex:") \
            else item.encode()
        found.append((raw[0], raw[28:].decode(), raw[4:20].hex(),
                      int.from_bytes(raw[20:28], "big")))
    return found, request, result["stagingNotices"]


@test("files/skills: a command names them, and brings what is asked for",
      seconds=900)
def stage():
    def tag(data):
        return hashlib.sha256(data).hexdigest()[:32]

    attachment = b"\xff attached"
    r = g.request("PUT", "v1/conversations/st/attachments/same", attachment)
    same(r.status, 201)
    put("st", "same", GOOD)
    wants = tar([("SKILL.md", b"x")] + [
        ("d%d/requirements.txt" % i, b"") for i in range(6)])
    put("st", "wants", wants)
    all_of_it = [(1, "same", tag(attachment), len(attachment)),
                 (2, "same", tag(GOOD), len(GOOD)),
                 (2, "wants", tag(wants), len(wants))]
    found, request, notices = staged("st")
    same((found, request["body"], notices), (all_of_it, "", []))
    found, request, notices = staged(
        "st", "mock: 1:needed=2,0,1 1:error=stage_needed echo")
    same((found, request["STDIN_BYTES"], request["STAGE_BODY"]),
         (all_of_it, 0, [2, 0, 1]))
    body = request["body"]
    body = bytes.fromhex(body[4:]) if body.startswith("hex:") \
        else body.encode()
    check(body == wants + attachment + GOOD, "their bytes, in that order")
    same([(n["name"], n["code"]) for n in notices],
         [("wants", "requirements")] * 4)
    check("d0/requirements.txt" in notices[0]["detail"]
          and "2 more" in notices[3]["detail"], notices)
    # streamed, too
    r = g.request("POST", "v1/conversations/st/commands",
                  {"command": "mock: 1:needed=2 1:error=stage_needed "
                              "stdout=x"},
                  headers={"Accept": "application/x-ndjson"})
    last = json.loads(r.body.splitlines()[-1])
    same([n["code"] for n in last["stagingNotices"]], ["requirements"] * 4)
    same(g.request("DELETE", url("st", "same")).status, 204)
    put("st", "wants", GOOD, 200)
    same(staged("st")[0], [all_of_it[0], (2, "wants", tag(GOOD), len(GOOD))])
    # all that a conversation may have
    for i in range(239):
        g.request("PUT", "v1/conversations/st/attachments/%03d" % i, b"")
    for i in range(15):
        put("st", "s%d" % i, GOOD)
    same(len(staged("st")[0]), 256)


@test("files/skills: uploads that break off, and two at once")
def broken_off():
    data = tar([("x", bytes(1 << 20))])
    for n in (0, 512, 700, 1 << 20, len(data) - 1):
        with socket.create_connection(("127.0.0.1", g.port)) as s:
            s.sendall(b"PUT /sandbox/%s HTTP/1.1\r\nHost: x\r\nAuthorization: "
                      b"Bearer %s\r\nContent-Length: %d\r\n\r\n"
                      % (url("off", "s").encode(), token().encode(),
                         len(data)) + data[:n])
    wait_for(lambda: not temporary(), 20, "no temporary file")
    same(names("off"), [])
    out = []

    def one(i):
        if i % 2:
            out.append(g.request("POST", url("both"), {"name": "charts"})
                       .status)
        else:
            out.append(g.request("PUT", url("both", "s%d" % (i % 4)), GOOD)
                       .status)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(set(out) <= {200, 201}, "statuses", out)
    same(names("both"), ["charts", "s0", "s2"])
    # the library's never takes the place of what was uploaded meanwhile
    for n in range(10):
        out.clear()

        def either(i):
            body = GOOD if i % 2 else {"name": "charts"}
            r = g.request("PUT" if i % 2 else "POST",
                          url("mix%d" % n, "charts" if i % 2 else None), body)
            out.append((i % 2, r.status))

        threads = [threading.Thread(target=either, args=(i,))
                   for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check(set(out) <= {(1, 200), (1, 201), (0, 200), (0, 201), (0, 409)},
              "statuses", out)
        r = g.request("GET", url("mix%d" % n)).json["skills"]
        same([s["source"] for s in r], ["upload"], out)
    # a new configuration keeps what there is
    g.reload()
    same(names("both"), ["charts", "s0", "s2"])


@test("admin/config-mistakes: sandbox_skills")
def configuration():
    def complaint(line, location=""):
        """What "nginx -t" says of it."""
        conf = g.read("nginx.conf")
        conf = conf.replace("sandbox_skills %s;" % g.library, line, 1)
        conf = conf.replace("location /off/ { sandbox_skills off;",
                            "location /off/ { " + location)
        g.write("wrong.conf", conf)
        p = subprocess.run([NGINX, "-t", "-c",
                            g.path("wrong.conf")], capture_output=True,
                           text=True, timeout=300, check=False)
        return p.returncode, p.stderr

    same(complaint("sandbox_skills %s/;" % g.library)[0], 0)
    same(complaint("sandbox_skills off;")[0], 0)
    for line, text in (
            ("sandbox_skills library;", "must be an absolute one"),
            ("sandbox_skills /%s;" % ("x" * 600), "it may have 512"),
            ("sandbox_skills %s/nothing;" % g.dir, "sandboxctl skills pack"),
            ("sandbox_skills %s/jwt.key;" % g.dir, "is not a folder"),
            ("sandbox_skills;", "invalid number of arguments"),
            ("sandbox_skills %s; sandbox_skills off;" % g.library,
             "is duplicate")):
        status, said = complaint(line)
        check(status == 1 and text in said and "wrong.conf:" in said, line,
              said)
    same(complaint("", "sandbox_skills %s; " % g.library)[0], 0)
    # what the workers can't read, or can write, is told
    for mode, owner, text in (
            (0o755, "root", None), (0o700, "root", "can't read"),
            (0o744, "root", "can't read"), (0o777, "root", "can write into"),
            (0o700, "www-data", "can write into"), (0o750, "root", None)):
        if os.geteuid() != 0:
            continue
        os.mkdir(g.dir + "/modes")
        os.chmod(g.dir + "/modes", mode)
        shutil.chown(g.dir + "/modes", owner)
        status, said = complaint("sandbox_skills %s/modes;" % g.dir)
        check(status == 0 and ("[warn]" in said) == bool(text)
              and (text or "") in said, oct(mode), owner, said)
        os.rmdir(g.dir + "/modes")


@test("sandboxctl skills pack: the same tar for the same files")
def pack():
    if not os.path.exists(BUILD + "/sandboxctl"):
        skip("sandboxctl is not built in " + BUILD)

    def call(*args, status=0, **options):
        p = subprocess.run([BUILD + "/sandboxctl", "skills", *args],
                           capture_output=True, timeout=300, cwd=g.dir,
                           check=False, **options)
        same(p.returncode, status, (args, p.stdout[:300], p.stderr))
        check(status == 0 or p.stderr.startswith(b"sandboxctl skills: "),
              p.stderr)
        return p.stdout if status == 0 else p.stderr.decode()

    def make(top, order):
        for name in order:
            os.makedirs(os.path.dirname("%s/%s/%s" % (g.dir, top, name)),
                        exist_ok=True)
            with open("%s/%s/%s" % (g.dir, top, name), "w") as f:
                f.write(name)
        os.chmod("%s/%s/run.sh" % (g.dir, top), 0o711)

    files = ["run.sh", "SKILL.md", "a/b.py", "a-b", "Z", "отчёт.txt",
             "d/" * 20 + "n" * 100, "m" * 200, ".git/config",
             "a/__pycache__/b.pyc", "sub/.git"]
    make("one", files)
    make("two", files[::-1])
    os.chmod(g.dir + "/two/Z", 0o600)
    os.utime(g.dir + "/two/Z", (1, 1))
    for top in ("one", "two"):
        os.symlink("../Z", "%s/%s/a/link" % (g.dir, top))
        os.symlink("m" * 200, "%s/%s/long" % (g.dir, top))
    first = call("pack", "one", "-o", "-")
    same(call("pack", "two", "-o", "-"), first)
    call("pack", "one/")
    with open(g.dir + "/one.tar", "rb") as f:
        same(f.read(), first)
    same(first[-1024:], bytes(1024))
    with tarfile.open(fileobj=io.BytesIO(first)) as t:
        got = {m.name: m for m in t.getmembers()}
        order = [m.name for m in t.getmembers()]
        same(t.extractfile("d/" * 20 + "n" * 100).read().decode(),
             "d/" * 20 + "n" * 100)
    folders = {"a", "sub"} | {"/".join("d" * i) for i in range(1, 21)}
    same(set(got), set(files[:8]) | folders | {"a/link", "long"})
    same(order, ["SKILL.md"] + sorted(set(got) - {"SKILL.md"},
                                      key=os.fsencode))
    same({(m.mode, m.mtime, m.uid, m.gid, m.uname) for m in got.values()
          if m.isfile()}, {(0o644, 0, 0, 0, ""), (0o755, 0, 0, 0, "")})
    same((got["run.sh"].mode, got["long"].linkname), (0o755, "m" * 200))
    listed = subprocess.run(["tar", "-t"], input=first, capture_output=True,
                            check=True)
    same(len(listed.stdout.splitlines()), len(got), listed)
    put("packed", "one", first)
    with tarfile.open(fileobj=io.BytesIO(
            call("pack", "--mtime", "1700000000", "one", "-o", "-"))) as t:
        same({m.mtime for m in t.getmembers()}, {1700000000})

    # and what it does not take
    os.mkdir(g.dir + "/bad")
    check("There is no file" in call("pack", "bad", "-o", "x", status=1), "")

    def bad(text, make_it, undo=os.unlink, name="x"):
        make_it("%s/bad/%s" % (g.dir, name))
        said = call("pack", "bad", "-o", "x", status=1)
        check("bad/" + name in said and text in said, text, said)
        undo("%s/bad/%s" % (g.dir, name))

    bad("only files, folders and links", os.mkfifo)
    bad("leads out of the folder", lambda p: os.symlink("/etc", p))
    bad("leads out of the folder", lambda p: os.symlink("../x", p))
    bad("leads out of the folder", lambda p: os.symlink("a/../b", p))

    def sparse(path):
        with open(path, "wb") as f:
            f.truncate((64 << 20) + 1)

    bad("64 MiB", sparse)
    bad("32 parts", lambda p: os.makedirs(p + "/d" * 32), shutil.rmtree)
    check(not os.path.exists(g.dir + "/x"), "nothing was written")
    check("in the folder itself" in call("pack", ".", "-o", "x.tar",
                                         status=2), "inside")
    check("needs a name" in call("pack", "/", status=2), "no name")
    call("pack", "nothing", status=2)
    call("pack", "nothing", "-o", "x", status=1)
    call("pack", status=2)
    call("pack", "one", "--mtime", "yesterday", "-o", "x", status=2)
    check("did you mean \"pack\"" in call("pakc", status=2), "near")
    call(status=2)
    check(b"skills put" in call("--help"), "help")


main(start, stop)
