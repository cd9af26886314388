#!/usr/bin/env python3
"""Searches in the files of a sandbox over the wire, whatever a hostile user
puts there; and commands that are cancelled by their label."""

import os
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import wait_for                                 # noqa: E402
from runner import Runner, session, tenant, together         # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")

r = None
ALL = 1                 # root "/"


def start():
    global r
    r = Runner("--pool", "2").start()


def stop():
    complaints = r.complaints()
    r.close()
    same(complaints, [], "sanitizers")


def head(path, pattern=None, globs=(), **fields):
    return wire.fields(("PATH", path), ("PATTERN", pattern),
                       *(("GLOB", g) for g in globs), *fields.items())


def ask(name, path="", pattern=None, globs=(), **fields):
    return r.client.call(wire.FILE_SEARCH,
                         head(path, pattern, globs, **fields),
                         session=session(name), tenant=tenant(name))


def records(data):
    out, at = [], 0
    while at < len(data):
        length, = struct.unpack_from(">I", data, at)
        out.append(wire.unique(wire.read_fields(
            data[at + 4:at + 4 + length])))
        at += 4 + length
    return out


def search(name, path="", pattern=None, globs=(), **fields):
    """The records, and whether there are more."""
    a = ask(name, path, pattern, globs, **fields)
    same(a.error, None, "search for %r" % (pattern,))
    same(a.head["STATUS"], 200)
    return records(a.data), a.result["MORE"]


def lines(*args, **fields):
    found, more = search(*args, **fields)
    same(more, 0, "MORE")
    return [(e["FILE_NAME"], e.get("LINE"), e.get("TEXT")) for e in found]


def names(*args, **fields):
    found, more = search(*args, **fields)
    same(more, 0, "MORE")
    return [e["FILE_NAME"] for e in found]


def run(name, text, **fields):
    a = r.command(name, text, **fields)
    check(a.result and a.outcome == "exit" and not a.result["EXIT_CODE"],
          "command failed:", a)
    return a.stdout


@test("files/search-basic")
def basic():
    run("basic", """mkdir -p d/b d/a .hidden node_modules
        printf 'one\\nfoo 1\\r\\nbar\\nfoo last' > d/a/x.txt
        printf 'Foo\\n' > d/b/y.py; printf 'foo.\\n' > d/a.txt
        printf '\\xef\\xbb\\xbffoo with a mark\\n' > d/bom.csv
        echo foo > .hidden/h; echo foo > node_modules/n; echo foo > .dot
        echo node_modules > .gitignore; echo d > .ignore; : > d/empty""")
    # sorted by the bytes of each part of the path
    want = [(b"d/a/x.txt", 2, b"foo 1"), (b"d/a/x.txt", 4, b"foo last"),
            (b"d/a.txt", 1, b"foo."),
            (b"d/bom.csv", 1, b"foo with a mark"),
            (b"node_modules/n", 1, b"foo")]
    same(lines("basic", "", "foo"), want)
    same(lines("basic", "d", "^foo [0-9l]"),
         [(b"a/x.txt", 2, b"foo 1"), (b"a/x.txt", 4, b"foo last")])
    same(lines("basic", "d", "[0-9]$"), [(b"a/x.txt", 2, b"foo 1")])
    same(lines("basic", "", "fo.", IGNORE_CASE=1)[3][:2], (b"d/b/y.py", 1))
    same(lines("basic", "d", "foo.", LITERAL=1), [(b"a.txt", 1, b"foo.")])
    same(lines("basic", "d", "foo", globs=["*.txt", "!x*"]),
         [(b"a.txt", 1, b"foo.")])
    same(lines("basic", "d", "none of it"), [])
    # hidden ones only where they are named
    same(lines("basic", ".hidden", "foo"), [(b"h", 1, b"foo")])
    same(names("basic", globs=[".dot"]), [b".dot"])
    # a file
    same(lines("basic", "d/a/x.txt", "foo 1"), [(b"", 2, b"foo 1")])
    a = ask("basic", "d/a/x.txt", "foo")
    same((a.head["FILE_TYPE"], a.head["FILE_SIZE"]), (0, 23))
    # names
    same(names("basic", "d"), [b"a/x.txt", b"a.txt", b"b/y.py", b"bom.csv",
                               b"empty"])
    same(names("basic", "d", globs=["*.txt"]), [b"a/x.txt", b"a.txt"])
    found, more = search("basic", "d/b")
    same((len(found), more), (1, 0))
    same((found[0]["FILE_TYPE"], found[0]["FILE_SIZE"]), (0, 4))
    check(abs(found[0]["MODIFIED_NS"] / 1e9 - time.time()) < 600, "mtime")
    same(names("basic", "d/a.txt"), [b""])
    # the other roots, from outside and by a link
    run("basic", "echo foo > /tmp/t; mkdir -p /tmp/deep; ln -s /tmp tmp; "
        "echo foo > /tmp/deep/d")
    same(lines("basic", "tmp", "foo", ROOT=ALL),
         [(b"deep/d", 1, b"foo"), (b"t", 1, b"foo")])
    same(names("basic", "home/sandbox/d/b", ROOT=ALL), [b"y.py"])


