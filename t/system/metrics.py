#!/usr/bin/env python3
"""sandbox_metrics: the counters are true, and say nothing of anybody."""

import json
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import Gateway, token, wait_for                 # noqa: E402
from hold import HOLD, held, let_go                          # noqa: E402
from hold_at import HoldAt, Reading                          # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
LINE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\})? '
                  r'(\d+(?:\.\d+)?)$')


def start():
    global g
    g = Gateway(pool=2, location="sandbox_memory 256m;",
                server="location = /metrics { sandbox_metrics; "
                "allow 127.0.0.1; deny all; }"
                "location = /closed { sandbox_metrics; deny all; }")
    g.start()


def stop():
    g.stop()


def text(gateway=None):
    r = (gateway or g).request("GET", "/metrics", token=None)
    same((r.status, r.headers["Content-Type"]),
         (200, "text/plain; version=0.0.4"), repr(r))
    return r.body.decode()


def read(gateway=None):
    """Values by name and labels; each line is as Prometheus wants it."""
    out, types = {}, {}
    for line in text(gateway).splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            check(name not in types, "a family comes twice", line)
            types[name] = kind
            continue
        found = LINE.match(line)
        check(found, "no sample", line)
        name, labels, value = found.groups()
        family = re.sub("_(bucket|sum|count)$", "", name)
        check(name in types or types.get(family) == "histogram",
              "a sample without a type", line)
        key = name + "{%s}" % (labels or "")
        check(key not in out, "a sample comes twice", line)
        out[key] = float(value)
    return out


def counted(key, least, before):
    """What is counted after an answer may come later than the answer."""
    def look():
        now = read()
        return now if now.get(key, 0) - before.get(key, 0) >= least else None
    return wait_for(look, 20, "%d more of %s" % (least, key))


def added(before, after):
    return {k: after[k] - before.get(k, 0) for k in after
            if after[k] != before.get(k, 0) and (
                "commands_" in k.split("{")[0] and "_total" in k
                or "refusals" in k)}


@test("admin/metrics-true", seconds=120)
def metrics_true():
    g.run("warm", "true")
    g.run("slow", "true")
    before = read()
    for n in range(10):
        g.run("mix", "echo ok")
    for code in (1, 2, 127):
        same(g.run("mix", "exit %d" % code)["exitCode"], code)
    for n in range(2):
        same(g.run("mix", "sleep 30", timeoutSeconds=1)["outcome"],
             "timeout")
    same(g.run("mix", "python3 -c 'bytearray(600 << 20)'")["outcome"], "oom")
    got = []
    t = threading.Thread(target=lambda: got.append(
        g.run("mix", "sleep 30", commandId="cancel-me")))
    t.start()
    wait_for(lambda: g.status("mix")["running"], 20, "it runs")
    same(g.request("DELETE", "v1/conversations/mix/commands/cancel-me")
         .status, 200)
    t.join()
    same(got[0]["outcome"], "cancelled")
    same(g.command("mix", "true", cwd="/etc").json["code"], "cwd_outside")
    same(g.request("GET", "v1/conversations/mix", token=None).status, 401)

    # none of these is a command of its own
    g.run("mix", "sleep 1; echo once", commandId="twice")
    g.run("mix", "sleep 1; echo once", commandId="twice")
    same(g.request("GET", "v1/conversations/mix/commands/twice").status, 200)
    two = [held(lambda: g.run("slow", HOLD, commandId="both"))
           for _ in range(2)]
    wait_for(lambda: g.status("slow").get("running"), 20, "it runs")
    let_go(g, "slow")
    for t in two:
        t.result()

    after = read()
    same(added(before, after), {
        'sandbox_commands_total{outcome="exit",success="true"}': 12,
        'sandbox_commands_total{outcome="exit",success="false"}': 3,
        'sandbox_commands_total{outcome="timeout",success="false"}': 2,
        'sandbox_commands_total{outcome="oom",success="false"}': 1,
        'sandbox_commands_total{outcome="cancelled",success="false"}': 1,
        'sandbox_refusals_total{code="cwd_outside"}': 1,
        'sandbox_refusals_total{code="unauthorized"}': 1})
    n = after["sandbox_command_seconds_count{}"] \
        - before["sandbox_command_seconds_count{}"]
    same(n, 19, "durations")
    check(after["sandbox_command_seconds_sum{}"]
          - before["sandbox_command_seconds_sum{}"] > 2.9, "their sum")
    buckets = [v for k, v in after.items()
               if k.startswith("sandbox_command_seconds_bucket")]
    same(buckets, sorted(buckets), "buckets are cumulative")
    same(buckets[-1], after["sandbox_command_seconds_count{}"])
    check(all(after[k] >= v for k, v in before.items()
              if k.split("{")[0].endswith("_total")), "a counter fell")
    for label in ("mix", "slow", "alice", "cancel-me", "twice"):
        check(label not in text(), "a label names somebody", label)


