#!/usr/bin/env python3
"""Who may run, and who waits: shares of the queue, limits of a tenant, run
slots that come back on every way out; and an operator who asks and drains."""

import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import BUILD, Gateway, cgroup_of, in_cgroup     # noqa: E402
from gateway import token, wait_for                          # noqa: E402
from hold import HOLD, held, let_go, let_go_of               # noqa: E402
from hold_at import HoldAt, silent                           # noqa: E402
from runner import Runner, session, tenant                   # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")


def threads(count, function):
    """Begins function(n) in as many threads."""
    out = [threading.Thread(target=function, args=(n,)) for n in range(count)]
    for t in out:
        t.start()
    return out


@test("concurrency/one-tenant-does-not-fill-the-queue", seconds=120)
def share():
    """The last twentieth of the queue is for tenants that have nothing in
    it; and what waits for a sandbox to be made is not all of the queue."""
    with Runner("--pool", "0") as r:
        one = {"tenant": tenant("one")}
        for n in range(8):
            r.command("a%d" % n, "true", **one)
        r.limits(MAX_RUNNING=1, MAX_QUEUED=40)
        codes = []

        def flood(n):
            answer = r.command("a%d" % (n % 8), "sleep 0.05", **one)
            codes.append((answer.code, answer.error
                          and answer.error.get("RETRY_AFTER")))

        holder = threads(1, lambda n: r.command(
            "h", HOLD, command_id="hold", wall_ms=600000))
        wait_for(lambda: r.limits(MAX_RUNNING=1, MAX_QUEUED=40)["RUNNING"],
                 10, "a command that holds the slot")
        running = []
        for n in range(60):
            running += threads(1, lambda _, n=n: flood(n))
            time.sleep(0.02)
        wait_for(lambda: len([c for c in codes if c[0]]) >= 15, 10,
                 "refusals")
        same({c for c in codes if c[0]}, {("too_many_pending", 5)})
        same(r.limits(MAX_RUNNING=1, MAX_QUEUED=40)["QUEUED"], 38)
        others = []
        running += threads(2, lambda n: others.append(
            r.command("b%d" % n, "echo in")))
        wait_for(lambda: r.limits(MAX_RUNNING=1, MAX_QUEUED=40)["QUEUED"]
                 == 40, 20, "that they wait, too")
        r.call(wire.CANCEL, "h", wire.fields(("COMMAND_ID", "hold")))
        for t in running + holder:
            t.join()
        same([o.stdout for o in others], [b"in\n"] * 2, "others wait")


@test("concurrency/serial-order: who came first, however late he was seen")
def arrival():
    """A client has connected; his request and the next client come when the
    runner has just looked for it."""
    with Runner("--pool", "0") as r:
        r.command("order", "true")

        def request(text):
            head = wire.fields(("COMMAND", text), ("WALL_MS", 60000),
                               ("CPU_MS", 30000), ("OUTPUT", 65536),
                               ("OUTPUT_TOTAL", 1 << 20),
                               ("OPEN_FILES", 256), ("PENDING", 20),
                               ("DIGEST", os.urandom(32)))
            return wire.Preamble(
                wire.COMMAND, head=len(head), key=r.client.key,
                session=session("order"), tenant=tenant("order")).encode() \
                + head

        for n in range(0, 6, 2):
            held_up = HoldAt(r.process.pid, silent)
            with r.client.connect() as first:
                held_up.hear()
                first.sendall(request("echo %d >> log" % n))
                with r.client.connect() as second:
                    second.sendall(request("echo %d >> log" % (n + 1)))
                    held_up.go()
                    same([r.client.answer(s).code for s in (first, second)],
                         [None, None])
        same(r.command("order", "cat log").stdout, b"0\n1\n2\n3\n4\n5\n")


