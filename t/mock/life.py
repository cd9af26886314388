#!/usr/bin/env python3
"""nginx and its runner come and go: runner absent, back, hanging; reload,
killed workers, `sandbox env`, odd configurations."""

import json
import os
import re
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, alive, token, wait_for          # noqa: E402
from tap import check, main, same, test                      # noqa: E402


def health(g):
    return g.request("GET", "health", token=None).json["status"]


def ready_status(g):
    return g.request("GET", "health?ready", token=None).status


@test("admin/runner-down", beside=True)
def runner_down():
    with Gateway(runner=None) as g:
        wait_for(lambda: health(g) == "unreachable", 20, "unreachable")
        same(ready_status(g), 503, "health?ready")
        r = g.command("down", "echo")
        same(r.status, 503)
        same(r.json["code"], "runner_unreachable")
        check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
        limits = g.request("GET", "v1/limits")
        same(limits.status, 200)
        check(limits.json.get("reason"), "no reason in", limits)
        check(g.dir not in limits.body.decode(), "a path of the host:",
              limits)

        g.kind = "mock"
        g.start_runner()
        g.wait_ready(20)
        same(ready_status(g), 200, "health?ready")
        same(g.run("down", "mock: stdout=up")["stdout"], "up")

        g.stop_runner(signal.SIGTERM)
        os.unlink(g.socket)
        r = g.command("down", "echo")
        same(r.status, 503)
        same(r.json["code"], "runner_unreachable")
        wait_for(lambda: health(g) == "unreachable", 20, "unreachable")

        g.start_runner()
        g.wait_ready(20)
        same(g.run("down", "mock: stdout=again")["stdout"], "again")


@test("admin/runner-down: a line for the change, not one for each request",
      beside=True)
def runner_down_quiet():
    """Each request tries, so that the first one after the restart is served;
    the log of errors has what happened, once."""
    with Gateway(runner=None, workers=1) as g:
        def lines(level):
            return [x for x in g.error_log.splitlines()
                    if "[%s]" % level in x and "unix:" in x]

        wait_for(lambda: lines("error"), 60, "that there is none")
        for number in range(30):
            r = g.command("down%d" % number, "echo")
            same((r.status, r.json["code"], "Retry-After" in r.headers),
                 (503, "runner_unreachable", True))
        same(lines("crit"), [])
        same(len(lines("error")), 1, lines("error"))
        check("the runner's socket does not exist: is sandbox-runner running"
              in lines("error")[0], lines("error"))
        wait_for(lambda: len([x for x in lines("info")
                              if "(2: No such file" in x]) >= 30, 60,
                 "each of them in a log that has all")

        def listens():
            with socket.socket(socket.AF_UNIX) as s:
                return s.connect_ex(g.socket) == 0

        g.kind = "mock"
        g.start_runner()
        wait_for(listens, 60, "a runner that listens")
        same(g.run("down", "mock: stdout=up")["stdout"], "up",
             "the first request of all")
        wait_for(lambda: "is ready" in str(lines("notice")), 60, "that it is")

        # met by a request first, or by who asks all the time
        g.stop_runner(signal.SIGKILL)
        for number in range(30):
            same(g.command("down", "echo").json["code"], "runner_unreachable")
        wait_for(lambda: len(lines("error")) > 1, 60, "that it is gone")
        same(lines("crit"), [])
        check(len(lines("error")) < 10, "too many", lines("error"))


@test("admin/runner-stale-socket", beside=True)
def stale_socket():
    """The socket file is there, nobody listens."""
    with Gateway(runner=None) as g:
        s = socket.socket(socket.AF_UNIX)
        s.bind(g.socket)
        os.chmod(g.socket, 0o666)
        s.close()
        r = g.command("stale", "echo")
        same((r.status, r.json["code"]), (503, "runner_unreachable"))


@test("admin/runner-hangs", beside=True)
def runner_hangs():
    """It accepts and says nothing: requests end, nobody else waits."""
    with Gateway(runner=None, ready=False) as g:
        s = socket.socket(socket.AF_UNIX)
        s.bind(g.socket)
        os.chmod(g.socket, 0o666)
        s.listen(64)
        started = time.monotonic()
        r = g.command("hang", "echo")
        check(r.status in (503, 504), "got", r)
        check(time.monotonic() - started < 100, "waited too long")
        check(health(g) != "ready", "a silent runner is not ready")
        s.close()


