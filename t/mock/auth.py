#!/usr/bin/env python3
"""Tokens, in every way they can be wrong; group auth of the cases, as far as
HS256 and RS256 from files go.  Other keys are in keys.py, what claims decide
in claims.py, connections in refusals.py, key files that change in reload.py,
key sets by URL in keyset.py."""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import SECRET, Gateway, base64url, token        # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
PRIVATE = PUBLIC = None


def start():
    global g, PRIVATE, PUBLIC
    g = Gateway(runner="mock", log_level="info", workers=1)
    PRIVATE = g.path("private.pem")
    PUBLIC = g.path("public.pem")
    subprocess.run(["openssl", "genrsa", "-out", PRIVATE, "2048"], check=True,
                   stderr=subprocess.DEVNULL)
    subprocess.run(["openssl", "pkey", "-in", PRIVATE, "-pubout", "-out",
                    PUBLIC], check=True)
    g.options["server"] = """
        location /rs/ {
            sandbox on;
            sandbox_realm one;
            sandbox_jwt_key_file %s;
        }
        location /both/ {
            sandbox on;
            sandbox_realm one;
            sandbox_jwt_key_file %s;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_jwt_leeway 0s;
        }
        location /strict/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_jwt_issuer https://id.example/;
            sandbox_jwt_audience gateway;
            sandbox_jwt_leeway 0s;
        }
        location /leeway/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_jwt_leeway 60s;
        }
        location /other-permission/ {
            sandbox on;
            sandbox_jwt_secret_file %s/jwt.key;
            sandbox_permission tools:run;
        }
    """ % (PUBLIC, PUBLIC, g.dir, g.dir, g.dir, g.dir)
    g.start()


def stop():
    g.stop()


def rs256(key=None, header=None, **claims):
    body = {"sub": "alice", "exp": int(time.time()) + 3600,
            "permissions": ["sandbox:execute"]}
    body.update(claims)
    text = base64url(json.dumps(header or {"alg": "RS256"}).encode()) + "." \
        + base64url(json.dumps(body).encode())
    signed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", key or PRIVATE],
        input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    return text + "." + base64url(signed)


def raw(header, payload, secret=SECRET):
    """A token of any bytes, signed by HMAC."""
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(payload, dict):
        payload = json.dumps(payload)
    text = base64url(header.encode("utf-8", "surrogatepass")) + "." \
        + base64url(payload.encode("utf-8", "surrogatepass"))
    return text + "." + base64url(
        hmac.new(secret, text.encode(), hashlib.sha256).digest())


def ask(text, where="/sandbox/", method="GET", **headers):
    return g.request(method, where + "v1/limits", token=None, headers=dict(
        {} if text is None else {"Authorization": "Bearer " + text},
        **headers))


def expect(text, status=401, code="invalid_token", where="/sandbox/",
           what=""):
    r = ask(text, where)
    same(r.status, status, "%s %r" % (what, str(text)[:80]))
    if status != 200 and code:
        same(r.json["code"], code, "%s %r" % (what, str(text)[:80]))
    if status == 401:
        check(r.headers["WWW-Authenticate"].startswith("Bearer"),
              "no WWW-Authenticate", r)
    return r


def claims(**more):
    out = {"sub": "alice", "exp": int(time.time()) + 3600,
           "permissions": ["sandbox:execute"]}
    out.update(more)
    return out


@test("auth/good-tokens")
def good():
    expect(token(), 200)
    expect(rs256(), 200, where="/rs/")
    expect(rs256(), 200, where="/both/")
    expect(token(), 200, where="/both/")
    expect(token(header={"typ": "JWT", "alg": "HS256"}), 200)


@test("auth/wrong-key")
def wrong_key():
    expect(token(secret=b"another secret of more than 32 bytes"))
    other = g.path("other.pem")
    subprocess.run(["openssl", "genrsa", "-out", other, "2048"], check=True,
                   stderr=subprocess.DEVNULL)
    expect(rs256(key=other), where="/rs/")
    expect(rs256())                         # the location has no RSA key
    expect(token(), where="/rs/")           # nor this one a secret


