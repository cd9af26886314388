#!/usr/bin/env python3
"""Files of a sandbox over the wire: read, listed, written and removed by the
agent, whatever a hostile user puts in their place; group files of the cases."""

import hashlib
import os
import random
import re
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import wait_for                                 # noqa: E402
from runner import Runner, session, tenant, together         # noqa: E402
from tap import SANITIZED, backends, check, main, same, test # noqa: E402

backends("local", why="runner")

r = None
ALL = 1                 # root "/"
MB = 1 << 20


def start():
    global r
    r = Runner("--pool", "2").start()


def stop():
    complaints = r.complaints()
    r.close()
    same(complaints, [], "sanitizers")


def op(operation, name, path, body=b"", chunks=None, **fields):
    repeated = [(k, v) for k in ("IF_MATCH", "IF_NONE_MATCH", "STAGE")
                for v in fields.pop(k, [])]
    head = wire.fields(("PATH", path), *fields.items(), *repeated)
    return r.client.call(operation, head, body, chunks=chunks,
                         session=session(name), tenant=tenant(name))


def read(name, path, **fields):
    a = op(wire.FILE_READ, name, path, **fields)
    if a.head and a.head["STATUS"] in (200, 206) \
            and a.head["FILE_TYPE"] == 0 and not fields.get("NO_BODY"):
        first = a.head.get("RANGE_FIRST", 0)
        last = a.head.get("RANGE_LAST", a.head["FILE_SIZE"] - 1)
        same(len(a.data), last - first + 1, "bytes that HEAD promised")
        same(a.result["BYTES"], len(a.data))
    return a


def content(name, path, **fields):
    a = read(name, path, **fields)
    same(a.error, None, "read of %r" % path)
    return a.data


def write(name, path, body=b"", chunks=None, **fields):
    return op(wire.FILE_WRITE, name, path, body, chunks, **fields)


def put(name, path, body=b"", status=201, **fields):
    a = write(name, path, body, **fields)
    same(a.error, None, "write of %r" % path)
    same((a.result["STATUS"], a.result.get("CODE")), (status, None))
    return a.result


def remove(name, path, **fields):
    return op(wire.FILE_REMOVE, name, path, **fields)


def listing(name, path="", **fields):
    a = op(wire.FILE_READ, name, path, LIST=1, **fields)
    same(a.error, None, "listing of %r" % path)
    out, at = [], 0
    while at < len(a.data):
        length, = struct.unpack_from(">I", a.data, at)
        out.append(wire.unique(wire.read_fields(
            a.data[at + 4:at + 4 + length])))
        at += 4 + length
    return out, a.result.get("NEXT_NAME")


def names(name, path="", **fields):
    return [e["FILE_NAME"] for e in listing(name, path, **fields)[0]]


def run(name, text, **fields):
    a = r.command(name, text, **fields)
    check(a.result and a.outcome == "exit" and not a.result["EXIT_CODE"],
          "command failed:", a)
    return a.stdout


def code(answer):
    """Of an ERROR, or of a RESULT that failed."""
    if answer.error:
        return answer.code
    return answer.result.get("CODE", b"").decode() or None


@test("files/roundtrip-bytes")
def roundtrip():
    noise = random.Random(1).randbytes(8 * MB)
    for n, body in enumerate([b"", b"x", bytes(range(256)), noise,
                              b"a\r\nb\r\n"]):
        path = "bytes/%d.bin" % n
        made = put("bytes", path, body)
        same(made["FILE_SIZE"], len(body))
        a = read("bytes", path)
        check(a.data == body, "other bytes came back")
        same((a.head["STATUS"], a.head["FILE_TYPE"], a.head["FILE_SIZE"],
              a.head["FILE_MODE"]), (200, 0, len(body), 0o644))
        same(a.head["ETAG"], made["ETAG"])
        check(abs(a.head["MODIFIED_NS"] / 1e9 - time.time()) < 600, "mtime")
        sums = run("bytes", "sha256sum < bytes/%d.bin" % n).split()[0]
        same(sums.decode(), hashlib.sha256(body).hexdigest())
    # in chunks, also tiny ones
    a = write("bytes", "chunks", chunks=[b"a", b"bc", bytes(200000), b"d"])
    same(a.result["STATUS"], 201)
    same(content("bytes", "chunks"), b"abc" + bytes(200000) + b"d")
    same(code(write("bytes", "none", chunks=[])), None)
    same(content("bytes", "none"), b"")


