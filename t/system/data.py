#!/usr/bin/env python3
"""Everyday work with data; group data of the cases: files come as attachments
and through fs/, and go to the Files panel."""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import packages                                              # noqa: E402
from gateway import TOP, Gateway                             # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None


def start():
    global g
    g = Gateway(pool=2)
    g.options["http"] = "sandbox_store %s/store;" % g.dir
    g.described = True
    g.start()


def stop():
    g.stop()


def run(text, conversation="data", **fields):
    return g.run(conversation, text, **fields)


def out(text, conversation="data", **fields):
    return g.output(conversation, text, **fields)


def put(conversation, path, data):
    r = g.request("PUT", "v1/conversations/%s/%s" % (conversation, path), data)
    check(r.status in (200, 201), "PUT", path, r)


def fetch(conversation, name):
    """A file as the user gets it: saved to the Files panel, downloaded."""
    files = "v1/conversations/%s/files" % conversation
    r = g.request("POST", files, {"path": name, "overwrite": True})
    check(r.status in (200, 201), "saving", name, r)
    return g.request("GET", files + "/" + r.json["name"]).body


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
    """No complaint, and no list of fonts that is made again and again."""
    for name in ("plots", "plots", "plots-new"):
        r = run("python3 -c 'import matplotlib.pyplot'; find ~ -newer "
                "~/pyproject.toml -name 'fontlist*'", name)
        same((r["exitCode"], r["stdout"], r["stderr"]), (0, "", ""))


@test("data/blas-threads")
def blas():
    """Few processes are allowed, many processors there: no thread too many."""
    text = ("python3 -c '\nimport numpy as np\na = np.random.rand(2000, "
            "2000)\nprint((a @ a).shape)\n"
            "print(len(__import__(\"os\").listdir(\"/proc/self/task\")))'; "
            "nproc")
    with Gateway(pool=1, location="sandbox_processes 32;") as few:
        for r in (run(text), few.run("blas", text)):
            lines = r["stdout"].splitlines()
            same((lines[0], r["stderr"]), ("(2000, 2000)", ""), repr(r))
            check(int(lines[1]) <= int(lines[2]) + 1, "threads", lines)


@test("data/multiprocessing")
def multiprocessing():
    r = run("cat > mp.py; python3 mp.py", stdin="""
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
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
    with ProcessPoolExecutor(4) as pool:
        print(sum(pool.map(f, range(100), chunksize=10)))
    s = mp.Semaphore(2)
    s.acquire()
    a = mp.Array("d", 1 << 20)
    a[-1] = 2.5
    print(a[-1])
""")
    same((r["stdout"], r["stderr"]), ("328350\nx\n328350\n2.5\n", ""),
         repr(r))
    same(out("ls /dev/shm; df --output=size -m /dev/shm | tail -n 1 | "
             "awk '{ print ($1 >= 64) }'"), "1\n", "what is left of it")


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
    same(sorted(out("printf 'zebra\\néclair\\napfel\\nÄpfel\\n' > w; sort w; "
                    "sort w | tr -d '\\n' | wc -m").splitlines()),
         sorted(["zebra", "éclair", "apfel", "Äpfel", "21"]))
    same(out("python3 -c 'import sys; print(sys.argv[1])' ↗; python3 -c '"
             "import csv\ncsv.writer(open(\"ü.csv\", \"w\")).writerow([\"ß\"])"
             "\nprint(open(\"ü.csv\").read().strip())'"), "↗\nß\n")
    same(run("locale")["stderr"], "")


@test("data/pip-hint")
def pip_hint():
    for text in ("pip install x", "pip3 install x",
                 "python3 -m pip install x"):
        started = time.monotonic()
        r = run(text)
        check(r["exitCode"] != 0, text)
        check("uv add" in r["stderr"] + r["stdout"], text, r)
        check(time.monotonic() - started < 100, "slow:", text)


@test("data/uv-cache: without a network")
def uv_offline():
    """Without a network uv says so at once."""
    started = time.monotonic()
    r = run("uv add some-package-that-is-not-here")
    check(r["exitCode"] != 0, "got", r)
    check(re.search("network|offline|disabled", r["stderr"]), "no reason",
          r["stderr"])
    check(time.monotonic() - started < 100, "uv tried for long")
    same(out("uv run python -c 'import pandas; print(1)'"), "1\n")


