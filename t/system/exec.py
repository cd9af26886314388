#!/usr/bin/env python3
"""Commands in real containers: group exec of the cases."""

import base64
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import SECRET, Gateway, wait_for                # noqa: E402
from hold import HOLD, held, let_go                          # noqa: E402
from tap import BACKEND, check, main, same, test             # noqa: E402

g = None


def start():
    global g
    g = Gateway(pool=3)
    g.start()


def stop():
    g.stop()


def run(text, conversation="exec", **fields):
    return g.run(conversation, text, **fields)


def out(text, conversation="exec", **fields):
    return g.output(conversation, text, **fields)


def code(text, **fields):
    return run(text, **fields)["exitCode"]


@test("exec/first")
def first():
    r = run("echo hi; echo err >&2; pwd; id -un; exit 3")
    same(r["stdout"], "hi\n/home/sandbox\nsandbox\n")
    same(r["stderr"], "err\n")
    same(r["exitCode"], 3)
    same(r["outcome"], "exit")
    same(r["signal"], None)
    same(r["cwd"], "/home/sandbox")
    same(r["sandboxCreated"], True)
    same((r["stdoutBytes"], r["stderrBytes"]), (25, 4))
    check(r["durationMs"] >= 0 and r["memoryPeakBytes"] > 0
          and r["cpuMs"] >= 0, "numbers:", r)
    again = run("true")
    same(again["sandboxCreated"], False)
    same(again["sandboxId"], r["sandboxId"])
    check(again["commandId"] != r["commandId"], "the same id twice")


@test("exec/exit-codes")
def exit_codes():
    for text, expected in (("exit 0", 0), ("exit 1", 1), ("exit 2", 2),
                           ("exit 42", 42), ("exit 255", 255),
                           ("exit 256", 0), ("exit -1", 255),
                           ("> plain; ./plain", 126),
                           ("/etc/passwd", 126), ("/tmp", 126),
                           ("no-such-command-anywhere", 127),
                           ("./no/such", 127), ("true", 0), ("false", 1)):
        r = run(text)
        same(r["exitCode"], expected, text)
        same(r["outcome"], "exit", text)


@test("exec/exit-vs-no-sandbox")
def exit_vs_no_sandbox():
    r = run("grep foo /dev/null")
    same((r["exitCode"], r["outcome"]), (1, "exit"))
    r = g.command("bad id here", "true")
    same(r.status, 404)
    check("exitCode" not in r.json and r.json["code"], "got", r)


@test("exec/signals")
def signals():
    for name, number in (("SEGV", 11), ("TERM", 15), ("KILL", 9),
                         ("ABRT", 6), ("FPE", 8), ("HUP", 1), ("INT", 2),
                         ("PIPE", 13), ("USR1", 10)):
        r = run("kill -%s $$; sleep 5" % name)
        same((r["exitCode"], r["signal"], r["outcome"]),
             (128 + number, "SIG" + name, "signal"), name)


@test("exec/signals-of-a-child")
def child_signals():
    r = run("sh -c 'kill -SEGV $$'; echo code $?")
    same(r["stdout"], "code 139\n")
    same((r["exitCode"], r["outcome"]), (0, "exit"))


@test("exec/pipeline-status")
def pipelines():
    same(code("false | true"), 0)
    same(code("set -o pipefail; false | true"), 1)
    same(code("python3 -c 'import sys; sys.exit(3)' | cat"), 0)


@test("exec/sigpipe")
def sigpipe():
    r = run("yes | head -1")
    same((r["stdout"], r["exitCode"]), ("y\n", 0))
    same(code("set -o pipefail; yes | head -1"), 141)
    same(out("python3 -c 'import signal;"
             "print(signal.getsignal(signal.SIGHUP))'"),
         "0\n")
    ignored = out("grep SigIgn /proc/self/status").split()[1]
    # where a cap of a file's size stands for one of the disk
    same(int(ignored, 16), 1 << 24 if BACKEND == "dagger" else 0,
         "ignored signals")
    blocked = out("grep SigBlk /proc/self/status").split()[1]
    same(int(blocked, 16), 0, "blocked signals")


