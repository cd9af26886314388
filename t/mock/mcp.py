#!/usr/bin/env python3
"""MCP against a mock runner: the message, both revisions, who may call, calls
judged by their schemas, results.  Group mcp."""

import json
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, token, wait_for                  # noqa: E402
from mcp import (HEADERS, INVALID, LEGACY, META, MODERN, NO_METHOD,  # noqa
                 PARAMS, PARSE, VERSION, Client, holds, text_of, wrong)
from tap import check, main, same, test                       # noqa: E402

g = None
NUMBER = 0
QUIET = None


def start():
    global g
    g = Gateway(runner="mock", workers=1, location="""
        sandbox_permission_read files:read;
        sandbox_output 1m;
    """)
    g.options["http"] = """
        sandbox_store %s/store;
        log_format sandbox '$sandbox_operation $sandbox_conversation $status';
        access_log %s/logs/sandbox.log sandbox;
    """ % (g.dir, g.dir)
    g.options["server"] = """
        server_name sandbox.example.com *.dev.example.com;
        location /claim/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_conversation_claim chat;
        }
        location /argument/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_mcp_conversation argument;
            sandbox_mcp_origins https://chat.example.org http://lan:3000;
        }
        location /bare/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_store off;
        }
        location /large/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_file_size 4g;
        }
        location = /metrics { sandbox_metrics; }
    """ % (g.dir, g.dir, g.dir, g.dir)
    g.start()


def stop():
    g.stop()


def fresh(revision=LEGACY, **options):
    """A client in a conversation of its own."""
    global NUMBER
    NUMBER += 1
    return Client(g, "c%d" % NUMBER, revision, **options)


@test("mcp/handshake")
def handshake():
    c = fresh()
    r = c.post(c.message("initialize", {
        "protocolVersion": LEGACY, "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}}))
    same(r.status, 200)
    same(r.headers["Content-Type"], "application/json")
    check("Mcp-Session-Id" not in r.headers, "no session is made")
    result = r.json["result"]
    same(result["protocolVersion"], LEGACY)
    check("tools" in result["capabilities"], "tools", result)
    check(result["serverInfo"]["name"] and result["serverInfo"]["version"],
          "serverInfo", result)
    check(result["instructions"], "instructions", result)
    for asked, told in (("2025-06-18", "2025-06-18"),
                        ("2025-03-26", "2025-03-26"),
                        ("2024-11-05", LEGACY), ("2026-07-28", LEGACY),
                        ("", LEGACY), ("2025", LEGACY),
                        ("2026\0-07-2", LEGACY), ('","2025-11', LEGACY)):
        same(c.result("initialize", {"protocolVersion": asked,
                                     "capabilities": {}},
                      headers={"MCP-Protocol-Version": None})
             ["protocolVersion"], told, asked)
    same(c.error("initialize", {})["code"], PARAMS)

    r = c.notify("notifications/initialized")
    same((r.status, r.body), (202, b""))
    same(r.headers["Content-Length"], "0")
    same(c.result("ping"), {})

    tools = c.tools()
    check("run_command" in tools, "run_command is there", list(tools))
    r = c.call("run_command", command="mock: stdout=hi%0A")
    holds(tools["run_command"], r)
    same((r["isError"], r["structuredContent"]["stdout"]), (False, "hi\n"))
    check(text_of(r).startswith("hi\n") and "exit code 0" in text_of(r),
          "its text", r)
    same(c.error("resources/list")["code"], NO_METHOD)
    # answers to what was never asked
    r = c.post({"jsonrpc": "2.0", "id": 1, "result": {}})
    same((r.status, r.body), (202, b""))


@test("mcp/protocol-header")
def protocol_header():
    c = fresh()
    for version in ("1900-01-01", "not-a-version", "2024-11-05", "", "\"",
                    "2025-11-25,2026-07-28", "2025-11-2"):
        r = c.request("tools/list", headers={"MCP-Protocol-Version": version})
        same(r.status, 400, version)
        same(r.json["error"]["code"], VERSION)
        same(r.json["id"], c.number)
        check(LEGACY in r.json["error"]["data"]["supported"], "supported", r)
        # nothing runs
        r = c.request("tools/call", {"name": "run_command", "arguments": {
            "command": "true"}}, headers={"MCP-Protocol-Version": version})
        same(r.status, 400, version)
    same(g.status(c.path.split("/")[2])["state"], "none")
    for version in (None, "2025-03-26", "2025-06-18", LEGACY):
        check(c.result("tools/list", headers={
            "MCP-Protocol-Version": version})["tools"], "listed", version)


@test("mcp/session-404")
def session():
    c = fresh()
    for headers in ({"Mcp-Session-Id": "0123456789abcdef"},):
        r = c.request("tools/list", headers=headers)
        same(r.status, 404)
        same(r.json["error"]["code"], INVALID)
        check("initialize" in r.json["error"]["message"], "what to do", r)
        # a client that begins anew gets in, with or without it
        same(c.request("initialize", {"protocolVersion": LEGACY},
                       headers=headers).status, 200)
    # none is needed, and the revision without sessions does not look
    same(c.request("tools/list").status, 200)
    m = Client(g, "session-modern", MODERN)
    same(m.request("tools/list",
                   headers={"Mcp-Session-Id": "x"}).status, 200)


@test("mcp/stateless-revision")
def stateless():
    c = fresh(MODERN)
    result = c.result("server/discover")
    check(MODERN in result["supportedVersions"], "versions", result)
    same(result["resultType"], "complete")
    check(result["_meta"][META + "serverInfo"]["name"], "serverInfo", result)
    same((result["cacheScope"], result["ttlMs"] >= 0), ("private", True))
    result = c.result("tools/list")
    same((result["resultType"], result["cacheScope"]),
         ("complete", "private"))
    result = c.call("run_command", command="mock: stdout=a")
    same((result["resultType"], result["structuredContent"]["stdout"]),
         ("complete", "a"))
    holds(c.tools()["run_command"], result)
    result = c.call("run_command", command=1)
    same((result["resultType"], result["isError"]), ("complete", True))

    # what is no more
    for method in ("initialize", "ping", "logging/setLevel"):
        r = c.request(method, {"protocolVersion": MODERN})
        same((r.status, r.json["error"]["code"]), (404, NO_METHOD), method)

    ran = c.path.split("/")[2]
    before = g.status(ran)["commands"]
    call = {"name": "run_command", "arguments": {"command": "true"}}
    for headers in ({"Mcp-Method": "tools/list"}, {"Mcp-Method": None},
                    {"Mcp-Method": "TOOLS/CALL"}, {"Mcp-Name": "read_file"},
                    {"Mcp-Name": None}, {"Mcp-Name": "=?base64?!?="},
                    {"Mcp-Name": "=?base64?cmVhZF9maWxl?="},
                    {"MCP-Protocol-Version": None},
                    {"MCP-Protocol-Version": LEGACY}):
        r = c.request("tools/call", call, headers=headers)
        same((r.status, r.json["error"]["code"]), (400, HEADERS), headers)
        same(r.json["id"], c.number)
    r = c.request("tools/call", call, headers={
        "Mcp-Name": "=?base64?cnVuX2NvbW1hbmQ=?="})
    same(r.status, 200)
    before += 1

    for meta, code in (({}, PARAMS),
                       ({META + "protocolVersion": MODERN}, PARAMS),
                       ({META + "protocolVersion": 1,
                         META + "clientCapabilities": {}}, PARAMS),
                       ({META + "protocolVersion": MODERN,
                         META + "clientCapabilities": []}, PARAMS)):
        r = c.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                    "params": dict(call, _meta=meta)},
                   {"MCP-Protocol-Version": MODERN, "Mcp-Name": "run_command",
                    "Mcp-Method": "tools/call"})
        same((r.status, r.json["error"]["code"]), (400, code), meta)
    r = c.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
                "params": {"_meta": {META + "protocolVersion": "2030-01-01",
                                     META + "clientCapabilities": {}}}},
               {"MCP-Protocol-Version": "2030-01-01",
                "Mcp-Method": "tools/list"})
    same((r.status, r.json["error"]["code"]), (400, VERSION))
    same(r.json["error"]["data"]["requested"], "2030-01-01")
    check(MODERN in r.json["error"]["data"]["supported"], "supported", r)

    # a header that lies is refused in older revisions, too
    old = Client(g, ran)
    r = old.request("tools/call", call, headers={"Mcp-Name": "read_file"})
    same((r.status, r.json["error"]["code"]), (400, HEADERS))
    same(g.status(ran)["commands"], before, "nothing ran")


