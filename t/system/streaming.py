#!/usr/bin/env python3
"""Commands as agents need them, over HTTP with real containers: streams,
resuming, input, background, cancelling, the history; HTTP/1.1 and HTTP/2.
Group streaming of the cases, what exec and concurrency have of it.  The wire
below it is in stream_wire.py, events against a mock in t/stream.t."""

import base64
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, NGINX, alive, free_port, in_cgroup  # noqa: E402
from gateway import Process, cgroup_of, token, wait_for      # noqa: E402
from hold import HOLD, held, let_go                          # noqa: E402
from stream import Stream                                    # noqa: E402
from tap import SANITIZED, check, main, same, test           # noqa: E402

g = None
PROTOCOLS = (False, True)               # HTTP/1.1, HTTP/2
KINDS = ("text/event-stream", "application/x-ndjson")


def start():
    global g
    g = Gateway(pool=2, location="sandbox_pending 30; sandbox_wall_time 600s;"
                "sandbox_background_time 600s;")
    g.h2_port, g.front, g.zipped = (free_port() for _ in range(3))
    g.options["http"] = """
    sandbox_zone sandbox:1m running=60 queue=400;
    gzip_types text/event-stream application/x-ndjson;
    gzip_min_length 1;
    gzip_proxied any;
    server {
        listen 127.0.0.1:%d http2;
        location /sandbox/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_wall_time 600s;
            sandbox_background_time 600s;
        }
    }
    server {
        listen 127.0.0.1:%d;
        location / {
            proxy_pass http://127.0.0.1:%d;
            proxy_http_version 1.1;
            proxy_read_timeout 20s;
        }
    }
    server {
        listen 127.0.0.1:%d;
        gzip on;
        location /sandbox/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
        }
    }
    """ % (g.h2_port, g.dir, g.front, g.zipped, g.zipped, g.dir)
    g.start()


def stop():
    g.stop()


def stream(conversation, text, h2=False, **options):
    if h2:
        options.setdefault("port", g.h2_port)
    return Stream(g, conversation, text, h2=h2, **options)


def whole(conversation, text, h2=False, **options):
    """A stream to its end."""
    with stream(conversation, text, h2, **options) as s:
        s.finish()
        return s


def command_path(conversation, command):
    return "v1/conversations/%s/commands/%s" % (conversation, command)


def cancel(conversation, command):
    r = g.request("DELETE", command_path(conversation, command))
    same(r.status, 200, repr(r))
    return r.json


def known(conversation, command):
    r = g.request("GET", command_path(conversation, command))
    same(r.status, 200, repr(r))
    return r.json


