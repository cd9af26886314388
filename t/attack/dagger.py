#!/usr/bin/env python3
"""The whole way of the engines' backend, attacked: by users who ask for what
is not there, by commands that prepare what comes after them, and by whoever
answers for an engine."""

import os
import random
import select
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../lib")

from gateway import Gateway, token, wait_for                 # noqa: E402
from gateway_engine import REAL                              # noqa: E402
from tap import check, main, same, skip, test                # noqa: E402

g = None


def start():
    global g
    g = Gateway(backend="dagger")
    g.start()


def stop():
    g.stop()


def agents():
    """First processes of containers of this gateway's engine."""
    out = []
    for pid in os.listdir("/proc"):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                if b"sandbox-agent\0--engine" not in f.read():
                    continue
            with open("/proc/%s/status" % pid) as f:
                inside = [line.split()[-1] for line in f
                          if line.startswith("NSpid:")]
            with open("/proc/%s/mountinfo" % pid) as f:
                if inside == ["1"] and g.dir in f.read():
                    out.append(pid)
        except OSError:
            continue
    return out


@test("attack/engine-seed: what fresh homes are made of is no command's")
def seed():
    r = g.run("seed", """
        cd /usr/share/sandbox/home
        mkdir evil; echo evil >> pyproject.toml; touch .venv/evil .evil
        find . -exec chmod u+w {} + ; mv .venv .old; rm -rf .config
        find / -xdev -name proc -prune -o -writable ! -type l \
            -path '/usr/*' -print | grep -v ^/usr/share/sandbox/home/
        find . -writable ! -type l
        """)
    same(r["stdout"], "")
    same(g.output("seed", "diff -r --no-dereference "
                  "/usr/share/sandbox/home . && echo same && "
                  "ls -d evil .evil .old .venv/evil 2>/dev/null || true",
                  fresh=True), "same\n")


@test("attack/engine-deep: no tree is too deep for the end of a sandbox")
def deep():
    # where directories are quick to make, and to be removed
    same(g.output("deep", "/usr/bin/python3 -c 'import os\n"
                  "os.chdir(\"/dev/shm\")\n"
                  "for i in range(70000):\n"
                  "  os.mkdir(\"d\"); os.chdir(\"d\")'; ls /dev/shm"), "d\n")
    same(g.output("deep", "ls /dev/shm", fresh=True), "")
    same(g.delete("deep").status, 204)


@test("attack/engine-nobody: who asks for what is not there has no container")
def nobody():
    if REAL:
        skip("the containers are those of a real engine")
    g.output("somebody", "echo kept > f")
    before = set(agents())
    check(before, "there is an agent")
    for n in range(8):
        path = "v1/conversations/nobody-%d" % n
        same(g.request("GET", path).json["state"], "none")
        same(g.request("GET", path + "/commands").status, 404)
        same(g.request("GET", path + "/fs").status, 404)
    wait_for(lambda: set(agents()) <= before, 60, "the end of the agents")
    same(g.output("somebody", "cat f"), "kept\n")
    same(g.output("nobody-1", "echo later"), "later\n")


@test("attack/engine-astray: names of agents do not lead to this host")
def astray():
    if REAL:
        skip("a real engine does not lie")
    program = g.engines.programs[0]
    listener = socket.socket()
    while True:
        address = "127.%d.%d.%d" % tuple(random.randrange(1, 255)
                                         for _ in range(3))
        try:
            listener.bind((address, 9000))
            break
        except OSError:
            continue
    listener.listen()
    listener.setblocking(False)
    program.names(address)
    try:
        # by an exec then, since nobody is where he could be connected to
        same(g.output("astray", "echo no"), "no\n")
        try:
            listener.accept()
        except BlockingIOError:
            pass
        else:
            check(False, "nginx was led to", address)
        check("the address %s, which is no container's" % address
              in g.error_log, "the log says so")
    finally:
        listener.close()
        program.names()


@test("attack/engine-memory: bodies that wait for their end are not without "
      "bound")
def memory():
    if REAL:
        skip("the containers of a real engine are in reach")
    program = g.engines.programs[0]
    program.names("silent")
    waiting, refused = [], []
    try:
        # by an exec, which takes a body as a whole
        same(g.output("memory", "echo no"), "no\n")
        for n in range(32):
            waiting.append(begin(n, 15 << 20))
            refused = select.select(waiting, [], [], 0.1)[0]
            if refused:
                break
        refused = refused or select.select(waiting, [], [], 120)[0]
        check(refused, "as much as anybody wants is kept")
        head = refused[0].recv(4096)
        check(head.startswith(b"HTTP/1.1 429 "), head)
        for s in waiting:
            s.close()
        wait_for(lambda: g.request("PUT", "v1/conversations/memory/fs/f",
                                   b"x" * (1 << 20)).status in (200, 201),
                 60, "memory that is given back")
    finally:
        for s in waiting:
            s.close()
        program.names()


def begin(n, size):
    """An upload of which the last byte does not come."""
    s = socket.create_connection(("127.0.0.1", g.port))
    s.settimeout(120)
    s.sendall(b"PUT /sandbox/v1/conversations/memory-%d/fs/f HTTP/1.1\r\n"
              b"Host: sandbox\r\nAuthorization: Bearer %s\r\n"
              b"Content-Length: %d\r\n\r\n" % (n, token().encode(), size))
    try:
        s.sendall(b"x" * (size - 1))
    except (BrokenPipeError, ConnectionResetError):
        pass                            # its answer may be there all the same
    return s


if __name__ == "__main__":
    main(start, stop)