@test("files/search-refused")
def refused():
    run("refused", "mkdir d closed; mkfifo fifo; ln -s /etc out; "
        "ln -s loop loop; echo x > closed/f; chmod 0 closed; "
        "ln -s /proc/self magic")
    for pattern, text in (("foo(", b"unclosed group"), ("a\nb", b"not allowed"),
                          ("(a)\\1", b"backreferences are not supported"),
                          ("a{99999999}", b""), ("[z-a]", b"invalid")):
        a = ask("refused", "", pattern)
        same((a.code, a.error["STATUS"]), ("bad_pattern", 400), pattern)
        check(text in a.error["DETAIL"], "DETAIL", a.error["DETAIL"])
        check(b"\n" not in a.error["DETAIL"], "DETAIL has several lines")
    for globs in (["[z"], ["{a"], [""], ["x" * 1025], ["a"] * 17,
                  [b"\xff"], ["a\0b"]):
        same(ask("refused", "", "x", globs).code, "bad_pattern", globs[0])
    for pattern in (b"\xff", b"a\0b", b"x" * 4097):
        same(ask("refused", "", pattern).code, "bad_pattern")
    same(ask("refused", "", b"x" * 4096).code, None)
    # names of options are none
    for pattern in ("--help", "-e", "--pre=/bin/id", "", "-"):
        same(ask("refused", "d", pattern).code, None, pattern)
    same(ask("refused", "d", "x", ["--pre=id"]).code, None)
    for path, code in (("none", "file_not_found"), ("fifo", "not_a_file"),
                       ("out", "path_outside"), ("loop", "not_a_file"),
                       ("magic", "path_outside"), ("../x", "path_outside"),
                       ("closed", "not_permitted"), ("/", "bad_request")):
        same(ask("refused", path, "x").code, code, path)
    same(ask("refused", "proc/self", "x", ROOT=ALL).code, "path_outside")
    same(ask("refused", "", "x", LIMIT=1001).code, "bad_request")
    same(ask("refused", "", "x", LITERAL=2).code, "bad_request")
    a = r.client.call(wire.FILE_SEARCH, wire.fields(
        ("PATH", ""), ("PATTERN", "a"), ("PATTERN", "b")),
        session=session("refused"), tenant=tenant("refused"))
    same(a.code, "bad_request")
    a = r.client.call(wire.FILE_SEARCH, head(""), flags=wire.NO_CREATE,
                      session=session("never"), tenant=tenant("never"))
    same(a.code, "no_sandbox")


