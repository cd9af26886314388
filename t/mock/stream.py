#!/usr/bin/env python3
"""Streams that need time, several workers, HTTP/2, a proxy in front, or a
client that misbehaves; the runner is a mock.  What events look like is in
t/stream.t; real commands are in t/system/streaming.py."""

import json
import os
import signal
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import Gateway, alive, free_port, token, wait_for  # noqa: E402
from stream import Stream                                    # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = slim = None
PROTOCOLS = (False, True)               # HTTP/1.1, HTTP/2
ASAN = "/asan/" in os.environ.get("SANDBOX_TEST_NGINX", "")


def serves(extra="sandbox_send_timeout 10m;"):
    return """
        location /sandbox/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            %s
        }
    """ % (g.dir, extra)


def start(sanitizer=""):
    global g
    # clients that read one after another have to wait for each other
    g = Gateway(runner="mock", workers=2, log_level="info",
                location="sandbox_send_timeout 10m;")
    g.h2_port, g.front, g.zipped, g.hasty, g.patient, g.patient_h2, \
        g.steady, g.steady_h2 = (free_port() for _ in range(8))
    g.sanitizer = sanitizer
    g.options["main"] = "worker_rlimit_nofile 8192;"
    g.expected.append("setrlimit(RLIMIT_NOFILE")   # not under valgrind
    g.options["http"] = """
    gzip_types text/event-stream application/x-ndjson;
    gzip_min_length 1;
    gzip_proxied any;
    gzip_comp_level 1;
    server {
        listen 127.0.0.1:%d http2;
        %s
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
        %s
    }
    server {
        listen 127.0.0.1:%d sndbuf=64k;
        send_timeout 1s;
        %s
    }
    server {
        listen 127.0.0.1:%d sndbuf=64k;
        send_timeout 1s;
        %s
    }
    server {
        listen 127.0.0.1:%d http2 sndbuf=64k;
        send_timeout 1s;
        %s
    }
    server {
        listen 127.0.0.1:%d sndbuf=64k;
        send_timeout 1s;
        %s
    }
    server {
        listen 127.0.0.1:%d http2 sndbuf=64k;
        send_timeout 1s;
        %s
    }
    """ % (g.h2_port, serves(), g.front, g.zipped, g.zipped, serves(),
           g.hasty, serves("sandbox_send_timeout 5s;"),
           g.patient, serves(), g.patient_h2, serves(),
           g.steady, serves("sandbox_send_timeout 15s;"),
           g.steady_h2, serves("sandbox_send_timeout 15s;"))
    g.start()


def stop():
    for one in {g, slim} - {None}:
        one.stop()


def measured(function):
    """The address sanitizer keeps up to 256 MB of what was freed; where memory
    is measured, it has an nginx of its own that keeps less."""
    def run():
        global g, slim
        usual = g
        try:
            if slim is None:
                start(":quarantine_size_mb=1:thread_local_quarantine_size_kb="
                      "16:allocator_release_to_os_interval_ms=0")
                slim = g
            g = slim
            function()
        finally:
            g = usual
    return run if ASAN else function


def patient(h2):
    return g.patient_h2 if h2 else g.patient


def steady(h2):
    return g.steady_h2 if h2 else g.steady


def stream(conversation, text, h2=False, **options):
    if h2:
        options.setdefault("port", g.h2_port)
    return Stream(g, conversation, text, h2=h2, **options)


def seen(conversation):
    return json.loads(g.run(conversation, "mock: seen")["stdout"])


def let_end(name, data=b""):
    """The last of its stdin, for a command "r" that is kept."""
    r = g.request("POST", "v1/conversations/%s/commands/r/stdin?eof=1" % name,
                  data)
    same((r.status, r.json), (200, {"bytes": len(data)}), "stdin of " + name)


def begun(name):
    """Commands of a conversation."""
    return g.status(name).get("commands")


