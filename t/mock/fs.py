#!/usr/bin/env python3
"""Files of the container when agents lie or break off, and attachments that an
agent asks for again and again."""

import os
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                   # noqa: E402
from gateway import Gateway, token, wait_for                  # noqa: E402
from tap import check, main, same, test                       # noqa: E402

g = None
F = "v1/conversations/%s/fs/f"
TAG = "0123456789abcdef0123456789abcdef"


def start():
    global g
    g = Gateway(runner="mock", workers=1)
    g.options["http"] = "sandbox_store %s/store;" % g.dir
    g.start()


def stop():
    g.stop()


def head(status=200, size=10, kind=0, **more):
    """The step that sends HEAD."""
    values = dict({"STATUS": status, "FILE_TYPE": kind, "FILE_SIZE": size,
                   "FILE_MODE": 0o644, "MODIFIED_NS": 1764460800 * 10 ** 9,
                   "ETAG": TAG}, **more)
    return "nohead frame=1," + urllib.parse.quote(wire.fields(
        *((n, v) for n, v in values.items() if v is not None)))


def result(**values):
    return "frame=7," + urllib.parse.quote(wire.fields(*values.items()))


def answer(conversation, operation, *steps):
    """What that operation is answered with from now on."""
    text = "mock: on=%s,%s" % (operation, urllib.parse.quote(
        " ".join(steps)))
    g.run(conversation, text)


def read(conversation, *steps, method="GET", **options):
    answer(conversation, "FILE_READ", *steps)
    return g.request(method, F % conversation, **options)


def broken(conversation, *steps):
    """The read of an answer that must not look complete."""
    answer(conversation, "FILE_READ", *steps)
    try:
        r = g.request("GET", F % conversation)
    except Exception as error:                   # pylint: disable=W0718
        return type(error).__name__
    raise AssertionError("it looks complete: %r" % r)


@test("a file as an agent tells it")
def good():
    r = read("good", head(), "data=01234", "ping", "data=56789",
             result(BYTES=10))
    same((r.status, r.body), (200, b"0123456789"))
    same((r.headers["ETag"], r.headers["Content-Length"]),
         ('"%s"' % TAG, "10"))
    same(r.headers["Last-Modified"], "Sun, 30 Nov 2025 00:00:00 GMT")
    r = read("good", "ping=3", head(size=0), result(BYTES=0))
    same((r.status, r.body), (200, b""))
    r = read("good", head(), result(BYTES=0), method="HEAD")
    same((r.status, r.headers["Content-Length"]), (200, "10"))
    same(read("good", head(304), result(BYTES=0),
              headers={"If-None-Match": '"x"'}).status, 304)


@test("a file is answered as it was asked for")
def asked():
    part = head(206, RANGE_FIRST=3, RANGE_LAST=5)
    for asked_, right in (("bytes=3-5", True), ("bytes=3-", True),
                          ("bytes=2-5", False), ("bytes=-3", False),
                          (None, False)):
        r = read("asked", part, "data=345", result(BYTES=3),
                 headers={"Range": asked_} if asked_ else {})
        same(r.status, 206 if right else 502, asked_)
    r = read("asked", head(206, RANGE_FIRST=7, RANGE_LAST=9), "data=789",
             result(BYTES=3), headers={"Range": "bytes=-3"})
    same((r.status, r.headers["Content-Range"]), (206, "bytes 7-9/10"))
    for status in (304, 412, 416):
        r = read("asked", head(status), result(BYTES=0))
        same((r.status, r.json["code"]), (502, "bad_upstream"), status)


@test("half a file never looks like one")
def half():
    check(broken("half", head(), "data=01234", "close"), "end of file")
    check(broken("half", head(), "data=01234", result(BYTES=5)), "less")
    check(broken("half", head(), "data=0123456789x"), "more")
    check(broken("half", head(), "data=01234", "raw=garbage", "close"),
          "garbage")
    log = g.error_log
    check("less of a file than its size" in log
          and "more of a file than its size" in log, log[-1000:])


@test("before the first byte it is a problem")
def problems():
    for steps, status, code in (
            (("close",), 503, "runner_lost"),
            (("error=file_not_found",), 404, "file_not_found"),
            (("error=no_sandbox",), 404, "no_sandbox"),
            (("error=path_outside",), 422, "path_outside"),
            ((head(500), "linger"), 502, "bad_upstream"),
            ((head(ETAG=None), "linger"), 502, "bad_upstream"),
            ((head(206, RANGE_FIRST=3, RANGE_LAST=10), "linger"), 502,
             "bad_upstream"),
            ((head(412), result(BYTES=0)), 412, "precondition_failed"),
            ((head(416), result(BYTES=0)), 416, "range_not_satisfiable"),
            ((head(304), "data=x", "linger"), 502, "bad_upstream"),
            ((head(99), "linger"), 502, "bad_upstream"),
            ((head(204), "linger"), 502, "bad_upstream"),
            ((head(kind=1), "data=%00%00%00%00", "linger"), 502,
             "bad_upstream"),
            ((head(kind=1), "data=%00%00", result(BYTES=2)), 502,
             "bad_upstream")):
        r = read("early", *steps, headers={
            "If-Match": '"x"'} if status == 412 else {
            "Range": "bytes=90-"} if status == 416 else {})
        same((r.status, r.json["code"]), (status, code), steps)