def memory(pids):
    """KiB of their own: who else maps a file now, and soon no more, does not
    matter."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/smaps_rollup" % pid) as f:
                total += sum(int(line.split()[1]) for line in f
                             if line.startswith(("Anonymous:", "Pss_Shmem:")))
        except (FileNotFoundError, ProcessLookupError):
            pass                        # a worker that was on its way out
    return total


def together(functions):
    """Runs them in threads, all must succeed."""
    failures = []

    def one(function):
        try:
            function()
        except Exception as error:
            failures.append("%s: %s" % (type(error).__name__, error))

    threads = [threading.Thread(target=one, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(failures[:3], [], "failures")


@test("streaming/one-end", seconds=400)
def one_end():
    """The stream reader refuses anything after a result."""
    for h2 in PROTOCOLS:
        for text, fields, outcome, code in (
                ("exit 3", {}, "exit", 3), ("true", {}, "exit", 0),
                ("kill -9 $$", {}, "signal", 137),
                ("echo x; sleep 30", {"timeoutSeconds": 1}, "timeout", 124),
                ("head -c 100 /dev/zero >&2", {}, "exit", 0),
                ("sleep 60 & echo hi", {}, "exit", 0)):
            s = whole("end", text, h2, **fields)
            same((s.result["outcome"], s.result["exitCode"]),
                 (outcome, code), text)
            same(s.kinds[0], "started")
            same(s.result["timedOut"], outcome == "timeout")
            same(s.result["commandId"], s.events[0]["commandId"])
        with stream("end", "echo $$; sleep 60", h2, commandId="c%d" % h2,
                    stdin="") as s:
            s.until("stdout")
            cancel("end", "c%d" % h2)
            same(s.finish()["outcome"], "cancelled")
    g.run("end", "pkill sleep; true")


@test("streaming/resume", seconds=600)
def resume():
    for h2 in PROTOCOLS:
        for kind in KINDS:
            name = "r%d%s" % (h2, kind[0])
            with stream("resume", "for n in $(seq 60); do echo $n; echo e$n "
                        ">&2; sleep 0.02; done", h2, accept=kind,
                        commandId=name) as s:
                s.until("stdout")
                events, seq = list(s.events), s.seq
            rounds = 0
            while events[-1]["type"] != "result":
                how = {"last_event_id": seq} if rounds % 2 else {"after": seq}
                with stream("resume", name, h2, method="GET", accept=kind,
                            **how) as s:
                    for event in s:
                        events.append(event)
                        seq = s.seq
                        if len(s.events) == 9:
                            break
                rounds += 1
                check(rounds < 100, "it does not end")
            same([e["seq"] for e in events],
                 list(range(1, len(events) + 1)), "numbers")
            for stream_name, mark in (("stdout", ""), ("stderr", "e")):
                same("".join(e["data"] for e in events
                             if e["type"] == stream_name),
                     "".join("%s%d\n" % (mark, n) for n in range(1, 61)))
            last = seq

    path = command_path("resume", name)
    streaming = {"Accept": KINDS[0]}
    r = g.request("GET", path + "?after=%d" % (last + 1), headers=streaming)
    same((r.status, r.json["code"]), (400, "seq_unknown"))
    r = g.request("GET", path + "?after=%d" % last, headers=streaming)
    check(r.body.startswith(b"id: %d\nevent: result\n" % last), "again:", r)
    r = g.request("GET", path, headers=streaming, token=token(sub="mallory"))
    same(r.status, 404)
    r = g.request("GET", command_path("resume", "never"), headers=streaming)
    same((r.status, r.json["code"]), (404, "command_not_found"))

    # after the retention: 32 more commands
    for n in range(33):
        g.run("resume", "true")
    r = g.request("GET", path + "?after=3", headers=streaming)
    same((r.status, r.json["code"]), (410, "expired"))
    r = known("resume", name)
    same((r["outcome"], r["stdout"], r["stderr"], r["outputExpired"]),
         ("exit", None, None, True))


@test("streaming/last-bytes", seconds=1000)
def last_bytes():
    """2,000 times x and the end, 200 times a megabyte and the end."""
    def small(n):
        def run():
            for i in range(250):
                s = whole("last%d" % (n % 4), "printf x; exit", i % 25 == 9,
                          accept=KINDS[i % 2])
                same((s.text, s.result["stdoutBytes"]), ("x", 1))
        return run

    def large(n):
        def run():
            for i in range(50):
                s = whole("last%d" % n, "head -c 1000000 /dev/zero | "
                          "tr '\\0' y; exit", i % 5 == 4)
                gaps = sum(e["bytes"] for e in s.events
                           if e["type"] == "gap")
                same(len(s.bytes("stdout")) + gaps, 1000000)
                same(s.bytes("stdout")[-10:], b"y" * 10)
                same(gaps, 0, "a megabyte is kept")
        return run
    together([small(n) for n in range(8)])
    together([large(n) for n in range(4)])


@test("streaming/framing")
def framing():
    data = ("a\nb\r\nc\rd\n\n\n: comment\ndata: x\ndata:y\nid: 99\nevent: z\n"
            ":\n::\nretry: 1\n\u2028\u2029\ufeff\t\"\\\n").encode()
    data += bytes(range(1, 32)) + b"\x7f end without a line feed"
    for h2 in PROTOCOLS:
        for kind in KINDS:
            s = whole("framing", "cat; cat /dev/null >&2", h2, accept=kind,
                      stdinBase64=base64.b64encode(data).decode())
            same(s.bytes("stdout"), data)
            s = whole("framing", "base64 -d", h2, accept=kind,
                      stdin=base64.b64encode(bytes(range(256)) * 20).decode())
            same(s.bytes("stdout"), bytes(range(256)) * 20)


@test("streaming/one-kilobyte-a-second", seconds=180)
def kilobyte():
    """`yes` for its whole CPU time, somebody reads a bit of it: nobody's
    memory grows."""
    g.run("yes", "true")
    agent = g.agent("yes")
    before = memory(g.workers()), memory([agent])
    most = [0, 0]
    with stream("yes", "yes 0123456789012345678901234567890123456789",
                timeoutSeconds=12, timeout=100) as s:
        s.until("started")
        for _ in range(10):
            s.response.read1(1000)
            time.sleep(1)
            most = [max(most[0], memory(g.workers()) - before[0]),
                    max(most[1], memory([agent]) - before[1])]
    check(most[0] <= 2048 and (SANITIZED or most[1] <= 2048 + 1024),
          "grown by (worker, agent; KiB): %r" % most)


@test("streaming/order-across")
def order_across():
    for h2 in PROTOCOLS:
        s = whole("order", "python3 -c '\nimport sys\nfor n in range(1000):\n"
                  "    for f in sys.stdout, sys.stderr:\n"
                  "        f.write(str(n) + chr(10)); f.flush()\n'", h2)
        seqs = [e["seq"] for e in s.events]
        same(seqs, sorted(set(seqs)))
        lines = "".join("%d\n" % n for n in range(1000)).encode()
        same(s.bytes("stdout"), lines)
        same(s.bytes("stderr"), lines)


# counts as long as nobody says that it is enough

COUNTING = "n=1; until [ -e enough ]; do echo $n; n=$((n + 1)); sleep 0.1; " \
    "done; echo end"


def enough(conversation, gateway=None):
    path = "v1/conversations/%s/fs/enough" % conversation
    same((gateway or g).request("PUT", path, b"").status, 201)


def counted(text):
    """Every number once, and the end."""
    numbers = text.split()
    check(len(numbers) > 1, "so few:", text)
    same(text, "".join("%d\n" % n for n in range(1, len(numbers)))
         + "end\n")


@test("streaming/reload", seconds=90)
def reload():
    """A reload, and a worker killed, in mid-stream: every byte once."""
    for how in ("reload", "kill"):
        streams = [stream("re%s%d" % (how, n), COUNTING, n % 2 == 1,
                          commandId="r", accept=KINDS[n // 2])
                   for n in range(4)]
        for s in streams:
            s.until("stdout")
        if how == "reload":
            g.reload()
        else:
            g.expected.append("exited on signal 9")
            for pid in g.workers():
                os.kill(pid, signal.SIGKILL)
        for n, s in enumerate(streams):
            try:
                for _ in s:
                    pass
            except Exception:
                check(how == "kill", "an event was cut by a reload")
            check(s.result is None, "over too early")
            s.close()
            if how == "reload" and s.kind == "sse":
                same(s.parser.retry, 1000)
            enough("re%s%d" % (how, n))
            rest = whole("re%s%d" % (how, n), "r", n % 2 == 1, method="GET",
                         after=s.seq)
            counted((s.bytes("stdout") + rest.bytes("stdout")).decode())
            same(g.status("re%s%d" % (how, n))["commands"], 1)


@test("streaming/upgrade", seconds=90)
def upgrade():
    """A binary upgrade of nginx in mid-stream."""
    other = Gateway(runner=None).beside(g)
    other.configure()
    pids = []
    try:
        # in the background, for only such a master can be replaced
        subprocess.run([NGINX, "-c", other.path("nginx.conf"), "-e",
                        other.path("logs/error.log")], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        pids.append(Process(wait_for(lambda: read_pid(other), 20,
                                     "a master")))
        other.wait_ready()
        with Stream(other, "upgrade", COUNTING, commandId="u") as s:
            s.until("stdout")
            os.kill(pids[0], signal.SIGUSR2)
            pids.append(Process(wait_for(lambda: read_pid(other, pids[0]), 20,
                                         "another master")))
            os.kill(pids[0], signal.SIGQUIT)
            for _ in s:
                pass
            check(s.result is None, "over too early")
            same(s.parser.retry, 1000)
            enough("upgrade", other)
            rest = Stream(other, "upgrade", "u", method="GET", after=s.seq)
            rest.finish()
            rest.close()
            counted(s.text + rest.text)
        wait_for(lambda: not alive(pids[0]), 20, "the end of the old one")
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not any(alive(p) for p in pids), 20, "their end")
        other.stop()


def read_pid(other, not_this=None):
    try:
        pid = int(other.read("nginx.pid"))
    except ValueError:
        return None
    return pid if pid != not_this else None


@test("streaming/agent-killed", seconds=60)
def agent_killed():
    """The last event says that the sandbox was lost, and so does the receipt
    when it is there again."""
    g.run("lost", "true")
    agent = g.agent("lost")
    g.expected.append("the agent of slot")
    for h2 in PROTOCOLS:
        with stream("lost", "echo up; sleep 100", h2, stdin="",
                    commandId="l%d" % h2) as s:
            s.until("stdout")
            os.kill(agent, signal.SIGKILL)
            result = s.finish()
            same((result["outcome"], result["exitCode"], result["seq"]),
                 ("runner_lost", None, 2))
        same(g.output("lost", "echo again"), "again\n")
        same(known("lost", "l%d" % h2)["outcome"], "runner_lost")
        s = whole("lost", "l%d" % h2, method="GET", after=2)
        same(s.result["outcome"], "runner_lost")
        agent = g.agent("lost")


@test("streaming/runner-killed", seconds=90, backends="local", why="runner")
def runner_killed():
    """The runner is not on the way of events: nobody notices."""
    with stream("run", "for n in $(seq 30); do echo $n; sleep 0.1; done",
                commandId="r") as s:
        s.until("stdout")
        g.kill_runner()
        g.start_runner()
        same(s.finish()["outcome"], "exit")
        same(s.text, "".join("%d\n" % n for n in range(1, 31)))
    g.wait_ready()
    same(known("run", "r")["outcome"], "exit")


@test("exec/background-streams")
def background_streams():
    """What is left running holds no stream; what it says later is nowhere."""
    for h2 in PROTOCOLS:
        s = whole("left", "(%s; echo late; echo again > f%d) & echo now"
                  % (HOLD, h2), h2)
        same(s.text, "now\n")
        check(s.result["backgroundProcesses"] >= 1, "not counted")
        let_go(g, "left")
        wait_for(lambda: whole("left", "cat f%d; echo ok" % h2, h2).text
                 == "again\nok\n", 20, "the late writer")


@test("exec/background", seconds=90, backends="local", why="network")
def background():
    """A server: answered at once, listed, read while it runs, cancelled."""
    r = g.command("server", "echo starting; exec python3 -u -m http.server "
                  "8111 --bind 127.0.0.1", background=True,
                  commandId="server")
    same(r.status, 202)
    same(r.json["state"], "running")
    same(r.json["timeoutSeconds"], 600)
    same(r.headers["Content-Location"],
         "/sandbox/v1/conversations/server/commands/server")
    # the next one has its turn, and can talk to it
    g.output("server", "for n in $(seq 200); do curl -s 127.0.0.1:8111 "
             "> /dev/null && exit; sleep 0.5; done; exit 1")
    with stream("server", "server", method="GET") as s:
        same(s.until("stdout")["data"][:8], "starting")
        s.until("stderr")
    same(known("server", "server")["state"], "running")
    listed = g.request("GET", "v1/conversations/server/commands").json
    entry = [c for c in listed["commands"] if c["commandId"] == "server"][0]
    same((entry["state"], entry["background"], entry["outcome"]),
         ("running", True, None))
    check("http.server" in entry["command"], "command:", entry)
    result = cancel("server", "server")
    same(result["outcome"], "cancelled")
    same(g.run("server", "curl -s 127.0.0.1:8111")["exitCode"], 7)
    check("GET / HTTP" in known("server", "server")["stderr"],
          "its log:", known("server", "server"))

    # followed to its end, and its cap
    s = whole("server", "echo a; sleep 1; echo b", background=True,
              accept=KINDS[1])
    same((s.text, s.result["timeoutSeconds"]), ("a\nb\n", 600))
    r = g.command("server", "sleep 30", background=True, timeoutSeconds=1,
                  commandId="capped")
    same((r.status, r.json["timeoutSeconds"]), (202, 1))
    same(whole("server", "capped", method="GET").result["outcome"],
         "timeout")
    # repeated: the same one
    r = g.command("server", "sleep 30", background=True, timeoutSeconds=1,
                  commandId="capped")
    same((r.status, r.json["outcome"]), (200, "timeout"))


@test("exec/background-many", seconds=90)
def background_many():
    for n in range(16):
        r = g.command("many", "sleep 550", background=True,
                      commandId="b%d" % n)
        same(r.status, 202)
    r = g.command("many", "sleep 550", background=True)
    same((r.status, r.json["code"]), (429, "too_many_pending"))
    check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
    wait_for(lambda: g.status("many")["backgroundProcesses"] >= 16, 10,
             "sixteen processes: %r" % g.status("many"))
    together([lambda n=n: cancel("many", "b%d" % n) for n in range(16)])
    same(g.command("many", "true", background=True).status, 202)


@test("exec/stdin-http", seconds=120)
def stdin_http():
    """A conversation with a program, and 16 MiB through it."""
    path = command_path("stdin", "py") + "/stdin"
    for h2 in PROTOCOLS:
        with stream("stdin", "exec python3 -u -i -c 'import sys; "
                    "sys.ps1 = str()'", h2, commandId="py%d" % h2) as s:
            s.until("started")
            path = command_path("stdin", "py%d" % h2) + "/stdin"
            same(g.request("POST", path, b"print(6 * 7)\n").json,
                 {"bytes": 13})
            s.until_text("42\n")
            g.request("POST", path, b"print(6 * 8)\n")
            s.until_text("42\n48\n")
            same(g.request("POST", path + "?eof=1").json, {"bytes": 0})
            same(s.finish()["outcome"], "exit")
        r = g.request("POST", path, b"more")
        same((r.status, r.json["code"]), (409, "command_ended"))

    data = random.Random(5).randbytes(16 << 20)
    g.command("stdin", "sha256sum", background=True, commandId="sum")
    r = g.request("POST", command_path("stdin", "sum") + "/stdin?eof=1", data)
    same((r.status, r.json), (200, {"bytes": len(data)}), repr(r))
    wait_for(lambda: "outcome" in known("stdin", "sum"), 30, "its end")
    same(known("stdin", "sum")["stdout"].split()[0],
         hashlib.sha256(data).hexdigest())

    # nobody types: closed, open by the rules of docs/api.md
    same(g.run("stdin", "cat")["stdout"], "")
    r = g.command("stdin", "sleep 550", background=True, stdinOpen=False,
                  commandId="closed")
    r = g.request("POST", command_path("stdin", "closed") + "/stdin", b"x")
    same((r.status, r.json["code"]), (409, "stdin_closed"))
    cancel("stdin", "closed")
    same(whole("stdin", "cat", accept=KINDS[1]).result["outcome"], "exit")


def sleeps(pid, *seconds):
    try:
        with open("/proc/%d/cmdline" % pid) as f:
            return f.read() in ["sleep\0%s\0" % n for n in seconds]
    except OSError:
        return False


@test("concurrency/no-mixing-of-streams", seconds=120)
def no_mixing():
    """60 streams in 20 conversations, each has its own secret and no other."""
    def one(n):
        def run():
            for i in range(5):
                secret = "secret-%d-%d" % (n, i)
                s = whole("mix%d" % (n % 20), "for n in 1 2 3; do echo %s; "
                          "done" % secret, n % 3 == 0, accept=KINDS[i % 2])
                same(s.text, (secret + "\n") * 3)
        return run
    together([one(n) for n in range(60)])


@test("streaming/history")
def history():
    """Pages over all that ran, newest first; nothing of another's."""
    for n in range(7):
        g.run("pages", "exit %d" % n, commandId="p%d" % n)
    found, cursor = [], ""
    while True:
        r = g.request("GET", "v1/conversations/pages/commands?limit=3"
                      + cursor)
        same(r.status, 200)
        check(len(r.json["commands"]) <= 3, "too many on a page")
        found += r.json["commands"]
        if r.json["next"] is None:
            break
        cursor = "&cursor=" + r.json["next"]
    same([c["commandId"] for c in found],
         ["p%d" % n for n in reversed(range(7))])
    same([c["exitCode"] for c in found], list(reversed(range(7))))
    same(found[0]["command"], "exit 6")
    check(found[0]["acceptedAt"] <= found[0]["startedAt"]
          <= found[0]["endedAt"], "times:", found[0])
    r = g.request("GET", "v1/conversations/pages/commands",
                  token=token(sub="mallory"))
    same((r.status, r.json["code"]), (404, "no_sandbox"))


