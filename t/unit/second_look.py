#!/usr/bin/env python3
"""When t/run forgives a file that failed beside others: only what is good
twice when it runs alone, never with STRICT=1, and never many of them."""

import os
import shutil
import subprocess
import tempfile

TOP = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../..")

# a file of tests that is good from its n-th run on, but for one in `bad`
FILE = """
n = len(open("runs").readlines()) if __import__("os").path.exists("runs") else 0
open("runs", "a").write("x\\n")
good = n >= %d and n != %d
print("ok 1 - steady")
print("ok 2 - unsteady" if good else "not ok 2 - unsteady\\n#   reason")
print("1..2")
raise SystemExit(not good)
"""

number = failed = 0


def ok(good, name, text):
    global number, failed
    number += 1
    print("%s %d - %s" % ("ok" if good else "not ok", number, name))
    if not good:
        failed += 1
        for line in text.splitlines():
            print("#   " + line)


def run(name, last, *files, **env):
    with tempfile.TemporaryDirectory(prefix="sandbox-look-") as folder:
        os.makedirs(folder + "/t/clients")
        shutil.copy(TOP + "/t/run", folder + "/t/run")
        for i, (from_run, bad) in enumerate(files):
            with open("%s/t/clients/f%d.py" % (folder, i), "w") as f:
                f.write((FILE % (from_run, bad)).replace(
                    '"runs"', '"runs%d"' % i))
        p = subprocess.run(
            [folder + "/t/run", "clients"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=dict(os.environ, BUILD=folder + "/build", **env), timeout=300)
    ok((p.stdout.splitlines()[-1], p.returncode) == (last, int(
        not last.endswith(" 0 failed"))), name, p.stdout)
    return p.stdout


NEVER = 10 ** 6
os.environ.pop("STRICT", None)
os.environ.pop("LOOKS", None)

if os.geteuid():
    print("ok 1 - all # SKIP suites of t/run need root\n1..1")
    raise SystemExit(0)

run("good at once", "2 passed, 0 failed", (0, NEVER))
out = run("failed beside others, good twice", "2 passed, 0 failed",
          (1, NEVER))
ok("at first failed, then passed twice alone:  clients f0.py" in out
   and "#   reason" in out.split("at first failed")[1],
   "it is told of, with its reason", out)
run("good only once", "1 passed, 1 failed", (1, 2))
run("never good", "1 passed, 1 failed", (NEVER, NEVER))
run("STRICT=1", "1 passed, 1 failed", (1, NEVER), STRICT="1")
run("three", "6 passed, 0 failed", *[(1, NEVER)] * 3)
run("more than three are none of luck", "4 passed, 4 failed",
    *[(1, NEVER)] * 4)
print("1..%d" % number)
raise SystemExit(1 if failed else 0)