@test("files/search-hostile")
def hostile():
    """Nothing is followed, nothing waits, names and bytes are what they are."""
    run("hostile", r"""python3 - <<'E'
import os
w = lambda n, b: open(n, "wb").write(b)
w(b"new\nline", b"hit 1\n"); w(b"\xff\xfe", b"hit \xff\xfe\n")
w(b"-rf", b"hit\n"); w(b"a: 1:2:hit", b"hit\n"); w(b"--pre=id", b"hit\n")
w(b"\nend\x01", b"hit\n")
w(b"long", b"hit " + "\u00e9".encode() * 300 + b"\n")
w(b"one-line", b"y" * (20 << 20) + b" hit")
w(b"nul", b"hit 1\nhit 2\n" + bytes(10)); w(b"late", b"hit\n" * 30000
  + b"hit\0\n")
w(b"utf16", "hit\n".encode("utf-16"))
w(b"x" * 255, b"hit\n")
os.mkfifo("fifo"); os.symlink("/etc/passwd", "link")
os.symlink("/proc/self/environ", "env"); os.symlink("/etc", "dir")
os.mkdir("down"); os.symlink("..", "down/up")
p = "down"
for i in range(20):
    p += "/" + "d" * 150
    os.mkdir(p)
w((p + "/leaf").encode(), b"hit\n")
E
truncate -s 3G sparse; truncate -s 700M zeros; echo hit > shut; chmod 0 shut
mkdir -m 0 closed""")
    before = time.monotonic()
    found, more = search("hostile", "", "hit|root:", LIMIT=1000)
    took = time.monotonic() - before
    same(more, 1, "MORE")
    check(took < 60, "it took %.1f s" % took)
    # there may be no time for all those zeros: they are looked at apart
    zeros = ["sparse", "zeros"]
    same(search("hostile", "", "hit|root:", globs=zeros)[0], [])
    found, more = search("hostile", "", "hit|root:",
                         globs=["!late"] + ["!" + n for n in zeros])
    same(more, 0)
    same([(e["FILE_NAME"], e.get("LINE"), e.get("TEXT"))
          for e in found],
         [(b"\nend\x01", 1, b"hit"), (b"--pre=id", 1, b"hit"),
          (b"-rf", 1, b"hit"), (b"a: 1:2:hit", 1, b"hit"),
          (b"/".join([b"down"] + [b"d" * 150] * 20 + [b"leaf"]), 1, b"hit"),
          (b"long", 1, b"hit " + "\u00e9".encode() * 254),
          (b"new\nline", 1, b"hit 1"), (b"nul", None, None),
          (b"one-line", 1, b"y" * 512), (b"utf16", None, None),
          (b"x" * 255, 1, b"hit"), (b"\xff\xfe", 1, b"hit \xff\xfe")])
    same(found[7]["FILE_SIZE"], 22)
    listed = names("hostile", "")
    check(listed == sorted(listed), "names are not sorted")
    for name in (b"link", b"env", b"fifo", b"closed"):
        check(name not in listed, "listed:", name)
    for name in (b"new\nline", b"shut", b"sparse"):
        check(name in listed, "not listed:", name)
    # the same from "/": this file system alone, and nothing of the agent's
    found, _ = search("hostile", "", None, globs=["*/sandbox/*",
                                                  "/proc/**"], ROOT=ALL)
    check(not any(e["FILE_NAME"].startswith((b"proc/", b"var/lib/sandbox"))
                  for e in found), "too much:", found[:5])
    check(any(e["FILE_NAME"].startswith(b"home/sandbox/") for e in found),
          "home is not there")


@test("files/search-memory")
def memory():
    """A line that does not fit into what a search may take ends it alone."""
    run("memory", "mkdir d; echo hit > d/a; echo hit > d/c; "
        "head -c 200M /dev/zero | tr '\\0' x > d/b")
    a = r.command("memory", "sleep 600", detach=1, wall_ms=600000)
    same(wire.COMMAND_STATES[a.result["COMMAND_STATE"]], "running")
    found, more = search("memory", "d", "hit")
    same(([e["FILE_NAME"] for e in found], more), ([b"a"], 1))
    same(lines("memory", "d", "hit", globs=["!b"]),
         [(b"a", 1, b"hit"), (b"c", 1, b"hit")])
    same(run("memory", "pgrep -c sleep"), b"1\n")


@test("files/search-limits")
def limits():
    run("limits", """python3 - <<'E'
import os
for i in range(100):
    os.mkdir("d%02d" % i)
    for j in range(100):
        with open("d%02d/f%02d" % (i, j), "w") as f:
            f.write("hit %d\\nmiss\\n" % (100 * i + j))
E""")
    want = [b"d%02d/f%02d" % (i, j) for i in range(100) for j in range(100)]
    before = time.monotonic()
    found, more = search("limits", "", "hit")
    check(time.monotonic() - before < 100, "it was slow")
    same(([e["FILE_NAME"] for e in found], more), (want[:1000], 1))
    same(found[999]["TEXT"], b"hit 999")
    found, more = search("limits", LIMIT=7)
    same(([e["FILE_NAME"] for e in found], more), (want[:7], 1))
    for limit, more in ((10, 0), (9, 1), (11, 0)):
        got, rest = search("limits", "", "hit 999[0-9]", LIMIT=limit)
        same((len(got), rest), (min(limit, 10), more))
        same(got[0]["FILE_NAME"], want[9990])
    same(len(names("limits", globs=["f07"])), 100)


@test("files/search-limits: one after the other, each with enough at once")
def in_a_row():
    """A search that was ended early holds up none that comes after it."""
    run("row", """mkdir d; cd d; printf 'hit\\nhit\\n' > a
        yes x | head -c 100M > b""")
    for _ in range(150):
        found, more = search("row", "d", "hit", LIMIT=1)
        same(([e["LINE"] for e in found], more), ([1], 1))
    same(searching("row"), b"0")


