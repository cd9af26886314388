"""An engine as a program, so that it can be ended as programs are.

It runs in a pid namespace and a mount namespace of its own: whatever ends it,
also SIGKILL, ends its containers, mounts and network with it.  What stays is
its folder.  `Program` is it for tests.
"""

import argparse
import ctypes
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

NEWNS, NEWPID = 0x20000, 0x20000000
SLAVE, REC, DETACH = 0x80000, 0x4000, 2
HERE = os.path.dirname(os.path.abspath(__file__))

libc = ctypes.CDLL(None, use_errno=True)


def need(rc, what):
    if rc != 0:
        raise OSError(ctypes.get_errno(), what)


def alone():
    """Returns in a child that has a first process of its own above it; its
    parents never return."""
    need(libc.unshare(NEWNS | NEWPID), "unshare")
    need(libc.mount(None, b"/", None, SLAVE | REC, None), "mount")
    first = os.fork()
    if first:
        watch(first)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    # crun refuses hosts that have both kinds of cgroups, and needs none

    libc.umount2(b"/sys/fs/cgroup/unified", DETACH)
    need(libc.mount(b"proc", b"/proc", b"proc", 14, None), "mount of /proc")
    child = os.fork()
    if child:
        watch(child, True)


def watch(child, all_of_them=False):
    """Ends as that child does; signals are passed on to it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda n, _: os.kill(child, n))
    while True:
        pid, status = os.waitpid(-1 if all_of_them else child, 0)
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 255)


def options():
    p = argparse.ArgumentParser(
        description="An engine that keeps containers, for tests.")
    p.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    p.add_argument("--root", required=True, help="what it keeps")
    p.add_argument("--network", metavar="10.A.B",
                   help="the first numbers of its addresses (a free one)")
    p.add_argument("--cache", default=os.environ.get("CACHE")
                   or "/var/cache/sandbox", help="where large layers are kept")
    p.add_argument("--health", type=float, default=5.0, metavar="SECONDS")
    p.add_argument("--version", default="v0.21.5")
    p.add_argument("--exec-delay", type=float, default=0, metavar="MS")
    p.add_argument("--unreachable", choices=("silent", "astray"),
                   help="names are not answered, or with nobody's address")
    p.add_argument("--leash", action="store_true",
                   help="end when the input does")
    p.add_argument("--wipe", action="store_true",
                   help="begin as after a crash")
    return p.parse_args()


def program():
    o = options()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    alone()
    sys.path.insert(0, HERE)
    from engine_containers import ContainerEngine
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    told, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    if o.leash:
        threading.Thread(target=leash, daemon=True).start()
    host, _, port = o.listen.rpartition(":")
    engine = ContainerEngine(
        root=o.root, cache=o.cache, network=o.network, wipe=o.wipe,
        host=host, port=int(port), health=o.health, version=o.version,
        exec_delay=o.exec_delay / 1000, unreachable=o.unreachable)
    with engine:
        print("ready %d %s" % (engine.port, engine.network.prefix),
              flush=True)
        while told.recv(1)[0] not in (signal.SIGTERM, signal.SIGINT):
            pass
        engine.terminate()
    os._exit(0)


def leash():
    """Ends with who has the other end of our input."""
    while os.read(0, 4096):
        pass
    os._exit(1)


class Program:
    """`with Program() as engine:`: engine.port, .address, .resolver."""

    def __init__(self, *extra, root=None, port=0, python=sys.executable):
        self.extra = list(extra)
        self.python = python
        self.own = root is None
        self.root = root or tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
        self.port = port
        self.prefix = None
        self.process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        if self.own:
            shutil.rmtree(self.root, ignore_errors=True)

    def start(self, *extra, seconds=150):
        """Again at the same port, and with the same addresses."""
        if self.port == 0:
            from gateway import free_port
            self.port = free_port()     # nobody's while it is down
        options = ["--leash", "--listen", "127.0.0.1:%d" % self.port, "--root",
                   self.root + "/engine"]
        if self.prefix:
            options += ["--network", self.prefix]
        # nobody has this pipe's other end when all of it has ended
        self.all, inherited = os.pipe()
        self.log = self.root + "/engine.log"
        os.makedirs(self.root, exist_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.python, HERE + "/engine.py"] + options + self.extra
                + list(extra), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, pass_fds=(inherited,))
        os.close(inherited)
        end = time.monotonic() + seconds
        line = b""
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [],
                                              left)[0]:
                raise AssertionError("the engine does not start: "
                                     + self.text())
            data = os.read(self.process.stdout.fileno(), 4096)
            if not data:
                raise AssertionError("the engine ended: " + self.text())
            line += data
        _, port, self.prefix = line.decode().split()
        self.port = int(port)
        self.address = "tcp://127.0.0.1:%d" % self.port
        self.gateway = self.prefix + ".1"
        self.resolver = self.gateway
        return self

    def name(self):
        """Of this side's leg of its network."""
        return "sbx%02x%02x" % tuple(int(n) for n in
                                     self.prefix.split(".")[1:])

    def names(self, mode=""):
        """"silent": no name is answered; "astray": with nobody's address; an
        address: with that."""
        with open(self.root + "/engine.names", "w") as f:
            f.write(mode)

    def faults(self):
        """What it noticed of its clients that is not as it should be."""
        with open(self.log, errors="replace") as f:
            return [line.rstrip() for line in f if line.startswith("fault: ")]

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()[-3000:]

    def kill(self):
        """As a crash; returns when nothing of it is left."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
        self.over(150)

    def terminate(self, seconds=150):
        self.process.terminate()
        return self.over(seconds)

    def over(self, seconds):
        code = self.process.wait(seconds)
        if not select.select([self.all], [], [], seconds)[0]:
            raise AssertionError("the engine's processes go on")
        os.close(self.all)
        self.process.stdout.close()
        self.process.stdin.close()
        self.process = None
        end = time.monotonic() + seconds
        while self.prefix and self.name() in [n for _, n in
                                              socket.if_nameindex()]:
            if time.monotonic() > end:
                raise AssertionError("its network is still there")
            time.sleep(0.005)
        return code
