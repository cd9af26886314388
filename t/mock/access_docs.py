#!/usr/bin/env python3
"""The configurations of docs/access-control.md, each as it stands there, with
nothing changed but addresses and file names."""

import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../lib")

import jose                                                  # noqa: E402
from gateway import TOP, Gateway, wait_for                   # noqa: E402
from key_server import KeyServer                             # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
server = None
blocks = {}
secret_1 = jose.Key("HS256", kid="1", secret=b"first " * 8)
secret_2 = jose.Key("HS256", kid="2", secret=b"second" * 8)
secret = jose.Key("HS256", secret=b"the secret of the gateway" * 2)
rsa = jose.Key("RS256", kid="by-url")
ec = jose.Key("ES256")
in_set = jose.Key("ES384", kid="in-set")

GATEWAY = "https://gateway.example/"
KEYCLOAK = "https://keycloak.example/realms/agents"
AUTH0 = "https://tenant.auth0.example/"


def read_blocks():
    with open(TOP + "/docs/access-control.md") as f:
        text = f.read()
    for block in re.findall(r"^```nginx\n(.*?)^```$", text, re.S | re.M):
        name = re.match(r"# test: ([a-z0-9-]+)\n", block)
        check(name, "a configuration without a name: " + block[:60])
        blocks[name.group(1)] = block
    return blocks


def adapted(name):
    """(http, server) for the test's gateway."""
    text = blocks[name].replace("/etc/nginx/sandbox/", g.dir + "/")
    # no machine is too slow to go beyond that
    text = text.replace("rate=20r/s", "rate=20r/m")
    text = re.sub(r"https://\S+(/certs|/jwks\.json);", server.url + ";", text)
    text = text.replace("/sandbox/ {", "/%s/ {" % name)
    http, found, inner = text.partition("server {\n")
    if not found:
        return "", text
    return http, inner.rstrip().rstrip("}")


def start():
    global g, server
    g = Gateway(runner="mock", log_level="info", workers=2)
    server = KeyServer(jose.jwks(rsa))
    g.write("jwt.key", secret.secret)
    g.write("jwt-1.key", secret_1.secret)
    g.write("jwt-2.key", secret_2.secret)
    g.write("issuer-ec.pem", ec.public)
    g.write("jwks.json", jose.jwks(in_set))
    parts = [adapted(name) for name in read_blocks()]
    g.options["http"] += "".join(p[0] for p in parts)
    g.options["server"] = "".join(p[1] for p in parts)
    g.start()


def stop():
    try:
        g.stop()
    finally:
        server.refuse()


def ask(name, token, path="v1/limits", method="GET"):
    return g.request(method, "/%s/%s" % (name, path), token=None,
                     headers={"Authorization": "Bearer " + token})


def good(name, token, path="v1/limits"):
    same(ask(name, token, path).status, 200, name)


def bad(name, token, status, code, path="v1/limits", method="GET"):
    r = ask(name, token, path, method)
    same((r.status, r.json["code"]), (status, code), name)


def mint(key, issuer, audience=None, permissions=("sandbox:execute",),
         **more):
    body = {"sub": "alice", "iss": issuer, "exp": int(time.time()) + 600}
    if audience:
        body["aud"] = audience
    if permissions is not None:
        body["permissions"] = list(permissions)
    body.update(more)
    header = {"alg": key.algorithm, "typ": "JWT"}
    if key.kid:
        header["kid"] = key.kid
    return key.sign(header, body)


@test("docs/access-control/all-are-tested")
def all_tested():
    with open(os.path.abspath(__file__)) as f:
        text = f.read()
    for name in blocks:
        check('good("%s"' % name in text and 'bad("%s"' % name in text,
              "nothing tests " + name)


@test("docs/access-control/hs256")
def hs256():
    good("hs256", mint(secret, GATEWAY, "sandbox"))
    bad("hs256", mint(secret, GATEWAY, "other"), 401, "invalid_token")
    bad("hs256", mint(secret, "https://other.example/", "sandbox"), 401,
        "invalid_token")
    bad("hs256", mint(secret_1, GATEWAY, "sandbox"), 401, "invalid_token")
    bad("hs256", mint(secret, GATEWAY, "sandbox", ["chat"]), 403,
        "insufficient_scope")