# What mostly waits.

@test("streaming/slow-reader", seconds=600, beside=True)
def slow_reader():
    """A minute without reading, while 100 MB are printed; both protocols at
    the same time.  The command goes on, what was dropped is told."""
    g.run("slow0", "true")
    g.run("slow1", "true")
    agents = [g.agent("slow0"), g.agent("slow1")]
    before = memory(g.workers()), memory(agents)

    def reader(h2):
        def run():
            name = "slow%d" % h2
            with stream(name, "head -c 100000000 /dev/zero | tr '\\0' x; "
                        "echo end >&2", h2, commandId="s", timeout=200) as s:
                s.until("started")
                time.sleep(60)
                wait_for(lambda: known(name, "s").get("outcome") == "exit",
                         60, "the end of the command")
                grown = memory(g.workers()) - before[0]
                check(grown < 4096, "workers grew by %d KiB" % grown)
                s.finish()
                gaps = sum(e["bytes"] for e in s.events if e["type"] == "gap")
                same(len(s.bytes("stdout")) + gaps, 100000000)
                check(gaps > 50000000, "gaps of %d bytes" % gaps)
                same(s.bytes("stderr"), b"end\n")
        return run
    together([reader(h2) for h2 in PROTOCOLS])
    grown = memory(agents) - before[1]
    check(SANITIZED or grown < 2 * 4096, "agents grew by %d KiB" % grown)


