#!/usr/bin/env python3
"""What claims decide: who, which tenant, which conversation, what may be done;
wherever they are configured to be.  Groups auth and tenancy."""

import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import SECRET, Gateway                          # noqa: E402
from jose import Key, claims                                 # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
key = Key("HS256", secret=SECRET)
ALL = ("sub", "org", "chat", "exp", "permissions", "iss", "aud")


def location(name, *lines):
    return """
        location /%s/ {
            sandbox on;
            sandbox_realm one;
            sandbox_jwt_secret_file %s/jwt.key;
            %s
        }
    """ % (name, g.dir, " ".join(line + ";" for line in lines))


def start():
    global g
    g = Gateway(runner="mock", workers=1, log_level="info")
    g.options["server"] = "".join((
        location("plain"),
        location("tenant", "sandbox_tenant_claim org"),
        location("url", r'sandbox_tenant_claim "https://example\.com/org"',
                 r'sandbox_permission_claim "https://example\.com/perm"'),
        location("nested", "sandbox_permission_claim realm_access.roles",
                 "sandbox_tenant_claim realm_access.org.id"),
        location("chat", "sandbox_conversation_claim chat"),
        location("chat-path", "sandbox_conversation_claim work.chat"),
        location("full", "sandbox_tenant_claim org",
                 "sandbox_conversation_claim chat",
                 "sandbox_jwt_issuer https://id.example/",
                 "sandbox_jwt_audience one two"),
        location("scope", "sandbox_permission_claim scope"),
        location("several", "sandbox_permission_claim roles a.b scp"),
        location("permission", "sandbox_permission tools:run"),
        location("dollar", "sandbox_permission $http_x_word",
                 "sandbox_jwt_audience $http_x_word"),
        location("read", "sandbox_permission_read sandbox:read"),
        location("leeway", "sandbox_jwt_leeway 30s"),
        location("strict", "sandbox_jwt_leeway 0s"),
        location("quoted", 'sandbox_tenant_claim "a\\\\\\\\b"'),
    ))
    g.start()


def stop():
    g.stop()


def sign(**body):
    return key.token(**body)


def raw(body):
    return key.sign({"alg": "HS256"}, body)


def ask(where, text, path="v1/limits", method="GET", body=None):
    return g.request(method, "/%s/%s" % (where, path), body, text)


def expect(where, text, status, code=None, what="", path="v1/limits"):
    r = ask(where, text, path)
    same(r.status, status, "%s, %s" % (where, what))
    if status >= 400:
        same(r.json["code"], code or {
            401: "invalid_token", 403: "insufficient_scope",
            404: "not_found"}[status], what)
        check(what == "" or "mallory" not in r.body.decode(), what, r)
    return r


def run(where, text, conversation="c"):
    """What the runner was asked, or the status of a refusal."""
    r = ask(where, text, "v1/conversations/%s/commands" % conversation,
            "POST", {"command": "echo"})
    return json.loads(r.json["stdout"]) if r.status == 200 else r.status


def session(where, text, conversation="c"):
    out = run(where, text, conversation)
    check(isinstance(out, dict), "refused:", out)
    return out["preamble"]["session"]


def digest(where, text):
    return run(where, text)["preamble"]["tenant"]


NOT_NAMES = (None, 5, 5.5, True, False, {}, [], ["acme"], {"a": 1}, "",
             "x" * 256, "a\0b", "a\nb", "\x7f", "\x1f")


def full(**more):
    body = claims(org="acme", chat="c", iss="https://id.example/",
                  aud="one")
    body.update(more)
    return body


@test("auth/claims-missing")
def claims_missing():
    """Each in turn: left out, null, of another type; a cause is named, no
    default takes its place."""
    path = "v1/conversations/c"
    expect("full", raw(full()), 200, path=path)
    for name in ALL:
        wrong = {"permissions": 403}.get(name, 401)
        body = full()
        del body[name]
        r = expect("full", raw(body), wrong, what="no " + name, path=path)
        check(len(r.json["detail"]) > 20, "no cause:", r)
        for value in NOT_NAMES:
            # NUL is refused before anybody asks whose claim it is
            expect("full", raw(full(**{name: value})),
                   401 if value == "a\0b" else wrong,
                   what="%s %r" % (name, value), path=path)
    same(len(g.workers()), 1, "workers")


