#!/usr/bin/env python3
"""sandboxctl with files: put, get, ls, save, link, rm; connections that are
lost, terminals, Ctrl-C; what must never be half here or there."""

import fcntl
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import (BUILD, Gateway, free_port, token,          # noqa: E402
                     wait_for)
from tap import BACKEND, check, main, same, test                 # noqa: E402

CTL = BUILD + "/sandboxctl"
MIB = 1024 * 1024
NAMES = ["report (1).txt", "it's.txt", "отчёт.xlsx", "🤣.txt",
         "a$b`c\"d.txt", "-rf", "n" * 255, "dot and space. ", "two\nlines",
         "\x1b[2Jcleared", "gpj.\u202eexe", "..."]
g = None
here = None


def start():
    global g, here
    g = Gateway(pool=2)
    os.mkdir(g.path("store"), 0o700)
    shutil.chown(g.path("store"), "www-data")
    g.options["location"] = "sandbox_store %s; sandbox_file_size 64m;" \
        % g.path("store")
    g.start()
    here = g.path("here")
    os.mkdir(here)


def stop():
    g.stop()


def environment(port=None):
    return dict(os.environ, TERM="xterm", SANDBOX_TOKEN=token(),
                SANDBOX_URL="http://127.0.0.1:%d/sandbox" % (port or g.port))


def popen(*arguments, port=None, stdin=subprocess.DEVNULL,
          stdout=subprocess.PIPE):
    return subprocess.Popen([CTL] + list(arguments), stdin=stdin,
                            stdout=stdout, stderr=subprocess.PIPE, cwd=here,
                            env=environment(port))


def ctl(*arguments, data=None, port=None, seconds=150):
    p = popen(*arguments, port=port, stdin=subprocess.DEVNULL if data is None
              else subprocess.PIPE)
    try:
        a, b = p.communicate(data, timeout=seconds)
    finally:
        p.kill()
    return a, b.decode(errors="replace"), p.returncode


def good(*arguments, **options):
    a, b, rc = ctl(*arguments, **options)
    same((rc, b), (0, ""), repr(arguments))
    return a


def bad(status, *arguments, **options):
    a, b, rc = ctl(*arguments, **options)
    same(rc, status, "%r: %r" % (arguments, b))
    check(b.startswith("sandboxctl " + arguments[0] + ": ")
          and b.count("\n") >= 1, "no sentence:", b)
    return b


def make(name, data):
    with open(os.path.join(here, name), "wb") as f:
        f.write(data)
    return data


def read(name):
    with open(os.path.join(here, name), "rb") as f:
        return f.read()


def names():
    """What lies in our folder, temporary files, too."""
    return sorted(os.listdir(here))


