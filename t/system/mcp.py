#!/usr/bin/env python3
"""MCP in real containers: each tool, both revisions, a search by ripgrep, an
edit against a command that writes, a command that is cancelled with its tree;
the analyst's job by tools alone.  Group mcp."""

import base64
import io
import json
import os
import sys
import tarfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, alive, in_namespace, of_users   # noqa: E402
from gateway import pid_namespace, wait_for                  # noqa: E402
from hold import HOLD, held, let_go                          # noqa: E402
from mcp import LEGACY, MODERN, Client, holds, text_of        # noqa: E402
from tap import check, main, same, test                       # noqa: E402

g = None
NUMBER = 0
CSV = "week,email\n1,a@x\n1,b@x\n1,a@x\n2,c@x\n3,d@x\n3,d@x\n"

JOB = """
import matplotlib
import matplotlib.pyplot as plt
import pandas as pd

frame = pd.read_csv("attachments/q3-signups.csv").drop_duplicates()
frame.to_csv("out/q3-signups-deduped.csv", index=False)
frame.groupby("week").size().plot.bar(title="WEEKLY")
plt.savefig("out/signups-by-week.png")
print(len(frame), "rows")
"""


def start():
    global g
    g = Gateway(pool=2, workers=1)
    os.mkdir(g.dir + "/library", 0o755)
    with tarfile.open(g.dir + "/library/charts.tar", "w") as t:
        for name, data in (
                ("SKILL.md", b"---\nname: charts\ndescription: Draws.\n---\n"
                             b"# Charts\nimport chart_tools\n"),
                ("chart_tools.py", b"def draw(): return 'drawn'\n")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    os.chmod(g.dir + "/library/charts.tar", 0o644)
    g.options["http"] = """
        sandbox_store %s/store;
        sandbox_skills %s/library;
        sandbox_disk 256m;
    """ % (g.dir, g.dir)
    g.start()


def stop():
    g.stop()


def fresh(revision=LEGACY):
    global NUMBER
    NUMBER += 1
    return Client(g, "m%d" % NUMBER, revision)


@test("mcp/the-analysts-job", 900)
def job():
    for revision in (LEGACY, MODERN):
        c = fresh(revision)
        tools = c.tools()
        name = c.path.split("/")[2]

        def call(tool, /, c=c, tools=tools, **arguments):
            r = c.call(tool, timeout=150, **arguments)
            holds(tools[tool], r)
            check(not r["isError"], tool, r)
            return r

        g.request("PUT", "v1/conversations/%s/attachments/q3-signups.csv"
                  % name, CSV)
        r = call("run_command", command="mkdir out && head -2 attachments/*")
        check("a@x" in text_of(r), "staged", r)
        call("save_file", path="job.py", content=JOB)
        r = call("run_command", command="python3 job.py")
        check("4 rows" in text_of(r), "ran", r)
        same(call("edit_file", path="job.py", old_string="WEEKLY",
                  new_string="Signups by week")["structuredContent"]
             ["replacements"], 1)
        r = call("run_command", command="python3 job.py")
        rows = int(r["structuredContent"]["stdout"].split()[0])
        same(rows, len(set(CSV.split("\n")[1:-1])))
        r = call("read_file", path="out/q3-signups-deduped.csv")
        same(len(r["structuredContent"]["text"].splitlines()), rows + 1)
        r = call("read_file", path="out/signups-by-week.png")
        image = [i for i in r["content"] if i["type"] == "image"][0]
        check(base64.b64decode(image["data"]).startswith(b"\x89PNG"),
              "a picture", image["mimeType"])
        for saved in ("signups-by-week.png", "q3-signups-deduped.csv"):
            s = call("download_file",
                     path="out/" + saved)["structuredContent"]
            got = g.request("GET", s["link"]["url"].partition(
                ":%d" % g.port)[2], token=None)
            same((got.status, len(got.body)), (200, s["size"]), saved)
        same({f["name"] for f in g.request(
            "GET", "v1/conversations/%s/files" % name).json["files"]},
            {"signups-by-week.png", "q3-signups-deduped.csv"})


@test("mcp/search-for-real")
def search():
    c = fresh()
    tools = c.tools()
    c.done("run_command", command="mkdir -p src/deep .git; "
           "printf 'def f():\\n  pass\\n' > src/a.py; "
           "printf 'x\\nDEF f\\n' > src/deep/b.txt; "
           "echo 'def hidden' > .git/c; head -c 1000 /dev/zero > bin")
    r = c.call("search_files", pattern=r"^def\s", path="src")
    holds(tools["search_files"], r)
    same([(m["path"], m["line"], m["text"])
          for m in r["structuredContent"]["matches"]],
         [("/home/sandbox/src/a.py", 1, "def f():")])
    same(c.done("search_files", pattern="def f", path="src",
                ignoreCase=True)["shown"], 2)
    same(c.done("search_files", pattern="f()", path="src",
                literal=True)["shown"], 1)
    r = c.call("search_files", path="src")
    holds(tools["search_files"], r)
    same([m["path"] for m in r["structuredContent"]["matches"]],
         ["/home/sandbox/src/a.py", "/home/sandbox/src/deep/b.txt"])
    same([m["path"] for m in c.done("search_files", path="src",
                                    glob=["*.py"])["matches"]],
         ["/home/sandbox/src/a.py"])
    r = c.call("search_files", pattern="(", path="src")
    same((r["isError"], r["_meta"]["code"]), (True, "bad_pattern"))
    same(c.refused("search_files", pattern="root", path="/etc/shadow"),
         "not_permitted")
    # what it found can be read as it was told
    found = c.done("search_files", pattern="DEF")["matches"][0]["path"]
    same(c.done("read_file", path=found)["text"], "x\nDEF f\n")
    # 300 files
    c.done("run_command", command="mkdir many; cd many; "
           "for i in $(seq 300); do echo hit > f$i; done")
    s = c.done("search_files", path="many")
    same((s["shown"], s["leftOut"], s["more"]), (100, 200, False))


@test("mcp/files-for-real")
def files():
    c = fresh()
    same(c.refused("read_file", path="x"), "no_sandbox")
    same(c.done("save_file", path="a/b/c.txt", content="hi ü\n")["created"],
         True)
    same(c.done("run_command", command="cat a/b/c.txt; stat -c %U a/b/c.txt")
         ["stdout"], "hi ü\nsandbox\n")
    same(c.refused("save_file", path="/etc/passwd", content="x"),
         "not_permitted")
    same(c.refused("read_file", path="../../etc/passwd"), "path_outside")
    same(c.refused("read_file", path="/proc/1/environ"), "path_outside")
    c.done("run_command", command="mkfifo fifo; ln -s /etc/shadow s; "
           "ln -s a/b/c.txt l")
    same(c.refused("read_file", path="fifo"), "not_a_file")
    check(c.refused("read_file", path="s") in ("not_permitted",
                                               "path_outside"), "shadow")
    same(c.done("read_file", path="l")["text"], "hi ü\n")
    same(c.done("delete_file", path="l")["type"], "link")
    same(c.done("read_file", path="a/b/c.txt")["text"], "hi ü\n")
    same(c.done("delete_file", path="a", recursive=True)["type"],
         "directory")
    same(c.done("upload_file", path="bin", contentBase64="AP8K")["size"], 3)
    same(c.done("run_command", command="xxd -p bin")["stdout"], "00ff0a\n")
    # a large one is read in part, and nobody waits for the rest
    c.done("run_command", command="seq 2000000 > seq; ls -l seq")
    s = c.done("read_file", path="seq", offset=1000, limit=2)
    same((s["text"], s["nextOffset"]), ("1000\n1001\n", 1002))
    s = c.done("read_file", path="seq", offset=1999999)
    same((s["text"], s["nextOffset"]), ("1999999\n2000000\n", None))


@test("mcp/edit-and-a-writer", 120)
def edit_race():
    """No change of a command is lost to an edit that read before it."""
    c = fresh()
    c.done("run_command", command="echo 0 > f")
    # it ends when it has been edited often enough meanwhile, for which there
    # is more and more time
    t = held(lambda: c.call("run_command", timeout=200, command="""
        python3 - <<'E'
import os, time
n = 0
while n < 60 or not os.path.exists("go"):
    text = open("f").read()
    open("f.new", "w").write(text + "w")
    os.rename("f.new", "f")
    n += 1
    time.sleep(0.02 * 1.03 ** n)
print(n)
E"""))
    edits = conflicts = 0
    while t.is_alive():
        r = c.call("edit_file", path="f", old_string="0", new_string="0e")
        if r["isError"]:
            check(r["_meta"]["code"] in ("precondition_failed",
                                         "file_not_found", "file_busy"),
                  "as promised", r)
            conflicts += 1
        else:
            edits += 1
            if edits == 3:
                let_go(g, c.path.split("/")[2])
        time.sleep(0.01)
    s = t.result()["structuredContent"]
    same(s["exitCode"], 0, s)
    check(edits >= 3, "some went through", edits, conflicts)
    # a command may overwrite an edit, it asks for nothing; the other way
    # round nothing is lost
    text = c.done("read_file", path="f")["text"]
    same(text.count("w"), int(s["stdout"]), text)


@test("mcp/cancelled", 120)
def cancelled():
    c = fresh()
    c.done("run_command", command="true")
    agent = g.agent(c.path.split("/")[2])
    space = pid_namespace(agent)
    before = set(in_namespace(space))   # one of them may be leaving
    answer = []
    t = threading.Thread(target=lambda: answer.append(c.call(
        "run_command", number="long", timeout=100, command="echo begun; "
        "setsid sleep 91 & sleep 92 & (sleep 93 & sleep 94); wait")))
    t.start()
    wait_for(lambda: len(set(in_namespace(space)) - before) >= 4, 20,
             "the command's processes")
    same(c.notify("notifications/cancelled", {"requestId": 1}).status, 202)
    check(t.is_alive(), "another id is another command")
    r = c.notify("notifications/cancelled", {"requestId": "long"})
    same((r.status, r.body), (202, b""))
    # the whole tree is gone when that answers, and the slot is free
    same([p for p in of_users(in_namespace(space), agent)
          if p not in before], [])
    wait_for(lambda: not [p for p in in_namespace(space)
                          if alive(p) and p not in before], 20,
             "the end of what the agent had for it")
    t.join(100)
    s = answer[0]["structuredContent"]
    same((s["outcome"], s["stdout"]), ("cancelled", "begun\n"))
    check("cancelled" in text_of(answer[0]), "told", answer)
    same(c.done("run_command", command="echo next")["stdout"], "next\n")
    same(g.status(c.path.split("/")[2])["running"], 0)


@test("mcp/sse-dropped", 120)
def dropped():
    for revision, named, outcome in ((LEGACY, True, "exit"),
                                     (MODERN, True, "exit"),
                                     (MODERN, False, "cancelled")):
        c = fresh(revision)
        name = c.path.split("/")[2]
        c.done("run_command", command="true")
        arguments = {"command": HOLD + "; echo done"}
        if named:
            arguments["commandId"] = "mine"
        body = json.dumps(c.message("tools/call", {
            "name": "run_command", "arguments": arguments}))
        headers = {"MCP-Protocol-Version": revision}
        if revision == MODERN:
            headers.update({"Mcp-Method": "tools/call",
                            "Mcp-Name": "run_command"})
        connection = g.connect()
        connection.request("POST", "/sandbox/" + c.path, body,
                           g.headers("", body, headers))
        wait_for(lambda name=name: g.status(name)["running"] == 1, 20,
                 "the command")

        def lost():
            return g.read("logs/access.log").count(" 499 ")

        before = lost()
        connection.close()
        wait_for(lambda lost=lost, before=before: lost() > before, 20,
                 "nginx to see it")
        if named:
            let_go(g, name)
            s = c.done("run_command", **arguments)
            same((s["stdout"], s["outcome"]), ("done\n", outcome))
        wait_for(lambda name=name: g.status(name)["running"] == 0, 20,
                 "its end")
        ran = g.request("GET", "v1/conversations/%s/commands" % name).json[
            "commands"]
        same((ran[0]["outcome"], len(ran)), (outcome, 2), revision)


@test("mcp/long-calls-show-life", 60)
def long_call():
    c = fresh()
    body = json.dumps(c.message("tools/call", {
        "name": "run_command", "arguments": {"command": HOLD + "; echo x"}}))
    connection = g.connect()
    connection.request("POST", "/sandbox/" + c.path, body,
                       g.headers("", body, None))
    response = connection.getresponse()
    let_go(g, c.path.split("/")[2])      # the header comes before the end
    same(json.loads(response.read())["result"]["structuredContent"]
         ["stdout"], "x\n")
    connection.close()


@test("mcp/load-skill")
def skill():
    c = fresh()
    tool = c.tools()["load_skill"]
    r = c.call("load_skill")
    holds(tool, r)
    same(r["structuredContent"]["skills"], [
        {"name": "charts", "title": "charts", "description": "Draws.",
         "loaded": False}])
    check("charts: Draws.\n" in text_of(r), "told", r)
    r = c.call("load_skill", name="charts")
    holds(tool, r)
    s = r["structuredContent"]
    same((s["name"], s["path"], s["title"], s["description"], s["files"],
          s["loaded"]), ("charts", "/skills/charts", "charts", "Draws.", 2,
                         True))
    same(s["paths"], ["SKILL.md", "chart_tools.py"])
    check("chart_tools.py]" in text_of(r), "its files", r)
    check("import chart_tools" in text_of(r)
          and "import chart_tools" in s["instructions"], "SKILL.md", r)
    same(c.done("run_command", command="python3 -c 'import chart_tools; "
                "print(chart_tools.draw())'")["stdout"], "drawn\n")
    same(c.done("read_file", path="/skills/charts/chart_tools.py")["text"],
         "def draw(): return 'drawn'\n")
    same(c.done("load_skill", name="charts")["loaded"], False)
    same([s["loaded"] for s in c.done("load_skill")["skills"]], [True])
    same(c.refused("load_skill", name="nope"), "skill_not_found")
    same(c.refused("load_skill", name="../x"), "bad_name")


@test("mcp/binary-and-background")
def binary():
    c = fresh()
    tool = c.tools()["run_command"]
    for command in ("head -c 1000 /dev/urandom", "printf '\\xff\\xfe\\x00'",
                    "gzip -c /etc/passwd", "printf 'a\\u2028b'"):
        r = c.call("run_command", command=command)
        holds(tool, r)
    r = c.call("run_command", command="sleep 0.2; echo late",
               background=True, commandId="bg")
    holds(tool, r)
    same(r["structuredContent"]["state"], "running")

    def ended():
        r = c.call("run_command", command="sleep 0.2; echo late",
                   background=True, commandId="bg")
        return r["structuredContent"].get("stdout")
    same(wait_for(ended, 20, "its result"), "late\n")
    mine = c.done("run_command", command="touch old")["sandboxId"]
    other = c.done("run_command", command="ls", target={"fresh": True})
    check(other["sandboxId"] != mine and "old" not in other["stdout"],
          "fresh", other)
    same(c.refused("run_command", command="true", target={"id": mine}),
         "gone")
    same(c.done("run_command", command="true",
                target={"id": other["sandboxId"]})["exitCode"], 0)


main(start, stop)
