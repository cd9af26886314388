#!/usr/bin/env python3
"""Everyday work with data; group data of the cases, as far as stdin and
stdout carry it."""

import base64
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import TOP, Gateway                             # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None


def start():
    global g
    g = Gateway(pool=2)
    g.start()


def stop():
    g.stop()


def run(text, conversation="data", **fields):
    return g.run(conversation, text, **fields)


def out(text, conversation="data", **fields):
    return g.output(conversation, text, **fields)


def fetch(conversation, name):
    """A file's bytes, over stdout."""
    size = int(out("stat -c %%s '%s'" % name, conversation))
    data = b""
    while len(data) < size:
        data += base64.b64decode(out(
            "tail -c +%d '%s' | head -c 150000 | base64 -w0"
            % (len(data) + 1, name), conversation))
    return data


@test("data/versions")
def versions():
    text = out("python3 -c 'import sys, numpy, pandas, httpx, matplotlib, "
               "openpyxl; print(sys.prefix, pandas.__version__)'")
    check(re.match(r"/home/sandbox/\.venv \d", text), "got", text)
    for tool in ("git", "curl", "jq", "rg", "unzip", "uv", "python3"):
        same(run("command -v " + tool)["exitCode"], 0, tool)


@test("data/headless-plot")
def headless_plot():
    r = run("python3 -c '\nimport matplotlib.pyplot as plt\n"
            "plt.plot([1, 2, 3]); plt.title(\"Grüße 你好\")\n"
            "plt.savefig(\"p.png\"); plt.show()\n"
            "print(plt.get_backend())'; echo ${DISPLAY-none}")
    same(r["exitCode"], 0, repr(r))
    same(r["stdout"].lower(), "agg\nnone\n")
    check("Glyph" not in r["stderr"], "missing glyphs:", r["stderr"])
    png = fetch("data", "p.png")
    check(png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) > 5000, "no PNG")


@test("data/plot-cache")
def plot_cache():
    for _ in range(2):
        r = run("python3 -c 'import matplotlib.pyplot'")
        same((r["exitCode"], r["stderr"]), (0, ""))


@test("data/blas-threads")
def blas():
    r = run("python3 -c '\nimport numpy as np\na = np.random.rand(1000, "
            "1000)\nprint((a @ a).shape)\n"
            "print(len(__import__(\"os\").listdir(\"/proc/self/task\")))'")
    lines = r["stdout"].splitlines()
    same(lines[0], "(1000, 1000)", repr(r))
    check(int(lines[1]) <= 8, "threads", lines)


@test("data/multiprocessing")
def multiprocessing():
    r = run("cat > mp.py; python3 mp.py", stdin="""
import multiprocessing as mp
from multiprocessing import shared_memory
def f(x):
    return x * x
if __name__ == "__main__":
    with mp.Pool(4) as pool:
        print(sum(pool.map(f, range(100))))
    lock = mp.Lock()
    with lock:
        pass
    s = shared_memory.SharedMemory(create=True, size=64 << 20)
    s.buf[:4] = b"abcd"
    s.buf[-1] = 1
    s.close()
    s.unlink()
    q = mp.Queue()
    p = mp.Process(target=q.put, args=("x",))
    p.start()
    print(q.get())
    p.join()
""")
    same(r["stdout"], "328350\nx\n", repr(r))


@test("data/timezones")
def timezones():
    same(out("python3 -c '\nfrom zoneinfo import ZoneInfo\n"
             "from datetime import datetime\n"
             "print(datetime(2025, 7, 1, tzinfo=ZoneInfo(\"Europe/Berlin\"))"
             ".utcoffset())\nimport pandas as pd\n"
             "print(pd.Timestamp(\"2025-01-01\", tz=\"UTC\")"
             ".tz_convert(\"Asia/Tokyo\"))'; "
             "TZ=America/New_York date -d '2025-07-01 12:00 UTC' +%H:%M"),
         "2:00:00\n2025-01-01 09:00:00+09:00\n08:00\n")


@test("data/locale")
def locale():
    same(out("python3 -c 'print(\"↗\")'; python3 -c '\n"
             "open(\"ü.txt\", \"w\").write(\"é\")'; cat ü.txt; echo; "
             "locale | grep LC_CTYPE; python3 -c 'import sys; "
             "print(sys.getfilesystemencoding(), sys.stdout.encoding)'"),
         "↗\né\nLC_CTYPE=\"C.UTF-8\"\nutf-8 utf-8\n")
    same(run("locale")["stderr"], "")