def pieces(body, size=256 * 1024):
    return [body[i:i + size] for i in range(0, len(body), size)]


@test("files/upload-ends-with-a-read")
def borders():
    """Bodies whose last byte comes with the last read of a round."""
    for k in range(1, 10):
        for d in (-8192, -1, 0, 1, 8192):
            body = bytes(k * 65536 + d)
            put("borders", "f", body, status=200 if (k, d) != (1, -8192)
                else 201)
            a = write("borders", "f", chunks=[body[:100000],
                                                   *pieces(body[100000:])])
            same((a.result["STATUS"], a.result.get("FILE_SIZE")),
                 (200, len(body)))


@test("files/traversal")
def traversal():
    run("out", "true")
    for path, want in [("../../etc/passwd", "path_outside"),
                       ("..", "path_outside"), ("a/..", "path_outside"),
                       ("foo/../../x", "path_outside"),
                       ("/etc/passwd", "bad_request"),
                       ("////etc/passwd", "bad_request"),
                       ("a//b", "bad_request"), ("./a", "bad_request"),
                       ("a/", "bad_request"), (b"a\0b", "bad_request"),
                       ("..%2f..%2fetc%2fpasswd", "file_not_found"),
                       ("..\\..\\x", "file_not_found"),
                       ("n" * 256, "bad_request"),
                       ("a/" * 2100 + "b", "bad_request"),
                       ("a/" * 2000 + "b", "file_not_found")]:
        for root in (0, ALL):
            a = read("out", path, ROOT=root)
            same(code(a), want, "%r below %d" % (path[:40], root))
            a = remove("out", path, ROOT=root)
            same(code(a), want, "removal of %r" % path[:40])
    for path in ("../x", "/tmp/x", "a/../../x"):
        check(code(write("out", path, b"x")) in ("path_outside",
                                                 "bad_request"), path)
    same(content("out", "etc/hostname", ROOT=ALL) is not None, True)
    same(op(wire.FILE_READ, "out", "x", ROOT=2).code, "bad_request")
    same(op(wire.FILE_READ, "out", "x", LIMIT=0).code, "bad_request")


@test("files/symlink-out")
def symlink_out():
    run("links", "ln -s /etc/passwd x; ln -s ../../etc/passwd y; "
        "ln -s /etc d; ln -s /proc/self/environ e; ln -s /proc/1/root/etc/passwd p")
    for path in ("x", "y", "d/passwd", "e", "p", "d"):
        check(code(read("links", path)) == "path_outside", path,
              read("links", path))
        check(code(write("links", path, b"gone"))
              in ("path_outside", "is_a_directory"), path)
    check(b"root:" in content("links", "etc/passwd", ROOT=ALL), "etc/passwd")
    same([(e["FILE_TYPE"], e["TARGET"]) for e in listing("links")[0]
          if e["FILE_NAME"] == b"x"], [(2, b"/etc/passwd")])
    same(remove("links", "x").result["FILE_TYPE"], 2)
    check(b"root:" in content("links", "etc/passwd", ROOT=ALL), "etc/passwd")
    same(code(remove("links", "d/passwd")), "path_outside")
    same(code(remove("links", "d", RECURSIVE=1)), None)
    # where the user may not write, neither may a client
    for path in ("etc/passwd", "etc/new", "new", "usr/bin/x"):
        same(code(write("links", path, b"x", ROOT=ALL)), "not_permitted",
             path)
        check(code(remove("links", path, ROOT=ALL))
              in ("not_permitted", "file_not_found"), path)
    run("links", "true")
    check(b"root:" in content("links", "etc/passwd", ROOT=ALL), "etc/passwd")


@test("files/symlink-inside")
def symlink_inside():
    run("inside", "mkdir data; echo 1 > data/a.csv; ln -s data/a.csv latest; "
        "ln -s /home/sandbox/data/a.csv absolute; ln -s data folder; "
        "ln -s nothing dangling; ln -s l2 l1; ln -s l1 l2; "
        "ln -s ../inside-not; echo t > /tmp/t; ln -s /tmp/t t; "
        "ln -s ../sandbox/data/a.csv around; ln -s . here")
    for path in ("latest", "absolute", "folder/a.csv", "here/here/latest"):
        same(content("inside", path), b"1\n", path)
    same(content("inside", "t"), b"t\n", "a link into another root")
    # through the outside, if only for a step
    same(code(read("inside", "around")), None)
    same(code(read("inside", "dangling")), "file_not_found")
    same(code(read("inside", "l1")), "not_a_file")
    same(code(write("inside", "l1", b"x")), "not_a_file")
    same(code(write("inside", "dangling", b"x")), "file_not_found")
    # what a link leads to is replaced, not the link
    for path in ("latest", "absolute", "t"):
        put("inside", path, path.encode(), status=200)
        same(content("inside", path), path.encode())
    same(run("inside", "readlink latest absolute t; cat /tmp/t data/a.csv"),
         b"data/a.csv\n/home/sandbox/data/a.csv\n/tmp/t\ntabsolute")


