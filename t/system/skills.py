#!/usr/bin/env python3
"""Skills in real containers: loaded or uploaded, there before the next command,
read-only, imported by their names and hiding no module of Python's; replaced,
removed, there again after a reset; large ones; group files."""

import glob
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import BUILD, Gateway, token, wait_for          # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
S = "v1/conversations/%s/skills"
MANUAL = b"---\nname: charts\ndescription: Draws charts.\n---\n# Charts\n"
NO_REQUIREMENTS = ("The packages of its %s are not installed with it: \"uv "
                   "add -r /skills/%s/%s\" does it, where the network allows "
                   "it.")

# on an engine's volume there is a folder of root's, where they are unpacked
LIST = "ls -A -I .sandbox /skills"


def tar(entries):
    """Of (name, bytes), (name, None) for a folder, (name, bytes, mode)."""
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w") as t:
        for name, data, *mode in entries:
            info = tarfile.TarInfo(name)
            info.mode = mode[0] if mode else 0o644
            if data is None:
                info.type = tarfile.DIRTYPE
                t.addfile(info)
            else:
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
    return b.getvalue()


def start():
    global g
    g = Gateway(pool=2)
    g.library = g.dir + "/library"
    os.mkdir(g.library, 0o755)
    with open(g.library + "/charts.tar", "wb") as f:
        f.write(tar([("SKILL.md", MANUAL),
                     ("chart_tools.py", b"def draw(): return 'drawn'\n"),
                     ("run.sh", b"#!/bin/sh\necho ran\n", 0o755),
                     ("lib", None), ("lib/requirements.txt", b"x==1\n")]))
    g.options["http"] = """
        sandbox_store %s/store;
        sandbox_skills %s;
        sandbox_disk 512m;
    """ % (g.dir, g.library)
    g.options["server"] = """
        location /little/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_realm little;
            sandbox_disk 64m;
        }
    """ % g.dir
    g.start()


def stop():
    g.stop()


def put(conversation, name, data, status=201, prefix=""):
    r = g.request("PUT", prefix + S % conversation + "/" + name, data)
    same(r.status, status, "PUT of %s: %r" % (name, r))
    return r.json


def load(conversation, name, status=201):
    r = g.request("POST", S % conversation, {"name": name})
    same(r.status, status, "POST of %s: %r" % (name, r))
    return r.json


def out(conversation, command, notices=(), **fields):
    result = g.run(conversation, command, **fields)
    same([(n["name"], n["code"]) for n in result["stagingNotices"]],
         list(notices), result)
    return result["stdout"]


@test("files/skills: from the library, read-only, imported without a path")
def loaded():
    load("lib", "charts")
    result = g.run("lib", "cat /skills/charts/SKILL.md; /skills/charts/run.sh;"
                          " python3 -c 'import chart_tools as c;"
                          " print(c.draw())'; cd /tmp;"
                          " uv run --no-sync python3 -c 'import chart_tools'"
                          " || echo none")
    same(result["stdout"], MANUAL.decode() + "ran\ndrawn\n", result)
    same(result["stagingNotices"],
         [{"name": "charts", "code": "requirements",
           "detail": NO_REQUIREMENTS % ("lib/requirements.txt", "charts",
                                        "lib/requirements.txt")}])
    # told once, while the skill stays
    same(out("lib", "stat -c '%U:%G %a %n' /skills /skills/charts "
                    "/skills/charts/*"),
         "root:root 755 /skills\nroot:root 755 /skills/charts\n"
         "root:root 644 /skills/charts/SKILL.md\n"
         "root:root 644 /skills/charts/chart_tools.py\n"
         "root:root 755 /skills/charts/lib\n"
         "root:root 755 /skills/charts/run.sh\n")
    # whatever its user tries
    tries = ["touch /skills/charts/new", "echo x >> /skills/charts/SKILL.md",
             "echo x > /skills/charts/SKILL.md", "rm -rf /skills/charts",
             "rm -f /skills/charts/SKILL.md", "mv /skills/charts /skills/x",
             "mv /skills/charts/SKILL.md /tmp/", "mkdir /skills/own",
             "ln -s /tmp /skills/own", "chmod -R a+w /skills/charts",
             "ln -f /tmp/f /skills/charts/SKILL.md",
             "chown -R sandbox /skills/charts", "rmdir /skills/charts/lib",
             "truncate -s 0 /skills/charts/SKILL.md",
             "python3 -c 'import os; os.open(\"/skills/charts\", "
             "os.O_TMPFILE | os.O_WRONLY)'",
             "mount -t tmpfs x /skills/charts",
             "ln /skills/charts/SKILL.md /tmp/hard && echo x >> /tmp/hard"]
    same(out("lib", "touch /tmp/f /tmp/before; " + "; ".join(
        "if %s; then echo done %d; fi" % (t, i)
        for i, t in enumerate(tries)) + "; cd /skills/charts && find . -type f"
        " -newer /tmp/before | wc -l; sha256sum SKILL.md | cut -c1-9"),
         "0\n" + hashlib.sha256(MANUAL).hexdigest()[:9] + "\n")
    # nor over HTTP: what its user may not do there
    r = g.request("PUT", "v1/conversations/lib/fs/skills/charts/SKILL.md?root=/",
                  b"x")
    check(r.status in (403, 422), "refused", r)
    r = g.request("DELETE",
                  "v1/conversations/lib/fs/skills/charts?root=/&recursive=1")
    check(r.status in (403, 422), "refused", r)
    r = g.request("GET", "v1/conversations/lib/fs/skills/charts/SKILL.md?root=/")
    same((r.status, r.body), (200, MANUAL))


