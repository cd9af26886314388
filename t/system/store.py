#!/usr/bin/env python3
"""The store beside real sandboxes: what reset and DELETE do with files; and
that of make run, below a folder that nginx's workers can't enter."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import BUILD, TOP, Gateway, free_port, mounts, wait_for  # noqa: E402
from tap import check, main, same, test                      # noqa: E402


@test("persistence/files-over-reset")
def over_reset():
    with Gateway(pool=1, location="sandbox_store /tmp/%s;"
                 % os.path.basename(tempfile.mkdtemp(
                     prefix="sandbox-store."))) as g:
        store = g.options["location"].split()[1].rstrip(";")
        shutil.chown(store, "www-data")
        try:
            g.run("c", "echo x > f")
            for path in ("attachments/a", "files/b"):
                same(g.request("PUT", "v1/conversations/c/" + path,
                               b"kept").status, 201)
            same(g.request("POST", "v1/conversations/c/reset").status, 200)
            for path in ("attachments/a", "files/b"):
                same(g.request("GET", "v1/conversations/c/" + path).body,
                     b"kept", "after reset")
            same(g.request("DELETE", "v1/conversations/c").status, 204)
            same(g.status("c")["state"], "none")
            for path in ("attachments/a", "files/b"):
                same(g.request("GET", "v1/conversations/c/" + path).status,
                     404, "after DELETE")
            # files alone make no sandbox, and DELETE needs none
            same(g.request("PUT", "v1/conversations/d/files/x",
                           b"x").status, 201)
            same(g.status("d")["state"], "none")
            same(g.request("DELETE", "v1/conversations/d").status, 204)
            same(g.request("GET", "v1/conversations/d/files").json["files"],
                 [])
        finally:
            shutil.rmtree(store)


def call(state, method, path, data=None):
    with open(state + "/url") as f:
        url = f.read().strip()
    with open(state + "/token") as f:
        token = f.read().strip()
    request = urllib.request.Request(
        url + "/v1/conversations/c/" + path, data, method=method,
        headers={"Authorization": "Bearer " + token})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as r:
        return r.status, r.read()


def unlocked(state):
    """A sleep of the script may hold its lock for a moment longer."""
    with open(state + "/lock") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


@test("make/run-store", seconds=200, backends="local", why="runner")
def run_store():
    closed = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")   # 0700, root's
    state = closed + "/state"
    try:
        for expected in (201, 200):
            with open(closed + "/log", "wb") as log:
                run = subprocess.Popen(
                    [TOP + "/tools/run"], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, start_new_session=True,
                    env=dict(os.environ, BUILD=BUILD, STATE=state,
                             PORT=str(free_port())))
            try:
                def up():
                    check(run.poll() is None, "make run ended",
                          open(closed + "/log").read()[-800:])
                    return os.path.exists(state + "/token")
                wait_for(up, 90, "make run")
                if expected == 200:
                    same(call(state, "GET", "files/a")[1], b"kept",
                         "of the run before")
                status, body = call(state, "PUT", "files/a", b"kept")
                same(status, expected)
                same(json.loads(body)["size"], 4)
                check(mounts(state + "/store")
                      or os.listdir(state + "/store"), "elsewhere")
            finally:
                run.send_signal(signal.SIGINT)
                run.wait(150)
            wait_for(lambda: unlocked(state), 20, "the lock")
            check(any(files for _, _, files in os.walk(state + "/store")),
                  "the store is empty")
            same(mounts(closed), [], "mounts")
    finally:
        shutil.rmtree(closed)


main()