@test("admin/metrics-true: a worker that stood still", backends="local",
      why="runner")
def stood_still():
    """It reads that a command is accepted, and in the same moment its result:
    that took longer than the worker knows, and is counted all the same."""
    with Gateway(pool=1, workers=1, server="location = /metrics { "
                 "sandbox_metrics; }") as w:
        w.run("still", "true")
        files = "/proc/%d/root/home/sandbox/" % w.agent("still")
        before = read(w)
        pid = w.workers()[0]
        # the frame that says that this command is accepted
        worker = HoldAt(pid, Reading(pid, lambda data: data[4:5]
                                     == bytes([wire.HEAD])
                                     and b"late-result" in data))
        t = held(lambda: w.run("still", "sleep 1; touch done",
                               commandId="late-result"))
        worker.hear()
        wait_for(lambda: os.path.exists(files + "done"), 60, "its end")
        time.sleep(0.5)                 # and its result
        worker.go()
        same(t.result()["exitCode"], 0)
        same(added(before, read(w)), {
            'sandbox_commands_total{outcome="exit",success="true"}': 1})


@test("metrics/streams-background-unseen")
def others():
    g.run("others", "true")
    before = read()
    r = g.request("POST", "v1/conversations/others/commands",
                  {"command": "echo streamed; exit 5"},
                  headers={"Accept": "application/x-ndjson"})
    same(r.status, 200)
    same(g.command("others", "sleep 0.2", background=True).status, 202)
    c = g.connect()                     # a client that leaves while it runs
    body = json.dumps({"command": HOLD})
    c.request("POST", "/sandbox/v1/conversations/others/commands", body,
              g.headers("", body, None))
    wait_for(lambda: g.status("others")["running"] == 1, 20, "it runs")
    c.close()
    counted("sandbox_commands_unseen_total{}", 1, before)
    let_go(g, "others")
    wait_for(lambda: added(before, read()) == {
        'sandbox_commands_total{outcome="exit",success="false"}': 1,
        'sandbox_commands_background_total{}': 1,
        'sandbox_commands_unseen_total{}': 1}, 60, "three more")


@test("metrics/hosts", backends="local", why="runner")
def hosts():
    for n in range(2):
        g.run("host%d" % n, "true", token=token(sub="hosts"))
    t = threading.Thread(target=g.run, args=("host0", HOLD),
                         kwargs={"token": token(sub="hosts")})
    t.start()
    label = '{runner="unix:%s"' % g.socket

    def seen():
        now = read()
        return now["sandbox_commands_running" + label + "}"] == 1 \
            and now["sandbox_sandboxes" + label + ',state="running"}'] >= 2 \
            and now["sandbox_runner_ready" + label + "}"] == 1 \
            and now["sandbox_pool" + label + "}"] == 2
    wait_for(seen, 15, "what a PING tells")
    let_go(g, "host0", token=token(sub="hosts"))
    t.join()
    g.expected.append("runner.sock failed (2: No such file or directory)")
    g.stop_runner()
    wait_for(lambda: read()["sandbox_runner_ready" + label + "}"] == 0
             and read()["sandbox_pool" + label + "}"] == 0, 15,
             "that it is gone")
    before = read()
    g.command("host0", "true")
    counted('sandbox_refusals_total{code="runner_unreachable"}', 1, before)
    g.start_runner()
    g.wait_ready()


@test("metrics/bytes-and-requests")
def traffic():
    g.run("bytes", "true")
    before = read()
    r = g.request("PUT", "v1/conversations/bytes/fs/f", b"x" * 300000)
    same(r.status, 201)
    same(len(g.request("GET", "v1/conversations/bytes/fs/f").body), 300000)
    for name in ("received", "sent"):
        key = "sandbox_%s_bytes_total{}" % name
        after = counted(key, 300001, before)
        check(300000 < after[key] - before[key] < 310000, name,
              after[key] - before[key])
    counted('sandbox_requests_total{status="2xx"}', 2, before)
    check(after['sandbox_token_cache_total{event="hit"}'] > 0, "cache")


@test("metrics/access-and-reload")
def access():
    r = g.request("GET", "/closed", token=None)
    same(r.status, 403)
    same(g.request("POST", "/metrics", b"", token=None).status, 405)
    same(g.request("HEAD", "/metrics", token=None).status, 200)
    before = read()
    g.reload()
    after = read()
    key = 'sandbox_commands_total{outcome="exit",success="true"}'
    same(after[key], before[key], "counters live over a reload")


main(start, stop)
