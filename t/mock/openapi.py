#!/usr/bin/env python3
"""openapi.json: that it is an OpenAPI 3.1 document, of exactly the calls that
there are, with all codes; and that answers are as it says."""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import openapi                                                # noqa: E402
from gateway import TOP, Gateway                              # noqa: E402
from tap import check, main, same, test                       # noqa: E402

g = None
V = "v1/conversations/"
NUMBERS = {"BAD_REQUEST": 400, "UNAUTHORIZED": 401, "FORBIDDEN": 403,
           "NOT_FOUND": 404, "NOT_ALLOWED": 405, "REQUEST_TIME_OUT": 408,
           "CONFLICT": 409, "GONE": 410, "PRECONDITION_FAILED": 412,
           "REQUEST_ENTITY_TOO_LARGE": 413, "UNSUPPORTED_MEDIA_TYPE": 415,
           "RANGE_NOT_SATISFIABLE": 416, "UNPROCESSABLE": 422,
           "TOO_MANY_REQUESTS": 429, "INTERNAL_SERVER_ERROR": 500,
           "NOT_IMPLEMENTED": 501, "BAD_GATEWAY": 502,
           "SERVICE_UNAVAILABLE": 503, "INSUFFICIENT_STORAGE": 507}


def start():
    global g
    g = Gateway(runner="mock", workers=1)
    on = "sandbox on; sandbox_jwt_secret_file %s/jwt.key;" % g.dir
    g.options["http"] = "sandbox_store %s/store;" % g.dir
    g.options["server"] = """
        location / { %s }
        location /a/b { %s }
        location /none/ { sandbox_store off; %s }
    """ % (on, on, on)
    g.start()
    g.description = openapi.load()


def stop():
    g.stop()