@test("files/skills: no module of a skill hides another one")
def shadows():
    bad = b"raise SystemExit('hidden')\n"
    names = ["json", "random", "os", "re", "sitecustomize", "usercustomize",
             "numpy", "pandas", "encodings", "site", "string"]
    put("shade", "a.b-c", tar([(n + ".py", bad) for n in names]
                              + [("own_one.py", b"x = 1\n"),
                                 ("x.pth", b"import sys; sys.exit(3)\n"),
                                 ("pkg/__init__.py", b"y = 2\n"),
                                 ("json/__init__.py", bad)]))
    same(out("shade", "python3 -c 'import json, random, os, re, string, numpy,"
                      " pandas, own_one, pkg; print(own_one.x, pkg.y, "
                      "json.dumps([1]))'; python3 -m json.tool <<< '[]';"
                      " python3 -I -c 'import json'"),
         "1 2 [1]\n[]\n")
    # two skills beside each other: the first name, in order, is the one
    put("shade", "zz", tar([("own_one.py", b"x = 9\n")]))
    same(out("shade", "python3 -c 'import own_one; print(own_one.x)'"), "1\n")


@test("files/skills: replaced, removed, again after reset and with fresh")
def replaced():
    put("re", "s", tar([("v", b"1"), ("old", b"")]))
    same(out("re", "cat /skills/s/v"), "1")
    put("re", "s", tar([("v", b"2")]), 200)
    same(out("re", "cat /skills/s/v; ls -A /skills/s"), "2v\n")
    put("re", "t", tar([("v", b"3")]))
    same(out("re", "cat /skills/*/v"), "23")
    same(g.request("POST", "v1/conversations/re/reset").status, 200)
    same(out("re", "cat /skills/*/v"), "23")
    same(out("re", "cat /skills/*/v", fresh=True), "23")
    same(g.request("DELETE", S % "re" + "/s").status, 204)
    same(out("re", LIST), "t\n")
    same(g.request("DELETE", S % "re" + "/t").status, 204)
    same(out("re", LIST), "")
    # with an attachment of the same name, in one request
    put("re", "both", tar([("v", b"4")]))
    same(g.request("PUT", "v1/conversations/re/attachments/both",
                   b"5").status, 201)
    same(out("re", "cat /skills/both/v attachments/both -", stdin="6"), "456")
    # a command that runs keeps what it has
    runs = []
    t = threading.Thread(target=lambda: runs.append(g.run(
        "re", "exec 3< /skills/both/v; touch go; while [ -e go ]; do "
              "sleep .05; done; cat <&3")))
    t.start()
    wait_for(lambda: g.request("GET", "v1/conversations/re/fs/go").status
             == 200, 20, "the command")
    put("re", "both", tar([("v", b"7")]), 200)
    same(g.request("DELETE", "v1/conversations/re/fs/go").status, 204)
    t.join()
    same(runs[0]["stdout"], "4")
    same(out("re", "cat /skills/both/v"), "7")


@test("files/skills: the last sandbox is lost, the next has them")
def lost():
    put("lost", "s", tar([("v", b"1")]))
    same(out("lost", "cat /skills/s/v"), "1")
    os.kill(g.agent("lost"), 9)
    same(out("lost", "cat /skills/s/v"), "1")


@test("files/skill-archive: 10,000 small files, and others meanwhile",
      seconds=240)
