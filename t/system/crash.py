#!/usr/bin/env python3
"""Rows of the table in docs/operations.md that no other file has: what
survives, what ends and what a client sees when nginx, the runner, agents, or
all of them end."""

import os
import shutil
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import NGINX, Gateway, Process, alive           # noqa: E402
from gateway import cgroup_folders, cgroup_of, in_cgroup     # noqa: E402
from gateway import loop_devices, mounts, wait_for           # noqa: E402
from service import Service                                  # noqa: E402
from stream import Stream                                    # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")

g = None
V = "v1/conversations/"
GO = "until [ -e go ]; do echo tick; sleep 0.1; done; echo end"


def start():
    global g
    g = Service(pool=2, workers=1)
    g.options["http"] = """
        sandbox_store %s/store;
        sandbox_disk 128m;
        sandbox_wall_time 200s;
    """ % g.dir
    g.expected += ["exited on signal 9", "connect() to unix"]
    g.start()


def stop():
    g.stop()


def later(function, *arguments, **fields):
    """A call in a thread: the thread, and a list that gets what came."""
    out = []

    def one():
        try:
            out.append(function(*arguments, **fields))
        except Exception as error:
            out.append(error)
    thread = threading.Thread(target=one)
    thread.start()
    return thread, out


def answer(job):
    thread, out = job
    thread.join(200)
    check(out, "a client still waits")
    if isinstance(out[0], Exception):
        raise out[0]
    return out[0]


def go(conversation):
    r = g.request("PUT", V + conversation + "/fs/go", b"")
    check(r.status in (200, 201), "got", r)


def running(conversation, where=None):
    wait_for(lambda: (where or g).status(conversation).get("running"), 30,
             "a command that runs")


def result(conversation, command):
    """The result of a command by its id, as soon as it has ended."""
    last = []

    def ended():
        last[:] = [g.request("GET", V + "%s/commands/%s" % (conversation,
                                                            command))]
        return last[0].status == 200 and last[0].json.get("outcome")
    wait_for(ended, 60, "the end of " + command)
    return last[0].json


@test("crash/workers-with-streams", seconds=200)
def streams():
    """Fifty streams of ten commands: a worker that leaves ends them between
    two events, one that is killed just ends; the commands go on, the streams
    are taken up again, and the results are there by their ids."""
    names = ["s%d" % n for n in range(10)]
    seen = {}

    def open_all():
        out = []
        for name in names:
            if name not in seen:
                seen[name] = 0
                out.append((name, Stream(g, name, GO, commandId="id")))
                out[-1][1].until("started")
            while len([n for n, _ in out if n == name]) < 5:
                s = Stream(g, name, "id", method="GET", after=seen[name])
                out.append((name, s))
        for _, s in out:
            s.until("stdout")
        return out

    for how in ("reload", "kill -9"):
        opened = open_all()
        same(len(opened), 50)
        if how == "reload":
            g.reload()
        else:
            for pid in g.workers():
                os.kill(pid, signal.SIGKILL)
        for name, s in opened:
            try:
                for _ in s:
                    pass
            except Exception as error:
                check(how != "reload", "an event was cut", error)
            check(s.result is None, "over too early", name)
            if how == "reload" and s.kind == "sse":
                check(s.parser.retry, "not told to come again")
            seen[name] = max(seen[name], s.seq)
            s.close()
        g.wait_ready()
        for name in names:
            running(name)

    opened = open_all()
    for name in names:
        go(name)
    for name, s in opened:
        same((s.finish()["outcome"], s.text.split()[-1]), ("exit", "end"))
        s.close()
    for name in names:
        r = result(name, "id")
        same((r["outcome"], r["stdout"].split()[-1]), ("exit", "end"), name)
        g.delete(name)


@test("crash/nginx-stopped-and-started")
def nginx_stopped():
    """Both ways of stopping, while a command runs."""
    for n, number in enumerate((signal.SIGQUIT, signal.SIGTERM)):
        c = "ns%d" % n
        g.run(c, "echo kept > kept")
        job = later(g.command, c, GO, commandId="id")
        running(c)
        pid = g.nginx.pid
        root = "/proc/%d/root/home/sandbox/" % agent(c)
        g.nginx.send_signal(number)
        if number == signal.SIGQUIT:
            # it waits for its clients; the command does not know of it
            open(root + "go", "w").close()
            r = answer(job)
            same((r.status, r.json["stdout"].split()[-1]), (200, "end"))
        g.nginx.wait(150)
        check(not alive(pid), "it lives")
        g.start_nginx()
        if number == signal.SIGTERM:
            try:
                check(False, "an answer of nobody", answer(job))
            except OSError:
                pass
            running(c)
            go(c)
        same(result(c, "id")["stdout"].split()[-1], "end")
        same(g.output(c, "cat kept"), "kept\n")