def clean():
    for name in os.listdir(here):
        path = os.path.join(here, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def listed(conversation, kind):
    r = g.request("GET", "v1/conversations/%s/%s" % (conversation, kind))
    return [e["name"] for e in r.json[kind]]


class Line:
    """A line to the gateway that is slow, and breaks: `cuts` is for each
    connection in turn the bytes of the answer after which it ends, `up` those
    of the request.  After `hold` bytes, either way, it stands still until
    free() or its end, so that there is time for what a test does then."""

    def __init__(self, rate=None, cuts=(), up=(), port=0, hold=None):
        self.rate, self.cuts, self.up = rate, list(cuts), list(up)
        self.hold = hold
        self.freed, self.over = threading.Event(), False
        self.reached = threading.Event()
        self.heads = []
        self.moved = self.sent = 0              # bytes to us, from us
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port or free_port()))
        self.socket.listen(16)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def stands(self):
        return self.reached.is_set()

    def free(self):
        self.freed.set()

    def __exit__(self, *_):
        self.over = True
        self.free()
        self.socket.shutdown(socket.SHUT_RDWR)       # wakes accept()
        self.socket.close()

    def accept(self):
        while True:
            try:
                client = self.socket.accept()[0]
            except OSError:
                return                   # closed
            down = self.cuts.pop(0) if self.cuts else None
            up = self.up.pop(0) if self.up else None
            server = socket.create_connection(("127.0.0.1", g.port))
            threading.Thread(target=self.carry, daemon=True,
                             args=(client, server, down, up)).start()

    def carry(self, client, server, down, up):
        head = b""
        ends = [client, server]
        try:
            while True:
                readable = select.select(ends, [], [], 100)[0]
                if not readable:
                    return
                for end in readable:
                    data = end.recv(16384)
                    if not data:
                        return
                    if end is client:
                        if head is not None:
                            head += data
                            if b"\r\n\r\n" in head:
                                self.heads.append(head.partition(
                                    b"\r\n\r\n")[0].decode("latin-1"))
                                head = None
                        if up is not None:
                            up -= len(data)
                            if up <= 0:
                                return
                        server.sendall(data)
                        self.sent += len(data)
                        self.pause(len(data))
                        continue
                    head = head if head is not None else b""
                    if down is not None:
                        data = data[:down]
                        down -= len(data)
                    client.sendall(data)
                    self.moved += len(data)
                    if down == 0:
                        return
                    self.pause(len(data))
        except OSError:
            pass
        finally:
            # at once, as lines do; but what was counted as moved arrives
            if up is not None:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                  struct.pack("ii", 1, 0))
            client.close()
            server.close()

    def pause(self, size):
        if self.hold is not None and self.moved + self.sent >= self.hold:
            self.reached.set()
            self.freed.wait(100)
            if self.over:
                raise OSError("the line is cut")
        if self.rate:
            time.sleep(size / self.rate)


