#!/usr/bin/env python3
"""What a conversation brings along, staged over the wire: attachments and
skills, asked for, spooled, and put in their places at a command's turn."""

import hashlib
import io
import os
import struct
import subprocess
import sys
import tarfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import wait_for                                 # noqa: E402
from hold import held                                        # noqa: E402
from kill_at import KillAt                                   # noqa: E402
from runner import Runner, session, tenant, together         # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")

r = None
MB = 1 << 20
FILE, SKILL = 1, 2


def start():
    global r
    r = Runner("--pool", "2").start()


def stop():
    complaints = r.complaints()
    r.close()
    same(complaints, [], "sanitizers")


def raw(name):
    return name if isinstance(name, bytes) else name.encode()


def field(kind, name, body, etag=None):
    etag = etag or hashlib.sha256(body).digest()[:16]
    return (struct.pack(">BBH", kind, 0, len(raw(name))) + etag
            + struct.pack(">Q", len(body)) + raw(name))


def send(name, text, files=(), bodies=None, stdin=b"", id=None, chunked=None,
         flags=0, digest=None, **more):
    """One COMMAND; `bodies` are the numbers of those that come along."""
    pairs = [("COMMAND", text), ("COMMAND_ID", id),
             ("DIGEST", digest or hashlib.sha256(text.encode()).digest()),
             *more.items(), *[("STAGE", field(*f)) for f in files]]
    body = stdin
    if bodies is not None:
        pairs += [("STDIN_BYTES", len(stdin)),
                  *[("STAGE_BODY", n) for n in bodies]]
        body += b"".join(files[n][2] for n in bodies)
    chunks = None
    if chunked:
        chunks = [body[i:i + chunked] for i in range(0, len(body), chunked)]
        body = b""
    return r.client.call(wire.COMMAND, wire.fields(*pairs), body,
                         chunks=chunks, session=session(name), tenant=tenant(name),
                         flags=flags)


