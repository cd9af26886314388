#!/usr/bin/env python3
"""Names that change under the reader: processes of the sandbox swap files,
links and folders as fast as they can, while a client reads, writes, removes,
lists and searches.  Not one byte may come from outside the root, and nothing
may be changed there.  FILES_RACE=N does N times as much."""

import os
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import Gateway                                  # noqa: E402
from runner import Runner, session, tenant, together         # noqa: E402
from tap import check, main, same, test                      # noqa: E402

TIMES = int(os.environ.get("FILES_RACE") or 1)

# what is outside can be written by the user, so only the agent's care keeps
# clients out: /var/tmp is below none of the roots of a path in his home
RACERS = r"""
set -e; mkdir -p safe c/x /var/tmp/out /var/tmp/away
echo INSIDE > safe/f; echo INSIDE > safe/g; echo INSIDE > c/x/f
for n in f secret new; do echo OUTSIDE > /var/tmp/out/$n; done
cp safe/f h1; ln h1 h; cp safe/f a; mkdir b2; echo INSIDE > b2/f
ln -s /var/tmp/out b; ln -s /var/tmp/out/f la; ln -s ../b up
for i in $(seq 300); do echo > a$i; done     # a search comes late to b
cat > racer.py <<'E'
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
def exchange(a, b):
    libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
def put(name):
    try:
        os.symlink("/var/tmp/out/f", name + ".l"); os.rename(name + ".l", name)
        with open(name + ".f", "w") as f:
            f.write("INSIDE\n")
        os.rename(name + ".f", name)
    except OSError:
        pass
def parent():
    for a, b in (("c/x", "/var/tmp/away/x"), ("/var/tmp/away/x", "c/x"),
                 ("c/x", "c/y"), ("c/y", "c/x")):
        try:
            os.rename(a, b)
        except OSError:
            pass
def links():
    for name in "h1", "safe/g":
        try:
            os.link(name, "hn"); os.rename("hn", "h")
            if os.path.exists("hn"):
                os.unlink("hn")
            if os.stat("safe/g").st_nlink < 1:
                os.unlink("h")
        except OSError:
            pass
what = {"file": lambda: put("a"), "folder": lambda: exchange("b", "b2"),
        "parent": parent, "hard": links}[sys.argv[1]]
end = time.time() + 100
while time.time() < end and not os.path.exists("stop"):
    for i in range(50):
        what()
E
for n in file folder parent hard; do
    (exec python3 racer.py $n > /dev/null 2>&1 &)
done
"""

PATHS = ("a", "b/f", "c/x/f", "h", "up/f", "b/secret")


class Counts:
    """What came back, how often."""

    def __init__(self):
        self.lock = threading.Lock()
        self.all = {}

    def add(self, what, got):
        with self.lock:
            self.all[what, got] = self.all.get((what, got), 0) + 1

    def of(self, what):
        return {k[1]: n for k, n in self.all.items() if k[0] == what}

    def judge(self, allowed, reads):
        bad = {k: n for k, n in self.all.items() if k[1] not in allowed}
        same(bad, {}, "what must not be")
        got = self.of("read")
        same(sum(got.values()), reads, "reads")
        check(got.get("INSIDE", 0) > reads / 50
              and got.get("path_outside", 0) > reads / 50, "no race:", got)
        for what in sorted({k[0] for k in self.all}):
            print("# %s: %s" % (what, ", ".join(
                "%s %d" % kv for kv in sorted(self.of(what).items()))))


CODES = {"path_outside", "file_not_found", "file_busy", "not_a_file",
         "not_a_directory", "is_a_directory", "not_permitted", "not_empty"}


def inside(text):
    """What of the outside's is still as it was."""
    return text.split("\n") == ["OUTSIDE"] * 3 + ["f", "new", "secret", ""]


LOOK = "touch stop; cd /var/tmp/out; cat f secret new; ls -A"


def word(data):
    """A whole file as it must be, or its bytes."""
    return data.decode().strip() if data in (b"INSIDE\n", b"WRITTEN\n") \
        else repr(data)


