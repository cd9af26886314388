#!/usr/bin/env python3
"""Every cap in the places where it is easily missed: what is left running,
short-lived children, kernel memory, a full process table, a full disk; each
with its outcome and an honest receipt; group limits of the cases.  The first
part of the group is limits_basic.py."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, alive, wait_for                 # noqa: E402
from mcp import LEGACY, Client, text_of                      # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
V = "v1/conversations/"


def caps(cpu):
    return ("sandbox_memory 128m; sandbox_disk 256m; sandbox_processes 64;"
            "sandbox_open_files 256; sandbox_wall_time 100s;"
            "sandbox_background_time 900s; sandbox_output_total 4m;"
            "sandbox_cpu_time %ds;" % cpu)


def start():
    global g
    g = Gateway(pool=2, location=caps(1))
    g.start()


def stop():
    g.stop()


def run(text, conversation="limits", **fields):
    return g.run(conversation, text, **fields)


def out(text, conversation="limits", **fields):
    return g.output(conversation, text, **fields)


def ended(conversation, number):
    """The receipt of a background command, once there is one."""
    def look():
        r = g.request("GET", V + conversation + "/commands/" + number).json
        return r if "outcome" in r else None
    return wait_for(look, 60, "the end of " + number)


def gone(conversation, pattern, seconds=30):
    """Nothing of that name runs any more."""
    wait_for(lambda: out("pgrep -c '%s'; true" % pattern, conversation)
             == "0\n", seconds, "the end of every %s" % pattern)


@test("limits/cpu-time: what is left running", seconds=400)
def cpu_left():
    """It uses up its own command's cap, and nobody else's."""
    # it begins when its command is over, however late that is
    r = run("cp /bin/sh burner; mkfifo lit; (read x < lit; exec ./burner -c "
            "'while :; do :; done') > /dev/null 2>&1 & echo up", "left")
    same((r["stdout"], r["outcome"]), ("up\n", "exit"))
    same(r["backgroundProcesses"], 1, "it was waited for")
    r = run("echo > lit; sleep 2", "left")
    same(r["outcome"], "exit")
    check(r["cpuMs"] < 500, "it was charged to the next command", r)
    gone("left", "^burner$", 60)
    wait_for(lambda: g.status("left")["backgroundProcesses"] == 0, 10,
             "no process that counts")


@test("limits/cpu-time: background commands", seconds=120)
def cpu_background():
    r = g.command("back", "cp /bin/sh burner; ./burner -c 'while :; do :; "
                  "done' & ./burner -c 'while :; do :; done'",
                  background=True, commandId="burn")
    same(r.status, 202)
    same(out("echo beside", "back"), "beside\n")
    r = ended("back", "burn")
    same((r["outcome"], r["exitCode"], r["timedOut"]),
         ("cpu_limit", 137, False))
    check(950 <= r["cpuMs"] < 20000, "cpuMs", r)
    gone("back", "^burner$", 10)


@test("limits/cpu-time: many that live shortly", seconds=120)
def cpu_children():
    r = run("while :; do head -c 2M /dev/zero | md5sum > /dev/null; done")
    same((r["outcome"], r["exitCode"]), ("cpu_limit", 137))
    check(950 <= r["cpuMs"] < 20000, "cpuMs", r)
    r = run("python3 -c '\nimport hashlib, threading\nd = bytes(1 << 24)\n"
            "def f():\n    while 1:\n        hashlib.sha256(d)\n"
            "for i in range(8):\n    threading.Thread(target=f).start()'")
    same((r["outcome"], r["exitCode"]), ("cpu_limit", 137))
    check(950 <= r["cpuMs"] < 20000, "cpuMs of threads", r)
    # below the cap nothing ends, and all is counted
    g.reload(location=caps(20))
    r = run("for i in 1 2 3 4 5 6 7 8; do (python3 -c 'import os, time\n"
            "while time.process_time() < 0.4: pass\n"
            "open(\"over.%d\" % os.getpid(), \"w\")' &) ; done; "
            "until [ $(ls | grep -c over.) = 8 ]; do sleep 0.2; done")
    same(r["outcome"], "exit")
    # of one that still lives the kernel tells hundredths, cut off, twice
    check(r["cpuMs"] >= 3000, "of children that lost their parents", r)
    g.reload(location=caps(6))


@test("limits/wall-tree: what is left running")
def wall_left():
    for seconds in (2, 15, 60):         # a machine that is busy needs longer
        r = run("setsid sleep 1001 > /dev/null 2>&1 & (sleep 1002 > /dev/null "
                "&) ; echo up", timeoutSeconds=seconds)
        if r["outcome"] == "exit":
            break
    same((r["stdout"], r["outcome"], r["timeoutSeconds"]),
         ("up\n", "exit", seconds))
    gone("limits", "^sleep$", 100)
    # more than the cap is lowered, and said
    r = run("true", timeoutSeconds=3600)
    same(r["timeoutSeconds"], 100)


@test("limits/output-total: both streams, and what is left running")
def output_total():
    r = run("head -c 3M /dev/zero; head -c 3M /dev/zero >&2; echo no")
    same((r["outcome"], r["exitCode"]), ("output_limit", 137))
    check(r["stdoutBytes"] + r["stderrBytes"] > 4 << 20, "written", r)
    r = run("cp /bin/cat gusher; mkfifo tap; (read x < tap; exec ./gusher "
            "/dev/zero) & echo up")
    same((r["stdout"], r["outcome"]), ("up\n", "exit"))
    run("echo > tap")
    gone("limits", "^gusher$", 60)      # well before its time is over
    r = g.command("limits", "yes", background=True, commandId="gush")
    same(ended("limits", "gush")["outcome"], "output_limit")


@test("limits/memory-oom: its neighbours", seconds=600,
      backends="local", why="caps")
def memory_neighbours():
    """Only the sandbox that took too much loses something."""
    names = ("near", "oom")
    for name in names:
        r = g.command(name, "exec sleep 890", background=True,
                      commandId="server")
        same(r.status, 202)
    agents = [g.agent(name) for name in names]
    texts = ("exec python3 -c 'x = bytearray(512 << 20)'",
             "python3 -c 'import os\nfor i in range(5):\n    os.fork()\n"
             "x = bytearray(40 << 20)\nimport time; time.sleep(20)'; kill -9 "
             "$$")
    for text in texts:
        r = run(text, "oom")
        same((r["outcome"], r["exitCode"]), ("oom", 137), text)
        check(100 << 20 < r["memoryPeakBytes"] <= 128 << 20, "peak", r)
    # those that are born meanwhile, too
    run("while pkill -9 python3; do sleep 0.2; done", "oom")
    # a child that dies of it: the shell says so, and goes on
    r = run("python3 -c 'x = bytearray(512 << 20)'; echo code $?", "oom")
    same((r["outcome"], r["stdout"]), ("exit", "code 137\n"))
    for name, pid in zip(names, agents):
        check(alive(pid), "the agent of %s was killed" % name)
        r = g.request("GET", V + name + "/commands/server").json
        check("outcome" not in r, "the server of %s ended" % name, r)
        same(out("echo next", name), "next\n")
        check(run("true", name)["memoryPeakBytes"] < 64 << 20,
              "an old peak is told again")


@test("limits/memory-tmpfs-swap: page cache, sockets and pipes", seconds=120,
      backends="local", why="caps")
def memory_back_door():
    # more of files than fits: the reader is not killed
    r = run("head -c 180M /dev/zero > f && cat f f | wc -c; rm f", "cache")
    same((r["outcome"], r["stdout"]), ("exit", "%d\n" % (360 << 20)))
    # what lies in sockets and pipes is the sandbox's as well
    fill = """python3 -c '