@test("auth/alg-none")
def alg_none():
    for name in ("none", "None", "NONE", "nOnE", "", " none", "HS256 "):
        for end in ("", "AAAA", base64url(b"x" * 32)):
            text = base64url(json.dumps({"alg": name}).encode()) + "." \
                + base64url(json.dumps(claims()).encode()) + "." + end
            for where in ("/sandbox/", "/rs/", "/both/"):
                expect(text, where=where)


@test("auth/hs-with-public-key")
def hs_with_public_key():
    with open(PUBLIC, "rb") as f:
        pem = f.read()
    for key in (pem, pem.rstrip(b"\n"), pem.replace(b"\n", b"\r\n")):
        for where in ("/rs/", "/both/"):
            expect(token(secret=key), where=where)


@test("auth/other-algorithms")
def other_algorithms():
    text = json.dumps(claims())
    for name in ("HS384", "HS512", "RS384", "RS512", "ES256", "PS256",
                 "EdDSA", "hs256", "Hs256", "HS256\u0000", "HS2560"):
        expect(raw({"alg": name}, text))
    for header in ("{}", "[]", "null", '"HS256"', '{"alg":null}',
                   '{"alg":256}', '{"alg":["HS256"]}', '{"alg":"HS256"',
                   '{"alg":"HS256"}{}', '{"alg":"HS256","alg":"HS256"}',
                   '{"alg":"HS256","alg":"none"}', '', ' ',
                   '\ufeff{"alg":"HS256"}'):
        expect(raw(header, text), what=header)


@test("auth/sig-length")
def signature_length():
    head = base64url(b'{"alg":"HS256"}') + "." \
        + base64url(json.dumps(claims()).encode()) + "."
    for size in (0, 1, 16, 31, 33, 63, 64, 65, 128, 2048):
        expect(head + base64url(b"s" * size), what="HS256, %d bytes" % size)
    head = base64url(b'{"alg":"RS256"}') + "." \
        + base64url(json.dumps(claims()).encode()) + "."
    for size in (0, 1, 255, 256, 257, 512, 2048):
        expect(head + base64url(b"s" * size), where="/rs/",
               what="RS256, %d bytes" % size)
    same(len(g.workers()), 1, "workers")


@test("auth/signature-changed")
def signature_changed():
    good_one = token()
    head, _, end = good_one.rpartition(".")
    data = bytearray(base64.urlsafe_b64decode(end + "=="))
    for at in (0, 15, 31):
        data[at] ^= 1
        expect(head + "." + base64url(bytes(data)))
        data[at] ^= 1
    parts = good_one.split(".")
    other = token(sub="mallory").split(".")
    expect(".".join((parts[0], other[1], parts[2])))


@test("auth/empty-parts")
def empty_parts():
    a, b, c = token().split(".")
    for text in ("", ".", "..", "...", "a..", ".a.", "..a", "a.b", "a.b.c.d",
                 "." * 5000, a, a + ".", a + "." + b, a + "." + b + ".",
                 a + ".." + c, "." + b + "." + c, a + "." + b + "." + c + ".",
                 a + "." + b + "." + c + "." + c,
                 "." + a + "." + b + "." + c):
        r = ask(text)
        same(r.status, 401, repr(text[:60]))
    # longer than a header line may be: nginx's own refusal
    check(ask("." * 10000).status in (400, 401), "10,000 dots")
    same(len(g.workers()), 1, "workers")


@test("auth/base64-strict")
def strict_base64():
    a, b, c = token().split(".")
    for text in (a + "=." + b + "." + c, a + "." + b + "." + c + "=",
                 a + "." + b + "." + c + "==", a + "." + b + "!." + c,
                 a + "." + b + "." + c[:-1] + "+",
                 a + "." + b + "." + c + "A", a + ".%20" + b + "." + c,
                 a + "." + b + "." + c + "\x7f"):
        same(ask(text).status, 401, repr(text[-20:]))
    # the last character has two bits that mean nothing: only zeros there
    letters = ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
               "0123456789-_")
    last = letters.index(c[-1])
    same(last % 4, 0, "spare bits of our own encoder")
    expect(a + "." + b + "." + c[:-1] + letters[last + 1])


