#!/usr/bin/env python3
"""What people type: sandboxctl, make demo, make run."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import BUILD, SECRET, TOP, Gateway, free_port   # noqa: E402
from gateway import token                                    # noqa: E402
from tap import check, main, same, test                      # noqa: E402

CTL = BUILD + "/sandboxctl"
g = None


def start():
    global g
    g = Gateway(pool=2)
    g.start()


def stop():
    g.stop()


def ctl(*arguments, data=None, token_text=None, seconds=200):
    environment = dict(os.environ, SANDBOX_URL="http://127.0.0.1:%d/sandbox"
                       % g.port, SANDBOX_TOKEN=token_text or token())
    return subprocess.run([CTL] + list(arguments), input=data,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment, timeout=seconds)


@test("ctl/token")
def make_token():
    key = g.write("ctl.key", SECRET)
    r = ctl("token", "--key", key, "--sub", "carol")
    same((r.returncode, r.stderr), (0, b""))
    same(len(r.stdout.split()), 1)
    text = r.stdout.decode().strip()
    same(g.run("token", "echo hi", token=text)["stdout"], "hi\n")
    # another secret, no permission, an end in the past
    wrong = ctl("token", "--key", g.write("wrong.key", b"x" * 40), "--sub",
                "carol").stdout.decode().strip()
    same(g.request("GET", "v1/limits", token=wrong).status, 401)
    r = ctl("token", "--key", key, "--sub", "carol", "--permission", "other")
    same(g.request("GET", "v1/limits",
                   token=r.stdout.decode().strip()).status, 403)
    for arguments in (("token",), ("token", "--key", key),
                      ("token", "--key", "/nonexistent", "--sub", "x"),
                      ("token", "--key", key, "--sub", "x", "--ttl", "soon")):
        r = ctl(*arguments)
        check(r.returncode not in (0, -6, -11) and r.stderr, repr(arguments),
              r)


@test("ctl/run")
def run():
    r = ctl("run", "ctl", "echo out; echo err >&2; exit 3")
    same((r.stdout, r.stderr, r.returncode), (b"out\n", b"err\n", 3))
    same(ctl("run", "ctl", "kill -SEGV $$").returncode, 139)
    same(ctl("run", "--timeout", "1s", "ctl", "sleep 50").returncode, 124)
    r = ctl("run", "--stdin", "-", "ctl", "wc -c", data=b"x" * 12345)
    same(r.stdout.strip(), b"12345")
    r = ctl("run", "ctl", "printf '\\xff\\x00\\xfe'")
    same(r.stdout, b"\xff\x00\xfe")
    r = ctl("run", "--cwd", "/tmp", "--env", "A=b c", "ctl",
            "echo $PWD $A")
    same(r.stdout, b"/tmp b c\n")
    r = ctl("run", "--json", "ctl", "exit 4")
    same(json.loads(r.stdout)["exitCode"], 4)


@test("ctl/run-fails")
def run_fails():
    for token_text in ("a.b.c", token(permissions=[])):
        r = ctl("run", "ctl", "true", token_text=token_text)
        same(r.returncode, 125)
        check(r.stderr, "not a word")
    r = ctl("run", "--url", "http://127.0.0.1:1/sandbox", "ctl", "true")
    same(r.returncode, 125)
    r = ctl("run", "bad id", "true")
    same(r.returncode, 125)
    check(ctl("what").returncode not in (0, -11), "an unknown verb")
    check(ctl("run", "--what", "x", "y").returncode not in (0, -11),
          "an unknown option")


@test("ctl/conversation")
def conversation():
    ctl("run", "ctl2", "echo x > f")
    r = ctl("status", "ctl2")
    check(r.returncode == 0 and b"running" in r.stdout, "status:", r)
    same(ctl("reset", "ctl2").returncode, 0)
    same(ctl("run", "ctl2", "ls f").returncode, 2)
    same(ctl("rm", "ctl2").returncode, 0)
    check(b"none" in ctl("status", "ctl2").stdout, "still there")
    r = ctl("status")
    check(r.returncode == 0 and b"ready" in r.stdout, "status:", r)


@test("ctl/doctor")
def doctor():
    r = ctl("doctor")
    text = r.stdout.decode() + r.stderr.decode()
    same(r.returncode, 0, text)
    check(re.search("cgroup", text) and re.search("runtime", text), text)


@test("make/demo", seconds=900, backends="local", why="runner")
def demo():
    out = BUILD + "/demo-test"
    r = subprocess.run(["make", "-C", TOP, "--no-print-directory", "demo",
                        "SEED=4711"], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       env=dict(os.environ, OUT=out))
    text = r.stdout.decode()
    same(r.returncode, 0, text[-3000:])
    for name in ("signups-by-week.png", "q3-signups-deduped.csv"):
        found = re.findall(r"(/\S+/%s)$" % name, text, re.M)
        check(found and os.path.getsize(found[-1]) > 1000, name, text)
        folder = os.path.dirname(found[-1])
    r = subprocess.run([sys.executable, TOP + "/t/data/make_signups.py",
                        "verify", folder + "/in", folder, "--clean",
                        "q3-signups-deduped.csv"], stdout=subprocess.PIPE)
    same(r.returncode, 0, r.stdout.decode())
    shutil.rmtree(out, ignore_errors=True)


@test("make/run-mistakes")
def run_mistakes():
    """make run says what is wrong, and ends."""
    for arguments, word in ((["PORT=nonsense"], "PORT"),
                            (["PORT=%d" % g.port], "taken"),
                            (["CONF=/nonexistent"], "CONF"),
                            (["BACKEND=docker"], "BACKEND")):
        r = subprocess.run(["make", "-C", TOP, "--no-print-directory", "run",
                            "STATE=" + g.path("made")] + arguments,
                           stdin=subprocess.DEVNULL, timeout=280,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(r.returncode != 0 and word in r.stdout.decode(),
              repr(arguments), r)


@test("make/run-on-an-engine-mistakes")
def run_engine_mistakes():
    """Of engines, too: nothing begins that nginx would refuse."""
    for engines, port, word in (
            ("tcp://127.0.0.1", free_port(), "it has no port"),
            ("isolated", free_port(), "no engine"),
            ("tcp://127.0.0.1:1", g.port, "taken"),
            ("tcp://127.0.0.1:1", "x", "REGISTRY")):
        r = subprocess.run(
            [TOP + "/tools/run"], stdin=subprocess.DEVNULL, timeout=280,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(os.environ, BUILD=BUILD, BACKEND="dagger",
                     DAGGER=engines, REGISTRY=str(port),
                     PORT=str(free_port()), STATE=g.path("made")))
        check(r.returncode != 0 and word in r.stdout.decode(), engines, r)

    # the image of what is tried here is not that of a gateway that serves
    with open(g.path("made") + "/nginx.conf") as f:
        conf = f.read()
    found = re.search(r"sandbox_dagger_image \S+/sandbox (\S+);", conf)
    check(found, "no image", conf)
    same(found[1], BUILD + "/image.digest")
    with open(found[1]) as f:
        check(re.fullmatch("sha256:[0-9a-f]{64}\n", f.read()), "no digest")


@test("make/run-refused")
def run_refused():
    """A configuration that nginx refuses leaves nothing in /run."""
    state = os.path.realpath(g.path("refused"))
    with open(g.path("refused.conf"), "w") as f:
        f.write("no_such_directive on;\n")
    r = subprocess.run(["make", "-C", TOP, "--no-print-directory", "run",
                        "STATE=" + state, "PORT=%d" % free_port(),
                        "REGISTRY=%d" % free_port(),
                        "CONF=" + g.path("refused.conf")],
                       stdin=subprocess.DEVNULL, timeout=280,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(r.returncode != 0 and b"no_such_directive" in r.stdout, "make", r)
    check(os.path.isdir(state), "it did not come that far")
    name = hashlib.sha256(state.encode()).hexdigest()[:12]
    check(not os.path.exists("/run/sandbox-run-" + name), "it is left")


main(start, stop)