import fcntl, os, socket
kept, n = [], 0
for i in range(120):
    if "%s" == "pipes":
        a, b = os.pipe()
        try:
            fcntl.fcntl(b, 1031, 1 << 20)
        except OSError:
            pass
        write = lambda b=b: os.write(b, bytes(65536))
    else:
        a, b = (s.detach() for s in socket.socketpair())
        write = lambda b=b: os.write(b, bytes(65536))
    os.set_blocking(b, False)
    kept += [a, b]
    try:
        while n < 512 << 20:
            n += write()
    except OSError:
        pass
with open("/proc/self/oom_score_adj") as f:
    adj = f.read()
print(n >> 20, adj.strip(), flush=True)'; kill -9 $$"""
    for kind in ("pipes", "sockets"):
        r = run(fill % kind, kind)
        if r["stdout"]:
            kept = int(r["stdout"].split()[0])
            check(kept <= 128, "%s hold %d MiB" % (kind, kept))
            check(r["memoryPeakBytes"] >= kept << 20, "uncounted", kind, r)
        else:
            same(r["outcome"], "oom", repr(r))
        same(out("echo next", kind), "next\n")


@test("limits/memory-reserve", seconds=600)
def memory_reserve():
    """Reserving is not using, under the caps that are the default."""
    with Gateway(pool=1) as roomy:
        same(roomy.output("r", """node -e '
const one = () => new WebAssembly.Memory({initial: 1, maximum: 65536});
const m = one(), many = Array.from({length: 20}, one);
m.grow(1000); new Uint8Array(m.buffer)[65536 * 1000] = 7;
new WebAssembly.Memory({initial: 1, maximum: 65536, shared: true});
const { Worker } = require("worker_threads");
let n = 0;
for (let i = 0; i < 8; i++)
    new Worker("require(\\"worker_threads\\").parentPort.postMessage(1)",
               {eval: true}).on("message", () => {
        if (++n == 8) console.log(m.buffer.byteLength, many.length) })'"""),
             "65601536 20\n")
        # as the runtime of Go does: arenas of address space, many threads
        same(roomy.output("r", GO + "cc -O1 -pthread -o go go.c && ./go"),
             "100 threads\n")
        same(roomy.output("r", "python3 -c '\nimport mmap, numpy as np\n"
                          "m = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE"
                          " | mmap.MAP_ANONYMOUS | 0x4000)\n"
                          "a = np.zeros(1 << 31, dtype=np.uint8)\n"
                          "m[1 << 39] = 1; a[1 << 30] = 1\n"
                          "b = np.random.rand(700, 700)\n"
                          "print(len(m) >> 40, a.size >> 31, (b @ b).shape)'"),
             "1 1 (700, 700)\n")
        same(roomy.output("r", "head -c 64M /dev/zero > /dev/shm/x && "
                          "stat -c %s /dev/shm/x; rm /dev/shm/x"),
             "67108864\n")