def kill_workers():
    """All of them, and until they are dead: none takes another connection."""
    g.expected.append("exited on signal 9")
    old = workers()
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(alive(p) for p in old), 20, "their end")


def pss(pids):
    """Memory of these processes, KiB; but not what is mapped from files: who
    else has those open changes."""
    total = 0
    for pid in pids:
        with open("/proc/%d/smaps_rollup" % pid) as f:
            total += sum(int(line.split()[1]) for line in f
                         if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total


def workers():
    """The two that there are, once those of before a reload have gone."""
    return wait_for(lambda: (lambda pids: pids if len(pids) == 2 else None)(
        g.workers()), 60, "the end of old workers")


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


@test("streaming/first-event", beside=True)
def first_event():
    """Each event comes when it happens: straight, through gzip, through a
    second nginx that buffers what it may, and both protocols."""
    for n, options in enumerate((
            dict(), dict(h2=True), dict(port=g.front),
            dict(port=g.zipped, headers={"Accept-Encoding": "gzip"}),
            dict(port=g.front, headers={"Accept-Encoding": "gzip"}),
            dict(accept="application/x-ndjson", port=g.front))):
        name = "first%d" % n
        with stream(name, "mock: keep stdout=a copy", commandId="r",
                    **options) as s:
            s.until("stdout")
            same(s.text, "a", "before there is more")
            let_end(name, b"b")
            same(s.finish()["outcome"], "exit")
            same(s.text, "ab")
            if "Accept-Encoding" in s.sent:
                same(s.headers.get("content-encoding"), "gzip")


@test("streaming/heartbeat", beside=True)
def heartbeat():
    """Through a proxy that cuts idle connections after 20 s."""
    def one(accept):
        steps = "mock: stdout=a " + "sleep=3 ping " * 8 + "stdout=b"
        with stream("beat" + accept[0], steps, port=g.front,
                    accept=accept) as s:
            same(s.finish()["outcome"], "exit")
            same(s.text, "ab")
            check(s.parser.pings >= 3, "signs of life:", s.parser.pings)
    together([lambda accept=accept: one(accept) for accept in
              ("text/event-stream", "application/x-ndjson")])


def refuse_to_read(options, steps, seconds):
    """A client that reads nothing for so long, then all: the worker's memory
    in between, and the stream."""
    before = pss(workers())
    with stream("slow", steps, **options) as s:
        s.until("started")
        time.sleep(seconds)
        during = pss(workers())
        result = s.finish()
        check(during - before < 2048, "workers grew by %d KiB: %r"
              % (during - before, options))
        return s, result


@test("streaming/lost-pings", seconds=120, beside=True)
def lost_pings():
    """No sign of life for 15 s: the last event says so."""
    with stream("pings", "mock: stdout=a sleep=140") as s:
        result = s.finish()
        same(result["outcome"], "runner_lost")
        same(result["seq"], 2)
        same(s.parser.last_id, "2")


@test("exec/stdin-waits", seconds=120, beside=True)
def stdin_waits():
    """An agent that lets stdin wait says that it is alive, and that counts."""
    g.run("waits", "mock: on=STDIN," + "head%20" + "sleep=4%20ping%20" * 5
          + "bytes=3%20result")
    r = g.request("POST", "v1/conversations/waits/commands/x/stdin", b"abc")
    same((r.status, r.json), (200, {"bytes": 3}))


@test("streaming/stopped-reader", beside=True)
def stopped_reader():
    """It is waited for so long as sandbox_send_timeout says, signs of life
    of the agent change nothing; then it counts as gone."""
    def one(h2):
        steps = "mock: fill=stdout,x,40000000 " + "ping sleep=0.2 " * 150
        name = "stopped%d" % h2
        with stream(name, steps, h2, port=steady(h2)) as s:
            s.until("started")
            time.sleep(1.4)                 # beyond nginx's send_timeout
            s.until("stdout", 20)
            wait_for(lambda: any("client timed out" in line and name in line
                                 for line in g.error_log.splitlines()),
                     60, "a word in the log")
            got = len(s.events)
            try:
                s.finish()
            except (AssertionError, OSError, Exception) as error:
                check(s.result is None, "a result after the time-out", error)
            else:
                check(False, "the connection was not closed")
            check(got < len(s.events), "nothing was buffered at all")
    together([lambda h2=h2: one(h2) for h2 in PROTOCOLS])


@test("streaming/slow-but-reading", beside=True)
def slow_but_reading():
    """Who takes something now and then is not stopped."""
    def one(h2):
        with stream("steady%d" % h2, "mock: fill=stdout,x,30000000", h2,
                    port=steady(h2)) as s:
            s.until("started")
            for n in range(1, 21):          # longer than that in all
                time.sleep(0.9)
                s.until("stdout", 10 * n)
            same(s.finish()["stdoutBytes"], 30000000)
    together([lambda h2=h2: one(h2) for h2 in PROTOCOLS])


@test("streaming/slow-reader", seconds=600)
@measured
def slow_reader():
    """100 MB are printed while nobody reads: no byte is lost between agent
    and client, and nginx holds next to nothing."""
    for options in (dict(), dict(h2=True),
                    dict(port=g.zipped, headers={"Accept-Encoding": "gzip"})):
        s, result = refuse_to_read(options, "mock: fill=stdout,%E2%82%AC%0A,"
                                   "25000000", 3)
        same(result["outcome"], "exit")
        same(result["stdoutBytes"], 100000000)
        check(s.bytes("stdout") == "€\n".encode() * 25000000,
              "bytes differ:", options)


@test("streaming/slow-reader-worst", seconds=600)
@measured
def slow_reader_worst():
    """What takes the most room: characters that all are escapes, and no
    UTF-8 at all; 20 clients that do not read."""
    before = pss(workers())
    streams = [stream("worst%d" % n, "mock: fill=stdout,%01,4000000 "
                      "fill=stderr,%FF,4000000", h2=n % 2 == 1)
               for n in range(20)]
    time.sleep(2)
    during = pss(workers())
    try:
        check(during - before < 20 * 320, "workers grew by %d KiB"
              % (during - before))
    except AssertionError:
        for s in streams:
            s.close()
        raise
    for s in streams:
        same(s.finish()["stdoutBytes"], 4000000)
        check(s.bytes("stdout") == b"\x01" * 4000000, "bytes of stdout differ")
        check(s.bytes("stderr") == b"\xff" * 4000000, "bytes of stderr differ")
        s.close()


@test("streaming/stopped-reader-goes-on")
def stopped_reader_goes_on():
    """Within that time it gets all of it, though nginx's send_timeout is
    over, whether the command still runs or has ended before."""
    def one(h2, count, more):
        with stream("on%d%d" % (h2, count), "mock: fill=stdout,x,%d " % count
                    + more, h2, port=patient(h2)) as s:
            s.until("started")
            time.sleep(1.6)
            same(s.finish()["stdoutBytes"], count)
            same(len(s.bytes("stdout")), count)
    together([lambda h2=h2, count=count, more=more: one(h2, count, more)
              for h2 in PROTOCOLS
              for count, more in [(4000000, "sleep=3")] + [
                  (n * 100000, "") for n in range(1, 15)]])


@test("streaming/resume-any-worker")
def resume_any_worker():
    """Cut after each event, the rest is asked for on a new connection; both
    protocols and both kinds, by number and by header."""
    for h2 in PROTOCOLS:
        for accept in ("text/event-stream", "application/x-ndjson"):
            conversation = "resume%d%s" % (h2, accept[0])
            with stream(conversation, "mock: keep lines=40,0.02", h2,
                        accept=accept, commandId="r") as s:
                s.until("stdout")
                events, seq = list(s.events), s.seq
            rounds = 0
            while events[-1]["type"] != "result":
                how = dict(last_event_id=seq) if rounds % 2 \
                    else dict(after=seq)
                with stream(conversation, "r", h2, method="GET",
                            accept=accept, **how) as s:
                    for event in s:
                        events.append(event)
                        seq = s.seq
                        if len(s.events) == 3:
                            break
                rounds += 1
                check(rounds < 60, "it does not come to an end")
            same([e["seq"] for e in events], list(range(1, 43)))
            same("".join(e.get("data", "") for e in events),
                 "".join("%d\n" % n for n in range(40)))
            check(rounds > 5, "only %d connections" % rounds)


@test("streaming/attach")
def attach():
    """A repeated POST attaches, streaming or not, and runs nothing."""
    with stream("attach", "mock: keep stdout=a sleep=1 stdout=b",
                commandId="same", stdinOpen=False) as one:
        one.until("stdout")
        with stream("attach", "mock: keep stdout=a sleep=1 stdout=b",
                    commandId="same", stdinOpen=False) as two:
            same(two.finish()["outcome"], "exit")
            same(two.text, "ab")
        same(one.finish()["outcome"], "exit")
    r = g.command("attach", "mock: keep stdout=a sleep=1 stdout=b",
                  commandId="same", stdinOpen=False)
    same((r.status, r.json["stdout"]), (200, "ab"))
    with stream("attach", "mock: keep stdout=other", commandId="same") as s:
        same(s.status, 409)
        same(json.loads(s.body())["code"], "command_id_reused")
    same(g.status("attach")["commands"], 1)


@test("streaming/other-tenant")
def other_tenant():
    g.run("mine", "mock: keep stdout=a", commandId="secret")
    for headers in ({}, {"Accept": "text/event-stream"}):
        r = g.request("GET", "v1/conversations/mine/commands/secret",
                      token=token(sub="mallory"), headers=headers)
        same(r.status, 404)
        r = g.request("DELETE", "v1/conversations/mine/commands/secret",
                      token=token(sub="mallory"), headers=headers)
        same(r.status, 404)


@test("streaming/reload", seconds=120)
def reload():
    """Old workers end their streams between two events, at once; clients go
    on with new ones and have every event once."""
    for h2 in PROTOCOLS:
        names = ["reload%d-%d" % (h2, n) for n in range(6)]
        streams = [stream(name, "mock: keep flow=0.1", h2, commandId="r",
                          accept="application/x-ndjson" if n % 2
                          else "text/event-stream")
                   for n, name in enumerate(names)]
        quiet = stream("quiet%d" % h2, "mock: keep stdout=a copy", h2,
                       commandId="r")
        for s in streams + [quiet]:
            s.until("stdout")
        old = g.reload()
        for s in streams + [quiet]:
            for _ in s:
                pass
            check(s.result is None, "it was over before the reload:",
                  s.events[-1])
            if s.kind == "sse":
                same(s.parser.retry, 1000, "retry of an event stream")
            s.close()
        wait_for(lambda: not any(alive(p) for p in old), 20,
                 "the end of the old workers")
        for name, s in zip(names, streams):
            let_end(name)
            with stream(name, "r", h2, method="GET", after=s.seq) as rest:
                same(rest.finish()["outcome"], "exit")
                all_events = s.events + rest.events
                same([e["seq"] for e in all_events],
                     list(range(1, len(all_events) + 1)))
        let_end("quiet%d" % h2, b"b")
        with stream("quiet%d" % h2, "r", h2, method="GET", after=quiet.seq) \
                as rest:
            rest.finish()
            same(rest.text, "b")


@test("streaming/reload-waits-for-answers")
def reload_answers():
    """One answer is not cut off: nginx finishes it in the old worker."""
    results = []
    t = threading.Thread(target=lambda: results.append(
        g.run("patient", "mock: keep copy stdout=whole", commandId="r",
              stdinOpen=True)))
    t.start()
    wait_for(lambda: begun("patient"), 10, "a command")
    g.reload()
    let_end("patient")
    t.join(150)
    same(results and results[0]["stdout"], "whole")


@test("streaming/reload-blocked", seconds=60)
def reload_blocked():
    """A client that reads nothing at the moment of the reload gets the whole
    of the event that it has the beginning of."""
    with stream("blocked", "mock: keep fill=stdout,x,30000000",
                commandId="r") as s:
        # more than a socket's room is on its way
        s.until("stdout", 2)
        time.sleep(0.5)
        g.reload()
        time.sleep(0.5)
        for _ in s:
            pass
        check(s.result is None and s.seq > 2, "events:", s.seq)
        same(s.parser.retry, 1000)
        with stream("blocked", "r", method="GET", after=s.seq) as rest:
            rest.finish()
            same(len(s.bytes("stdout")) + len(rest.bytes("stdout")),
                 30000000)


@test("streaming/worker-killed", seconds=60)
def worker_killed():
    """The clients of a worker that dies have every event once all the same."""
    names = ["killed%d" % n for n in range(12)]
    streams = [stream(name, "mock: keep flow=0.1", commandId="r")
               for name in names]
    for s in streams:
        s.until("stdout")
    kill_workers()
    for name, s in zip(names, streams):
        try:
            for _ in s:
                pass
        except Exception:
            pass                            # cut in the middle of a chunk
        check(s.result is None, "a result of a dead worker")
        let_end(name)
        with stream(name, "r", method="GET", last_event_id=s.seq) as rest:
            same(rest.finish()["outcome"], "exit")
            all_events = s.events + rest.events
            same([e["seq"] for e in all_events],
                 list(range(1, len(all_events) + 1)))


@test("streaming/stream-client-gone")
def client_gone():
    """By default nothing is cancelled: the agent sees the connection end."""
    for h2 in PROTOCOLS:
        for accept in ("text/event-stream", "application/json"):
            name = "gone%d%s" % (h2, accept[0])
            if accept[0] == "t":
                with stream(name, "mock: head stdout=a await", h2) as s:
                    s.until("stdout")
            else:
                with leave(name, "mock: head await", h2):
                    pass
            wait_for(lambda: "hang-up" in seen(name), 10,
                     "the agent to see it: %r" % seen(name))
            check("cancel-frame" not in seen(name), "cancelled:", seen(name))


class Leave:
    """One answer is asked for, and not waited for."""

    def __init__(self, name, text, h2, **fields):
        path = "/sandbox/v1/conversations/%s/commands" % name
        body = json.dumps(dict(fields, command=text)).encode()
        self.name = name
        self.process = None
        if h2:
            import subprocess
            self.process = subprocess.Popen(
                ["curl", "-s", "--http2-prior-knowledge", "-m", "300",
                 "-H", "Authorization: Bearer " + token(), "-H",
                 "Content-Type: application/json", "--data-binary", "@-",
                 "http://127.0.0.1:%d%s" % (g.h2_port, path)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            self.process.stdin.write(body)
            self.process.stdin.close()
        else:
            self.connection = g.connect()
            self.connection.request("POST", path, body,
                                    g.headers("", body, None))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        wait_for(lambda: begun(self.name), 20, "the command")
        if self.process:
            self.process.kill()
            self.process.wait()
        else:
            self.connection.close()


def leave(name, text, h2, **fields):
    return Leave(name, text, h2, **fields)


@test("streaming/disconnect-cancels", seconds=90)
def disconnect_cancels():
    """onDisconnect: the agent is told before the connection is closed, in a
    stream and while an answer is waited for, however the client leaves."""
    for h2 in PROTOCOLS:
        for accept in ("text/event-stream", "application/json"):
            name = "cancel%d%s" % (h2, accept[0])
            if accept[0] == "t":
                s = stream(name, "mock: head stdout=a await", h2,
                           onDisconnect="cancel")
                s.until("stdout")
                s.close(reset=True)
            else:
                with leave(name, "mock: head await", h2,
                           onDisconnect="cancel"):
                    pass
            wait_for(lambda: "cancel-frame" in seen(name), 10,
                     "a CANCEL frame: %r" % seen(name))
    # a queued one, before HEAD; and a client that shuts its side only
    with leave("cancel-queued", "mock: await", False, onDisconnect="cancel"):
        pass
    wait_for(lambda: "cancel-frame" in seen("cancel-queued"), 10,
             "a CANCEL frame of a queued command")
    s = stream("cancel-half", "mock: head stdout=a await",
               onDisconnect="cancel")
    s.until("stdout")
    s.socket.shutdown(socket.SHUT_WR)
    wait_for(lambda: "cancel-frame" in seen("cancel-half"), 10,
             "a CANCEL frame after a half-close")
    s.close()


@test("streaming/disconnect-is-no-reload", seconds=60)
def disconnect_reload():
    """A worker that leaves, or dies, cancels nothing; a time-out does."""
    s = stream("leaving", "mock: keep flow=0.1", commandId="r",
               onDisconnect="cancel")
    s.until("stdout")
    g.reload()
    for _ in s:
        pass
    s.close()
    let_end("leaving")
    with stream("leaving", "r", method="GET", after=s.seq) as rest:
        same(rest.finish()["outcome"], "exit")
    check("cancel-frame" not in seen("leaving"), "the reload cancelled")

    s = stream("dying", "mock: keep flow=0.1", commandId="r",
               onDisconnect="cancel")
    s.until("stdout")
    kill_workers()
    s.close()
    let_end("dying")
    with stream("dying", "r", method="GET") as rest:
        same(rest.finish()["outcome"], "exit")
    check("cancel-frame" not in seen("dying"), "a dead worker cancelled")

    with stream("stopping", "mock: keep fill=stdout,x,20000000 sleep=20",
                port=g.hasty, onDisconnect="cancel") as s:
        s.until("started")
        wait_for(lambda: "cancel-frame" in seen("stopping"), 15,
                 "a CANCEL frame after the time-out")


@test("streaming/answered-cancels-nothing")
def answered():
    """A client that leaves after its answer, on a kept connection or not."""
    g.run("answered", "mock: stdout=x", onDisconnect="cancel")
    with stream("answered", "mock: stdout=x", onDisconnect="cancel") as s:
        s.finish()
    check("cancel-frame" not in seen("answered"), "cancelled afterwards")


@test("streaming/shutdown-timeout", seconds=60)
def shutdown_timeout():
    """Connections that nginx cuts when it has waited long enough for them:
    the client did not leave, so nothing is cancelled."""
    main_lines = g.options["main"]
    g.reload(main=main_lines + "worker_shutdown_timeout 1s;")
    waiting = []
    for h2 in PROTOCOLS:
        waiting.append(leave("cut%d" % h2, "mock: keep sleep=6 stdout=end",
                             h2, onDisconnect="cancel", commandId="r"))
        wait_for(lambda: begun("cut%d" % h2), 10, "a command")
    old = g.reload(main=main_lines)
    wait_for(lambda: not any(alive(p) for p in old), 20, "their end")
    for h2 in PROTOCOLS:
        with stream("cut%d" % h2, "r", method="GET") as s:
            same(s.finish()["outcome"], "exit")
        check("cancel-frame" not in seen("cut%d" % h2), "it was cancelled")
    for w in waiting:
        w.__exit__()


@test("streaming/byte-by-byte", seconds=60)
def byte_by_byte():
    """Frames come in pieces of one byte, and of odd sizes."""
    frames = [wire.frame(wire.PING_FRAME),
              wire.frame(wire.HEAD, wire.fields(
                  ("STATUS", 200), ("COMMAND_ID", "one-by-one"))),
              wire.frame(wire.STARTED, struct.pack(">QQ", 1, 1764460800123)),
              wire.frame(wire.STDOUT, struct.pack(">Q", 2) + "€\n".encode()),
              wire.frame(wire.PING_FRAME),
              wire.frame(wire.GAP, struct.pack(">QBQ", 9, 3, 77)),
              wire.frame(wire.STDERR, struct.pack(">Q", 10) + b"\0\xff"),
              wire.frame(wire.RESULT, wire.fields(
                  ("OUTCOME", 0), ("EXIT_CODE", 3), ("SEQ", 11)))]
    data = b"".join(frames)
    for size in (1, 2, 3, 7, 64):
        pieces = [data[n:n + size] for n in range(0, len(data), size)]
        steps = " sleep=0.001 ".join(
            "raw=" + "".join("%%%02x" % b for b in p) for p in pieces)
        for h2 in PROTOCOLS:
            with stream("bytes", "mock: nohead %s linger" % steps, h2) as s:
                result = s.finish()
            same(s.kinds, ["started", "stdout", "gap", "stderr", "result"])
            same((s.text, s.bytes("stderr")), ("€\n", b"\0\xff"))
            same([e["seq"] for e in s.events], [1, 2, 9, 10, 11])
            same((result["exitCode"], result["commandId"]),
                 (3, "one-by-one"))


@test("streaming/five-hundred", seconds=600)
@measured
def five_hundred():
    """500 streams at once, each with what is its own, in bounded memory."""
    before = pss(workers())
    streams = []
    for n in range(500):
        streams.append(stream("many%d" % (n % 50),
                              "mock: stdout=secret%d%%0A sleep=4 lines=20"
                              % n, timeout=150))
    for s in streams:
        s.until("stdout")
    during = pss(workers())
    check(during - before < 500 * 160, "workers grew by %d KiB"
          % (during - before))
    for n, s in enumerate(streams):
        same(s.finish()["outcome"], "exit")
        same(s.text, "secret%d\n" % n + "".join("%d\n" % i for i in range(20)))
        s.close()
    after = pss(workers())
    check(after - before < 32768, "workers kept %d KiB" % (after - before))


@test("streaming/fast")
def fast():
    """A stream that never pauses leaves the worker time for others."""
    with stream("busy", "mock: fill=stdout,x,200000000", timeout=150) as s:
        s.until("started")
        done = threading.Event()

        def read():
            for event in s:
                event.pop("data", None)
            done.set()

        t = threading.Thread(target=read)
        t.start()
        worst = 0
        while not done.is_set() and worst < 20:
            begun = time.monotonic()
            g.request("GET", "health", token=None)
            worst = max(worst, time.monotonic() - begun)
            time.sleep(0.02)
        t.join(150)
        same(s.result["stdoutBytes"], 200000000)
        check(worst < 20, "others waited for %.1f s" % worst)


@test("streaming/variables")
def variables():
    g.reload(http=g.options["http"] + """
    log_format sandbox "$uri $status $sandbox_operation $sandbox_command_id "
                       "$sandbox_id $sandbox_outcome $sandbox_exit_code "
                       "$sandbox_cpu_ms";
    access_log %s/logs/variables.log sandbox;
    """ % g.dir)
    with stream("vars", "mock: keep stdout=a exit_code=3 cpu_us=7000",
                commandId="v") as s:
        sandbox = s.finish()["sandboxId"]
    with stream("vars", "v", method="GET", after=1) as s:
        s.finish()
    g.request("POST", "v1/conversations/vars/commands/v/stdin", b"x")
    lines = wait_for(lambda: (lambda got: got if len(got) == 3 else None)(
        [line for line in g.read("logs/variables.log").splitlines()
         if "/vars/" in line]), 10, "three lines")
    base = "/sandbox/v1/conversations/vars/commands"
    # two workers write them, in any order
    same(set(lines), {"%s 200 command.run v %s exit 3 7" % (base, sandbox),
                      "%s/v 200 command.get v %s exit 3 7" % (base, sandbox),
                      "%s/v/stdin 409 command.stdin v - - - -" % base})


@test("exec/stdin-streams", seconds=60)
def stdin_streams():
    """Bytes reach the command while the client still sends; of unknown length
    and of known, in both protocols."""
    for port, kind in ((g.port, "length"), (g.port, "chunked")):
        name = "stdin-" + kind
        with stream(name, "mock: keep copy", commandId="r") as s:
            s.until("started")
            with socket.create_connection(("127.0.0.1", port), 150) as c:
                head = ["POST /sandbox/v1/conversations/%s/commands/r/stdin"
                        "?eof=1 HTTP/1.1" % name, "Host: x",
                        "Authorization: Bearer " + token(),
                        "Content-Type: image/png", "Connection: close",
                        "Content-Length: 12" if kind == "length"
                        else "Transfer-Encoding: chunked"]
                c.sendall("\r\n".join(head + ["", ""]).encode())
                for n, piece in enumerate((b"one\n", b"two\n", b"end\n"), 1):
                    c.sendall(piece if kind == "length"
                              else b"%x\r\n%s\r\n" % (len(piece), piece))
                    same(s.until("stdout", n)["data"], piece.decode())
                if kind == "chunked":
                    c.sendall(b"0\r\n\r\n")
                answer = b""
                while True:
                    data = c.recv(65536)
                    if not data:
                        break
                    answer += data
                check(answer.endswith(b'{"bytes":12}\n'), "answer:", answer)
            same(s.finish()["outcome"], "exit")


@test("exec/stdin-large", seconds=90)
def stdin_large():
    """16 MiB each way round, exact, the worker does not hold them."""
    import hashlib
    import subprocess
    data = os.urandom(1 << 20) * 16
    path = g.write("large", data)
    for h2 in PROTOCOLS:
        for length in (True, False):
            name = "large%d%d" % (h2, length)
            r = g.command(name, "mock: keep copy", commandId="r",
                          background=True)
            same(r.status, 202)
            before = pss(workers())
            command = ["curl", "-s", "-X", "POST", "-H",
                       "Authorization: Bearer " + token(), "-H", "Expect:",
                       "-H", "Content-Type: application/octet-stream",
                       "http://127.0.0.1:%d/sandbox/v1/conversations/%s/"
                       "commands/r/stdin?eof=1"
                       % (g.h2_port if h2 else g.port, name)]
            if h2:
                command.insert(1, "--http2-prior-knowledge")
            if length:
                command += ["--data-binary", "@" + path]
            else:
                command += ["-T", "-"]
            with open(path, "rb") as f:
                out = subprocess.run(command, stdin=f, timeout=300,
                                     stdout=subprocess.PIPE).stdout
            same(json.loads(out or "null"), {"bytes": len(data)},
                 "h2=%s length=%s" % (h2, length))
            grown = pss(workers()) - before
            check(grown < 4096, "workers grew by %d KiB" % grown)
            with stream(name, "r", method="GET", h2=h2) as s:
                s.finish()
                same(hashlib.sha256(s.bytes("stdout")).hexdigest(),
                     hashlib.sha256(data).hexdigest())


@test("exec/stdin-too-large")
def stdin_too_large():
    """Of unknown length: refused when it has become too long."""
    g.command("huge", "mock: keep copy", commandId="r", background=True)
    with socket.create_connection(("127.0.0.1", g.port), 150) as c:
        c.sendall(("POST /sandbox/v1/conversations/huge/commands/r/stdin "
                   "HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n"
                   % token()).encode())
        try:
            for _ in range(17 * 16):
                c.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            c.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        try:
            answer = c.recv(65536)
        except OSError:
            answer = b""
        check(b" 413 " in answer[:20] and b"body_too_large" in answer,
              "answer:", answer[:300])
    g.request("DELETE", "v1/conversations/huge/commands/r")


main(start, stop)