@test("files/fifo")
def fifo():
    run("fifo", "mkfifo p; python3 -c \"import socket; "
        "socket.socket(socket.AF_UNIX).bind('s')\"; (echo waits > p; "
        "echo heard > heard) > /dev/null 2>&1 & sleep 0.2")
    for path in ("p", "s"):
        t = time.monotonic()
        same(code(read("fifo", path)), "not_a_file", path)
        same(code(write("fifo", path, b"x")), "not_a_file", path)
        same(code(read("fifo", path, LIST=1)), "not_a_file", path)
        check(time.monotonic() - t < 30, "it waited")
    same([e["FILE_TYPE"] for e in listing("fifo")[0]
          if e["FILE_NAME"] in (b"p", b"s")], [3, 3])
    # nobody has opened it for real
    same(code(read("fifo", "heard")), "file_not_found")
    same(code(remove("fifo", "p")), None)


@test("files/devices-proc")
def devices():
    run("dev", "for n in /dev/zero /dev/random /proc/self/mem /proc/kmsg "
        "/proc/self/fd/0 /proc/self/environ /proc/self/exe /proc/1/fd/3 "
        "/sys/x /dev/null; do ln -s $n $(echo $n | tr / _); done")
    for path in ("_dev_zero", "_dev_random", "_proc_self_mem", "_proc_kmsg",
                 "_proc_self_fd_0", "_proc_self_environ", "_proc_self_exe",
                 "_proc_1_fd_3", "_dev_null"):
        check(code(read("dev", path)) in ("path_outside", "not_permitted"),
              path, read("dev", path))
        check(code(write("dev", path, b"x")) in ("path_outside",
                                                 "not_permitted"), path)
    for path in ("proc/self/environ", "proc/1/environ", "proc", "dev/zero",
                 "dev/null", "proc/cpuinfo", "dev", "dev/pts",
                 "proc/1/root/etc/passwd"):
        check(code(read("dev", path, ROOT=ALL)) == "path_outside", path)
    # the agent's own
    put("dev", "spooled", b"x")
    for path in ("var/lib/sandbox", "var/lib/sandbox/spool"):
        same(code(read("dev", path, ROOT=ALL)), "path_outside")
        same(code(write("dev", path + "/x", b"", ROOT=ALL)), "path_outside")
        same(code(remove("dev", path, ROOT=ALL, RECURSIVE=1)),
             "path_outside")
    same(run("dev", "ls /var/lib/sandbox 2>&1; cat /var/lib/sandbox/manifest"
             " 2>&1; cd /var/lib/sandbox/spool 2>&1; true").count(b"denied"),
         3)


@test("files/directory-as-file")
def directory():
    run("folder", "mkdir d; echo 1 > f")
    same(code(write("folder", "d", b"x")), "is_a_directory")
    same(code(write("folder", "", b"x")), "is_a_directory")
    same(code(write("folder", "f/x", b"x")), "not_a_directory")
    same(code(read("folder", "f/x")), "not_a_directory")
    same(code(read("folder", "f", LIST=1)), "not_a_directory")
    a = read("folder", "d")
    same((a.head["FILE_TYPE"], a.data), (1, b""))
    a = read("folder", "d", NO_BODY=1)
    same((a.head["FILE_TYPE"], a.head["FILE_MODE"]), (1, 0o755))


ODD = ["report (1).txt", "it's.txt", "a b.csv", "100%.txt", "%41.txt", "#x",
       "a?b=c", "-rf", "$HOME.txt", "back\\slash", ".hidden", "trailing.",
       "trailing ", "\U0001f923.txt", "\u00e9.txt", "e\u0301.txt",
       "\u043e\u0442\u0447\u0451\u0442.xlsx", "a$b`c\"d.txt", "new\nline",
       "'; import os #", "$(touch x)", "n" * 255, "\u20ac" * 85, " ", "..."]