GO = r"""cat > go.c <<'E'
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *work(void *p)
{
    char *arena = p;
    memset(arena, 1, 4 << 20);
    madvise(arena, 8 << 20, MADV_DONTNEED);
    memset(arena + (4 << 20), 2, 1 << 20);
    usleep(200000);
    return NULL;
}
int main(void)
{
    int n = 100, i;
    char *p = NULL, *arena;
    pthread_t t[100];
    for (i = 4; i >= 0; i--) {
        p = mmap(NULL, 1UL << (36 + i), PROT_NONE,
                 MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) { perror("reserve"); return 1; }
    }
    if (mprotect(p, 1UL << 30, PROT_READ|PROT_WRITE)) {
        perror("commit");
        return 1;
    }
    for (i = 0; i < n; i++) {
        arena = p + ((size_t) i << 23);
        if (pthread_create(&t[i], NULL, work, arena)) {
            perror("thread");
            return 1;
        }
    }
    for (i = 0; i < n; i++) { pthread_join(t[i], NULL); }
    printf("%d threads\n", n);
    return 0;
}
E
"""


@test("limits/pids: threads, and a full table", seconds=600,
      backends="local", why="caps")
def pids():
    text = out("python3 -c '\nimport threading\nn = 0\n"
               "over = threading.Event()\ntry:\n"
               "    while n < 1000:\n        threading.Thread(target="
               "over.wait).start()\n        n += 1\n"
               "except RuntimeError:\n    pass\nover.set()\nprint(n)'")
    check(30 < int(text) < 64, "threads", text)
    # processes that never end fill it, and are ended by the cancel
    r = g.command("full", "exec python3 -c '\nimport os, time\nn = 0\n"
                  "try:\n    while 1:\n        if os.fork() == 0:\n"
                  "            time.sleep(890); os._exit(0)\n        n += 1\n"
                  "except BlockingIOError:\n    print(n, flush=True)\n"
                  "    time.sleep(890)'", background=True, commandId="all")
    same(r.status, 202)
    wait_for(lambda: g.request("GET", V + "full/commands/all").json[
        "seq"] > 1, 20, "a full table")
    for seconds in (2, 10, 40):
        r = run("echo not; /bin/true", "full", timeoutSeconds=seconds)
        if r["stderr"]:
            break
    check(r["outcome"] in ("exit", "timeout") and r["exitCode"] != 0,
          "outcome", r)
    check("rocess" in r["stderr"] or "fork" in r["stderr"], "a reason", r)
    same(g.request("GET", V + "full/fs?list").status, 200)
    same(run("echo neighbour", "other")["stdout"], "neighbour\n")
    r = g.request("DELETE", V + "full/commands/all").json
    same((r["outcome"], r["exitCode"]), ("cancelled", 137))
    same(out("ls | wc -l; pgrep -c python3; true", "full"), "3\n0\n")


