#!/usr/bin/env python3
"""What a conversation remembers of its commands: receipts, output, ids; over
deaths of agents and runners, idle stops, a full disk, and out of the reach
of its commands."""

import os
import random
import signal
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import Gateway, alive, wait_for                 # noqa: E402
from runner import Runner, session, tenant                   # noqa: E402
from tap import check, main, same, test                      # noqa: E402

EXIT = wire.OUTCOMES.index("exit")
LOST = wire.OUTCOMES.index("runner_lost")
QUEUED, RUNNING, ENDED = range(3)


def digest(text):
    return text.encode().ljust(32, b".")[:32]


def run(r, name, text, id, **fields):
    return r.command(name, text, command_id=id, digest=digest(text), **fields)


def page(r, name, **numbers):
    """Records and NEXT of one HISTORY."""
    a = r.call(wire.HISTORY, name, wire.fields(*numbers.items()),
               tenant=tenant(name), flags=wire.NO_CREATE)
    same(a.error, None, "HISTORY")
    out, at = [], 0
    while at < len(a.data):
        length, = struct.unpack_from(">I", a.data, at)
        check(4 + length <= len(a.data) - at, "a record is whole")
        out.append(wire.unique(wire.read_fields(
            a.data[at + 4:at + 4 + length])))
        at += 4 + length
    return out, a.result["NEXT"]


def history(r, name, limit=1000):
    """All of it, page by page."""
    out, before = [], 0
    while True:
        records, before = page(r, name, LIMIT=limit, BEFORE=before)
        out += records
        if not before:
            return out


def ids(records):
    return [x["COMMAND_ID"].decode() for x in records]


def agent_of(r, name):
    """The agent of a session's sandbox."""
    return int(r.record(name)["pid"])


def state(r, name):
    return wire.STATES[r.call(wire.STATUS, name).result["STATE"]]


def kill_agent(r, name):
    pid = agent_of(r, name)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), 10, "the death of an agent")
    wait_for(lambda: state(r, name) == "idle", 10, "the end of a container")


def settle(r, name):
    """Until what ended is on the disk: it is written after the answer."""
    history(r, name)
    quiet(agent_of(r, name))


def quiet(pid):
    """Until a process has slept for longer than what waits to be written, and
    means to: its processor may have stood still meanwhile."""
    def look():
        with open("/proc/%d/status" % pid) as f:
            lines = dict(line.split(":", 1) for line in f)
        return lines["State"].split()[0], lines["voluntary_ctxt_switches"]

    def soon():
        """Its epoll_wait is to end in a moment, or it is in none."""
        try:
            with open("/proc/%d/syscall" % pid) as f:
                words = f.read().split()
        except OSError:
            return False                # a kernel that does not tell
        return len(words) < 5 or int(words[4], 16) & 0xffffffff <= 100

    def slept():
        before = look()
        time.sleep(0.3)
        return before[0] == "S" and look() == before and not soon()
    wait_for(slept, 20, "an agent that has nothing to do")


