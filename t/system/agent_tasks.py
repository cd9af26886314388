#!/usr/bin/env python3
"""Multi-step tasks as models really send them, t/data/agent_tasks.json, over
the HTTP interface in real containers: inputs are attached, each step is a
command of one conversation, outputs are saved to the Files panel and
downloaded from there.  There is no network, but for the tasks that fetch
packages, where the index that uv has by default is reached from here.

    t/system/agent_tasks.py [tasks/ID]...

SANDBOX_TASKS names another file of the same form; what its tasks call
(make_signups.py) is looked for beside it.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import egress                                                # noqa: E402
from gateway import CACHE, TOP, Gateway, token               # noqa: E402
from tap import SLOW, check, main, same, skip, test          # noqa: E402

FILE = os.environ.get("SANDBOX_TASKS") or TOP + "/t/data/agent_tasks.json"
HERE = os.path.dirname(os.path.abspath(FILE))

with open(FILE, encoding="utf-8") as _f:
    TASKS = json.load(_f)["tasks"]

# What the tasks' author had no control over.  The image has openpyxl: that is
# promised (docs/api.md), and the task was written for one without it.

INSTEAD = {("excel-pivot", 1): {"exitCode": 0}}

# A model that sleeps for a second has a server then; a machine that has other
# things to do may have none.

LOOP = "for i in $(seq 600); do %s && break; sleep 0.1; done; "
PATIENT = {
    ("server-and-curl", 1): ("seq 50", "seq 600"),
    ("server-and-curl", 2): (           # it says so before it listens
        "curl -s -X POST", LOOP % "curl -so /dev/null http://127.0.0.1:8123/"
        + "curl -s -X POST"),
    ("server-and-curl", 4): (
        "sleep 1; ", LOOP % "curl -so /dev/null http://127.0.0.1:8124/"),
    ("server-and-curl", 5): ("seq 30", "seq 600"),
    ("server-and-curl", 6): (
        "sleep 0.5; ", LOOP % "! kill -0 $(cat srv.pid) 2>/dev/null")}
TIMES = 5                   # what a task allows itself, on a busy machine

# These steps fetch packages, and are for a network.

FETCHES = {"pip-then-uv": 3}

g = None
no_index = None             # why there is none


def start():
    global g, no_index
    hosts, found = egress.real_index(
        os.path.realpath(CACHE + "/base/current/rootfs"))
    g = Gateway(pool=2)
    os.mkdir(g.path("store"), 0o700)
    shutil.chown(g.path("store"), "www-data")
    # beside others a program needs more of a processor, too
    g.options["location"] = "sandbox_store %s; sandbox_wall_time 15m; " \
        "sandbox_cpu_time 150s;" % g.path("store")
    if hosts:
        # the addresses are whatever they are on this machine
        for address in found:
            g.runner_options += ["--egress-allow-address", address]
        ca = egress.certificates(g.path("ca.pem"))
        g.options["http"] = """
            sandbox_egress_policy index { allow %s; %s }
            map $sandbox_user $network { default none; fetcher index; }
        """ % (" ".join(hosts), "ca_certificate %s;" % ca if ca else "")
        g.options["location"] += " sandbox_egress $network;"
    else:
        no_index = found
    g.start()


def stop():
    g.stop()


class Product:
    """The driver: what a task needs of the thing that it runs on."""

    def __init__(self, conversation, fetches):
        self.conversation = conversation
        self.token = token(sub="fetcher" if fetches else "alice")
        self.base = "v1/conversations/%s/" % conversation

    def upload(self, path, name, folder):
        where = "attachments/" if folder == "attachments/" \
            else "fs/" + urllib.parse.quote(folder)
        with open(path, "rb") as f:
            r = g.request("PUT", self.base + where
                          + urllib.parse.quote(name, safe=""), f.read(),
                          token=self.token)
        same(r.status, 201, "PUT of %s: %r" % (name, r))

    def run(self, command, cwd, timeout):
        """cwd is relative to the home."""
        fields = {"timeoutSeconds": timeout * TIMES,
                  "timeout": timeout * TIMES + 60}
        if cwd:
            fields["cwd"] = "/home/sandbox/" + cwd
        began = time.monotonic()
        result = g.run(self.conversation, command, token=self.token, **fields)
        result["seconds"] = time.monotonic() - began
        return result

    def fetch(self, name):
        """The bytes of a file that a command has made; None: there is none."""
        r = g.request("POST", self.base + "files", {"path": name},
                      token=self.token)
        if r.status == 404:
            return None
        same(r.status, 201, "saving %s: %r" % (name, r))
        r = g.request("GET", self.base + "files/"
                      + urllib.parse.quote(r.json["name"], safe=""),
                      token=self.token)
        same(r.status, 200, "GET of %s" % name)
        return r.body


def faults(expect, got):
    """Sentences about what a step did not do as it should."""
    if "exitCode_not" in expect:
        if got["exitCode"] == expect["exitCode_not"]:
            yield "exit code %r" % got["exitCode"]
    elif got["exitCode"] != expect["exitCode"]:
        yield "exit code %r, expected %r" % (got["exitCode"],
                                             expect["exitCode"])
    if got["stdout"] != expect.get("stdout_equals", got["stdout"]):
        yield "stdout is not %r" % expect["stdout_equals"]
    for stream in ("stdout", "stderr"):
        for text in expect.get(stream + "_contains", ()):
            if text not in got[stream]:
                yield "%s lacks %r" % (stream, text)
    if not re.search(expect.get("stdout_regex", ""),
                     got["stdout"].rstrip("\n"), re.M):
        yield "stdout does not match %s" % expect["stdout_regex"]
    if got["truncated"] != expect.get("truncated", got["truncated"]):
        yield "truncated is %r" % got["truncated"]
    if got["seconds"] > expect.get("max_seconds", 1e9) * SLOW * TIMES:
        yield "took %.1f s" % got["seconds"]


def make_inputs(task, product, folder):
    for item in task["inputs"]:
        subprocess.run(item["make"].format(inputs=folder), shell=True,
                       check=True, cwd=HERE, stdout=subprocess.DEVNULL)
        for name in item["files"]:
            product.upload(os.path.join(folder, name), name,
                           item["upload_to"])


def steps(task, product, last=None):
    wrong = []
    for n, step in enumerate(task["steps"][:last], 1):
        expect = INSTEAD.get((task["id"], n), step["expect"])
        command = step["command"]
        if (task["id"], n) in PATIENT:
            words, others = PATIENT[task["id"], n]
            same(command.count(words), 1, "%r in a task" % words)
            command = command.replace(words, others)
        got = product.run(command, step.get("cwd"), step["timeoutSeconds"])
        found = list(faults(expect, got))
        if found and task["id"] in FETCHES and (
                got["timedOut"] or egress.FAULT.search(got["stderr"])):
            skip("%d steps passed, then the index was not reached: %s"
                 % (n - 1, got["stderr"][-200:]))
        print("# %s %s.%d %.1f s%s"
              % ("FAIL" if found else "ok  ", task["id"], n, got["seconds"],
                 "" if expect is step["expect"] else
                 ", judged by what docs/api.md promises"))
        if found:
            wrong.append("%s.%d: %s\nstdout: %r\nstderr: %r"
                         % (task["id"], n, "; ".join(found),
                            got["stdout"][-300:], got["stderr"][-300:]))
    check(not wrong, "\n".join(wrong))


def verify(task, inputs, outputs):
    """A final check that is a program of the tasks' author."""
    r = subprocess.run(task["final_check"].format(inputs=inputs,
                                                  outputs=outputs),
                       shell=True, cwd=HERE, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
    same(r.returncode, 0, r.stdout.decode(errors="replace")[-600:])


# final checks that are words, as programs

def final_excel_pivot(product, outputs):
    data = outputs["pivot.xlsx"]
    same(data[:4], b"PK\x03\x04")
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        same(z.testzip(), None)
        book = z.read("xl/workbook.xml").decode()
        sheet = z.read("xl/worksheets/sheet1.xml").decode()
    same(re.findall(r'<sheet [^>]*?name="([^"]*)"', book)[0], "by month")
    same(len(re.findall(r"<row ", sheet)), 6, "rows")
    same(len(set(re.findall(r'<c r="([A-Z]+)\d+"', sheet))), 14, "columns")


def final_git_init_diff(product, outputs):
    text = outputs["add.patch"].decode()
    check(text.startswith("From "), "no patch", text[:100])
    same(len(re.findall(r"^@@ ", text, re.M)), 1, "hunks")


def final_server_and_curl(product, outputs):
    # one that has just ended may wait to be buried, as an agent's own do
    got = product.run(
        "for n in $(seq 100); do all=$(for f in /proc/[0-9]*/stat; do "
        "read -r line < $f && echo \"$line\"; done); echo \"$all\" | "
        "grep -v '^[0-9]* (\\(bash\\|sandbox-agent\\)) [^Z]' > ~/.left "
        "|| break; sleep 0.1; done; cat ~/.left; rm ~/.left", None, 20)
    same((got["exitCode"], got["stdout"]), (0, ""), "what is left")


FINAL = {"excel-pivot": final_excel_pivot,
         "git-init-diff": final_git_init_diff,
         "server-and-curl": final_server_and_curl}


def do(task):
    product = Product("task-" + task["id"], task["id"] in FETCHES)
    last = FETCHES.get(task["id"]) if no_index else None
    folder = tempfile.mkdtemp(prefix="sandbox-task.", dir="/tmp")
    inputs, outputs = folder + "/in", folder + "/out"
    os.mkdir(inputs)
    os.mkdir(outputs)
    try:
        make_inputs(task, product, inputs)
        steps(task, product, None if last is None else last - 1)
        if last is not None:
            skip("%d steps passed, %d want a network: %s"
                 % (last - 1, len(task["steps"]) - last + 1, no_index))
        made = {}
        for name in task["outputs"]:
            made[name] = product.fetch(name)
            check(made[name] is not None, "no output " + name)
            with open(os.path.join(outputs, name), "wb") as f:
                f.write(made[name])
        if task["final_check"].startswith("python3 "):
            verify(task, inputs, outputs)
        elif task["id"] in FINAL:
            FINAL[task["id"]](product, made)
        else:
            print("# left to people: " + task["final_check"])
    finally:
        shutil.rmtree(folder)
        g.delete("task-" + task["id"], token=product.token)


# These serve, and fetch, over internet sockets.
LOCAL = {"server-and-curl": "network", "pip-then-uv": "egress"}


def define(task):
    why = LOCAL.get(task["id"])

    @test("tasks/" + task["id"], seconds=1000, backends=why and "local",
          why=why)
    def _():
        do(task)


for _task in TASKS:
    define(_task)

main(start, stop)
