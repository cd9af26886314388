#!/usr/bin/env python3
"""What the zone remembers of attachments never differs from what there is:
over workers, reloads, two locations of one store, the death of a worker, a
zone that is full, and files that disappear behind nginx's back.  Groups
persistence, data."""

import glob
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, alive, token, wait_for          # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
C = "/%s/v1/conversations/%s/"


def start():
    global g
    g = Gateway(runner="mock", workers=2, zone="256k", h2=False)
    store = g.path("store")
    os.mkdir(store, 0o700)
    subprocess.run(["chown", "www-data", store], check=True)
    g.options["http"] = "sandbox_store %s; sandbox_realm one; " \
        "sandbox_file_size 1m;" % store
    g.options["server"] = "location /other/ { sandbox on; " \
        "sandbox_jwt_secret_file %s/jwt.key; }" % g.dir
    g.start()


def stop():
    g.stop()


def put(conversation, name, data=b"x", where="sandbox", kind="attachments"):
    r = g.request("PUT", C % (where, conversation) + kind + "/" + name, data)
    check(r.status in (200, 201), r)


def remove(conversation, name, where="sandbox"):
    same(g.request("DELETE", C % (where, conversation) + "attachments/"
                   + name).status, 204)


def command(conversation, text, where="sandbox"):
    r = g.request("POST", C % (where, conversation) + "commands",
                  {"command": "mock: " + text})
    same(r.status, 200, r)
    return r.json


def staged(conversation, where="sandbox"):
    """Names that a command brings along, with their sizes."""
    told = json.loads(command(conversation, "echo", where)["stdout"])
    items = told.get("STAGE", [])
    out = {}
    for item in items if isinstance(items, list) else [items]:
        raw = bytes.fromhex(item[4:]) if item.startswith("hex:") \
            else item.encode()
        out[raw[28:].decode()] = int.from_bytes(raw[20:28], "big")
    return out


def listed(conversation):
    r = g.request("GET", C % ("sandbox", conversation)
                  + "attachments?limit=1000")
    same(r.status, 200, r)
    return {f["name"]: f["size"] for f in r.json["attachments"]}


@test("each change is seen by the next command, whichever worker has it")
def changes():
    rng = random.Random(11)
    expected = {}
    same(staged("changes"), {})
    for i in range(60):
        name = "f%d" % rng.randrange(4)
        if name in expected and rng.random() < 0.4:
            remove("changes", name)
            del expected[name]
        else:
            expected[name] = rng.randrange(500)
            put("changes", name, b"y" * expected[name])
        for _ in range(2):
            same(staged("changes"), expected, "after change %d" % i)


@test("a conversation that was deleted has nothing to bring")
def dropped():
    put("dropped", "a")
    same(staged("dropped"), {"a": 1})
    check(g.delete("dropped").status in (200, 204), "DELETE")
    same(staged("dropped"), {})


@test("a refused upload is told once, also after many commands")
def notices():
    put("notices", "a")
    for _ in range(3):
        same(command("notices", "")["stagingNotices"], [])
    r = g.request("PUT", C % ("sandbox", "notices") + "attachments/big",
                  b"z" * ((1 << 20) + 1))
    same(r.status, 413)
    told = command("notices", "")["stagingNotices"]
    same([n["name"] for n in told], ["big"])
    for _ in range(3):
        same(command("notices", "")["stagingNotices"], [])


@test("two locations of one realm and store")
def locations():
    put("two", "a", b"1")
    same((staged("two"), staged("two", "other")), ({"a": 1}, {"a": 1}))
    put("two", "b", b"22", where="other")
    same(staged("two"), {"a": 1, "b": 2})
    remove("two", "a", where="sandbox")
    same(staged("two", "other"), {"b": 2})


@test("over a reload")
def reload():
    put("reload", "a", b"1")
    same(staged("reload"), {"a": 1})
    g.reload()
    same(staged("reload"), {"a": 1})
    put("reload", "b", b"22")
    same(staged("reload"), {"a": 1, "b": 2})