@test("data/pip-hint")
def pip_hint():
    for text in ("pip install x", "pip3 install x",
                 "python3 -m pip install x"):
        started = time.monotonic()
        r = run(text)
        check(r["exitCode"] != 0, text)
        check("uv add" in r["stderr"] + r["stdout"], text, r)
        check(time.monotonic() - started < 20, "slow:", text)


@test("data/uv-cache")
def uv_offline():
    """Without a network uv says so at once."""
    started = time.monotonic()
    r = run("uv add some-package-that-is-not-here")
    check(r["exitCode"] != 0, "got", r)
    check(re.search("network|offline|disabled", r["stderr"]), "no reason",
          r["stderr"])
    check(time.monotonic() - started < 20, "uv tried for long")
    same(out("uv run python -c 'import pandas; print(1)'"), "1\n")


@test("data/network-off")
def network_off():
    for text in ("curl -sS https://example.org/",
                 "git clone -q https://example.org/x.git",
                 "python3 -c 'import httpx; httpx.get(\"http://10.0.0.1/\")'"):
        started = time.monotonic()
        r = run(text)
        check(r["exitCode"] not in (0, 124), text, r)
        check(time.monotonic() - started < 20, "slow:", text)


@test("data/big-array")
def big_array():
    r = run("python3 -c '\nimport numpy as np\n"
            "a = np.ones((110 << 20,)); print(a.nbytes >> 20)'")
    same(r["stdout"], "880\n", repr(r))
    r = run("python3 -c '\nimport numpy as np\n"
            "a = np.ones((180 << 20,)); print(a.nbytes)'")
    check(r["outcome"] == "oom" or "MemoryError" in r["stderr"], "got", r)
    same(out("echo next"), "next\n")


@test("data/git-ownership")
def git_ownership():
    r = run("git init -q r && cd r && echo x > f && git add f && "
            "git -c user.name=a -c user.email=a@b commit -qm x && "
            "tar c . | (mkdir ../r2 && cd ../r2 && tar x && git status -s)")
    same((r["exitCode"], r["stdout"], r["stderr"]), (0, "", ""))


@test("data/sqlite-and-files")
def sqlite():
    same(out("python3 -c '\nimport sqlite3\nd = sqlite3.connect(\"x.db\")\n"
             "d.execute(\"create table t (a)\")\n"
             "d.executemany(\"insert into t values (?)\", "
             "[(i,) for i in range(1000)])\nd.commit()\n"
             "print(d.execute(\"select sum(a) from t\").fetchone()[0])'"),
         "499500\n")


@test("data/messy-csv", seconds=300)
def messy_csv():
    """The quarter's sign-ups, all three file variants, another seed."""
    work = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
    try:
        script = TOP + "/t/data/make_signups.py"
        subprocess.run([sys.executable, script, "make", work + "/in",
                        "--rows", "6000", "--seed", "4711"], check=True,
                       stdout=subprocess.DEVNULL)
        with open(TOP + "/tools/demo-analysis.py", encoding="utf-8") as f:
            analysis = f.read()
        for variant in ("q3-signups.csv", "q3-signups-latin1.csv"):
            name = "csv-" + variant.replace(".", "-")
            with open(work + "/in/" + variant, "rb") as f:
                data = base64.b64encode(f.read()).decode()
            r = run("cat > q3-signups.csv; wc -c < q3-signups.csv", name,
                    stdinBase64=data)
            same(r["exitCode"], 0)
            r = run("cat > analysis.py; python3 analysis.py", name,
                    stdin=analysis)
            same(r["exitCode"], 0, repr(r))
            folder = work + "/" + name
            os.mkdir(folder)
            for f in ("signups-by-week.png", "q3-signups-deduped.csv",
                      "signups-by-week.csv"):
                with open(folder + "/" + f, "wb") as o:
                    o.write(fetch(name, f))
            r = subprocess.run(
                [sys.executable, script, "verify", work + "/in", folder,
                 "--clean", "q3-signups-deduped.csv"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            same(r.returncode, 0, variant + "\n" + r.stdout.decode())
    finally:
        shutil.rmtree(work, ignore_errors=True)


main(start, stop)
