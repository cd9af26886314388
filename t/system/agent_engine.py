#!/usr/bin/env python3
"""The agent as an engine starts it: root without a user namespace and without
a cgroup, its three volumes on the host's own disk.

Real containers by crun, with an engine's capabilities and filter of calls.
They are killed at any time, and another one takes over the volumes.
"""

import ctypes
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from engine_crun import CAPABILITIES, mounts, overlay, seccomp   # noqa: E402
from gateway import AGENT, CACHE, free_port, wait_for            # noqa: E402
from tap import check, main, same, test                      # noqa: E402

NEWNS, DETACH, PRIVATE = 0x20000, 2, 0x44000
SECRET, SESSION = bytes(range(32)), bytes(range(32, 64))
PROGRAM = "/usr/libexec/sandbox/sandbox-agent"

libc = ctypes.CDLL(None, use_errno=True)
base = os.path.realpath(CACHE + "/base/current/rootfs")
state = {"boxes": [], "number": 0}


class Volumes:
    """Those of one session; each new as an engine makes it."""

    def __init__(self):
        state["number"] += 1
        self.folder = "%s/v%d" % (state["folder"], state["number"])
        for name, owner in (("home", 1000), ("skills", 0), ("meta", 0)):
            os.makedirs(self.folder + "/" + name)
            os.chown(self.folder + "/" + name, owner, owner)

    def path(self, name):
        return self.folder + "/" + name


def mix(h, value):
    h = (h ^ value) * 0xff51afd7ed558ccd % (1 << 64)
    return h ^ (h >> 32)


PHASES = ["none", "emptying", "seeding", "ready", "deleting"]


class State:
    """What an agent has written about its sandbox."""

    def __init__(self, volumes):
        self.path = volumes.path("meta") + "/state"
        with open(self.path, "rb") as f:
            self.data = bytearray(f.read())
        self.phase = PHASES[int.from_bytes(self.data[8:16], "big")]

    def write(self, phase):
        """As if its agent had died in that phase."""
        self.data[8:16] = PHASES.index(phase).to_bytes(8, "big")
        h = mix(int.from_bytes(self.data[:8], "big"), len(self.data) - 8)
        for at in range(0, len(self.data) - 8, 8):
            h = mix(h, int.from_bytes(self.data[at:at + 8], "little"))
        self.data[-8:] = h.to_bytes(8, "big")
        with open(self.path, "wb") as f:
            f.write(self.data)


