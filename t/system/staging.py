#!/usr/bin/env python3
"""Attachments in real containers: there before the next command, replaced,
removed, kept over a reset; what could not be attached is told; groups files
and data."""

import base64
import glob
import hashlib
import json
import os
import random
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, wait_for                        # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
A = "v1/conversations/%s/attachments/%s"
NAMES = ["report (1).txt", "it's.txt", "отчёт.xlsx", "🤣.txt",
         "a$b`c\"d.txt", "-rf", "x" * 255, "trailing.", "trailing ",
         "new\nline.txt", "100%.txt", "#x", "a?b=c", "back\\slash"]


def start():
    global g
    g = Gateway(pool=2)
    g.options["http"] = """
        sandbox_store %s/store;
        sandbox_file_size 40m;
        sandbox_disk 512m;
    """ % g.dir
    g.start()


def stop():
    g.stop()


def attach(conversation, name, data, status=201):
    r = g.request("PUT", A % (conversation, urllib.parse.quote(name)), data)
    same(r.status, status, "PUT of %r: %r" % (name, r))


def staged(conversation, command="ls attachments | wc -l"):
    """stdout of a command, which must have nothing to tell of files."""
    result = g.run(conversation, command)
    same((result["exitCode"], result["stagingNotices"]), (0, []), result)
    return result["stdout"]


@test("files/attachments-same-name files/names-odd")
def names():
    for name in NAMES:
        attach("odd", name, name.encode())
    r = g.request("POST", "v1/conversations/odd/attachments?name=a.png",
                  b"one")
    same(r.status, 201)
    r = g.request("POST", "v1/conversations/odd/attachments?name=a.png",
                  b"two")
    same(r.json["name"], "a (2).png")
    out = staged("odd", "cd attachments; for f in *; do printf '%s\\0' \"$f\";"
                        " cat < \"$f\"; printf '\\0'; done | base64 -w0")
    parts = base64.b64decode(out).decode().split("\0")
    found = dict(zip(parts[0::2], parts[1::2]))
    same(found, dict({n: n for n in NAMES},
                     **{"a.png": "one", "a (2).png": "two"}))
    same(staged("odd", "stat -c %U:%a attachments/a.png"), "sandbox:644\n")


@test("data: an attachment is there, replaced, removed")
def replaced():
    attach("re", "d.csv", b"1")
    same(staged("re", "cat attachments/d.csv"), "1")
    attach("re", "d.csv", b"22", 200)
    same(staged("re", "cat attachments/d.csv"), "22")

    g.output("re", "echo mine > attachments/d.csv")
    attach("re", "d.csv", b"333", 200)
    result = g.run("re", "cat attachments/d.csv 'attachments/d (2).csv'")
    same(result["stdout"], "mine\n333")
    same([(n["name"], n["code"]) for n in result["stagingNotices"]],
         [("d.csv", "renamed")])
    check("d (2).csv" in result["stagingNotices"][0]["detail"], result)

    attach("re", "gone", b"x")
    same(staged("re", "cat attachments/gone"), "x")
    same(g.request("DELETE", A % ("re", "gone")).status, 204)
    same(g.run("re", "test -e attachments/gone")["exitCode"], 1)


@test("attachments come again after reset and with fresh")
def again():
    attach("again", "a", b"still")
    same(staged("again", "cat attachments/a"), "still")
    same(g.request("POST", "v1/conversations/again/reset").status, 200)
    same(staged("again", "cat attachments/a"), "still")
    attach("again", "b", b"too")
    result = g.run("again", "cat attachments/a attachments/b", fresh=True)
    same((result["stdout"], result["sandboxCreated"]), ("stilltoo", True))


@test("attachments, stdin and a stream in one request")
def stream():
    attach("mix", "a", b"file")
    same(g.run("mix", "cat attachments/a -", stdin="input")["stdout"],
         "fileinput")
    attach("mix", "b", b"more")
    r = g.request("POST", "v1/conversations/mix/commands",
                  {"command": "cat attachments/b -", "stdin": "x" * 100000},
                  headers={"Accept": "application/x-ndjson"})
    same(r.status, 200)
    events = [json.loads(line) for line in r.body.splitlines()]
    check("".join(e["data"] for e in events if e["type"] == "stdout")
          == "more" + "x" * 100000, r)
    same((events[-1]["type"], events[-1]["stagingNotices"]), ("result", []))


@test("attachments larger than a body of known length")
def large():
    data = random.Random(3).randbytes(38 << 20)
    for name in ("a", "b"):
        attach("large", name, data + name.encode())
    sums = "".join("%s  attachments/%s\n" % (
        hashlib.sha256(data + n.encode()).hexdigest(), n) for n in "ab")
    same(staged("large", "sha256sum attachments/*"), sums)


@test("stagingNotices: an attachment that was too large")
def refused():
    r = g.request("PUT", A % ("big", "huge.bin"), bytes((40 << 20) + 1))
    same(r.status, 413)
    result = g.run("big", "true")
    same([(n["name"], n["code"]) for n in result["stagingNotices"]],
         [("huge.bin", "file_too_large")])
    check("41943040" in result["stagingNotices"][0]["detail"], result)
    same(g.run("big", "true")["stagingNotices"], [])


