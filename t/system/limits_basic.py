#!/usr/bin/env python3
"""Caps that hold: time, processor, memory, processes, output, disk; group
limits of the cases, as far as this release goes."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import Gateway, alive, wait_for                 # noqa: E402
from tap import BACKEND, SANITIZED, check, main, same, skip  # noqa: E402
from tap import test                                         # noqa: E402

g = None


def start():
    global g
    g = Gateway(pool=2, server="")
    g.options["location"] = "sandbox_memory 256m; sandbox_processes 128;" \
        "sandbox_disk 128m; sandbox_open_files 256; sandbox_cpu_time 4s;"
    g.start()


def stop():
    g.stop()


def run(text, conversation="limits", **fields):
    return g.run(conversation, text, **fields)


@test("limits/wall-basic")
def wall_basic():
    started = time.monotonic()
    r = run("sleep 60", timeoutSeconds=1)
    check(time.monotonic() - started < 59, "the clock was not kept")
    same((r["timedOut"], r["exitCode"], r["outcome"], r["timeoutSeconds"]),
         (True, 124, "timeout", 1))
    check(1000 <= r["durationMs"] < 60000, "durationMs:", r)


@test("limits/wall-tree")
def wall_tree():
    r = run("sleep 7300 & setsid sleep 7301 & (trap '' TERM; sleep 7302) & "
            "nohup setsid bash -c 'sleep 7303 & disown; sleep 7304' & wait",
            timeoutSeconds=1)
    same(r["outcome"], "timeout")
    same(run("pgrep -fa '[s]leep 73'; true")["stdout"], "")


@test("limits/wall-partial-output")
def wall_partial():
    for seconds in (3, 10, 40):         # a machine that is busy needs longer
        r = run("for n in $(seq 100); do echo $n; sleep 1; done",
                timeoutSeconds=seconds)
        same(r["timedOut"], True)
        if r["stdout"].startswith("1\n2\n"):
            break
    check(r["stdout"].startswith("1\n2\n"), "the output so far:", r)


@test("limits/wall-chatty")
def wall_chatty():
    def rss(pid):
        with open("/proc/%d/status" % pid) as f:
            return int(next(line for line in f
                            if line.startswith("VmRSS")).split()[1])

    before = sum(map(rss, g.workers()))
    for seconds in (2, 10, 40):
        r = run("yes", timeoutSeconds=seconds)
        if r["stdoutBytes"] > 10 << 20:
            break
    check(r["outcome"] in ("timeout", "output_limit", "cpu_limit"),
          "outcome", r)
    same(r["truncated"], True)
    check(r["stdoutBytes"] > 10 << 20, "stdoutBytes", r)
    check(len(r["stdout"]) < 300000, "it was not cut")
    check(sum(map(rss, g.workers())) < before + 64 * 1024,
          "nginx grew by the output")
    same(run("echo next")["stdout"], "next\n")


@test("limits/output-total")
def output_total():
    g.reload(location="sandbox_output_total 1m;")
    r = run("yes | head -c 100M; echo not reached", "total")
    same(r["outcome"], "output_limit")
    same(r["exitCode"], 137)
    g.reload(location="sandbox_memory 256m; sandbox_processes 128;"
             "sandbox_disk 128m; sandbox_open_files 256; "
             "sandbox_cpu_time 4s;")


@test("limits/output-cap")
def output_cap():
    r = run("seq 1 1000000; echo last >&2")
    same((r["exitCode"], r["outcome"], r["truncated"]), (0, "exit", True))
    same(r["stdoutBytes"], 6888896)
    head, mark, tail = r["stdout"].partition("… [")
    left_out, _, tail = tail.partition(" bytes left out] …")
    check(head.startswith("1\n2\n3\n"), "head:", head[:40])
    check(tail.endswith("999999\n1000000\n"), "tail:", tail[-40:])
    same(len(head) + int(left_out) + len(tail), 6888896, "the sum")
    check(200000 < len(head) + len(tail) <= 262144, "kept",
          len(head) + len(tail))
    same(r["stderr"], "last\n")


@test("limits/output-exact")
def output_exact():
    for size, cut in ((262143, False), (262144, False), (262145, True)):
        r = run("head -c %d /dev/zero | tr '\\0' x" % size)
        same((r["truncated"], r["stdoutBytes"]), (cut, size), str(size))
        if not cut:
            same(r["stdout"], "x" * size)


@test("limits/output-utf8-cut")
def output_utf8():
    for lead in range(4):
        r = run("python3 -c 'print(\"x\" * %d + \"😀\" * 200000, end=\"\")'"
                % lead)
        same(r["truncated"], True)
        same(r["binaryStripped"], False, "a character was split")
        check("\ufffd" not in r["stdout"], "a character was split")


@test("limits/output-encoded")
def output_encoded():
    """Bytes that grow when encoded: six-fold at most, and valid JSON."""
    for byte in ("\\001", '"', "\\\\", "\\377", "\\000"):
        r = g.command("limits", "head -c 262144 /dev/zero | tr '\\0' '%s'; "
                      "head -c 262144 /dev/zero | tr '\\0' '%s' >&2"
                      % (byte, byte))
        same(r.status, 200)
        same(r.json["stdoutBytes"], 262144, byte)
        check(len(r.body) < 2 * 6 * 262144 + 4096, "bytes", len(r.body))


@test("limits/cpu-time")
def cpu_time():
    r = run("while :; do :; done", timeoutSeconds=100)
    same((r["outcome"], r["exitCode"], r["timedOut"]),
         ("cpu_limit", 137, False))
    check(r["cpuMs"] >= 3500, "cpuMs", r)


@test("limits/cpu-time-tree")
def cpu_time_tree():
    """Children that left their parents count as well."""
    r = run("for n in 1 2 3; do (setsid bash -c 'while :; do :; done' &) ; "
            "done; sleep 100", timeoutSeconds=100)
    same(r["outcome"], "cpu_limit")
    same(run("pgrep -fc '[w]hile :'; true")["stdout"], "0\n")


@test("limits/memory-oom-agent", seconds=180)
def memory_oom_agent():
    """Many small processes fill the memory: never the agent's death."""
    if SANITIZED:
        skip("with a sanitizer the agent takes the memory itself")
    run("true", "memfd")
    agent = g.agent("memfd")
    r = run("cat > m.py; python3 m.py", "memfd", timeoutSeconds=60, stdin="""
import os, time
try:
    with open('/proc/self/oom_score_adj', 'w') as f:
        f.write('0')
except OSError:
    pass
fd = os.memfd_create('x')
os.set_inheritable(fd, True)
for n in range(60):
    if os.fork() == 0:
        os.execv('/bin/sleep', ['sleep', '100'])
block = bytes(1 << 20)
while True:
    os.write(fd, block)
""")
    check(r["outcome"] in ("oom", "signal", "exit"), "outcome", r)
    check(alive(agent), "the agent was killed")
    run("pkill sleep; true", "memfd")
    same(run("echo next", "memfd")["stdout"], "next\n")


