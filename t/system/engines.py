#!/usr/bin/env python3
"""Engines that end, are wiped, or are several: through nginx, with containers.

What a client must be able to rely on: nothing of anybody else's is ever in an
answer, what was attached comes back, and what is lost is said, once.
"""

import ctypes
import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import gateway_engine                                        # noqa: E402
from gateway import BUILD, CACHE, MODULE, RUNNER, TOP        # noqa: E402
from gateway import Gateway, wait_for                        # noqa: E402
from tap import check, log, main, same, skip, test           # noqa: E402

REAL = gateway_engine.REAL
DEFAULT = "10.87.0"     # the network of an engine that was told no other

STORE = "sandbox_store %s/store;"


class Engines(Gateway):
    """With a store, so that there are attachments."""

    def __init__(self, count=1, **options):
        super().__init__(backend="dagger", engines=count, **options)
        folder = self.path("store")
        os.mkdir(folder, 0o700)
        os.chown(folder, *owner())
        self.options["location"] += STORE % self.dir

    def attach(self, conversation, name, data):
        r = self.request("PUT", "v1/conversations/%s/attachments/%s"
                         % (conversation, name), data)
        check(r.status in (200, 201), "PUT", r)

    def wait_engines(self, count):
        wait_for(lambda: self.request("GET", "v1/limits").json["engines"]
                 ["ready"] == count, 60, "%d engines" % count)


def owner():
    entry = pwd.getpwnam("www-data")
    return entry.pw_uid, entry.pw_gid


def lost(result):
    return [n["code"] for n in result["stagingNotices"]
            if n["code"] == "sandbox_lost"]


def served(g, conversation, text, seconds=120):
    """A result, however often it is 503 before: what a patient client does."""
    end = time.monotonic() + seconds
    while True:
        r = g.command(conversation, text)
        if r.status == 200:
            return r.json
        check(r.status == 503 and r.headers.get("Retry-After"),
              "a refusal that says when", r)
        if time.monotonic() > end:
            raise AssertionError("never served again: %r" % r)
        time.sleep(0.3)


@test("dagger/engine-restarted: a clean restart keeps everything")
def restarted():
    with Engines() as g:
        g.attach("one", "a.txt", "attached")
        r = g.run("one", "echo mine > kept; cat attachments/a.txt")
        same((r["stdout"], r["sandboxCreated"]), ("attached", True))
        before = r["sandboxId"]
        engine = g.engines.programs[0]
        engine.terminate()
        engine.start()
        r = served(g, "one", "cat kept attachments/a.txt")
        same((r["stdout"], lost(r), r["sandboxId"], r["sandboxCreated"]),
             ("mine\nattached", [], before, False))
        ids = [c["commandId"] for c in g.request(
            "GET", "v1/conversations/one/commands").json["commands"]]
        same(len(ids), 2, "the history")


@test("dagger/engine-wiped: files are gone, it is said once, attachments "
      "return")
def wiped():
    with Engines() as g:
        g.attach("one", "a.txt", "attached")
        g.run("one", "echo mine > kept")
        g.run("two", "echo hers > kept")
        engine = g.engines.programs[0]
        engine.kill()
        engine.start()
        # as strict as it gets: ids of before may mean others by now
        first = served(g, "three", "cat kept attachments/a.txt; ls -A")
        check("mine" not in first["stdout"] and "hers" not in first["stdout"],
              "nobody else's", first)
        same(lost(first), [], "it never had anything")
        r = served(g, "one", "cat kept; cat attachments/a.txt")
        same((r["stdout"], lost(r), r["sandboxCreated"]),
             ("attached", ["sandbox_lost"], True))
        same(lost(g.run("one", "true")), [], "once")
        r = served(g, "two", "cat kept")
        same((r["exitCode"], r["stdout"], lost(r)), (1, "", ["sandbox_lost"]))


@test("dagger/owner-killed: commands end runner_lost, files stay")
def killed_owner():
    with Engines() as g:
        g.run("one", "echo mine > kept")
        got = []
        t = threading.Thread(target=lambda: got.append(
            g.command("one", "touch runs; sleep 100")))
        t.start()
        wait_for(lambda: g.request("GET", "v1/conversations/one/fs/runs")
                 .status == 200, 60, "the command")
        g.kill_runner()
        g.start_runner()
        g.wait_engines(1)
        r = served(g, "one", "cat kept")
        same((r["stdout"], lost(r), r["sandboxCreated"]),
             ("mine\n", [], False))
        t.join(120)
        check(got, "an end of the command that ran")
        same((got[0].status, got[0].json["outcome"]), (200, "runner_lost"))


