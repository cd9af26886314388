#!/usr/bin/env python3
"""Limits as clients meet them: of nginx, of the runner, and settings of nginx
that are none here."""

import json
import os
import re
import sys
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway                                  # noqa: E402
from tap import check, main, same, test                      # noqa: E402

PATH = "v1/conversations/%s/commands"


def limited(r, code, words):
    """429 that says when to come again, and which limit it was."""
    same((r.status, r.headers["Content-Type"], r.json["code"]),
         (429, "application/problem+json", code))
    check(int(r.headers["Retry-After"]) >= 1, "when to come again", r)
    check(words in r.json["detail"], "the limit's name", r)


@test("http/limit-429", beside=True)
def limit_429():
    """Requests a second, commands that wait, sandboxes of a tenant: each has
    a code of its own; refused attempts count, too."""
    with Gateway(runner="mock", http=(
            "limit_req_zone $sandbox_user zone=calls:1m rate=1r/m;"),
            server="location = /metrics { sandbox_metrics; }",
            location="limit_req_status 429;") as g:
        for code, words in (
                ("too_many_pending", "10 commands wait for their turn."),
                ("too_many_sandboxes", "All 100 sandboxes are in use.")):
            r = g.command("c", "mock: detail=%s error=%s,7" % (
                urllib.parse.quote(words), code))
            limited(r, code, words)
            same(r.headers["Retry-After"], "7")
        same(g.run("c", "mock: stdout=fine")["stdout"], "fine",
             "nothing stays of it:")

        g.reload(location="limit_req zone=calls; limit_req_status 429;")
        same(g.request("GET", "v1/limits").status, 200)
        for _ in range(3):
            limited(g.command("c", "mock: stdout=x"), "too_many_requests",
                    "Too many requests")
        limited(g.request("GET", "v1/limits"), "too_many_requests", "")
        seen = g.request("GET", "/metrics", token=None).body.decode()
        counts = dict(re.findall(r'sandbox_refusals_total{code="(\w+)"} '
                                 r"(\d+)", seen))
        same({c: counts.get(c) for c in ("too_many_pending",
                                         "too_many_sandboxes",
                                         "too_many_requests")},
             {"too_many_pending": "1", "too_many_sandboxes": "1",
              "too_many_requests": "4"})
        g.reload(location="")
        same(json.loads(g.run("c", "mock: seen")["stdout"]).count("COMMAND"),
             4, "what was refused by nginx reached no runner")


@test("admin/foreign-timeouts", beside=True)
def foreign_timeouts():
    """nginx's own settings for proxies and clients end neither a command that
    says nothing for long nor a large upload."""
    g = Gateway(runner="mock", http=(
        "proxy_read_timeout 1s; proxy_send_timeout 1s; send_timeout 1s;"
        "keepalive_timeout 1s; client_max_body_size 1m;"
        "limit_req_zone $binary_remote_addr zone=all:1m rate=1000r/s;"),
        location="sandbox_file_size 32m; limit_req zone=all burst=1000;")
    g.options["http"] += "sandbox_store %s/store;" % g.dir
    g.options["location"] += "sandbox_realm both;"
    g.options["server"] = "location /patient/ { sandbox on; " \
        "sandbox_jwt_secret_file %s/jwt.key; sandbox_realm both; " \
        "send_timeout 10m; }" % g.dir
    with g:
        same(g.run("slow", "mock: head sleep=2 stdout=ok")["stdout"], "ok")
        same(g.run("slow", "mock: sleep=2 stdout=ok")["stdout"], "ok")
        body = bytes(range(256)) * (20 << 12)
        at = "v1/conversations/slow/attachments/big"
        same(g.request("PUT", at, body).status, 201)
        # a piece at a time, that a socket has room for: "send_timeout" is
        # nginx's own, and this machine may stand still for as long
        piece = 1 << 20
        for first in range(0, len(body), piece):
            r = g.request("GET", at, headers={
                "Range": "bytes=%d-%d" % (first, first + piece - 1)})
            check((r.status, r.body) == (206, body[first:first + piece]),
                  "another file", first, r.status, len(r.body))
        # and all of it at once, beside the others of nginx's settings
        r = g.request("GET", "/patient/" + at)
        check((r.status, r.body) == (200, body), "another file", r.status,
              len(r.body))
        r = g.request("PUT", at, body + bytes(13 << 20))
        same((r.status, r.json["code"]), (413, "file_too_large"))


@test("http/without-the-slash", beside=True)
def without_slash():
    """A path that misses its last slash leads to the one that has it."""
    with Gateway(runner="mock") as g:
        for method in ("GET", "HEAD", "POST"):
            r = g.request(method, "/sandbox", token=None)
            same((r.status, r.headers["Location"]),
                 (301, "http://127.0.0.1:%d/sandbox/" % g.port), method)
        r = g.request("GET", "/sandbox/")
        same((r.status, r.json["code"]), (404, "not_found"))
        same(g.request("GET", "/sandboxes", token=None).status, 404)


main()