@test("limits/memory-oom")
def memory_oom():
    run("while :; do date > beat; sleep 0.1; done > /dev/null 2>&1 &")
    r = run("python3 -c 'x = bytearray(512 << 20); print(len(x))'")
    same((r["outcome"], r["exitCode"]), ("oom", 137))
    check(r["memoryPeakBytes"] > 100 << 20, "peak", r)
    run("rm -f beat")
    wait_for(lambda: run("test -s beat && echo yes")["stdout"] == "yes\n",
             20, "the background process")
    same(run("echo next")["stdout"], "next\n")
    run("pkill -f '[w]hile :'; true")


@test("limits/memory-stdin", seconds=120)
def memory_stdin():
    """Standard input lies in the sandbox's memory: a 413, not its end."""
    if SANITIZED:
        skip("with a sanitizer the agent takes the memory itself")
    g.reload(location="sandbox_memory 64m; sandbox_file_size 64m;")
    try:
        agent = g.agent("stdin")
        for size, status in ((8 << 20, 200), (40 << 20, 413), (12 << 20, 200),
                             (60 << 20, 413)):
            r = g.command("stdin", "wc -c", stdin="x" * size)
            same(r.status, status, size)
            if status == 413:
                same(r.json["code"], "command_too_large")
            else:
                same(r.json["stdout"], "%d\n" % size)
            check(alive(agent), "the agent was killed by", size)
    finally:
        g.reload(location="sandbox_memory 256m; sandbox_processes 128;"
                 "sandbox_disk 128m; sandbox_open_files 256; "
                 "sandbox_cpu_time 4s;")


@test("limits/memory-tmpfs-swap")
def memory_tmpfs():
    r = run("head -c 400M /dev/zero > /dev/shm/x; echo code $?; "
            "rm -f /dev/shm/x", "tmpfs")
    check("code 0" not in r["stdout"] or r["outcome"] == "oom",
          "/dev/shm is not counted:", r)
    r = run("head -c 400M /dev/zero > /tmp/x; echo code $?; rm -f /tmp/x",
            "tmpfs")
    check("code 0" not in r["stdout"] or r["outcome"] == "oom",
          "/tmp is not counted:", r)
    # both full at once must leave room for a command that cleans up
    run("head -c 400M /dev/zero > /tmp/x; head -c 400M /dev/zero > "
        "/dev/shm/x", "tmpfs")
    same(run("rm -f /dev/shm/x /tmp/x; echo next", "tmpfs")["stdout"],
         "next\n")