def in_terminal(*arguments, port=None, columns=80, quiet=False):
    """As typed: a session with a terminal of its own."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(here)
        if quiet:
            os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.execve(CTL, [CTL] + list(arguments), environment(port))
    fcntl.ioctl(fd, termios.TIOCSWINSZ,
                struct.pack("HHHH", 24, columns, 0, 0))
    return pid, fd


def to_end(pid, fd, got=b""):
    try:
        while True:
            data = os.read(fd, 65536)
            if not data:
                break
            got += data
    except OSError:
        pass                             # that is how its end looks
    os.close(fd)
    # what was read of it before may have ended within a character
    return (got.decode(errors="replace"),
            os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def bars(text):
    return [b for b in re.split(r"\r|\x1b\[K|\n", text) if b]


def narrow(text, columns=40):
    """Those with a percentage, from the first on that fits."""
    drawn = [b for b in bars(text) if "%" in b]
    while drawn and len(drawn[0]) >= columns:
        drawn.pop(0)
    return drawn


@test("ctl/put-get")
def put_get():
    clean()
    files = {n: make(n, os.urandom(1000 + i)) for i, n in enumerate(NAMES)}
    files["empty"] = make("empty", b"")
    out = good("put", "names", "--", *files)
    same(len(out.splitlines()), len(files), "a line for each")
    same(sorted(listed("names", "attachments")), sorted(files))
    check(b"\x1b" not in out and "\u202e".encode() not in out, out)

    clean()
    for name in files:
        good("get", "names", "--", name)
        same(read(name), files[name], name)
    same(names(), sorted(files))
    # all at once, into a folder; from the container, where commands see them
    os.mkdir(here + "/d")
    good("get", "names", "-o", "d", "--", *files)
    same(sorted(os.listdir(here + "/d")), sorted(files))
    clean()
    g.run("names", "true")
    for name in files:
        good("get", "names", "--", "fs:attachments/" + name)
        same(read(name), files[name], name)


@test("ctl/put-places")
def places():
    clean()
    data = make("a.csv", b"a,b\n1,2\n")
    make("run.sh", b"#!/bin/sh\necho ran\n")
    os.chmod(here + "/run.sh", 0o755)
    for to, path in (("fs:one.csv", "one.csv"), ("fs:dir/", "dir/a.csv"),
                     ("fs:./x//y/z.csv", "x/y/z.csv"),
                     ("fs:/tmp/t.csv", "/tmp/t.csv"), ("fs:", "a.csv"),
                     ("fs:/tmp/", "/tmp/a.csv")):
        good("put", "places", "a.csv", "--to", to)
        same(g.output("places", "cat " + path), data.decode(), to)
        same(good("get", "places", "-o", "-", "fs:" + path), data, path)
    good("put", "places", "a.csv", "run.sh", "--to", "fs:dir")
    same(g.output("places", "dir/run.sh; ls dir"), "ran\na.csv\nrun.sh\n")
    text = bad(1, "put", "places", "a.csv", "--to", "fs:dir")
    check("slash" in text, text)
    check("replaced" in good("put", "places", "a.csv", "--to", "fs:one.csv")
          .decode(), "not told")
    good("put", "places", "a.csv", "--to", "files", "--name", "b.csv")
    good("put", "places", "a.csv", "--to", "files:c.csv")
    same(listed("places", "files"), ["b.csv", "c.csv"])

    # the Files panel first, then attachments
    make("b.csv", b"another")
    good("put", "places", "b.csv")
    good("get", "places", "b.csv", "-o", "got")
    same(read("got"), data)
    same(good("get", "places", "attachments:b.csv", "-o", "-"), b"another")

    # stdin, as it comes
    p = popen("put", "places", "-", "--name", "piped", stdin=subprocess.PIPE)
    for word in (b"one ", b"two ", b"three"):
        p.stdin.write(word)
        p.stdin.flush()
        time.sleep(0.3)
    p.communicate(timeout=100)
    same(p.returncode, 0)
    same(good("get", "places", "piped", "-o", "-"), b"one two three")

    # one that is there
    text = bad(1, "put", "places", "-n", "b.csv")
    check("stays" in text, text)
    same(good("get", "places", "attachments:b.csv", "-o", "-"), b"another")
    out = good("put", "places", "--unique", "b.csv").decode()
    check("attachments:b (2).csv" in out, out)


@test("ctl/put-fails")
def put_fails():
    clean()
    for n in "ab":
        make(n, n.encode())
    os.truncate(here + "/a", 1)
    with open(here + "/large", "wb") as f:
        f.truncate(65 * MIB)
    os.mkdir(here + "/folder")
    a, b, rc = ctl("put", "fails", "a", "large", "nothing", "folder", "b")
    same((rc, a.decode().count("\n")), (1, 2), b)
    lines = b.splitlines()
    same(len(lines), 3, b)
    check("large: " in lines[0] and "67108864" in lines[0]
          and "413" in lines[0], lines[0])
    check("nothing" in lines[1] and "folder" in lines[2], b)
    same(listed("fails", "attachments"), ["a", "b"])
    # it is not sent to its end for that
    with Line(rate=2 * MIB) as line:
        text = bad(1, "put", "fails", "large", "--to", "fs:large",
                   port=line.port)
        check("413" in text and line.sent < 32 * MIB, text, line.sent)
    # the same when the length is not told
    with open(here + "/large", "rb") as f:
        p = popen("put", "fails", "-", "--name", "piped", stdin=f)
        b = p.communicate(timeout=150)[1].decode()
    same(p.returncode, 1)
    check("413" in b and b.count("\n") == 1, b)
    for arguments in (("put", "fails"), ("put", "fails", "-"),
                      ("put", "fails", "a", "--to", "attachment"),
                      ("put", "fails", "a", "fs:x"),
                      ("put", "fails", "a", "--to", "fs:../x"),
                      ("put", "fails", "a", "b", "--name", "x"),
                      ("put", "bad id", "a"), ("get", "fails"),
                      ("ls", "fails", "somewhere"), ("save", "fails"),
                      ("rm", "fails", "a"), ("link", "fails", "fs:x")):
        status = 1 if arguments[-1] == "-" else 2
        bad(status, *arguments)
    same(listed("fails", "attachments"), ["a", "b"])


@test("ctl/get-never-overwrites")
def overwrites():
    clean()
    make("f", b"new")
    good("put", "over", "f")
    make("f", b"mine")
    text = bad(1, "get", "over", "f")
    check("-f" in text, text)
    same(read("f"), b"mine")
    # also one that came while it was on its way
    make("big", os.urandom(2 * MIB))
    good("put", "over", "big")
    os.unlink(here + "/big")
    with Line(hold=100000) as line:
        p = popen("get", "over", "big", port=line.port)
        wait_for(line.stands, 20, "a beginning")
        make("big", b"mine, too")
        line.free()
        p.communicate(timeout=100)
        same(p.returncode, 1)
    same(read("big"), b"mine, too")
    os.chmod(here + "/f", 0o640)
    os.symlink("f", here + "/link")
    bad(1, "get", "over", "f", "-o", "link")
    good("get", "over", "f", "-f", "-o", "link")
    same(read("f"), b"new")
    check(os.path.islink(here + "/link"), "no link any more")
    same(os.stat(here + "/f").st_mode & 0o777, 0o640)
    # what is no file is written to, and stays what it is
    good("get", "over", "f", "-f", "-o", "/dev/null")
    check(not os.path.isfile("/dev/null"), "what became of /dev/null")
    bad(1, "get", "over", "nothing")
    bad(1, "get", "over", "f", "-o", "/nonexistent/f")
    g.run("over", "mkdir d; cp attachments/f d")
    text = bad(1, "get", "over", "fs:d", "-o", "d")
    check("folder" in text, text)
    same(names(), ["big", "f", "link"])


@test("ctl/get-lost-connections", seconds=90)
def lost():
    """Every connection breaks, three times: no byte comes twice."""
    clean()
    data = make("lost", os.urandom(3 * MIB))
    good("put", "lost", "lost")
    good("put", "lost", "lost", "--to", "fs:lost")
    os.unlink(here + "/lost")
    for place in ("attachments:lost", "fs:lost"):
        for output in ("lost", "-"):
            with Line(cuts=[300, MIB, MIB // 2]) as line:
                a = good("get", "lost", place, "-o", output, port=line.port)
                same(hashlib.sha1(a if output == "-" else read("lost"))
                     .digest(), hashlib.sha1(data).digest(), place)
                check(line.moved < 3.1 * MIB, "bytes came twice", line.moved)
                check(len([h for h in line.heads if "If-Range: \"" in h]) > 1,
                      "not asked for a part:", line.heads)
            same(names(), [] if output == "-" else ["lost"])
            clean()


@test("ctl/get-changed")
def changed():
    """A file that is replaced while its connection is lost."""
    clean()
    old = make("changes", os.urandom(2 * MIB))
    good("put", "changes", "changes")
    new = make("changes", os.urandom(MIB))
    for output in ("got", "-"):
        g.request("PUT", "v1/conversations/changes/attachments/changes", old)
        with Line(hold=400000, cuts=[MIB]) as line:
            p = popen("get", "changes", "attachments:changes", "-o", output,
                      port=line.port)
            wait_for(line.stands, 20, "a beginning")
            g.request("PUT", "v1/conversations/changes/attachments/changes",
                      new)
            line.free()
            a, b = p.communicate(timeout=100)
            if output == "got":
                same((p.returncode, b), (0, b""))
                check(read("got") == new, "not the new one")
            else:
                # what is out can't be taken back
                same(p.returncode, 1)
                check(b"changed" in b and old.startswith(a), "told:", b)
    same(names(), ["changes", "got"])


@test("ctl/get-interrupted", seconds=90)
def interrupted():
    clean()
    data = make("wanted", os.urandom(2 * MIB))
    good("put", "stop", "wanted")
    clean()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for times in (1, 2):
            with Line(hold=200000) as line:
                p = popen("get", "stop", "wanted", port=line.port)
                wait_for(lambda: line.stands() and names(), 20,
                         "a beginning")
                same(len(names()), 1, names())
                for _ in range(times):
                    p.send_signal(number)
                p.communicate(timeout=100)
                same(p.returncode, 128 + number)
            same(names(), [])

    def kept():
        """Bytes that it has written so far."""
        try:
            return sum(os.path.getsize(os.path.join(here, n))
                       for n in names())
        except FileNotFoundError:
            return 0                    # it has another name by now

    # -c: kept, by whatever it ends, and gone on with
    have = port = 0
    for number in (signal.SIGINT, signal.SIGKILL):
        with Line(hold=600000, port=port) as line:
            port = line.port
            p = popen("get", "stop", "-c", "wanted", port=line.port)
            wait_for(lambda: kept() > have + 300000, 20, "a beginning")
            p.send_signal(number)
            b = p.communicate(timeout=100)[1]
            check(number == signal.SIGKILL or b"kept" in b, "not told", b)
        same(len(names()), 1, names())
        size = os.path.getsize(os.path.join(here, names()[0]))
        check(size > have + 300000, "it did not go on:", size, have)
        have = size
    with Line(port=port) as line:
        good("get", "stop", "-c", "wanted", port=line.port)
        check(line.moved < len(data) - have + 10000, "came twice")
    same(names(), ["wanted"])
    check(read("wanted") == data, "other bytes")
    # of another version nothing is taken
    clean()
    with Line(hold=300000, port=port) as line:
        p = popen("get", "stop", "-c", "wanted", port=line.port)
        wait_for(lambda: kept() > 100000, 20, "a beginning")
        p.kill()
        p.communicate()
    g.request("PUT", "v1/conversations/stop/attachments/wanted", data[::-1])
    with Line(port=port) as line:
        good("get", "stop", "-c", "wanted", port=line.port)
    check(read("wanted") == data[::-1], "a mixture")


@test("ctl/put-interrupted", seconds=60)
def put_interrupted():
    clean()
    data = make("up", os.urandom(2 * MIB))
    for to in ("attachments", "files", "fs:up"):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Line(hold=100000) as line:
                p = popen("put", "stop2", "up", "--to", to, port=line.port)
                wait_for(lambda: line.heads, 20, "a beginning")
                p.send_signal(number)
                p.communicate(timeout=100)
                same(p.returncode, 128 + number)
    same(listed("stop2", "attachments") + listed("stop2", "files"), [])
    same(g.run("stop2", "ls -A up*")["stdout"], "")

    # a line that breaks: the whole once more
    for to in ("attachments", "fs:up"):
        with Line(up=[MIB // 2, MIB]) as line:
            good("put", "stop2", "up", "--to", to, port=line.port)
            same(len(line.heads), 3)
    same(hashlib.sha1(good("get", "stop2", "up", "-o", "-")).digest(),
         hashlib.sha1(data).digest())
    # but never what may be there already, or can't be read again
    with Line(up=[MIB]) as line:
        bad(1, "put", "stop2", "-u", "up", port=line.port)
        same(len(line.heads), 1)
    with Line(up=[MIB]) as line:
        bad(1, "put", "stop2", "-", "--name", "p", data=data, port=line.port)
        same(len(line.heads), 1)
    same(listed("stop2", "attachments"), ["up"])


# argv[1]: where it writes how many KiB of memory that program had at most.
# This one has less: what its children had before they were that is counted.
PEAK = """import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as f:
    f.write(str(usage.ru_maxrss))
