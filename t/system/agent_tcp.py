#!/usr/bin/env python3
"""The agent as a container engine starts it: on TCP, with a secret.

It is PID 1 of namespaces that this test makes: user, pid, mount; nothing that
it does can reach a process of the host.
"""

import ctypes
import errno
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import (AGENT, CACHE, alive, free_port,             # noqa: E402
                     in_namespace, pid_namespace, wait_for)
from tap import check, main, same, test                      # noqa: E402

NEWNS, NEWUSER, NEWPID, NEWIPC = 0x20000, 0x10000000, 0x20000000, 0x8000000
SECRET = bytes(range(32))

libc = ctypes.CDLL(None, use_errno=True)
base = os.path.realpath(CACHE + "/base/current/rootfs")
state = {}


def need(rc, what):
    if rc != 0:
        raise OSError(ctypes.get_errno(), what)


def mount(source, target, kind, flags=0, data=""):
    need(libc.mount(source.encode(), target.encode(), kind.encode(), flags,
                    data.encode()), "mount %s on %s" % (kind, target))


def first_process(folder, port):
    """In PID 1 of the new namespaces: a root of its own, then the agent."""
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    mount("none", folder, "tmpfs", 0, "mode=755")
    for name in ("upper", "work", "root", "upper/home", "upper/tmp"):
        os.mkdir(folder + "/" + name)
    mount("overlay", folder + "/root", "overlay", 0,
          "lowerdir=%s,upperdir=%s/upper,workdir=%s/work,userxattr"
          % (base, folder, folder))
    root = folder + "/root"
    mount("proc", root + "/proc", "proc", 14)
    mount("tmpfs", root + "/tmp", "tmpfs", 6, "mode=1777")
    mount("tmpfs", root + "/home", "tmpfs", 6, "mode=755")
    os.mkdir(root + "/home/sandbox")
    os.chown(root + "/home/sandbox", 1000, 1000)
    mount("tmpfs", root + "/dev", "tmpfs", 0, "mode=755")
    for name in ("null", "zero", "urandom"):
        with open(root + "/dev/" + name, "w"):
            pass
        mount("/dev/" + name, root + "/dev/" + name, "", 4096)
    with open(root + "/tmp/agent", "wb") as b:
        b.write(state["agent"])
    os.chmod(root + "/tmp/agent", 0o755)
    with open(root + "/tmp/secret", "w") as f:
        f.write(SECRET.hex() + "\n")
    os.chmod(root + "/tmp/secret", 0o600)
    os.chroot(root)
    os.chdir("/")
    os.execve("/tmp/agent", ["sandbox-agent", "--listen",
                             "127.0.0.1:%d" % port, "--secret-file",
                             "/tmp/secret"], {})