@test("auth/tenant-claim")
def tenant():
    for value in NOT_NAMES:
        expect("tenant", raw(claims(org=value) if value is not None
                             else dict(claims(), org=None)), 401,
               what="org %r" % (value,))
    expect("tenant", sign(), 401, what="no org")
    expect("tenant", sign(tenant="acme"), 401, what="another claim")
    expect("tenant", sign(org="x" * 255), 200)
    expect("tenant", sign(org="\u00e9\U0001f600"), 200)


@test("tenancy/tenants")
def tenants():
    """Same user, same conversation: each tenant has its own; a tenant and
    none are two as well."""
    names = [sign(org=n) for n in ("acme", "umbrella", "ACME", "acme ",
                                   "alice")]
    found = [session("tenant", t) for t in names]
    found.append(session("plain", sign(org="acme")))
    same(len(set(found)), len(found), "sessions")
    same(session("tenant", names[0]), found[0], "the same one again")
    # users of one tenant share what is counted by tenant, not the session
    bob = sign(org="acme", sub="bob")
    check(session("tenant", bob) != found[0], "users share a session")
    same(digest("tenant", bob), digest("tenant", names[0]))
    check(digest("tenant", names[1]) != digest("tenant", names[0]),
          "tenants count as one")


@test("tenancy/joined-names")
def joined():
    """Parts that join to the same text are not the same."""
    found = [session("tenant", sign(org=org, sub=sub), c)
             for org, sub, c in (("a", "bc", "d"), ("ab", "c", "d"),
                                 ("a", "b", "cd"), ("abc", "d", "d"))]
    same(len(set(found)), 4, "sessions")
    found = [session("plain", sign(sub="alice", iss=i)) if i is not None
             else session("plain", sign(sub="alice"))
             for i in (None, "", "a", "b")]
    same(len(set(found)), 4, "sessions of issuers")


@test("auth/claim-path")
def claim_path():
    good = {"https://example.com/org": "acme",
            "https://example.com/perm": ["sandbox:execute"]}
    expect("url", raw(dict(claims(permissions=None), **good)), 200)
    for body, status in (
            (dict(good, **{"https://example.com/perm": ["x"]}), 403),
            ({"https://example.com/org": "acme"}, 403),
            ({"https://example.com/perm": ["sandbox:execute"]}, 401),
            # a dot in the name is no step
            ({"https://example": {"com/org": "acme",
                                  "com/perm": ["sandbox:execute"]}}, 401),
            (dict(good, **{"https://example.com/org": None}), 401)):
        expect("url", raw(dict(claims(permissions=None), **body)), status,
               what=str(body))
    # beside the configured claim the usual ones mean nothing
    expect("url", raw(dict(claims(), **{"https://example.com/org": "acme"})),
           403)

    roles = {"realm_access": {"roles": ["x", "sandbox:execute"],
                              "org": {"id": "acme"}}}
    expect("nested", raw(dict(claims(permissions=None), **roles)), 200)
    for body, status in (
            ({"realm_access": {"roles": ["x"], "org": {"id": "a"}}}, 403),
            ({"realm_access": {"roles": [], "org": {"id": "a"}}}, 403),
            ({"realm_access": {"org": {"id": "a"}}}, 403),
            ({"realm_access": {"roles": {"sandbox:execute": 1},
                               "org": {"id": "a"}}}, 403),
            ({"realm_access": ["roles"]}, 401),
            ({"realm_access": None}, 401), ({"realm_access": "roles"}, 401),
            ({"realm_access.roles": ["sandbox:execute"],
              "realm_access": {"org": {"id": "a"}}}, 403),
            ({"realm_access": {"roles": ["sandbox:execute"],
                               "org": "acme"}}, 401),
            ({"realm_access": {"roles": ["sandbox:execute"],
                               "org": {"id": {"id": "a"}}}}, 401),
            ({"realm_access": {"roles": ["sandbox:execute"],
                               "org.id": "acme"}}, 401)):
        expect("nested", raw(dict(claims(permissions=None), **body)), status,
               what=str(body))
    expect("quoted", raw(dict(claims(), **{"a\\b": "acme"})), 200)
    expect("quoted", raw(dict(claims(), **{"ab": "acme"})), 401)