@test("streaming/first-event", beside=True)
def first_event():
    """Through gzip and a second nginx in front, and without."""
    def one(n, options):
        g.run("first%d" % n, "true")
        with stream("first%d" % n, "echo a; " + HOLD + "; echo b",
                    **options) as s:
            s.until_text("a\n")         # or it is held back
            let_go(g, "first%d" % n)
            s.finish()
            same(s.kinds, ["started", "stdout", "stdout", "result"])
            same(s.text, "a\nb\n")
        if "headers" in options:
            same(s.headers["content-encoding"], "gzip")

    zipped = {"Accept-Encoding": "gzip"}
    together([lambda n=n, options=options: one(n, options)
              for n, options in enumerate((
                  dict(), dict(h2=True), dict(accept=KINDS[1]),
                  dict(port=g.front), dict(port=g.zipped, headers=zipped),
                  dict(port=g.front, headers=zipped)))])


@test("streaming/heartbeat", seconds=400, beside=True)
def heartbeat():
    """Half a minute of silence, through a proxy that cuts after 20 s."""
    def silent(kind):
        s = whole("beat" + kind[0], "echo a; sleep 32; echo b", port=g.front,
                  accept=kind)
        same(s.text, "a\nb\n")
        check(s.parser.pings >= 2, "signs of life:", s.parser.pings)

    def queued():
        # one that waits for its turn has them, too
        t = threading.Thread(target=lambda: g.run("beat", "sleep 32"))
        t.start()
        wait_for(lambda: g.status("beat").get("running") == 1, 10, "the first")
        s = whole("beat", "echo turn", port=g.front)
        check(s.parser.pings >= 1, "signs of life of a queued one")
        same(s.text, "turn\n")
        t.join()

    together([queued] + [lambda kind=kind: silent(kind) for kind in KINDS])