@test("files/names-odd")
def names_odd():
    run("odd", "mkdir odd")
    for n, name in enumerate(ODD + [b"\xff\xfe.bin"]):
        raw = name if isinstance(name, bytes) else name.encode()
        path = b"odd/" + raw
        put("odd", path, b"%d" % n)
        same(content("odd", path), b"%d" % n)
        same(names("odd", "odd"), [raw])
        same(run("odd", "cd odd; printf '%s' *").replace(b"*", b"")
             or b".hidden", raw if raw[:1] != b"." else b".hidden")
        same(remove("odd", path).result["FILE_TYPE"], 0)
        same(names("odd", "odd"), [])
    same(code(write("odd", "n" * 256, b"")), "bad_request")
    same(code(write("odd", b"odd/a\0b", b"")), "bad_request")
    same(run("odd", "ls -A odd | wc -l"), b"0\n")


@test("files/range")
def ranges():
    data = random.Random(2).randbytes(1000)
    put("range", "f", data)
    put("range", "empty", b"")
    etag = content and read("range", "f").head["ETAG"]
    for fields, want in [
            ({"RANGE_FIRST": 0, "RANGE_LAST": 0}, (0, 0)),
            ({"RANGE_FIRST": 5}, (5, 999)),
            ({"RANGE_SUFFIX": 5}, (995, 999)),
            ({"RANGE_SUFFIX": 5000}, (0, 999)),
            ({"RANGE_FIRST": 0, "RANGE_LAST": 999999}, (0, 999)),
            ({"RANGE_FIRST": 999}, (999, 999)),
            ({"RANGE_FIRST": 1000}, 416), ({"RANGE_SUFFIX": 0}, 416),
            ({"RANGE_FIRST": 2 ** 64 - 1}, 416),
            ({"RANGE_FIRST": 5, "RANGE_LAST": 4}, 200),
            ({"RANGE_FIRST": 1, "RANGE_LAST": 2, "IF_RANGE": etag}, (1, 2)),
            ({"RANGE_FIRST": 1, "IF_RANGE": b"other"}, 200)]:
        a = read("range", "f", **fields)
        if want == 416:
            same((a.head["STATUS"], a.head["FILE_SIZE"], a.data),
                 (416, 1000, b""), repr(fields))
        elif want == 200:
            same((a.head["STATUS"], a.data), (200, data), repr(fields))
        else:
            same((a.head["STATUS"], a.head["RANGE_FIRST"],
                  a.head["RANGE_LAST"], a.data),
                 (206,) + want + (data[want[0]:want[1] + 1],), repr(fields))
        a = read("range", "f", NO_BODY=1, **fields)
        same((a.data, a.result["BYTES"]), (b"", 0))
    same(read("range", "empty", RANGE_SUFFIX=1).head["STATUS"], 416)
    same(op(wire.FILE_READ, "range", "f", RANGE_SUFFIX=1, RANGE_FIRST=1).code,
         "bad_request")


@test("files/etag")
def etag():
    seen = set()
    for n in range(50):                 # within the same second, same length
        put("etag", "f", b"%03d" % n, status=200 if n else 201)
        a = read("etag", "f")
        check(a.head["ETAG"] not in seen and len(a.head["ETAG"]) == 32,
              "the same etag")
        seen.add(a.head["ETAG"])
    run("etag", "printf 050 > f")
    tag = read("etag", "f").head["ETAG"]
    check(tag not in seen, "the same etag")
    same(read("etag", "f", IF_NONE_MATCH=[tag]).head["STATUS"], 304)
    same(read("etag", "f", IF_NONE_MATCH=[b"x", tag]).data, b"")
    same(read("etag", "f", IF_NONE_MATCH=[b"x"]).head["STATUS"], 200)
    same(read("etag", "f", IF_NONE_MATCH=[b"*"]).head["STATUS"], 304)
    same(read("etag", "f", IF_MATCH=[b"x"]).head["STATUS"], 412)
    same(read("etag", "f", IF_MATCH=[tag, b"x"]).head["STATUS"], 200)


