"""A sandbox-runner without nginx: started, asked over its wire, looked at."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading

import tap
import wire
from gateway import AGENT, CACHE, RUNNER, all_pids, alive, cgroup_folders
from gateway import cgroup_of, die_with_parent, loop_devices, mounts, wait_for

KEY = os.urandom(32)


def session(name):
    return hashlib.sha256(name.encode()).digest()


def tenant(name):
    return hashlib.sha256(name.encode()).digest()[:16]


def fnv(text):
    """The hash that names a runner's control group and owns id ranges."""
    h = 0xcbf29ce484222325
    for b in text.encode():
        h = ((h ^ b) * 0x100000001b3) % 2 ** 64
    return h


def together(*functions):
    """Calls them at once; their values or exceptions, in that order."""
    out = [None] * len(functions)

    def one(i):
        try:
            out[i] = functions[i]()
        except Exception as error:
            out[i] = error

    threads = [threading.Thread(target=one, args=(i,))
               for i in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


class Runner:
    """Each has a folder of its own; `options` go to the command line."""

    def __init__(self, *options, ephemeral=True, agent=AGENT, passed=None):
        self.dir = tempfile.mkdtemp(prefix="sandbox-runner.")
        self.state = os.path.join(self.dir, "state")
        self.socket = os.path.join(self.dir, "socket")
        self.key = os.path.join(self.dir, "key")
        self.log = os.path.join(self.dir, "log")
        tap.log(self.log, "runner's log")
        self.options = list(options)
        self.ephemeral = ephemeral
        self.agent = agent
        self.passed = passed
        self.process = None
        with open(self.key, "w") as f:
            os.chmod(self.key, 0o600)
            f.write(KEY.hex() + "\n")
        self.owner = fnv(os.path.realpath(self.dir) + "/state")
        self.group = "sandbox-%012x" % (self.owner >> 16)

    def command_line(self):
        base = os.path.realpath(CACHE + "/base/current/rootfs")
        return ([RUNNER, "--key-file", self.key, "--state", self.state,
                 "--base", base, "--agent", self.agent]
                + (["--listen-fd", str(self.passed)] if self.passed
                   else ["--socket", self.socket])
                + (["--ephemeral"] if self.ephemeral else []) + self.options)

    def start(self):
        start = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                self.command_line(), stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
                pass_fds=[self.passed] if self.passed else [],
                preexec_fn=die_with_parent(signal.SIGINT))

        def up():
            text = self.text()[start:]
            if self.process.poll() is not None:
                raise AssertionError("the runner ended: " + text[-2000:])
            return "sandbox-runner: ready" in text
        wait_for(up, 60, "the runner")
        return self

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def end(self, *numbers, seconds=120):
        for number in numbers or (signal.SIGINT,):
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        """Ends all of it; what is left behind is an error."""
        tap.log_ends(self.log)
        if self.process and self.process.poll() is None:
            self.end()
        if os.path.isdir(self.state + "/slots") \
                and (self.slots() or self.processes()):
            self.ephemeral = True
            self.start().end()
        left = self.left()
        shutil.rmtree(self.dir, ignore_errors=True)
        if left:
            raise AssertionError("left behind: %r" % left)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    # asking

    @property
    def client(self):
        return wire.Client(self.socket, KEY, 150)

    def command(self, name, text, **fields):
        fields.setdefault("tenant", tenant(name))
        return self.client.command(text, session=session(name), **fields)

    def call(self, operation, name="", head=b"", **fields):
        return self.client.call(operation, head, session=session(name),
                                **fields)

    def limits(self, **numbers):
        answer = self.call(wire.PING, head=wire.fields(*numbers.items()))
        return answer.result

    # looking

    def processes(self):
        return [p for p in all_pids()
                if cgroup_of(p) == self.group and alive(p)]

    def agents(self):
        out = []
        for p in self.processes():
            try:
                with open("/proc/%d/comm" % p) as f:
                    if f.read().strip() == "sandbox-agent":
                        out.append(p)
            except OSError:
                pass
        return out

    def agent_of(self, run):
        """The agent of a conversation, by a command that run() runs in it."""
        mark = "mark-" + os.urandom(8).hex()
        thread = threading.Thread(target=run, args=(
            ": %s; until [ -e ~/.seen ]; do sleep 0.05; done; "
            "rm -f ~/.seen" % mark,))
        thread.start()

        def look():
            for pid in self.agents():
                try:
                    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
                        children = f.read().split()
                except OSError:
                    continue
                for child in children:
                    try:
                        with open("/proc/%s/cmdline" % child) as f:
                            if mark in f.read():
                                return pid
                    except OSError:
                        pass
            return None

        try:
            pid = wait_for(look, 20, "its agent")
            # from outside: only one command runs at a time
            os.close(os.open("/proc/%d/root/home/sandbox/.seen" % pid,
                             os.O_CREAT | os.O_WRONLY, 0o666))
            return pid
        finally:
            thread.join()

    def slots(self):
        return sorted(os.listdir(self.state + "/slots"))

    def records(self):
        """Path and fields of each record."""
        out = {}
        for slot in self.slots():
            path = "%s/slots/%s/record" % (self.state, slot)
            try:
                with open(path) as f:
                    out[path] = dict(line.split(" ", 1)
                                     for line in f.read().splitlines()
                                     if " " in line)
            except OSError:
                pass
        return out

    def record(self, name):
        for fields in self.records().values():
            if fields["session"] == session(name).hex() \
                    and fields["deleted"] == "0":
                return fields
        return None

    def left(self, slots=0):
        """What an ended runner has left, but for `slots` stopped ones."""
        out = {
            "processes": self.processes(),
            "cgroups": cgroup_folders(self.group),
            "loop devices": loop_devices(self.state),
            "mounts": mounts(self.state),
            "socket": [self.socket] if os.path.exists(self.socket) else [],
            "runtime": [d for d in ["/run/sandbox/" + self.group[8:]]
                        if os.path.exists(d)],
        }
        if os.path.isdir(self.state + "/slots") and len(self.slots()) != slots:
            out["slots"] = self.slots()
        with open("/run/sandbox/ranges", "rb") as f:
            ranges = f.read()
        if any(ranges[i:i + 8] == self.owner.to_bytes(8, "little")
               for i in range(0, len(ranges), 8)):
            out["id ranges"] = [self.owner]
        return {name: what for name, what in out.items() if what}

    def complaints(self):
        """Lines of its log that a sanitizer wrote."""
        return re.findall(r".*(?:Sanitizer|runtime error).*", self.text())