@test("history/receipts")
def receipts():
    with Runner("--pool", "1") as r:
        same(r.call(wire.HISTORY, "n", flags=wire.NO_CREATE).code,
             "no_sandbox", "nothing is made for a history")
        same(r.limits()["SANDBOXES"], 0, "nothing was")

        a = run(r, "n", "echo out; echo err >&2; exit 3", "first", cwd="/tmp")
        same(a.result["EXIT_CODE"], 3)
        run(r, "n", "echo " + "\u4e2d" * 200, "second")

        second, first = history(r, "n")
        same((first["COMMAND_ID"], first["COMMAND_STATE"], first["ORDINAL"]),
             (b"first", ENDED, 1), "the first")
        for name in ("EXIT_CODE", "OUTCOME", "STDOUT_BYTES", "STDERR_BYTES",
                     "DURATION_US", "CPU_US", "MEMORY_PEAK", "SANDBOX_ID",
                     "INSTANCE", "CWD", "WALL_MS", "CREATED", "TRUNCATED"):
            same(first[name], a.result[name], name)
        same(first["COMMAND"], b"echo out; echo err >&2; exit 3", "its text")
        check(first["ACCEPTED_MS"] <= first["STARTED_MS"]
              <= first["ENDED_MS"], "times", first)
        check(abs(first["ENDED_MS"] / 1000 - time.time()) < 60, "by the clock")
        same(second["ORDINAL"], 2, "the second")
        text = second["COMMAND"].decode()       # cut between characters
        check(len(second["COMMAND"]) in range(254, 257), "its text is cut",
              len(second["COMMAND"]))
        check(("echo " + "\u4e2d" * 200).startswith(text), "and nothing else")
        check("OUTPUT_EXPIRED" not in first, "output is there")

        for limit in (0, 1001):
            same(r.call(wire.HISTORY, "n", wire.fields(("LIMIT", limit)),
                        tenant=tenant("n")).code, "bad_request", str(limit))
        same(r.call(wire.HISTORY, "n", b"\0\1", tenant=tenant("n")).code,
             "bad_request", "half a field")
        same(r.call(wire.HISTORY, "n", body=b"x", tenant=tenant("n")).code,
             "bad_request", "a body")

        # another conversation has a history of its own
        run(r, "m", "true", "third")
        same(ids(history(r, "m")), ["third"])
        same(ids(history(r, "n")), ["second", "first"])


@test("history/waiting-and-running")
def waiting():
    with Runner("--pool", "1") as r:
        run(r, "n", "true", "a")
        threads = []
        for id, text in (("b", "cat; :"), ("c", "echo c"), ("d", "echo d")):
            t = threading.Thread(target=run, args=(r, "n", (
                "until [ -e go ]; do sleep .05; done" if id == "b" else text),
                id))
            t.start()
            threads.append(t)
            wait_for(lambda: id in ids(history(r, "n")), 10, id)
        wait_for(lambda: [x for x in history(r, "n")
                          if x["COMMAND_STATE"] == RUNNING], 20, "b to run")
        records = history(r, "n")
        same(ids(records), ["d", "c", "b", "a"], "newest first")
        same([x["COMMAND_STATE"] for x in records],
             [QUEUED, QUEUED, RUNNING, ENDED], "states")
        check("STARTED_MS" not in records[0] and "STARTED_MS" in records[2],
              "only what runs has begun")
        same(ids(page(r, "n", LIMIT=2)[0]), ["d", "c"], "a page of them")
        os.close(os.open("/proc/%d/root/home/sandbox/go" % agent_of(r, "n"),
                         os.O_CREAT | os.O_WRONLY, 0o644))
        for t in threads:
            t.join()
        same([x["COMMAND_STATE"] for x in history(r, "n")], [ENDED] * 4)


@test("history/thousand", 300)
def thousand():
    """1,000 receipts, the output of 32, ids for longer; latency stays."""
    with Runner("--pool", "1") as r:
        took = []
        for i in range(1250):
            start = time.monotonic()
            a = run(r, "n", "echo %d" % i, "c%d" % i)
            took.append(time.monotonic() - start)
            same(a.stdout, b"%d\n" % i)
        first, last = sorted(took[100:300])[100], sorted(took[-200:])[100]
        print("# median of a command: %.2f ms, after 1,000: %.2f ms"
              % (first * 1e3, last * 1e3))
        # what grew with it would be a hundred times as much
        check(last < 10 * first + 0.2, "a long history costs nothing",
              first, last)

        def look(where):
            records = history(r, "n", 150)
            same(ids(records), ["c%d" % i for i in range(1249, 249, -1)],
                 "the last 1,000, " + where)
            same([x["ORDINAL"] for x in records], list(range(1250, 250, -1)))
            same([x.get("OUTPUT_EXPIRED", 0) for x in records],
                 [0] * 32 + [1] * 968, "output of 32, " + where)

            # a repeated request is answered from what is kept
            a = run(r, "n", "echo 1218", "c1218")
            same(a.stdout, b"1218\n", "the 32nd last, " + where)
            a = run(r, "n", "echo 1217", "c1217")
            same((a.stdout, a.result["OUTPUT_EXPIRED"], a.result["EXIT_CODE"]),
                 (b"", 1, 0), "the one before, " + where)
            same(run(r, "n", "echo 250", "c250").result["STDOUT_BYTES"], 4,
                 "the oldest, " + where)
            same(run(r, "n", "echo 249", "c249").code, "expired",
                 "the one before is not run again, " + where)
            same(run(r, "n", "echo 0", "c0").code, "expired",
                 "nor the first, " + where)
            same(run(r, "n", "echo other", "c1249").code,
                 "command_id_reused", "another request, " + where)

        look("alive")
        settle(r, "n")
        kill_agent(r, "n")
        look("after its death")