@test("auth/permission-shapes")
def permission_shapes():
    """A list and words in a string are both possible, in the configured
    claims and in no others."""
    word = "sandbox:execute"
    for where, body, status in (
            ("plain", dict(permissions=[word]), 200),
            ("plain", dict(permissions=word), 200),
            ("plain", dict(permissions=None, scope="a %s b" % word), 200),
            ("plain", dict(permissions=None, scope=[word]), 200),
            ("plain", dict(permissions=None, roles=[word]), 403),
            ("plain", dict(permissions=None, scp=word), 403),
            ("scope", dict(permissions=[word]), 403),
            ("scope", dict(scope="a %s b" % word), 200),
            ("scope", dict(scope=["a", word]), 200),
            ("scope", dict(scope=["a " + word]), 403),
            ("scope", dict(scope={word: True}), 403),
            ("scope", dict(scope=[word, 5]), 403),
            ("scope", dict(scope=[[word]]), 403),
            ("scope", dict(scope="a,%s" % word), 403),
            ("several", dict(permissions=[word], scope=word), 403),
            ("several", dict(roles=[word]), 200),
            ("several", dict(a={"b": "x " + word}), 200),
            ("several", dict(roles=["x"], scp=[word]), 200),
            ("several", dict(roles=["sandbox:"], scp="execute"), 403),
            ("permission", dict(permissions=[word]), 403),
            ("permission", dict(permissions=["tools:run"]), 200),
            ("permission", dict(permissions="tools:run " + word), 200)):
        expect(where, sign(**body), status, what=str(body))


@test("auth/permission-among-many")
def permission_among_many():
    many = ["permission:%d" % n for n in range(199)] + ["sandbox:execute"]
    expect("nested", raw(dict(claims(permissions=None), realm_access={
        "roles": many, "org": {"id": "a"}})), 200)
    text = " ".join(["x" * 20] * 90 + ["sandbox:execute"] + ["y" * 20] * 90)
    check(len(text) > 3700, "short")
    expect("scope", sign(scope=text), 200)


@test("auth/words-are-literal")
def literal():
    """A dollar in a configured word is a dollar: no request chooses it."""
    for word, status in (("$http_x_word", 200), ("mallory-may", 403),
                         ("", 403)):
        r = g.request("GET", "/dollar/v1/limits", None, sign(
            permissions=[word], aud="$http_x_word"), {"X-Word": "mallory-may"})
        same(r.status, status, "permission %r" % word)
    r = g.request("GET", "/dollar/v1/limits", None, sign(
        permissions=["$http_x_word"], aud="mallory"), {"X-Word": "mallory"})
    same(r.status, 401, "audience")


@test("auth/permission-read")
def permission_read():
    """May look, may not run; the message names what is missing."""
    reader = sign(permissions=["sandbox:read"])
    path = "v1/conversations/c"
    same(ask("read", reader, path).status, 200)
    same(ask("read", reader, path, "HEAD").status, 200)
    for method, rest in (("DELETE", ""), ("POST", "/reset"),
                         ("POST", "/commands")):
        r = ask("read", reader, path + rest, method,
                {"command": "id"} if rest == "/commands" else None)
        same(r.status, 403, method + rest)
        check('scope="sandbox:execute"' in r.headers["WWW-Authenticate"],
              "challenge:", r)
    r = ask("read", sign(permissions=["x"]), path)
    same(r.status, 403)
    check('scope="sandbox:read"' in r.headers["WWW-Authenticate"],
          "challenge:", r)
    same(ask("plain", reader, path).status, 403, "where it is not set")


@test("auth/conversation-claim")
def conversation():
    path = "v1/conversations/%s"
    mine = sign(chat="c")
    same(ask("chat", mine, path % "c").status, 200)
    check(isinstance(run("chat", mine), dict), "does not run")
    for value in NOT_NAMES + ("x" * 129,):
        expect("chat", raw(dict(claims(), chat=value)), 401,
               what="chat %r" % (value,), path=path % "c")
    expect("chat", sign(), 401, what="no chat", path=path % "c")
    for other in ("C", "c.", "cc", "d", "c:", "-c"):
        expect("chat", mine, 404, what=other, path=path % other)
        same(run("chat", mine, other), 404, "ran in " + other)
        for method, rest in (("DELETE", ""), ("POST", "/reset")):
            same(ask("chat", mine, path % other + rest, method).status, 404,
                 method)
    # what names no conversation is not held to one
    same(ask("chat", mine).status, 200, "limits")
    same(ask("chat-path", sign(work={"chat": "c"}), path % "c").status, 200)
    same(ask("chat-path", sign(work={"chat": "d"}), path % "c").status, 404)
    same(ask("chat-path", sign(chat="c"), path % "c").status, 401)
    # the claim only narrows: the session is the one of the user
    same(session("chat", mine), session("plain", sign()))