@test("files/search-slow-reader")
def slow_reader():
    """Long answers to a client that does not read at first: all arrives."""
    run("slow", """mkdir d; cd d; hits=$(printf 'hit%.0s' {1..170})
        n=$(printf 'n%.0s' {1..251})
        for i in {1000..1999}; do echo $hits > $n$i; done""")
    for operation, fields in ((wire.FILE_SEARCH, head("d", "hit")),
                              (wire.FILE_READ, wire.fields(("PATH", "d")))):
        with r.client.send(operation, fields, session=session("slow"),
                           tenant=tenant("slow")) as sock:
            time.sleep(1.5)
            a = r.client.answer(sock)
        got = records(a.data)
        same(len(got), 1000)
        same([e["FILE_NAME"] for e in got],
             [b"n" * 251 + b"%d" % i for i in range(1000, 2000)])
    with r.client.send(wire.FILE_SEARCH, head("d", "hit", LIMIT=1),
                       session=session("slow"),
                       tenant=tenant("slow")) as sock:
        time.sleep(0.2)
        same(r.client.answer(sock).result["MORE"], 1)


def searching(name):
    """Processes of searches that run in there, as a command sees them."""
    return run(name, "pgrep -cx rg; true").strip()


SLOW = "mkdir -p s; truncate -s 1000M s/{1..200}"


def slow():
    """More to read than there is time for."""
    run("deadline", SLOW + "; echo hit > a")
    before = time.monotonic()
    found, more = search("deadline", "", "hit")
    took = time.monotonic() - before
    same(([e["FILE_NAME"] for e in found], more), ([b"a"], 1))
    check(took < 100, "it took %.1f s" % took)
    wait_for(lambda: searching("deadline") == b"0", 10, "its process")


def leased():
    """A lease of somebody else holds up that search alone."""
    run("leased", "echo hit > a; echo hit > b; echo hit > c")
    a = r.command("leased", """python3 -c '
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open("b", os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open("leased", "w"); time.sleep(500)'""", detach=1, wall_ms=500000)
    same(wire.COMMAND_STATES[a.result["COMMAND_STATE"]], "running")
    wait_for(lambda: b"leased" in names("leased"), 20, "the lease")
    got, beside = together(lambda: search("leased", "", "hit"),
                           lambda: names("leased", ""))
    # whoever waits until a lease is broken, for 45 s, finds what comes then
    found, more = got
    same(([e["FILE_NAME"] for e in found], more), ([b"a"], 1))
    same(beside[:3], [b"a", b"b", b"c"])


@test("files/search-deadline")
def deadline():
    for error in together(slow, leased):
        if error:
            raise error


@test("files/search-beside")
def beside():
    """Two at a time, never behind a command; who goes away ends his."""
    run("beside", SLOW)
    long = r.client.send(wire.COMMAND, wire.fields(
        ("COMMAND", "sleep 240"), ("WALL_MS", 250000), ("LABEL", "long"), ("DIGEST", bytes(32))),
        session=session("beside"), tenant=tenant("beside"))
    same(wire.read_frame(long)[0], wire.HEAD)
    for _ in range(4):                  # the machine may stand still
        two = [r.client.send(wire.FILE_SEARCH, head("s", "hit"),
                             session=session("beside"),
                             tenant=tenant("beside")) for _ in range(2)]
        a = wait_for(lambda: (lambda a: a if a.code else None)(
            ask("beside", "", "x")), 20, "both to run")
        same((a.code, a.error["STATUS"], a.error["RETRY_AFTER"]),
             ("too_many_pending", 429, 1))
        for sock in two:
            sock.close()
        before = time.monotonic()
        wait_for(lambda: ask("beside", "none", "x").code == "file_not_found"
                 and ask("beside", "", None, LIMIT=1).code is None, 60,
                 "room for others")
        took = time.monotonic() - before
        if took < 9:
            break
    check(took < 9, "they ran on", took)
    a = r.client.call(wire.CANCEL, wire.fields(("LABEL", "long")),
                      session=session("beside"), tenant=tenant("beside"))
    same((a.outcome, wire.COMMAND_STATES[a.result["COMMAND_STATE"]]),
         ("cancelled", "running"))
    long.close()
    wait_for(lambda: searching("beside") == b"0", 10, "the end of searches")