@test("streaming/stream-client-gone", seconds=60, beside=True)
def client_gone():
    """It goes on, and can be read by who knows its id, or looks it up."""
    for h2 in PROTOCOLS:
        with stream("gone", "echo a; %s; echo b; touch done%d" % (HOLD, h2),
                    h2) as s:
            command = s.until("started")["commandId"]
            s.until("stdout")
        same(known("gone", command)["state"], "running")
        let_go(g, "gone")
        wait_for(lambda: "outcome" in known("gone", command), 20, "its end")
        same(known("gone", command)["stdout"], "a\nb\n")
        same(g.output("gone", "ls done%d" % h2), "done%d\n" % h2)
    listed = g.request("GET", "v1/conversations/gone/commands").json
    check(command in [c["commandId"] for c in listed["commands"]],
          "not in the history:", listed)


@test("streaming/sandbox-deleted", seconds=60, beside=True)
def deleted():
    """DELETE and reset end streams, those that run and those that wait."""
    for method, path in (("DELETE", ""), ("POST", "/reset")):
        with stream("del", "echo up; sleep 100", stdin="",
                    commandId=method) as s:
            s.until("stdout")
            queued = stream("del", "touch ran", True, stdin="",
                            commandId=method + "-2")
            check(g.request(method, "v1/conversations/del" + path).status
                  in (200, 204), "not ended")
            same(s.finish()["outcome"], "sandbox_deleted")
            for _ in queued:
                pass
            last = queued.events[-1]
            check(last.get("outcome") == "sandbox_deleted"
                  or last["type"] == "refused", "the queued one:", last)
            queued.close()
        same(g.run("del", "ls ran")["exitCode"], 2)