@test("admin/runner-refuses-the-key", beside=True)
def wrong_key():
    with Gateway(runner=None, ready=False) as g:
        g.kind = "mock"
        mine = g.key.hex() + "\n"
        g.write("runner.key", "11" * 32 + "\n")
        g.start_runner()
        g.write("runner.key", mine)
        g.reload()
        wait_for(lambda: health(g) == "unreachable", 20, "unreachable")
        r = g.command("key", "echo")
        same(r.status, 503)
        wait_for(lambda: "[error]" in g.error_log, 20, "a word in the log")


@test("limits/no-hidden-timeout", beside=True)
def no_hidden_timeout():
    """Silence of a command is no time-out while PINGs come; nginx's own
    proxy_read_timeout has no say."""
    with Gateway(runner="mock", http="proxy_read_timeout 1s;"
                 "send_timeout 2s; keepalive_timeout 1s;") as g:
        steps = "head " + "sleep=2 ping " * 5 + "stdout=ok"
        same(g.run("silent", "mock: " + steps)["stdout"], "ok")
        steps = "ping sleep=4 " * 5 + "stdout=queued"
        same(g.run("silent", "mock: " + steps)["stdout"], "queued")


@test("limits/lost-pings", beside=True)
def lost_pings():
    """No PING for 15 s: the runner is taken for lost, the client is told."""
    with Gateway(runner="mock") as g:
        r = g.command("pings", "mock: head stdout=x sleep=140")
        same(r.status, 200)
        same(r.json["outcome"], "runner_lost")
        same(r.json["stdout"], "x")
        r = g.command("pings", "mock: sleep=140")
        check(r.status in (503, 504), "before HEAD:", r)
        seen = json.loads(g.run("pings", "mock: seen")["stdout"])
        same(seen.count("COMMAND"), 3, "a time-out is never retried")


@test("persistence/reload", seconds=180)
def reload():
    with Gateway(runner="mock") as g:
        failures = []
        stop = threading.Event()

        def client(number):
            while not stop.is_set():
                try:
                    r = g.command("reload%d" % number,
                                  "mock: head sleep=0.3 stdout=fine")
                    if r.status != 200 or r.json["stdout"] != "fine":
                        failures.append(repr(r))
                except Exception as error:
                    failures.append(repr(error))

        threads = [threading.Thread(target=client, args=(n,))
                   for n in range(8)]
        for t in threads:
            t.start()
        old = set()
        for _ in range(6):
            old |= g.reload()
            time.sleep(0.2)
        stop.set()
        for t in threads:
            t.join()
        same(failures[:3], [], "failures during reloads")
        old -= set(g.workers())
        wait_for(lambda: not any(alive(p) for p in old), 30,
                 "the end of old workers")


@test("persistence/worker-killed", seconds=120)
def worker_killed():
    with Gateway(runner="mock", workers=2) as g:
        g.expected.append("exited on signal 9")
        for n in range(5):
            # the first answer needs one of them only
            wait_for(lambda: len(g.workers()) == 2, 20, "both workers")
            victim = g.workers()[n % 2]
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: len(g.workers()) == 2
                     and victim not in g.workers(), 10, "a new worker")
            for m in range(10):
                same(g.run("killed%d" % m, "mock: stdout=ok")["stdout"],
                     "ok")
        g.wait_ready(20)


@test("admin/reload-config")
def reload_config():
    with Gateway(runner="mock") as g:
        same(g.run("config", "x")["timeoutSeconds"], 120)
        g.reload(location="sandbox_wall_time 33s;")
        wait_for(lambda: g.run("config", "x")["timeoutSeconds"] == 33, 10,
                 "the new cap")
        # the runner's socket moves
        os.rename(g.socket, g.path("moved.sock"))
        old, g.socket = g.socket, g.path("moved.sock")
        g.reload(location="")
        wait_for(lambda: g.command("config", "x").status == 200, 20,
                 "the moved runner")
        check(not os.path.exists(old), "the old socket")
        # the module is loaded, nothing uses it
        g.configure()
        text = g.read("nginx.conf")
        text = re.sub(r"location /sandbox/ \{.*?\n        \}\n",
                      "location /x { return 204; }\n", text, flags=re.S)
        g.write("nginx.conf", text)
        os.kill(g.master(), signal.SIGHUP)
        wait_for(lambda: g.request("GET", "/x", token=None).status == 204,
                 10, "a configuration without the module")
        # an old worker may still take one
        wait_for(lambda: g.request("GET", "health", token=None).status
                 == 404, 10, "nothing but that configuration")
        g.reload(location="")
        wait_for(lambda: g.request("GET", "health", token=None).status
                 == 200, 10, "the module in use again")
        g.wait_ready(20)