@test("history/agent-killed")
def agent_killed():
    with Runner("--pool", "1") as r:
        run(r, "n", "echo before", "before")
        settle(r, "n")

        lost = []

        def one(id, text):
            try:
                lost.append(run(r, "n", text, id))
            except wire.Lost as error:
                lost.append(error)

        t = threading.Thread(target=one, args=("dies", "echo x; sleep 60"))
        t.start()
        wait_for(lambda: any(x["COMMAND_STATE"] == RUNNING
                             for x in history(r, "n")), 10, "a command")
        os.kill(agent_of(r, "n"), signal.SIGKILL)
        t.join()
        check(isinstance(lost[0], wire.Lost), "its client lost it", lost)

        dies, before = history(r, "n")
        same((dies["COMMAND_ID"], dies["OUTCOME"], dies["EXIT_CODE"]),
             (b"dies", LOST, 137), "what ran is runner_lost")
        same(dies["OUTPUT_EXPIRED"], 1, "its output is gone")
        same(dies["COMMAND"], b"echo x; sleep 60", "its text is not")
        same(before["OUTCOME"], EXIT, "what was before is as it was")

        # never run twice: the same request gets the receipt
        a = run(r, "n", "echo x; sleep 60", "dies")
        same((a.outcome, a.stdout), ("runner_lost", b""))
        for after in (0, 2, 1000):              # who followed it gets it, too
            a = r.call(wire.ATTACH, "n", wire.fields(
                ("COMMAND_ID", "dies"), ("STREAM", 1), ("AFTER", after)),
                tenant=tenant("n"))
            same((a.code, a.outcome), (None, "runner_lost"), str(after))
        same(run(r, "n", "echo before", "before").stdout, b"before\n")

        # also from the next agents
        for _ in range(2):
            kill_agent(r, "n")
            same([x["OUTCOME"] for x in history(r, "n")], [LOST, EXIT])
        same(run(r, "n", "echo on", "on").stdout, b"on\n", "it goes on")
        same([x["ORDINAL"] for x in history(r, "n")], [3, 2, 1])


@test("history/never-twice", 600)
def never_twice():
    """Agents die at any time, clients try again by the same id: no command
    ever runs a second time, and none that was answered is forgotten."""
    with Runner("--pool", "1") as r:
        rnd = random.Random(1)
        answered, end = {}, []

        def client(n):
            i = 0
            while not end:
                i += 1
                id = "c%d.%d" % (n, i)
                text = "echo %s >> log; echo %s" % (id, id)
                for _ in range(30):
                    try:
                        a = run(r, "n", text, id)
                    except (wire.Lost, OSError):
                        continue        # the same once more
                    if a.result:
                        answered[id] = a.outcome
                        break
                    check(a.code in ("sandbox_failed", "expired",
                                     "slow_request"), "a refusal", a)
                    time.sleep(0.2)

        run(r, "n", "true", "first")
        threads = [threading.Thread(target=client, args=(n,))
                   for n in range(3)]
        for t in threads:
            t.start()
        until = time.monotonic() + 200
        deaths, done, pause = 0, 0, 0.25
        while deaths < 25 or len(answered) < 51 and time.monotonic() < until:
            deaths += 1
            # where it takes long to wake, none would come to do anything
            pause = 0.25 if len(answered) > done else min(2 * pause, 8)
            done = len(answered)
            time.sleep(rnd.uniform(0.02, pause))
            record = r.record("n")
            pid = int(record["pid"]) if record else 0
            try:
                if pid > 1 and pid in r.agents():
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        end.append(True)
        for t in threads:
            t.join()

        log = run(r, "n", "cat log", "log", output=1 << 20).stdout.decode()
        ran = log.split()
        same([x for x in set(ran) if ran.count(x) > 1], [], "twice")
        outcomes = {x["COMMAND_ID"].decode(): wire.OUTCOMES[x["OUTCOME"]]
                    for x in history(r, "n")}
        print("# %d commands, %d of them lost" % (
            len(answered), list(answered.values()).count("runner_lost")))
        check(len(answered) > 50, "commands", len(answered))
        for id, outcome in answered.items():
            if outcome == "exit":
                check(id in ran, "an answer without a run", id)
            check(id in outcomes or len(outcomes) == 1000, "forgotten", id)