@test("mcp/ids")
def ids():
    c = fresh()
    for number in ("text", "", "1", 0, -1, 7, 2 ** 60, -2 ** 60, "ü\u2028",
                   "a\0b", 'quo"te\\', "x" * 400):
        r = c.request("ping", number=number)
        same(r.status, 200, number)
        same((r.json["id"], type(r.json["id"])), (number, type(number)))
        r = c.request("tools/call", {"name": "run_command", "arguments": {
            "command": "mock: stdout=x"}}, number=number)
        same((r.json["id"], r.json["result"]["isError"]), (number, False))
        # an error, and a tool that failed, have it as well
        same(c.request("nonsense", number=number).json["id"], number)
        same(c.request("tools/call", {"name": "run_command"},
                       number=number).json["id"], number)
    for text in ("null", "1.5", "1.0", "1e3", "true", "[1]", "{}",
                 json.dumps("x" * 600)):
        r = c.post('{"jsonrpc":"2.0","method":"ping","id":%s}' % text)
        same((r.status, r.json["error"]["code"]), (400, INVALID), text)
        check("id" not in r.json, "no id", r)
    # without one it is a notification: nothing is done, nothing is said
    for method in ("ping", "tools/call", "tools/list", "initialize"):
        r = c.post({"jsonrpc": "2.0", "method": method, "params": {
            "name": "run_command", "arguments": {"command": "true"}}})
        same((r.status, r.body), (202, b""), method)

    # the same id twice at once: each has its own answer
    answers = []

    def one(text):
        answers.append((text, c.call("run_command", number=5,
                                     command="mock: sleep=0.3 stdout="
                                     + text)))

    threads = [threading.Thread(target=one, args=(t,)) for t in "ab"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(len(answers), 2)
    for text, result in answers:
        same(result["structuredContent"]["stdout"], text)


@test("mcp/messages-that-are-none")
def none():
    c = fresh()
    for body, code in (("{", PARSE), ("", PARSE), ("1", PARSE),
                       ('{"jsonrpc":"2.0","method":"ping","id":1\0}', PARSE),
                       ('{"a":1,"a":2}', PARSE), (b'{"\xff":1}', PARSE),
                       ("[]", INVALID), ("{}", INVALID),
                       ([c.message("ping")], INVALID),
                       ({"jsonrpc": "2.0\0x", "id": 1, "method": "ping"},
                        INVALID),
                       ({"jsonrpc": "1.0", "id": 1, "method": "ping"},
                        INVALID),
                       ({"jsonrpc": "2.0", "id": 1, "method": 1}, INVALID),
                       ({"jsonrpc": "2.0", "id": 1, "method": "ping\0x"},
                        INVALID),
                       ({"jsonrpc": "2.0", "id": 1, "method": "ping",
                         "params": []}, INVALID)):
        r = c.post(body)
        same((r.status, r.json["error"]["code"]), (400, code), body)
    for params, code in (({}, PARAMS), ({"name": 1}, PARAMS),
                         ({"name": "nope"}, PARAMS),
                         ({"name": "Run_command"}, PARAMS),
                         ({"name": "run_command", "arguments": []}, PARAMS)):
        same(c.error("tools/call", params)["code"], code, params)
    same(c.error("tools/list", {"cursor": "x"})["code"], PARAMS)
    r = c.post("{}", {"Content-Type": "text/plain"})
    same((r.status, r.json["code"]), (415, "unsupported_media_type"))
    r = g.request("POST", c.path, "{}", token=None)
    same((r.status, r.json["code"]), (401, "unauthorized"))


def tries(field, schema):
    """Values that may or may not be right, of all types."""
    out = ["", "x", "a\0b", "x\n", "ü" * 3, "../..", "/tmp", "AAA=", "AA",
           "a b", ".", "..", "x" * 65, 0, 1, -1, 16, 17, 1.0, 1.5, 1e300,
           2 ** 53, 1000, 1001, 5001, True, False, None, [], ["*.py"], [1],
           [""], ["a\0"], ["x"] * 16, ["x"] * 17, {}, {"A": "b"}, {"A": 1},
           {"1A": "b"}, {"A": "b\0"}, {"": "x"}, {"A-B": "x"},
           {"fresh": False}, {"id": ""}, {"id": None}, {"id": 5},
           {"fresh": "yes"}, {"fresh": True, "id": "x"}, {"other": 1},
           {"A%d" % n: "b" for n in range(513)}]
    return out


@test("mcp/schema-truth", 240)
def schema_truth():
    c = fresh()
    tools = c.tools()
    good = {"run_command": {"command": "true"},
            "read_file": {"path": "x"}, "delete_file": {"path": "x"},
            "save_file": {"path": "x", "content": "y"},
            "upload_file": {"path": "x", "contentBase64": "eA=="},
            "download_file": {"path": "x"}, "load_skill": {"name": "x"},
            "edit_file": {"path": "x", "old_string": "a", "new_string": "b"},
            "search_files": {"pattern": "x"}}
    check(set(tools) <= set(good), "no tool is unknown here", list(tools))
    for name, tool in tools.items():
        schema = tool["inputSchema"]
        same(schema["additionalProperties"], False, name)
        same(tool["outputSchema"]["additionalProperties"], False, name)
        same(tool["outputSchema"]["type"], "object", name)
        check(tool["description"] and tool["title"], "words", tool)
        check(set(tool["annotations"]) == {
            "readOnlyHint", "destructiveHint", "idempotentHint",
            "openWorldHint"}, "annotations", tool)
        calls = [dict(good[name], nonsense=1), {}]
        calls += [{k: v for k, v in good[name].items() if k != field}
                  for field in good[name]]
        for field, sub in schema["properties"].items():
            check(sub["description"], "described", name, field)
            calls += [dict(good[name], **{field: value})
                      for value in tries(field, sub)]
        for arguments in calls:
            found = wrong(schema, arguments)
            r = c.call(name, **arguments)
            code = r["_meta"]["code"] if r["isError"] else None
            mine = code in ("unknown_field", "bad_request")
            check(mine == bool(found), "as the schema says", name, arguments,
                  found or "accepted", r)
            if found:
                field = found.split(".")[-1].split(" ")[0].split("[")[0]
                check('"' in text_of(r) and (field in text_of(r)
                                             or field.startswith("it")
                                             or "a name" in found
                                             or field in found),
                      "the field is named", arguments, text_of(r))


@test("http/model-guesses")
def guesses():
    c = fresh()
    tool = c.tools()["run_command"]
    mine = c.done("run_command", command="mock: stdout=x")["sandboxId"]
    for target in ({}, {"fresh": False}, {"id": ""}, {"id": None}):
        r = c.call("run_command", command="mock: stdout=x", target=target)
        holds(tool, r)
        same(r["structuredContent"]["sandboxId"], mine, target)
    same(c.done("run_command", command="mock: stdout=x",
                target={"id": mine})["sandboxId"], mine)
    sent = json.loads(c.done("run_command", command="what", stdin="typed",
                             env={"A": "b"}, target={"id": mine})["stdout"])
    same((sent["body"], sent["ENV"], sent["preamble"]["instance"]),
         ("typed", ["A=b"], 1))
    same(c.refused("run_command", command="mock: stdout=x",
                   target={"id": "sbx_of_somebody"}), "gone")
    other = c.done("run_command", command="mock: stdout=x",
                   target={"fresh": True, "id": "x"})
    check(other["sandboxId"] != mine and other["sandboxCreated"],
          "fresh wins", other)
    same(c.refused("run_command", command="mock: stdout=x",
                   target={"id": mine}), "gone")
    # where there is none, none is made for it
    same(fresh().refused("run_command", command="true",
                         target={"id": mine}), "gone")


@test("mcp/nonzero-is-no-error")
def nonzero():
    c = fresh()
    tool = c.tools()["run_command"]
    r = c.call("run_command", command="mock: exit_code=2 "
               "stderr=ls%3A%20cannot%20access%20%2Fnope")
    holds(tool, r)
    same(r["isError"], False)
    check("exit code 2" in text_of(r) and "cannot access /nope" in text_of(r),
          "the reason", r)
    for steps, word in (("outcome=2 exit_code=124", "timeout after 120 s"),
                        ("outcome=4 exit_code=137", "oom"),
                        ("background=3", "3 processes left running"),
                        ("", "no output")):
        r = c.call("run_command", command="mock: " + steps)
        holds(tool, r)
        same(r["isError"], False, steps)
        check(word in text_of(r), "told", word, r)
    r = c.call("run_command", command="mock: keep sleep=0.2",
               background=True)
    holds(tool, r)
    check("running in the background" in text_of(r)
          and r["structuredContent"]["state"] == "running", "state", r)
    # lost on its way: told as what it is
    r = c.call("run_command", command="mock: head stdout=half close")
    holds(tool, r)
    same((r["isError"], r["structuredContent"]["outcome"]),
         (False, "runner_lost"))


@test("mcp/failures-are-results")
def failures():
    c = fresh()
    for steps, code in (("error=too_many_pending,7", "too_many_pending"),
                        ("error=no_sandbox", "no_sandbox"),
                        ("error=cwd_missing", "cwd_missing"),
                        ("error=at_capacity", "at_capacity"),
                        ("raw=%00%00%00%01%63x", "bad_upstream")):
        r = c.call("run_command", command="mock: " + steps)
        same((r["isError"], r["_meta"]["code"]), (True, code), steps)
        check(text_of(r).startswith(code + ": "), "its text", r)
    g.expected += ["broke the protocol"]
    r = c.call("run_command", command="mock: error=too_many_pending,7")
    same((r["_meta"]["retryAfterSeconds"], r["_meta"]["status"]), (7, 429))
    check("in 7 seconds" in text_of(r), "when", r)
    same(c.refused("run_command", command="true", cwd="x"), "cwd_outside")
    c.done("run_command", command="mock: stdout=x")
    same(c.refused("read_file", path="missing"), "file_not_found")
    same(c.refused("read_file", path="x" * 5000), "bad_path")
    same(c.refused("run_command", command="true", target={"id": "sbx_old"}),
         "gone")
    same(c.refused("run_command", command="x" * 300000),
         "command_too_large")
    log = g.read("logs/sandbox.log")
    check("mcp.run_command " + c.path.split("/")[2] + " 200" in log,
          "variables", log[-500:])


@test("mcp/result-utf8")
def utf8():
    c = fresh()
    tool = c.tools()["run_command"]
    for steps, text in (("stdout=a%FF%FEb", "a\ufffd\ufffdb"),
                        ("stdout=%ED%A0%80x", "\ufffd\ufffd\ufffdx"),
                        ("stdout=a%E2%80%A8b", "a\u2028b"),
                        ("stdout=a%00b%00", "ab"),
                        ("stdout=%22%5C%07%0D%0A", '"\\\x07\r\n'),
                        ("stdout=%F0%9F", "\ufffd\ufffd"),
                        ("stdout=%F0%9F%A4%A3", "\U0001f923")):
        r = c.request("tools/call", {"name": "run_command", "arguments": {
            "command": "mock: " + steps}}, number="ä" + steps)
        same(json.loads(r.body.decode())["id"], "ä" + steps)
        result = r.json["result"]
        holds(tool, result)
        same(result["structuredContent"]["stdout"], text)
        check(text in text_of(result), "in its text, too", result)
        same(int(r.headers["Content-Length"]), len(r.body))


@test("mcp/large-result", 240)
def large_result():
    c = fresh()
    tool = c.tools()["run_command"]
    r = c.call("run_command", command="mock: fill=stdout,a,1000000")
    holds(tool, r)
    s = r["structuredContent"]
    same((s["truncated"], s["stdoutBytes"]), (True, 1000000))
    check(len(s["stdout"]) < 33000 and len(text_of(r)) < 34000, "cut",
          len(s["stdout"]))
    left = 1000000 - s["stdout"].count("a") - 0
    check("%d bytes left out" % (1000000 - 32768) in s["stdout"], "counted",
          s["stdout"][16300:16500])
    check("read_file" in text_of(r), "what to do", text_of(r)[16300:16600])
    check(left, "some was left out")
    # never within a character, and what the agent left out is counted, too
    r = c.call("run_command", command="mock: fill=stdout,%C3%BC,30000 "
               "fill=stderr,b,40000 gap=stderr,1000 fill=stderr,c,40000")
    holds(tool, r)
    s = r["structuredContent"]
    check("\ufffd" not in s["stdout"] and not s["binaryStripped"], "whole",
          s["stdout"][16200:16600])
    same(s["stderrBytes"], 81000)
    check("[%d bytes left out]" % (81000 - 32768) in s["stderr"], "counted",
          s["stderr"][16300:16500])


def png(size):
    return b"\x89PNG\r\n\x1a\n" + b"x" * (size - 8)


@test("mcp/read-file", 240)
def read_file():
    c = fresh()
    tools = c.tools()
    tool = tools["read_file"]
    same(c.refused("read_file", path="a"), "no_sandbox")
    c.done("save_file", path="a/b.txt", content="one\ntwo\r\nthree")
    for path in ("a/b.txt", "./a//b.txt", "~/a/b.txt",
                 "/home/sandbox/a/b.txt"):
        r = c.call("read_file", path=path)
        holds(tool, r)
        s = r["structuredContent"]
        same((s["path"], s["text"], s["size"], s["firstLine"], s["lastLine"],
              s["nextOffset"], s["truncated"], text_of(r)),
             ("/home/sandbox/a/b.txt", "one\ntwo\r\nthree", 14, 1, 3, None,
              False, "one\ntwo\r\nthree"))
    for offset, limit, text, first, last, after in (
            (1, 1, "one\n", 1, 1, 2), (2, 1, "two\r\n", 2, 2, 3),
            (2, 2, "two\r\nthree", 2, 3, None), (3, 5, "three", 3, 3, None),
            (1, 3, "one\ntwo\r\nthree", 1, 3, None)):
        r = c.call("read_file", path="a/b.txt", offset=offset, limit=limit)
        holds(tool, r)
        s = r["structuredContent"]
        same((s["text"], s["firstLine"], s["lastLine"], s["nextOffset"]),
             (text, first, last, after), (offset, limit))
        check(after is None or "offset %d" % after in text_of(r), "hint", r)
    r = c.call("read_file", path="a/b.txt", offset=4)
    holds(tool, r)
    same((r["structuredContent"]["text"],
          r["structuredContent"]["firstLine"]), ("", None))
    check("has 3 lines" in text_of(r), "told", r)
    c.done("save_file", path="e", content="")
    r = c.call("read_file", path="e")
    holds(tool, r)
    check("is empty" in text_of(r), "told", r)
    same(c.refused("read_file", path="none"), "file_not_found")
    same(c.refused("read_file", path="a"), "is_a_directory")
    same(c.refused("read_file", path="x/" + "y" * 300), "bad_path")

    # larger than its window, several frames long; nothing is lost between
    lines = ["line %d %s" % (n, "ü" * (n % 50)) for n in range(1, 9001)]
    c.done("save_file", path="big", content="\n".join(lines))
    got, offset, calls = [], 1, 0
    while offset:
        r = c.call("read_file", path="big", offset=offset)
        holds(tool, r)
        s = r["structuredContent"]
        check(len(s["text"].encode()) <= 65536, "bounded")
        same(s["truncated"], s["nextOffset"] is not None)
        part = s["text"]
        if s["nextOffset"] and not part.endswith("\n"):
            # cut within a line: go back for it
            same(s["nextOffset"], s["lastLine"] + 1)
            part = part[:part.rindex("\n") + 1]
            s["nextOffset"] = s["lastLine"]
        got.append(part)
        offset = s["nextOffset"]
        calls += 1
        check(calls < 100, "it comes to an end")
    same("".join(got), "\n".join(lines))
    r = c.call("read_file", path="big", offset=8999, limit=1)
    same(r["structuredContent"]["text"], lines[8998] + "\n")
    # one line without end
    c.done("save_file", path="long", content="ü" * 100000 + "\nend\n")
    r = c.call("read_file", path="long")
    holds(tool, r)
    s = r["structuredContent"]
    same((s["text"], s["nextOffset"]), ("ü" * 32768, 2))
    check("cut -c" in text_of(r), "hint", text_of(r)[-200:])
    same(c.done("read_file", path="long", offset=2)["text"], "end\n")

    # what is no text
    import base64
    c.done("upload_file", path="bin", contentBase64="AAEC/w==")
    r = c.call("read_file", path="bin")
    holds(tool, r)
    same((r["structuredContent"]["text"], r["structuredContent"]["type"]),
         (None, "application/octet-stream"))
    c.done("upload_file", path="latin", contentBase64=base64.b64encode(
        b"caf\xe9\n").decode())
    r = c.call("read_file", path="latin")
    holds(tool, r)
    same(r["structuredContent"]["text"], "caf\ufffd\n")

    # images, by their first bytes and their size
    for head, kind in ((b"\x89PNG\r\n\x1a\n", "image/png"),
                       (b"\xff\xd8\xff\xe0", "image/jpeg"),
                       (b"GIF89a", "image/gif"),
                       (b"RIFF\0\0\0\0WEBP", "image/webp")):
        data = head + bytes(range(256)) * 9
        c.done("upload_file", path="img.txt",
               contentBase64=base64.b64encode(data).decode())
        r = c.call("read_file", path="img.txt")
        holds(tool, r)
        same(r["structuredContent"]["type"], kind)
        image = [i for i in r["content"] if i["type"] == "image"]
        same((image[0]["mimeType"], base64.b64decode(image[0]["data"])),
             (kind, data))
    for size, inline in ((3 * 1000 * 1000, True), (3840 * 1024, True),
                         (3840 * 1024 + 1, False), (10 * 1000 * 1000, False)):
        c.done("upload_file", path="i.png", contentBase64=base64.b64encode(
            png(size)).decode())
        r = c.call("read_file", path="i.png")
        holds(tool, r)
        same(len([i for i in r["content"] if i["type"] == "image"]),
             int(inline), size)
        check(inline or "download_file" in text_of(r), "what to do", size)

    # the file shrinks while it is read, the agent lies
    for steps in ("frame=1,%00%60%00%00%00%08%00%00%00%00%00%00%00%c8 result",
                  "error=not_permitted", "error=file_busy"):
        c.done("run_command", command="mock: on=FILE_READ,"
               + steps.replace("%", "%25").replace(" ", "%20")
               .replace("=", "%3D"))
        check(c.refused("read_file", path="x") in (
            "bad_upstream", "not_permitted", "file_busy"), "told", steps)


@test("files/edit-exact", 240)
def edit_exact():
    c = fresh()
    tool = c.tools()["edit_file"]

    def put(text):
        c.done("save_file", path="f", content=text)

    def has(text):
        same(c.done("read_file", path="f")["text"], text)

    def edit(old, new, **more):
        r = c.call("edit_file", path="f", old_string=old, new_string=new,
                   **more)
        holds(tool, r)
        return r["_meta"]["code"] if r["isError"] \
            else r["structuredContent"]["replacements"]

    same(c.refused("edit_file", path="f", old_string="a", new_string="b"),
         "no_sandbox")
    put("a.b\na*b\r\n$1 \\1 & end")
    same(edit("absent", "x"), "edit_not_found")
    check("0 times" in text_of(c.call("edit_file", path="f",
                                      old_string="zz", new_string="x")), "0")
    same(edit("a", "a"), "edit_same")
    same(edit("", "x"), "bad_request")
    same(edit("a", "x"), "edit_ambiguous")
    check("2 times" in text_of(c.call("edit_file", path="f",
                                      old_string="a", new_string="x")), "2")
    has("a.b\na*b\r\n$1 \\1 & end")
    # letters of regular expressions mean themselves, on both sides
    same(edit("a.b", "$1 \\1 & a*b\\n"), 1)
    has("$1 \\1 & a*b\\n\na*b\r\n$1 \\1 & end")
    same(edit(".*", "x"), "edit_not_found")
    # line ends stay as they are, a CR is one
    same(edit("a*b\n", "x"), "edit_not_found")
    same(edit("a*b\r\n", "c\r\n"), 1)
    has("$1 \\1 & a*b\\n\nc\r\n$1 \\1 & end")
    same(edit("end", "END"), 1)
    has("$1 \\1 & a*b\\n\nc\r\n$1 \\1 & END")
    # all of them, not overlapping, from the left
    put("aaaaa")
    same(edit("aa", "b"), "edit_ambiguous")
    same(edit("aa", "b", replace_all=True), 2)
    has("bba")
    same(edit("b", "", replace_all=True), 2)
    has("a")
    same(edit("a", "aaa", replace_all=True), 1)
    has("aaa")
    put("ü\u2028x\0y")
    same(edit("\u2028x", "\U0001f923"), 1)
    same(c.done("search_files", path="f")["shown"], 1)
    # large, in a thread; and beyond what a file may have
    put("x" * 3000000 + "needle" + "y" * 3000000)
    same(edit("needle", "thread"), 1)
    same(edit("needle", "thread"), "edit_not_found")
    same(edit("x" * 1000, "z" * 10000, replace_all=True), "file_too_large")
    same(edit("thread", "needle"), 1)
    # somebody else was quicker
    put("one two")
    c.done("run_command", command="mock: on=FILE_WRITE,"
           "error%3Dprecondition_failed")
    same(edit("one", "1"), "precondition_failed")
    c.done("run_command", command="mock: on=FILE_WRITE,echo")
    c.done("run_command", command="mock: on=FILE_WRITE,")
    has("one two")
    same(edit("one", "1"), 1)
    has("1 two")


@test("limits/edit where files may have 4 GiB")
def edit_large():
    """What would have to be in memory as a whole has a bound of its own."""
    same(g.request("PUT", "/large/v1/conversations/e/fs/big",
                   b"old" + bytes(64 << 20)).status, 201)
    c = Client(g, path="/large/v1/conversations/e/mcp")
    r = c.result("tools/call", {"name": "edit_file", "arguments": {
        "path": "big", "old_string": "old", "new_string": "new"}})
    check(r["isError"] and r["_meta"]["code"] == "file_too_large", r)
    check(str(64 << 20) + " bytes" in text_of(r), "which bound", r)
    same(g.request("DELETE", "/large/v1/conversations/e/fs/big").status, 204)


@test("mcp/edit-says-which-version")
def edit_matches():
    c = fresh()
    etag = c.done("save_file", path="f", content="one")["etag"]
    same(c.done("read_file", path="f")["etag"], etag)
    c.done("run_command", command="mock: on=FILE_WRITE,status%3D201%20"
           "without%3DX")
    c.done("run_command", command="mock: on=FILE_WRITE,")
    # two at once: the one that comes second finds another file, or reads it
    results = []

    def one(text):
        results.append(c.call("edit_file", path="f", old_string="one",
                              new_string=text + "one"))

    threads = [threading.Thread(target=one, args=(t,)) for t in "abcd"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    good = [r for r in results if not r["isError"]]
    bad = [r["_meta"]["code"] for r in results if r["isError"]]
    check(good and set(bad) <= {"precondition_failed"}, "as promised", bad)
    same(len(c.done("read_file", path="f")["text"]), 3 + len(good))


@test("mcp/files")
def files():
    c = fresh()
    tools = c.tools()
    r = c.call("save_file", path="a b/ü.txt", content="x\0y")
    holds(tools["save_file"], r)
    same((r["structuredContent"]["path"], r["structuredContent"]["created"],
          r["structuredContent"]["size"]),
         ("/home/sandbox/a b/ü.txt", True, 3))
    r = c.call("save_file", path="/home/sandbox/a b/ü.txt", content="")
    same((r["structuredContent"]["created"], r["structuredContent"]["size"]),
         (False, 0))
    r = c.call("upload_file", path="/tmp/b", contentBase64="AP8=")
    holds(tools["upload_file"], r)
    same((r["structuredContent"]["path"], r["structuredContent"]["size"]),
         ("/tmp/b", 2))
    same(c.refused("save_file", path="a b", content="x"), "is_a_directory")
    same(c.refused("save_file", path="big", content="x" * 16777217),
         "file_too_large")
    r = c.call("save_file", path="big", content="x" * 16777216)
    same(r["structuredContent"]["size"], 16777216)
    r = c.call("delete_file", path="/tmp/b")
    holds(tools["delete_file"], r)
    same(r["structuredContent"], {"path": "/tmp/b", "type": "file"})
    same(c.refused("delete_file", path="/tmp/b"), "file_not_found")
    same(c.refused("delete_file", path="a b"), "not_empty")
    same(c.done("delete_file", path="a b", recursive=True)["type"],
         "directory")
    same(fresh().refused("delete_file", path="x"), "no_sandbox")
    # refused while its bytes are on their way
    c.done("run_command", command="mock: on=FILE_WRITE,error%3Ddisk_full")
    same(c.refused("save_file", path="x", content="y" * 1000000),
         "disk_full")


@test("mcp/download-file")
def download_file():
    c = fresh()
    tool = c.tools()["download_file"]
    name = c.path.split("/")[2]
    c.done("save_file", path="out/отчёт \"1\".csv", content="a,b\n")
    r = c.call("download_file", path="out/отчёт \"1\".csv")
    holds(tool, r)
    s = r["structuredContent"]
    same((s["name"], s["size"], s["created"]),
         ("отчёт \"1\".csv", 4, True))
    check(s["link"]["url"].startswith("http://127.0.0.1:%d/sandbox/dl/"
                                      % g.port), "whole", s)
    got = g.request("GET", s["link"]["url"].partition(str(g.port))[2],
                    token=None)
    same((got.status, got.body), (200, b"a,b\n"))
    same([f["name"] for f in g.request(
        "GET", "v1/conversations/%s/files" % name).json["files"]],
        ["отчёт \"1\".csv"])
    same(c.refused("download_file", path="out/отчёт \"1\".csv"),
         "file_exists")
    same(c.done("download_file", path="out/отчёт \"1\".csv",
                overwrite=True)["created"], False)
    same(c.done("download_file", path="out/отчёт \"1\".csv",
                name="x.csv")["name"], "x.csv")
    same(c.refused("download_file", path="out/отчёт \"1\".csv",
                   name="a/b"), "bad_name")
    same(c.refused("download_file", path="out"), "is_a_directory")
    same(c.refused("download_file", path="none"), "file_not_found")
    big = "z" * 5000000
    c.done("save_file", path="big", content=big)
    same(c.done("download_file", path="big")["size"], 5000000)
    same(g.request("GET", "v1/conversations/%s/files/big" % name).body,
         big.encode())


@test("mcp/search-files")
def search_files():
    c = fresh()
    tool = c.tools()["search_files"]
    same(c.refused("search_files", pattern="x"), "no_sandbox")
    c.done("save_file", path="a/x.py", content="def f():\n  return 1\n")
    c.done("save_file", path="b.txt", content="Def\nreturn\xa0\u2028\n")
    r = c.call("search_files", pattern="def|return")
    holds(tool, r)
    same([(m["path"], m["line"]) for m in r["structuredContent"]["matches"]],
         [("/home/sandbox/a/x.py", 1), ("/home/sandbox/a/x.py", 2),
          ("/home/sandbox/b.txt", 2)])
    check("/home/sandbox/a/x.py:2:  return 1\n" in text_of(r), "text", r)
    same(c.done("search_files", pattern="DEF", ignoreCase=True)["shown"], 2)
    same(c.done("search_files", pattern="f()", literal=True)["shown"], 1)
    same(c.done("search_files", pattern="return", glob=["*.py"])["shown"], 1)
    same(c.done("search_files", pattern="return", path="a")["shown"], 1)
    r = c.call("search_files", path="b.txt", pattern="Def")
    same(r["structuredContent"]["matches"][0]["path"],
         "/home/sandbox/b.txt")
    r = c.call("search_files", pattern="nowhere")
    holds(tool, r)
    check("nothing found" in text_of(r), "told", r)
    r = c.call("search_files")
    holds(tool, r)
    same([(m["path"], m["line"], m["type"], m["size"])
          for m in r["structuredContent"]["matches"]],
         [("/home/sandbox/a/x.py", None, "file", 20),
          ("/home/sandbox/b.txt", None, "file", 16)])
    r = c.call("search_files", pattern="(")
    same((r["isError"], r["_meta"]["code"]), (True, "bad_pattern"))
    check(len(text_of(r)) > 20, "the reason", r)
    same(c.refused("search_files", pattern="x", path="none"),
         "file_not_found")
    same(c.refused("search_files", pattern="x" * 4097), "bad_pattern")
    # 300 files: as many as wanted, and how many more
    c.done("run_command", command="mock: stdout=x")
    for n in range(300):
        c.done("save_file", path="many/%03d" % n, content="hit")
    r = c.call("search_files", path="many")
    holds(tool, r)
    s = r["structuredContent"]
    same((s["shown"], s["leftOut"], s["more"]), (100, 200, False))
    check("100 shown, 200 more" in text_of(r), "told", text_of(r)[-200:])
    s = c.done("search_files", path="many", pattern="hit", limit=300)
    same((s["shown"], s["leftOut"]), (300, 0))
    c.done("save_file", path="lines", content="hit\n" * 1500)
    r = c.call("search_files", path="lines", pattern="hit", limit=10)
    same((r["structuredContent"]["shown"], r["structuredContent"]["leftOut"],
          r["structuredContent"]["more"]), (10, 990, True))
    check("at least 990 more" in text_of(r), "told", r)
    # bounded in bytes, too
    c.done("save_file", path="wide", content=("w" * 500 + "\n") * 400)
    r = c.call("search_files", path="wide", pattern="w", limit=1000)
    check(len(text_of(r)) < 70000 and r["structuredContent"]["leftOut"],
          "bounded", len(text_of(r)))


@test("mcp/cancelled")
def cancelled():
    for revision, number, others in ((LEGACY, 7, ("7", 8, -7)),
                                     (LEGACY, "7", (7, "8", "", "x" * 300)),
                                     (LEGACY, "a\0\u2028", ("a",))):
        c = fresh(revision)
        answer = []
        t = threading.Thread(target=lambda: answer.append(c.call(
            "run_command", command="mock: keep sleep=140", number=number)))
        t.start()
        name = c.path.split("/")[2]
        wait_for(lambda name=name: g.status(name).get("commands") == 1, 10,
                 "the command")
        time.sleep(0.1)
        # others, and what is no id, do nothing
        for other in others + (None, 1.5, True, [], {}):
            r = c.notify("notifications/cancelled", {"requestId": other})
            same((r.status, r.body), (202, b""), other)
        for params in (None, {}, {"reason": "x"}):
            same(c.notify("notifications/cancelled", params).status, 202)
        # in another conversation it is another request
        d = fresh(revision)
        same(d.notify("notifications/cancelled",
                      {"requestId": number}).status, 202)
        check(t.is_alive() and not answer, "it runs", answer)
        r = c.notify("notifications/cancelled", {
            "requestId": number, "reason": "User asked"})
        same((r.status, r.body), (202, b""))
        t.join(150)
        same(answer[0]["structuredContent"]["outcome"], "cancelled")
        # after its end
        same(c.notify("notifications/cancelled",
                      {"requestId": number}).status, 202)
    # without a conversation there is nothing to be cancelled
    same(Client(g).notify("notifications/cancelled",
                          {"requestId": 1}).status, 202)


@test("mcp/label-is-not-in-the-digest")
def label():
    c = fresh()
    first = c.call("run_command", command="mock: keep stdout=once",
                   commandId="once", number=1)
    again = c.call("run_command", command="mock: keep stdout=once",
                   commandId="once", number="another")
    same(first["structuredContent"], again["structuredContent"])
    same(c.refused("run_command", command="mock: keep stdout=x",
                   commandId="once"), "command_id_reused")
    sent = json.loads(c.done("run_command", command="what")["stdout"])
    same(len(sent["LABEL"]), 32)
    # what is in the background was answered: a later id must not end it
    answer = c.call("run_command", command="mock: keep sleep=2 stdout=x",
                    background=True, commandId="bg", number=99)
    same(answer["structuredContent"]["state"], "running")
    same(c.notify("notifications/cancelled", {"requestId": 99}).status, 202)
    same(wait_for(lambda: c.done(
        "run_command", command="mock: keep sleep=2 stdout=x",
        background=True, commandId="bg").get("outcome"), 20, "its end"),
        "exit")


def counted(name):
    """A line of the metrics that begins like that; 0 if there is none."""
    text = g.request("GET", "/metrics").body.decode()
    found = re.search("^%s.* ([0-9]+)$" % re.escape(name), text, re.M)
    return int(found.group(1)) if found else 0


def lost():
    return counted('sandbox_commands_total{outcome="runner_lost"')


class Quiet(threading.Thread):
    """A call whose agent falls silent: its answer takes 15 s, and tests run
    meanwhile."""

    def __init__(self):
        super().__init__(daemon=True)
        self.answer = None
        self.start()

    def run(self):
        self.answer = Client(g, "quiet").request("tools/call", {
            "name": "run_command",
            "arguments": {"command": "mock: head ping stdout=half await"}})


@test("mcp/long-calls-show-life")
def long_calls():
    """After a PING of the agent the answer begins, with blanks before it."""
    global QUIET
    c = fresh()
    tool = c.tools()["run_command"]

    def body(steps):
        r = c.request("tools/call", {"name": "run_command", "arguments": {
            "command": "mock: " + steps}})
        same((r.status, r.headers["Content-Type"]), (200,
                                                     "application/json"))
        holds(tool, r.json["result"])
        return r

    r = body("head ping stdout=quick")
    same(r.json["result"]["structuredContent"]["stdout"], "quick")
    # its first bytes are there while it runs
    connection = g.connect()
    message = json.dumps(c.message("tools/call", {
        "name": "run_command", "arguments": {
            "command": "mock: head ping wait=late ping=3 taken stdout=late "
                       "exit_code=3"}}))
    connection.request("POST", "/sandbox/" + c.path, message,
                       g.headers("", message, None))
    r = connection.getresponse()
    same((r.status, r.headers["Content-Type"],
          r.headers["Transfer-Encoding"]),
         (200, "application/json", "chunked"))
    fresh().done("run_command", command="mock: go=late")
    text = r.read()
    check(text.startswith((b"\n{", b"\n\n")), "blanks", text[:80])
    result = json.loads(text)["result"]
    holds(tool, result)
    same(result["structuredContent"]["stdout"], "late")
    connection.close()
    # before it is accepted, refusals have their answer as always
    refusals = counted('sandbox_refusals_total{code="at_capacity"')
    unseen = counted("sandbox_commands_unseen_total")
    same(c.refused("run_command", command="mock: ping sleep=0.1 ping "
                   "error=at_capacity"), "at_capacity")
    same(counted('sandbox_refusals_total{code="at_capacity"'), refusals + 1)
    same(counted("sandbox_commands_unseen_total"), unseen,
         "it was told, and it is no command")
    # its end comes too early, or is none; each counts as one that was lost
    before = lost()
    for end in ("close", "raw=%00%00%00%01%63x", "cut=7 result"):
        r = body("head ping sleep=0.2 ping sleep=0.1 stdout=half " + end)
        same(r.json["result"]["structuredContent"]["outcome"], "runner_lost",
             end)
    same(lost(), before + 3)
    # another one that is lost, while all that follows goes on
    QUIET = Quiet()
    r = body("head ping sleep=0.2 fill=stdout,x,500000 fill=stderr,y,500000")
    check(r.json["result"]["structuredContent"]["truncated"], "large", r)
    # and a client that is gone by then cancels, where that is how to
    d = fresh(MODERN)
    name = d.path.split("/")[2]
    message = json.dumps(d.message("tools/call", {
        "name": "run_command", "arguments": {
            "command": "mock: head ping await"}}))
    connection = g.connect()
    connection.request("POST", "/sandbox/" + d.path, message, g.headers(
        "", message, {"MCP-Protocol-Version": MODERN,
                      "Mcp-Method": "tools/call",
                      "Mcp-Name": "run_command"}))
    connection.getresponse()
    connection.close()
    wait_for(lambda: "cancel-frame" in json.loads(Client(g, name).done(
        "run_command", command="mock: seen")["stdout"]), 10, "the frame")
    g.expected += ["broke the protocol"]


@test("mcp/skills-that-there-are-not")
def no_skills():
    c = fresh()
    tool = c.tools()["load_skill"]
    r = c.call("load_skill")
    holds(tool, r)
    same(r["structuredContent"], {"skills": []})
    check("no skills" in text_of(r), "told", r)
    same(c.refused("load_skill", name="none"), "skill_not_found")
    same(c.refused("load_skill", name=".."), "bad_name")


@test("mcp/hang-ups", 180)
def hang_ups():
    """Clients that are gone at any moment of any tool leave nothing open."""
    c = fresh()
    c.done("save_file", path="f", content="old\n" + "x" * 60000)
    c.done("save_file", path="d/g", content="old\n")
    c.done("run_command", command="mock: slow=0.01")
    calls = [("read_file", {"path": "f"}),
             ("edit_file", {"path": "f", "old_string": "old",
                            "new_string": "old"[::-1] + "old"}),
             ("save_file", {"path": "h", "content": "y" * 300000}),
             ("search_files", {"path": "d", "pattern": "old"}),
             ("download_file", {"path": "f", "overwrite": True}),
             ("delete_file", {"path": "none"}),
             ("run_command", {"command": "mock: sleep=0.05 stdout=x",
                              "target": {"id": "x"}}),
             ("run_command", {"command": "mock: sleep=0.05 stdout=x"})]
    worker = g.workers()[0]

    def descriptors():
        return len(os.listdir("/proc/%d/fd" % worker))

    before = descriptors()
    for revision in (LEGACY, MODERN):
        d = Client(g, c.path.split("/")[2], revision)
        for tool, arguments in calls:
            body = json.dumps(d.message("tools/call", {
                "name": tool, "arguments": arguments})).encode()
            headers = {"MCP-Protocol-Version": revision}
            if revision == MODERN:
                headers.update({"Mcp-Method": "tools/call",
                                "Mcp-Name": tool})
            for wait in (0, 0.01, 0.02, 0.04, 0.07, 0.1):
                connection = g.connect()
                connection.request("POST", "/sandbox/" + d.path, body,
                                   g.headers("", body, headers))
                time.sleep(wait)
                connection.close()
    wait_for(lambda: descriptors() <= before, 30, "no descriptor left open")
    same(g.workers(), [worker])
    c.done("run_command", command="mock: slow=0")
    check("old" in c.done("read_file", path="f", limit=1)["text"], "whole")
    check(c.done("run_command", command="mock: stdout=x")["stdout"] == "x",
          "as before")
    g.expected += ["broke the protocol"]


@test("mcp/silent-agent")
def silent():
    """What it has said is told, in an answer that is whole."""
    quiet = QUIET or Quiet()
    quiet.join(150)
    told = quiet.answer.json["result"]["structuredContent"]
    same((told["outcome"], told["stdout"]), ("runner_lost", "half"))
    check("neither a result nor pings" in g.error_log, "the log says why")


@test("mcp/conversation")
def conversation():
    c = Client(g)
    same(c.refused("run_command", command="true"), "conversation_needed")
    r = c.call("run_command", command="true")
    check("Sandbox-Conversation" in text_of(r) and "v1/conversations"
          in text_of(r), "what to do", r)
    check("conversation" not in c.tools()["run_command"]["inputSchema"]
          ["properties"], "no argument")
    same(c.refused("run_command", command="true", conversation="x"),
         "unknown_field")
    c.headers = {"Sandbox-Conversation": "by-header"}
    c.done("run_command", command="mock: stdout=x")
    same(g.status("by-header")["commands"], 1)
    for bad in ("", "..", "a/b", "x" * 129):
        c.headers = {"Sandbox-Conversation": bad}
        same(c.refused("run_command", command="true"), "conversation_needed")
    # path and header must agree
    c = Client(g, "by-path", headers={"Sandbox-Conversation": "by-header"})
    same(c.refused("run_command", command="true"), "not_found")
    c.headers = {"Sandbox-Conversation": "by-path"}
    c.done("run_command", command="mock: stdout=x")

    # a claim goes before all
    c = Client(g, path="/claim/mcp", token=token(chat="by-claim"))
    c.done("run_command", command="mock: stdout=x")
    same(g.request("GET", "/claim/v1/conversations/by-claim",
                   token=c.token).json["commands"], 1)
    c.headers = {"Sandbox-Conversation": "by-claim"}
    c.done("run_command", command="mock: stdout=x")
    c.headers = {"Sandbox-Conversation": "another"}
    same(c.refused("run_command", command="true"), "not_found")
    c = Client(g, path="/claim/v1/conversations/another/mcp",
               token=token(chat="by-claim"))
    same(c.request("tools/list").status, 404)

    # arguments, only where the operator says so
    c = Client(g, path="/argument/mcp")
    schema = c.tools()["run_command"]["inputSchema"]
    check("conversation" in schema["required"], "it is wanted", schema)
    same(c.refused("run_command", command="true"), "bad_request")
    for bad in ("", "..", "a/b", "x" * 129, 1, None):
        same(c.refused("run_command", command="true", conversation=bad),
             "bad_request", bad)
        check(wrong(schema, {"command": "true", "conversation": bad}),
              "the schema knows", bad)
    c.done("run_command", command="mock: stdout=x", conversation="by.arg:1")
    same(g.request("GET", "/argument/v1/conversations/by.arg:1")
         .json["commands"], 1)
    # an injected prompt can't leave what was configured
    c.headers = {"Sandbox-Conversation": "fixed"}
    check("conversation" not in c.tools()["run_command"]["inputSchema"]
          ["properties"], "no argument")
    same(c.refused("run_command", command="true", conversation="by.arg:1"),
         "unknown_field")


@test("mcp/origin")
def origin():
    def status(path="mcp", **headers):
        c = Client(g, path=path, headers={
            k.replace("_", "-"): v for k, v in headers.items()})
        r = c.request("tools/list")
        if r.status == 403:
            same(r.json["code"], "foreign_origin")
        return r.status

    port = g.port
    same(status(), 200)
    for host in ("localhost", "localhost:%d" % port, "LOCALHOST",
                 "127.0.0.1", "127.0.0.1:%d" % port, "[::1]:%d" % port,
                 "127.0.0.2", "app.localhost", "sandbox.example.com",
                 "sandbox.example.com:443", "x.dev.example.com"):
        same(status(Host=host), 200, host)
    for host in ("evil.example", "evil.example:%d" % port, "10.0.0.1",
                 "127.0.0.1.evil.example", "localhost.evil.example",
                 "dev.example.com", "sandbox.example.com.evil.example",
                 "evillocalhost"):
        same(status(Host=host), 403, host)
    own = "127.0.0.1:%d" % port
    for page in ("http://" + own, "http://localhost:%d" % port,
                 "http://localhost:3000", "http://127.0.0.1",
                 "https://localhost", "http://[::1]:5173"):
        same(status(Host=own, Origin=page), 200, page)
    same(status(Host="sandbox.example.com",
                Origin="https://sandbox.example.com"), 200)
    for page in ("https://evil.example", "null", "http://127.0.0.1.evil.net",
                 "http://localhost.evil.example:80", "", "file://",
                 "http://localhost@evil.example"):
        same(status(Host=own, Origin=page), 403, page)
    # a page of this machine is none of a server that is called by its name
    same(status(Host="sandbox.example.com", Origin="http://localhost:3000"),
         403)
    # nothing runs
    c = Client(g, "foreign", headers={"Origin": "https://evil.example"})
    same(c.request("tools/call", {"name": "run_command", "arguments": {
        "command": "true"}}).status, 403)
    same(g.status("foreign")["state"], "none")

    path = "/argument/mcp"
    same(status(path, Origin="https://chat.example.org"), 200)
    same(status(path, Origin="HTTPS://Chat.example.org"), 200)
    same(status(path, Origin="http://lan:3000", Host="lan"), 200)
    same(status(path, Host="lan:8080"), 200)
    for page in ("https://chat.example.org:8443", "http://chat.example.org",
                 "http://lan", "https://chat.example.org.evil.example"):
        same(status(path, Origin=page), 403, page)


@test("mcp/browsers-are-told")
def browsers():
    def options(path, **headers):
        return g.request("OPTIONS", path, token=None, headers={
            k.replace("_", "-"): v for k, v in headers.items()})

    asks = {"Access_Control_Request_Method": "POST",
            "Access_Control_Request_Headers": "authorization,content-type"}
    page = "https://chat.example.org"
    for path in ("/argument/mcp", "/argument/v1/conversations/x/mcp"):
        r = options(path, Origin=page, **asks)
        same((r.status, r.body), (204, b""))
        same(r.headers["Access-Control-Allow-Origin"], page)
        same(r.headers["Access-Control-Allow-Methods"], "POST")
        same(r.headers["Vary"], "Origin")
        allowed = r.headers["Access-Control-Allow-Headers"].lower()
        for name in ("authorization", "content-type", "mcp-protocol-version",
                     "mcp-method", "mcp-name", "sandbox-conversation"):
            check(name in allowed, name, allowed)
        r = options(path, Origin="https://evil.example", **asks)
        same((r.status, r.json["code"]), (403, "foreign_origin"))
        check("Access-Control-Allow-Origin" not in r.headers, "not shared")
    c = Client(g, path="/argument/mcp", headers={"Origin": page})
    r = c.request("tools/list")
    same(r.headers["Access-Control-Allow-Origin"], page)
    # through an upstream, too, and with a tool that fails
    c.headers["Sandbox-Conversation"] = "shared"
    for command in ("mock: stdout=x", "mock: error=at_capacity",
                    "mock: close"):
        r = c.request("tools/call", {"name": "run_command", "arguments": {
            "command": command}})
        same((r.status, r.headers["Access-Control-Allow-Origin"]),
             (200, page), command)
    c.headers["Origin"] = "http://127.0.0.1:%d" % g.port
    check("Access-Control-Allow-Origin"
          not in c.request("tools/list").headers, "the server's own page")
    # the other calls are not for pages of elsewhere
    same(options("v1/limits", Origin=page, **asks).status, 401)


@test("mcp/origins-are-configured")
def origins_conf():
    for value, word in (("chat.example.com", "no scheme"),
                        ("https://", "no host"),
                        ("https://a/b", "more than"),
                        ("https://a/", "more than"),
                        ("*", "no scheme"), ("https://*", "more than"),
                        ("https://a:x", "no number"),
                        ("https://a:", "no number"),
                        ("https://a https://A", "twice")):
        found = refused("sandbox_mcp_origins %s;" % value)
        check(word in found and "sandbox_mcp_origins" in found, "told", value,
              found)
    found = refused("sandbox_mcp_conversation yes;")
    check('"header" or "argument"' in found, "told", found)
    for name, value in (("sandbox_mcp_origins", "https://a"),
                        ("sandbox_mcp_conversation", "header")):
        check("duplicate" in refused("%s %s; %s %s;" % (name, value, name,
                                                        value)), name)


def refused(text):
    import subprocess
    from gateway import MODULE, NGINX
    path = g.write("try.conf", """
        load_module %s; events {} error_log stderr; pid %s/try.pid;
        http {
            sandbox_runner unix:%s; sandbox_runner_key %s/runner.key;
            access_log off;
            server { location /s/ { sandbox on;
                sandbox_jwt_secret_file %s/jwt.key; %s } }
        }
    """ % (MODULE, g.dir, g.socket, g.dir, g.dir, text))
    p = subprocess.run([NGINX, "-t", "-c", path], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, check=False)
    check(p.returncode != 0, "refused", text)
    return p.stdout.decode()


@test("mcp/advertised-means-usable")
def advertised():
    # a reader's token can't use any tool, and is told so at once
    reader = token(permissions=["files:read"])
    r = Client(g, "x", token=reader).request("tools/list")
    same((r.status, r.json["code"]), (403, "insufficient_scope"))
    r = Client(g, "x", token=token(permissions=[])).request("initialize", {
        "protocolVersion": LEGACY})
    same((r.status, r.json["code"]), (403, "insufficient_scope"))
    # nor is what this server can't do
    bare = Client(g, path="/bare/v1/conversations/x/mcp")
    tools = set(bare.tools())
    same(set(fresh().tools()) - tools, {"download_file", "load_skill"})
    same(bare.error("tools/call", {"name": "download_file", "arguments": {
        "path": "x"}})["code"], PARAMS)
    bare.done("save_file", path="x", content="one")
    same(bare.done("edit_file", path="x", old_string="one",
                   new_string="two")["replacements"], 1)
    same(bare.done("run_command", command="mock: stdout=x", target={
        "id": bare.done("run_command", command="mock: stdout=y")
        ["sandboxId"]})["stdout"], "x")


@test("mcp/get-and-delete")
def other_methods():
    for path in ("mcp", "v1/conversations/x/mcp"):
        for method, headers in (("GET", {}),
                                ("GET", {"Accept": "text/event-stream"}),
                                ("DELETE", {"Mcp-Session-Id": "x"}),
                                ("DELETE", {}), ("PUT", {}), ("HEAD", {})):
            r = g.request(method, path, headers=headers)
            same((r.status, r.headers["Allow"]), (405, "POST"), method)


@test("mcp/sse-dropped")
def dropped():
    """Not a cancel in the revisions with a handshake; in 2026-07-28 it is how
    a client cancels, unless it named the command."""
    for revision, named, seen in ((LEGACY, False, "hang-up"),
                                  (LEGACY, True, "hang-up"),
                                  (MODERN, False, "cancel-frame"),
                                  (MODERN, True, "hang-up")):
        c = fresh(revision)
        name = c.path.split("/")[2]
        arguments = {"command": "mock: keep wait=%s stdout=done" % name}
        if named:
            arguments["commandId"] = "mine"
        message = json.dumps(c.message("tools/call", {
            "name": "run_command", "arguments": arguments}))
        connection = g.connect()
        headers = {"MCP-Protocol-Version": revision}
        if revision == MODERN:
            headers.update({"Mcp-Method": "tools/call",
                            "Mcp-Name": "run_command"})
        connection.request("POST", "/sandbox/" + c.path, message,
                           g.headers("", message, headers))
        wait_for(lambda name=name: g.status(name).get("commands") == 1, 10,
                 "the command")
        time.sleep(0.1)
        connection.close()
        looker = Client(g, name)
        wait_for(lambda looker=looker: seen in json.loads(looker.done(
            "run_command", command="mock: seen")["stdout"]), 10, seen)
        looker.done("run_command", command="mock: go=" + name)
        if named:
            r = c.call("run_command", **arguments)
            same(r["structuredContent"]["stdout"], "done")


def mutated(random, value, depth=0):
    """A JSON value that is another one in some place."""
    if random.random() < 0.12:
        return random.choice([
            None, True, False, 0, -1, 1.5, 1e308, 2 ** 53, "", "\0", "x" * 300,
            "\U0001f923", "\u2028", [], {}, [[[[]]]], {"": {}}, "tools/call",
            "run_command", "read_file", "../..", ["*"] * 20, {"id": "x"}])
    if isinstance(value, dict):
        out = {}
        for name, item in value.items():
            if random.random() < 0.05:
                continue
            if random.random() < 0.05:
                name = random.choice(["", "path", "x\u00fc", "command", "id",
                                      "method", "target", name * 9])
            out[name] = mutated(random, item, depth + 1)
        return out
    if isinstance(value, list):
        return [mutated(random, item, depth + 1) for item in value]
    return value


@test("mcp/by-chance", 180)
def by_chance():
    """Whatever is sent, what comes back is HTTP with JSON, or nothing."""
    import random
    seed = int(os.environ.get("SANDBOX_TEST_SEED") or 1)
    print("# SANDBOX_TEST_SEED=%d" % seed)
    random = random.Random(seed)
    c, m = fresh(), fresh(MODERN)
    calls = [("run_command", {"command": "mock: stdout=x", "cwd": "/tmp",
                              "timeoutSeconds": 5, "env": {"A": "b"},
                              "stdin": "x", "background": False,
                              "fresh": False, "target": {"id": ""}}),
             ("read_file", {"path": "f", "offset": 1, "limit": 5}),
             ("save_file", {"path": "f", "content": "one\n"}),
             ("upload_file", {"path": "f", "contentBase64": "YQ=="}),
             ("edit_file", {"path": "f", "old_string": "o",
                            "new_string": "p", "replace_all": True}),
             ("search_files", {"pattern": "o", "path": ".", "glob": ["*"],
                               "literal": True, "limit": 3}),
             ("delete_file", {"path": "f", "recursive": True}),
             ("download_file", {"path": "f", "overwrite": True}),
             ("load_skill", {})]
    codes = {}
    connection = g.connect()
    for n in range(int(os.environ.get("SANDBOX_TEST_ROUNDS") or 600)):
        client = random.choice((c, m))
        name, arguments = random.choice(calls)
        message = mutated(random, client.message(
            random.choice(["tools/call"] * 9 + ["tools/list", "initialize",
                                                "notifications/cancelled"]),
            {"name": name, "arguments": arguments, "requestId": n}))
        text = json.dumps(message)
        if random.random() < 0.1:
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice(["", "\0", "{", "]", '"', "9"]) \
                + text[at + random.randrange(3):]
        headers = {"MCP-Protocol-Version": client.revision}
        if client is m:
            headers.update({"Mcp-Method": "tools/call", "Mcp-Name": name})
        r = g.request("POST", client.path, text, headers=headers,
                      connection=connection)
        codes[r.status] = codes.get(r.status, 0) + 1
        if r.status == 202:
            same(r.body, b"", text)
            continue
        check(r.status in (200, 400, 404, 413), "a status", r, text)
        answer = json.loads(r.body.decode())
        if r.headers["Content-Type"] == "application/json":
            same(answer["jsonrpc"], "2.0")
            check(("result" in answer) != ("error" in answer), "one of them",
                  text, r)
            if "id" in answer:
                sent = json.loads(text)["id"]
                same((answer["id"], type(answer["id"])), (sent, type(sent)),
                     text)
    connection.close()
    check(codes.get(200) and codes.get(400), "of all kinds", codes)
    print("#   %r" % codes)


@test("mcp/runner-down", 120)
def runner_down():
    c = fresh()
    g.kill_runner()
    try:
        check("run_command" in c.tools(), "listed")
        r = c.call("run_command", command="true")
        same((r["isError"], r["_meta"]["code"]),
             (True, "runner_unreachable"))
        check("nothing was started" in text_of(r), "the reason", r)
        same(c.notify("notifications/cancelled",
                      {"requestId": 1}).status, 202)
    finally:
        g.start_runner()
        g.wait_ready()


main(start, stop)
