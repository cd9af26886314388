"""An OpenAPI 3.1 document as tests need it: whether it is one, which operation
a request is, and whether an answer is what it says.  Of JSON Schema what the
document uses; a keyword that is not known here is an error, so nothing in it
goes unchecked."""

import json
import os
import re

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "../../src/module/openapi.json")
METHODS = ("get", "head", "put", "post", "delete", "options")
ANNOTATIONS = {"description", "default", "contentEncoding"}
TYPES = {"string": str, "object": dict, "array": list, "boolean": bool,
         "null": type(None), "integer": int}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Description:
    def __init__(self, doc):
        self.doc = doc
        self.templates = []
        for template in doc["paths"]:
            pattern = re.escape(template).replace(r"\{path\}", ".*")
            pattern = re.sub(r"\\\{[a-zA-Z]+\\\}", "[^/]+", pattern)
            self.templates.append((re.compile(pattern + r"\Z", re.S), template))
        # what has most of it spelt out goes first
        self.templates.sort(key=lambda t: -len(re.sub("{.*?}", "", t[1])))

    def find(self, reference):
        at = self.doc
        assert reference.startswith("#/"), reference
        for part in reference[2:].split("/"):
            at = at[part.replace("~1", "/").replace("~0", "~")]
        return at

    def resolve(self, thing):
        while "$ref" in thing:
            thing = self.find(thing["$ref"])
        return thing

    # requests and answers

    def operation(self, method, path):
        """(template, operation or None) of a path below the prefix."""
        path = "/" + path.lstrip("/").partition("?")[0]
        for pattern, template in self.templates:
            if pattern.match(path):
                return template, self.doc["paths"][template].get(
                    method.lower())
        return None, None

    def wrong(self, method, path, status, kind, body):
        """What is wrong with that answer, None if nothing is."""
        template, operation = self.operation(method, path)
        if operation is None:
            return None if status in (400, 401, 403, 404, 405) \
                else "%s %s is not described" % (method, template or path)
        responses = operation["responses"]
        if str(status) not in responses and method != "HEAD" \
                and status != 405:
            return "%s %s: %d is not described" % (method, template, status)
        if method == "HEAD" or status in (204, 304):
            return None if not body else "a body of %d" % status
        content = self.resolve(responses.get(str(status), responses["default"])
                               ).get("content", {})
        kind = (kind or "").partition(";")[0]
        media = content.get(kind, content.get("*/*"))
        if media is None:
            if not body and not content:
                return None
            return "%s %s: %d as %s is not described" % (
                method, template, status, kind)
        schema = media.get("schema")
        if schema is None:
            return None
        texts = body.splitlines() if kind == "application/x-ndjson" \
            else [] if kind == "text/event-stream" else [body]
        for text in texts:
            if text:
                why = self.mismatch(schema, json.loads(text))
                if why:
                    return "%s %s: %d: %s" % (method, template, status, why)
        return None

    # schemas

    def mismatch(self, schema, value, where="$"):
        for keyword, is_ in schema.items():
            if keyword in ANNOTATIONS:
                continue
            why = getattr(self, "is_" + keyword.lstrip("$"))(is_, value,
                                                             where, schema)
            if why:
                return why if why.startswith("$") else "%s %s" % (where, why)
        return None

    def is_ref(self, is_, value, where, _):
        return self.mismatch(self.find(is_), value, where)

    def is_type(self, is_, value, *_):
        for name in [is_] if isinstance(is_, str) else is_:
            if isinstance(value, TYPES[name]) \
                    and not (name == "integer" and isinstance(value, bool)):
                return None
        return "is no %s: %r" % (is_, value)

    def is_enum(self, is_, value, *_):
        return None if value in is_ else "is none of %r: %r" % (is_, value)

    def is_const(self, is_, value, *_):
        return None if value == is_ else "is not %r: %r" % (is_, value)

    def is_pattern(self, is_, value, *_):
        return None if not isinstance(value, str) or re.search(is_, value) \
            else "does not match %s: %r" % (is_, value)

    def is_format(self, is_, value, *_):
        assert is_ == "date-time", is_
        return None if TIME.fullmatch(value) else "is no time: %r" % value

    def is_minimum(self, is_, value, *_):
        return None if not isinstance(value, int) or value >= is_ \
            else "is less than %d" % is_

    def is_maximum(self, is_, value, *_):
        return None if not isinstance(value, int) or value <= is_ \
            else "is more than %d" % is_

    def is_required(self, is_, value, *_):
        if isinstance(value, dict):
            for name in is_:
                if name not in value:
                    return "lacks %s: %r" % (name, value)
        return None

    def is_properties(self, is_, value, where, _):
        if isinstance(value, dict):
            for name, schema in is_.items():
                if name in value:
                    why = self.mismatch(schema, value[name],
                                        where + "." + name)
                    if why:
                        return why
        return None

    def is_additionalProperties(self, is_, value, where, schema):
        if isinstance(value, dict):
            for name in value:
                if name in schema.get("properties", {}):
                    continue
                if is_ is False:
                    return "has %s, which is not described" % name
                why = self.mismatch(is_, value[name], where + "." + name)
                if why:
                    return why
        return None

    def is_items(self, is_, value, where, _):
        if isinstance(value, list):
            for n, item in enumerate(value):
                why = self.mismatch(is_, item, "%s[%d]" % (where, n))
                if why:
                    return why
        return None

    def is_allOf(self, is_, value, where, _):
        for schema in is_:
            why = self.mismatch(schema, value, where)
            if why:
                return why
        return None

    def is_oneOf(self, is_, value, where, _):
        whys = [self.mismatch(s, value, where) for s in is_]
        return None if whys.count(None) == 1 else "is %d of them: %s" % (
            whys.count(None), "; ".join(str(w) for w in whys))

    # the document itself

    def faults(self):
        """What keeps it from being an OpenAPI 3.1 document."""
        doc, out = self.doc, []
        if not re.fullmatch(r"3\.1\.\d+", doc["openapi"]):
            out.append("openapi is %s" % doc["openapi"])
        if not {"title", "version"} <= set(doc["info"]):
            out.append("info lacks title or version")
        used = set()
        out += self.references(doc, used)
        for kind, things in doc["components"].items():
            for name in things:
                if not re.fullmatch("[A-Za-z0-9._-]+", name):
                    out.append("%s is no name of a component" % name)
                if kind != "securitySchemes" \
                        and not re.match(r"Problem\d", name) and not any(
                            u.startswith("#/components/%s/%s" % (kind, name))
                            for u in used):
                    out.append("nothing uses %s %s" % (kind, name))
        for schema in doc["components"]["schemas"].values():
            out += self.schema_faults(schema)
        seen = set()
        for template, item in doc["paths"].items():
            for method, operation in item.items():
                if method == "parameters":
                    continue
                if method not in METHODS:
                    out.append("%s has %s" % (template, method))
                    continue
                where = "%s %s: " % (method, template)
                out += [where + o for o in self.operation_faults(
                    template, item, operation)]
                if operation["operationId"] in seen:
                    out.append(where + "an operationId of two")
                seen.add(operation["operationId"])
        return out

    def references(self, thing, used):
        out = []
        if isinstance(thing, dict):
            for key, value in thing.items():
                if key == "$ref":
                    used.add(value)
                    try:
                        self.find(value)
                    except KeyError:
                        out.append("%s leads nowhere" % value)
                else:
                    out += self.references(value, used)
        elif isinstance(thing, list):
            for value in thing:
                out += self.references(value, used)
        return out

    def operation_faults(self, template, item, operation):
        out = []
        given = [self.resolve(p) for p in item.get("parameters", [])
                 + operation.get("parameters", [])]
        names = [(p["in"], p["name"]) for p in given]
        if len(names) != len(set(names)):
            out.append("a parameter twice")
        for p in given:
            if not {"name", "in", "schema"} <= set(p) \
                    or p["in"] not in ("path", "query", "header") \
                    or (p["in"] == "path") != p.get("required", False) \
                    and (p["in"], p.get("required")) != ("query", True):
                out.append("parameter %r" % p)
            else:
                out += self.schema_faults(p["schema"])
        in_path = {n for where, n in names if where == "path"}
        if in_path != set(re.findall("{(.*?)}", template)):
            out.append("other parameters than its path: %r" % in_path)
        if not set(operation["tags"]) <= {t["name"] for t in
                                          self.doc["tags"]}:
            out.append("a tag that is not described")
        for security in operation.get("security", self.doc["security"]):
            if not set(security) <= set(self.doc["components"]
                                        ["securitySchemes"]):
                out.append("security")
        for status, response in operation["responses"].items():
            response = self.resolve(response)
            if not re.fullmatch(r"[1-5]\d\d|default", status) \
                    or "description" not in response:
                out.append("response %s" % status)
            for media in response.get("content", {}).values():
                out += self.schema_faults(media.get("schema", {}))
        body = self.resolve(operation.get("requestBody", {}))
        for media in body.get("content", {}).values():
            out += self.schema_faults(media.get("schema", {}))
        return out

    def schema_faults(self, schema):
        out = []
        for keyword, value in schema.items():
            if keyword not in ANNOTATIONS \
                    and not hasattr(self, "is_" + keyword.lstrip("$")):
                out.append("keyword %s of a schema" % keyword)
            if keyword == "type":
                for name in [value] if isinstance(value, str) else value:
                    if name not in TYPES:
                        out.append("type %s of a schema" % name)
            nested = list(value.values()) if keyword == "properties" \
                else value if keyword in ("oneOf", "allOf") \
                else [value] if keyword in ("items", "additionalProperties") \
                and value is not False else []
            for inner in nested:
                out += self.schema_faults(inner)
        return out


def load():
    with open(SOURCE, encoding="utf-8") as f:
        return Description(json.load(f))


def check_answer(description, prefix, method, path, response):
    """Raises an AssertionError if the answer is another than described."""
    if not path.startswith("/"):
        path = prefix + path
    early = response.status == 400 and response.body[:6] == b"<html>"
    if path.startswith(prefix) and not early:       # nginx's own, of no path
        why = description.wrong(method, path[len(prefix):], response.status,
                                response.headers.get("Content-Type"),
                                response.body)
        if why:
            raise AssertionError("openapi.json: %s\n%r" % (why, response))