def many():
    data = tar([("d%d/f%d" % (i % 100, i), b"%d" % i) for i in range(10000)])
    at = time.monotonic()
    same(put("many", "small", data)["files"], 10000)
    uploaded = time.monotonic()
    worst, end = [0], threading.Event()

    def ping():
        while not end.is_set():
            began = time.monotonic()
            same(g.request("GET", "v1/conversations/other").status, 200)
            worst[0] = max(worst[0], time.monotonic() - began)

    t = threading.Thread(target=ping)
    t.start()
    begun = time.monotonic()
    try:
        same(out("many", "find /skills/small -type f | wc -l; "
                         "cat /skills/small/d9/f1009"), "10000\n1009")
    finally:
        end.set()
        t.join()
    ended = time.monotonic()
    print("# 10,000 files, %d bytes: PUT %d ms, in the next command %d ms; "
          "another's worst request meanwhile %d ms"
          % (len(data), (uploaded - at) * 1000, (ended - begun) * 1000,
             worst[0] * 1000))
    check(ended - begun < 140 and worst[0] < 30, ended - begun, worst)
    same(out("many", "true"), "")
    same(g.request("DELETE", S % "many" + "/small").status, 204)
    same(out("many", LIST), "")


@test("files/skills: one that the disk has no room for is asked for again",
      backends="local", why="disk")
def room():
    little = "/little/"
    put("room", "large", tar([("x", os.urandom(30 << 20))]), prefix=little)

    def run(command):
        r = g.request("POST", little + "v1/conversations/room/commands",
                      {"command": command})
        same(r.status, 200, r)
        return (r.json["stdout"], [(n["name"], n["code"])
                                   for n in r.json["stagingNotices"]])

    same(run(LIST), ("", [("large", "disk_full")]))
    put("room", "large", tar([("x", b"small")]), 200, little)
    same(run("cat /skills/large/x"), ("small", []))


@test("files/skill-archive: one that was damaged in the store")
def damaged():
    put("torn", "s", tar([("v", b"1")]))
    path, = glob.glob(g.dir + "/store/*/*/*/torn/skills/*")
    with open(path, "r+b") as f:
        f.seek(4096 + 200)
        f.write(b"garbage")
    result = g.run("torn", LIST + "; echo ran")
    same(result["stdout"], "ran\n")
    same(result["stagingNotices"],
         [{"name": "s", "code": "skill_refused",
           "detail": "It is no plain tar, or damaged."}])
    # it is of no use, and not asked for again
    same(out("torn", LIST), "")
    put("torn", "s", tar([("v", b"2")]), 200)
    same(out("torn", "cat /skills/s/v"), "2")


@test("sandboxctl skills: a folder becomes a skill")
def ctl():
    top = g.dir + "/pack"
    os.makedirs(top + "/stats-kit/data/deep")
    os.makedirs(top + "/stats-kit/.git")
    os.makedirs(top + "/stats-kit/__pycache__")
    for name, text in (("SKILL.md", "---\nname: stats\n---\n"),
                       ("stats_kit.py", "def mean(x): return sum(x)/len(x)\n"),
                       (".git/config", "x"), ("__pycache__/a.pyc", "x"),
                       ("data/deep/" + "n" * 150 + ".txt", "far")):
        with open(top + "/stats-kit/" + name, "w") as f:
            f.write(text)
    os.symlink("data/deep", top + "/stats-kit/link")
    env = dict(os.environ, SANDBOX_TOKEN=token(),
               SANDBOX_URL="http://127.0.0.1:%d/sandbox" % g.port)

    def call(*args, status=0):
        p = subprocess.run([BUILD + "/sandboxctl", "skills", *args],
                           capture_output=True, text=True, env=env,
                           cwd=top, timeout=200, check=False)
        same(p.returncode, status, args + (p.stdout, p.stderr))
        return p.stdout

    call("pack", "stats-kit", "-o", "one.tar")
    call("put", "ctl", "one.tar", "--name", "stats-kit")
    same(out("ctl", "python3 -c 'import stats_kit; print(stats_kit.mean("
                    "[1, 3]))'; cat /skills/stats-kit/link/n*; "
                    "ls -A /skills/stats-kit"),
         "2.0\nfarSKILL.md\ndata\nlink\nstats_kit.py\n")
    call("put", "ctl", "stats-kit")
    call("add", "ctl", "charts")
    check("stats-kit" in call("ls", "ctl") and "charts" in call("ls", "ctl"),
          call("ls", "ctl"))
    check("charts" in call("ls", "--library", "ctl"), "library")
    same([s["name"] for s in json.loads(call("ls", "--json", "ctl"))["skills"]],
         ["charts", "stats-kit"])
    call("rm", "ctl", "charts")
    call("rm", "ctl", "charts", status=1)
    call("add", "ctl", "nothing", status=1)
    same(out("ctl", "ls /skills"), "stats-kit\n")
    # into the library, where the next conversation finds it
    call("pack", "stats-kit", "-o", g.library + "/stats-kit.tar")
    load("ctl2", "stats-kit")
    same(out("ctl2", "ls /skills"), "stats-kit\n")
    shutil.rmtree(top)


main(start, stop)