@test("dagger/reload-under-load: nothing is lost, nothing runs twice")
def reload_under_load():
    with Engines() as g:
        stop = threading.Event()
        done, wrong = [], []

        def work(name):
            n = 0
            while not stop.is_set():
                n += 1
                try:
                    r = g.command(name, "echo %d >> log; wc -l < log" % n)
                    if r.status != 200 or r.json["stdout"] != "%d\n" % n:
                        wrong.append((name, n, r))
                        return
                except OSError as error:
                    # an idle connection of the old worker
                    wrong.append((name, n, error))
                    return
            done.append(n)

        threads = [threading.Thread(target=work, args=("c%d" % i,))
                   for i in range(4)]
        for t in threads:
            t.start()
        for _ in range(3):
            time.sleep(0.3)
            g.reload()
        stop.set()
        for t in threads:
            t.join(120)
        same(wrong, [])
        same(len(done), 4)


def started(g, number):
    """Agents that were asked for on an engine."""
    found = re.search(r'(?m)^sandbox_engine_starts_total\{engine="%s"\} (\d+)$'
                      % re.escape(g.engines.names[number]),
                      g.request("GET", "/metrics", token=None).body.decode())
    check(found, "no number of starts")
    return int(found.group(1))


@test("dagger/three-engines: one is killed under load, the rest is served")
def three():
    with Engines(3, dagger="move=1s", zone="1m",
                 server="location = /metrics { sandbox_metrics; }") as g:
        names, where = [], {}
        # by chance none of twelve has come to the one that is killed
        while len(names) < 12 or started(g, 0) in (0, len(names)):
            check(len(names) < 60, "all of them on one engine, or none")
            name = "c%02d" % len(names)
            names.append(name)
            g.attach(name, "who.txt", name)
            r = g.run(name, "echo %s > who; cat attachments/who.txt" % name)
            same(r["stdout"], name)
        # by the sandbox ids that are gone at the end we know whose moved
        for name in names:
            where[name] = g.run(name, "true")["sandboxId"]
        stop = threading.Event()
        wrong, told, after = [], {}, {}

        def work(name):
            while not stop.is_set():
                r = g.command(name, "cat who 2>/dev/null || echo none; "
                              "cat attachments/who.txt")
                if r.status == 200:
                    lines = r.json["stdout"]
                    told.setdefault(name, []).extend(lost(r.json))
                    moved = r.json["sandboxId"] != where[name]
                    good = "none\n" + name if moved else name + "\n" + name
                    if r.json["outcome"] == "runner_lost":
                        continue
                    if lines != good:
                        wrong.append((name, moved, r))
                        return
                    after[name] = r.json["sandboxId"]
                elif r.status not in (502, 503):
                    wrong.append((name, r))
                    return
                else:
                    time.sleep(0.2)

        threads = [threading.Thread(target=work, args=(name,))
                   for name in names]
        for t in threads:
            t.start()
        wait_for(lambda: wrong or len(after) == len(names), 60, "all at work")
        after.clear()
        g.engines.programs[0].kill()
        wait_for(lambda: wrong or len(after) == len(names), 120,
                 "all of them, some on other engines")
        stop.set()
        for t in threads:
            t.join(120)
        same(wrong, [])
        moved = {n for n in names if after[n] != where[n]}
        check(0 < len(moved) < len(names), "some moved, some stayed", sorted(moved))
        for name in names:
            same(told[name], ["sandbox_lost"] * (name in moved), name)
        # they stay where they are when it comes back
        g.engines.programs[0].start()
        g.wait_engines(3)
        for name in names:
            same(g.run(name, "true")["sandboxId"], after[name])


@test("dagger/none: without an engine it is off, and says why")
def none():
    with Engines() as g:
        g.run("one", "true")
        engine = g.engines.programs[0]
        engine.kill()
        wait_for(lambda: g.request("GET", "health", token=None).json["status"]
                 == "unreachable", 60, "that it is noticed")
        limits = g.request("GET", "v1/limits").json
        check(limits["reason"] and limits["engines"]["ready"] == 0,
              "a reason", limits)
        r = g.command("new", "true")
        same((r.status, r.json["code"]), (503, "runner_unreachable"))
        engine.start()
        same(served(g, "new", "echo on")["stdout"], "on\n")


@test("dagger/many-commands: three hundred in one conversation, one sandbox")
def many():
    with Engines() as g:
        c = g.connect()
        first = g.run("one", "echo $$ > first")["sandboxId"]
        for n in range(300):
            r = g.command("one", "echo %d" % n, connection=c)
            same((r.status, r.json["stdout"], r.json["sandboxId"]),
                 (200, "%d\n" % n, first))
        c.close()