@test("data/uv-cache", backends="local", why="network")
def uv_cache():
    packages.start(g, "uv", "tinya", "tinyb")
    same(out(packages.ONLINE + "uv add -q tinya && python3 -c 'import tinya; "
             "print(tinya.answer)'", "uv"), "42\n")
    # again, from what is there: with the network, and without
    for text in (packages.ONLINE + "uv add -q tinya", "uv add -q tinya",
                 "rm -r .venv/lib/python*/site-packages/tinya* && "
                 "uv sync -q"):
        r = run(text + "; python3 -c 'import tinya, pandas'", "uv")
        same((r["exitCode"], r["stderr"]), (0, ""), text)
    # a cache that can't be written: said, and nothing is spoilt
    r = run("cd ~/.cache/uv && chmod -R a-w . && cd && " + packages.ONLINE
            + "uv add tinyb; s=$?; chmod -R u+w ~/.cache/uv; exit $s", "uv")
    check(r["exitCode"] and "Permission denied" in r["stderr"]
          and "/home/sandbox/.cache/uv" in r["stderr"], "got", r)
    # one that finds another's lock
    r = run("(flock -x 9; sleep 1) 9< ~/.cache/uv/.lock & sleep 0.1; "
            "%s uv add -q tinyb && python3 -c 'import tinya, tinyb'"
            % packages.ONLINE, "uv")
    same((r["exitCode"], r["stderr"]), (0, ""), repr(r))
    packages.stop(g, "uv")
    same(out("uv pip list -q | grep -c tiny; stat -c %U $(find ~/.cache "
             "~/.venv | head -n 3000) | sort -u", "uv"), "2\nsandbox\n")


@test("data/node", backends="local", why="network")
def node():
    same(out("node -e 'const http = require(\"http\"); const s = "
             "http.createServer((q, a) => a.end(\"hello\")).listen(0, "
             "\"127.0.0.1\", async () => { const r = await fetch("
             "\"http://127.0.0.1:\" + s.address().port); console.log(await "
             "r.text()); s.close() })'"), "hello\n")
    same(out("node -e 'WebAssembly.instantiate(new Uint8Array([0, 97, 115, "
             "109, 1, 0, 0, 0])).then(m => console.log(typeof m.instance))'"),
         "object\n")
    r = run("mkdir -p js/tiny && cd js/tiny && npm init -y > /dev/null && "
            "echo 'module.exports = 42' > index.js && npm pack --silent && "
            "cd .. && npm init -y > /dev/null && npm install --silent "
            "./tiny/tiny-1.0.0.tgz && node -p 'require(\"tiny\")'")
    same((r["exitCode"], r["stdout"]), (0, "tiny-1.0.0.tgz\n42\n"), repr(r))
    for text in ("npx -y some-package-that-is-not-here",
                 "npm install some-package-that-is-not-here"):
        started = time.monotonic()
        r = run("cd js && " + text)
        check(r["exitCode"] not in (0, 124) and re.search(
            "EAI_AGAIN|ENOTFOUND|network|offline", r["stderr"]), text, r)
        check(time.monotonic() - started < 100, "slow:", text)


@test("data/network-off")
def network_off():
    for text in ("curl -sS https://example.org/",
                 "git clone -q https://example.org/x.git",
                 "python3 -c 'import httpx; httpx.get(\"http://10.0.0.1/\")'"):
        started = time.monotonic()
        r = run(text)
        check(r["exitCode"] not in (0, 124), text, r)
        check(time.monotonic() - started < 100, "slow:", text)


@test("data/big-array")
def big_array():
    r = run("python3 -c '\nimport numpy as np\n"
            "a = np.ones((110 << 20,)); print(a.nbytes >> 20)'")
    same(r["stdout"], "880\n", repr(r))
    r = run("python3 -c '\nimport numpy as np\n"
            "a = np.ones((180 << 20,)); print(a.nbytes)'")
    check(r["outcome"] == "oom" or "MemoryError" in r["stderr"], "got", r)
    same(out("echo next"), "next\n")
    # a long process that dies of it: who waits for it is told, at once
    r = g.command("kernel", "exec python3 -c '\nimport time\nprint(\"up\", "
                  "flush=True)\na = [bytearray(b\"x\") * (32 << 20)]\n"
                  "while True:\n    a.append(a[0][:])\n    time.sleep("
                  "0.01)'", background=True, commandId="long")
    same(r.status, 202)
    end = time.monotonic() + 200
    while time.monotonic() < end:
        r = g.request("GET", "v1/conversations/kernel/commands/long").json
        if "outcome" in r:
            break
        time.sleep(0.1)
    check(r.get("outcome") == "oom" or "MemoryError" in r["stderr"], "got", r)
    same(out("echo next", "kernel"), "next\n")