@test("docs/access-control/hs256-rotation")
def rotation():
    good("hs256-rotation", mint(secret_1, GATEWAY))
    good("hs256-rotation", mint(secret_2, GATEWAY))
    swapped = jose.Key("HS256", kid="1", secret=secret_2.secret)
    bad("hs256-rotation", mint(swapped, GATEWAY), 401, "invalid_token")


def roles(*names):
    return {"realm_access": {"roles": list(names)}, "permissions": None}


@test("docs/access-control/keycloak")
def keycloak():
    more = dict(roles("offline_access", "sandbox:execute"), azp="app")
    token = mint(rsa, KEYCLOAK, ["account", "sandbox"], **more)
    wait_for(lambda: ask("keycloak", token).status != 503, 20, "the keys")
    good("keycloak", token)
    bad("keycloak", mint(rsa, KEYCLOAK + "/", "sandbox", **more), 401,
        "invalid_token")
    bad("keycloak", mint(rsa, KEYCLOAK, "account", **more), 401,
        "invalid_token")
    bad("keycloak", mint(rsa, KEYCLOAK, "sandbox",
                         **roles("offline_access")), 403,
        "insufficient_scope")
    bad("keycloak", mint(rsa, KEYCLOAK, "sandbox"), 403,
        "insufficient_scope")           # "permissions" is not looked at here


@test("docs/access-control/keycloak-tenant")
def keycloak_tenant():
    more = roles("sandbox:execute")
    token = mint(rsa, KEYCLOAK, "sandbox", org="blue", **more)
    wait_for(lambda: ask("keycloak-tenant", token).status != 503, 20,
             "the keys")
    good("keycloak-tenant", token)
    bad("keycloak-tenant", mint(rsa, KEYCLOAK, "sandbox", **more), 401,
        "invalid_token")


@test("docs/access-control/auth0")
def auth0():
    api = "https://sandbox.example/api"
    tenant = {"https://example.com/tenant": "blue"}
    token = mint(rsa, AUTH0, [api, AUTH0 + "userinfo"], **tenant)
    wait_for(lambda: ask("auth0", token).status != 503, 20, "the keys")
    good("auth0", token)
    good("auth0", mint(rsa, AUTH0, api, None,
                       scope="openid sandbox:execute email", **tenant))
    bad("auth0", mint(rsa, AUTH0, api), 401, "invalid_token")
    bad("auth0", mint(rsa, AUTH0.rstrip("/"), api, **tenant), 401,
        "invalid_token")
    bad("auth0", mint(rsa, AUTH0, api, None, scope="openid", **tenant), 403,
        "insufficient_scope")


@test("docs/access-control/files")
def files():
    good("files", mint(ec, "https://id.example/"))
    good("files", mint(in_set, "https://id.example/"))
    bad("files", mint(rsa, "https://id.example/"), 401, "invalid_token")


@test("docs/access-control/conversation")
def conversation():
    token = mint(secret, GATEWAY, conversation="mine")
    good("conversation", token, "v1/conversations/mine")
    bad("conversation", token, 404, "not_found", "v1/conversations/other")
    bad("conversation", mint(secret, GATEWAY), 401, "invalid_token",
        "v1/conversations/mine")


@test("docs/access-control/read")
def read():
    token = mint(secret, GATEWAY, permissions=["sandbox:read"])
    good("read", token, "v1/conversations/c")
    bad("read", token, 403, "insufficient_scope", "v1/conversations/c",
        "DELETE")
    good("read", mint(secret, GATEWAY), "v1/conversations/c")


@test("docs/access-control/limit")
def limit():
    def burst(user, n):
        token = mint(secret, GATEWAY, sub=user)
        return [ask("limit", token).status for _ in range(n)]

    good("limit", mint(secret, GATEWAY, sub="carol"))
    bad("limit", mint(secret_1, GATEWAY), 401, "invalid_token")
    same(set(burst("bob", 5)), {200})
    got = burst("alice", 400)
    check(429 in got or 503 in got, "no limit in 400 requests")
    same(set(burst("bob", 5)), {200}, "another user is not held up")


main(start, stop)
