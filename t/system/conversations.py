#!/usr/bin/env python3
"""GET v1/conversations: whose they are, their order, their states, whatever
happens to gateway and runner meanwhile; and the smallest zone."""

import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, alive, token, wait_for          # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
store = None
BOB = token(sub="bob")


def start():
    global g, store
    store = tempfile.mkdtemp(prefix="sandbox-store.")
    shutil.chown(store, "www-data")
    g = Gateway(pool=2, http="sandbox_zone sandbox:128k idle=10m;",
                location="sandbox_store %s;" % store,
                server="""location /small/ {
                    sandbox on;
                    sandbox_jwt_secret_file %%s/jwt.key;
                    sandbox_store %s;
                    sandbox_realm other;
                    sandbox_permission_read sandbox:read;
                }
                location /one/ {
                    sandbox on;
                    sandbox_jwt_secret_file %%s/jwt.key;
                    sandbox_store %s;
                    sandbox_realm /sandbox/;
                    sandbox_conversation_claim chat;
                }
                location /none/ {
                    sandbox on;
                    sandbox_jwt_secret_file %%s/jwt.key;
                }""" % (store, store))
    g.options["server"] = g.options["server"] % ((g.dir,) * 3)
    g.start()


def stop():
    try:
        g.stop()
    finally:
        shutil.rmtree(store)


def page(query="", **options):
    r = g.request("GET", "v1/conversations" + query, **options)
    same(r.status, 200, repr(r))
    same(sorted(r.json), ["conversations", "next"])
    return r.json


def listed(**options):
    """All of them, newest first, of pages of two."""
    out, query = [], "?limit=2"
    for _ in range(100):
        got = page(query, **options)
        check(len(got["conversations"]) <= 2, "a long page", got)
        out += got["conversations"]
        if got["next"] is None:
            return out
        query = "?limit=2&cursor=" + got["next"]
    raise AssertionError("pages without end")


def names(**options):
    return [c["conversationId"] for c in listed(**options)]


def used(name, **options):
    """A first command, and that it is listed; a moment later, so that what
    comes next is newer."""
    g.run(name, "echo %s > mine" % name, **options)
    options.pop("timeout", None)
    wait_for(lambda: name in names(**options), 10, "it to be listed")
    time.sleep(0.02)


@test("conversations/list", backends="local", why="list")
def of_a_user():
    same(page(), {"conversations": [], "next": None})
    for name in ("a", "b.c_d:e-f", "n" * 128, ".hidden"):
        used(name)
    used("a", token=BOB)
    used("bobs", token=BOB)
    same(names(), [".hidden", "n" * 128, "b.c_d:e-f", "a"])
    same(names(token=BOB), ["bobs", "a"])
    g.run("a", "true")
    same(names()[-1], "a", "use does not change their order")

    mine, single = listed()[-1], g.status("a")
    for key in ("sandboxId", "createdAt", "lastUsedAt", "state", "commands",
                "running", "queued", "backgroundProcesses"):
        same(mine[key], single[key], key)
    same(sorted(set(single) - set(mine)), ["usage"])
    same(g.request("HEAD", "v1/conversations").status, 200)


@test("conversations/what-makes-one")
def what_makes_one():
    before = names()
    same(g.status("asked")["state"], "none")
    same(g.request("GET", "v1/conversations/asked/files").status, 200)
    same(names(), before, "a question makes none")

    same(g.request("PUT", "v1/conversations/by-put/fs/x", b"x").status, 201)
    same(g.request("POST", "v1/conversations/by-reset/reset").status, 200)
    wait_for(lambda: {"by-put", "by-reset"} <= set(names()), 10, "both")
    same(g.request("PUT", "v1/conversations/by-file/files/x", b"x").status,
         201)
    entry = [c for c in listed() if c["conversationId"] == "by-file"]
    same(entry, [{"conversationId": "by-file", "state": "none"}])

    for name in ("by-put", "by-reset", "by-file"):
        same(g.delete(name).status, 204)
    same(names(), before, "after DELETE")

    # it can come again at once, on whichever worker
    for _ in range(4):
        g.run("again", "true")
        wait_for(lambda: names()[0] == "again", 10, "it is listed again")
        same(g.delete("again").status, 204)
        same(names(), before)


@test("conversations/states", backends="local", why="list")
def states():
    used("states")
    same(listed()[0]["state"], "running")
    g.run("states", "sleep 1000 > /dev/null 2>&1 &")
    wait_for(lambda: listed()[0]["backgroundProcesses"] == 1, 10,
             "what is left running")
    g.request("POST", "v1/conversations/states/reset")
    same(listed()[0]["backgroundProcesses"], 0)
    g.delete("states")