@test("limits/descriptors: of many processes", seconds=120)
def descriptors():
    """50 processes that open all they can: the host has no fewer."""
    def host():
        with open("/proc/sys/fs/file-nr") as f:
            return [int(n) for n in f.read().split()]

    before, _, most = host()
    # with room for all of them: who is ended for lack of memory says nothing
    g.reload(location=caps(6).replace("128m", "512m"))
    r = run("for i in $(seq 50); do python3 -c '\nimport os, time\nn = 0\n"
            "try:\n    while n < 5000:\n        os.open(\"/dev/null\", 0)\n"
            "        n += 1\nexcept OSError as e:\n    print(e.errno, n, "
            "flush=True)\ntime.sleep(1)' & done; wait", "files")
    g.reload(location=caps(6))
    same((r["outcome"], r["stderr"]), ("exit", ""))
    lines = r["stdout"].splitlines()
    same(len(lines), 50)
    for line in lines:
        number, count = line.split()
        same(number, "24")
        check(200 < int(count) < 256, "open files", count)
    check(most > 100000, "the host's own limit is", most)
    wait_for(lambda: host()[0] < before + 5000, 20, "descriptors again")
    # more are not to be had, whoever asks
    same(out("ulimit -n 100000 2> /dev/null; ulimit -n; ulimit -Hn"),
         "256\n256\n")


@test("limits/disk-full: all that still works then", seconds=120,
      backends="local", why="disk")
def disk_full():
    r = run("yes > f", "disk")
    same((r["outcome"], r["exitCode"]), ("disk_full", 1), repr(r))
    check("No space left" in r["stderr"], "stderr", r)
    r = g.request("PUT", V + "disk/fs/new", b"x" * 100000)
    same((r.status, r.json["code"]), (507, "disk_full"))
    same(g.request("GET", V + "disk/fs/new").status, 404)
    r = g.command("disk", "echo a receipt", commandId="kept")
    same((r.status, r.json["stdout"]), (200, "a receipt\n"))
    r = g.request("GET", V + "disk/commands/kept").json
    same((r["stdout"], r["outcome"]), ("a receipt\n", "exit"))
    same(g.request("DELETE", V + "disk/fs/f").status, 204)
    same(out("echo ok > g; cat g", "disk"), "ok\n")
    # and by a command
    check(run("cat /dev/zero > f", "disk")["exitCode"] != 0, "it fits")
    same(out("rm f; echo ok > g; cat g", "disk"), "ok\n")
    same(g.request("PUT", V + "disk/fs/new", b"x" * 100000).status, 201)
    check(run("cat /dev/zero > f", "disk")["exitCode"] != 0, "it fits")
    r = g.request("POST", V + "disk/reset", {})
    same(r.status, 200)
    same(out("cat g 2> /dev/null; echo ok > g; cat g", "disk"), "ok\n")


@test("limits/inodes: said, listed, removed", seconds=600,
      backends="local", why="disk")
def inodes():
    r = run("python3 -c '\nimport os\nos.mkdir(\"many\")\nn = 0\nwhile 1:\n"
            "    os.close(os.open(\"many/%06d\" % n, os.O_CREAT)); n += 1'",
            "inodes")
    same((r["outcome"], r["exitCode"]), ("disk_full", 1), repr(r))
    check("Errno 28" in r["stderr"], "stderr", r)
    r = g.request("GET", V + "inodes/fs/many?limit=1000")
    entries = r.json["entries"]
    same((r.status, len(entries), entries[0]["name"]), (200, 1000, "000000"))
    check(r.json["next"], "no next page")
    r = g.request("PUT", V + "inodes/fs/new", b"x")
    same((r.status, r.json["code"]), (507, "disk_full"))
    same(g.request("DELETE", V + "inodes/fs/many?recursive=1",
                   timeout=100).status, 204)
    same(out("touch new; ls", "inodes").split()[-1], "uv.lock")
    same(g.delete("inodes").status, 204)


