#!/usr/bin/env python3
"""What is around sandboxes on the host: who may read state, store and sockets,
what nginx's memory gives away, and where a key for development is good."""

import glob
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import NGINX, TOP, Gateway, token, wait_for     # noqa: E402
from tap import check, main, same, test                      # noqa: E402

SHARED = "/run/sandbox"


def tree(top):
    """Each path below, and the bits of who may get there: 7 for anybody."""
    out = []

    def walk(path, reach):
        try:
            st = os.lstat(path)
        except OSError:
            return
        if stat.S_ISLNK(st.st_mode):
            return
        out.append((path, st, reach))
        if stat.S_ISDIR(st.st_mode):
            try:
                names = os.listdir(path)
            except OSError:
                return                  # of another runner, and it has gone
            for name in names:
                walk(path + "/" + name, reach and bool(st.st_mode & 0o001))
    walk(top, True)
    return out


AS_NOBODY = r"""
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
bad = []
for path in sys.stdin.read().split("\0"):
    if not path:
        continue
    for what, f in (("read", lambda: os.close(os.open(path, os.O_RDONLY
                                                      | os.O_NONBLOCK))),
                    ("list", lambda: os.listdir(path)),
                    ("write", lambda: os.close(os.open(path, os.O_WRONLY
                                                       | os.O_NONBLOCK)))):
        try:
            f()
            bad.append((what, path))
        except OSError:
            pass
    for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET:
        s = socket.socket(socket.AF_UNIX, kind)
        try:
            s.connect(path)
            bad.append(("connect", path))
        except OSError:
            pass
        s.close()
print(bad)
"""


@test("attack/store-and-state-are-private", seconds=200)
def private():
    """Made under the worst umask there is: nobody else of the host reads,
    lists, writes or connects to anything."""
    old = os.umask(0)
    try:
        g = Gateway(pool=1)
        g.options["location"] = "sandbox_store %s;" % g.path("store")
        os.mkdir(g.path("store"), 0o700)
        os.chown(g.path("store"), *[os.stat(g.path("tmp")).st_uid] * 2)
        with g:
            g.run("c", "echo secret > f; mkdir d; chmod 777 d f .")
            for kind in ("attachments", "files"):
                r = g.request("PUT", "v1/conversations/c/%s/a" % kind,
                              b"secret")
                same(r.status, 201, repr(r))
            g.run("c", "cat attachments/a")
            listed = []
            for top in (g.state, g.path("store"), g.path("agents"), SHARED):
                found = tree(top)
                listed += found
                st = os.stat(top)
                if top in (g.state, g.path("store")):
                    same(stat.S_IMODE(st.st_mode), 0o700, top)
                for path, st, _ in found:
                    check(not st.st_mode & 0o022, "others may write",
                          path, oct(st.st_mode))
                    if stat.S_ISREG(st.st_mode) and top != SHARED:
                        check(not st.st_mode & 0o004 or "/agent" in path,
                              "others may read", path, oct(st.st_mode))
            check(len(listed) > 20, "files:", len(listed))
            st = os.stat(g.socket)
            same(stat.S_IMODE(st.st_mode), 0o660, "the runner's socket")
            paths = [p for p, st, _ in listed] + [g.socket,
                                                  g.path("runner.key")]
            # what others may not get to is tried all the same; the folder of
            # the test may be passed through
            done = subprocess.run([sys.executable, "-c", AS_NOBODY],
                                  input="\0".join(paths).encode(),
                                  stdout=subprocess.PIPE, check=True)
            # the egress proxy has an empty folder for its root
            bad = [b for b in eval(done.stdout)
                   if b[1] != SHARED + "/empty" or b[0] not in ("read", "list")
                   or os.listdir(b[1])]
            same(bad, [])
    finally:
        os.umask(old)


MARK = "canary-of-alice-"
FILL = 0xd5         # glibc: what is new has this in it, what is freed its
                    # complement (mallopt(3), M_PERTURB)


def strange(data):
    """A run of what memory is filled with."""
    for byte in (FILL, FILL ^ 0xff):
        at = data.find(bytes([byte]) * 6)
        if at != -1:
            return data[max(0, at - 40):at + 60]
    return None


def filled(master):
    """The heap of a worker is as we wanted it."""
    with open("/proc/%d/task/%d/children" % (master, master)) as f:
        children = f.read().split()
    for pid in children:
        try:
            with open("/proc/%s/maps" % pid) as f:
                heap = [line.split()[0].split("-") for line in f
                        if line.rstrip().endswith("[heap]")]
            with open("/proc/%s/mem" % pid, "rb") as f:
                for begin, end in heap:
                    f.seek(int(begin, 16))
                    if strange(f.read(int(end, 16) - int(begin, 16))):
                        return True
        except OSError:
            pass                        # it is another one by now
    return False