def start():
    state["folder"] = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
    os.chmod(state["folder"], 0o755)
    state["port"] = free_port()
    with open(AGENT, "rb") as f:        # who has other ids may not read it
        state["agent"] = f.read()
    log = os.open(state["folder"] + ".log", os.O_CREAT | os.O_WRONLY, 0o600)
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            libc.prctl(1, signal.SIGKILL, 0, 0, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            need(libc.unshare(NEWUSER | NEWPID | NEWNS | NEWIPC), "unshare")
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            os.close(go[1])
            child = os.fork()
            if child == 0:
                first_process(state["folder"], state["port"])
            status = os.waitpid(child, 0)[1]
            os.write(2, b"the agent ended with status %d\n" % status)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        os._exit(1)
    state["pid"] = pid
    os.close(log)
    os.close(ready[1])
    os.close(go[0])
    check(os.read(ready[0], 1) == b"x", "no namespaces: " + log_text())
    for name in ("uid_map", "gid_map"):
        with open("/proc/%d/%s" % (pid, name), "w") as f:
            f.write("0 1879048192 65536\n")
    os.write(go[1], b"x")
    state["client"] = wire.Client(("127.0.0.1", state["port"]), key=SECRET,
                                  timeout=150)

    def up():
        check(alive(pid), "the agent ended: " + log_text())
        try:
            state["client"].connect().close()
            return True
        except OSError:
            return False

    wait_for(up, 20, "the agent's port: " + log_text())


def log_text():
    with open(state["folder"] + ".log", errors="replace") as f:
        return f.read()[-2000:]


def stop():
    if "pid" in state:
        # the agent first: its uid changes, so no parent's death ends it
        pid = state["pid"]
        try:
            with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
                for child in f.read().split():
                    os.kill(int(child), signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass
        os.waitpid(pid, 0)
        for line in log_text().splitlines():
            print("# log: " + line)
        os.remove(state["folder"] + ".log")
        os.rmdir(state["folder"])


def run(text, **fields):
    return state["client"].command(text, **fields)


@test("agent/tcp-command")
def command():
    a = run("echo hi; echo err >&2; id -u; pwd; exit 3")
    same((a.stdout, a.stderr), (b"hi\n1000\n/home/sandbox\n", b"err\n"))
    same((a.result["EXIT_CODE"], a.outcome), (3, "exit"))
    a = run("cat", stdin=b"x" * 100000)
    same(a.stdout, b"x" * 100000)


@test("agent/tcp-order")
def order():
    c, out = state["client"], wire.Answer(True)
    first = c.send(wire.COMMAND, wire.fields(
        ("COMMAND", "sleep 0.5; echo 1 >> log"), ("WALL_MS", 90000),
        ("CPU_MS", 9000), ("OUTPUT", 4096), ("OUTPUT_TOTAL", 65536),
        ("OPEN_FILES", 64), ("PENDING", 5), ("DIGEST", bytes(32)),
        ("STREAM", 1)))
    c.answer(first, out, lambda a: a.started)
    a = run("echo 2 >> log; cat log")
    same(a.stdout, b"1\n2\n")
    same(c.answer(first, out).outcome, "exit")
    first.close()


@test("agent/tcp-secret")
def secret():
    for key in (bytes(32), SECRET[:-1] + b"\0", b"x" * 32,
                b"\1" + SECRET[1:]):
        try:
            a = run("touch /tmp/broken-in", key=key)
        except wire.Lost:
            continue
        same(a.code, "unauthorized_peer")
    same(run("ls /tmp/broken-in; true").stdout, b"")


@test("agent/tcp-foreign-bytes")
def foreign():
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 128, bytes(4096),
                 wire.Preamble(wire.COMMAND, key=SECRET,
                               head=100).encode() + b"x" * 100,
                 wire.Preamble(wire.STATUS, key=SECRET).encode(),
                 wire.Preamble(200, key=SECRET).encode()):
        s = state["client"].connect()
        try:
            s.sendall(data)
            s.shutdown(1)
            while s.recv(4096):
                pass
        except OSError as error:        # it was refused before all was sent
            check(error.errno in (errno.ECONNRESET, errno.EPIPE,
                                  errno.ENOTCONN), "no end", error)
        s.close()
    same(run("echo fine").stdout, b"fine\n")


@test("agent/tcp-limits")
def limits():
    a = run("sleep 100 & setsid sleep 101 & wait", wall_ms=700)
    same((a.outcome, a.result["EXIT_CODE"]), ("timeout", 124))
    same(run("pgrep -a sleep; true").stdout, b"")
    a = run("seq 1 100000", output=4096)
    same((a.result["TRUNCATED"], len(a.gaps)), (1, 1))
    check(len(a.stdout) <= 4096, "kept", len(a.stdout))
    same(len(a.stdout) + a.gaps[0][1], a.result["STDOUT_BYTES"])


@test("agent/tcp-live")
def live():
    """Events, STDIN, CANCEL and background commands over TCP."""
    c = state["client"]

    def ask(operation, *pairs, **options):
        return c.call(operation, wire.fields(*pairs), **options)

    head = (("DIGEST", bytes(32)), ("STREAM", 1), ("STDIN_OPEN", 1),
            ("DETACH", 1), ("WALL_MS", 200000))
    with c.send(wire.COMMAND, wire.fields(("COMMAND", "cat; sleep 50"),
                                          ("COMMAND_ID", "it"), *head)) as s:
        out = wire.Answer(True)
        c.answer(s, out, lambda a: a.started)
        same(run("echo beside").stdout, b"beside\n")
        same(ask(wire.STDIN, ("COMMAND_ID", "it"), body=b"abc",
                 ).result["BYTES"], 3)
        c.answer(s, out, lambda a: a.stdout == b"abc")
        data = os.urandom(1 << 20)
        same(ask(wire.STDIN, ("COMMAND_ID", "it"), ("STDIN_EOF", 1),
                 chunks=[data[n:n + 9999] for n in range(0, 1 << 20, 9999)]
                 ).result["BYTES"], 1 << 20)
        c.answer(s, out, lambda a: len(a.stdout) == 3 + (1 << 20))
        same(out.stdout[3:] == data, True, "the same bytes")
        same(ask(wire.CANCEL, ("COMMAND_ID", "it")).outcome, "cancelled")
        same(c.answer(s, out).outcome, "cancelled")
    same(run("pgrep -a sleep; true").stdout, b"")
    with c.send(wire.COMMAND, wire.fields(("COMMAND", "sleep 51"),
                                          ("COMMAND_ID", "frame"),
                                          *head)) as s:
        s.sendall(wire.frame(wire.CANCEL_FRAME))
        same(c.answer(s, wire.Answer(True)).outcome, "cancelled")


@test("agent/tcp-files")
def files():
    """Home is a mount of its own here, and the agent has no place."""
    c = state["client"]

    def ask(operation, path, body=b"", **fields):
        return c.call(operation, wire.fields(("PATH", path),
                                             *fields.items()), body)
    same(ask(wire.FILE_WRITE, "a/b", b"1").result["STATUS"], 201)
    same(ask(wire.FILE_WRITE, "a/b", b"22").result["STATUS"], 200)
    same(ask(wire.FILE_WRITE, "tmp/x", b"3", ROOT=1).result["STATUS"], 201)
    same(ask(wire.FILE_READ, "a/b").data, b"22")
    same(ask(wire.FILE_READ, "home/sandbox/a/b", ROOT=1).data, b"22")
    same(ask(wire.FILE_READ, "proc/self/environ", ROOT=1).code,
         "path_outside")
    same(run("cat a/b /tmp/x; ls -A a; stat -c '%u %a' a/b").stdout,
         b"223b\n1000 644\n")
    same(ask(wire.FILE_REMOVE, "a", RECURSIVE=1).result["FILE_TYPE"], 1)
    same(run("ls a /tmp/x 2>&1 | grep -c 'No such'").stdout, b"1\n")
    # staged: it is remembered as long as the agent lives
    stage = (b"\1\0\0\1" + bytes(16) + (3).to_bytes(8, "big") + b"f")
    head = [("COMMAND", "cat attachments/f; ls attachments"),
            ("STAGE", stage)]
    same(c.call(wire.COMMAND, wire.fields(*head)).code, "stage_needed")
    for fields, body in (([("STDIN_BYTES", 0), ("STAGE_BODY", 0)], b"new"),
                         ([], b"")):
        a = c.call(wire.COMMAND, wire.fields(*head, *fields), body)
        same(a.stdout, b"newf\n", repr(a))


@test("agent/tcp-search")
def search():
    """Ended without a cgroup as well; a base without ripgrep says so."""
    c = state["client"]

    def ask(**fields):
        return c.call(wire.FILE_SEARCH, wire.fields(
            ("PATH", "s"), ("PATTERN", "needle"), *fields.items()))

    run("mkdir s; echo a needle > s/f; cp s/f s/g")
    a = ask()
    same((a.error, a.result["MORE"], a.data.count(b"a needle")), (None, 0, 2))
    run("for i in 1 2 3 4 5 6 7 8; do truncate -s 1000M s/z$i; done; rm s/g")
    with c.send(wire.FILE_SEARCH, wire.fields(
            ("PATH", "s"), ("PATTERN", "needle"))) as sock:
        c.answer(sock, until=lambda a: a.pieces)
    wait_for(lambda: run("pgrep -c rg; true").stdout == b"0\n", 60,
             "the end of a search that nobody waits for")
    with open("/proc/%d/task/%d/children" % (state["pid"],
                                             state["pid"])) as f:
        agent = f.read().split()[0]
    inside = ["nsenter", "-t", agent, "-U", "-m", "-S", "0", "-G", "0"]
    root = state["folder"] + "/root"
    subprocess.run(inside + ["mount", "--bind", root + "/dev/null",
                             root + "/usr/bin/rg"], check=True)
    a = ask()
    subprocess.run(inside + ["umount", root + "/usr/bin/rg"], check=True)
    same((a.code, a.error["STATUS"]), ("not_available", 501))
    check(b"/usr/bin/rg" in a.error["DETAIL"], "DETAIL", a.error)
    run("rm s/z*")
    same(ask().error, None)


HIDE = os.path.dirname(os.path.abspath(__file__)) + "/../attack/hide"
WAYS = ("clone_parent.c", "leader_gone.c", "respawner.py")


def users():
    """Host pids of processes of the commands' user that have not ended."""
    with open("/proc/%d/task/%d/children" % (state["pid"],
                                             state["pid"])) as f:
        space = pid_namespace(int(f.read().split()[0]))
    out = set()
    for pid in in_namespace(space):
        try:
            tasks = os.listdir("/proc/%d/task" % pid)
            if os.stat("/proc/%d" % pid).st_uid != 1879048192 + 1000 \
                    and not user_of(pid) == 1879048192 + 1000:
                continue
            for task in tasks:
                with open("/proc/%d/task/%s/stat" % (pid, task)) as f:
                    if f.read().rpartition(")")[2].split()[0] not in "ZX":
                        out.add(pid)
        except OSError:
            pass
    return out


def program(pid):
    """Its name, None if it has gone."""
    try:
        with open("/proc/%d/comm" % pid) as f:
            return f.read().strip()
    except OSError:
        return None


def user_of(pid):
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith("Uid:"):
                return int(line.split()[2])


@test("agent/tcp-nobody-hides", seconds=300)
def hides():
    """Without a cgroup, and with another command that has to go on."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(HIDE, "hide")
    same(run("tar x && cd hide && for f in *.c; do gcc -w -o ${f%.c} $f "
             "-lpthread || exit 1; done", stdin=data.getvalue(),
             cpu_ms=60000, wall_ms=200000).result["EXIT_CODE"], 0)
    run("exec sleep 290", detach=1, command_id="goes-on", digest=bytes(32),
        wall_ms=290000)

    def goes_on():
        """It alone, and with the program that it stays."""
        pids = users()
        return pids if len(pids) == 1 and program(*pids) == "sleep" else None

    others = wait_for(goes_on, 60, "the command that goes on")
    start = {"sh": "bash hide/%s.sh", "py": "python3 hide/%s.py",
             "c": "hide/%s"}
    for way in os.environ.get("WAYS", " ".join(WAYS)).split():
        name, kind = way.split(".")
        # a machine that is busy may need longer for the hiding
        for wall in (2500, 10000, 60000):
            a = run("rm -f ready; " + start[kind] % name
                    + "; sleep 9999 & wait",
                    env=("HIDE_READY=/home/sandbox/ready",), wall_ms=wall)
            check(a.outcome in ("timeout", "output_limit", "cpu_limit"), way,
                  a.outcome)
            wait_for(lambda: users() == others, 60, "the end of all of " + way)
            hidden = run("test -e ready; echo $?").stdout
            if hidden == b"0\n":
                break
        same(hidden, b"0\n", way)
    with state["client"].send(wire.CANCEL, wire.fields(
            ("COMMAND_ID", "goes-on"))) as sock:
        same(state["client"].answer(sock).outcome, "cancelled")
    wait_for(lambda: users() == set(), 30, "its end")


@test("agent/tcp-cpu-of-the-tree")
def cpu():
    """Of processes whose parents are gone, and of those that are buried."""
    burn = "python3 -c 'while True: pass'"
    some = ("python3 -c 'import time\nwhile time.process_time() < 0.4: pass\n'"
            "; touch burnt$i")
    a = run("for i in 1 2; do export i; (setsid bash -c \"%s\" &); done; "
            "until [ -e burnt1 -a -e burnt2 ]; do sleep 0.1; done" % some)
    check(a.result["CPU_US"] > 700000, "CPU_US", a.result)
    a = run("while true; do python3 -c 'for i in range(10**6): pass'; done",
            cpu_ms=1000, wall_ms=60000)
    same(a.outcome, "cpu_limit")
    a = run("(setsid %s &); sleep 50" % burn, cpu_ms=1000, wall_ms=60000)
    same(a.outcome, "cpu_limit")


@test("agent/tcp-history")
def history():
    """Without a file of the runner's it is kept in memory."""
    c = state["client"]
    for i in range(40):
        run("echo %d" % i, command_id="h%d" % i, digest=bytes(32))
    a = c.call(wire.HISTORY, wire.fields(("LIMIT", 1000)))
    names, at = [], 0
    while at < len(a.data):
        end = at + 4 + int.from_bytes(a.data[at:at + 4], "big")
        record = wire.unique(wire.read_fields(a.data[at + 4:end]))
        names.append((record["COMMAND_ID"], record.get("OUTPUT_EXPIRED", 0)))
        at = end
    same(names[:40], [(b"h%d" % i, int(i < 8)) for i in range(39, -1, -1)])
    same(a.result["NEXT"], 0)
    a = run("echo 39", command_id="h39", digest=bytes(32))
    same((a.stdout, a.code), (b"39\n", None), "the answer is known")


@test("agent/tcp-late-writer")
def late_writer():
    """Who has left the session is not killed by a pipe that was closed."""
    run("setsid bash -c 'sleep 1; echo late; echo more; echo on > late' & "
        "echo now")
    wait_for(lambda: run("cat late 2>/dev/null; true").stdout == b"on\n", 20,
             "the late writer")


@test("agent/tcp-sweep-stays-inside")
def sweep():
    """A command kills all it can, the agent sweeps: the host is not hit."""
    victim = os.fork()
    if victim == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(600)
        signal.pause()
        os._exit(0)
    try:
        run("(setsid sleep 55 &) ; kill -9 -1", wall_ms=3000)
        run("sleep 100", wall_ms=300)
        check(alive(victim), "a process of the host was ended")
        same(run("echo alive").stdout, b"alive\n")
    finally:
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)


main(start, stop)