@test("exec/stdin-empty")
def stdin_empty():
    for text, expected in (("cat; echo end", "end\n"),
                           ("read x; echo code $?", "code 1\n"),
                           ("python3 -c 'input()' 2>&1 | tail -1",
                            "EOFError: EOF when reading a line\n"),
                           ("wc -c", "0\n")):
        same(out(text), expected, text)


@test("exec/stdin")
def stdin():
    same(out("cat", stdin="hello\n"), "hello\n")
    same(out("read a; read b; echo $b-$a", stdin="1\n2\n"), "2-1\n")
    data = bytes(range(256)) * 4
    same(out("sha256sum | cut -c1-64",
             stdinBase64=base64.b64encode(data).decode()).strip(),
         __import__("hashlib").sha256(data).hexdigest())
    big = "x" * 3000000
    same(out("wc -c", stdin=big).strip(), "3000000")
    # nobody reads it: no harm
    same(out("echo done", stdin=big), "done\n")
    same(out("head -c 3", stdin=big), "xxx")


@test("exec/heredoc")
def heredoc():
    same(out("cat <<'EOF'\n$HOME \"q\" 'q' \\ `x`\nEOF\n"),
         "$HOME \"q\" 'q' \\ `x`\n")
    same(out("cat <<-EOF\n\t\ta\n\tb\n\tEOF\n"), "a\nb\n")
    same(out("cat <<EOF\nlast\nEOF"), "last\n")
    same(out("cat <<A; cat <<B\n1\nA\n2\nB\n"), "1\n2\n")
    r = run("cat <<EOF\nno end")
    same(r["stdout"], "no end\n")
    check("here-document" in r["stderr"], "bash's warning:", r)
    same(out("echo next"), "next\n")


@test("exec/multiline")
def multiline():
    lines = ["# a comment", "f()", "{", "    echo \"f $1\"", "}"]
    for n in range(65):
        lines += ["f %d" % n, "x=%d; \\" % n, "echo $x # %d" % n]
    lines.append("echo last")
    same(out("\n".join(lines)),
         "".join("f %d\n%d\n" % (n, n) for n in range(65)) + "last\n")


@test("exec/long-command")
def long_command():
    for size in (131071, 131072, 200000, 262144):
        frame = "cat <<'EOF' | wc -c\n%s\nEOF\n"
        text = frame % ("x" * (size - len(frame) + 2))
        same(len(text), size)
        same(out(text).strip(), str(size - len(frame) + 3), str(size))
    r = g.command("exec", "x" * 262145)
    same((r.status, r.json["code"]), (413, "command_too_large"))
    check(re.search(r"256 ?[kK]|262144", r.json["detail"]), "detail:",
          r.json["detail"])


@test("exec/cwd-default")
def cwd_default():
    same(out("pwd"), "/home/sandbox\n")
    same(out("cd /tmp && pwd"), "/tmp\n")
    same(out("pwd; echo $PWD; echo ${OLDPWD-none}"),
         "/home/sandbox\n/home/sandbox\nnone\n")


@test("exec/cwd")
def cwd():
    out("mkdir -p a/b 'with blank' ü")
    for path, expected in (("/home/sandbox/a/b", "/home/sandbox/a/b"),
                           ("/tmp", "/tmp"),
                           ("/home/sandbox/with blank",
                            "/home/sandbox/with blank"),
                           ("/home/sandbox/ü", "/home/sandbox/ü"),
                           ("/home/sandbox/a/../a/b", "/home/sandbox/a/b")):
        r = run("pwd -P", cwd=path)
        same(r["stdout"], expected + "\n", path)
        check(r["cwd"].rstrip("/"), "cwd of the result:", r)