def agent(conversation):
    """Its agent, as the runner has noted it: no command runs for that."""
    name = g.status(conversation)["sandboxId"]
    for slot in os.listdir(g.state + "/slots"):
        try:
            with open("%s/slots/%s/record" % (g.state, slot)) as f:
                record = dict(line.split(" ", 1)
                              for line in f.read().splitlines() if " " in line)
        except OSError:
            continue                    # one that nobody has used
        if record["id"] == name:
            return int(record["pid"])
    raise AssertionError("no record of " + name)


@test("crash/nginx-upgrade-and-rollback", seconds=200)
def upgrade():
    """USR2, WINCH; then back again: HUP, QUIT; then USR2, WINCH, QUIT."""
    other = Gateway(runner=None, workers=1).beside(g)
    other.configure()
    pids = []

    def pid_file(name):
        try:
            return int(other.read(name))
        except ValueError:
            return 0

    def workers(master):
        try:
            with open("/proc/%d/task/%d/children" % (master, master)) as f:
                return [int(p) for p in f.read().split()
                        if "worker" in title(int(p))]
        except OSError:
            return []

    def title(pid):
        try:
            with open("/proc/%d/cmdline" % pid) as f:
                return f.read()
        except OSError:
            return ""

    def second():
        os.kill(pids[0], signal.SIGUSR2)
        new = wait_for(lambda: pid_file("nginx.pid.oldbin") == pids[0]
                       and pid_file("nginx.pid") not in (0, pids[0])
                       and pid_file("nginx.pid"), 30, "another master")
        pids.append(Process(new))
        wait_for(lambda: workers(new), 30, "its workers")
        other.run("up", "true")
        return new

    def winch():
        """The old one's workers leave as soon as nobody needs them."""
        old = workers(pids[0])
        os.kill(pids[0], signal.SIGWINCH)
        wait_for(lambda: all("shutting down" in title(p) or not alive(p)
                             for p in old), 30, "the old workers")
        other.run("up", "true")

    try:
        # in the background, for only such a master can be replaced
        subprocess.run([NGINX, "-c", other.path("nginx.conf"), "-e",
                        other.path("logs/error.log")], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        pids.append(Process(wait_for(lambda: pid_file("nginx.pid"), 20,
                                     "a master")))
        other.wait_ready()
        other.run("up", "echo kept > kept")
        jobs = [later(other.command, "up-a", GO, commandId="a")]
        running("up-a", other)

        new = second()
        jobs.append(later(other.command, "up-b", GO, commandId="b"))
        running("up-b", other)
        winch()
        jobs.append(later(other.command, "up-c", GO, commandId="c"))
        running("up-c", other)

        # it was no good: the old workers again, the new master goes
        os.kill(pids[0], signal.SIGHUP)
        wait_for(lambda: [p for p in workers(pids[0])
                          if "shutting down" not in title(p)], 30,
                 "workers of the old one")
        os.kill(new, signal.SIGQUIT)
        wait_for(lambda: [p for p in workers(new)
                          if "shutting down" not in title(p)] == [], 30,
                 "the new workers on their way")
        other.run("up", "true")
        for c in ("up-a", "up-b", "up-c"):
            r = other.request("PUT", V + c + "/fs/go", b"")
            same(r.status, 201, r)
        for job in jobs:
            r = answer(job)
            same((r.status, r.json["stdout"].split()[-1]), (200, "end"), r)
        wait_for(lambda: not alive(new), 30, "the end of the new master")
        wait_for(lambda: pid_file("nginx.pid") == pids[0], 30, "its pid")

        # and now for good
        second()
        winch()
        os.kill(pids[0], signal.SIGQUIT)
        wait_for(lambda: not alive(pids[0]), 30, "the end of the old master")
        same(other.output("up", "cat kept"), "kept\n")
    finally:
        for pid in pids:
            try:
                if alive(pid):
                    os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        wait_for(lambda: not any(alive(p) for p in pids), 30, "their end")
        other.stop()


@test("persistence/runner-restart")
def runner_restart():
    """kill -9 of the runner during a command that has children in the
    background: it is off the way, so the result is the true one."""
    first = g.run("rr", "echo kept > kept")
    job = later(g.command, "rr", "(sleep 1000; true) & (while :; do date "
                "+%s%N > next; mv next beat; sleep 0.1; done) > /dev/null 2>&1"
                " & until pgrep -f '^sleep 1000$' > pid && [ -e beat ]; do "
                "sleep 0.1; done; touch both; " + GO + "; exit 3",
                commandId="id")
    wait_for(lambda: g.request("GET", V + "rr/fs/both").status == 200, 60,
             "a command and its children")
    pid = agent("rr")
    group = cgroup_of(pid)
    g.kill_runner()
    g.start_runner()
    go("rr")
    r = answer(job)
    same((r.status, r.json["outcome"], r.json["exitCode"],
          r.json["stdout"].split()[-1]), (200, "exit", 3, "end"), r)
    same(agent("rr"), pid, "taken over")
    r = g.run("rr", "cat kept; one=$(cat beat); "
              "until [ \"$(cat beat)\" != \"$one\" ]; do sleep 0.1; done; "
              "pgrep -fc '^sleep 1000$'")
    same(r["stdout"], "kept\n1\n", "what it left running is gone")
    same((r["sandboxId"], r["sandboxCreated"]), (first["sandboxId"], False))

    # it goes as one that never lost its runner, and nothing is nobody's
    same(g.delete("rr").status, 204)
    wait_for(lambda: not alive(pid), 20, "its agent's end")

    def owned():
        slots = os.listdir(g.state + "/slots")
        return len(loop_devices(g.state)) <= len(slots) and all(
            name in slots for folder in cgroup_folders(group)
            for name in os.listdir(folder) if name.isdigit())
    wait_for(owned, 30, "the end of what is nobody's")


@test("crash/runner-and-agent")
def runner_and_agent():
    """Both at once, a command running and one waiting."""
    g.run("ra", "echo kept > kept")
    jobs = [later(g.command, "ra", GO, commandId="one")]
    running("ra")
    jobs.append(later(g.command, "ra", "cat kept", commandId="two"))
    wait_for(lambda: g.status("ra").get("queued"), 20, "one that waits")
    pid = agent("ra")
    os.kill(g.runner.pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    g.kill_runner()
    g.start_runner()
    r = answer(jobs[0])
    same((r.status, r.json["outcome"], r.json["exitCode"]),
         (200, "runner_lost", None), r)
    # nobody is left who knows of the other: it is told so, or was not begun
    r = answer(jobs[1])
    check(r.status == 200 and r.json["outcome"] in ("runner_lost", "exit")
          or r.status == 503, "got", r)
    same(g.output("ra", "cat kept"), "kept\n")
    same(result("ra", "one")["outcome"], "runner_lost", "its receipt")


@test("crash/nginx-and-runner")
def nginx_and_runner():
    """Both at once: the command goes on, its result is fetched by its id."""
    g.run("nr", "echo kept > kept")
    job = later(g.command, "nr", GO, commandId="id")
    running("nr")
    pid = agent("nr")
    workers = g.workers()
    for process in (g.nginx.pid, *workers, g.runner.pid):
        os.kill(process, signal.SIGKILL)
    g.nginx.wait()
    g.runner.wait()
    try:
        check(False, "an answer of nobody", answer(job))
    except OSError:
        pass
    wait_for(lambda: not any(alive(p) for p in workers), 20, "their end")
    # nginx comes first, and need not know
    g.start_runner(wait=False)
    g.start_nginx()
    same(agent("nr"), pid, "taken over")
    running("nr")
    go("nr")
    r = result("nr", "id")
    same((r["outcome"], r["stdout"].split()[-1]), ("exit", "end"), r)
    same(g.output("nr", "cat kept"), "kept\n")


@test("crash/machine-restart", seconds=200)
def machine():
    """As after a power cycle: no process, mount, loop device or control group
    is left, /run is empty; the state and the store are there."""
    g.request("PUT", V + "mr/attachments/a", b"attached")
    g.request("PUT", V + "mr/files/f", b"saved")
    old = g.run("mr", "echo kept > kept; cat attachments/a", commandId="done")
    same(old["stdout"], "attached")
    g.run("mr-asleep", "echo asleep > f")
    pid = agent("mr-asleep")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: g.status("mr-asleep")["state"] == "idle", 30, "sleep")
    job = later(g.command, "mr", GO, commandId="lost")
    running("mr")
    group = cgroup_of(agent("mr"))

    # what a shutdown does: processes have their time to end, disks are synced
    subprocess.run(["sync", "-f", "/proc/%d/root" % agent("mr")], check=True)
    for process in (g.nginx.pid, *g.workers(), g.runner.pid):
        os.kill(process, signal.SIGKILL)
    g.nginx.wait()
    g.runner.wait()

    def dead():
        for pid in in_cgroup(group):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not in_cgroup(group)
    wait_for(dead, 30, "the end of all")
    try:
        check(False, "an answer of nobody", answer(job))
    except OSError:
        pass
    wait_for(lambda: not loop_devices(g.state) and not mounts(g.state), 30,
             "the end of all disks")

    def removed():
        """Whom they still had may be on his way out."""
        for folder in cgroup_folders(group):
            for top, names, _ in os.walk(folder, topdown=False):
                try:
                    os.rmdir(top)
                except OSError:
                    return False
        return True

    wait_for(removed, 30, "the end of all control groups")
    shutil.rmtree(g.path("agents"))

    g.start_runner()
    g.start_nginx()
    r = g.run("mr", "cat kept; cat attachments/a; pgrep -c sleep")
    same((r["stdout"], r["sandboxId"], r["sandboxCreated"],
          r["stagingNotices"]),
         ("kept\nattached0\n", old["sandboxId"], False, []), r)
    same(g.request("GET", V + "mr/files/f").body, b"saved")
    same(result("mr", "done")["stdout"], "attached", "an earlier result")
    same(result("mr", "lost")["outcome"], "runner_lost", "what ran")
    same(g.output("mr-asleep", "cat f"), "asleep\n")
    same(g.output("mr-new", "echo new"), "new\n")


@test("crash/state-disk-full", seconds=200)
def state_disk_full():
    """The runner dies and starts while the disk of its state is full: what
    lives goes on, what sleeps and what is new waits for room, and whoever
    deletes makes some."""
    h = Gateway(pool=1, runner_options=["--reserve", "64"],
                location="sandbox_disk 128m;")
    h.ephemeral = False
    h.expected += ["connect() to unix"]
    os.mkdir(h.state)
    with open(h.path("disk"), "wb") as f:
        f.truncate(400 << 20)
    subprocess.run(["mkfs.ext4", "-q", h.path("disk")], check=True,
                   stderr=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", h.path("disk"), h.state],
                   check=True)
    try:
        h.start()
        lives = h.run("lives", "echo kept > f; sleep 1000 > /dev/null 2>&1 &")
        h.run("sleeps", "echo kept > f; head -c 20M /dev/urandom > big")
        os.kill(h.agent("sleeps"), signal.SIGKILL)
        wait_for(lambda: h.status("sleeps")["state"] == "idle", 30, "sleep")
        with open(h.state + "/filler", "wb") as f:
            try:
                while True:
                    f.write(bytes(1 << 20))
                    f.flush()
            except OSError:
                pass

        h.kill_runner()
        h.start_runner()
        h.wait_ready()
        r = h.run("lives", "cat f; pgrep -c sleep; echo more >> f; cat f")
        same((r["stdout"], r["sandboxId"]),
             ("kept\n1\nkept\nmore\n", lives["sandboxId"]))
        for name in ("sleeps", "new"):
            r = h.command(name, "cat f")
            same((r.status, r.json.get("code")), (507, "disk_full"), r)
        same(h.request("GET", "v1/conversations/lives/fs/f").body,
             b"kept\nmore\n")
        same(h.delete("sleeps").status, 204)
        same(h.status("sleeps")["state"], "none")
        os.remove(h.state + "/filler")
        wait_for(lambda: h.command("new", "true").status == 200, 60, "room")
        same(h.output("new", "echo new"), "new\n")
        same(h.output("lives", "cat f"), "kept\nmore\n")
    finally:
        try:
            h.end(h.nginx, signal.SIGTERM)
            h.end(h.runner, signal.SIGTERM)
            if os.path.exists(h.state + "/filler"):
                os.remove(h.state + "/filler")
            h.sweep()
        finally:
            subprocess.run(["umount", "-l", h.state], check=True)
            h.stop(check=sys.exc_info()[0] is None)


if __name__ == "__main__":
    main(start, stop)