@test("concurrency/status-while-running: what has ended is not told to run")
def told():
    """An agent has told the runner of an end, and then answered; who has the
    answer asks the runner before that has had its turn."""
    with Runner("--pool", "0") as r:
        agent = r.agent_of(lambda text: r.command("told", text))

        def status():
            found = r.call(wire.STATUS, "told").result
            return found["RUNNING"], found["COMMANDS"]

        same(status(), (0, 1))
        t = held(lambda: r.command("told", HOLD, wall_ms=600000))
        wait_for(lambda: status() == (1, 1), 60, "a command that runs")
        held_up = HoldAt(r.process.pid, silent)
        with r.client.connect():
            held_up.hear()
            os.close(os.open("/proc/%d/root/home/sandbox/go" % agent,
                             os.O_CREAT | os.O_WRONLY, 0o666))
            same(t.result().outcome, "exit")
            with r.client.send(wire.STATUS, session=session("told")) as s:
                held_up.go()
                found = r.client.answer(s).result
        same((found["RUNNING"], found["COMMANDS"]), (0, 2))

        # nor where what is left running keeps the sandbox busy
        same(r.command("told", "sleep 300 > /dev/null & echo").outcome, "exit")
        for n in range(3):
            t = held(lambda: r.command("told", HOLD, wall_ms=600000))
            wait_for(lambda: status() == (1, 3 + n), 60, "it runs")
            let_go_of(r, "told")
            same(t.result().outcome, "exit")
            same(status(), (0, 4 + n))


@test("concurrency/creation-does-not-fill-the-queue", seconds=60)
def creation():
    with Runner("--pool", "0") as r:
        r.command("other", "true")
        r.limits(MAX_RUNNING=1, MAX_QUEUED=20)
        holder = threads(1, lambda n: r.command("h", HOLD, wall_ms=600000))
        wait_for(lambda: r.limits(MAX_RUNNING=1, MAX_QUEUED=20)["RUNNING"],
                 10, "a command that holds the slot")
        r.process.send_signal(signal.SIGSTOP)
        got = []
        # all there before its sandbox is: requests that are no commands
        crowd = threads(100, lambda n: r.call(
            wire.FILE_READ, "new", wire.fields(("PATH", "x"))))
        time.sleep(0.5)
        crowd += threads(1, lambda n: got.append(r.command("other",
                                                           "echo in")))
        r.process.send_signal(signal.SIGCONT)
        # all are there, and none of them is in the way of the one that waits
        wait_for(lambda: r.limits(MAX_RUNNING=1, MAX_QUEUED=20)["QUEUED"], 60,
                 "the one that waits")
        let_go_of(r, "h")
        for t in crowd + holder:
            t.join()
        same(got[0].stdout, b"in\n")


@test("concurrency/fairness", seconds=900)
def fairness():
    """200 commands of one tenant, in 20 conversations, all accepted; another
    tenant waits for one turn of a run slot."""
    with Gateway(pool=2, http="sandbox_zone sandbox:1m running=10 queue=200;",
                 location="sandbox_pending 20; sandbox_wall_time 900s;") as g:
        flooder = token(sub="flooder")
        warm = threads(20, lambda n: g.run("f%d" % n, "true", token=flooder))
        g.run("calm", "true", token=token(sub="calm"))
        for t in warm:
            t.join()
        statuses = []
        # none of these ends before it is let go
        flood = threads(200, lambda n: statuses.append(g.command(
            "f%d" % (n % 20), "until [ -e go ]; do sleep 0.1; done",
            token=flooder, timeout=900).status))
        wait_for(lambda: sum(g.status("f%d" % n, token=flooder)["queued"]
                             for n in range(20)) == 190, 100, "a queue")
        other = {"token": token(sub="calm")}
        calm = []
        waits = threads(1, lambda n: calm.append(
            g.run("calm", "echo calm", timeout=900, **other)))
        wait_for(lambda: g.status("calm", **other)["queued"] == 1, 60,
                 "that B waits")
        same(calm, [], "no slot is free")
        # it is A's turn, then B's: two of A's give their slots back
        busy = [n for n in range(20)
                if g.status("f%d" % n, token=flooder)["running"]]
        for n in busy[:2]:
            let_go(g, "f%d" % n, token=flooder)
        waits[0].join()
        same(calm[0]["stdout"], "calm\n")
        done = len(statuses)
        for n in range(20):
            g.request("PUT", "v1/conversations/f%d/fs/go" % n, b"",
                      token=flooder)
        for t in flood:
            t.join()
        check(done < 50, "B waited for A's queue", done)
        same(set(statuses), {200}, "A's own")


