#!/usr/bin/env python3
"""Network by permission on engines, through all of it: nginx's policies and
tokens, the owner's proxy at the bridge of an engine, commands in containers;
with SANDBOX_TEST_DAGGER a real engine's, in whose network all of it runs.  The
world is an address of loopback with a resolver, a certificate authority and an
index of packages of the test's own."""

import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import egress                                                # noqa: E402
import gateway_engine                                        # noqa: E402
from gateway import CACHE, Gateway, token, wait_for          # noqa: E402
from packages import wheel                                   # noqa: E402
from tap import check, main, same, test                      # noqa: E402

LONG = 120
NAMES = dict.fromkeys(["index.test", "files.test"], [egress.HOST])
POLICY = ("sandbox_egress_policy packs { allow %s; package_index "
          "https://%s/simple/; ca_certificate %s; } "
          "map $sandbox_tenant $network { default none; acme packs; }")

folder = resolver = authority = server = None


def start():
    global folder, resolver, authority, server
    folder = tempfile.mkdtemp(prefix="sandbox-egress.")
    os.chmod(folder, 0o755)
    resolver = egress.Resolver(NAMES)
    authority = egress.Authority(folder, *NAMES)
    server = egress.Server(authority)
    server.pages.update(egress.index_pages({
        "tinya-1.0-py3-none-any.whl": wheel("tinya")},
        os.path.realpath(CACHE + "/base/current/rootfs")))
    server.pages["/hello"] = b"hello\n"


def stop():
    if server:
        server.close()
    if resolver:
        resolver.close()
    if folder:
        shutil.rmtree(folder)


class Engine(Gateway):
    """One whose owner has a proxy at the engine's bridge, or has none."""

    def __init__(self, proxy=True, **options):
        super().__init__(backend="dagger",
                         location="sandbox_tenant_claim org; "
                         "sandbox_egress $network;", http=policy("index.test"),
                         server="location = /metrics { sandbox_metrics; }",
                         **options)
        self.proxy = proxy

    def start_runner(self):
        if self.engines is None:
            self.engines = gateway_engine.Engines(
                self.state, self.engine_count, self.engine_options)
            self.runner_options += [
                "--egress-resolver", resolver.address,
                "--egress-allow-address", egress.HOST + "/32"]
            if self.proxy:
                self.runner_options += ["--egress-listen",
                                        self.bridge() + ":0"]
        super().start_runner()

    def bridge(self):
        """The address of this side that containers reach."""
        if gateway_engine.REAL:
            return os.environ.get("SANDBOX_TEST_DAGGER_DNS", "10.87.0.1")
        return self.engines.programs[0].resolver


def policy(*names):
    return POLICY % (" ".join(names), names[0], authority.pem)


def run(g, conversation, text, **options):
    """Its result; a host that others' processes fill, whose user is the same
    one, is waited for."""
    def ran():
        r = g.run(conversation, text, **options)
        return None if "temporarily unavail" in r["stderr"] else r

    return wait_for(ran, LONG, "room for processes")


def output(g, conversation, text, **options):
    """What a command wrote."""
    r = run(g, conversation, text, **options)
    same((r["exitCode"], r["stderr"]), (0, ""), text)
    return r["stdout"]


def limits(g, **options):
    return g.request("GET", "v1/limits", **options).json


