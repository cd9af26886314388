"""Deaths for bench/soak, and what the host has of a gateway: processes,
mounts, loop devices, control groups, descriptors, temporary files, memory.
Knows nothing of the traffic."""

import collections
import glob
import os
import random
import re
import signal
import time

import wire
from gateway import all_pids, alive, cgroup_folders, cgroup_of, loop_devices
from gateway import mounts, wait_for

# lines of logs that deaths explain

EXPECTED = ["exited on signal 9", "the agent of slot",
            "runner.sock failed (2: No such file or directory)"]


def pss(pid):
    """KiB, 0 if it is gone."""
    try:
        with open("/proc/%d/smaps_rollup" % pid) as f:
            for line in f:
                if line.startswith("Pss:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def descriptors(pid):
    """How many of each kind; numbers in names are left out."""
    out = collections.Counter()
    for path in glob.glob("/proc/%d/fd/*" % pid):
        try:
            name = os.readlink(path)
        except OSError:
            continue
        name = re.sub(r"\[\d+\]", "", name)
        out[re.sub(r"\d+|[0-9a-f]{12,}", "N", name)] += 1
    return out


def entries(*patterns):
    return sorted(p for pattern in patterns for p in glob.glob(pattern))


class Host:
    def __init__(self, gateway, seed, pool):
        self.g = gateway
        self.rnd = random.Random("%s host" % seed)
        self.pool = pool
        self.deaths = collections.Counter()
        self.samples = []           # (seconds, role -> KiB)
        self.begun = time.monotonic()
        self.group = None
        self.base = None

    # looking

    def processes(self):
        return [p for p in all_pids()
                if cgroup_of(p) == self.group and alive(p)]

    def agents(self):
        out = []
        for pid in self.processes():
            try:
                with open("/proc/%d/comm" % pid) as f:
                    if f.read().strip() == "sandbox-agent":
                        out.append(pid)
            except OSError:
                pass
        return out

    def ping(self):
        return wire.Client(self.g.socket, self.g.key, 20).call(
            wire.PING).result

    def find_group(self):
        self.group = cgroup_of(self.g.agent("host"))
        self.g.delete("host")

    def sample(self):
        agents = [pss(p) for p in self.agents()]
        workers = [pss(p) for p in self.g.workers()]
        agents, workers = [[n for n in x if n] for x in (agents, workers)]
        one = {"runner": pss(self.g.runner.pid) if self.g.runner else 0,
               "worker": sum(workers) / len(workers) if workers else 0,
               "agent": sum(agents) / len(agents) if agents else 0}
        self.samples.append((time.monotonic() - self.begun,
                             {k: v for k, v in one.items() if v}))

    def halves(self, role):
        """Mean KiB of the first half and of the second, number of samples."""
        values = [s[role] for _, s in self.samples if role in s]
        half = len(values) // 2
        if not half:
            return 0, 0, 0
        first, second = values[:half], values[half:]
        return (sum(first) / len(first), sum(second) / len(second),
                len(values))

    # a rest: what is there when nobody wants anything

    def at_rest(self):
        """None, or what is still going on."""
        try:
            told = self.ping()
        except (OSError, wire.Lost) as error:
            return repr(error)
        if told.get("RUNNING") or told.get("QUEUED") or told.get("CREATING"):
            return told
        if told.get("LIVE") or told.get("POOL") != self.pool:
            return told
        busy = entries(self.g.dir + "/tmp/body/*",
                       self.g.dir + "/store/.tmp/*",
                       self.g.dir + "/store/.trash/*")
        return busy or None

    def rest(self, seconds):
        """Waits for it; faults."""
        end = time.monotonic() + seconds
        while True:
            busy = self.at_rest()
            if not busy:
                break
            if time.monotonic() > end:
                return ["no rest within %d s: %r" % (seconds, busy)]
            time.sleep(0.2)
        if self.base is None:
            self.base = self.measure()
            return []
        # connections that are just closing, a container's last process
        while True:
            wrong = self.differences()
            if not wrong or time.monotonic() > end:
                return wrong
            time.sleep(0.5)

    def measure(self):
        workers = [descriptors(p) for p in self.g.workers()]
        most = collections.Counter()
        for one in workers:
            most |= one
        return {
            "workers": len(workers),
            "descriptors of a worker": most,
            "descriptors of the runner": descriptors(self.g.runner.pid),
            "descriptors of the master": descriptors(self.g.nginx.pid),
            "agents": len(self.agents()),
            "processes of sandboxes": len(self.processes()),
            "loop devices": len(loop_devices(self.g.state)),
            "mounts": len(mounts(self.g.state)),
            "control groups": self.groups(),
            "folders of agents": len(entries(self.g.dir + "/agents/*")),
        }

    def groups(self):
        """Groups of sandboxes in each hierarchy."""
        return sum(len(folders) for top in cgroup_folders(self.group)
                   for _, folders, _ in os.walk(top))

    def differences(self):
        out = []
        now = self.measure()
        for name, base in self.base.items():
            if isinstance(base, collections.Counter):
                more = now[name] - base
                if more:
                    out.append("%s: %r more" % (name, dict(more)))
            elif now[name] > base:
                out.append("%s: %d, %d at the beginning" % (
                    name, now[name], base))
        out += ["temporary: " + p for p in entries(
            self.g.state + "/*.new", self.g.state + "/slots/*/*.new")]
        return out

    # deaths; each names itself

    def die(self, soak):
        """One death, whatever it is; all is up again at its end."""
        name = self.rnd.choice(DEATHS)
        soak.dies()
        try:
            if getattr(self, "die_" + name)() is not False:
                self.deaths[name] += 1
        finally:
            soak.lives()
        return name

    def kill_one(self, pids):
        if not pids:
            return False
        try:
            os.kill(self.rnd.choice(sorted(pids)), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def die_worker(self):
        pids = self.g.workers()
        if not self.kill_one(pids):
            return False
        wait_for(lambda: set(self.g.workers()) - set(pids), 30, "a worker")
        return True

    def die_agent(self):
        """One that does something, if there is one."""
        agents = self.agents()
        busy = [p for p in agents if self.children(p)]
        return self.kill_one(busy or agents)

    @staticmethod
    def children(pid):
        try:
            with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
                return f.read().split()
        except OSError:
            return []

    def die_container(self):
        """All of its processes at once, as the host's own tools do it."""
        folders = [f for f in glob.glob("/sys/fs/cgroup/**/cgroup.kill",
                                        recursive=True)
                   if "/%s/" % self.group in f
                   and f.count("/") == self.depth()]
        if not folders:
            return self.kill_one(self.processes())
        try:
            with open(self.rnd.choice(sorted(folders)), "w") as f:
                f.write("1")
        except OSError:
            return False
        return True

    def depth(self):
        """Slashes in the path of a sandbox's own group's file."""
        tops = [f for f in cgroup_folders(self.group)
                if os.path.exists(f + "/cgroup.procs")]
        return tops[-1].count("/") + 2 if tops else 0

    def die_runner(self):
        self.g.kill_runner()
        time.sleep(self.rnd.choice((0, 0, 0.3, 2)))
        self.g.start_runner()

    def die_runner_term(self):
        """Stopped in peace: sandboxes live on."""
        self.g.stop_runner(signal.SIGTERM)
        self.g.start_runner()

    def die_nginx(self):
        # with QUIT it waits for commands, that wait for others

        self.g.end(self.g.nginx, self.rnd.choice((signal.SIGTERM,
                                                  signal.SIGQUIT)), 300)
        time.sleep(self.rnd.choice((0, 0.5)))
        self.g.start_nginx()

    def die_both(self):
        self.g.kill_runner()
        self.kill_one(self.g.workers())
        self.die_agent()
        self.g.start_runner()

    def reload(self):
        """No death: nobody may notice, but by a stream's end."""
        self.deaths["reload"] += 1
        self.g.reload()

    # the end

    def left(self):
        """What an ended runner has left."""
        out = {
            "processes": self.processes(),
            "control groups": cgroup_folders(self.group),
            "loop devices": loop_devices(self.g.dir),
            "mounts": mounts(self.g.dir),
            "slots": entries(self.g.state + "/slots/*"),
            "folders of agents": entries(self.g.dir + "/agents/*"),
        }
        return ["left behind, %s: %r" % (k, v[:5])
                for k, v in out.items() if v]


DEATHS = ("worker", "worker", "agent", "agent", "agent", "container",
          "runner", "runner", "runner_term", "nginx", "both")