@test("exec/cwd-gone")
def cwd_gone():
    out("mkdir -p gone; > file")
    out("rmdir ../gone", cwd="/home/sandbox/gone")
    for path in ("/home/sandbox/never", "/home/sandbox/gone",
                 "/home/sandbox/file", "/home/sandbox/file/x"):
        r = g.command("exec", "pwd", cwd=path)
        same((r.status, r.json["code"]), (422, "cwd_missing"), path)
        check(path in r.json["detail"], "the path is not told:", r)
    same(out("pwd"), "/home/sandbox\n")


@test("exec/cwd-outside")
def cwd_outside():
    out("ln -sfn / to-root; ln -sfn /etc to-etc; ln -sfn /tmp to-tmp;"
        "ln -sfn loop loop")
    for path in ("/etc", "/", "/home", "/usr/bin", "/proc", "/proc/1/cwd",
                 "/proc/self/fd", "/proc/self/fd/7", "/proc/self/root",
                 "/dev", "/home/sandbox/to-root", "/home/sandbox/to-etc",
                 "/home/sandbox/../../etc", "/tmp/../etc",
                 "/home/sandboxx", "/home/sandbox/loop"):
        r = g.command("exec", "pwd", cwd=path)
        check(r.status in (400, 422) and r.json["code"] in
              ("cwd_outside", "cwd_missing", "bad_request"), path, r)
    for path in ("../..", "x", "", "."):
        r = g.command("exec", "pwd", cwd=path)
        check(r.status in (400, 422) or (
            r.status == 200 and r.json["stdout"].startswith("/home/sandbox")),
            path, r)


@test("exec/cwd-locked")
def cwd_locked():
    """A home that can't be entered: the answer says so."""
    g.run("locked", "chmod 000 /home/sandbox")
    r = g.command("locked", "pwd")
    said = r.json.get("detail", "") + r.json.get("stderr", "")
    check("/home/sandbox" in said, "not a word of it:", r)
    same(g.run("locked", "chmod 755 ~; pwd", cwd="/tmp")["stdout"],
         "/tmp\n")
    same(g.run("locked", "pwd")["stdout"], "/home/sandbox\n")


@test("exec/created-is-told")
def created_is_told():
    """A first command that is refused does not use the news up."""
    r = g.command("told", "pwd", cwd="/home/sandbox/none")
    same((r.status, r.json["code"]), (422, "cwd_missing"))
    same(g.run("told", "true")["sandboxCreated"], True)
    same(g.run("told", "true")["sandboxCreated"], False)


@test("exec/env-clean")
def env_clean():
    text = out("env -0 | sort -z | tr '\\0' '\\n'")
    names = {line.split("=")[0] for line in text.splitlines()}
    known = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL",
             "VIRTUAL_ENV", "SSL_CERT_FILE", "MPLBACKEND", "PWD", "SHLVL",
             "_", "UV_OFFLINE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
             "TERM", "TMPDIR", "PYTHONUNBUFFERED", "UV_NO_PROGRESS",
             "MPLCONFIGDIR", "PIP_DISABLE_PIP_VERSION_CHECK", "OLDPWD",
             "PYTHONPYCACHEPREFIX"}
    same(names - known, set(), "names")
    for name, value in (("HOME", "/home/sandbox"), ("USER", "sandbox"),
                        ("LANG", "C.UTF-8"), ("MPLBACKEND", "Agg")):
        check("%s=%s\n" % (name, value) in text, name, text)


@test("exec/env")
def environment():
    r = run("printf '%s|' \"$A\" \"$B_2\" \"${EMPTY-unset}\" \"$HOME\"",
            env={"A": "1", "B_2": "zwei Wörter $HOME", "EMPTY": "",
                 "HOME": "/tmp"})
    same(r["stdout"], "1|zwei Wörter $HOME||/tmp|")
    same(out("printf '%s' \"${A-unset}\""), "unset")
    same(len(out("printf '%s' \"$LONG\"", env={"LONG": "x" * 100000})),
         100000)


