"""The agent in a container by crun as an engine makes it: root's, with the
capabilities and the filter that engines leave, without a cgroup; and around it
all a fence of the test's own, so that nothing in it can hurt this machine."""

import base64
import io
import json
import os
import shutil
import subprocess
import tempfile

import wire
from engine_crun import CAPABILITIES, DETACH, mounts, overlay, seccomp
from engine_network import libc, need
from gateway import AGENT, CACHE, free_port, wait_for

NEWNS, SLAVE, REC = 0x20000, 0x80000, 0x4000
SECRET = bytes(range(32))
SESSION = bytes(range(32, 64))
GROUPS = "/sys/fs/cgroup"


def alone():
    """Mounts of this process are its own from now on."""
    need(libc.unshare(NEWNS), "unshare")
    need(libc.mount(None, b"/", None, SLAVE | REC, None), "mount")
    # crun refuses hosts that have both kinds of cgroups, and needs none
    libc.umount2((GROUPS + "/unified").encode(), DETACH)


class Fence:
    """A bound for processes and memory of all that is begun inside."""

    LIMITS = {"pids.max": "tasks", "memory.limit_in_bytes": "memory",
              "memory.max": "memory"}

    def __init__(self, tasks=900, memory=1 << 30):
        self.folders = []
        values = {"tasks": tasks, "memory": memory}
        name = "/sandbox-fence-%d" % os.getpid()
        for top in (GROUPS + "/pids", GROUPS + "/memory", GROUPS):
            if not os.path.exists(top + "/cgroup.procs") or (
                    top == GROUPS and self.folders):
                continue
            os.mkdir(top + name)
            self.folders.append(top + name)
        self.bounded = set()
        for folder in self.folders:
            for file, what in self.LIMITS.items():
                if os.path.exists(folder + "/" + file):
                    with open(folder + "/" + file, "w") as f:
                        f.write(str(values[what]))
                    self.bounded.add(what)

    def enter(self):
        """In a child, before it is another program."""
        for folder in self.folders:
            with open(folder + "/cgroup.procs", "w") as f:
                f.write(str(os.getpid()))

    def inside(self):
        out = set()
        for folder in self.folders:
            with open(folder + "/cgroup.procs") as f:
                out |= {int(p) for p in f.read().split()}
        return out

    def remove(self):
        for folder in self.folders:
            def gone(folder=folder):
                try:
                    os.rmdir(folder)
                    return True
                except FileNotFoundError:
                    return True
                except OSError:
                    return False
            wait_for(gone, 60, "the end of all in " + folder)


class Text:
    """What a socket would give, out of base64."""

    def __init__(self, text):
        self.bytes = io.BytesIO(base64.b64decode(text, validate=True))

    def recv(self, size):
        return self.bytes.read(size)