os._exit(os.waitstatus_to_exitcode(status))"""


@test("ctl/files-worker-killed", seconds=90)
def worker_killed():
    """kill -9 of every worker of nginx while files are on their way."""
    clean()
    data = make("up", os.urandom(2 * MIB))
    good("put", "killed", "up", "--to", "fs:down")

    def kill(line):
        wait_for(line.stands, 20, "a beginning")
        old = g.workers()
        for pid in old:
            g.expected.append("worker process %d exited on signal 9" % pid)
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: len(set(g.workers()) - set(old)) >= 2, 20, "workers")
        line.free()

    for arguments in (("put", "killed", "up"),
                      ("put", "killed", "up", "--to", "fs:up"),
                      ("get", "killed", "up", "-o", "got"),
                      ("get", "killed", "fs:down", "-o", "down")):
        with Line(hold=400000) as line:
            p = popen(*arguments, port=line.port)
            kill(line)
            b = p.communicate(timeout=100)[1]
            same((p.returncode, b), (0, b""), repr(arguments))
    same([hashlib.sha1(d).digest() for d in
          (read("got"), read("down"),
           good("get", "killed", "fs:up", "-o", "-"))],
         [hashlib.sha1(data).digest()] * 3)


@test("ctl/files-memory", seconds=90)
def memory():
    """48 MiB each way take no more memory than a few do."""
    clean()
    data = make("large", os.urandom(MIB) * 48)
    with open(here + "/large", "rb") as f:
        for arguments in (("put", "mem", "large"),
                          ("put", "mem", "-", "--name", "piped"),
                          ("put", "mem", "large", "--to", "fs:large"),
                          ("get", "mem", "piped", "-o", "got"),
                          ("get", "mem", "fs:large", "-o", "-")):
            f.seek(0)
            p = subprocess.run(
                [sys.executable, "-c", PEAK, g.path("peak"), CTL, *arguments],
                stdin=f, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                cwd=here, env=environment(), timeout=200, check=False)
            same((p.stderr, p.returncode), (b"", 0))
            most = int(g.read("peak"))
            check(0 < most < 32 * 1024, "KiB:", most)
    check(read("got") == data, "other bytes")
    g.delete("mem")


@test("ctl/get-reader-gone")
def reader_gone():
    clean()
    make("f", os.urandom(MIB))
    good("put", "gone", "f")
    p = popen("get", "gone", "f", "-o", "-")
    p.stdout.read(5)
    p.stdout.close()
    same((p.stderr.read(), p.wait(100)), (b"", 141))
    p.stderr.close()


@test("ctl/progress-bar", seconds=60)
def progress():
    clean()
    name = "отчёт " + "报告" * 20 + ".csv"
    make(name, os.urandom(MIB))
    with Line(rate=MIB // 2, hold=MIB // 3) as line:
        pid, fd = in_terminal("put", "bar", name, port=line.port, columns=100)
        got = b""
        while got.count(b"%") < 8:
            got += os.read(fd, 65536)
        line.free()
        text, rc = to_end(pid, fd, got)
    same(rc, 0, text)
    drawn = [b for b in bars(text) if "%" in b]
    check(len(drawn) > 5, "few bars:", text)
    for b in drawn:
        check(re.search(r"\[=*>? *\]|отчёт", b) and "KiB" in b or " B" in b
              or "MiB" in b, "no bar", b)
    check(any(re.search(r"\d %?|\d%", b) and re.search(r"[KM]iB/s", b)
              and re.search(r"\d\d:\d\d$", b) for b in drawn), drawn[-3:])
    check(" 100%" in drawn[-1], "the last:", drawn[-1])
    numbers = [int(re.search(r"(\d+)%", b).group(1)) for b in drawn]
    same(numbers, sorted(numbers))
    check("-> " in text.splitlines()[-1] and "new" in text, "report:", text)

    # a window that becomes small; nothing is wider than it
    clean()
    with Line(rate=MIB // 2, hold=MIB // 3) as line:
        pid, fd = in_terminal("get", "bar", "-o", "got", name, port=line.port,
                              columns=120, quiet=True)
        got = b""
        while got.count(b"%") < 4:
            got += os.read(fd, 65536)
        fcntl.ioctl(fd, termios.TIOCSWINSZ,
                    struct.pack("HHHH", 24, 40, 0, 0))
        after = b""
        while len(narrow(after.decode(errors="replace"))) < 5:
            after += os.read(fd, 65536)
        line.free()
        after, rc = to_end(pid, fd, after)
    same(rc, 0, after)
    check(any(len(b) > 80 for b in bars(got.decode(errors="replace"))),
          "wide:", got)
    drawn = narrow(after)
    check(drawn and all(len(b) < 40 for b in drawn), "narrow:", drawn)
    check(after.endswith("\r\x1b[K"), "not taken away:", after[-100:])

    # nothing of it where nobody looks
    with Line(rate=4 * MIB) as line:
        good("get", "bar", "-f", "-o", "got", name, port=line.port)
    # Ctrl-C, typed
    clean()
    with Line(rate=MIB // 2, hold=150000) as line:
        pid, fd = in_terminal("get", "bar", name, port=line.port)
        os.read(fd, 100)
        wait_for(line.stands, 20, "a beginning")
        os.write(fd, b"\x03")
        text, rc = to_end(pid, fd)
    same((rc, names()), (130, []), text)


@test("ctl/ls")
def ls():
    clean()
    g.request("PUT", "v1/conversations/ls/attachments/"
              + urllib.parse.quote("two\nlines"), b"x" * 5000)
    g.request("PUT", "v1/conversations/ls/attachments/%FF%1B%5B2J", b"x")
    g.request("PUT", "v1/conversations/ls/files/chart.png", b"x" * 3000000)
    same(good("ls", "ls", "attachments"), b"two\nlines\n\xff\x1b[2J\n")
    same(good("ls", "ls"), b"files:\nchart.png\n\nattachments:\ntwo\nlines\n"
         b"\xff\x1b[2J\n")
    same(good("ls", "never-used"), b"files: none\n\nattachments: none\n")
    out = good("ls", "ls", "-l", "files").decode()
    check(re.match(r" 2\.9 MiB  20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  chart.png\n$",
                   out), out)
    entries = [json.loads(ln) for ln in
               good("ls", "--json", "ls", "attachments").splitlines()]
    same([e["size"] for e in entries], [5000, 1])
    same(entries[0]["name"], "two\nlines")
    same([json.loads(ln)["list"] for ln in
          good("ls", "--json", "ls").splitlines()],
         ["files", "attachments", "attachments"])

    pid, fd = in_terminal("ls", "ls")
    text, rc = to_end(pid, fd)
    same((text, rc), ("files:\r\nchart.png\r\n\r\nattachments:\r\n"
                      "$'two\\nlines'\r\n$'\\xff\\x1b[2J'\r\n", 0))

    # the container
    bad(1, "ls", "ls", "fs")
    g.run("ls", "mkdir -p d/sub; cd d; echo x > f; chmod 750 f; "
          "ln -s f l; touch 'a b'; mkfifo p")
    same(good("ls", "ls", "fs:d"), b"a b\nf\nl\np\nsub/\n")
    same(good("ls", "ls", "fs:/home/sandbox/d/"), b"a b\nf\nl\np\nsub/\n")
    out = good("ls", "-l", "ls", "fs:d").decode()
    check(re.search(r"^-rwxr-x---       2 B  20\S+ \S+  f$", out, re.M)
          and re.search(r"^lrwx\S+ .* l -> f$", out, re.M)
          and re.search(r"^drwx\S+ .* sub/$", out, re.M), out)
    bad(1, "ls", "ls", "fs:d/f")
    bad(1, "ls", "ls", "fs:nothing")
    # the conversations themselves
    same(g.run("ls2", "true", token=token(sub="lists"))["exitCode"], 0)
    ours = dict(os.environ, SANDBOX_TOKEN=token(sub="lists"),
                SANDBOX_URL="http://127.0.0.1:%d/sandbox" % g.port)
    # a thread writes it down, which the command does not wait for
    wait_for(lambda: subprocess.run([CTL, "ls"], env=ours, check=True,
                                    stdout=subprocess.PIPE).stdout
             == b"ls2\n", 20, "it in the list")
    out = subprocess.run([CTL, "ls", "-l"], env=ours, stdout=subprocess.PIPE)
    # of engines nginx knows no more than what it remembers
    check(re.fullmatch(r"running +1 commands  20\S+ \S+  ls2\n"
                       if BACKEND == "local" else r".* ls2\n",
                       out.stdout.decode()), "the list", out)
    check(b"ls\n" in good("ls"), "not in the list")

    # more than a page
    g.run("ls", "mkdir many; cd many; seq -f 'f%04g' 2345 | xargs touch")
    same(good("ls", "ls", "fs:many").count(b"\n"), 2345)


@test("ctl/save-link")
def save_link():
    clean()
    g.run("save", "mkdir out; echo 42 > 'out/an answer'; echo 43 > b")
    out = good("save", "save", "out/an answer").decode()
    same(out, "'out/an answer' -> 'files:an answer' (3 B, new)\n")
    good("save", "save", "fs:b", "/home/sandbox/out/an answer", "-f")
    same(listed("save", "files"), ["an answer", "b"])
    text = bad(1, "save", "save", "b")
    check("--overwrite" in text, text)
    good("save", "save", "b", "--name", "c")
    bad(1, "save", "save", "nothing")
    bad(1, "save", "save", "out")
    bad(1, "save", "never", "b")
    url = good("link", "save", "files:an answer", "--ttl", "9m").decode()
    with urllib.request.urlopen(url.strip()) as r:
        same(r.read(), b"42\n")
    bad(1, "link", "save", "nothing")
    bad(2, "link", "save", "b", "--ttl", "1h")


@test("ctl/rm-one-file")
def rm():
    clean()
    make("f", b"x")
    make("keep", b"x")
    good("put", "rm", "f", "keep")
    good("put", "rm", "f", "keep", "--to", "files")
    good("put", "rm", "f", "--to", "fs:dir/")
    # what a script's empty variable makes of it ends nothing
    for words in (("",), ("files:",), ("f",), ("fs:",), ("fs:/",),
                  ("files:f", "")):
        bad(2, "rm", "rm", *words)
    same(listed("rm", "files") + listed("rm", "attachments"),
         ["f", "keep"] * 2)
    good("rm", "rm", "files:f")
    same((listed("rm", "files"), listed("rm", "attachments")),
         (["keep"], ["f", "keep"]))
    good("rm", "rm", "attachments:f", "fs:dir/f")
    same(g.run("rm", "ls dir attachments")["stdout"],
         "attachments:\nkeep\n\ndir:\n")
    bad(1, "rm", "rm", "files:f")
    good("rm", "-f", "rm", "files:f")
    good("put", "rm", "f", "--to", "fs:dir/sub/")
    text = bad(1, "rm", "rm", "fs:dir")
    check("-r" in text, text)
    good("rm", "-r", "rm", "fs:dir/")
    same(g.run("rm", "ls -d dir")["exitCode"], 2)
    good("rm", "rm")
    same(listed("rm", "files") + listed("rm", "attachments"), [])


@test("ctl/unknown-conversation")
def unknown():
    for verb in ("rm", "reset"):
        text = bad(1, verb, "never-was")
        check("never-was" in text, text)
    good("rm", "-f", "never-was")
    # files alone are something
    clean()
    make("f", b"x")
    good("put", "only-files", "f")
    bad(1, "reset", "only-files")
    good("rm", "only-files")
    same(listed("only-files", "attachments"), [])


main(start, stop)
