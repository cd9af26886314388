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
import subprocess
import sys
import tarfile
import tempfile
import threading
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
        with open(self.folder + "/pid") as f:
            self.pid = int(f.read())

    def log(self):
        with open(self.folder + "/log", errors="replace") as f:
            return f.read()[-3000:]

    def kill(self):
        """As a container that its engine ends, or that crashes."""
        if self.code is None:
            try:
                with open(self.folder + "/pid") as f:
                    os.kill(int(f.read()), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, ValueError):
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
    box.kill()


main(start, stop)