class Box:
    """`memory`, `disk` (MiB), `processes`: caps, 0 the agent's own."""

    def __init__(self, fence, memory=0, disk=0, processes=0, network="none",
                 shm="64m"):
        self.caps = {"memory": memory, "disk": disk, "processes": processes}
        self.folder = tempfile.mkdtemp(prefix="sandbox-box.", dir="/tmp")
        self.fence = fence
        self.shm = shm
        self.process = None
        self.mounted = False
        self.containers = 0
        self.port = free_port()
        self.env = ["SANDBOX_ENGINE_SECRET=" + SECRET.hex(),
                    "SANDBOX_ENGINE_SESSION=" + SESSION.hex(),
                    "SANDBOX_ENGINE_EPOCH=1000",
                    "SANDBOX_ENGINE_NETWORK=" + network]
        self.client = wire.Client(("127.0.0.1", self.port), key=SECRET,
                                  timeout=120)
        base = os.path.realpath(CACHE + "/base/current/rootfs")
        for name in ("upper", "work", "root", "home", "skills", "meta",
                     "state"):
            os.mkdir(self.folder + "/" + name)
        for name in ("", "/upper", "/root"):
            os.chmod(self.folder + name, 0o755)
        os.chown(self.folder + "/home", 1000, 1000)
        os.makedirs(self.folder + "/upper/usr/libexec/sandbox")
        shutil.copy(AGENT, self.folder + "/upper/usr/libexec/sandbox")
        os.chmod(self.folder + "/upper/usr/libexec/sandbox/sandbox-agent",
                 0o755)
        overlay(self.folder + "/root", [base], self.folder + "/upper",
                self.folder + "/work")
        self.mounted = True

    def configure(self, bundle, args):
        volumes = {"/home/sandbox": "home", "/skills": "skills",
                   "/var/lib/sandbox": "meta"}
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0, "umask": 18}, "cwd": "/",
                "args": ["/usr/libexec/sandbox/sandbox-agent"] + args,
                "env": self.env, "noNewPrivileges": False,
                "capabilities": {k: CAPABILITIES for k in
                                 ("bounding", "effective", "permitted")},
                "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 20000,
                             "soft": 20000}],
                "oomScoreAdj": 0},
            "root": {"path": self.folder + "/root", "readonly": False},
            "hostname": "box",
            "mounts": [dict(m, options=[
                "size=" + self.shm if o.startswith("size=") else o
                for o in m["options"]]) if m["destination"] == "/dev/shm"
                else m for m in mounts() if m["destination"] != "/sys"]
            + [{"destination": path, "type": "bind",
                "source": self.folder + "/" + name,
                "options": ["rbind", "rw"]}
               for path, name in volumes.items()],
            "linux": {"namespaces": [{"type": t} for t in
                                     ("pid", "ipc", "uts", "mount")],
                      "seccomp": seccomp()}}
        with open(bundle + "/config.json", "w") as f:
            json.dump(config, f)

    def spawn(self, args, **options):
        self.containers += 1
        name = "%s.%d" % (os.path.basename(self.folder), self.containers)
        bundle = "%s/%d" % (self.folder, self.containers)
        os.mkdir(bundle)
        self.configure(bundle, args)
        process = subprocess.Popen(
            ["crun", "--root", self.folder + "/state",
             "--cgroup-manager=disabled", "run", "--bundle", bundle, name],
            preexec_fn=self.fence.enter, **options)
        process.name = name
        return process

    def kill(self, process, number="KILL"):
        """All of that container."""
        subprocess.run(["crun", "--root", self.folder + "/state", "kill",
                        process.name, number], check=False,
                       stderr=subprocess.DEVNULL)

    def start(self):
        """As a service; returns when it listens."""
        with open(self.folder + "/log", "ab") as log:
            self.process = self.spawn(
                ["--engine", "127.0.0.1:%d" % self.port],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def up():
            if self.process.poll() is not None:
                raise AssertionError("the agent ended: " + self.log())
            try:
                self.client.connect().close()
                return True
            except OSError:
                return False
        wait_for(up, 60, "the agent's port")
        return self

    def log(self):
        with open(self.folder + "/log", errors="replace") as f:
            return f.read()[-4000:]

    def stop(self):
        """The container, and all of it."""
        try:
            if self.process is not None and self.process.poll() is None:
                self.kill(self.process)
                try:
                    self.process.wait(60)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
        finally:
            if self.mounted:
                libc.umount2((self.folder + "/root").encode(), DETACH)
                self.mounted = False
            if os.path.exists(self.folder + "/log"):
                for line in self.log().splitlines()[-20:]:
                    print("# log: " + line)
            # what is deeper than Python can go may be in there
            subprocess.run(["rm", "-rf", self.folder], check=False)

    def once(self, operation, pairs=(), body=b"", text=None, **options):
        """By the other way, in a container of its own: the answer, and what
        the program wrote.  `text` in place of the base64 of the request."""
        if text is None:
            text = base64.b64encode(self.request(operation, pairs, body,
                                                 **options))
        return self.ended(self.begin(), text)

    def begin(self):
        """The program; what it reads comes later."""
        with open(self.folder + "/log", "ab") as log:
            return self.spawn(["--once"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=log)

    def ended(self, process, text):
        out = process.communicate(text, 240)[0]
        if process.returncode:
            raise AssertionError("status %d: %s" % (process.returncode,
                                                    self.log()))
        return self.client.answer(Text(out)), out

    def request(self, operation, pairs=(), body=b"", **options):
        head = wire.fields(*pairs)
        return wire.Preamble(operation, head=len(head), body=len(body),
                             key=SECRET, **self.preamble(options)
                             ).encode() + head + body

    def preamble(self, options):
        for name, value in self.caps.items():
            options.setdefault(name, value)
        options.setdefault("session", SESSION)
        return options

    def run(self, text, stdin=b"", cwd=None, **options):
        """One command; upper case options are fields of its head."""
        pairs = [("COMMAND", text), ("WALL_MS", 100000), ("CPU_MS", 90000),
                 ("OUTPUT", 65536), ("DIGEST", bytes(32))]
        named = {k: options.pop(k) for k in list(options) if k.isupper()}
        pairs = [p for p in pairs if p[0] not in named] + list(named.items())
        if cwd:
            pairs.append(("CWD", cwd))
        return self.call(wire.COMMAND, pairs, stdin, **options)

    def call(self, operation, pairs=(), body=b"", **options):
        return self.client.call(operation, wire.fields(*pairs), body,
                                **self.preamble(options))

    def send(self, operation, pairs=(), body=b"", **options):
        return self.client.send(operation, wire.fields(*pairs), body,
                                **self.preamble(options))