class Box:
    """A container with an agent.  epoch and so on: what it is told."""

    def __init__(self, volumes, epoch=1000, session=SESSION, wait=True,
                 network="none", port=None, secret=SECRET):
        state["number"] += 1
        self.name = "sandbox-t-%d-%d" % (os.getpid(), state["number"])
        self.folder = "%s/b%d" % (state["folder"], state["number"])
        self.volumes = volumes
        self.port = port or free_port()
        self.client = wire.Client(("127.0.0.1", self.port), key=secret,
                                  timeout=60)
        self.session = session
        self.code = self.pid = None
        for name in ("upper", "work", "root"):
            os.makedirs(self.folder + "/" + name)
        os.chmod(self.folder + "/upper", 0o755)
        overlay(self.folder + "/root", [base, state["agent"]],
                self.folder + "/upper", self.folder + "/work")
        state["boxes"].append(self)
        self.configure(["SANDBOX_ENGINE_SECRET=" + secret.hex(),
                        "SANDBOX_ENGINE_SESSION=" + session.hex(),
                        "SANDBOX_ENGINE_EPOCH=%d" % epoch,
                        "SANDBOX_ENGINE_NETWORK=" + network,
                        "OTEL_TRACES=x", "PATH=/usr/bin:/bin"])
        with open(self.folder + "/log", "wb") as log:
            self.process = subprocess.Popen(
                ["crun", "--root", state["folder"] + "/crun",
                 "--cgroup-manager=disabled", "run", "--bundle", self.folder,
                 "--pid-file", self.folder + "/pid", self.name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            self.up()

    def configure(self, env):
        bind = [{"destination": path, "type": "bind",
                 "source": self.volumes.path(name), "options": ["rbind"]}
                for path, name in (("/home/sandbox", "home"),
                                   ("/skills", "skills"),
                                   ("/var/lib/sandbox", "meta"))]
        with open(self.folder + "/config.json", "w") as f:
            json.dump({
                "ociVersion": "1.0.2",
                "process": {
                    "user": {"uid": 0, "gid": 0}, "cwd": "/", "env": env,
                    "args": [PROGRAM, "--engine", "127.0.0.1:%d" % self.port],
                    "noNewPrivileges": False,
                    "capabilities": {kind: CAPABILITIES for kind in (
                        "bounding", "effective", "permitted")},
                    "oomScoreAdj": 0},
                "root": {"path": self.folder + "/root", "readonly": False},
                "hostname": "dagger", "mounts": mounts() + bind,
                "linux": {"seccomp": seccomp(), "namespaces": [
                    {"type": t} for t in ("pid", "ipc", "uts", "mount")]},
            }, f)

    def up(self):
        def listens():
            check(self.process.poll() is None, "it ended", self.log())
            try:
                self.client.connect().close()
                return True
            except OSError:
                return False

        wait_for(listens, 60, "the agent's port")

        wait_for(self.number, 60, "its number")

    def number(self):
        """crun writes it when the program runs already."""
        try:
            with open(self.folder + "/pid") as f:
                self.pid = int(f.read() or 0)
        except FileNotFoundError:
            pass
        return self.pid

    def log(self):
        with open(self.folder + "/log", errors="replace") as f:
            return f.read()[-3000:]

    def kill(self):
        """As a container that its engine ends, or that crashes."""
        if self.code is None:
            wait_for(lambda: self.process.poll() is not None or self.number(),
                     60, "its number")
            try:
                if self.process.poll() is None:
                    os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.gone()
        return self

    def gone(self, seconds=60):
        """Waits for its end, and for that of all of it."""
        if self.code is None:
            self.code = self.process.wait(seconds)
            libc.umount2((self.folder + "/root").encode(), DETACH)
            state["boxes"].remove(self)
        return self.code

    def run(self, text, **fields):
        return self.client.command(text, session=self.session, **fields)

    def out(self, text, **fields):
        a = self.run(text, **fields)
        check(a.result is not None, "a result", repr(a), self.log())
        return a.stdout

    def ask(self, operation, *pairs, body=b"", **options):
        return self.client.call(operation, wire.fields(*pairs), body,
                                session=self.session, **options)

    def word(self):
        return wire.STATES[self.ask(wire.STATUS).result["STATE"]]


def start():
    if libc.unshare(NEWNS) or libc.mount(None, b"/", None, PRIVATE, None):
        raise OSError(ctypes.get_errno(), "a mount namespace")
    # crun refuses hosts that have both kinds of cgroups, and needs none
    libc.umount2(b"/sys/fs/cgroup/unified", DETACH)
    state["folder"] = tempfile.mkdtemp(prefix="sandbox-t.", dir="/var/tmp")
    os.chmod(state["folder"], 0o755)
    state["agent"] = state["folder"] + "/layer"
    os.makedirs(os.path.dirname(state["agent"] + PROGRAM))
    shutil.copy(AGENT, state["agent"] + PROGRAM)
    os.chmod(state["agent"] + PROGRAM, 0o755)


def stop():
    for box in list(state["boxes"]):
        for line in box.log().splitlines():
            print("# log: " + line)
        box.kill()
    shutil.rmtree(state["folder"])


def names(folder):
    return sorted(os.listdir(folder))


def digest(n=0):
    return bytes(31) + bytes([n])


def history(box, **options):
    a = box.ask(wire.HISTORY, ("LIMIT", 1000), **options)
    check(a.error is None, "no history", a)
    out, at = [], 0
    while at < len(a.data):
        end = at + 4 + int.from_bytes(a.data[at:at + 4], "big")
        r = wire.unique(wire.read_fields(a.data[at + 4:end]))
        out.append((r["COMMAND_ID"].decode(),
                    wire.OUTCOMES[r["OUTCOME"]] if "OUTCOME" in r else None))
        at = end
    return out[::-1]


def kept(box, name):
    """Waits until the receipt of that command is in the file."""
    def there():
        with open(box.volumes.path("meta") + "/history", "rb") as f:
            for log in (0, 8 << 20):
                f.seek(log)
                data, at = f.read(1 << 20), 128
                while at + 16 <= len(data):
                    size = int.from_bytes(data[at:at + 4], "big")
                    if size == 0 or at + 16 + size > len(data):
                        break
                    if data[at + 7] == 2 and wire.field("COMMAND_ID", name) \
                            in data[at + 16:at + 16 + size]:
                        return True
                    at += 16 + (size + 7) // 8 * 8
        return False

    wait_for(there, 60, "the receipt of " + name)


def background(box, text, name):
    a = box.run(text, detach=1, command_id=name, digest=digest())
    same(a.code, None, box.log())


def open_command(box, text, **fields):
    """A command whose answer is not waited for, once it runs."""
    head = {"COMMAND": text, "WALL_MS": 100000, "CPU_MS": 9000,
            "OUTPUT": 4096, "OUTPUT_TOTAL": 65536, "OPEN_FILES": 64,
            "PENDING": 9, "DIGEST": digest(), "STREAM": 1}
    flags, base = fields.pop("flags", 0), fields.pop("base", 0)
    queued = fields.pop("queued", False)
    head.update(fields)
    s = box.client.send(wire.COMMAND, wire.fields(*head.items()),
                        session=box.session, flags=flags, base=base)
    answer = wire.Answer(True)
    if not queued:
        box.client.answer(s, answer, lambda a: a.started)
    return lambda: box.client.answer(s, answer)


def lost(wait):
    """What an agent that ends says of a command, if there is time for it."""
    try:
        a = wait()
    except wire.Lost:
        return "runner_lost"
    return a.code or a.outcome


def status(pid):
    """Its state, and its parent."""
    with open("/proc/%d/stat" % pid) as f:
        word, parent = f.read().rpartition(")")[2].split()[:2]
    return word, int(parent)


def parent_of_users(pid):
    """The parent of a process of the user's; None: it is none, or has ended,
    as those that measure do."""
    try:
        if os.stat("/proc/%d" % pid).st_uid == 1000:
            return status(pid)[1]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


def hold(pid):
    """It does nothing from now on, until it gets a CONT."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: status(pid)[0] == "T", 60, "a process that is stopped")


def queued(box, n):
    wait_for(lambda: box.ask(wire.STATUS).result["QUEUED"] == n, 60,
             "%d that wait" % n)


def user_processes(box):
    """Of the container, by their host's number."""
    space = os.readlink("/proc/%d/ns/pid" % box.pid)
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink("/proc/%s/ns/pid" % pid) == space \
                    and int(pid) != box.pid:
                out.append(int(pid))
        except OSError:
            pass
    return out


@test("agent/engine-command")
def command():
    box = Box(Volumes())
    same(box.word(), "none")
    a = box.run("echo hi; id -u; pwd; test -x .venv/bin/python && echo venv; "
                "stat -c %u . .venv /skills")
    same((a.stdout, a.result["CREATED"]),
         (b"hi\n1000\n/home/sandbox\nvenv\n1000\n1000\n0\n", 1))
    same(box.run("true").result["CREATED"], 0)
    same(box.word(), "running")
    # what the engine told it is nobody's business
    same(box.out("env | grep -cE 'SANDBOX_|OTEL'"), b"0\n")
    with open("/proc/%d/environ" % box.pid, "rb") as f:
        text = f.read()
    for word in (SECRET.hex(), SESSION.hex(), "SANDBOX_ENGINE"):
        check(word.encode() not in text, "in /proc/1/environ", word)
    box.kill()


@test("agent/engine-who-may")
def who_may():
    box = Box(Volumes())
    for key, session in ((bytes(32), SESSION), (SECRET, bytes(32)),
                         (SECRET[:-1] + b"x", SESSION)):
        for operation in (wire.STATUS, wire.COMMAND, wire.DELETE, wire.PING):
            same(box.client.call(operation, wire.fields(("COMMAND", "true")),
                                 key=key, session=session).code,
                 "unauthorized_peer")
    same(box.ask(wire.PING).result, {"READY": 1})
    for operation in (wire.SESSIONS, wire.DRAIN, wire.EGRESS):
        same(box.ask(operation).code, "not_on_this_backend")
    for operation in (9, 15, 200):
        same(box.ask(operation).code, "bad_request", operation)
    same(box.ask(wire.STATUS, body=b"x").code, "bad_request")
    for operation in (wire.STATUS, wire.RESET, wire.DELETE):
        same(box.client.call(operation, b"\0\1\0\0\0\7x", session=SESSION
                             ).code, "bad_request")
    same(box.ask(wire.RESET, flags=wire.FRESH).code, "bad_request")
    for operation in (wire.COMMAND, wire.FILE_READ, wire.HISTORY, wire.RESET):
        same(box.ask(operation, ("COMMAND", "true"), ("PATH", "x"),
                     flags=wire.NO_CREATE).code, "no_sandbox", operation)
        same(box.ask(operation, ("COMMAND", "true"), ("PATH", "x"),
                     instance=7).code, "gone", operation)
    same(box.word(), "none")
    same(names(box.volumes.path("home")), [])
    # a file makes it, too, and waits for its home
    same(box.ask(wire.FILE_WRITE, ("PATH", "a/b"), body=b"1",
                 ).result["STATUS"], 201)
    status = box.ask(wire.STATUS).result
    same((status["COMMANDS"], status["SANDBOX_ID"][:4]), (0, b"sbx_"))
    a = box.run("cat a/b; ls -d .venv", flags=wire.NO_CREATE,
                instance=status["INSTANCE"])
    same((a.stdout, a.result["CREATED"]), (b"1.venv\n", 1))
    for operation in (wire.COMMAND, wire.STATUS, wire.RESET, wire.DELETE):
        same(box.ask(operation, ("COMMAND", "true"),
                     instance=status["INSTANCE"] - 1).code, "gone", operation)
    box.kill()


@test("agent/engine-restart")
def restart():
    """All but processes is there after its agent was killed."""
    volumes = Volumes()
    box = Box(volumes)
    first = box.run("echo one > f; echo one", command_id="a", digest=digest())
    same(first.result["CREATED"], 1)
    kept(box, "a")
    ran = open_command(box, "echo begun; sleep 600", COMMAND_ID="runs")
    box.kill()
    same(lost(ran), "runner_lost")
    box = Box(volumes)
    same(box.ask(wire.STATUS).result["INSTANCE"], first.result["INSTANCE"])
    a = box.run("cat f", flags=wire.NO_CREATE)
    same((a.stdout, a.result["CREATED"], a.result["SANDBOX_ID"]),
         (b"one\n", 0, first.result["SANDBOX_ID"]))
    same(box.run("echo one > f; echo one", command_id="a", digest=digest(),
                 ).stdout, b"one\n", "not run again")
    same(history(box)[:2], [("a", "exit"), ("runs", "runner_lost")])
    # one that was told of by a result, and one whose result nobody had
    other = Volumes()
    box.kill()
    box = Box(other)
    wait = open_command(box, "sleep 600")
    box.kill()
    same(lost(wait), "runner_lost")
    box = Box(other)
    same(box.run("true").result["CREATED"], 1)
    box.kill()
    box = Box(other)
    same(box.run("true").result["CREATED"], 0)
    box.kill()


@test("agent/engine-idle")
def idle():
    volumes = Volumes()
    box = Box(volumes)
    same(box.out("echo kept > f; echo done", base=600), b"done\n")
    wait = open_command(box, "sleep 2.2", base=1)
    same(wait().outcome, "exit")
    same(box.gone(), 0, box.log())
    box = Box(volumes)
    same(box.out("cat f", base=600), b"kept\n")
    # one that says nothing keeps nobody awake
    silent = box.client.connect()
    same(box.ask(wire.STATUS, base=1).result["COMMANDS"], 3)
    same(box.gone(), 0, box.log())
    silent.close()
    # where there is no sandbox nobody has to be kept for it
    box = Box(Volumes())
    box.ask(wire.STATUS, base=600)
    same(box.gone(), 0, box.log())


@test("agent/engine-fresh")
def fresh():
    """In its turn; what waits behind it runs in the fresh sandbox."""
    box = Box(Volumes())
    first = box.run("echo old > f; echo old > /tmp/f; echo old > /dev/shm/f; "
                    "mkdir -p d/e; chmod 0 d; echo $$ > /var/tmp/f; rm -r "
                    ".venv", command_id="old", digest=digest())
    background(box, "sleep 600", "beside")
    box.run("(setsid nohup bash -c 'trap \"\" TERM; while true; do sleep "
            "1; done' >/dev/null 2>&1 &)")
    before = open_command(box, "until [ -e go ]; do sleep 0.05; done; cat f; "
                          "echo more > g")
    wait = [open_command(box, "cat f g /tmp/f /dev/shm/f /var/tmp/f d 2>&1 | "
                         "grep -c 'No such'; ls -d .venv; pgrep -c sleep; "
                         "echo new > f", COMMAND_ID="fresh",
                         flags=wire.FRESH, queued=True)]
    queued(box, 1)
    wait.append(open_command(box, "cat f", queued=True,
                             COMMAND_ID="behind", DIGEST=digest(1)))
    queued(box, 2)
    same(box.ask(wire.FILE_WRITE, ("PATH", "go")).result["STATUS"], 201)
    same(before().stdout, b"old\n")
    a, b = [w() for w in wait]
    same((a.stdout, a.result["CREATED"]), (b"6\n.venv\n0\n", 1), a)
    same((b.stdout, b.result["CREATED"]), (b"new\n", 0))
    check(a.result["INSTANCE"] > first.result["INSTANCE"]
          and a.result["SANDBOX_ID"] != first.result["SANDBOX_ID"], "another")
    same(b.result["INSTANCE"], a.result["INSTANCE"])
    wait_for(lambda: not user_processes(box), 60, "the end of all of them")
    same([h for h in history(box) if not h[0].startswith("cmd_")],
         [("old", "exit"), ("beside", "sandbox_deleted"), ("fresh", "exit"),
          ("behind", "exit")])
    # the same once more attaches, and wipes nothing
    same(box.run("cat f g /tmp/f", command_id="fresh", digest=digest(),
                 flags=wire.FRESH).result["INSTANCE"], a.result["INSTANCE"])
    same(box.out("cat f", instance=a.result["INSTANCE"]), b"new\n")
    # the first of all need not be made twice
    box.kill()
    box = Box(Volumes())
    a = box.run("true", flags=wire.FRESH)
    same((a.result["CREATED"], a.result["INSTANCE"]),
         (1, box.ask(wire.STATUS).result["INSTANCE"]))
    box.kill()


@test("agent/engine-reset")
def reset():
    box = Box(Volumes())
    same(box.ask(wire.RESET).result["STATE"], wire.STATES.index("running"))
    first = box.run("echo old > f; mkdir many; cd many; touch $(seq 3000)",
                    command_id="old", digest=digest())
    same(first.result["CREATED"], 1)
    # what lives without a process and without a file
    held = ("import ctypes as c; l = c.CDLL(None); print(*(x != -1 for x in ("
            "l.shmget(77, %d, %d), l.msgget(77, %d), l.semget(77, 1, %d))))")
    same(box.out("touch /dev/mqueue/q && python3 -c '%s'"
                 % (held % (4096, *[0o1600] * 3))), b"True True True\n")
    held = "python3 -c '%s'; ls /dev/mqueue" % (held % (0, 0, 0, 0))
    same(box.out(held), b"True True True\nq\n")
    background(box, "sleep 600", "beside")
    wait = [open_command(box, "sleep 600", COMMAND_ID="runs"),
            open_command(box, "sleep 600", COMMAND_ID="waits", queued=True)]
    queued(box, 1)
    a = box.ask(wire.RESET)
    same([w().outcome for w in wait], ["sandbox_deleted"] * 2)
    check(a.result["INSTANCE"] > first.result["INSTANCE"], "another", a)
    wait_for(lambda: not user_processes(box), 60, "the end of all of them")
    b = box.run("ls -d f many 2>&1 | grep -c 'No such'; ls -d .venv",
                instance=a.result["INSTANCE"])
    same((b.stdout, b.result["CREATED"], b.result["SANDBOX_ID"]),
         (b"2\n.venv\n", 1, a.result["SANDBOX_ID"]))
    same(box.out(held), b"False False False\n")
    same([h for h in history(box) if not h[0].startswith("cmd_")][:3],
         [("old", "exit"), ("beside", "sandbox_deleted"),
          ("runs", "sandbox_deleted")])
    same(box.run("", command_id="old", digest=digest()).result["EXIT_CODE"],
         0)
    box.kill()


@test("agent/engine-delete")
def delete():
    volumes = Volumes()
    box = Box(volumes)
    a = box.run("echo secret > f; mkdir d; touch d/$(seq 50)",
                command_id="a", digest=digest())
    ran = open_command(box, "sleep 600")
    same(wire.STATES[box.ask(wire.DELETE).result["STATE"]], "running")
    same(ran().outcome, "sandbox_deleted")
    same(box.gone(), 0, box.log())
    same([names(volumes.path(n)) for n in ("home", "skills")], [[], []])
    same(names(volumes.path("meta")), ["lock", "owner", "owner.lock"])
    box = Box(volumes)
    same(box.word(), "none")
    same(box.ask(wire.HISTORY, flags=wire.NO_CREATE).code, "no_sandbox")
    same(box.run("true", command_id="a", digest=digest(2)).outcome, "exit")
    check(box.ask(wire.STATUS).result["INSTANCE"] > a.result["INSTANCE"],
          "another instance")
    box.kill()
    # there is nothing
    box = Box(Volumes())
    same(wire.STATES[box.ask(wire.DELETE).result["STATE"]], "none")
    same(box.gone(), 0, box.log())


@test("agent/engine-crash")
def crash():
    """Each phase that an agent may have died in is brought to its end."""
    volumes = Volumes()
    box = Box(volumes)
    a = box.run("echo mine > f; echo changed > pyproject.toml; rm uv.lock; "
                "rm -r .cache; mkdir .cache", command_id="a", digest=digest())
    kept(box, "a")
    box.kill()
    state = State(volumes)
    same(state.phase, "ready")
    # half of a home: what is there stays, what is not comes
    state.write("seeding")
    shutil.rmtree(volumes.path("home") + "/.config")
    os.makedirs(volumes.path("home") + "/.config/matplotlib", 0o700)
    box = Box(volumes)
    b = box.run("cat f pyproject.toml; wc -c < uv.lock; stat -c %u uv.lock "
                ".config/matplotlib; ls .cache")
    lines = b.stdout.decode().split()
    same(lines[:2] + lines[3:5], ["mine", "changed", "1000", "1000"])
    check(int(lines[2]) > 1000, "uv.lock", lines)
    same(b.result["INSTANCE"], a.result["INSTANCE"])
    same(history(box)[0], ("a", "exit"))
    box.kill()
    State(volumes).write("emptying")
    box = Box(volumes)
    same(box.out("ls f 2>&1 | grep -c 'No such'; cmp pyproject.toml "
                 "/usr/share/sandbox/home/pyproject.toml && echo same"),
         b"1\nsame\n")
    same(State(volumes).phase, "ready")
    box.out("touch f")
    box.kill()
    State(volumes).write("deleting")
    box = Box(volumes)
    same(box.word(), "none")
    same([names(volumes.path(n)) for n in ("home", "skills")], [[], []])
    same(box.run("true").result["CREATED"], 1)
    same([h[1] for h in history(box)], ["exit"])
    box.kill()


@test("agent/engine-volumes-lost")
def volumes_lost():
    """An engine may drop any of them, to make room."""
    volumes = Volumes()
    box = Box(volumes)
    a = box.run("echo mine > f", command_id="a", digest=digest())
    box.kill()
    shutil.rmtree(volumes.path("meta"))
    os.mkdir(volumes.path("meta"))
    box = Box(volumes)
    same(box.word(), "none")
    b = box.run("cat f", command_id="a", digest=digest(1))
    same((b.stdout, b.result["CREATED"]), (b"mine\n", 1))
    check(b.result["INSTANCE"] > a.result["INSTANCE"], "instance")
    kept(box, "a")
    box.kill()
    # the home alone: another one, which is filled
    shutil.move(volumes.path("home"), volumes.path("old"))
    os.mkdir(volumes.path("home"))
    box = Box(volumes)
    c = box.run("ls f 2>&1 | grep -c 'No such'; ls -d .venv")
    same((c.stdout, c.result["CREATED"]), (b"1\n.venv\n", 1))
    check(c.result["INSTANCE"] > b.result["INSTANCE"], "instance")
    same(history(box)[0], ("a", "exit"))
    # one that was only moved is the same
    box.kill()
    shutil.rmtree(volumes.path("old"))
    shutil.move(volumes.path("home"), volumes.path("old"))
    shutil.copytree(volumes.path("old"), volumes.path("home"), symlinks=True)
    box = Box(volumes)
    d = box.run("ls -d .venv")
    same((d.result["INSTANCE"], d.result["CREATED"]),
         (c.result["INSTANCE"], 0))
    # what is not whole is not believed
    box.kill()
    with open(volumes.path("meta") + "/state", "r+b") as f:
        f.seek(20)
        f.write(b"xxxx")
    with open(volumes.path("meta") + "/owner", "wb") as f:
        f.write(b"x")
    box = Box(volumes)
    same(box.word(), "none")
    same(box.run("true").result["CREATED"], 1)
    box.kill()


@test("agent/engine-mixed-up")
def mixed_up():
    """Whoever confuses volumes does not hand them over."""
    mine, other = Volumes(), Volumes()
    box = Box(mine)
    box.run("echo secret > f")
    foreign = Box(mine, session=bytes(32), wait=False)
    same(foreign.gone(), 1, foreign.log())
    same(box.out("cat f"), b"secret\n")
    box.kill()
    box = Box(other)
    box.run("true")
    box.kill()
    os.rename(other.path("home"), other.path("was"))
    os.rename(mine.path("home"), other.path("home"))
    box = Box(other, wait=False)
    same(box.gone(), 1, box.log())
    check("f" in names(other.path("home")), "the file stays")
    os.rename(other.path("home"), mine.path("home"))
    box = Box(mine)
    same(box.out("cat f"), b"secret\n")
    box.kill()


@test("agent/engine-fence")
def fence():
    volumes = Volumes()
    old = Box(volumes, epoch=5000)
    old.run("echo mine > f")
    wait = open_command(old, "sleep 600", COMMAND_ID="runs")
    new = Box(volumes, epoch=5001)      # it waits for the lock
    same(lost(wait), "runner_lost")
    same(old.gone(), 0, old.log())
    same(new.out("cat f"), b"mine\n")
    same(history(new)[1], ("runs", "runner_lost"))
    older = Box(volumes, epoch=5000, wait=False)
    same(older.gone(), 3, older.log())
    same(new.out("echo here"), b"here\n")
    # the same epoch: the engine has started it once more
    again = Box(volumes, epoch=5001)
    same(new.gone(), 0)
    same(again.out("cat f"), b"mine\n")
    # one that does not notice: stopped, then there is another marker
    marker = volumes.path("meta") + "/owner"
    mine = os.stat(marker).st_ino
    hold(again.pid)
    s = again.client.send(wire.COMMAND, wire.fields(("COMMAND", "rm f")),
                          session=SESSION)
    last = Box(volumes, epoch=5001, wait=False)
    wait_for(lambda: os.stat(marker).st_ino != mine, 60, "its marker")
    os.kill(again.pid, signal.SIGCONT)
    try:
        same(again.client.answer(s).code, "fenced")
    except wire.Lost:
        pass
    same(again.gone(), 0)
    last.up()
    same(last.out("cat f"), b"mine\n")
    last.kill()


def all_at_once(box, *requests):
    """The agent finds all of these when it wakes; the answers, or "lost"."""
    hold(box.pid)
    socks = [box.client.send(operation, wire.fields(*fields), body,
                             session=SESSION, flags=flags)
             for operation, fields, body, flags in requests]
    os.kill(box.pid, signal.SIGCONT)
    out = []
    for s in socks:
        try:
            out.append(box.client.answer(s))
        except wire.Lost:
            out.append("lost")
        s.close()
    return out


@test("agent/engine-beside")
def beside():
    """What comes while a sandbox is being replaced, or removed."""
    volumes = Volumes()
    box = Box(volumes)
    write = (wire.FILE_WRITE, [("PATH", "w")], b"new", 0)
    read = (wire.FILE_READ, [("PATH", "f")], b"", 0)
    run = (wire.COMMAND, [("COMMAND", "ls -d f .venv 2>/dev/null")], b"", 0)
    reset, remove = (wire.RESET, [], b"", 0), (wire.DELETE, [], b"", 0)
    status = (wire.STATUS, [], b"", 0)
    a, b = all_at_once(box, run, write)
    same((a.stdout, b.result["STATUS"]), (b".venv\n", 201))
    for kind in (reset, (wire.COMMAND, [("COMMAND", "ls -d f; true")], b"",
                         wire.FRESH)):
        before = box.run("touch f; rm -r .venv").result["INSTANCE"]
        a, s, b, c, d, e = all_at_once(box, kind, status, read, reset, write,
                                       run)
        check(a.result.get("OUTCOME", 8) == 8, "not sandbox_deleted", a)
        same(wire.STATES[s.result["STATE"]], "creating")
        same((b.code, c.code, d.result["STATUS"], e.code),
             ("file_not_found", None, 201, None))
        check(c.result["INSTANCE"] > before, "RESET", c)
        check(b".venv\n" in e.stdout and b"f\n" not in e.stdout, "files", e)
        same(box.ask(wire.STATUS).result["INSTANCE"], c.result["INSTANCE"])
    box.run("touch f")
    answers = all_at_once(box, remove, read, run, reset, remove, status,
                          (wire.PING, [], b"", 0))
    same([a if a == "lost" else a.code for a in answers],
         [None, "fenced", "fenced", "fenced", None, None, None])
    same([wire.STATES[answers[n].result["STATE"]] for n in (0, 4, 5)],
         ["running", "none", "none"])
    same(box.gone(), 0, box.log())
    # what has begun to become another one is removed as well
    box = Box(volumes)
    box.run("touch f")
    a, b, c = all_at_once(box, reset, remove, run)
    same((a.code, wire.STATES[b.result["STATE"]], c.code),
         ("fenced", "creating", "fenced"))
    same(box.gone(), 0, box.log())
    same(names(volumes.path("home")), [])


@test("agent/engine-signal")
def signalled():
    """An engine ends its services by TERM."""
    volumes = Volumes()
    box = Box(volumes)
    a = box.run("echo mine > f", command_id="a", digest=digest())
    wait = open_command(box, "sleep 600", COMMAND_ID="runs")
    behind = open_command(box, "true", COMMAND_ID="waits", queued=True)
    queued(box, 1)
    os.kill(box.pid, signal.SIGTERM)
    same((lost(wait), behind().code), ("runner_lost", "fenced"))
    same(box.gone(), 0, box.log())
    box = Box(volumes)
    b = box.run("cat f")
    same((b.stdout, b.result["INSTANCE"], b.result["CREATED"]),
         (b"mine\n", a.result["INSTANCE"], 0))
    same(history(box)[:2], [("a", "exit"), ("runs", "runner_lost")])
    same(box.ask(wire.STATUS).result["COMMANDS"], 3)
    box.kill()


@test("agent/engine-signal-unseen")
def signalled_unseen():
    """What was killed and can't be seen to be dead is answered all the same."""
    volumes = Volumes()
    box = Box(volumes)
    box.run("true")
    background(box, ": > b; sleep 600", "beside")
    wait = open_command(box, ": > f; sleep 600", COMMAND_ID="runs")
    wait_for(lambda: {"b", "f"} <= set(names(volumes.path("home"))), 60,
             "both of them")
    # who would tell of their ends is held up
    parents = {parent_of_users(pid) for pid in user_processes(box)}
    keepers = [pid for pid in parents - {None, box.pid}
               if status(pid)[1] == box.pid]
    same(len(keepers), 2)
    for pid in keepers:
        hold(pid)
    os.kill(box.pid, signal.SIGTERM)
    a = wait()
    same((a.code, a.outcome), (None, "runner_lost"), box.log())
    same(box.gone(), 0, box.log())
    box = Box(volumes)
    same(history(box)[1:], [("beside", "runner_lost"),
                            ("runs", "runner_lost")])
    same(box.ask(wire.STATUS).result["COMMANDS"], 3)
    box.kill()


@test("agent/engine-no-room")
def no_room():
    """A home that can't be filled is said, and tried again."""
    volumes = Volumes()
    home = volumes.path("home")
    if libc.mount(b"none", home.encode(), b"tmpfs", 0, b"size=64k,mode=755"):
        raise OSError(ctypes.get_errno(), "tmpfs")
    try:
        box = Box(volumes)
        for _ in range(2):
            same(box.run("true").code, "disk_full")
            same(box.word(), "failed")
        same(box.ask(wire.FILE_READ, ("PATH", "f")).code, "disk_full")
        if libc.mount(b"none", home.encode(), b"tmpfs", 32, b"size=64m"):
            raise OSError(ctypes.get_errno(), "tmpfs of more room")
        a = box.run("cmp uv.lock /usr/share/sandbox/home/uv.lock && echo ok")
        same((a.stdout, a.result["CREATED"]), (b"ok\n", 1))
        box.kill()
    finally:
        libc.umount2(home.encode(), DETACH)


@test("agent/engine-strangers")
def strangers():
    """Who can connect, and knows no secret, keeps nobody out."""
    box = Box(Volumes())
    box.run("true")
    some = [box.client.connect() for _ in range(700)]
    try:
        same(box.out("echo served"), b"served\n")
        for s in some[:300]:
            try:
                s.sendall(b"SBXWIRE\1" + bytes(40))
            except OSError:
                pass
        same(box.out("echo served"), b"served\n")
    finally:
        for s in some:
            s.close()
    # those of a gateway may all be connected before the first one speaks
    ping = wire.Preamble(wire.PING, key=SECRET, session=SESSION).encode()
    many = [box.client.connect() for _ in range(200)]
    for s in many:
        s.sendall(ping)
    same([box.client.answer(s).code for s in many], [None] * 200)
    for s in many:
        s.close()
    # nor are most of the places all: clients who take their time have them
    slow = wire.Preamble(wire.COMMAND, key=SECRET, session=SESSION,
                         head=4000).encode()

    def served():
        try:
            return box.run("echo served").stdout == b"served\n"
        except (OSError, wire.Bad, wire.Lost):
            return False

    some = []
    try:
        for _ in range(300):
            some.append(box.client.connect())
            some[-1].sendall(slow)
        some += [box.client.connect() for _ in range(250)]
        for n in range(60):
            if served():
                break
            for s in some:
                try:
                    s.send(slow[n:n + 1], socket.MSG_DONTWAIT)
                except OSError:
                    pass
            time.sleep(1)
        else:
            check(False, "no room for a client among 250 strangers",
                  box.log())
    finally:
        for s in some:
            s.close()
    box.kill()


def skill(text):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) \
            as tar:
        info = tarfile.TarInfo("SKILL.md")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    return data.getvalue()


@test("agent/engine-staged")
def staged():
    volumes = Volumes()
    box = Box(volumes)
    files = [(1, b"data.csv", b"1,2\n"), (2, b"tool", skill(b"how to"))]
    text = "cat attachments/data.csv /skills/tool/SKILL.md; ls /skills"

    def head(files, **more):
        return [("COMMAND", text)] + [
            ("STAGE", bytes([kind, 0]) + len(name).to_bytes(2, "big")
             + bytes(15) + bytes([version]) + len(data).to_bytes(8, "big")
             + name)
            for version, (kind, name, data) in enumerate(files)]

    def whole(files, **more):
        return box.ask(wire.COMMAND, *head(files), ("STDIN_BYTES", 0),
                       *(("STAGE_BODY", n) for n in range(len(files))),
                       body=b"".join(f[2] for f in files), **more)

    want = b"1,2\nhow totool\n"
    same(box.ask(wire.COMMAND, *head(files)).code, "stage_needed")
    a = whole(files)
    same((a.stdout, a.result.get("NOTICE")), (want, None), a)
    same(box.ask(wire.COMMAND, *head(files)).stdout, want)
    # none are named: they go
    same(box.out("touch /skills/x 2>&1 | grep -c denied"), b"1\n")
    same(box.out("ls attachments /skills"), b"/skills:\n\nattachments:\n")
    same(whole(files).stdout, want)
    box.kill()
    box = Box(volumes)
    same(box.ask(wire.COMMAND, *head(files)).stdout, want)
    # in place of an older version, in one step
    files[1] = (2, b"tool", skill(b"now so"))
    files.append((1, b"more", b"more"))
    files[1:] = [files[2], files[1]]
    same(whole(files).stdout, b"1,2\nnow sotool\n")
    # a fresh one has none, and asks; nor has what waits behind it
    a = box.ask(wire.COMMAND, *head(files), flags=wire.FRESH)
    same(a.code, "stage_needed")
    a = whole(files)
    same((a.stdout, a.result["CREATED"]), (b"1,2\nnow sotool\n", 1))
    box.ask(wire.RESET)
    same(box.ask(wire.COMMAND, *head(files)).code, "stage_needed")
    same(whole(files).stdout, b"1,2\nnow sotool\n")
    # what was on its way when its agent died is removed by the next
    spool = volumes.path("skills") + "/.sandbox"
    box.kill()
    os.makedirs(spool + "/tree.0000/x", 0o700)
    os.makedirs(volumes.path("meta") + "/spool/y", exist_ok=True)
    box = Box(volumes)
    same(box.ask(wire.COMMAND, *head(files)).stdout, b"1,2\nnow sotool\n")
    wait_for(lambda: not os.path.exists(spool), 60, "an empty spool")
    wait_for(lambda: names(volumes.path("meta") + "/spool") == [], 60,
             "the other one")
    box.kill()


HOSTILE = r"""
import ctypes, fcntl, os, signal, sys
got = []
def attempt(what, f):
    try:
        got.append((what, f()))
    except (OSError, PermissionError):
        pass
for root in ("", "/proc/1/root", "/proc/1/cwd", "/proc/self/root"):
    for name in ("", "/state", "/lock", "/owner", "/history", "/spool",
                 "/manifest"):
        path = root + "/var/lib/sandbox" + name
        attempt(path, lambda: os.open(path, os.O_RDONLY))
        attempt(path, lambda: os.open(path, os.O_WRONLY | os.O_CREAT))
        attempt(path, lambda: os.stat(path + "/."))
        attempt(path, lambda: os.rename(path, "/tmp/x"))
        attempt(path, lambda: os.chmod(path, 0o777))
attempt("mkdir", lambda: os.mkdir("/var/lib/other"))
mine = os.getpid()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        owner = os.stat("/proc/" + pid).st_uid
    except OSError:
        continue                # one that measured has ended meanwhile
    if owner == 0:
        attempt("fd " + pid, lambda: os.listdir("/proc/%s/fd" % pid))
        for name in ("environ", "mem", "maps", "root", "cwd"):
            attempt(name, lambda: os.open("/proc/%s/%s" % (pid, name), 0))
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, 0):
            attempt("signal " + pid, lambda: os.kill(int(pid), number))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(16, int(pid), 0, 0) == 0:
            got.append("ptrace " + pid)
for fd in os.listdir("/proc/self/fd"):
    try:
        to = os.readlink("/proc/self/fd/" + fd)
    except OSError:
        continue
    if "sandbox" in to and not to.startswith("/home/sandbox"):
        got.append("descriptor " + to)
with open("/proc/self/status") as f:
    for line in f:
        if line.startswith("Cap") and int(line.split()[1], 16):
            got.append(line)
        if line.startswith("NoNewPrivs") and line.split()[1] != "1":
            got.append(line)
for name in ("/skills/x", "/skills/.sandbox", "/usr/x", "/x"):
    attempt(name, lambda: os.mkdir(name))
print(got)
"""


@test("agent/engine-hostile")
def hostile():
    volumes = Volumes()
    box = Box(volumes)
    same(box.out("python3 -", stdin=HOSTILE.encode()), b"[]\n")
    # what it can: kill all that is its own, and be in the way
    ran = open_command(box, "trap '' TERM HUP; kill -9 -1; kill -9 $$")
    a = ran()
    check(a.outcome in ("signal", "exit"), "outcome", a)
    box.run("(setsid bash -c 'while true; do setsid bash -c \"sleep 0.2\" & "
            "sleep 0.05; done' >/dev/null 2>&1 &); mkdir -p a/b; cd a/b; "
            "for i in $(seq 60); do mkdir d; cd d; done; "
            "ln -s /var/lib/sandbox m; ln -s / r; mkfifo p")
    box.run("chmod 0 a; unshare -Urpf --mount-proc sleep 600 & "
            "rm -rf .cache; ln -s /etc .cache; ln -s /etc/passwd late; true")
    same(box.ask(wire.FILE_READ, ("PATH", "var/lib/sandbox/state"),
                 ("ROOT", 1)).code, "path_outside")
    check(box.ask(wire.RESET).result is not None, "RESET", box.log())
    wait_for(lambda: not user_processes(box), 60, "the end of all of them")
    same(names(volumes.path("home")),
         names(base + "/usr/share/sandbox/home"))
    same(box.out("python3 -", stdin=HOSTILE.encode()), b"[]\n")
    box.kill()


main(start, stop)