@test("files/overwrite-rules")
def overwrite():
    tag = put("rules", "f", b"1", IF_NONE_MATCH=[b"*"])["ETAG"]
    same(code(write("rules", "f", b"2", IF_NONE_MATCH=[b"*"])),
         "precondition_failed")
    same(code(write("rules", "g", b"2", IF_MATCH=[b"*"])),
         "precondition_failed")
    tag2 = put("rules", "f", b"2", status=200, IF_MATCH=[tag])["ETAG"]
    same(code(write("rules", "f", b"3", IF_MATCH=[tag])),
         "precondition_failed")
    same(code(remove("rules", "f", IF_MATCH=[tag])), "precondition_failed")
    same(content("rules", "f"), b"2")
    # the condition is seen to once more when the body is there
    sock = r.client.send(wire.FILE_WRITE,
                         wire.fields(("PATH", "f"), ("IF_MATCH", tag2)),
                         session=session("rules"), tenant=tenant("rules"),
                         chunks=None, body=b"")
    sock.close()
    head = wire.fields(("PATH", "f"), ("IF_MATCH",
                                       read("rules", "f").head["ETAG"]))
    first = wire.Preamble(wire.FILE_WRITE, head=len(head), body=1,
                          key=r.client.key, session=session("rules"),
                          tenant=tenant("rules"))
    with r.client.connect() as sock:
        sock.sendall(first.encode() + head)
        same(wire.read_frame(sock)[0], wire.HEAD)
        put("rules", "f", b"4", status=200)
        sock.sendall(b"5")
        answer = wire.Answer()
        answer.head = {}
        a = r.client.answer(sock, answer)
        same((a.result["STATUS"], a.result["CODE"]),
             (412, b"precondition_failed"))
    same(content("rules", "f"), b"4")
    same(code(remove("rules", "f", IF_MATCH=[b"*"])), None)


@test("files/atomic-upload")
def atomic():
    old = bytes(300000)
    put("cut", "big.bin", old)
    before = run("cut", "df --output=iused / | tail -1; ls -A; ls -A /tmp")
    for chunked in (False, True):
        for path, root in (("big.bin", 0), ("new/er/big.bin", 0),
                           ("tmp/big.bin", ALL), ("dev/shm/big.bin", ALL)):
            head = wire.fields(("PATH", path), ("ROOT", root))
            first = wire.Preamble(wire.FILE_WRITE, head=len(head),
                                  body=wire.CHUNKED if chunked else 600000,
                                  key=r.client.key, session=session("cut"),
                                  tenant=tenant("cut"))
            body = b"x" * 250000
            if chunked:
                body = struct.pack(">I", len(body)) + body
            with r.client.connect() as sock:
                sock.sendall(first.encode() + head + body)
                same(wire.read_frame(sock)[0], wire.HEAD)
    same(content("cut", "big.bin"), old)
    wait_for(lambda: run("cut", "df --output=iused / | tail -1; ls -A; "
                         "ls -A /tmp") == before, 10, "all is as before")
    same(run("cut", "ls /dev/shm"), b"")


@test("files/upload-then-use")
def upload_use():
    run("use", "true")
    put("use", "data.csv", b"a,b\n1,2\n")
    same(run("use", "wc -c < data.csv; stat -c '%U:%G %a' data.csv"),
         b"8\nsandbox:sandbox 644\n")
    put("use", "tmp/t", b"1", ROOT=ALL)
    put("use", "dev/shm/t", b"2", ROOT=ALL)
    put("use", "tmp/t", b"3", ROOT=ALL, status=200)
    put("use", "var/tmp/t", b"4", ROOT=ALL)
    same(run("use", "cat /tmp/t /dev/shm/t /var/tmp/t; "
             "stat -c '%U:%G %a' /tmp/t; ls -A /tmp /dev/shm"),
         b"324sandbox:sandbox 644\n/dev/shm:\nt\n\n/tmp:\nt\n")


@test("files/upload-new-dirs")
def new_dirs():
    put("dirs", "a/b/c/d.txt", b"1")
    same(run("dirs", "touch a/b/x; stat -c '%U %a' a a/b a/b/c"),
         b"sandbox 755\n" * 3)
    deep = "/".join(["d"] * 1500)
    put("dirs", deep, b"deep")
    same(content("dirs", deep), b"deep")
    same(code(remove("dirs", "d")), "not_empty")
    same(code(remove("dirs", "d", RECURSIVE=1)), None)
    check(b"d" not in names("dirs"), "it is still there")
    run("dirs", "mkdir locked; chmod 555 locked")
    same(code(write("dirs", "locked/x", b"")), "not_permitted")
    same(code(write("dirs", "locked/y/x", b"")), "not_permitted")
    run("dirs", "chmod 755 locked; echo 1 > locked/f; chmod 000 locked/f; "
        "chmod 555 locked")
    same(code(read("dirs", "locked/f")), "not_permitted")
    same(code(remove("dirs", "locked/f")), "not_permitted")
    same(code(remove("dirs", "locked", RECURSIVE=1)), "not_permitted")