@test("data/git-ownership")
def git_ownership():
    """A repository that was uploaded, as a tar and file by file."""
    work = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
    try:
        environment = {"PATH": os.environ["PATH"], "HOME": work,
                       "GIT_CONFIG_NOSYSTEM": "1"}
        for words in (["init", "-q", "r"], ["-C", "r", "add", "."],
                      ["-C", "r", "-c", "user.name=a", "-c", "user.email=a@b",
                       "commit", "-qm", "first"]):
            subprocess.run(["git"] + words, cwd=work, env=environment,
                           check=True)
            with open(work + "/r/file.txt", "w", encoding="ascii") as f:
                f.write("content\n")
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as t:
            t.add(work + "/r", "r")
        put("git", "attachments/r.tgz", data.getvalue())
        for top, _, files in os.walk(work + "/r"):
            for name in files:
                path = os.path.join(top, name)
                with open(path, "rb") as f:
                    put("git", "fs/one-by-one" + path[len(work) + 2:], f.read())
    finally:
        shutil.rmtree(work)
    text = "git status -s && git log --format=%s && " \
        "echo more >> file.txt && git -c user.name=a -c user.email=a@b " \
        "commit -qam second && git rev-list --count HEAD"
    for folder in ("r", "one-by-one"):
        r = run("[ -e r ] || tar xf attachments/r.tgz; cd %s && %s"
                % (folder, text), "git")
        same((r["exitCode"], r["stdout"], r["stderr"]), (0, "first\n2\n", ""),
             folder)


@test("data/git-ownership: made inside")
def git_inside():
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


@test("data/excel")
def excel():
    """A workbook with two sheets in, one with a pivot out; NA is a region."""
    make = """
import datetime as dt
from openpyxl import Workbook
wb = Workbook()
wb.remove(wb.active)
for half in (1, 2):
    ws = wb.create_sheet("H%d" % half)
    ws.append(["date", "region", "units", "price"])
    for m in range((half - 1) * 6 + 1, half * 6 + 1):
        for i, r in enumerate(["North", "South", "Österreich", "NA"]):
            ws.append([dt.date(2025, m, 1), r, m + i, 10 + i * 2.5])
wb.save("sales.xlsx")
"""
    pivot = """
import openpyxl, pandas as pd
sheets = pd.read_excel("attachments/sales.xlsx", sheet_name=None,
                       keep_default_na=False)
df = pd.concat(sheets.values(), ignore_index=True)
assert str(df["date"].dtype).startswith("datetime64"), df.dtypes
df["revenue"] = df["units"] * df["price"]
df["month"] = df["date"].dt.strftime("%Y-%m")
p = pd.pivot_table(df, index="region", columns="month", values="revenue",
                   aggfunc="sum", margins=True, margins_name="Total")
with pd.ExcelWriter("pivot.xlsx", engine="openpyxl") as w:
    p.to_excel(w, sheet_name="by month")
    df.to_excel(w, sheet_name="rows", index=False)
    w.sheets["by month"].freeze_panes = "B2"
ws = openpyxl.load_workbook("pivot.xlsx")["by month"]
print(list(sheets), len(df), ws.max_row, ws.max_column,
      [ws.cell(r, 1).value for r in range(2, 7)],
      round(float(p.loc["Total", "Total"]), 2))
"""
    run("python3 -", "books", stdin=make)
    book = fetch("books", "sales.xlsx")
    check(book[:4] == b"PK\x03\x04", "no workbook")
    put("excel", "attachments/sales.xlsx", book)
    total = sum((m + i) * (10 + i * 2.5) for m in range(1, 13)
                for i in range(4))
    r = run("python3 -", "excel", stdin=pivot)
    same(r["stdout"], "['H1', 'H2'] 48 6 14 ['NA', 'North', 'South', "
         "'Österreich', 'Total'] %s\n" % round(total, 2), repr(r))
    check(fetch("excel", "pivot.xlsx")[:4] == b"PK\x03\x04", "no workbook")
    entry, = g.request("GET", "v1/conversations/excel/files").json["files"]
    same(entry["type"], "application/vnd.openxmlformats-officedocument."
         "spreadsheetml.sheet")


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
        for variant in ("", "-semicolon", "-latin1"):
            name = "csv" + variant
            with open(work + "/in/q3-signups%s.csv" % variant, "rb") as f:
                put(name, "attachments/q3-signups.csv", f.read())
            put(name, "fs/analysis.py", analysis.encode())
            r = run("cp attachments/q3-signups.csv . && python3 analysis.py",
                    name)
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
            same(r.returncode, 0, name + "\n" + r.stdout.decode())
    finally:
        shutil.rmtree(work, ignore_errors=True)


main(start, stop)