@test("conversations/refusals")
def refusals():
    for query in ("?limit=0", "?limit=1001", "?limit=x", "?cursor=",
                  "?cursor=!", "?cursor=AAAA", "?cursor=" + "A" * 300):
        r = g.request("GET", "v1/conversations" + query)
        same((r.status, r.json["code"]), (400, "bad_request"), query)
    same(g.request("POST", "v1/conversations", {}).status, 405)
    same(g.request("GET", "v1/conversations", token=None).status, 401)
    r = g.request("GET", "/none/v1/conversations")
    same((r.status, r.json["code"]), (501, "no_store"))


@test("conversations/realms-readers-claims")
def realms():
    used("a")
    before = names()
    reader = token(permissions=["sandbox:read"])
    same(names_at("/small/"), [])
    g.request("POST", "/small/v1/conversations/s/commands",
              {"command": "true"})
    wait_for(lambda: names_at("/small/") == ["s"], 10, "another realm")
    same(names_at("/small/", token=reader), ["s"], "who may read")
    same(names(), before)
    same(names_at("/one/", token=token(chat="a")), ["a"],
         "a token for one conversation")
    same(names_at("/one/", token=token(chat="nowhere")), [])
    g.request("DELETE", "/small/v1/conversations/s")


def names_at(location, **options):
    r = g.request("GET", location + "v1/conversations", **options)
    same(r.status, 200, repr(r))
    return [c["conversationId"] for c in r.json["conversations"]]


@test("conversations/reload-restart", seconds=200,
      backends="local", why="runner")
def reload_restart():
    """Right after a reload, of another size of zone, too, and after a
    restart of nginx and of the runner: nothing ends, nothing is missing."""
    before = listed()
    ids = [c.get("sandboxId") for c in before]
    old = g.reload()
    same([c.get("sandboxId") for c in listed()], ids, "after a reload")
    old |= g.reload(http="sandbox_zone sandbox:256k idle=10m;")
    same([c.get("sandboxId") for c in listed()], ids, "in another zone")
    g.run("a", "true")

    g.end(g.nginx, signal.SIGQUIT)
    g.start_nginx()
    same([c.get("sandboxId") for c in listed()], ids, "after a restart")

    g.kill_runner()
    r = g.request("GET", "v1/conversations")
    same((r.status, r.json["code"]), (503, "runner_unreachable"))
    g.start_runner()
    g.wait_ready()
    wait_for(lambda: [(c["state"], c.get("sandboxId")) for c in listed()]
             == [(c["state"], i) for c, i in zip(before, ids)], 30,
             "the same states")
    same(g.output("a", "cat mine"), "a\n")
    wait_for(lambda: not any(alive(p) for p in old), 30, "old workers' end")


@test("admin/zone-full", backends="local", why="list")
def zone_full():
    """The smallest zone, and more sessions and tokens than fit in it."""
    g.reload(http="sandbox_zone sandbox:128k idle=10m;")
    g.wait_ready()
    c = g.connect()
    for n in range(1500):
        r = g.request("GET", "v1/conversations/z%d" % n, connection=c,
                      token=token(sub="user%d" % n, pad="x" * 200))
        same((r.status, r.json["state"]), (200, "none"))
    c.close()
    for n in range(8):
        used("z%d" % n, token=BOB)
    same(set(names(token=BOB)) - {"a", "bobs"}, {"z%d" % n for n in range(8)})
    check("no memory" not in g.error_log, "alerts", g.error_log[-500:])
    for n in range(8):
        same(g.output("z%d" % n, "cat mine", token=BOB), "z%d\n" % n)
        g.delete("z%d" % n, token=BOB)


@test("conversations/many", seconds=200)
def many():
    """More than a page of the longest, all of them with files only."""
    same(g.request("PUT", "v1/conversations/m/files/x", b"x",
                   token=token(sub="many")).status, 201)
    places = [top for top, folders, _ in os.walk(store) if "m" in folders]
    same(len(places), 1, "where they are")
    for n in range(1100):
        path = "%s/%s%04d/files" % (places[0], "m" * 124, n)
        os.makedirs(path)
    for top, folders, _ in os.walk(places[0]):
        shutil.chown(top, "www-data")
        folders[:] = [f for f in folders if len(f) > 10 or f == "files"]
    got = page("?limit=1000", token=token(sub="many"))
    same(len(got["conversations"]), 1000)
    rest = page("?limit=1000&cursor=" + got["next"], token=token(sub="many"))
    same((len(rest["conversations"]), rest["next"]), (101, None))
    every = [c["conversationId"]
             for c in got["conversations"] + rest["conversations"]]
    same(len(set(every)), 1101, "each once")


main(start, stop)
