#!/usr/bin/env python3
"""Large requests: what a thread still reads when the worker is told to leave,
what stdin may have where files may have more.  Groups limits, persistence."""

import json
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, alive, token, wait_for          # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None


def start():
    global g
    g = Gateway(runner="mock", workers=1, h2=False)
    g.options["main"] = "thread_pool default threads=1;"
    g.options["http"] = "sandbox_file_size 4g;"
    g.start()


def stop():
    g.stop()


@test("limits/stdin where files may have 4 GiB")
def stdin():
    caps = g.request("GET", "v1/limits").json
    same(caps["fileBytes"], 4 << 30)
    check(caps["bodyBytes"] < 200 << 20, "what is read into memory", caps)
    for length in (64 << 20) + 1, 4 << 30:
        c = g.connect()
        c.putrequest("POST", "/sandbox/v1/conversations/c/commands/x/"
                     "stdin")
        c.putheader("Authorization", "Bearer " + token())
        c.putheader("Content-Length", str(length))
        c.endheaders()
        r = c.getresponse()
        same((r.status, json.loads(r.read())["code"]),
             (413, "body_too_large"), length)
    c = g.connect()
    c.putrequest("PUT", "/sandbox/v1/conversations/c/fs/x")
    c.putheader("Authorization", "Bearer " + token())
    c.putheader("Content-Length", str((4 << 30) + 1))
    c.endheaders()
    r = c.getresponse()
    same((r.status, json.loads(r.read())["code"]), (413, "file_too_large"))


@test("persistence/reload: JSON that a thread has not read yet", 900)
def leaving():
    """One thread, some requests for it: the worker stays for all of them."""
    body = json.dumps({"command": "mock: ", "stdin": "x" * (20 << 20)})
    statuses = []

    def ask(n):
        try:
            statuses.append(g.request("POST", "v1/conversations/c%d/commands"
                                      % n, body, timeout=600).status)
        except OSError as e:
            statuses.append(repr(e))

    for _ in range(2):
        statuses.clear()
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(5)]
        for t in threads:
            t.start()
        wait_for(lambda: len(statuses) >= 1, 300, "the first answer")
        old = g.reload()
        for t in threads:
            t.join()
        same(statuses, [200] * 5)
        wait_for(lambda old=old: not any(alive(p) for p in old), 20,
                 "the old worker's end")


main(start, stop)
