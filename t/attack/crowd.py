#!/usr/bin/env python3
"""The queue of the host, which all tenants share: nobody fills it with
requests that wait for nothing."""

import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, token, wait_for                 # noqa: E402
from tap import check, main, same, test                      # noqa: E402

FLOOD, HOLDER, OTHER = (token(sub=s) for s in ("flood", "holder", "other"))


def flood(g, end, counts, background):
    """Asks for a command that has ended, and is answered at once; with
    `background`, for a seventeenth one, and is refused at once."""
    fields = {"background": True} if background else {"commandId": "known"}
    while not end.is_set():
        c = g.connect()
        try:
            for _ in range(500):
                if end.is_set():
                    break
                r = g.command("flood", "sleep 600" if background else "true",
                              token=FLOOD, connection=c, **fields)
                counts[r.status] = counts.get(r.status, 0) + 1
        finally:
            c.close()


def others_wait(background):
    with Gateway(http="sandbox_zone z:1m running=1 queue=30;",
                 location="sandbox_background_time 600s;") as g:
        g.run("flood", "true", token=FLOOD, commandId="known")
        g.run("other", "true", token=OTHER)
        for _ in range(16 if background else 0):
            same(g.command("flood", "sleep 600", token=FLOOD,
                           background=True).status, 202)

        # the one run slot is taken until we say so: who comes now waits
        holder = threading.Thread(
            target=g.command, kwargs={"token": HOLDER},
            args=("h", "until [ -e go ]; do sleep 0.1; done"))
        holder.start()
        wait_for(lambda: g.status("h", token=HOLDER).get("running"), 20,
                 "a command that holds the run slot")

        end, counts, got = threading.Event(), {}, []
        threads = [threading.Thread(target=flood,
                                    args=(g, end, counts, background))
                   for _ in range(2)]
        for t in threads:
            t.start()
        try:
            wait_for(lambda: sum(counts.values()) > 300, 30, "a flood")
            waiting = [threading.Thread(target=lambda: got.append(
                g.command("other", "true", token=OTHER))) for _ in range(6)]
            for t in waiting:
                t.start()

            # whoever has an answer already was refused
            wait_for(lambda: got or g.status("other", token=OTHER)["queued"]
                     == len(waiting), 60, "all of them in the queue")
            same(g.request("PUT", "v1/conversations/h/fs/go", b"",
                           token=HOLDER).status, 201)
            for t in waiting:
                t.join()
        finally:
            end.set()
            for t in threads:
                t.join()
            holder.join()
        same([r.status for r in got], [200] * 6, "who waited for a slot")
        check(sum(counts.values()) > 300, "no flood", counts)


@test("attack/queue-of-known-commands", seconds=120)
def known_commands():
    others_wait(background=False)


@test("attack/queue-of-refused-commands", seconds=120)
def refused_commands():
    others_wait(background=True)


main()