@test("exec/init-environ")
def init_environ():
    text = out("for p in /proc/[0-9]*; do"
               " tr '\\0' '\\n' < $p/environ; tr '\\0' ' ' < $p/cmdline;"
               " done 2>/dev/null; true")
    for word in (g.key.hex(), SECRET.decode(), g.dir, "runner.sock",
                 "Bearer"):
        check(word not in text, "found inside:", word)


@test("exec/binary-output")
def binary_output():
    r = run("head -c 1000 /dev/urandom")
    same(r["stdoutBytes"], 1000)
    r = g.command("exec", "printf '\\xff\\xfe\\x00\\x80'",
                  query="?encoding=base64").json
    same(base64.b64decode(r["stdoutBase64"]), b"\xff\xfe\x00\x80")
    r = run("printf '\\xff\\xfe\\x00'")
    same(r["binaryStripped"], True)
    r = g.command("exec", "gzip -c /etc/passwd", query="?encoding=base64")
    check(base64.b64decode(r.json["stdoutBase64"])[:2] == b"\x1f\x8b",
          "not gzip:", r)


@test("exec/nul-output")
def nul_output():
    r = run("printf 'a\\n\\0\\nb\\n\\n\\n'")
    same(r["stdout"].replace("\0", "").replace("\ufffd", ""),
         "a\n\nb\n\n\n")
    same(r["stdoutBytes"], 8)
    same(r["binaryStripped"], True)


@test("exec/utf8-split")
def utf8_split():
    for lead in ("", "a", "ab"):
        r = run("printf %s; python3 -c 'print(\"€\" * 23333, end=\"\")'"
                % (lead or "''"))
        same(r["stdout"], lead + "€" * 23333, repr(lead))
        same(r["stdoutBytes"], len(lead) + 69999)
        same(r["binaryStripped"], False)


@test("exec/emoji-roundtrip")
def emoji():
    text = "🎉 e\u0301 中文 a\u200bb"
    same(out("cat", stdin=text), text)
    same(out("printf %%s '%s'" % text), text)
    out("printf x > '%s'" % text)
    check(text in out("ls"), "the name in a listing")
    same(out("cat '%s'" % text), "x")


@test("exec/two-streams")
def two_streams():
    r = run("python3 -c 'import sys; print(\"out\"); "
            "print(\"err\", file=sys.stderr); sys.exit(1)'")
    same((r["stdout"], r["stderr"], r["exitCode"]), ("out\n", "err\n", 1))


@test("exec/not-a-terminal")
def not_a_terminal():
    same(run("tty")["stdout"], "not a tty\n")
    same(code("test -t 0 || test -t 1 || test -t 2"), 1)
    same(out("python3 -c 'import sys; print(sys.stdout.isatty())'"),
         "False\n")
    check("\x1b" not in out("ls --color=auto /"), "colours")
    check(code("stty size") != 0, "stty found a terminal")
    check(code("true < /dev/tty") != 0, "/dev/tty opens")


@test("exec/background-returns")
def background_returns():
    started = time.monotonic()
    r = run("sleep 60 & echo hi")
    check(time.monotonic() - started < 59, "it waited for the sleep")
    same((r["stdout"], r["exitCode"]), ("hi\n", 0))
    check(r["backgroundProcesses"] >= 1, "not counted:", r)
    for text in ("sleep 61 > /dev/null 2>&1 & echo hi",
                 "nohup sleep 62 & echo hi", "(sleep 63 &) ; echo hi",
                 "setsid sleep 64 & echo hi", "{ sleep 65 | cat; } & echo hi",
                 "sleep 66 & disown; echo hi"):
        started = time.monotonic()
        check("hi" in run(text)["stdout"], text)
        check(time.monotonic() - started < 59, "it waited:", text)
    run("pkill sleep")