@test("auth/header-shapes")
def header_shapes():
    good_one = token()

    def status(value):
        headers = {} if value is None else {"Authorization": value}
        return g.request("GET", "v1/limits", token=None,
                         headers=headers).status

    for value in (None, "", "X", "Bearer", "Bearer ", "Bearer\t" + good_one,
                  "Basic eA==", "Basic " + good_one, good_one,
                  "BearerX " + good_one, "Bearer" + good_one,
                  "Token " + good_one, "Bearer " + good_one + " x",
                  "Bearer " + good_one + "," + good_one,
                  "Bearer token=" + good_one):
        same(status(value), 401, repr(value)[:60])
    for value in ("bearer " + good_one, "BEARER " + good_one,
                  "bEaReR " + good_one):
        same(status(value), 200, value[:10])


@test("auth/two-authorization")
def two_headers():
    for order in (("good", "bad"), ("bad", "good"), ("good", "good")):
        c = g.connect()
        c.putrequest("GET", "/sandbox/v1/limits")
        for kind in order:
            c.putheader("Authorization", "Bearer "
                        + (token() if kind == "good" else "a.b.c"))
        c.endheaders()
        check(c.getresponse().status in (400, 401), "taken:", order)
        c.close()


@test("auth/claims-missing")
def claims_missing():
    for value in (None, 5, {}, [], True, "", "x" * 256, "a\u0000b", "a\nb"):
        body = claims()
        if value is None:
            del body["sub"]
        else:
            body["sub"] = value
        expect(raw({"alg": "HS256"}, body), what="sub %r" % value)
    body = claims()
    body["sub"] = None
    expect(raw({"alg": "HS256"}, body), what="sub null")
    expect(raw({"alg": "HS256"}, claims(sub="x" * 255)), 200)

    for value in ("left out", None, 5, {}, [], "", True,
                  {"sandbox:execute": True}, [["sandbox:execute"]]):
        body = claims(permissions=value)
        if value == "left out":
            del body["permissions"]
        expect(raw({"alg": "HS256"}, body), 403, "insufficient_scope",
               what="permissions %r" % value)


@test("auth/payload-shapes")
def payload_shapes():
    for payload in ("", "null", "[]", '"x"', "5", "{", "{}", "{}{}",
                    '{"sub":"alice"} x', "\ufeff" + json.dumps(claims()),
                    json.dumps(claims())[:-1] + ',"sub":"bob"}',
                    json.dumps(claims())[:-1] + ',"exp":9999999999}',
                    '{"a":' * 700 + "1" + "}" * 700,
                    "[" * 2500 + "]" * 2500):
        same(ask(raw({"alg": "HS256"}, payload)).status, 401, payload[:60])
    same(len(g.workers()), 1, "workers")


@test("auth/exp-types")
def exp_types():
    for value in ('"0"', '"4102444800"', '"abc"', "null", "true", "[]", "{}",
                  "-1", "0", "1", "9223372036854775808",
                  "18446744073709551616", "1e400", "-1e400"):
        payload = '{"sub":"alice","permissions":["sandbox:execute"],' \
            '"exp":%s}' % value
        same(ask(raw({"alg": "HS256"}, payload)).status, 401,
             "exp " + value)
    for value in ("4102444800", "4102444800.5", "4.1024448e9"):
        payload = '{"sub":"alice","permissions":["sandbox:execute"],' \
            '"exp":%s}' % value
        same(ask(raw({"alg": "HS256"}, payload)).status, 200,
             "exp " + value)
    body = claims()
    del body["exp"]
    expect(raw({"alg": "HS256"}, body), what="no exp")


@test("auth/times")
def times():
    now = int(time.time())
    expect(token(exp=now - 5), where="/strict/")
    for name in ("nbf", "iat"):
        expect(token(**{name: now - 100}), 200)
        expect(token(iss="https://id.example/", aud="gateway",
                     **{name: now + 3600}), where="/strict/")
        expect(token(**{name: now + 3600}), where="/leeway/")
        expect(token(**{name: now + 30}), 200, where="/leeway/")
        for value in ("soon", True, [], {}):
            expect(token(**{name: value}), what="%s %r" % (name, value))
    expect(token(exp=int(time.time()) - 30), 200, where="/leeway/")
    expect(token(exp=now - 120), where="/leeway/")