def source(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


@test("openapi: served as it is, without a token, for each location")
def served():
    text = source("src/module/openapi.json")
    for prefix, server in (("/sandbox/", "/sandbox"), ("/", "/"),
                           ("/a/b/", "/a/b")):
        r = g.request("GET", prefix + "openapi.json", token=None)
        same((r.status, r.headers["Content-Type"]), (200, "application/json"))
        same(r.headers["Cache-Control"], "no-store")
        same(r.json["servers"][0]["url"], server)
        same(r.body.decode(), text.replace('"url": "/sandbox"',
                                           '"url": "%s"' % server, 1))
        h = g.request("HEAD", prefix + "openapi.json", token=None)
        same((h.status, h.headers["Content-Length"], h.body),
             (200, str(len(r.body)), b""))
    # a token of whoever does not matter
    same(g.request("GET", "openapi.json", token="nonsense").status, 200)
    r = g.request("POST", "openapi.json", b"")
    same((r.status, r.headers["Allow"]), (405, "GET, HEAD"))


@test("openapi: it is a document of OpenAPI 3.1")
def valid():
    same(g.description.faults(), [])


def routes():
    """(template, method) of the module's table."""
    table = source("src/module/ngx_http_sandbox_route.c")
    table = table[table.index("ngx_http_sandbox_routes[]"):]
    table = table[:table.index("ngx_null_string")]
    for pattern, methods in re.findall(
            r'\{ ngx_string\("([^"]+)"\),\s*((?:NGX_HTTP_[A-Z]+\|?)+),',
            table):
        template = re.sub(r"\W[*]$|\W[*](?=/)", "/{}", "/" + pattern)
        template = re.sub("[+~]", "{}", template)
        for method in re.findall("NGX_HTTP_([A-Z]+)", methods):
            yield template, method.lower()


@test("openapi: the calls that there are, and no others")
def calls():
    described = {(re.sub("{.*?}", "{}", template), method)
                 for template, item in g.description.doc["paths"].items()
                 for method in item if method != "parameters"}
    real = set(routes())
    check(len(real) > 40, "the table was not found", len(real))
    same(sorted(real - described), [], "not described")
    same(sorted(described - real), [], "described only")


def described_codes():
    out = set()
    for name, response in g.description.doc["components"]["responses"].items():
        if name.startswith("Problem") and name != "Problem":
            schema = response["content"]["application/problem+json"]["schema"]
            own = schema["allOf"][1]["properties"]
            same(own["status"]["const"], int(name[7:]))
            out |= {(own["status"]["const"], c) for c in own["code"]["enum"]}
    return out


@test("openapi: all codes, each with its status")
def codes():
    described = described_codes()
    same(sorted({c for _, c in described}), sorted(
        g.description.doc["components"]["schemas"]["Problem"]["properties"]
        ["code"]["enum"]), "of Problem")
    docs = set()
    errors = source("docs/api.md").partition("\n## Errors\n")[2]
    for status, cell in re.findall(r"^\| (\d{3}) \| ([^|]+) \|",
                                   errors.partition("\n## ")[0], re.M):
        docs |= {(int(status), c) for c in re.findall("`([a-z_]+)`", cell)}
    same(sorted(docs ^ described), [], "docs/api.md and openapi.json differ")
    wire = {(int(s), c) for c, s in re.findall(
        r'\{ "([a-z_]+)", +(\d{3}) \}', source("src/wire/sandbox_wire.c"))}
    check(len(wire) > 20, "no codes of the wire")
    same(sorted(wire - described), [], "of the wire")
    module = set()
    for name in os.listdir(os.path.join(TOP, "src/module")):
        if name.endswith(".c"):
            text = re.sub(r"\s+", " ", source("src/module/" + name))
            module |= {(NUMBERS[s], c) for s, c in re.findall(
                r'NGX_HTTP_(?:SANDBOX_)?([A-Z_]+), "([a-z_]+)"', text)
                if s in NUMBERS}
    check(len(module) > 30, "no codes of the module", len(module))
    same(sorted(module - described), [], "of the module")


def ask(method, path, body=None, status=None, **options):
    r = g.request(method, path, body, **options)
    openapi.check_answer(g.description, "/sandbox/", method, path, r)
    if status:
        same(r.status, status, "%s %s: %r" % (method, path, r))
    return r


@test("openapi: answers are as it says")
def answers():
    ask("GET", "health", status=200, token=None)
    ask("GET", "health?ready", status=200, token=None)
    r = ask("GET", "v1/limits", status=200)
    same(r.json["unsupported"], [], "all that is described is there")
    ask("GET", "v1/limits", status=401, token=None)
    ask("GET", V + "c", status=200)
    ask("GET", V + "c/commands/x", status=404)
    ask("PUT", V + "c/attachments/a", b"x", 201)
    ask("PUT", V + "c/attachments/a", b"y", 200)
    ask("PUT", V + "c/attachments/%FF", b"y", 201)
    ask("POST", V + "c/attachments?name=a", b"y", 201)
    ask("POST", V + "c/attachments", b"y", 400)
    ask("GET", V + "c/attachments", status=200)
    run = V + "c/commands"
    ask("POST", run, {"command": "x", "commandId": "one"}, 200)
    ask("POST", run + "?encoding=base64", {"command": "x"}, 200)
    ask("POST", run, {"command": "mock: stdout=a%FF stderr=b"}, 200)
    ask("POST", run, {"command": "mock: notice=renamed%00a%00b"}, 200)
    ask("POST", run, {"command": "mock: error=at_capacity,3"}, 503)
    ask("POST", run, {"command": "mock: error=too_many_pending,3"}, 429)
    ask("POST", run, {"command": "mock: error=cwd_missing"}, 422)
    ask("POST", run, {"cmd": "x"}, 400)
    ask("POST", run, b"x", 415, headers={"Content-Type": "text/plain"})
    for kind in ("application/x-ndjson", "text/event-stream"):
        ask("POST", run, {"command": "mock: stdout=a stderr=%FF gap=stdout,5"},
            200, headers={"Accept": kind})
    ask("GET", run, status=200)
    ask("GET", run + "?limit=0", status=400)
    ask("GET", V + "c", status=200)
    ask("GET", "v1/conversations?limit=0", status=400)
    ask("POST", run, {"command": "mock: keep lines=200,0.1", "commandId": "bg",
                      "background": True}, 202)
    ask("GET", run + "/bg", status=200)
    ask("POST", run + "/bg/stdin", b"x", 200)
    ask("DELETE", run + "/bg", status=200)
    ask("PUT", V + "c/files/f", b"f", 201)
    ask("PUT", V + "c/files/f", b"g", 412, headers={"If-None-Match": "*"})
    ask("GET", V + "c/files", status=200)
    ask("GET", V + "c/files/f", status=200)
    ask("GET", V + "c/files/f", status=206, headers={"Range": "bytes=0-0"})
    ask("GET", V + "c/files/f", status=416, headers={"Range": "bytes=9-"})
    ask("HEAD", V + "c/files/f", status=200)
    where = ask("POST", V + "c/files/f/link", status=200).json["url"]
    ask("GET", where[len("/sandbox/"):], status=200, token=None)
    ask("GET", "dl/x", status=403, token=None)
    ask("DELETE", V + "c/files/f", status=204)
    ask("GET", V + "c/files/f", status=404)
    ask("GET", V + "c/skills", status=200)
    ask("GET", V + "c/skills?library=1", status=200)
    ask("POST", V + "c/skills", {"name": "x"}, 404)
    ask("PUT", V + "c/skills/x", b"\x1f\x8b" + bytes(600), 415)
    ask("PUT", V + "c/skills/x", b"x" * 600, 422)
    ask("PUT", V + "c/skills/x", bytes(1024), 422)
    ask("POST", "mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    ask("POST", V + "c/reset", status=200)
    ask("DELETE", V + "c", status=204)
    r = g.request("GET", "/none/" + V + "c/files")
    openapi.check_answer(g.description, "/none/", "GET",
                         "/none/" + V + "c/files", r)
    same(r.status, 501)


main(start, stop)