@test("exec/background-late-output")
def background_late():
    r = run("(%s; echo late; echo again > late-file;"
            " echo code $? >> late-file) & echo now" % HOLD)
    same(r["stdout"], "now\n")
    let_go(g, "exec")
    wait_for(lambda: run("cat late-file; echo ok")["stdout"]
             == "again\ncode 0\nok\n", 20, "the late writer")
    same(run("echo next")["stdout"], "next\n")


@test("exec/background-lives-on")
def background_lives():
    run("while :; do date +%s%N > beat; sleep 0.05; done &")
    one = out("until [ -s beat ]; do sleep 0.05; done; cat beat")
    wait_for(lambda: out("cat beat") not in ("", one), 10, "another beat")
    same(code("pkill -f '[w]hile :'; true"), 0)


@test("exec/zombies")
def zombies():
    r = run("python3 -c '\nimport os\nfor n in range(200):\n"
            "    if os.fork() == 0:\n        if os.fork() == 0:\n"
            "            os._exit(0)\n        os._exit(0)\n"
            "    os.wait()\n'; for i in $(seq 600); do "
            "n=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l);"
            " [ $n != 0 ] || break; sleep 0.1; done; echo $n")
    same(r["stdout"], "0\n", repr(r))
    wait_for(lambda: out("grep -l '^State:.Z' /proc/[0-9]*/status "
                         "2>/dev/null | wc -l") == "0\n", 10, "no zombies")


@test("exec/reaper-race", seconds=900)
def reaper_race():
    c = g.connect()
    for n in range(400):
        text, expected = ("true", 0) if n % 2 else ("exit 7", 7)
        r = g.command("race", text, connection=c)
        same((r.status, r.json.get("exitCode")), (200, expected), str(n))
    c.close()


@test("exec/kill-everything")
def kill_everything():
    out("echo kept > kept")
    for text in ("kill -9 -1", "pkill -9 -f .", "kill -9 0", "kill -9 1",
                 "python3 -c 'import os; os.kill(-1, 9)'"):
        run(text)
        same(out("cat kept; echo alive"), "kept\nalive\n", text)
    r = run("kill -9 -1; kill -9 $$")
    same((r["outcome"], r["signal"]), ("signal", "SIGKILL"))


@test("exec/exec-replaces")
def exec_replaces():
    same(out("exec python3 -c 'print(1)'"), "1\n")
    same(code("exec 3>&-"), 0)
    same(code("exec false"), 1)
    same(out("exec seq 1 20000 | tail -1"), "20000\n")


@test("exec/shell-options")
def shell_options():
    r = run("set -e; false; echo no")
    same((r["exitCode"], r["stdout"]), (1, ""))
    r = run("trap 'echo bye' EXIT; exit 3")
    same((r["exitCode"], r["stdout"]), (3, "bye\n"))
    same(code("(exit 4)"), 4)
    same(code("{ exit 5; } | cat"), 0)
    same(out("[[ a == a* ]] && echo ${BASH_VERSION:+bash}; "
             "a=(1 2 3); echo ${#a[@]}"), "bash\n3\n")
    same(out("echo $0; echo $#; echo \"$@\"").splitlines()[1:], ["0", ""])


@test("exec/silent-command")
def silent():
    for text, expected in (("true", 0), ("false", 1), ("printf ''", 0),
                           (":", 0), ("# only a comment", 0), (" ", 0)):
        r = g.command("exec", text)
        if text == " " and r.status == 400:
            continue
        same((r.json["stdout"], r.json["stderr"], r.json["exitCode"]),
             ("", "", expected), repr(text))


@test("exec/umask-home")
def umask_home():
    same(out("touch m; mkdir md; stat -c %a m md; rmdir md; rm m"),
         "644\n755\n")
    same(out("stat -c '%U %G' ~; test -w ~ && echo writable"),
         "sandbox sandbox\nwritable\n")
    same(out("id -u; id -g; id -G; whoami; getent passwd $(id -u) "
             "| cut -d: -f1,6,7"),
         "1000\n1000\n1000\nsandbox\nsandbox:/home/sandbox:/bin/bash\n")
    check(code("mkdir /root-level") != 0, "root level is writable")