@test("attack/memory-of-nginx", seconds=600)
def memory():
    """Each byte that is allocated or freed has a value that is known: none of
    it may be in an answer, nor in what is sent to an agent; and what one
    caller sent is in nobody else's answers."""
    sent = []

    os.environ["MALLOC_PERTURB_"] = str(FILL ^ 0xff)
    try:
        g = Gateway(pool=1, workers=1)
        g.start()
    finally:
        del os.environ["MALLOC_PERTURB_"]
    try:
        # alice fills it with things of hers
        for n in range(40):
            r = g.command("c", "cat; printf '%%0%dd' 1" % (n * 97 % 5000),
                          stdin=(MARK + str(n)) * (n * 13 % 300 + 1),
                          env={"A": MARK + "env"})
            same(r.status, 200, repr(r))
            g.request("PUT", "v1/conversations/c/fs/%s%d" % (MARK, n),
                      (MARK * 500)[:n * 211 % 7000].encode())
        bob = token(sub="bob")
        for n in range(30):
            size = n * 331 % 9000
            for r in (
                g.command("b", "head -c %d /dev/zero" % size, token=bob),
                g.command("b", "head -c %d /dev/zero; exit 3" % size,
                          token=bob, query="?encoding=base64"),
                g.command("b", "true", token=bob, commandId="x%d" % n),
                g.request("GET", "v1/conversations/b/commands?limit=%d"
                          % (n + 1), token=bob),
                g.request("PUT", "v1/conversations/b/fs/f%d" % n,
                          bytes(size), token=bob),
                g.request("GET", "v1/conversations/b/fs/f%d" % n, token=bob,
                          headers={"Range": "bytes=%d-" % (size // 2)}),
                g.request("GET", "v1/conversations/b/fs/?list", token=bob),
                g.request("HEAD", "v1/conversations/b/fs/f%d" % n, token=bob),
                g.request("GET", "v1/conversations/b/fs/none%d" % n,
                          token=bob),
                g.request("GET", "v1/conversations/b", token=bob),
                g.request("GET", "v1/conversations", token=bob),
                g.request("GET", "v1/limits", token=bob),
                g.request("POST", "v1/conversations/b/commands",
                          b"{" * (n + 1), token=bob),
                g.request("GET", "v1/x" * (n + 1), token=bob),
                g.request("GET", "v1/conversations/b", token="x" * n),
                g.request("GET", "openapi.json", token=None),
            ):
                text = str(r.status).encode() + str(r.headers).encode() \
                    + r.body
                check(MARK.encode() not in text, "something of alice's:", r)
                check(strange(text) is None, "memory:", repr(strange(text)))
                sent.append(len(text))
        check(len(sent) > 400, "answers looked at")
        wait_for(lambda: filled(g.nginx.pid), 60,
                 "memory that is filled: without it this shows nothing")
    finally:
        g.stop()


@test("attack/memory-in-preambles", seconds=100)
def preambles():
    """The same for what goes to an agent, recorded by a runner that is none.
    """
    os.environ["MALLOC_PERTURB_"] = str(FILL ^ 0xff)
    got = []
    g = Gateway(runner=None, ready=False, workers=1)
    g.expected.append("[crit] ")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(g.socket)
    os.chmod(g.socket, 0o666)
    listener.listen(100)
    listener.settimeout(0.2)
    end = threading.Event()
    try:
        g.start()
    finally:
        del os.environ["MALLOC_PERTURB_"]
    def record():
        while not end.is_set():
            try:
                c, _ = listener.accept()
            except socket.timeout:
                continue
            c.settimeout(60)
            data = b""
            try:
                while len(data) < 1 << 16:
                    more = c.recv(65536)
                    if not more:
                        break
                    data += more
                    c.settimeout(0.1)
            except OSError:
                pass
            got.append(data)
            c.close()

    thread = threading.Thread(target=record, daemon=True)
    thread.start()
    try:
        for n in range(2):
            for method, path, body in (
                    ("POST", "commands", json.dumps(
                        {"command": "true" + " " * n * 31, "env": {"A": "b"},
                         "stdin": "x" * n * 17})),
                    ("GET", "fs/file%d" % n, None),
                    ("PUT", "fs/file%d" % n, b"x" * n * 100),
                    ("GET", "commands", None), ("DELETE", "", None)):
                try:
                    g.request(method, "v1/conversations/c%d/%s" % (n, path),
                              body)
                except OSError:
                    pass
    finally:
        g.stop()
        end.set()
        thread.join(60)
        listener.close()
    got = [data for data in got if data]
    check(len(got) > 10, "requests recorded:", len(got))
    for data in got:
        check(strange(data) is None, "memory in a request:",
              repr(strange(data)))


@test("attack/dev-key", seconds=100)
def dev_key():
    """`make run` has a key by chance, readable to root alone, on loopback; and
    no key is in what we ship; nginx takes no short one, and says so of one that
    all can read."""
    with open(TOP + "/tools/run") as f:
        text = f.read()
    check("openssl rand -hex 32" in text and "umask 077" in text,
          "the key of make run is not made by chance")
    same(set(re.findall(r"listen ([0-9.]+):", text)), {"127.0.0.1"})
    for path in glob.glob(TOP + "/conf.d/*"):
        with open(path) as f:
            for line in f:
                found = re.match(r"\s*sandbox_\w*(?:key|secret)\w* (\S+?);?$",
                                 line)
                if found and "/" in found.group(1):
                    check(found.group(1).startswith("/etc/nginx/"), path, line)
                check("jwt.key" not in line or line.lstrip().startswith("#"),
                      "the key of make run in", path, line)
    g = Gateway(runner=None, ready=False)
    try:
        for what, mode, data, words in (
                ("readable to others", 0o644, b"x" * 32,
                 b"every user of this host can read it"),
                ("short", 0o600, b"x" * 31, b"[emerg]"),
                ("empty", 0o600, b"", b"[emerg]")):
            g.write("jwt.key", data, mode)
            g.configure()
            done = subprocess.run([NGINX, "-t", "-q", "-c",
                                   g.path("nginx.conf")],
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            check(words in done.stdout and b"jwt.key" in done.stdout,
                  "a secret that is " + what, done.stdout)
        # a token by another gateway's key
        g.write("jwt.key", os.urandom(32).hex())
        g.expected.append("[crit] ")
        g.start()
        same(g.request("GET", "v1/limits", token=token()).status, 401)
    finally:
        g.stop()


main()