@test("history/runner-killed")
def runner_killed():
    with Runner("--pool", "1", ephemeral=False) as r:
        for i in range(40):
            run(r, "n", "echo %d" % i, "c%d" % i)
        before = history(r, "n")

        # the agent lives on and is taken over
        r.kill()
        r.start()
        same(history(r, "n"), before, "a runner that was killed")

        # it ends with its runner, and wakes
        r.end(signal.SIGTERM)
        r.start()
        same(history(r, "n"), before, "a runner that was stopped")
        same(run(r, "n", "echo 39", "c39").stdout, b"39\n", "with output")

        # both at once, as at the end of a machine
        run(r, "n", "echo last", "last")
        settle(r, "n")
        pid = agent_of(r, "n")
        r.kill()
        os.kill(pid, signal.SIGKILL)
        r.start()
        same(ids(history(r, "n")), ["last"] + ids(before), "both killed")

        r.call(wire.DELETE, "n")
        same(r.call(wire.HISTORY, "n", flags=wire.NO_CREATE).code,
             "no_sandbox", "DELETE takes it away")
        run(r, "n", "echo new", "c1")
        same([x["COMMAND"] for x in history(r, "n")], [b"echo new"],
             "a new one begins with nothing, also as to ids")
        r.ephemeral = True


@test("history/idle-stop")
def idle_stop():
    with Runner("--pool", "1") as r:
        r.limits(IDLE_MS=1000)
        run(r, "n", "echo a; echo b >&2", "a")
        before = history(r, "n")
        wait_for(lambda: state(r, "n") == "idle", 20, "the idle stop")
        wait_for(lambda: len(r.agents()) == 1, 20, "only the pool is left")
        same(history(r, "n"), before, "a history wakes it")
        a = run(r, "n", "echo a; echo b >&2", "a")
        same((a.stdout, a.stderr), (b"a\n", b"b\n"), "with output")
        wait_for(lambda: state(r, "n") == "idle", 20, "the next idle stop")