@test("exec/inherited-fds")
def inherited_fds():
    # a glob opens a directory of its own, so ls does the listing
    names = out("ls /proc/self/fd").split()
    same(names, ["0", "1", "2", "3"])
    same(out("readlink /proc/self/fd/0"), "/dev/null\n")


@test("exec/foreground-server", backends="local", why="network")
def foreground_server():
    for seconds in (3, 10, 40):         # a machine that is busy needs longer
        r = run("python3 -u -m http.server 8123", timeoutSeconds=seconds)
        same((r["timedOut"], r["exitCode"], r["outcome"],
              r["timeoutSeconds"]), (True, 124, "timeout", seconds))
        if "8123" in r["stdout"] + r["stderr"]:
            break
    check("8123" in r["stdout"] + r["stderr"], "no log so far:", r)
    same(out("python3 -c 'import socket; s = socket.socket(); "
             "s.bind((\"0.0.0.0\", 8123)); print(\"free\")'"), "free\n")


@test("http/command-id")
def command_id():
    """The agent's part: attach, again, conflict."""
    text = "echo x >> ids; %s; echo out" % HOLD
    threads = [held(lambda: g.run("ids", text, commandId="one"))
               for _ in range(4)]
    wait_for(lambda: g.status("ids").get("running") == 1, 60, "it runs")
    let_go(g, "ids")
    results = [t.result() for t in threads]
    for r in results:
        same((r["stdout"], r["commandId"]), ("out\n", "one"))
    again = g.run("ids", text, commandId="one")
    same(again, results[0], "later")
    same(out("wc -l < ids", "ids").strip(), "1", "executions")
    r = g.command("ids", "echo other", commandId="one")
    same((r.status, r.json["code"]), (409, "command_id_reused"))
    # another conversation has ids of its own
    same(g.run("ids2", "echo other", commandId="one")["stdout"], "other\n")


@test("http/command-id-fresh")
def command_id_fresh():
    out("echo old > marker", "fresh")
    r = g.run("fresh", "ls; echo new > marker", commandId="f", fresh=True)
    same(r["stdout"].count("marker"), 0, "the old home is still there")
    same(r["sandboxCreated"], True)
    again = g.run("fresh", "ls; echo new > marker", commandId="f",
                  fresh=True)
    same(again["sandboxId"], r["sandboxId"], "wiped twice")
    same(out("cat marker", "fresh"), "new\n")


@test("exec/no-room")
def no_room():
    """No process can be had: not a silent 126."""
    g.run("no-room", "cat > f.py; python3 f.py > /dev/null 2>&1 &", stdin="""
import os, signal, time
signal.alarm(8)
while True:
    try:
        if os.fork() == 0:
            time.sleep(8)
            os._exit(0)
    except OSError:
        time.sleep(0.01)
""")
    time.sleep(1)
    silent = []
    for _ in range(5):
        r = g.command("no-room", "echo hi", timeoutSeconds=3)
        if r.status == 200 and r.json["exitCode"] == 126 \
                and not r.json["stderr"]:
            silent.append(r)
    same(silent, [], "silent 126")
    wait_for(lambda: g.command("no-room", "echo hi").json.get("stdout")
             == "hi\n", 40, "room again")


@test("exec/result-numbers")
def numbers():
    r = run("python3 -c '\nimport time\nend = time.process_time() + 0.4\n"
            "while time.process_time() < end: pass\n"
            "x = bytearray(64 << 20)\n'; sleep 0.3")
    check(r["cpuMs"] >= 300, "cpuMs", r)
    check(r["durationMs"] >= 600, "durationMs", r)
    check(r["memoryPeakBytes"] > 64 << 20, "memoryPeakBytes", r)
    json.dumps(r)


main(start, stop)