@test("dagger/environment: two variables, two lines, the spreadsheet job")
def environment():
    """By the defaults of a host: in a mount namespace where they are ours."""
    if REAL is None and in_use(DEFAULT):
        skip("%s.1 is somebody's on this machine" % DEFAULT)
    with Environment() as g:
        up = g.request("GET", "v1/limits").json
        same((up["backend"], up["status"]), ("dagger", "ready"))
        subprocess.run([sys.executable, TOP + "/t/data/make_signups.py",
                        "make", g.path("in"), "--seed", "7"], check=True,
                       stdout=subprocess.DEVNULL)
        with open(g.path("in/q3-signups.csv"), "rb") as f:
            data = f.read()
        fs = "v1/conversations/job/fs/"
        r = g.request("PUT", fs + "attachments/q3-signups.csv", data)
        same(r.status, 201, "PUT")
        with open(TOP + "/tools/demo-analysis.py") as f:
            same(g.output("job", "python3 -", stdin=f.read()) != "", True)
        os.mkdir(g.path("out"))
        for name in ("signups-by-week.png", "signups-by-week.csv",
                     "q3-signups-deduped.csv"):
            r = g.request("GET", fs + name)
            same(r.status, 200, name)
            g.write("out/" + name, r.body)
        subprocess.run([sys.executable, TOP + "/t/data/make_signups.py",
                        "verify", g.path("in"), g.path("out"), "--clean",
                        "q3-signups-deduped.csv"], check=True,
                       stdout=subprocess.DEVNULL)
        if g.engines.programs:
            g.engines.programs[0].kill()
            wait_for(lambda: g.request("GET", "health", token=None).json
                     ["status"] == "unreachable", 60, "that it is noticed")
            reason = g.request("GET", "v1/limits").json["reason"]
            check(reason, "a reason")
            same(g.command("new", "true").json["code"], "runner_unreachable")


def in_use(prefix):
    """Whether an address of a network is on an interface here."""
    with open("/proc/net/fib_trie") as f:
        return prefix + ".1\n" in f.read()


class Environment(Gateway):
    """Its configuration names neither backend, nor engine, nor owner."""

    def __init__(self):
        super().__init__(backend="dagger", mode="env")

    def start_runner(self):
        if self.engines is None:
            self.engines = Named(self.state)
        name = self.engines.names[0]
        for key, value in (("ENABLED", "true"),
                           ("DAGGER_RUNNER_HOST", name)):
            os.environ["ARCHESTRA_CODE_RUNTIME_" + key] = value
        # what a host has in its places, with nothing of ours left behind
        os.mkdir(self.path("run"), 0o755)
        libc = ctypes.CDLL(None, use_errno=True)
        check(libc.unshare(0x20000) == 0, "unshare")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none",
                        "/run"], check=True)
        os.mkdir("/run/sandbox", 0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none",
                        "/etc/nginx"], check=True)
        shutil.copy(self.path("runner.key"), "/etc/nginx/sandbox-runner.key")
        os.chmod("/etc/nginx/sandbox-runner.key", 0o600)
        self.socket = "/run/sandbox/dagger.sock"
        log(self.path("logs/runner.1.log"), "owner's log")
        self.runner_number = 1
        with open(self.path("logs/runner.1.log"), "ab") as out:
            self.runner = subprocess.Popen(
                [RUNNER, "--dagger", "--key-file",
                 "/etc/nginx/sandbox-runner.key", "--peer-user", "www-data",
                 "--socket-group", "www-data"], stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True)
        wait_for(lambda: os.path.exists(self.socket), 60, "its socket")

    def configure(self, **changes):
        self.options.update(changes)
        o = self.options
        self.write("nginx.conf", """
load_module %s;
user www-data;
worker_processes 2;
pid %s/nginx.pid;
error_log %s/logs/error.log info;
env ARCHESTRA_CODE_RUNTIME_ENABLED;
env ARCHESTRA_CODE_RUNTIME_DAGGER_RUNNER_HOST;
events { }
http {
    access_log off;
    client_body_temp_path %s/tmp/body;
    proxy_temp_path %s/tmp/proxy;
    fastcgi_temp_path %s/tmp/fastcgi;
    uwsgi_temp_path %s/tmp/uwsgi;
    scgi_temp_path %s/tmp/scgi;
    sandbox_dagger_image 127.0.0.1:%d/sandbox@%s;
    %s
    server {
        listen 127.0.0.1:%d%s;
        location /sandbox/ {
            sandbox env;
            sandbox_jwt_secret_file %s/jwt.key;
        }
    }
}
""" % ((MODULE,) + (self.dir,) * 7
            + (self.registry, gateway_engine.image(TOP, BUILD, CACHE),
               gateway_engine.REGISTRY % (self.registry, CACHE + "/registry"),
               self.port, " http2" if o["h2"] else "", self.dir)))


class Named(gateway_engine.Engines):
    """One at the addresses that an engine has by default."""

    def __init__(self, folder):
        if REAL:
            super().__init__(folder)
            return
        from engine_program import Program
        os.makedirs(folder + "/engine.0", exist_ok=True)
        program = Program(root=folder + "/engine.0",
                          python=gateway_engine.PYTHON)
        program.prefix = DEFAULT
        program.start()
        log(program.log, "engine")
        self.programs = [program]
        self.names = [program.address]


if __name__ == "__main__":
    main()
