#!/usr/bin/env python3
"""Network by permission through all of it: nginx's policies, the runner, the
proxy, commands.  The world is an address of loopback with a resolver, a
certificate authority and an index of packages of the test's own."""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import egress                                                # noqa: E402
from gateway import BUILD, CACHE, Gateway, token, wait_for   # noqa: E402
from packages import wheel                                   # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="egress")

LONG = 120
HOST = egress.HOST
NAMES = dict.fromkeys(["index.test", "files.test", "other.test"], [HOST])

PACKS = ("sandbox_egress_policy packs { allow %s; package_index "
         "https://index.test/simple/; ca_certificate %s; }")

folder = resolver = authority = server = None


def start():
    global folder, resolver, authority, server
    folder = tempfile.mkdtemp(prefix="sandbox-egress.")
    os.chmod(folder, 0o755)
    resolver = egress.Resolver(NAMES)
    authority = egress.Authority(folder, *NAMES)
    server = egress.Server(authority, address=HOST)
    server.pages.update(egress.index_pages({
        "tinya-1.0-py3-none-any.whl": wheel("tinya"),
        "tinyb-1.0-py3-none-any.whl": wheel("tinyb")},
        os.path.realpath(CACHE + "/base/current/rootfs")))
    server.pages["/hello"] = b"hello\n"


def stop():
    if server:
        server.close()
    if resolver:
        resolver.close()
    if folder:
        shutil.rmtree(folder)


def gateway(http="", location="", **options):
    return Gateway(
        http=http, location=location, runner_options=[
            "--egress-resolver", resolver.address,
            "--egress-allow-address", HOST + "/32"], **options)


def packs(*names):
    return PACKS % (" ".join(names), authority.pem)


def limits(g, **options):
    return g.request("GET", "v1/limits", **options).json["egress"]