@test("files/exec-bit")
def exec_bit():
    put("exec", "run.sh", b"#!/bin/sh\necho 1\n", FILE_MODE=0o755)
    same(run("exec", "./run.sh"), b"1\n")
    put("exec", "run.sh", b"#!/bin/sh\necho 2\n", status=200)
    same(run("exec", "./run.sh"), b"2\n")
    put("exec", "run.sh", b"x", status=200, FILE_MODE=0o600)
    same(read("exec", "run.sh").head["FILE_MODE"], 0o600)
    same(op(wire.FILE_WRITE, "exec", "x", FILE_MODE=0o4755).code,
         "bad_request")


@test("files/list-large", seconds=900)
def list_large():
    run("large", "mkdir many; cd many; seq -f 'file-%06g' 100000 | "
        "xargs touch; ln -s a-target link", cpu_ms=200000, wall_ms=250000,
        disk=4096)
    agent = agents("large")
    before = memory(agent)
    got, cursor, pages = [], None, 0
    pings = ping_while("large", lambda: None)
    t = time.monotonic()
    entries, cursor = listing("large", "many", LIMIT=1000)
    first = time.monotonic() - t
    check(cursor == b"file-001000", "cursor", cursor)
    same([e["FILE_NAME"] for e in entries],
         [b"file-%06d" % n for n in range(1, 1001)])
    entries, cursor = listing("large", "many", LIMIT=10,
                              CURSOR=b"file-099995")
    same([e["FILE_NAME"] for e in entries],
         [b"file-%06d" % n for n in range(99996, 100001)] + [b"link"])
    same(cursor, None)
    same(entries[-1]["TARGET"], b"a-target")
    entries, cursor = listing("large", "many", CURSOR=b"link")
    same((entries, cursor), ([], None))
    # all of it, in pages; others do not wait for it
    cursor = b"file-090000"
    while cursor is not None:
        entries, cursor = listing("large", "many", CURSOR=cursor)
        got += [e["FILE_NAME"] for e in entries]
        pages += 1
    same((len(got), got == sorted(got), pages), (10001, True, 11))
    # a sanitizer keeps what was freed for a while
    check(SANITIZED or memory(agent) - before < 2048, "memory grew by %d KiB"
          % (memory(agent) - before))
    print("# a page of 1000 of 100,000 names: %d ms" % (first * 1000))
    t = time.monotonic()
    slowest = ping_while("large", lambda: same(
        code(remove("large", "many", RECURSIVE=1)), None))
    print("# 100,000 files removed in %d ms; a read beside it took %d ms at "
          "most" % ((time.monotonic() - t) * 1000, slowest * 1000))
    check(slowest < 60, "others waited %r s" % slowest)
    check(b"many" not in names("large"), "it is still there")


def agents(name):
    """The agent of that conversation."""
    return r.agent_of(lambda text: run(name, text))


def memory(pid):
    """KiB that are its own, whoever else has the same program."""
    with open("/proc/%d/smaps_rollup" % pid) as f:
        found = dict(re.findall(r"(?m)^(\w+):\s+(\d+) kB", f.read()))
    return int(found["Anonymous"]) + int(found["Pss_Shmem"])


def ping_while(name, function):
    """The slowest of reads that go on meanwhile, in seconds."""
    put(name, "ping", b"x", status=200 if b"ping" in names(name) else 201)
    slowest, end = [0], threading.Event()

    def pinger():
        while not end.is_set():
            t = time.monotonic()
            content(name, "ping")
            slowest[0] = max(slowest[0], time.monotonic() - t)

    t = threading.Thread(target=pinger)
    t.start()
    try:
        function()
    finally:
        end.set()
        t.join()
    return slowest[0]