@test("files/search-changes")
def changes():
    """Files that grow, shrink, are leased or replaced while they are read."""
    run("changes", """mkdir d; cat > racer.py <<'E'
import fcntl, os, random, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
for i in range(200):
    open("d/still%03d" % i, "w").write("hit still\\n" * 3)
os.mkdir("d/m")
end = time.time() + 8
secret = os.open("d/leased", os.O_RDWR | os.O_CREAT, 0o644)
os.write(secret, b"hit\\n")
while time.time() < end:
    open("d/grows", "a").write("hit grows\\n")
    open("d/shrinks", "w").write("hit shrinks\\n" * random.randrange(2000))
    for other in ("/etc/passwd", "/proc/self/environ", "../racer.py"):
        os.symlink(other, "d/.l"); os.rename("d/.l", "d/swapped")
        open("d/.f", "w").write("hit swapped\\n")
        os.rename("d/.f", "d/swapped")
    os.rename("d/m", "d/.m"); os.symlink("/etc", "d/m")
    os.remove("d/m"); os.rename("d/.m", "d/m")
    open("d/m/passwd", "w").write("hit in m\\n")
    if os.stat("d/grows").st_size > 1000000:
        os.remove("d/grows")
E""")
    a = r.command("changes", "python3 racer.py", detach=1, cpu_ms=60000)
    same(wire.COMMAND_STATES[a.result["COMMAND_STATE"]], "running")
    wait_for(lambda: len(search("changes", "d")[0]) > 200, 20, "files")
    end = time.monotonic() + 4
    rounds = 0
    while time.monotonic() < end or rounds < 6:
        found, more = search("changes", "d", "hit|root:|daemon|PATH|import")
        stills = 0
        for e in found:
            text = e.get("TEXT", b"hit")
            check(text.startswith(b"hit"), "from outside:", e)
            stills += e["FILE_NAME"].startswith(b"still")
        check(more or stills == 600, "quiet ones were missed:", stills)
        rounds += 1


@test("files/search-no-process")
def full():
    # whatever has room for a moment, it is taken then
    a = r.command("full", """python3 -c '
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
    except OSError:
        time.sleep(0.01)'""", detach=1, processes=64, wall_ms=300000)
    same(wire.COMMAND_STATES[a.result["COMMAND_STATE"]], "running")
    wait_for(lambda: ask("full", "", "x").code == "too_many_pending", 20,
             "no process for it")


@test("exec/cancel-by-label")
def labels():
    def command(text, label, **fields):
        return r.client.send(wire.COMMAND, wire.fields(
            ("COMMAND", text), ("LABEL", label), ("DIGEST", os.urandom(32)),
            *fields.items()), session=session("label"),
            tenant=tenant("label"))

    def cancel(**fields):
        return r.client.call(wire.CANCEL, wire.fields(*fields.items()),
                             session=session("label"), tenant=tenant("label"))

    run("label", "true")
    same(cancel(LABEL="none").code, "command_not_found")
    same(cancel(LABEL="").code, "bad_request")
    same(cancel(LABEL="x" * 65).code, "bad_request")
    same(cancel().code, "bad_request")
    back = r.client.answer(command("exec sleep 300", b"b\xff", DETACH=1))
    same(wire.COMMAND_STATES[back.result["COMMAND_STATE"]], "running")
    first = command("sleep 301", "same")
    same(wire.read_frame(first)[0], wire.HEAD)
    second = command("sleep 302", "same")
    third = command("echo third", "other")

    def waiting():
        a = r.client.call(wire.STATUS, session=session("label"),
                          tenant=tenant("label"))
        return a.result["QUEUED"] == 2
    wait_for(waiting, 20, "the queue")
    # the newest first, whether it runs or waits
    a = cancel(LABEL="same")
    same((a.outcome, wire.COMMAND_STATES[a.result["COMMAND_STATE"]]),
         ("cancelled", "queued"))
    same(r.client.answer(second).outcome, "cancelled")
    a = cancel(LABEL="same")
    same((a.outcome, wire.COMMAND_STATES[a.result["COMMAND_STATE"]]),
         ("cancelled", "running"))
    out = wire.Answer()
    out.head = {}
    same(r.client.answer(first, out).outcome, "cancelled")
    same(r.client.answer(third).stdout, b"third\n")
    same(cancel(LABEL="same").code, "command_not_found")
    same(cancel(LABEL="other").code, "command_not_found")
    a = cancel(LABEL=b"b\xff")
    same(a.outcome, "cancelled")
    same(cancel(LABEL=b"b\xff").code, "command_not_found")
    same(run("label", "pgrep -c sleep; true"), b"0\n")


main(start, stop)