@test("limits/outcome-in-words", seconds=900, backends="local", why="disk")
def words():
    """Where there is room for it, an agent is told which cap it was."""
    # none is used up by what shall use up another, nor before it is
    g.reload(location=caps(3).replace("wall_time 100s", "wall_time 110s"))
    c = Client(g, "words", LEGACY)
    c.tools()
    for text, word, said in (
            ("sleep 60", "timeout", "Its time of 1 s was over: "),
            ("exec python3 -c 'while 1: pass'", "cpu_limit",
             " s of CPU time, with all processes"),
            ("exec python3 -c 'x = bytearray(1 << 30)'", "oom",
             "memory of 128 MiB was used up"),
            ("yes", "output_limit", "more than 4194304 bytes"),
            ("cat /dev/zero > f", "disk_full", "disk is full"),
            ("kill -SEGV $$", "signal", "SIGSEGV"), ("true", "exit", None)):
        r = c.call("run_command", command=text, timeoutSeconds=1
                   if word == "timeout" else 100)
        got = text_of(r)
        same(r["structuredContent"]["outcome"], word, got[-300:])
        last = got.rstrip("\n").split("\n")[-1]
        if said is None:
            check(last.startswith("["), "a reason", got)
        else:
            check(said in last and last.endswith("."), "no reason", got[-300:])
    g.reload(location=caps(6))


@test("limits/limits-reported: all of them", backends="local", why="caps")
def reported():
    r = g.request("GET", "v1/limits").json
    want = {"memoryBytes": 128 << 20, "diskBytes": 256 << 20,
            "processes": 64, "openFiles": 256, "cpuSeconds": 6,
            "timeoutSeconds": 100, "backgroundSeconds": 900,
            "outputTotalBytes": 4 << 20, "outputBytes": 256 << 10}
    same({k: r[k] for k in want}, want)
    for cap in ("memory", "processes", "cpu", "disk", "network"):
        check(cap in r["hardCaps"], "hardCaps", r)
    # what is said is so
    text = out("df --output=size -B1 / | tail -1; ulimit -n", "said")
    disk, files = (int(n) for n in text.split())
    check(200 << 20 < disk <= 256 << 20, "disk", disk)
    same(files, 256)


@test("limits/lower-in-the-command: ulimit works, outcomes are honest",
      backends="local", why="disk")
def lower():
    def ends(text, outcome, code, signal=None):
        r = run(text, "lower")
        same((r["outcome"], r["exitCode"], r["signal"]),
             (outcome, code, signal), text)
        return r

    r = ends("ulimit -v 100000; python3 -c 'b = bytearray(1 << 30)'",
             "exit", 1)
    check("MemoryError" in r["stderr"], r)
    r = ends("ulimit -n 20; python3 -c 'f = [open(\"/dev/null\") "
             "for _ in range(20)]'", "exit", 1)
    check("Too many open files" in r["stderr"], r)
    r = ends("ulimit -u 1; exec python3 -c 'import os; os.fork()'", "exit",
             1)
    check("BlockingIOError" in r["stderr"], r)
    r = ends("ulimit -f 1; exec head -c 100000 /dev/zero > big", "signal",
             153, "SIGXFSZ")
    same(run("stat -c %s big", "lower")["stdout"], "1024\n")
    # the cap is 1 s as well, of all processes together: so it is raised
    g.reload(location=caps(20))
    ends("ulimit -St 1; while :; do :; done", "signal", 152, "SIGXCPU")
    r = ends("ulimit -t 1; while :; do :; done", "signal", 137, "SIGKILL")
    check(r["cpuMs"] < 15000, "it ran for longer", r)
    g.reload(location=caps(1))
    # and none of them stays
    same(run("ulimit -v; ulimit -n; ulimit -f", "lower")["stdout"],
         "unlimited\n256\nunlimited\n")


main(start, stop)