@test("commands that race for the same attachments")
def race():
    for n in range(5):
        attach("race", "f%d" % n, b"%d" % n)
    results = []

    def one():
        results.append(g.command("race", "cat attachments/f*"))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same([(r.status, r.json.get("stdout")) for r in results],
         [(200, "01234")] * 6)


@test("a file of the sandbox is saved to the Files panel")
def save():
    data = random.Random(5).randbytes(9 << 20)
    same(g.request("PUT", "v1/conversations/save/fs/big.bin", data).status,
         201)
    g.output("save", "printf hello > a.txt; mkdir d; : > d/empty;"
                     " printf x > 'отчёт (1).txt'; mkfifo f;"
                     " head -c 50000000 /dev/zero > huge")

    def post(status, **fields):
        r = g.request("POST", "v1/conversations/save/files", fields)
        same(r.status, status, r)
        return r.json.get("code") or r.json["name"]

    def content(name):
        return g.request("GET", "v1/conversations/save/files/"
                         + urllib.parse.quote(name)).body

    same(post(201, path="big.bin"), "big.bin")
    check(content("big.bin") == data, "all of it")
    same(post(201, path="d/empty"), "empty")
    same(content("empty"), b"")
    same(post(201, path="отчёт (1).txt"), "отчёт (1).txt")
    same(content("отчёт (1).txt"), b"x")
    same(post(201, path="/home/sandbox/a.txt", name="b.txt"), "b.txt")
    same(content("b.txt"), b"hello")

    same(post(409, path="big.bin", name="b.txt"), "file_exists")
    same(content("b.txt"), b"hello")
    same(post(200, path="d/empty", name="b.txt", overwrite=True), "b.txt")
    same(content("b.txt"), b"")

    same(post(404, path="none"), "file_not_found")
    same(post(409, path="d"), "is_a_directory")
    same(post(422, path="f"), "not_a_file")
    same(post(413, path="huge"), "file_too_large")
    same(post(400, path="a.txt", name="x/y"), "bad_name")
    same(post(400), "bad_request")
    same(post(400, path=1), "bad_request")
    same(post(400, path="a.txt", nmae="x"), "unknown_field")
    r = g.request("POST", "v1/conversations/unused/files", {"path": "a"})
    same((r.status, r.json["code"]), (404, "no_sandbox"))
    names = [f["name"] for f in g.request(
        "GET", "v1/conversations/save/files").json["files"]]
    same(names, sorted(["big.bin", "empty", "b.txt", "отчёт (1).txt"]))


@test("files are not held open while their command runs")
def not_held():
    def held():
        found = []
        for pid in g.workers():
            for f in glob.glob("/proc/%d/fd/*" % pid):
                try:
                    found.append(os.readlink(f))
                except FileNotFoundError:
                    pass
        return [f for f in found if "/store/" in f]
    for n in range(40):
        attach("open", "f%d" % n, b"x" * n)
    out = []
    runs = threading.Thread(target=lambda: out.append(g.run(
        "open", "ls attachments | wc -l; touch began; "
        "while [ ! -e go ]; do sleep 0.05; done")))
    runs.start()
    wait_for(lambda: g.request("GET", "v1/conversations/open/fs/began").status
             == 200, what="the command")
    wait_for(lambda: not held(), what="files that are closed")
    same(out, [], "it runs")
    same(g.request("PUT", "v1/conversations/open/fs/go", b"").status, 201)
    runs.join(200)
    same((out[0]["stdout"], out[0]["stagingNotices"]), ("40\n", []), out)


@test("clients that hang up while files are on their way")
def hang_up():
    data = random.Random(9).randbytes(20 << 20)
    same(g.request("PUT", "v1/conversations/hang/fs/big", data).status, 201)
    for n in range(24):
        attach("hang", "f", data + b"%d" % n, 201 if n == 0 else 200)
        c = g.connect()
        if n % 3 == 0:
            c.request("POST", "/sandbox/v1/conversations/hang/files",
                      b'{"path":"big","overwrite":true}',
                      g.headers("", b"", None))
        elif n % 3 == 1:
            c.request("GET", "/sandbox/v1/conversations/hang/fs/big",
                      headers=g.headers("", None, None))
        else:
            c.request("POST", "/sandbox/v1/conversations/hang/commands",
                      b'{"command":"true"}', g.headers("", b"", None))
        time.sleep(n * 0.002)
        c.close()
    same(staged("hang", "tail -c 2 attachments/f"), "23")
    names = [f["name"] for f in g.request(
        "GET", "v1/conversations/hang/files").json["files"]]
    check(names in ([], ["big"]), "half a file was saved", names)
    r = g.request("POST", "v1/conversations/hang/files",
                  {"path": "big", "overwrite": True})
    check(r.status in (200, 201), r)
    check(g.request("GET", "v1/conversations/hang/files/big").body == data,
          "all of it")


main(start, stop)