@test("history/fresh")
def fresh():
    """It is the conversation's: a fresh sandbox has it, too."""
    with Runner("--pool", "2") as r:
        for i in range(40):
            run(r, "n", "echo %d; echo %d > f" % (i, i), "c%d" % i)
        before = history(r, "n")

        a = run(r, "n", "ls f; echo fresh", "fresh", flags=wire.FRESH)
        same(a.stdout, b"fresh\n", "an empty sandbox")
        records = history(r, "n")
        for x in records + before:
            x.pop("OUTPUT_EXPIRED", None)       # one more, one of them gone
        same(records[1:], before, "with all receipts")
        check(records[0]["INSTANCE"] > records[1]["INSTANCE"],
              "those of the other instance")
        same(run(r, "n", "echo 39; echo 39 > f", "c39").stdout, b"39\n",
             "with output")
        same(run(r, "n", "cat f", "f").stderr.count(b"No such file"), 1,
             "nothing was run again")

        # RESET, while something runs and something waits
        def one(id):
            out.append(run(r, "n", "sleep 60", id))
        out = []
        threads = [threading.Thread(target=one, args=(id,))
                   for id in ("runs", "waits")]
        for t, states in zip(threads, ([RUNNING], [QUEUED, RUNNING])):
            t.start()
            wait_for(lambda: [x["COMMAND_STATE"] for x in history(r, "n")][
                :-42] == states, 20, "one that runs, one that waits")
        reset = r.call(wire.RESET, "n", tenant=tenant("n")).result
        for t in threads:
            t.join()
        same({a.outcome for a in out}, {"sandbox_deleted"}, "answers")
        records = history(r, "n")
        running = [x for x in records if x["COMMAND_ID"] == b"runs"]
        same([wire.OUTCOMES[x["OUTCOME"]] for x in running],
             ["sandbox_deleted"], "what ran")
        same(ids(records)[-42:], ["f", "fresh"] + ids(before),
             "all before it")
        same(run(r, "n", "echo on", "on").result["INSTANCE"],
             reset["INSTANCE"], "the fresh one")
        check(history(r, "n")[0]["ORDINAL"] > records[0]["ORDINAL"],
              "numbers rise")

        # RESET of one that sleeps
        r.limits(IDLE_MS=1000)
        wait_for(lambda: state(r, "n") == "idle", 20, "the idle stop")
        wait_for(lambda: len(r.agents()) == 2, 20, "the end of its container")
        asleep = 2 + 1          # the pool's, and it; those before may still go
        wait_for(lambda: len(r.slots()) == asleep, 60, "their disks' end")
        r.limits(IDLE_MS=600000)
        r.call(wire.RESET, "n", tenant=tenant("n"))
        same(ids(history(r, "n")), ["on"] + ids(records), "from its disk")
        same(run(r, "n", "echo on", "on").stdout, b"on\n", "with output")
        same(run(r, "n", "ls f", "ls").stdout, b"", "an empty sandbox")
        wait_for(lambda: len(r.slots()) == asleep, 20, "the old disk's end")

        # and the next fresh one has it from the first
        run(r, "n", "true", "next", flags=wire.FRESH)
        same(ids(history(r, "n"))[-40:], ids(before), "from hand to hand")

        r.call(wire.DELETE, "n")
        run(r, "n", "true", "new")
        same(ids(history(r, "n")), ["new"], "DELETE ends it")


@test("history/full-disk", 180)
def full_disk():
    with Runner("--pool", "0") as r:
        def small(text, id, **fields):
            return run(r, "n", text, id, disk=64, **fields)

        same(small("echo before", "before").stdout, b"before\n")
        settle(r, "n")
        a = small("cat /dev/zero > big; ls -s big", "fill")
        check(b"No space left" in a.stderr, "the disk is full", a.stderr)

        # nothing of it is missing to a command, and receipts are written
        for i in range(60):
            a = small("echo %d; head -c 100000 /dev/zero" % i, "c%d" % i)
            same((a.outcome, a.result["STDOUT_BYTES"]),
                 ("exit", 100000 + len("%d\n" % i)), "a command")
        a = small("echo 59; head -c 100000 /dev/zero", "c59")
        same(len(a.stdout), 100003, "its output is known, in memory")

        # and stays so when the disk has refused it: the oldest goes
        settle(r, "n")
        for i in range(59, 49, -1):
            a = small("echo %d; head -c 100000 /dev/zero" % i, "c%d" % i)
            same(len(a.stdout), 100000 + len("%d\n" % i), "in memory")
            check("OUTPUT_EXPIRED" not in a.result, "known", i)
        a = small("echo 0; head -c 100000 /dev/zero", "c0")
        same(a.result["OUTPUT_EXPIRED"], 1, "the oldest")

        kill_agent(r, "n")
        records = history(r, "n")
        same(ids(records), ["c%d" % i for i in range(59, -1, -1)]
             + ["fill", "before"], "receipts outlive the agent")
        check("OUTPUT_EXPIRED" not in records[-1]
              or "OUTPUT_EXPIRED" in records[0], "old output at most")

        # one that is too large for memory takes nobody else with it
        small("echo kept", "kept")
        large = dict(output=4 << 20)
        a = small("head -c 4100000 /dev/zero", "large", **large)
        same(len(a.stdout), 4100000)
        settle(r, "n")
        same(small("echo kept", "kept").stdout, b"kept\n")
        a = small("head -c 4100000 /dev/zero", "large", **large)
        same((len(a.stdout), a.result["OUTPUT_EXPIRED"]), (0, 1), "too large")

        same(small("rm big; echo room", "room").stdout, b"room\n")
        same(small("echo after", "after").stdout, b"after\n")
        settle(r, "n")
        kill_agent(r, "n")
        same(small("echo after", "after").stdout, b"after\n",
             "with room it is on the disk again")