def ctl(g, *arguments):
    done = subprocess.run(
        [BUILD + "/sandboxctl", *arguments, "--url",
         "http://127.0.0.1:%d/sandbox/" % g.port],
        env=dict(os.environ, SANDBOX_TOKEN=token()), timeout=LONG,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout.decode()


@test("egress/http: uv add by policy; a reload ends no sandbox", seconds=280)
def by_reload():
    with gateway(packs("index.test"), "sandbox_egress packs;",
                 server="location = /metrics { sandbox_metrics; }") as g:
        # the very first command has it, whatever the runner was told by now
        first = g.run("c", "curl -sS https://index.test/hello")
        same((first["exitCode"], first["stdout"]), (0, "hello\n"), first)
        wait_for(lambda: limits(g)["inForce"], LONG, "our table in force")

        same(g.output("c", "uv add -q tinya && python3 -c "
                      "'import tinya; print(tinya.answer)'"), "42\n")
        same(g.output("c", "grep -c tinya pyproject.toml uv.lock"),
             "pyproject.toml:1\nuv.lock:4\n", "pinned and locked")

        # something that lives, with a tunnel of its own
        r = g.command("c", "exec 3<>/dev/tcp/127.0.0.1/3128; printf "
                      "'CONNECT index.test:443 HTTP/1.1\\r\\nHost: "
                      "index.test:443\\r\\n\\r\\n' >&3; head -1 <&3 > ~/open; "
                      "cat <&3 >/dev/null; echo over > ~/over; sleep 1000",
                      background=True, commandId="alive")
        same(r.status, 202, r)

        def said():
            return g.request("GET", "v1/conversations/c/commands/alive").json

        def metric(name):
            text = g.request("GET", "/metrics").body.decode()
            line = 'sandbox_egress_%s{runner="unix:%s",policy="packs"} ' \
                % (name, g.socket)
            return int(text.split(line)[1].split("\n")[0]) \
                if line in text else -1

        def written(name):
            return g.run("c", "cat ~/" + name)["stdout"]

        wait_for(lambda: " 200 " in written("open"), LONG, "an open tunnel")
        # a new worker asks for the counters at once
        g.reload()
        wait_for(lambda: metric("open") == 1, LONG, "the open tunnel's count")
        wait_for(lambda: metric("tunnels_total") >= 3, LONG, "tunnels")
        wait_for(lambda: metric("received_bytes_total") > 1000, LONG, "bytes")

        # the policy loses the name: what is open ends, the sandbox does not
        g.reload(http=packs("files.test", "other.test").replace(
            "https://index", "https://files"))
        wait_for(lambda: limits(g)["allow"] == ["files.test", "other.test"]
                 and limits(g)["inForce"], LONG, "the new table")
        wait_for(lambda: written("over"), LONG, "the tunnel's end")
        r = g.run("c", "curl -sS https://index.test/hello")
        check(r["exitCode"] != 0 and "403" in r["stderr"], "refused", r)
        same(r["sandboxId"], first["sandboxId"], "the sandbox")
        same(g.output("c", "curl -sS https://other.test/hello"), "hello\n")
        same(said()["state"], "running", "the command")

        # all of it is taken back, and given again
        g.reload(http="", location="")
        r = wait_for(lambda: (lambda r: r["exitCode"] and r)(
            g.run("c", "uv add tinyb")), LONG, "no network")
        check("the network is off" in r["stderr"], "what to do", r)
        same(limits(g), None)
        g.reload(http=packs("index.test"), location="sandbox_egress packs;")
        wait_for(lambda: (limits(g) or {}).get("inForce"), LONG, "in force")
        same(g.output("c", "uv add -q tinyb && python3 -c "
                      "'import tinya, tinyb; print(tinyb.answer)'"), "42\n")
        r = g.run("c", "true")
        same(r["sandboxId"], first["sandboxId"], "the sandbox")
        same(said()["state"], "running", "the command")

        # what operators see
        def status():
            return ctl(g, "status", "--socket", g.socket, "--key-file",
                       g.path("runner.key"))

        for line in ("egress.policy                packs\n",
                     "egress.inForce               yes\n",
                     "host.egress.packs            0 open, "):
            wait_for(lambda: line in status(), LONG, "sandboxctl's " + line)
        # without a runner it begins no container
        out = ctl(g, "doctor", "--runner", g.path("nowhere"))
        check('ok    network: policy "packs" is in force\n' in out, "doctor",
              out)
        wait_for(lambda: 'policy "packs", tunnel to index.test:443'
                 in g.runner_log, LONG, "a line of each tunnel")
        wait_for(lambda: "index.test:443 is not in policy" in g.runner_log,
                 LONG, "a line of a refusal")


@test("persistence/packages-survive egress/http: by tenant",
      seconds=280)
def by_tenant():
    names = "map $sandbox_tenant $network { default none; acme packs; }"
    with gateway(packs("index.test", "files.test") + names,
                 "sandbox_tenant_claim org; sandbox_egress $network;",
                 zone="1m idle=2s") as g:
        acme, other = token(org="acme"), token(org="other")
        wait_for(lambda: limits(g, token=acme)["inForce"], LONG, "in force")
        same(limits(g, token=other), None)

        r = g.run("c", "uv add tinya", token=other)
        check(r["exitCode"] != 0 and "the network is off" in r["stderr"],
              "without a policy", r)
        r = g.run("c", "curl -sS --noproxy '*' -m 5 https://%s/hello" % HOST,
                  token=other)
        check(r["exitCode"] != 0, "no way around", r)

        made = g.run("c", "uv add -q tinya", token=acme)
        same(made["exitCode"], 0, made)
        wait_for(lambda: g.status("c", token=acme)["state"] == "idle", LONG,
                 "an idle stop")
        same(g.output("c", "python3 -c 'import tinya; print(tinya.answer)'; "
                      "uv add -q tinyb && uv sync -q --locked && "
                      "python3 -c 'import tinyb'; curl -sS "
                      "https://files.test/hello", token=acme), "42\nhello\n")


main(start, stop)