@test("admin/env-switch")
def env_switch():
    for value, expected in (("true", "ready"), ("false", "disabled"),
                            (None, "disabled")):
        # the variable is read with the configuration, by the master
        if value is None:
            os.environ.pop("ARCHESTRA_CODE_RUNTIME_ENABLED", None)
        else:
            os.environ["ARCHESTRA_CODE_RUNTIME_ENABLED"] = value
        try:
            with Gateway(runner="mock", ready=False, mode="env",
                         main="env ARCHESTRA_CODE_RUNTIME_ENABLED;") as g:
                wait_for(lambda: health(g) == expected, 20, expected)
                r = g.command("env", "mock: stdout=on")
                if expected == "ready":
                    same(r.json["stdout"], "on")
                else:
                    same((r.status, r.json["code"]),
                         (503, "sandbox_disabled"))
                    same(ready_status(g), 503)
                check("ARCHESTRA_CODE_RUNTIME_ENABLED" in g.error_log,
                      "the error log does not say what was read")
        finally:
            os.environ.pop("ARCHESTRA_CODE_RUNTIME_ENABLED", None)


@test("admin/env-false-wins-over-on")
def env_false_wins():
    os.environ["ARCHESTRA_CODE_RUNTIME_ENABLED"] = "false"
    try:
        with Gateway(runner="mock", ready=False,
                     main="env ARCHESTRA_CODE_RUNTIME_ENABLED;") as g:
            same(health(g), "disabled")
            r = g.command("env", "mock: stdout=on")
            same((r.status, r.json["code"]), (503, "sandbox_disabled"))
    finally:
        os.environ.pop("ARCHESTRA_CODE_RUNTIME_ENABLED", None)


@test("admin/many-reloads", seconds=900)
def many_reloads():
    """A runner keeps its place in the zone over reloads, also one whose path
    is as long as a socket's can be."""
    with Gateway(runner=None, ready=False) as g:
        g.socket = g.dir + "/" + "s" * (107 - len(g.dir) - 1)
        g.configure(workers=1)
        for _ in range(70):
            g.reload()
        check("[emerg]" not in g.error_log, g.error_log[-500:])
        r = g.command("long", "echo")
        same((r.status, r.json["code"]), (503, "runner_unreachable"))


@test("admin/socket-rights")
def socket_rights():
    """A socket that the workers may not open: one clear line."""
    with Gateway(runner="mock", ready=False) as g:
        os.chmod(g.socket, 0o600)
        r = g.command("rights", "echo")
        same((r.status, r.json["code"]), (503, "runner_unreachable"))
        wait_for(lambda: "Permission denied" in g.error_log, 20,
                 "a line in the log")
        os.chmod(g.socket, 0o666)
        g.wait_ready(20)
        same(g.run("rights", "mock: stdout=ok")["stdout"], "ok")


@test("admin/many-locations")
def many_locations():
    """Two runners' worth of locations, each with its own policy."""
    server = "".join("""
        location /box%d/ {
            sandbox on;
            sandbox_realm realm%d;
            sandbox_permission p:%d;
            sandbox_jwt_secret_file %%(dir)s/jwt.key;
        }
    """ % (n, n, n) for n in range(30))
    g = Gateway(runner="mock")
    g.options["server"] = server % {"dir": g.dir}
    with g:
        for n in range(0, 30, 7):
            text = token(permissions=["p:%d" % n])
            for m in range(0, 30, 7):
                r = g.request("GET", "/box%d/v1/limits" % m, token=text)
                same(r.status, 200 if n == m else 403, "%d of %d" % (n, m))


main()