@test("exec/stdin-nobody-reads", seconds=90, beside=True)
def stdin_nobody():
    """More than the pipe and the agent hold waits, and is told what came of
    it when the command ends."""
    g.command("deaf", HOLD, background=True, commandId="deaf")
    t = held(lambda: g.request("POST", command_path("deaf", "deaf")
                               + "/stdin", b"x" * (4 << 20)))
    time.sleep(3)
    check(t.is_alive(), "it did not wait", t.value)
    let_go(g, "deaf")
    r = t.result()
    check((r.status == 200 and r.json["bytes"] < 4 << 20)
          or (r.status, r.json.get("code")) == (409, "command_ended"),
          "told:", r)


@test("concurrency/cancel", seconds=120, beside=True)
def cancels():
    """A running one with three generations, a queued one, an ended one."""
    for h2 in PROTOCOLS:
        name = "cancel%d" % h2
        g.run(name, "true")
        group = cgroup_of(g.agent(name))
        with stream(name, "bash -c 'bash -c \"sleep 301 & sleep 302 & wait\" "
                    "& sleep 303 & wait' & setsid nohup sleep 304 & echo up; "
                    "wait", h2, commandId="run", stdin="") as running:
            running.until("stdout")
            queued = stream(name, "touch ran", h2, commandId="wait",
                            stdin="")        # its header comes with a ping
            same(g.status(name)["queued"], 1, "queued")
            same(known(name, "wait")["state"], "queued")
            result = cancel(name, "wait")
            same((result["outcome"], result["commandId"]),
                 ("cancelled", "wait"))
            same(queued.finish()["outcome"], "cancelled")
            check("started" not in queued.kinds, "it had its turn")
            queued.close()

            result = cancel(name, "run")
            same((result["outcome"], result["stdout"]), ("cancelled", "up\n"))
            left = [p for p in in_cgroup(group)
                    if sleeps(p, "301", "302", "303", "304")]
            same(left, [], "processes of the tree")
            same(running.finish()["outcome"], "cancelled")
            same(running.text, "up\n")
        same(g.run(name, "ls ran")["exitCode"], 2, "the queued one ran")
        g.run(name, "echo fine", commandId="done")
        result = cancel(name, "done")
        same((result["outcome"], result["exitCode"], result["stdout"]),
             ("exit", 0, "fine\n"))


@test("concurrency/cancel-on-disconnect", seconds=90, beside=True)
def on_disconnect():
    for h2 in PROTOCOLS:
        name = "leave%d" % h2
        s = stream(name, "echo up; sleep 300", h2, commandId="l",
                   onDisconnect="cancel", stdin="")
        s.until("stdout")
        s.close(reset=h2)
        result = wait_for(lambda: (lambda r: r if "outcome" in r else None)(
            known(name, "l")), 15, "the end of the command")
        same((result["outcome"], result["stdout"]), ("cancelled", "up\n"))
        # and without it, nothing happens
        s = stream(name, "echo up; sleep 2; echo end", h2, commandId="m")
        s.until("stdout")
        s.close()
        wait_for(lambda: "outcome" in known(name, "m"), 15, "its end")
        same(known(name, "m")["stdout"], "up\nend\n")


if __name__ == "__main__":
    main(start, stop)