@test("auth/cache-outlives-exp")
def expiry():
    for seconds in (6, 40, 200):
        soon = int(time.time()) + seconds
        text = token(exp=soon, sub="short-lived")
        seen = [ask(text, "/both/").status for _ in range(2)]
        if time.time() < soon - 2:
            break                           # none of them was late
    same(seen, [200, 200])
    end = time.monotonic() + 300
    while ask(text, "/both/").status == 200:
        check(time.monotonic() < end, "an expired token is still good")
        time.sleep(0.25)
    expect(text, where="/both/")


@test("auth/issuer-audience")
def issuer_audience():
    good_ones = dict(iss="https://id.example/", aud="gateway")
    expect(token(**good_ones), 200, where="/strict/")
    expect(token(**dict(good_ones, aud=["x", "gateway"])), 200,
           where="/strict/")
    for change in (dict(iss=None), dict(iss="https://id.example"),
                   dict(iss="https://id.example/x"), dict(iss=5),
                   dict(iss=["https://id.example/"]), dict(aud=None),
                   dict(aud="gatewa"), dict(aud="gateway2"), dict(aud=[]),
                   dict(aud=["x"]), dict(aud=5), dict(aud={"gateway": 1}),
                   dict(iss="HTTPS://id.example/")):
        expect(token(**dict(good_ones, **change)), where="/strict/",
               what=str(change))


@test("auth/permission-shapes")
def permission_shapes():
    for body in (dict(permissions=["sandbox:execute"]),
                 dict(permissions="sandbox:execute"),
                 dict(permissions="a sandbox:execute b"),
                 dict(permissions=None, scope="a sandbox:execute b"),
                 dict(permissions=None, scope="sandbox:execute"),
                 dict(permissions=None, scope=["x", "sandbox:execute"]),
                 dict(permissions=["x"], scope="sandbox:execute")):
        expect(token(**body), 200, what=str(body))


@test("auth/permission-substring")
def permission_substring():
    for word in ("sandbox:executeX", "xsandbox:execute",
                 "sandbox:execute:read", "SANDBOX:EXECUTE", "sandbox",
                 "sandbox:*", "*", "", " ", "sandbox:execut",
                 "sandbox: execute", "sandbox:execute,other"):
        for body in (dict(permissions=[word]), dict(permissions=word),
                     dict(permissions=None, scope="a %s b" % word)):
            expect(token(**body), 403, "insufficient_scope",
                   what=repr(body))
    expect(token(permissions=["sandbox:execute other"]), 403,
           "insufficient_scope")
    expect(token(permissions="a\tsandbox:execute"), 403, "insufficient_scope")
    # NUL in a claim: not a token at all
    expect(token(permissions=["sandbox:execute\0"]))


@test("auth/permission-among-many")
def permission_among_many():
    words = ["permission:%d" % n for n in range(199)] + ["sandbox:execute"]
    expect(token(permissions=words), 200)
    scope = " ".join(["x" * 20] * 90 + ["sandbox:execute"] + ["y" * 20] * 90)
    expect(token(permissions=None, scope=scope), 200)


@test("auth/permission-configured")
def permission_configured():
    expect(token(), 403, "insufficient_scope", where="/other-permission/")
    expect(token(permissions=["tools:run"]), 200, where="/other-permission/")


@test("auth/status-401-403")
def status_401_403():
    r = expect(None, 401, "unauthorized")
    check("error" not in r.headers["WWW-Authenticate"],
          "an error though no token was sent:", r)
    r = expect(token(exp=int(time.time()) - 3600))
    check('error="invalid_token"' in r.headers["WWW-Authenticate"],
          "not told:", r)
    r = expect(token(permissions=[]), 403, "insufficient_scope")
    check('error="insufficient_scope"'
          in (r.headers["WWW-Authenticate"] or ""), "not told:", r)


@test("auth/crit-header")
def crit():
    for header in ({"alg": "HS256", "crit": ["b64"], "b64": False},
                   {"alg": "HS256", "crit": []},
                   {"alg": "HS256", "crit": ["x"]},
                   {"alg": "HS256", "crit": "x"},
                   {"alg": "HS256", "crit": None}):
        expect(raw(header, claims()), what=str(header))