@test("files/delete-roots")
def delete_roots():
    run("roots", "true")
    for path, root in (("", 0), ("", ALL), ("home/sandbox", ALL),
                       ("tmp", ALL), ("dev/shm", ALL), ("skills", ALL),
                       (".", 0)):
        for recursive in (0, 1):
            a = remove("roots", path, ROOT=root, RECURSIVE=recursive)
            check(code(a) in ("path_outside", "bad_request"), path, root, a)
    for path in ("home", "proc", "dev", "usr"):
        same(code(remove("roots", path, ROOT=ALL, RECURSIVE=1)),
             "not_permitted", path)
    same(run("roots", "ls -d /home/sandbox /tmp /skills | wc -l"), b"3\n")
    same(code(remove("roots", "nothing")), "file_not_found")


@test("files/delete-tree")
def delete_tree():
    run("tree", "mkdir -p t/a/b t/c; touch t/1 t/a/2 t/a/b/3; ln -s /etc t/l;"
        " ln -s /home/sandbox t/c/home; echo kept > kept; "
        "for i in $(seq 200); do mkdir -p w/$i/x; touch w/$i/x/f; done")
    same(code(remove("tree", "t")), "not_empty")
    same(remove("tree", "t", RECURSIVE=1).result["FILE_TYPE"], 1)
    same(remove("tree", "w", RECURSIVE=1).result["FILE_TYPE"], 1)
    same(content("tree", "kept"), b"kept\n")
    check({b"t", b"w"}.isdisjoint(names("tree")), "still there")
    # deeper than a path may be, and than descriptors go
    run("tree", "python3 -c \"import os\nfor n in range(3000): "
        "os.mkdir('d' * 60); os.chdir('d' * 60)\nopen('f', 'w')\"")
    same(code(remove("tree", "d" * 60, RECURSIVE=1)), None)
    check(b"d" * 60 not in names("tree"), "still there")


@test("files/lease")
def lease():
    """A lease of the user: an answer at once, not after 45 s."""
    run("lease", "echo 1 > leased; python3 -c \"import fcntl, signal, time, "
        "os\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "f = os.open('leased', os.O_RDWR)\n"
        "fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "open('ready', 'w')\ntime.sleep(100)\" > /dev/null 2>&1 & "
        "while [ ! -e ready ]; do sleep 0.05; done")
    t = time.monotonic()
    same(code(read("lease", "leased")), "file_busy")
    same(code(read("lease", "leased", NO_BODY=1)), "file_busy")
    put("lease", "leased", b"2", status=200)
    check(time.monotonic() - t < 40, "it waited for the lease")
    same(content("lease", "leased"), b"2")


@test("files/shrinks-and-grows")
def shrinks():
    run("size", "head -c 30000000 /dev/urandom > f; cp f g")
    # no more than promised, however it grows
    head = wire.fields(("PATH", "g"))
    with r.client.send(wire.FILE_READ, head, session=session("size"),
                       tenant=tenant("size")) as sock:
        kind, payload = wire.read_frame(sock)
        same(kind, wire.HEAD)
        promised = dict(wire.read_fields(payload))["FILE_SIZE"]
        run("size", "head -c 30000000 /dev/urandom >> g")
        answer = wire.Answer()
        answer.head = {}
        a = r.client.answer(sock, answer)
        same((len(a.data), a.result["BYTES"]), (promised, promised))
    # less than promised is no RESULT
    with r.client.send(wire.FILE_READ, wire.fields(("PATH", "f")),
                       session=session("size"),
                       tenant=tenant("size")) as sock:
        same(wire.read_frame(sock)[0], wire.HEAD)
        run("size", ": > f")
        answer = wire.Answer()
        answer.head = {}
        try:
            a = r.client.answer(sock, answer)
            check(False, "a RESULT:", a.result)
        except wire.Lost:
            pass


@test("concurrency/files-while-running")
def while_running():
    t = threading.Thread(target=lambda: run(
        "busy", "echo 1 > f; until [ -e go ]; do sleep 0.1; done"))
    t.start()
    wait_for(lambda: b"f" in names("busy") and content("busy", "f"), 10,
             "its file")
    same(content("busy", "f"), b"1\n")
    put("busy", "g", b"2")
    same(code(remove("busy", "f")), None)
    check(t.is_alive(), "it waited for the command")
    put("busy", "go", b"")
    t.join()