@test("limits/tenant-cap", seconds=120)
def tenant_cap():
    with Gateway(pool=0, http="sandbox_zone sandbox:1m per_tenant=2;") as g:
        wait_for(lambda: "2 a tenant" in g.runner_log, 15, "the limits")
        busy = threads(2, lambda n: g.run("busy%d" % n, HOLD))
        wait_for(lambda: all(g.status("busy%d" % n).get("running")
                             for n in range(2)), 20, "two that are busy")
        for method, path, body in (
                ("POST", "third/commands", {"command": "true"}),
                ("PUT", "third/fs/x", b"x"), ("POST", "third/reset", None)):
            r = g.request(method, "v1/conversations/" + path, body)
            same((r.status, r.json["code"]), (429, "too_many_sandboxes"),
                 path)
            check(int(r.headers["Retry-After"]) > 0
                  and "2 sandboxes" in r.json["detail"], "the reason", r)
        same(g.status("third")["state"], "none")
        same(g.run("third", "echo other", token=token(sub="bob"))["stdout"],
             "other\n", "another tenant")
        for n in range(2):
            let_go(g, "busy%d" % n)
        for t in busy:
            t.join()
        # who was just served is not stopped for others
        r = wait_for(lambda: (lambda r: r if r.status == 200 else None)(
            g.command("third", "echo room")), 60, "room")
        same(r.json["stdout"], "room\n")
        for n in range(2):
            same(g.run("busy%d" % n, "echo back")["stdout"], "back\n")


@test("concurrency/slots-come-back", seconds=900)
def slots():
    """One run slot; whatever ends a command, the next one gets it."""
    with Gateway(pool=1, http="sandbox_zone sandbox:1m running=1 queue=20;",
                 location="sandbox_memory 128m;") as g:
        g.expected += ["exited on signal 9", "connect() to unix:"]
        wait_for(lambda: "1 commands run" in g.runner_log, 15, "the limits")

        def free(after):
            r = wait_for(lambda: (lambda r: r if r.status == 200 else None)(
                g.command("free", "echo free")), 60, after)
            same(r.json["stdout"], "free\n", after)

        def later(name, text, **fields):
            out = []
            t = threads(1, lambda n: out.append(
                g.command(name, text, **fields)))[0]
            wait_for(lambda: g.status(name).get("running"), 20, "it runs")
            return t, out

        g.run("way", "true")
        agent = g.agent("way")
        group = cgroup_of(agent)
        same(g.run("way", "sleep 30", timeoutSeconds=1)["outcome"], "timeout")
        free("a time-out")
        same(g.run("way", "exec 3<&-; kill -9 $$")["outcome"], "signal")
        free("a signal")
        g.run("way", "python3 -c 'bytearray(400 << 20)'")
        free("no memory")
        same(g.command("way", "true", cwd="/nowhere").status, 422)
        same(g.command("way", "true", cwd="/tmp/nowhere").status, 422)
        free("a refusal")
        same(g.command("way", "sleep 60", background=True).status, 202)
        free("one in the background")
        t, _ = later("way", "sleep 60", commandId="c1")
        g.request("DELETE", "v1/conversations/way/commands/c1")
        t.join()
        free("a cancel")
        t = threading.Thread(target=lambda: try_it(lambda: g.command(
            "way", "sleep 60", onDisconnect="cancel", timeout=1.5)))
        t.start()
        t.join()
        free("a client that is gone")
        t, _ = later("way", "sleep 60")
        os.kill(agent, signal.SIGKILL)
        t.join()
        free("a dead agent")
        for how in ("reset", "delete"):
            t, _ = later("way", "sleep 60")
            if how == "reset":
                same(g.request("POST", "v1/conversations/way/reset").status,
                     200)
            else:
                same(g.delete("way").status, 204)
            t.join()
            free(how)
        t = threading.Thread(target=lambda: try_it(lambda: g.command(
            "way", HOLD)))
        t.start()
        wait_for(lambda: g.status("way").get("running"), 20, "it runs")
        old = set(g.workers())
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        t.join()
        wait_for(lambda: len(set(g.workers()) - old) == 2, 20, "new workers")
        let_go(g, "way")
        free("dead workers, and what ran to its end")
        t, out = later("way", HOLD + "; echo whole")
        g.kill_runner()
        g.start_runner()
        g.wait_ready()
        wait_for(lambda: "1 commands run" in g.read(
            "logs/runner.%d.log" % g.runner_number), 20, "the limits again")
        waits = held(lambda: free("a new runner"))
        wait_for(lambda: g.status("free").get("queued"), 20, "one that waits")
        let_go(g, "way")
        waits.result()
        t.join()
        same(out[0].json["stdout"], "whole\n")
        t, out = later("way", "sleep 61")
        agent = wait_for(lambda: agent_of(group, "sleep 61"), 20,
                         "who runs it")
        g.kill_runner()
        os.kill(agent, signal.SIGKILL)
        t.join()
        g.start_runner()
        g.wait_ready()
        free("all of it dead")


