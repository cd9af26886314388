#!/usr/bin/env python3
"""After the end nothing of ours remains: no process, mount, control group,
loop device or socket; whatever way the end came."""

import glob
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import BUILD, TOP, Gateway, alive, bound_sockets  # noqa: E402
from gateway import cgroup_folders, cgroup_of, free_port       # noqa: E402
from gateway import in_cgroup, loop_devices, mounts, wait_for  # noqa: E402
from tap import backends, check, main, same, skip, test      # noqa: E402

backends("local", why="runner")


def snapshot(g, conversation="left"):
    """What has to be gone: taken while sandboxes run."""
    if not os.path.ismount("/sys/fs/cgroup"):
        skip("nobody mounted control groups at /sys/fs/cgroup, so the test "
             "can't look at them (a bare chroot)")
    agent = g.agent(conversation)
    group = cgroup_of(agent)
    # the pool fills again in its own time
    wait_for(lambda: len(in_cgroup(group)) >= 2, 20, "processes of " + group)
    pids = in_cgroup(group)
    check(cgroup_folders(group), "no control group named", group)
    check(loop_devices(g.dir), "no loop device of", g.dir)
    return group, pids


def nothing_left(folder, group, pids, state_gone=False):
    def left():
        out = []
        out += ["process %d" % p for p in in_cgroup(group)]
        out += ["process %d" % p for p in pids if alive(p)
                and cgroup_of(p) == group]
        out += ["group " + f for f in cgroup_folders(group)]
        out += ["loop device " + d for d in loop_devices(folder)]
        out += ["mount " + m for m in mounts(folder)]
        out += ["socket " + s for s in bound_sockets(folder)]
        return out

    end = time.monotonic() + 100
    while left() and time.monotonic() < end:
        time.sleep(0.1)
    same(left(), [], "left over")


@test("leftovers/interrupted")
def interrupted():
    g = Gateway(pool=3)
    g.start()
    try:
        for n in range(3):
            g.run("left%d" % n if n else "left",
                  "echo x > f; sleep 1000 > /dev/null 2>&1 &")
        group, pids = snapshot(g)
        g.stop_runner(signal.SIGINT)
        nothing_left(g.dir + "/state", group, pids)
        same(glob.glob(g.state + "/slots/*"), [], "slots")
        check(not glob.glob(g.dir + "/agents/*"), "runtime folder",
              glob.glob(g.dir + "/agents/*"))
        check(not os.path.exists(g.socket), "the socket remains")
    finally:
        g.expected.append("[crit]")
        g.stop()


@test("leftovers/interrupted-while-busy")
def interrupted_busy():
    g = Gateway(pool=2)
    g.start()
    try:
        g.run("left", "true")
        threads = [threading.Thread(target=lambda n=n: g.command(
            "busy%d" % n, "yes > /dev/null & sleep 30"))
            for n in range(4)]
        for t in threads:
            t.start()
        time.sleep(1.5)
        group, pids = snapshot(g)
        g.stop_runner(signal.SIGINT)
        for t in threads:
            t.join(200)
            check(not t.is_alive(), "a client still waits")
        nothing_left(g.dir + "/state", group, pids)
    finally:
        g.expected.append("[crit]")
        g.stop()


@test("leftovers/interrupted-during-start")
def interrupted_start():
    """A signal at any moment of the start."""
    for wait in (0, 0.02, 0.1, 0.3, 0.6):
        g = Gateway(pool=4)
        try:
            starter = threading.Thread(target=lambda: quiet(g.start_runner))
            starter.start()
            wait_for(lambda: g.runner is not None, 10, "a process")
            time.sleep(wait)
            process = g.runner
            process.send_signal(signal.SIGINT)
            process.wait(150)
            starter.join()
            # who had a copy of its mounts may be on his way out
            wait_for(lambda: not loop_devices(g.dir) and not mounts(g.dir),
                     60, "the end of all, after %g s" % wait)
        finally:
            g.runner = None
            g.stop(check=False)


def quiet(function):
    try:
        function()
    except Exception:
        pass


@test("leftovers/killed-then-started")
def killed_then_started():
    """kill -9 leaves sandboxes; the next runner adopts them, and its SIGINT
    ends them."""
    g = Gateway(pool=2)
    g.start()
    try:
        g.run("left", "echo x > f")
        g.kill_runner()
        g.start_runner()
        g.wait_ready()
        same(g.run("left", "cat f")["stdout"], "x\n")
        group, pids = snapshot(g)
        g.stop_runner(signal.SIGINT)
        nothing_left(g.dir + "/state", group, pids)
    finally:
        g.expected.append("[crit]")
        g.stop()


@test("persistence/boot-leftovers")
def boot_leftovers():
    """A state folder with half-made things: it starts, and says so."""
    g = Gateway(pool=1)
    try:
        os.makedirs(g.state + "/slots/999")
        g.write("state/slots/999/record", "half a rec")
        os.makedirs(g.state + "/slots/1000")
        os.makedirs(g.state + "/slots/x.new")
        g.write("state/slots/1001", "a file")
        g.start()
        same(g.run("left", "echo ok")["stdout"], "ok\n")
        group, pids = snapshot(g)
        g.stop_runner(signal.SIGINT)
        nothing_left(g.dir + "/state", group, pids)
    finally:
        g.expected.append("[crit]")
        g.stop()


def make_run(*arguments):
    """make run in a folder of its own; (process, state, log)."""
    state = "/tmp/sandbox-t.make.%d" % os.getpid()
    shutil.rmtree(state, ignore_errors=True)
    os.mkdir(state)
    port = free_port()
    with open(state + "/log", "wb") as log:
        process = subprocess.Popen(
            ["make", "-C", TOP, "--no-print-directory", "run",
             "PORT=%d" % port, "STATE=%s/state" % state] + list(arguments),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True)

    def up():
        if process.poll() is not None:
            with open(state + "/log") as f:
                raise AssertionError("make run ended: " + f.read()[-2000:])
        return os.path.exists(state + "/state/token")

    wait_for(up, 120, "make run")
    return process, state, port


def make_run_ends(number, whole_group):
    process, state, port = make_run()
    try:
        with open(state + "/state/token") as f:
            text = f.read().strip()
        g = Gateway.__new__(Gateway)
        g.port, g.dir, g.options = port, state, {"h2": False}
        g.described = None
        g.connect = lambda timeout=60: Gateway.connect(g, timeout)
        same(g.output("left", "echo up", token=text), "up\n")
        agent = g.agent("left", token=text)
        group = cgroup_of(agent)
        pids = in_cgroup(group)
        check(loop_devices(state), "no loop device")
        if whole_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.wait(150)
        nothing_left(state, group, pids)
        same([s for s in bound_sockets("sandbox-run-")
              if state in s], [], "sockets")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(150)
        shutil.rmtree(state, ignore_errors=True)


@test("leftovers/make-run-ctrl-c", seconds=240)
def make_run_ctrl_c():
    make_run_ends(signal.SIGINT, True)


@test("leftovers/make-run-sigint", seconds=240)
def make_run_sigint():
    make_run_ends(signal.SIGINT, False)


@test("leftovers/make-run-sigterm", seconds=240)
def make_run_sigterm():
    make_run_ends(signal.SIGTERM, True)


if not os.path.exists(BUILD + "/sandboxctl"):
    print("Bail out! no %s/sandboxctl, run make first" % BUILD)
    sys.exit(1)

main()