@test("history/share-of-the-disk", 180)
def share():
    """The output of 32 commands has an eighth of the disk at most."""
    with Runner("--pool", "0") as r:
        big = dict(disk=64, output=2 << 20)

        def used():
            path = "/proc/%d/root/home" % agent_of(r, "n")
            s = os.statvfs(path)
            return (s.f_blocks - s.f_bfree) * s.f_frsize

        run(r, "n", "true", "first", **big)
        start = used()
        for i in range(40):
            a = run(r, "n", "head -c 1500000 /dev/urandom", "c%d" % i, **big)
            same(len(a.stdout), 1500000)
        settle(r, "n")
        wait_for(lambda: used() - start < 9 << 20, 20, "its share")
        expired = [x.get("OUTPUT_EXPIRED", 0) for x in history(r, "n")]
        check(expired[0] == 0 and expired[31] == 1, "the latest are kept",
              expired)
        check(used() - start < 9 << 20, "an eighth of 64 MiB",
              used() - start)


@test("history/out-of-reach")
def out_of_reach():
    """Whatever a command tries, it neither reads nor changes it."""
    with Runner("--pool", "1") as r:
        secret = "echo a-word-that-is-nowhere-else"
        run(r, "n", secret, "secret")
        settle(r, "n")
        a = run(r, "n", r"""
            exec 2>&1
            ls -la /proc/1/fd /proc/1/root /proc/1/map_files
            for i in $(seq 0 40); do
                cat /proc/1/fd/$i < /dev/null
                : > /proc/1/fd/$i
                ln -s /proc/1/fd/$i l$i; cat l$i
                readlink /proc/1/fd/$i
            done
            cat /proc/1/mem /proc/1/environ /proc/1/maps
            for p in /proc/[0-9]*/fd/*; do readlink $p; done | grep -w h
            cat /proc/self/mountinfo
            for d in /u /d/u /r/../h /h /../h /proc/self/root/../h /run/h; do
                ls -la $d
            done
            python3 - <<'END'
import ctypes, os, errno
libc = ctypes.CDLL(None, use_errno=True)
for fd in range(3, 64):
    for call in (438,):                     # pidfd_getfd
        p = libc.syscall(434, 1, 0)         # pidfd_open of the agent
        if p >= 0 and libc.syscall(call, p, fd, 0) >= 0:
            print("GOT a descriptor", fd)
for handle_type in (1, 2, 0x81, 0xf8):      # by its inode
    for inode in range(2, 40):
        raw = inode.to_bytes(4, "little") + bytes(8)
        head = len(raw).to_bytes(4, "little") \
            + handle_type.to_bytes(4, "little")
        buffer = ctypes.create_string_buffer(head + raw)
        root = os.open("/", os.O_RDONLY)
        fd = libc.syscall(304, root, buffer, 0)
        os.close(root)
        if fd >= 0:
            print("GOT a file by its handle", os.readlink(
                "/proc/self/fd/%d" % fd))
END
            find / -xdev -size +1000000k 2>/dev/null
            grep -rl a-word-that-is-nowhere /home /tmp /run /var /dev/shm \
                2>/dev/null
            find / -xdev -newermt '-1 hour' -not -path '/proc/*' 2>/dev/null \
                | head -50
            """, "search")
        text = a.stdout.decode(errors="replace")
        check("GOT" not in text, "a way in", text)
        check("SBXHIST" not in text and "nowhere-else" not in text,
              "its contents", text)
        check("Permission denied" in text, "it was tried", text[:2000])
        check("overlay" in text and " ext4 " not in text.replace(
            "/dev/", ""), "no mount of it", text)

        # a command inherits nothing that leads there
        a = run(r, "n", "ls -l /proc/self/fd; ls /proc/$$/fd", "fds")
        check(b"/h" not in a.stdout, "no descriptor", a.stdout)

        same(history(r, "n")[-1]["COMMAND"], secret.encode(), "it is as it was")
        same(run(r, "n", secret, "secret").stdout,
             b"a-word-that-is-nowhere-else\n")

        # on the host it is the container's root's alone
        path = "/proc/%d/fd/7" % agent_of(r, "n")
        s = os.stat(path)
        same(s.st_mode & 0o7777, 0o600, "its mode")
        same(s.st_uid, int(r.record("n")["ids"]), "its owner")