@test("limits/disk-outcome", backends="local", why="disk")
def disk_outcome():
    """However large the write was that failed."""
    for n, text in enumerate((
            "dd if=/dev/zero of=big bs=1M count=500",
            "head -c 500000000 /dev/zero > big",
            "python3 -c 'f = open(\"big\", \"wb\")\n"
            "while True: f.write(bytes(1 << 20))'")):
        r = run(text, "disk%d" % n)
        same((r["outcome"], r["exitCode"]), ("disk_full", 1), text)
        same(run("rm big; false", "disk%d" % n)["outcome"], "exit", text)


@test("limits/pids", backends="local", why="caps")
def pids():
    """A fork bomb ends; the others and its own next command go on."""
    answers = []

    def bomb():
        answers.append(run("bomb() { bomb | bomb & }; bomb; sleep 30",
                           timeoutSeconds=3))

    t = threading.Thread(target=bomb)
    t.start()
    for n in range(10):
        same(run("echo %d" % n, "neighbour")["stdout"], "%d\n" % n)
    t.join()
    check(answers and answers[0]["outcome"] in ("timeout", "exit", "signal",
                                                "cpu_limit"),
          "the bomb:", answers)
    # the user's own limit comes before the group's: a fork fails early then
    same(run("ulimit -Hu")["stdout"], "127\n", "the limit of the user")
    same(run("echo next")["stdout"], "next\n")
    run("python3 -c '\nimport os, time\nn = 0\ntry:\n"
        "    while n < 1000:\n        if os.fork() == 0: time.sleep(30)\n"
        "        n += 1\nexcept BlockingIOError:\n    pass\nprint(n)\n"
        "os.kill(0, 9)'", timeoutSeconds=20)
    wait_for(lambda: run("echo free")["stdout"] == "free\n", 20, "processes")
    # well before the wall clock of what forked them
    wait_for(lambda: int(run("ls /proc | grep -c '^[0-9]'")["stdout"]) < 20,
             10, "the end of those that were left over")


@test("limits/descriptors")
def descriptors():
    r = run("python3 -c '\nfiles = []\ntry:\n    while len(files) < 5000:\n"
            "        files.append(open(\"/dev/null\"))\n"
            "except OSError as e:\n    print(e.errno, len(files))'")
    number, count = r["stdout"].split()
    same(number, "24")
    check(200 < int(count) < 256, "open files:", count)


@test("limits/disk-full")
def disk_full():
    r = run("head -c 1G /dev/zero > big; echo code $?; ls -s --block-size=M "
            "big", "disk")
    check("code 0" not in r["stdout"], "1 GiB fit into 128 MiB:", r)
    check("space" in r["stderr"] or "quota" in r["stderr"]
          or BACKEND == "dagger" and "too large" in r["stderr"], "stderr:", r)
    same(run("rm big; echo ok > small; cat small", "disk")["stdout"], "ok\n")


@test("limits/inodes", seconds=180)
def inodes():
    r = run("python3 -c '\nimport os\nn = 0\nos.mkdir(\"many\")\ntry:\n"
            "    while n < 3000000:\n"
            "        open(\"many/%d\" % n, \"w\").close()\n        n += 1\n"
            "except OSError as e:\n    print(e.errno)'", "inodes",
            timeoutSeconds=100)
    check(r["stdout"] == "28\n" or r["outcome"] == "cpu_limit", "got", r)
    started = time.monotonic()
    same(g.delete("inodes").status, 204)
    check(time.monotonic() - started < 60, "deletion takes long")


@test("limits/limits-reported")
def limits_reported():
    r = g.request("GET", "v1/limits").json
    same(r["backend"], BACKEND)
    text = repr(r)
    check(str(256 << 20) in text, "memory in", text)
    hard = {"memory", "disk"} <= set(r["hardCaps"])
    check(hard == (BACKEND == "local"), "hard caps in", text)


@test("limits/tenant-cap", backends="local", why="host-limits")
def tenant_cap():
    g.reload(http="sandbox_zone sandbox:1m max=50 per_tenant=3;")
    g.wait_ready()
    client = wire.Client(g.socket, key=g.key)
    wait_for(lambda: client.call(wire.PING).result["MAX_PER_TENANT"] == 3, 60,
             "the limit at the runner")
    got = []
    for n in range(8):
        # a command that goes on, so that none of them is idle
        r = g.command("tenant%d" % n, "sleep 115 > /dev/null & echo up")
        got.append((r.status, r.json.get("code")))
        time.sleep(0.3)
    check((429, "too_many_sandboxes") in got, "no limit:", got)
    check(got[0][0] == 200 or got[0][0] == 429, "got", got)
    r = g.command("tenant7", "true")
    if r.status == 429:
        check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)


main(start, stop)