def needed(answer):
    if answer.code != "stage_needed":
        return None
    data = answer.error["NEEDED"]
    return list(struct.unpack(">%dI" % (len(data) // 4), data))


def go(name, text, files=(), **more):
    """As the gateway does it: (the answer, which files were asked for)."""
    a = send(name, text, files, **more)
    asked = needed(a)
    if asked is not None:
        a = send(name, text, files, asked, **more)
        if more.get("flags", 0) & wire.FRESH and needed(a) is not None:
            more["flags"] = 0
            asked = needed(a)
            a = send(name, text, files, asked, **more)
    check(a.error is None, "an error:", a)
    return a, asked or []


def out(name, text, files=(), **more):
    a, _ = go(name, text, files, **more)
    check(a.outcome == "exit" and a.result["EXIT_CODE"] == 0, "failed:", a)
    return a.stdout


def notices(answer):
    return [tuple(p.decode("utf-8", "replace") for p in n.split(b"\0", 2))
            for n in answer.result.get("NOTICE", [])]


def tar(entries, **options):
    """(name, bytes or None for a folder, or a TarInfo) into a tar."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", **options) as t:
        for name, body in entries:
            if isinstance(name, tarfile.TarInfo):
                t.addfile(name, io.BytesIO(body) if body else None)
                continue
            info = tarfile.TarInfo(name)
            if body is None:
                info.type = tarfile.DIRTYPE
                t.addfile(info)
            else:
                info.size = len(body)
                t.addfile(info, io.BytesIO(body))
    return data.getvalue()


@test("files/stage-attachments")
def attachments():
    one = [(FILE, "data.csv", b"a,b\n1,2\n"), (FILE, "empty", b""),
           (FILE, "big.bin", os.urandom(3 * MB))]
    a, asked = go("att", "cd attachments; sha256sum data.csv empty big.bin; "
                  "stat -c '%U:%G %a' *; cat", one, stdin=b"the input")
    same(asked, [0, 1, 2])
    same(a.stdout.decode(), "".join(
        "%s  %s\n" % (hashlib.sha256(f[2]).hexdigest(), f[1]) for f in one)
        + "sandbox:sandbox 644\n" * 3 + "the input")
    same((a.result["CREATED"], notices(a)), (1, []))
    # what is there is not asked for
    a, asked = go("att", "cat attachments/data.csv", one)
    same((a.stdout, asked), (b"a,b\n1,2\n", []))
    # a new version of one, in chunks; one is no longer named
    two = [(FILE, "data.csv", b"new"), one[2]]
    a = send("att", "ls attachments; cat attachments/data.csv; cat", two,
             [0], stdin=b"x" * 100000, chunked=7000)
    same(a.stdout, b"big.bin\ndata.csv\nnew" + b"x" * 100000)
    same(notices(a), [])
    # none any more
    same(out("att", "ls -A attachments"), b"")
    same(out("att", "ls -A attachments"), b"")
    # names
    odd = [(FILE, n, raw(n)) for n in
           ["report (1).txt", "it's.txt", "-rf", "$HOME.txt", "a$b`c\"d.txt",
            "\U0001f923.txt", "\u043e\u0442\u0447\u0451\u0442.xlsx",
            "trailing ", "trailing.", "new\nline", "n" * 255, b"\xff\xfe"]]
    same(out("att", "cd attachments; cat ./-rf 'report (1).txt'; ls | wc -l",
             odd), b"-rfreport (1).txt%d\n" % (len(odd) + 1))


@test("files/stage-ends-with-a-read")
def borders():
    """Bodies whose last byte comes with the last read of a round."""
    for k in range(1, 10):
        for d in (-8192, 0, 1, 8192):
            body = bytes(k * 65536 + d)
            same(out("borders", "wc -c < attachments/f",
                     [(FILE, "f", body)]), b"%d\n" % len(body))


@test("files/stage-changed-by-user")
def changed():
    v1 = [(FILE, "data.csv", b"one")]
    out("changed", "echo mine > attachments/data.csv", v1)
    # the same version again: the user's stays as it is
    a, asked = go("changed", "cat attachments/*", v1)
    same((a.stdout, asked, notices(a)), (b"mine\n", [], []))
    v2 = [(FILE, "data.csv", b"two")]
    a, asked = go("changed", "ls attachments; cat attachments/data*", v2)
    same(a.stdout, b"data (2).csv\ndata.csv\ntwomine\n")
    same([n[:2] for n in notices(a)], [("renamed", "data.csv")])
    check("data (2).csv" in notices(a)[0][2], "which name:", notices(a))
    # the next version takes the place of that one, which is ours
    a, _ = go("changed", "cat attachments/data*", [(FILE, "data.csv", b"3")])
    same((a.stdout, notices(a)), (b"3mine\n", []))
    # removed by the user: not brought back, but a new version is
    out("changed", "rm attachments/*", [(FILE, "data.csv", b"3")])
    same(out("changed", "ls attachments", [(FILE, "data.csv", b"3")]), b"")
    same(out("changed", "ls attachments", [(FILE, "data.csv", b"4")]),
         b"data.csv\n")
    # changed, then no longer named: the user's, so it stays
    out("changed", "echo x >> attachments/data.csv",
        [(FILE, "data.csv", b"4")])
    same(out("changed", "cat attachments/*"), b"4x\n")


@test("files/stage-hostile-place")
def hostile():
    files = [(FILE, "f", b"1")]
    for n, (before, text) in enumerate([
            ("rmdir attachments; ln -s /etc attachments", "a link"),
            ("rmdir attachments; echo 1 > attachments", "a file"),
            ("chmod 555 attachments", "read-only")]):
        name = "hostile%d" % n
        out(name, before)
        a, _ = go(name, "echo runs; ls /etc/f; true", files)
        check(a.stdout == b"runs\n" and [x[:2] for x in notices(a)]
              == [("not_staged", "f")], text, a, notices(a))
        # and it is tried again
        same(go(name, "true", files)[1], [0])
    out("hostile3", "rmdir attachments")
    same(out("hostile3", "cat attachments/f", files), b"1")
    # a user's own file of that name
    a, _ = go("hostile3", "cat attachments/g*",
              files + [(FILE, "g", b"2")])
    same(a.stdout, b"2")
    out("hostile4", "ln -s /etc/passwd attachments/f; mkdir attachments/g; "
        "mkfifo attachments/h")
    a, _ = go("hostile4", "cd attachments; cat 'f (2)' 'g (2)' 'h (2)'; "
              "readlink f", [(FILE, n, raw(n)) for n in "fgh"])
    same(a.stdout, b"fgh/etc/passwd\n")
    same([x[0] for x in notices(a)], ["renamed"] * 3)


@test("files/stage-out-of-reach")
def reach():
    out("reach", "true", [(FILE, "f", os.urandom(100000))])
    same(out("reach", "ls /var/lib/sandbox /var/lib/sandbox/spool 2>&1 | "
             "grep -c denied; cat /var/lib/sandbox/manifest 2>/dev/null; "
             "stat -c '%U %a' /var/lib/sandbox",
             [(FILE, "f", b"x")]), b"2\nroot 700\n")


@test("files/stage-order")
def order():
    """Commands that race: each is run with its own files, in order."""
    out("race", "true")
    n = 6

    def one(i):
        def f():
            time.sleep(0.15 * i)
            return go("race", "cat attachments/f; sleep 0.3",
                      [(FILE, "f", b"v%d" % i)], id="race-%d" % i)[0]
        return f
    got = together(*[one(i) for i in range(n)])
    same([getattr(a, "stdout", a) for a in got],
         [b"v%d" % i for i in range(n)])
    # the same file for two at once: once there is enough
    body = os.urandom(2 * MB)
    text = "sha256sum < attachments/big | cut -c1-64; ls attachments"
    got = together(*[lambda i=i: go("race", text, [(FILE, "big", body)],
                                    id="big-%d" % i)[0] for i in range(4)])
    same({getattr(a, "stdout", str(a).encode()).decode() for a in got},
         {hashlib.sha256(body).hexdigest() + "\nbig\n"})
    # who has to come back for his files does not lose his place, for a second
    for n in range(20):
        name = "place%d" % n
        out(name, "true")
        asked = time.monotonic()
        first = send(name, "echo 1 >> log", [(FILE, "f", b"1")], id="p1")
        same(needed(first), [0])
        t = held(lambda: out(name, "echo 2 >> log", [], id="p2"))
        time.sleep(0.3)
        a = send(name, "echo 1 >> log", [(FILE, "f", b"1")], [0], id="p1")
        in_time = time.monotonic() - asked < 0.8
        same(a.outcome, "exit")
        t.result()
        log = out(name, "cat log", id="p3")
        if in_time:
            break
    # one that never comes back within a second can't tell
    same(sorted(log.split()), [b"1", b"2"])
    check(log == b"1\n2\n" or not in_time, "the order", log)
    # who does not come back delays others for a second, not longer
    same(needed(send("place", "true", [(FILE, "g", b"1")], id="gone")), [0])
    at = time.monotonic()
    out("place", "true", id="p4")       # another one
    check(time.monotonic() - at < 50, "it waited")


@test("files/stage-repeated-command")
def repeated():
    files = [(FILE, "f", b"1")]
    out("again", "echo x >> log; cat attachments/f", files, id="one")
    a = send("again", "echo x >> log; cat attachments/f", files, id="one")
    same((a.stdout, needed(a)), (b"1", None))
    # with all its bytes, and when the file is another one by now
    out("again", "true", [(FILE, "f", b"2")], id="two")
    a = send("again", "echo x >> log; cat attachments/f", files, [0],
             id="one")
    same((a.stdout, needed(a)), (b"1", None))
    same(out("again", "wc -l < log", [(FILE, "f", b"2")]), b"1\n")


@test("files/stage-fresh")
def fresh():
    files = [(FILE, "f", b"1" * 100000)]
    before = go("fresh", "touch kept; cat attachments/f | wc -c", files)[0]
    same(before.stdout, b"100000\n")
    a, asked = go("fresh", "ls; cat attachments/f | wc -c", files,
                  flags=wire.FRESH, id="fresh-1")
    same(a.stdout, b"attachments\n100000\n".replace(
        b"attachments\n", b"".join(sorted(
            x + b"\n" for x in a.stdout.split()[:-1]))))
    check(b"kept" not in a.stdout, "not fresh", a.stdout)
    check(a.result["INSTANCE"] > before.result["INSTANCE"], "instance")
    same((a.result["CREATED"], asked), (1, [0]))
    # after RESET it is all asked for again
    r.call(wire.RESET, "fresh", tenant=tenant("fresh"))
    a, asked = go("fresh", "cat attachments/f | wc -c", files)
    same((a.stdout, asked), (b"100000\n", [0]))


def kill_agents():
    """All of them; one's child may be gone before it is its turn."""
    for pid in r.agents():
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass


@test("files/stage-kept")
def kept():
    """Over the death of the agent: nothing is asked for twice."""
    files = [(FILE, "f", b"1" * 5000), (SKILL, "s", tar([("m.py", b"x=1")]))]
    out("kept", "true", files)
    for _ in range(2):
        kill_agents()
        a, asked = go("kept", "cat attachments/f | wc -c; ls /skills; "
                      "ls attachments", files)
        same((a.stdout, asked, notices(a)), (b"5000\ns\nf\n", [], []))


@test("files/stage-killed-midway")
def midway():
    """An agent that dies while files come: no half file, nothing twice."""
    body = os.urandom(MB)
    files = [(FILE, "f", body)]
    for n in range(6):
        name = "midway"
        head = wire.fields(("COMMAND", "true"), ("STDIN_BYTES", 0),
                           ("STAGE", field(*files[0])), ("STAGE_BODY", 0))
        first = wire.Preamble(wire.COMMAND, head=len(head), body=len(body),
                              key=r.client.key, session=session(name),
                              tenant=tenant(name))
        with r.client.connect() as sock:
            sock.sendall(first.encode() + head + body[:MB - (n % 3)])
            time.sleep(0.05 * n)
            kill_agents()
        a, _ = go(name, "sha256sum attachments/* | cut -c1-64; ls "
                  "attachments", files)
        same(a.stdout.decode(), hashlib.sha256(body).hexdigest() + "\nf\n")
        a, _ = go(name, "rm attachments/*")
        # nothing remains of what was on its way
        files = [(FILE, "f", body, bytes([n]) * 16)]
    used = int(out(name, "df --output=used -k / | tail -1").split()[0])
    check(used < 20000, "the disk has %d KiB" % used)


# Run in the sandbox as its root: a manifest as it is in the middle of staging
# "f", whose new version has the bytes of argv[2], made or not yet made.
HALF = r'''
import os, struct, sys
made, new, etag = sys.argv[1] == "made", sys.argv[2].encode(), bytes(range(16))
MAGIC, M = 0x5342584d414e4931, 2 ** 64 - 1
def mix(h, value):
    h = (h ^ value) * 0xff51afd7ed558ccd & M
    return h ^ h >> 32
def total(p):
    h = mix(MAGIC, len(p))
    for i in range(0, len(p), 8):
        h = mix(h, int.from_bytes(p[i:i + 8], "little"))
    return h
place = "/var/lib/sandbox/"
old = open(place + "manifest", "rb").read()
assert struct.unpack(">QQ", old[:16])[0] == MAGIC
assert total(old[:-8]) == struct.unpack(">Q", old[-8:])[0]
tmp = place + "spool/new"
open(tmp, "wb").write(new)
os.chown(tmp, 1000, 1000)
ns = os.stat(tmp).st_mtime_ns
entry = struct.pack(">BBBBI", 1, 1, 1, 1, 0) + etag
entry += struct.pack(">QQ", len(new), ns) + b"ff"
out = struct.pack(">QQ", MAGIC, struct.unpack(">Q", old[8:16])[0] + 1)
out += old[16:-8] + entry
open(place + "manifest", "wb").write(out + struct.pack(">Q", total(out)))
if made:
    os.rename(tmp, "/home/sandbox/attachments/f")
'''


@test("files/stage-half-done")
def half_done():
    """An end between the manifest's two writes: nothing is taken for the
    user's, nothing that is there is asked for."""
    for n, made in enumerate(("made", "not")):
        name = "half-%d" % n
        had = b"old"
        pid = r.agent_of(lambda text: out(name, text, [(FILE, "f", had)]))
        subprocess.run(["nsenter", "-t", str(pid), "-m", "-U", "-S", "0",
                        "-G", "0", "python3", "-c", HALF, made, "new"],
                       check=True)
        os.kill(pid, 9)
        a, asked = go(name, "ls attachments; cat attachments/f",
                      [(FILE, "f", b"new", bytes(range(16)))])
        same((a.stdout, asked, notices(a)),
             (b"f\nnew", [] if made == "made" else [0], []), made)
        same(out(name, "ls attachments"), b"", made)
        # a manifest that is not whole: all is asked for, nothing is lost
        had = b"1"
        pid = r.agent_of(lambda text: out(name, text, [(FILE, "f", had)]))
        subprocess.run(["nsenter", "-t", str(pid), "-m", "-U", "-S", "0",
                        "-G", "0", "truncate", "-s", "30",
                        "/var/lib/sandbox/manifest"], check=True)
        os.kill(pid, 9)
        a, asked = go(name, "cat attachments/*", [(FILE, "f", b"1")])
        same((a.stdout, asked), (b"11", [0]), made)


@test("files/skill-killed-midway")
def skill_midway():
    """An agent that dies at any point of replacing a skill, or of taking one
    away: what is there afterwards is what was asked for."""
    name, n, killed, names = "skilled", 0, True, []

    def skill(text):
        return [(SKILL, "s", tar([("f", text.encode())]))]

    while killed:
        n += 1
        check(n < 100, "it does not come to an end")
        same(out(name, "cat /skills/s/f", skill("old%d" % n)),
             b"old%d" % n)
        with KillAt(int(r.record(name)["pid"]), n) as k:
            try:
                go(name, "true", skill("new%d" % n) if n % 2 else [])
            except (wire.Lost, OSError, AssertionError):
                pass
        killed = k.killed
        names.append(killed)
        if n % 2:
            same(out(name, "cat /skills/s/f; ls /skills",
                     skill("new%d" % n)), b"new%ds\n" % n, repr(names))
        else:
            same(out(name, "ls /skills"), b"", repr(names))
            # and it comes back
            same(out(name, "cat /skills/s/f", skill("old%d" % n)),
                 b"old%d" % n, repr(names))
        place = "/proc/%s/root/var/lib/sandbox" % r.record(name)["pid"]
        wait_for(lambda: set(os.listdir(place)) <= {"manifest", "spool"}
                 and not os.listdir(place + "/spool"), 20, "an empty spool")
    check(n > 10, "so few calls", n)


@test("files/stage-disk-full")
def disk_full():
    r.command("small", "true", disk=32)
    files = [(FILE, "big", bytes(40 * MB)), (FILE, "ok", b"1")]
    a, _ = go("small", "cat attachments/ok; ls attachments", files)
    same(a.stdout, b"1ok\n")
    same([n[:2] for n in notices(a)], [("disk_full", "big")])
    used = int(out("small", "df --output=used -k / | tail -1",
                   files[1:]).split()[0])
    check(used < 8000, "the disk has %d KiB" % used)


@test("files/stage-is-strict")
def strict():
    good = (FILE, "f", b"1")
    out("strict", "true")

    def code(*pairs, body=b""):
        a = r.client.call(wire.COMMAND, wire.fields(("COMMAND", "true"),
                                                    *pairs), body,
                          session=session("strict"), tenant=tenant("strict"))
        return a.code
    for what in (b"", b"\1", field(FILE, "", b""), field(FILE, "..", b""),
                 field(FILE, ".", b""), field(FILE, "a/b", b""),
                 field(FILE, b"a\0b", b""), field(FILE, "n" * 256, b""),
                 field(3, "f", b""), field(0, "f", b""),
                 field(SKILL, "..", b""), field(FILE, "f", b"") + b"x",
                 field(FILE, "f", b"")[:-1]):
        same(code(("STAGE", what)), "bad_request", repr(what))
    f = ("STAGE", field(*good))
    same(code(f, f), "bad_request")
    same(code(f, ("STAGE_BODY", 0)), "bad_request")
    same(code(f, ("STDIN_BYTES", 0), ("STAGE_BODY", 1)), "bad_request")
    same(code(f, ("STDIN_BYTES", 0), ("STAGE_BODY", 0), ("STAGE_BODY", 0),
              body=b"1"), "bad_request")
    same(code(f, ("STDIN_BYTES", 0), ("STAGE_BODY", 0), body=b"12"),
         "bad_request")
    same(code(f, ("STDIN_BYTES", 2), ("STAGE_BODY", 0), body=b"12"),
         "bad_request")
    same(code(*[("STAGE", field(FILE, str(i), b"")) for i in range(257)]),
         "bad_request")
    same(code(f), "stage_needed")
    for chunks in ([b"12"], [b""], [b"1", b"2"]):
        a = r.client.call(wire.COMMAND, wire.fields(
            ("COMMAND", "true"), f, ("STDIN_BYTES", 0), ("STAGE_BODY", 0)),
            chunks=[c for c in chunks if c], session=session("strict"),
            tenant=tenant("strict"))
        same(a.code, "bad_request", repr(chunks))
    # 256 of them
    many = [(FILE, "f%03d" % i, b"%d" % i) for i in range(256)]
    same(out("strict", "ls attachments | wc -l", many), b"256\n")
    same(out("strict", "ls attachments | wc -l"), b"0\n")


@test("files/stage-large", seconds=200)
def large():
    """More than a body of known length may have, and than memory has."""
    files = [(FILE, "f%d" % i, os.urandom(16 * MB)) for i in range(6)]
    a = send("large", "sha256sum attachments/* | cut -c1-64", files,
             list(range(6)), chunked=256 * 1024)
    same(a.stdout.decode().split(),
         [hashlib.sha256(f[2]).hexdigest() for f in files])


@test("files/skills")
def skills():
    lib = [(SKILL, "charts", tar([
        ("./", None), ("./SKILL.md", b"# Charts\n"), ("lib", None),
        ("charts.py", b"def f(): return 'charted'\n"),
        ("json.py", b"raise SystemExit('shadowed')\n"),
        ("deep/er/x.txt", b"x"), ("n" * 90 + "/" + "m" * 90, b"long"),
        *[("many/%d" % n, b"") for n in range(500)]]))]
    inodes = "df --output=iused / | tail -1"
    out("skills", "true", [(FILE, "f", b"1")])
    used = int(out("skills", inodes))
    a, asked = go("skills", "cat /skills/charts/SKILL.md; python3 -c "
                  "'import charts, json; print(charts.f(), json.dumps(1))'; "
                  "stat -c '%U %a' /skills/charts /skills/charts/SKILL.md "
                  "/skills/charts/lib; cat /skills/charts/n*/m*; echo; "
                  "touch /skills/charts/y /skills/z 2>&1 | grep -c denied; "
                  "rm -rf /skills/charts 2> /dev/null; "
                  "cat /skills/charts/deep/er/x.txt", lib)
    same(a.stdout, b"# Charts\ncharted 1\nroot 755\nroot 644\nroot 755\nlong"
         b"\n2\nx")
    same((asked, notices(a)), ([0], []))
    # replaced as a whole, a running program keeps what it has
    info = tarfile.TarInfo("run.sh")
    info.mode, info.size = 0o775, 17
    link = tarfile.TarInfo("here/link")
    link.type, link.linkname = tarfile.SYMTYPE, "../run.sh"
    new = [(SKILL, "charts", tar([(info, b"#!/bin/sh\necho 2\n"),
                                  ("here", None), (link, None)]))]
    same(out("skills", "ls -A /skills/charts; /skills/charts/here/link; "
             "stat -c %a /skills/charts/run.sh", new),
         b"here\nrun.sh\n2\n755\n")
    # an attachment and a skill of the same name are two things
    same(out("skills", "cat attachments/charts; ls /skills",
             new + [(FILE, "charts", b"1\n")]), b"1\ncharts\n")
    # no longer wanted
    same(out("skills", "ls -A /skills attachments"),
         b"/skills:\n\nattachments:\n")
    # its files are gone from the disk, too
    wait_for(lambda: int(out("skills", inodes)) < used + 100, 20,
             "inodes are given back")


@test("files/skill-archive", seconds=240)
def archive():
    def special(kind, name="x", target=""):
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        return tar([(info, None)])

    def two(first, *rest):
        return tar([first, *rest])

    out_link = tarfile.TarInfo("l")
    out_link.type, out_link.linkname = tarfile.SYMTYPE, "../../etc"
    in_link = tarfile.TarInfo("l")
    in_link.type, in_link.linkname = tarfile.SYMTYPE, "d"
    up = tarfile.TarInfo("d/l")
    up.type, up.linkname = tarfile.SYMTYPE, "a/../../../x"
    good = tar([("a", b"1"), ("b", b"2")])
    sparse = tarfile.TarInfo("s")
    sparse.pax_headers = {"GNU.sparse.map": "0,0"}
    bad = {
        "up": tar([("a", b"1"), ("../x", b"1")]),
        "up2": tar([("a/../../x", b"1")]),
        "absolute": tar([("/etc/x", b"1")]),
        "device": special(tarfile.CHRTYPE), "block": special(tarfile.BLKTYPE),
        "fifo": special(tarfile.FIFOTYPE),
        "hard": two(("a", b"1"), (special_link("h", "a"), None)),
        "link-out": two((out_link, None)), "link-up": two((up, None)),
        "link-abs": special(tarfile.SYMTYPE, "l", "/etc/passwd"),
        "through": two(("d", None), (in_link, None), ("l/x", b"1")),
        "twice": two(("a", b"1"), ("a", b"2")),
        "file-dir": two(("a", b"1"), ("a/b", b"2")),
        "cut": good[:1500], "no-end": good[:2048], "empty": b"",
        "text": b"not a tar at all\n" * 100,
        "sum": good[:100] + b"1" + good[101:],
        "gzip": __import__("gzip").compress(good),
        "sparse": two((sparse, None)),
        "deep": tar([("/".join("d" * 40) + "/x", b"1")]),
        "long": tar([("n" * 300, b"1")]),
        "many": tar([("%d" % i, b"") for i in range(20001)]),
        "huge": huge(),
    }
    n = 0
    for what, data in bad.items():
        files = [(SKILL, "ok", good), (SKILL, what, data)]
        a, asked = go("archive", "ls /skills", files)
        check(a.stdout == b"ok\n", what, a.stdout, notices(a))
        got = notices(a)
        check([x[:2] for x in got] == [("skill_refused", what)] and got[0][2],
              what, got)
        # known to be of no use: not asked for again
        same(go("archive", "true", files)[1], [])
        n += 1
    # 10,000 small files are no problem, others run meanwhile
    small = [(SKILL, "small", tar([("d%d/f%d" % (i % 100, i), b"%d" % i)
                                   for i in range(10000)]))]
    at = time.monotonic()
    same(out("archive", "find /skills/small -type f | wc -l", small),
         b"10000\n")
    print("# %d bad tars refused; 10,000 files in %d ms"
          % (n, (time.monotonic() - at) * 1000))
    same(out("archive", "ls -A /skills"), b"")


def special_link(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.LNKTYPE, target
    return info


def huge():
    """A header that promises a gigabyte."""
    info = tarfile.TarInfo("x")
    info.size = 1 << 30
    return info.tobuf() + bytes(2048)


main(start, stop)