@test("egress/engine-http", seconds=280)
def through_all():
    acme, other = token(org="acme"), token(org="other")
    with Engine() as g:
        wait_for(lambda: limits(g, token=acme)["egress"]["inForce"], LONG,
                 "our table in force, and a proxy")
        told = limits(g, token=acme)
        same(told["egress"]["enforced"], "best_effort")
        check("network" not in told["hardCaps"], "a hard network", told)
        check("is best effort in location" in g.error_log
              or "is best effort in location" in g.read("logs/nginx.out"),
              "a warning when it starts")

        same(output(g, "c", "curl -sS https://index.test/hello", token=acme),
             "hello\n")
        same(output(g, "c", "uv add -q tinya && python3 -c "
                      "'import tinya; print(tinya.answer)'", token=acme),
             "42\n")
        same(output(g, "c", "env -u GIT_HTTP_PROXY_AUTHMETHOD git ls-remote "
                      "https://index.test/nothing 2>&1 | grep -c 'not found'",
                      token=acme), "1\n", "git that asks first, too")
        wait_for(lambda: "refused: no credentials" in g.runner_log, LONG,
                 "that it did")
        r = run(g, "c", "curl -sS -m 100 https://files.test/hello", token=acme)
        check(r["exitCode"] and "403" in r["stderr"], "not allowed", r)

        # somebody without a policy: nothing, and no socket to try with
        same(output(g, "d", "echo $UV_OFFLINE$https_proxy", token=other),
             "1\n")
        r = run(g, "d", "python3 -c 'import socket; socket.socket()'",
                token=other)
        check("Address family not supported" in r["stderr"], "a socket", r)
        same(limits(g, token=other)["egress"], None)
        check("network" in limits(g, token=other)["hardCaps"], "hard", told)

        # one that lives with a tunnel, while the policy changes
        r = g.command("c", "python3 - <<'E'\nimport os, socket, base64\n"
                      "from urllib.parse import urlsplit as s\n"
                      "u = s(os.environ['https_proxy'])\n"
                      "c = socket.create_connection((u.hostname, u.port))\n"
                      "t = base64.b64encode(('%s:%s' % (u.username, "
                      "u.password)).encode()).decode()\n"
                      "c.sendall(('CONNECT index.test:443 HTTP/1.1\\r\\n"
                      "Proxy-Authorization: Basic %s\\r\\n\\r\\n' % t)"
                      ".encode())\n"
                      "open('open', 'wb').write(c.recv(4096))\n"
                      "c.recv(1)\nopen('over', 'w').write('over')\nE",
                      background=True, commandId="alive", token=acme)
        same(r.status, 202, r)

        def written(name):
            return run(g, "c", "cat ~/" + name, token=acme)["stdout"]

        wait_for(lambda: " 200 " in written("open"), LONG, "an open tunnel")
        g.reload(http=policy("files.test"))
        wait_for(lambda: written("over"), LONG, "the tunnel's end")
        wait_for(lambda: limits(g, token=acme)["egress"]["allow"]
                 == ["files.test"], LONG, "the new table")
        same(output(g, "c", "curl -sS https://files.test/hello", token=acme),
             "hello\n")
        r = run(g, "c", "curl -sS -m 100 https://index.test/hello", token=acme)
        check(r["exitCode"] and "403" in r["stderr"], "not any more", r)

        # what operators see
        wait_for(lambda: 'policy "packs", tunnel to index.test:443'
                 in g.runner_log, LONG, "a line of each tunnel")
        line = 'sandbox_egress_tunnels_total{runner="unix:%s",' \
            'policy="packs"} ' % g.socket
        wait_for(lambda: line in g.request("GET", "/metrics").body.decode(),
                 LONG, "the metrics")


@test("egress/engine-without-proxy", seconds=200)
def without():
    """A policy, and nobody who could carry it out: no network, and why."""
    acme = token(org="acme")
    with Engine(proxy=False) as g:
        same(output(g, "c", "echo $UV_OFFLINE$https_proxy", token=acme), "1\n")
        r = run(g, "c", "python3 -c 'import socket; socket.socket()'",
                token=acme)
        check("Address family not supported" in r["stderr"], "a socket", r)
        words = "has no egress proxy, so commands with policy \"packs\""
        check(words in g.error_log, "the log", g.error_log[-2000:])
        output(g, "c", "true", token=acme)
        check(g.error_log.count(words) <= 2, "once of each worker")
        same(limits(g, token=acme)["egress"]["inForce"], False)
        g.expected.append(words)


main(start, stop)