@test("history/damaged-file")
def damaged():
    """A file of nonsense: the agent starts, and begins anew."""
    with Runner("--pool", "1") as r:
        for i in range(5):
            run(r, "n", "echo %d" % i, "c%d" % i)
        settle(r, "n")
        with open("/proc/%d/fd/7" % agent_of(r, "n"), "r+b") as f:
            for at in (0, 8 << 20, 16 << 20, 32 << 20, 48 << 20):
                f.seek(at)
                f.write(os.urandom(100000))
        kill_agent(r, "n")
        same(history(r, "n"), [], "nothing of it is believed")
        same(run(r, "n", "echo on", "on").stdout, b"on\n", "it goes on")
        settle(r, "n")

        # the log is cut in the middle: what was before is there
        for i in range(5):
            run(r, "n", "echo %d" % i, "d%d" % i)
        settle(r, "n")
        with open("/proc/%d/fd/7" % agent_of(r, "n"), "r+b") as f:
            f.seek(0)
            data = f.read(65536)
            at = data.index(b"echo 3")
            f.seek(at)
            f.write(bytes(4096))
        kill_agent(r, "n")
        same(ids(history(r, "n")), ["d2", "d1", "d0", "on"], "what is whole")
        same(run(r, "n", "echo 1", "d1").stdout, b"1\n")


@test("history/http", 180)
def over_http():
    """The same as a client of the gateway sees it."""
    with Gateway(pool=1) as g:
        base = "v1/conversations/h/commands"

        def get(path="", **headers):
            return g.request("GET", base + path, headers=headers)

        def stream(id):
            return get("/" + id, Accept="text/event-stream")

        same((get().status, get().json["code"]), (404, "no_sandbox"))
        for i in range(45):
            g.run("h", "echo %d" % i, commandId="c%d" % i)

        def pages():
            out, cursor = [], ""
            while cursor is not None:
                page = get("?limit=20" + cursor).json
                out.append(len(page["commands"]))
                names.extend(c["commandId"] for c in page["commands"])
                cursor = page["next"] and "&cursor=%s" % page["next"]
            return out

        def look():
            names.clear()
            same(pages(), [20, 20, 5], "pages")
            same(names, ["c%d" % i for i in range(44, -1, -1)])
            same(get("/c44").json["stdout"], "44\n", "the last")
            old = get("/c12").json
            same((old["stdout"], old["outputExpired"], old["exitCode"]),
                 (None, True, 0), "the 33rd last")
            text = stream("c13").body.decode()
            check("event: started" in text and "13\\n" in text
                  and "event: result" in text, "events of the 32nd", text)
            r = stream("c12")
            same((r.status, r.json["code"]), (410, "expired"), "no events")
            r = get("/never")
            same((r.status, r.json["code"]), (404, "command_not_found"))

        names = []
        look()

        # the agent dies, with a command
        lost = []
        t = threading.Thread(target=lambda: lost.append(
            g.command("h", "sleep 60", commandId="dies")))
        pid = g.agent("h")                  # by a command of its own
        quiet(pid)                          # output is on the disk
        t.start()
        wait_for(lambda: get("/dies").status == 200
                 and get("/dies").json["state"] == "running", 10, "its start")
        os.kill(pid, signal.SIGKILL)
        t.join()
        result = get("/dies").json
        same((result["outcome"], result["exitCode"]), ("runner_lost", 137))
        text = stream("dies").body.decode()
        check("event: result" in text and "runner_lost" in text,
              "its stream is its end", text)
        same(get("?limit=1").json["commands"][0]["outcome"], "runner_lost")

        # a reset keeps what the conversation knows
        same(g.request("POST", "v1/conversations/h/reset", {}).status, 200)
        names.clear()
        same(sum(pages()), 47, "after a reset")
        same(get("/c44").json["stdout"], "44\n", "with output")
        g.delete("h")
        same(get().status, 404, "DELETE ends it")
        g.expected.append("runner_lost")


if __name__ == "__main__":
    main()