@test("no disk is asked; what is not there is found out by its agent")
def behind():
    """A file that somebody else removed: still named, until one asks for it
    (in any case after a minute)."""
    put("behind", "gone", b"12345")
    same(staged("behind"), {"gone": 5})
    for path in glob.glob(g.path("store") + "/**/attachments/*",
                          recursive=True):
        with open(path, "rb") as f:
            if f.read()[4096:] == b"12345":
                os.unlink(path)
    same(staged("behind"), {"gone": 5}, "nobody asked the disk")
    out = command("behind", "1:needed=0 1:error=stage_needed 1:close echo")
    check("STAGE" not in json.loads(out["stdout"]), out)
    same(staged("behind"), {}, "from then on")


@test("a file that can't be opened when its agent asks for it is an error")
def damaged():
    """The sandbox's connection is still there, and ends with the request."""
    put("damaged", "torn", b"1234567")
    same(staged("damaged"), {"torn": 7})
    for path in glob.glob(g.path("store") + "/**/attachments/*",
                          recursive=True):
        with open(path, "r+b") as f:
            if f.read()[4096:] == b"1234567":
                f.seek(0)
                f.write(bytes(4096))
    for kept in ("keep-alive", "close", "keep-alive"):
        r = g.request("POST", C % ("sandbox", "damaged") + "commands", {
            "command": "mock: needed=0 error=stage_needed"},
            headers={"Connection": kept})
        same((r.status, r.json["code"]), (500, "internal"))
    g.expected += ["is damaged"]
    put("damaged", "torn", b"12")
    same(staged("damaged"), {"torn": 2})


@test("the first command of a new conversation asks no disk, either")
def new():
    same(staged("new0"), {}, "what conversations there are is learned")
    for i in range(1, 6):
        same(staged("new%d" % i), {})
        put("new%d" % (i + 100), "a", b"x" * i)
        same(staged("new%d" % (i + 100)), {"a": i})
        same(staged("new%d" % i), {})
        put("new%d" % i, "late")
        same(staged("new%d" % i), {"late": 1})
    # what somebody else puts there is seen a minute later
    same(staged("new200"), {})
    for path in glob.glob(g.path("store") + "/*/*/*/new101"):
        subprocess.run(["cp", "-a", path, path.replace("new101", "new201")],
                       check=True)
    same(staged("new201"), {}, "nobody asked the disk")
    r = g.request("PUT", C % ("sandbox", "new202") + "attachments/big",
                  b"z" * ((1 << 20) + 1))
    same(r.status, 413)
    told = command("new202", "")["stagingNotices"]
    same([n["name"] for n in told], ["big"], "a notice is something")
    same(staged("new201"), {"a": 1}, "asked again, since another changed")


@test("more conversations than the zone has room for", 900)
def crowded():
    for i in range(120):
        put("crowd%d" % i, "n" * 200 + str(i), b"x" * i)
    for _ in range(2):
        for i in range(0, 120, 3):
            same(staged("crowd%d" % i), {"n" * 200 + str(i): i})


@test("a worker that dies while files are written", 200)
def death():
    g.expected += ["exited on signal 9"]
    stop_it = threading.Event()

    def write(number):
        n = 0
        while not stop_it.is_set():
            n += 1
            try:
                g.request("PUT", C % ("sandbox", "death%d" % number)
                          + "attachments/f%d" % (n % 5), b"x" * (n % 900),
                          timeout=150)
            except OSError:
                pass

    for turn in range(4):
        threads = [threading.Thread(target=write, args=(i,))
                   for i in range(3)]
        stop_it.clear()
        for t in threads:
            t.start()
        time.sleep(0.2 + 0.07 * turn)
        old = wait_for(lambda: len(g.workers()) == 2 and g.workers(), 20,
                       "two workers, no old ones")
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda gone=old: not any(alive(p) for p in gone), 20,
                 "the end of the workers")
        stop_it.set()
        for t in threads:
            t.join()
        wait_for(lambda: len(g.workers()) == 2, 20, "new workers")
        for i in range(3):
            for _ in range(3):
                same(staged("death%d" % i), listed("death%d" % i))
        put("death0", "after", b"a" * (turn + 1))
        same(staged("death0"), listed("death0"))


main(start, stop)