@test("files/swap-race: over HTTP", seconds=580)
def over_http():
    reads = 10000 * TIMES
    counts = Counts()
    with Gateway(pool=1, location="sandbox_pending 20;") as g:
        g.output("race", RACERS)
        base = "v1/conversations/race/fs/"

        def ask(c, what, method, path, body=None, query=""):
            r = g.request(method, base + path + query, body, connection=c)
            if r.status >= 300:
                counts.add(what, r.json["code"])
            elif what == "list":
                names = [e["name"] for e in r.json["entries"]]
                counts.add(what, "outside" if "secret" in names else "INSIDE")
            elif what == "read":
                counts.add(what, word(r.body))
            else:
                counts.add(what, "INSIDE")

        def reader(n):
            c = g.connect()
            for i in range(reads // 2):
                ask(c, "read", "GET", PATHS[(i + n) % len(PATHS)])
                if i % 10 == n:
                    ask(c, "write", "PUT", ("a", "b/new", "c/x/new",
                                            "up/f")[i // 10 % 4],
                        b"INSIDE\n")
                if i % 25 == n:
                    ask(c, "remove", "DELETE", ("b/new", "a", "c/x/new",
                                                "up/f", "b/secret")
                        [i // 25 % 5])
                if i % 25 == n + 3:
                    ask(c, "list", "GET", ("b", "c/x", "up", "c")
                        [i // 25 % 4], query="?list")
            c.close()

        same(together(lambda: reader(0), lambda: reader(1)), [None] * 2)
        left = g.output("race", LOOK)
    counts.judge(CODES | {"INSIDE"}, reads)
    check(inside(left), "what is outside was changed:", left)


@test("files/swap-race: over the wire", seconds=580)
def over_wire():
    reads = 10000 * TIMES
    counts = Counts()
    r = Runner("--pool", "1").start()
    try:
        def ask(operation, path, body=b"", **fields):
            return r.client.call(
                operation, wire.fields(("PATH", path), *fields.items()), body,
                session=session("race"), tenant=tenant("race"))

        def records(a):
            out, at = [], 0
            while at < len(a.data):
                end = at + 4 + struct.unpack_from(">I", a.data, at)[0]
                out.append(dict(wire.read_fields(a.data[at + 4:end])))
                at = end
            return out

        def code(a, otherwise):
            if a.error:
                return a.code
            return (a.result.get("CODE") or otherwise.encode()).decode()

        def read(path):
            try:
                a = ask(wire.FILE_READ, path)
                counts.add("read", a.code or word(a.data))
            except wire.Lost:
                counts.add("read", "file_busy")     # it shrank meanwhile

        def search(path, pattern, **fields):
            a = ask(wire.FILE_SEARCH, path, **fields, **(
                {"PATTERN": pattern} if pattern else {}))
            found = records(a) if a.head else []
            outside = [e for e in found if b"secret" in e["FILE_NAME"]
                       or b"OUTSIDE" in e.get("TEXT", b"")]
            counts.add("search", repr(outside) if outside
                       else code(a, "INSIDE"))

        def reader(n):
            for i in range(reads // 2):
                read(PATHS[(i + n) % len(PATHS)])
                if i % 20 == n:
                    a = ask(wire.FILE_WRITE, ("a", "b/new", "c/x/new",
                                              "up/f")[i // 20 % 4],
                            b"INSIDE\n")
                    counts.add("write", code(a, "INSIDE"))
                if i % 50 == n:
                    a = ask(wire.FILE_REMOVE, ("b/new", "c/x/new", "up/f",
                                               "b/secret")[i // 50 % 4])
                    counts.add("remove", code(a, "INSIDE"))

        done = threading.Event()

        def searcher():
            n = 0
            while not done.is_set() or n < 20:
                search(*(("b", "SIDE"), ("", "SIDE"), ("c", "SIDE"),
                         ("b", None), ("up", "SIDE"), ("", None))[n % 6])
                a = ask(wire.FILE_READ, ("b", "up", "c/x")[n % 3], LIST=1)
                names = [e["FILE_NAME"] for e in records(a)] if a.head else []
                counts.add("list", "outside" if b"secret" in names
                           else code(a, "INSIDE"))
                n += 1

        def readers():
            try:
                return together(lambda: reader(0), lambda: reader(1))
            finally:
                done.set()

        a = r.command("race", RACERS)
        same((a.outcome, a.result["EXIT_CODE"]), ("exit", 0), repr(a))
        begun = time.monotonic()
        same(together(readers, searcher), [[None] * 2, None])
        print("# %.1f s" % (time.monotonic() - begun))
        left = r.command("race", LOOK).stdout.decode()
    finally:
        complaints = r.complaints()
        r.close()
    same(complaints, [], "sanitizers")
    counts.judge(CODES | {"INSIDE"}, reads)
    got = counts.of("search")
    check(got.get("INSIDE", 0) >= 10, "searches", got)
    check(inside(left), "what is outside was changed:", left)


main()