@test("a write that is refused at its end")
def write():
    for status, code in ((507, "disk_full"), (412, "precondition_failed")):
        answer("write", "FILE_WRITE", "frame=1,", result(
            STATUS=status, CODE=code, DETAIL="No."))
        r = g.request("PUT", F % "write", b"bytes")
        same((r.status, r.json["code"], r.json["detail"]),
             (status, code, "No."))
    answer("write", "FILE_WRITE", "frame=1,", result(
        STATUS=201, ETAG=TAG, FILE_SIZE=5, FILE_MODE=0o644,
        MODIFIED_NS=1764460800 * 10 ** 9))
    r = g.request("PUT", F % "write", b"bytes")
    same((r.status, r.json), (201, {
        "path": "f", "size": 5, "etag": '"%s"' % TAG,
        "modifiedAt": "2025-11-30T00:00:00.000Z"}))


def attach(conversation, name, data):
    r = g.request("PUT", "v1/conversations/%s/attachments/%s"
                  % (conversation, name), data)
    check(r.status in (200, 201), r)


@test("attachments that are asked for come after stdin")
def staged():
    attach("stage", "a", b"first")
    attach("stage", "b", b"second")
    echo = g.run("stage", "mock: 1:needed=1,0 1:error=stage_needed "
                 "1:close echo",
                 stdin="input")["stdout"]
    check('"body": "inputsecondfirst"' in echo, echo)
    check('"STDIN_BYTES": 5' in echo and '"STAGE_BODY": [1, 0]' in echo,
          echo)
    seen = g.run("stage", "mock: seen")["stdout"]
    same(seen.count("COMMAND"), 3, seen)


@test("staging ends, also if the agent never has enough")
def conflict():
    attach("more", "a", b"first")
    begun = time.monotonic()
    r = g.command("more", "mock: needed=0 error=stage_needed")
    same((r.status, r.json["code"]), (503, "staging_conflict"))
    check(r.headers["Retry-After"], r)
    check(time.monotonic() - begun < 100, "it took long")
    seen = g.run("more", "mock: seen")["stdout"]
    same(seen.count("COMMAND"), 4, seen)

    for needed in ("1", "0,0", "7"):
        r = g.command("more", "mock: needed=%s error=stage_needed" % needed)
        same((r.status, r.json["code"]), (502, "bad_upstream"))
    r = g.command("none", "mock: error=stage_needed")
    same(r.json["code"], "bad_upstream")


@test("files that wait for a sandbox leave others of the worker's")
def held():
    """Of 1,024 that it may have open 512, and half of them for one tenant."""
    few = Gateway(runner="mock", workers=1,
                  main="worker_rlimit_nofile 1024;")
    few.options["http"] = "sandbox_store %s/store;" % few.dir
    with few:
        other = token(sub="other")
        for name, whose in (("one", ""), ("two", ""), ("two", other)):
            for n in range(160):
                r = few.request("PUT", "v1/conversations/%s/attachments/%03d"
                                % (name, n), b"x" * (1 if n else 4 << 20),
                                token=whose)
                same(r.status, 201, r)
        text = "mock: deaf 1:needed=%s 1:error=stage_needed 1:close " \
            "%%s close" % ",".join(map(str, range(160)))
        before = len(os.listdir("/proc/%d/fd" % few.workers()[0]))
        first = threading.Thread(target=few.command, args=("one", text % "wait=others"))
        first.start()
        wait_for(lambda: len(os.listdir("/proc/%d/fd" % few.workers()[0]))
                 > before + 150, what="files that are open")
        r = few.command("two", text % "")
        same((r.status, r.json["code"]), (503, "at_capacity"))
        check(r.headers["Retry-After"], r)
        check("worker_rlimit_nofile" in few.error_log, "what can be done")
        same(few.command("three", "echo").status, 200, "others go on")
        same(few.command("two", text % "", token=other).json["code"],
             "runner_lost", "another tenant's are sent")
        few.run("three", "mock: go=others")
        first.join(150)
        same(few.command("two", text % "").json["code"], "runner_lost",
             "room again")


@test("notices of a result")
def notices():
    r = g.run("notice", "mock: notice=renamed%00a.csv%00It%20is%20\"there\".")
    same(r["stagingNotices"], [{"name": "a.csv", "code": "renamed",
                                "detail": 'It is "there".'}])
    r = g.run("notice", "mock: notice=x")
    same(r["stagingNotices"], [{"name": "", "code": "x", "detail": ""}])


main(start, stop)
