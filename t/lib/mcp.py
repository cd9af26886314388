"""MCP for tests: a client of both revisions, and as much of JSON Schema as the
tools' schemas use, so that what they promise can be held against what is done.
"""

import json
import re

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"

PARSE, INVALID, NO_METHOD, PARAMS = -32700, -32600, -32601, -32602
HEADERS, VERSION = -32020, -32022


class Client:
    """Messages to one endpoint; each answer is a Response of the gateway."""

    def __init__(self, gateway, conversation=None, revision=LEGACY, token="",
                 headers=None, path=None):
        self.gateway = gateway
        self.revision = revision
        self.token = token
        self.headers = dict(headers or {})
        self.path = path or ("mcp" if conversation is None else
                             "v1/conversations/%s/mcp" % conversation)
        self.number = 0

    def post(self, body, headers=None, **options):
        sent = {"Accept": "application/json, text/event-stream"}
        sent.update(self.headers)
        sent.update(headers or {})
        sent = {k: v for k, v in sent.items() if v is not None}
        return self.gateway.request("POST", self.path, body, self.token,
                                    headers=sent, **options)

    def message(self, method, params=None, number=None):
        out = {"jsonrpc": "2.0", "method": method}
        if number is None:
            self.number += 1
            number = self.number
        if number is not False:
            out["id"] = number
        if params is not None:
            out["params"] = params
        if self.revision == MODERN and number is not False:
            out["params"] = dict(params or {}, _meta={
                META + "protocolVersion": MODERN,
                META + "clientCapabilities": {}})
        return out

    def request(self, method, params=None, number=None, headers=None,
                **options):
        sent = {"MCP-Protocol-Version": self.revision}
        if self.revision == MODERN:
            sent["Mcp-Method"] = method
            if method == "tools/call":
                sent["Mcp-Name"] = params["name"]
        sent.update(headers or {})
        return self.post(self.message(method, params, number), sent,
                         **options)

    def result(self, method, params=None, **options):
        """Of a request that must have one."""
        response = self.request(method, params, **options)
        if response.status != 200 or "result" not in response.json:
            raise AssertionError("%s: %r" % (method, response))
        return response.json["result"]

    def error(self, method, params=None, **options):
        response = self.request(method, params, **options)
        if "error" not in response.json:
            raise AssertionError("%s: %r" % (method, response))
        return response.json["error"]

    def notify(self, method, params=None, **options):
        return self.request(method, params, number=False, **options)

    def tools(self):
        return {t["name"]: t for t in self.result("tools/list")["tools"]}

    def call(self, name, /, timeout=150, number=None, **arguments):
        """A tool's result, whatever it says."""
        return self.result("tools/call", {"name": name,
                                          "arguments": arguments},
                           number=number, timeout=timeout)

    def done(self, name, /, **arguments):
        """structuredContent of a call that must go well."""
        result = self.call(name, **arguments)
        if result.get("isError"):
            raise AssertionError("%s: %s" % (name, text_of(result)))
        return result["structuredContent"]

    def refused(self, name, /, **arguments):
        """The code of a call that must not."""
        result = self.call(name, **arguments)
        if not result.get("isError") or "structuredContent" in result:
            raise AssertionError("%s was not refused: %r" % (name, result))
        return result["_meta"]["code"]


def text_of(result):
    return "".join(c["text"] for c in result["content"]
                   if c["type"] == "text")


TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: not isinstance(v, bool) and (
        isinstance(v, int) or isinstance(v, float) and v == int(v)),
}

KNOWN = {"type", "properties", "required", "additionalProperties", "items",
         "maxItems", "maxProperties", "propertyNames", "pattern", "enum",
         "minimum", "maximum", "description"}


def wrong(schema, value, where="it"):
    """None, or what the schema does not accept."""
    if schema is True:
        return None
    if schema is False:
        return where + " must not be there"
    if set(schema) - KNOWN:
        raise AssertionError("a keyword that is not known here: %r"
                             % (set(schema) - KNOWN))
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(TYPES[k](value) for k in kinds):
        return "%s is no %s" % (where, " or ".join(kinds))
    if "enum" in schema and not any(value is e or value == e and type(value)
                                    is type(e) for e in schema["enum"]):
        return "%s is none of %r" % (where, schema["enum"])
    if isinstance(value, str) and "pattern" in schema:
        # JavaScript's $ is the end, Python's may stand before a last newline
        if not re.search(re.sub(r"\$$", r"\\Z", schema["pattern"]), value):
            return "%s does not match %s" % (where, schema["pattern"])
    if TYPES["integer"](value):
        if value < schema.get("minimum", value):
            return where + " is too small"
        if value > schema.get("maximum", value):
            return where + " is too large"
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            return where + " has too many items"
        for n, item in enumerate(value):
            found = wrong(schema.get("items", True), item,
                          "%s[%d]" % (where, n))
            if found:
                return found
    if isinstance(value, dict):
        return wrong_object(schema, value, where)
    return None


def wrong_object(schema, value, where):
    if len(value) > schema.get("maxProperties", len(value)):
        return where + " has too many members"
    for name in schema.get("required", ()):
        if name not in value:
            return "%s has no %s" % (where, name)
    for name, item in value.items():
        found = wrong(schema.get("propertyNames", True), name,
                      "a name of " + where) \
            or wrong(schema.get("properties", {}).get(
                name, schema.get("additionalProperties", True)), item,
                "%s.%s" % (where, name))
        if found:
            return found
    return None


def holds(tool, result):
    """A result, its schema and the rules of results; raises if not."""
    if not isinstance(result["content"], list) or not result["content"]:
        raise AssertionError("a result without content")
    json.dumps(result, ensure_ascii=False).encode()
    if result["isError"]:
        return
    found = wrong(tool["outputSchema"], result["structuredContent"])
    if found:
        raise AssertionError("%s: %s in %r" % (
            tool["name"], found, result["structuredContent"]))