def same_answers(a, b, what):
    """All that a client sees of both, but the id of the request."""
    def seen(r):
        body = r.body
        if body[:1] == b"{":
            body = r.json
            body.pop("requestId", None)
            body.pop("conversationId", None)
        return r.status, body, sorted(
            (n, v) for n, v in r.headers.items()
            if n not in ("Date", "X-Request-Id"))
    same(seen(a), seen(b), what)


@test("tenancy/other-id")
def other_id():
    """What is somebody else's answers as what does not exist."""
    g.run("private", "mock: stdout=secret", commandId="mine")
    bob = sign(sub="bob")
    other = sign(org="umbrella")
    narrow = sign(chat="bobs")
    for where, text in (("plain", bob), ("tenant", other),
                        ("chat", narrow)):
        for method, path, body in (
                ("GET", "v1/conversations/%s", None),
                ("HEAD", "v1/conversations/%s", None),
                ("DELETE", "v1/conversations/%s", None),
                ("GET", "v1/conversations/%s/commands/mine", None),
                ("DELETE", "v1/conversations/%s/commands/mine", None),
                ("GET", "v1/conversations/%s/files/a.png", None),
                ("GET", "v1/conversations/%s/fs/a.png", None),
                ("PUT", "v1/conversations/%s/nothing", None)):
            same_answers(
                ask(where, text, path % "private", method, body),
                ask(where, text, path % "nowhere", method, body),
                "%s %s in %s" % (method, path, where))
    same(g.status("private")["state"], "running", "the owner's")
    same(json.loads(g.run("private", "mock: seen")["stdout"]).count(
        "DELETE"), 0, "a DELETE of somebody else came through")


@test("tenancy/other-id-same-answer")
def same_answer():
    """What is another's is answered as what is missing; that it also takes as
    long is measured by bench/equal."""
    g.run("private", "mock: stdout=secret")
    cases = (("chat", sign(chat="bobs"), "v1/conversations/%s"),
             ("plain", sign(sub="bob"), "v1/conversations/%s"))
    for where, text, path in cases:
        answers = [g.request("GET", "/%s/%s" % (where, path % name),
                             token=text) for name in ("private", "nowhere")]
        bodies = [re.sub(r'"(requestId|conversationId)":"[^"]*",?', "",
                         r.body.decode()) for r in answers]
        same(answers[0].status, answers[1].status, where)
        same(bodies[0], bodies[1], where)
        check(b"secret" not in answers[0].body, "told:", answers[0])


@test("auth/identity-only-from-claims")
def identity():
    """A tenant is named by its claim and by nothing else."""
    mine = sign(org="acme", sub="alice")
    wanted = session("tenant", mine, "ident")
    path = "/tenant/v1/conversations/ident/commands"
    for headers in ({"X-Org": "umbrella"}, {"X-Tenant": "umbrella"},
                    {"X-User": "bob"}, {"X-Forwarded-User": "bob"},
                    {"X-Conversation-Id": "other"},
                    {"Cookie": "org=umbrella; sub=bob"},
                    {"X-Sandbox-Tenant": "umbrella"},
                    {"Sandbox-Session": "0" * 64}):
        for query in ("", "?org=umbrella&sub=bob", "?conversation=other",
                      "?access_token=" + sign(org="umbrella")):
            r = g.request("POST", path + query, {"command": "echo"}, mine,
                          headers)
            check(r.status == 400 or json.loads(r.json["stdout"])["preamble"]
                  ["session"] == wanted, "another session:", headers, query)
    for field in ("org", "tenant", "sub", "user", "conversation"):
        same(g.request("POST", path, {"command": "echo", field: "umbrella"},
                       mine).status, 400, field)