@test("auth/kid")
def kid():
    # keys from files have no kid: any is taken, the signature decides
    for value in ("x", "x" * 255, "../../etc/passwd"):
        expect(raw({"alg": "HS256", "kid": value}, claims()), 200,
               what=value[:20])
    for value in (5, [], {}, None, True, "x" * 5000):
        status = ask(raw({"alg": "HS256", "kid": value}, claims())).status
        check(status in (200, 401), "kid %r: %d" % (str(value)[:20], status))
    same(len(g.workers()), 1, "workers")


@test("auth/token-size")
def token_size():
    for size, statuses in ((1000, (200,)), (4000, (200,)), (7500, (200,)),
                           (9000, (200, 400, 401, 414, 431, 494)),
                           (40000, (400, 401, 414, 431, 494))):
        text = token(filler="x" * (size * 3 // 4))
        status = ask(text).status
        check(status in statuses, "%d bytes: %d" % (size, status))
    # nginx lets longer ones through where it is told so: ours is 16 KiB
    expect(token(sub="x" * 100, filler="y" * 3000), 200)


@test("auth/identity-only-from-claims")
def identity():
    mine = g.run("identity", "echo")
    request = json.loads(mine["stdout"])
    for headers in ({"X-User": "bob"}, {"X-Org": "other"},
                    {"X-Conversation-Id": "bobs"}, {"Cookie": "user=bob"},
                    {"X-Sandbox-User": "bob"}):
        r = g.request("POST", "v1/conversations/identity/commands",
                      {"command": "echo"}, headers=headers)
        same(r.status, 200, str(headers))
        same(json.loads(r.json["stdout"])["preamble"]["session"],
             request["preamble"]["session"], str(headers))
    r = g.request("POST", "v1/conversations/identity/commands"
                  "?conversation=bobs&sub=bob", {"command": "echo"})
    check(r.status == 400 or json.loads(r.json["stdout"])["preamble"]
          ["session"] == request["preamble"]["session"], "query:", r)
    for field in ("conversation", "sub", "user", "tenant"):
        r = g.request("POST", "v1/conversations/identity/commands",
                      {"command": "echo", field: "bob"})
        same(r.status, 400, "body field " + field)


@test("auth/bad-then-good")
def bad_then_good():
    none = base64url(b'{"alg":"none"}') + "." \
        + base64url(json.dumps(claims()).encode()) + "."
    forged = token(secret=b"not the secret, but of good length")
    c = g.connect()
    for _ in range(100):
        for text, status in ((none, 401), (forged, 401), (token(), 200)):
            r = g.request("GET", "v1/limits", token=text, connection=c)
            same(r.status, status)
    c.close()


@test("auth/options-no-bypass")
def options():
    path = "v1/conversations/options/commands"
    for method in ("OPTIONS", "HEAD", "GET", "POST", "TRACE", "PROPFIND"):
        r = g.request(method, path, token=None)
        check(r.status in (401, 405), "%s without a token: %r" % (method, r))
    r = g.request("OPTIONS", path)
    same(r.status, 405, "OPTIONS with a token")
    same(g.status("options")["state"], "none", "something ran")


@test("auth/satisfy-any-is-no-way-in")
def satisfy():
    g.reload(location="satisfy any; allow all;")
    same(ask(None).status, 401, "satisfy any let a request in")
    g.reload(location="satisfy any; allow all;"
                      "auth_basic realm; auth_basic_user_file %s;"
             % g.write("htpasswd", "alice:{PLAIN}pw\n", 0o644))
    r = g.request("GET", "v1/limits", token=None, headers={
        "Authorization": "Basic " + base64.b64encode(b"alice:pw").decode()})
    same(r.status, 401, "a password instead of a token")
    g.reload(location="")


@test("auth/no-token-in-logs")
def logs():
    text = token(sub="log-check", marker="a-marker-in-the-claims")
    bad = text[:-4] + "AAAA"
    expect(text, 200)
    expect(bad)
    # nginx itself logs the start of a header line that is too long
    for part in text.split(".")[1:] + ["a-marker-in-the-claims"]:
        check(part not in g.error_log + g.read("logs/access.log"),
              "a part of a token is in a log:", part[:40])


main(start, stop)