def try_it(function):
    try:
        function()
    except OSError:
        pass


def agent_of(group, mark):
    """Of our own runner: the parent of the process that runs that text."""
    for pid in in_cgroup(group):
        try:
            with open("/proc/%d/cmdline" % pid) as f:
                if mark not in f.read().replace("\0", " "):
                    continue
            with open("/proc/%d/stat" % pid) as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
            with open("/proc/%d/comm" % parent) as f:
                if f.read().strip() == "sandbox-agent":
                    return parent
        except OSError:
            pass
    return None


def ctl(g, *arguments, seconds=150):
    environment = dict(os.environ, SANDBOX_TOKEN=token(),
                       SANDBOX_URL="http://127.0.0.1:%d/sandbox" % g.port)
    p = subprocess.run([BUILD + "/sandboxctl"] + list(arguments)
                       + ["--socket", g.socket,
                          "--key-file", g.path("runner.key")],
                       env=environment, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=seconds, check=False)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


@test("ctl/host-and-drain", seconds=120)
def drain():
    with Gateway(pool=1) as g:
        g.run("c", "echo kept > f; sleep 1000 > /dev/null 2>&1 &")
        status, out, _ = ctl(g, "status")
        same(status, 0)
        for line in ("host.sandboxes", "1 running", "host.pool",
                     "of 10 running", "of 200 queued"):
            check(line in out, "status lacks", line, out)

        status, out, err = ctl(g, "drain", "--wait", "0")
        same((status, out, err), (0, "all has stopped; the files of 1 "
                                  "sandboxes are kept\n", ""))
        r = g.command("c", "true")
        same((r.status, r.json["code"], r.headers["Retry-After"]),
             (503, "runner_stopping", "30"))
        check(g.status("c")["state"] == "idle", "its state", g.status("c"))
        wait_for(lambda: g.request("GET", "health?ready", token=None).status
                 == 503, 15, "health to tell")
        r = g.request("GET", "v1/limits").json
        check("drain" in str(r), "limits say why", r)
        check(", draining" in ctl(g, "status")[1], "status says so")

        same(ctl(g, "drain", "--resume")[:2], (0, "sandboxes start again\n"))
        same(g.output("c", "cat f; pgrep -c sleep; true"), "kept\n0\n")
        g.wait_ready()

        status, _, err = ctl(g, "drain", "--wait", "soon")
        check(status == 2 and "soon" in err, "got", status, err)
        g.stop_runner()
        status, _, err = ctl(g, "drain")
        check(status == 1 and "no runner answers" in err, "got", status, err)
        g.start_runner()


main()