@test("auth/token-elsewhere")
def token_elsewhere():
    """In an argument, a cookie, a body or another header it is no token, and
    it is not logged for all that it is good."""
    text = sign(sub="elsewhere")
    for path, headers in (
            ("/plain/v1/limits", {"Cookie": "token=" + text}),
            ("/plain/v1/limits", {"X-Authorization": "Bearer " + text}),
            ("/plain/v1/limits", {"Proxy-Authorization": "Bearer " + text}),
            ("/plain/v1/limits", {"X-Access-Token": text})):
        r = g.request("GET", path, token=None, headers=headers)
        same((r.status, r.json["code"]), (401, "unauthorized"), str(headers))
    r = g.request("GET", "/plain/v1/limits?access_token=" + text, token=None)
    same((r.status, r.json["code"]), (401, "unauthorized"), "argument")
    r = g.request("POST", "/plain/v1/conversations/c/commands",
                  "access_token=" + text, None, {
                      "Content-Type": "application/x-www-form-urlencoded"})
    same((r.status, r.json["code"]), (401, "unauthorized"), "body")
    check(text.split(".")[2] not in g.error_log, "it is in the error log")


@test("auth/eight-bit-bytes")
def eight_bits():
    """Bytes of 128 and more, and all others, anywhere in a token."""
    good = sign()
    for byte in list(range(1, 33)) + [0x7f, 0x80, 0xa0, 0xc3, 0xff, 0x2b,
                                      0x2f, 0x3d, 0x25]:
        for at in (0, 5, len(good) // 2, len(good) - 1):
            with_byte = good[:at] + chr(byte) + good[at + 1:]
            if byte in (10, 13):
                continue
            c = g.connect()
            c.putrequest("GET", "/plain/v1/limits")
            c.putheader("Authorization",
                        b"Bearer " + with_byte.encode("latin-1"))
            c.endheaders()
            status = c.getresponse().status
            c.close()
            if byte == 32 and at == 0:
                check(status == 401, "a blank:", status)
            check(status in (400, 401), "byte %d at %d: %d"
                  % (byte, at, status))
    same(len(g.workers()), 1, "workers")


@test("auth/audience-shapes")
def audience():
    for value, status in (
            ("one", 200), ("two", 200), (["one"], 200),
            (["x", "two"], 200), (["x"], 401), ([], 401), ("one two", 401),
            ("three", 401), (["one", 5], 401), ("ONE", 401), ("on", 401),
            ({"one": 1}, 401), (None, 401), ([["one"]], 401)):
        body = full(aud=value)
        if value is None:
            del body["aud"]
        expect("full", raw(body), status, what="aud %r" % (value,))


@test("auth/leeway")
def leeway():
    """Of 30 s and of none, with some room for a slow machine."""
    for where, name, offset, status in (
            ("leeway", "exp", -10, 200), ("leeway", "exp", -45, 401),
            ("leeway", "nbf", 10, 200), ("leeway", "nbf", 600, 401),
            ("leeway", "iat", 10, 200), ("leeway", "iat", 600, 401),
            ("strict", "exp", -1, 401), ("strict", "exp", 0, 401),
            ("strict", "exp", 60, 200),
            ("strict", "nbf", 600, 401), ("strict", "nbf", 0, 200),
            ("strict", "iat", 600, 401), ("strict", "iat", 0, 200),
            ("strict", "nbf", -1e9, 200)):
        expect(where, sign(**{name: int(time.time()) + offset}), status,
               what="%s %+d" % (name, offset))
    for name in ("nbf", "iat"):
        for value in ("0", True, [], {}, "now"):
            expect("strict", sign(**{name: value}), 401,
                   what="%s %r" % (name, value))
        for value in ("1e400", "-1e400", "NaN"):
            body = json.dumps(claims())[:-1] + ',"%s":%s}' % (name, value)
            expect("strict", raw(body), 401, what=name + " " + value)


@test("auth/no-claims-in-answers")
def no_claims():
    """A refusal tells nothing of what the token says."""
    for body in (claims(sub="mallory", exp=1),
                 claims(sub="mallory", permissions=["mallory-may"]),
                 claims(sub="mallory", nbf=99999999999),
                 claims(sub="mallory", org=5)):
        for where in ("plain", "tenant", "full"):
            r = ask(where, raw(body))
            text = r.body.decode() + str(r.headers.items())
            check("mallory" not in text, "told:", r)
    check("mallory" not in g.error_log, "in the log")


main(start, stop)