@test("files/large-transfers", seconds=900)
def large():
    """50 MiB up and down, again and again: memory stays as it is."""
    body = random.Random(3).randbytes(50 * MB)
    digest = hashlib.sha256(body).digest()
    run("fifty", "true")
    agent = agents("fifty")
    put("fifty", "warm", body[:MB])
    content("fifty", "warm")
    before, most = memory(agent), 0
    times = {"up": [], "chunks": [], "down": []}
    done = threading.Event()

    def watch():
        nonlocal most
        while not done.is_set():
            most = max(most, memory(agent))
            time.sleep(0.02)

    t = threading.Thread(target=watch)
    t.start()
    try:
        for n in range(8):
            at = time.monotonic()
            put("fifty", "f", body, status=200 if n else 201)
            times["up"].append(time.monotonic() - at)
            at = time.monotonic()
            a = write("fifty", "f", chunks=[body[i:i + 200000] for i in
                                            range(0, len(body), 200000)])
            same(a.error, None, "in chunks")
            same(a.result["STATUS"], 200)
            times["chunks"].append(time.monotonic() - at)
            at = time.monotonic()
            got = content("fifty", "f")
            times["down"].append(time.monotonic() - at)
            check(hashlib.sha256(got).digest() == digest, "other bytes")
    finally:
        done.set()
        t.join()
    print("# 50 MiB: " + ", ".join(
        "%s %.0f MiB/s" % (k, 50 / sorted(v)[len(v) // 2])
        for k, v in times.items()) + "; memory +%d KiB" % (most - before))
    check(most - before <= 1024, "memory grew by %d KiB" % (most - before))


@test("files/disk-full")
def disk_full():
    def command(text):
        return r.command("full", text, disk=64)
    command("true")
    a = write("full", "big", bytes(60 * MB))
    same(code(a), "disk_full")
    a = write("full", "big", chunks=[bytes(200000)] * 400)
    same(code(a), "disk_full")
    check(b"big" not in names("full"), "half a file")
    wait_for(lambda: code(write("full", "small", bytes(10 * MB))) is None, 5,
             "room again")
    same(content("full", "small"), bytes(10 * MB))


@test("files/agent-killed")
def agent_killed():
    """An agent that dies in the middle: nothing is listed, nothing stays."""
    put("killed", "f", b"old")
    agent = agents("killed")
    head = wire.fields(("PATH", "f"))
    first = wire.Preamble(wire.FILE_WRITE, head=len(head), body=MB,
                          key=r.client.key, session=session("killed"),
                          tenant=tenant("killed"))
    with r.client.connect() as sock:
        sock.sendall(first.encode() + head + bytes(MB // 2))
        same(wire.read_frame(sock)[0], wire.HEAD)
        os.kill(agent, 9)
        try:
            same(wire.read_frame(sock), None)
        except ConnectionResetError:
            pass
    same(content("killed", "f"), b"old")
    same(run("killed", "ls -A | grep -c sandbox- || true"), b"0\n")
    put("killed", "f", b"new", status=200)
    used = int(run("killed", "df --output=used -k / | tail -1"))
    check(used < 20000, "the disk has %d KiB" % used)


@test("files/request-is-strict")
def strict():
    run("strict", "true")
    for head in (wire.fields(("PATH", "a"), ("PATH", "b")),
                 wire.fields(("PATH", "a"), ("ROOT", 7)),
                 wire.fields(("PATH", "a"), ("IF_MATCH", b"x" * 65)),
                 wire.fields(("PATH", "a"), ("CURSOR", b"x" * 256)),
                 wire.fields(("PATH", "a"), ("LIMIT", 1001)),
                 wire.fields(("PATH", "a"), ("NO_BODY", 2)),
                 wire.fields(("PATH", "a"), ("RANGE_LAST", 2)),
                 wire.fields(*[("IF_MATCH", b"x")] * 17), b"\0\1\0"):
        for operation in (wire.FILE_READ, wire.FILE_WRITE, wire.FILE_REMOVE):
            a = r.client.call(operation, head, session=session("strict"),
                              tenant=tenant("strict"))
            same(a.code, "bad_request", repr(head[:40]))
    # a chunk that can't be one
    head = wire.fields(("PATH", "a"))
    first = wire.Preamble(wire.FILE_WRITE, head=len(head), body=wire.CHUNKED,
                          key=r.client.key, session=session("strict"),
                          tenant=tenant("strict"))
    with r.client.connect() as sock:
        sock.sendall(first.encode() + head + b"\xff" * 4 + bytes(100))
        a = r.client.answer(sock)
        same((a.result["STATUS"], a.result["CODE"]), (400, b"bad_request"))
    same(names("strict").count(b"a"), 0)


main(start, stop)
