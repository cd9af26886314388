#!/usr/bin/env python3
"""Egress as nginx has it: which policy an operation names, when runners get
the table, what clients and operators are told.  Which configurations are wrong
is in config_matrix.py; what a sandbox reaches, in t/system."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import (MODULE, NGINX, TOP, Gateway, token,     # noqa: E402
                     wait_for)
from key_server import Authority                             # noqa: E402
from tap import check, main, same, test                      # noqa: E402

LONG = 120                              # what must come, on a busy machine
PYTHON = ("sandbox_egress_policy python { allow files.example.org "
          "index.example.org *.cdn.example.net; connections 7; bytes 5m; "
          "time 90s; package_index https://index.example.org/simple/; }")
GIT = "sandbox_egress_policy git { allow git.example.com; }"
EMPTY = "sandbox_egress_policy empty { }"


def number(name):
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def table(g, conversation="look", **options):
    """What the mock has of us."""
    return json.loads(g.output(conversation, "mock: policies", **options))


def limits(g, path="v1/limits", **options):
    return g.request("GET", path, **options).json["egress"]


def in_force(g, path="v1/limits"):
    wait_for(lambda: limits(g, path)["inForce"], LONG, "our table in force")


def names(g):
    return sorted(table(g)["policies"])


@test("egress/policy-of-an-operation", seconds=200)
def operations():
    """The id in the preamble, of all that ends at the agent, and only that."""
    inner = "sandbox on; sandbox_jwt_secret_file %s/jwt.key; sandbox_realm a;"
    g = Gateway(runner="mock", http=" ".join([PYTHON, GIT, EMPTY]),
                location="sandbox_egress python;")
    g.options["server"] = "".join(
        "location /%s/ { %s %s }" % (
            name, inner % g.dir, "sandbox_egress %s;" % name if name else "")
        for name in ("git", "empty", "none", "off")) \
        + "location /default/ { %s }" % (inner % g.dir)
    with g:
        in_force(g)
        g.output("c", "mock: stdout=a")
        same(g.request("PUT", "v1/conversations/c/fs/a.txt", "x").status, 201)
        same(g.request("GET", "v1/conversations/c/fs/a.txt").status, 200)
        g.request("GET", "v1/conversations/c/commands")
        g.request("DELETE", "v1/conversations/c/commands/nowhere")
        g.request("GET", "v1/conversations/c")
        got = table(g, "c")["preambles"]
        want = dict.fromkeys(["COMMAND", "FILE_WRITE", "FILE_READ", "HISTORY",
                              "CANCEL"], number("python"))
        want["STATUS"] = 0
        same({k: v for k, v in got.items() if k in want}, want, "preambles")

        for path, want in (("git", number("git")), ("empty", 0), ("none", 0),
                           ("off", 0), ("default", 0)):
            r = g.request("POST", "/%s/v1/conversations/c/commands" % path,
                          {"command": "show"})
            same(json.loads(r.json["stdout"])["preamble"]["egress"], want,
                 "policy in /%s/" % path)
        check(g.request("GET", "/empty/v1/limits").json["egress"] is None,
              "no names are no network")


@test("egress/table: canonical, at start, after a reload, after a restart",
      seconds=300)
def pushed():
    g = Gateway(runner="mock", http=" ".join([PYTHON, GIT, EMPTY]),
                location="sandbox_egress python;")
    with g:
        in_force(g)
        got = table(g)
        same(got["times"], 1, "tables at the start")
        same(sorted(got["policies"]), ["git", "python"], "policies")
        python = got["policies"]["python"]
        same(python, {
            "EGRESS_ID": number("python"), "EGRESS_NAME": "python",
            "EGRESS_HOST": ["*.cdn.example.net", "files.example.org",
                            "index.example.org"],
            "EGRESS_CONNECTIONS": 7, "EGRESS_BYTES": 5 << 20,
            "EGRESS_TIME_MS": 90000,
            "EGRESS_INDEX": "https://index.example.org/simple/",
            "certificates": [0, 0]}, "python")
        git = got["policies"]["git"]
        same((git["EGRESS_CONNECTIONS"], git["EGRESS_BYTES"],
              git["EGRESS_TIME_MS"]), (32, 2 << 30, 600000), "defaults")

        # the same in another order is the same
        other = PYTHON.replace("files.example.org index.example.org",
                               "index.example.org files.example.org")
        g.reload(http=" ".join([GIT, EMPTY, other]))
        in_force(g)
        same(table(g)["times"], 1, "tables after a reload without a change")

        g.reload(http=PYTHON)
        wait_for(lambda: names(g) == ["python"], LONG, "the table without git")
        same(table(g)["times"], 2, "tables after a change")

        # none at all takes back what the runner has
        g.reload(http="", location="")
        wait_for(lambda: names(g) == [], LONG, "an empty table")

        g.reload(http=" ".join([PYTHON, GIT]),
                 location="sandbox_egress git;")
        wait_for(lambda: names(g) == ["git", "python"], LONG, "both again")

        # a runner that knows nothing gets it by itself
        g.expected.append("[crit]")
        g.stop_runner(signal.SIGTERM)
        os.unlink(g.socket)
        g.start_runner()
        g.wait_ready(LONG)
        wait_for(lambda: names(g) == ["git", "python"], LONG,
                 "the table of a new runner")
        in_force(g)
        check("is it of the same release" not in g.error_log,
              "no fault is told", g.error_log)


@test("egress/table: of several reloads the last counts", seconds=200)
def reloads():
    g = Gateway(runner="mock", http=PYTHON, location="sandbox_egress python;")
    with g:
        in_force(g)
        for n in range(4):
            g.reload(http=PYTHON.replace("connections 7",
                                         "connections %d" % (10 + n)))
        wait_for(lambda: table(g)["policies"]["python"]["EGRESS_CONNECTIONS"]
                 == 13, LONG, "the last table")
        in_force(g)
        got = table(g)
        same(got["policies"]["python"]["EGRESS_CONNECTIONS"], 13, "it stays")
        check(got["times"] <= 5, "a leaving worker has sent its own", got)


@test("egress/table: 4 MiB with certificates; a runner that refuses",
      seconds=300)
def large():
    g = Gateway(runner="mock", ready=False)
    # a leak checker that looks through all of it takes longer at the end than
    # the master waits
    g.expected.append("exited on signal 9")
    with open(Authority().file) as f:
        one = f.read()
    count = 500 * 1024 // len(one)
    bundle = g.write("bundle.pem", "# our own\n" + one * count, 0o644)
    g.options["http"] = " ".join(
        "sandbox_egress_policy p%d { allow a%d.example.org; "
        "ca_certificate %s; }" % (n, n, bundle) for n in range(7))
    g.options["location"] = "sandbox_egress p3;"
    with g:
        g.wait_ready(LONG)
        in_force(g)
        got = table(g)["policies"]
        same(len(got), 7, "policies")
        same(got["p6"]["certificates"], [count, 0],
             "certificates, and nothing else")

        g.output("look", "mock: on=EGRESS,detail=Not%2520this.%20"
                 "error=bad_request")
        g.reload(http=PYTHON, location="sandbox_egress python;")
        wait_for(lambda: g.error_log.count("has not taken over the egress "
                                           "policies") > 0, LONG, "a line")
        check("Not this." in g.error_log, "the runner's own words",
              g.error_log[-2000:])
        same(limits(g)["inForce"], False, "in force")
        same(len(table(g)["policies"]), 7, "the old ones stay")
        # it is tried again, and told once
        g.output("look", "mock: on=EGRESS,")
        in_force(g)
        same(names(g), ["python"], "policies")
        same(g.error_log.count("has not taken over"), 1, "lines")


@test("egress/two-runners, each gets the table", seconds=200)
def two_runners():
    g = Gateway(runner="mock", http=PYTHON, location="sandbox_egress python;")
    other = Gateway(runner="mock")
    try:
        other.start_runner()
        g.options["server"] = (
            "location /other/ { sandbox on; sandbox_runner unix:%s; "
            "sandbox_runner_key %s; sandbox_egress python; sandbox_realm o;"
            "sandbox_jwt_secret_file %s/jwt.key; }"
            % (other.socket, other.path("runner.key"), g.dir))
        with g:
            in_force(g)
            in_force(g, "/other/v1/limits")
            r = g.request("POST", "/other/v1/conversations/c/commands",
                          {"command": "mock: policies"})
            same(list(json.loads(r.json["stdout"])["policies"]), ["python"],
                 "of the other runner")
    finally:
        other.stop(check=False)


@test("egress/by-tenant: a map of $sandbox_tenant, $sandbox_egress in the log",
      seconds=200)
def by_tenant():
    maps = """
        map $sandbox_tenant $pick {
            default         none;
            acme            python;
            "~^git-(?<x>.)" git;
            hollow          empty;
            direct          $sandbox_user;
            twice           $again;
        }
        map "$sandbox_tenant:$sandbox_user" $again {
            twice:bob       git;
            default         python;
        }
        log_format egress '$sandbox_tenant $sandbox_operation $sandbox_egress';
        """
    g = Gateway(runner="mock", http=PYTHON + GIT + EMPTY + maps,
                location="sandbox_tenant_claim org; sandbox_egress $pick;")
    g.options["server"] = (
        "access_log %s/logs/egress.log egress; location /plain/ { sandbox on; "
        "sandbox_jwt_secret_file %s/jwt.key; sandbox_tenant_claim org; "
        "sandbox_egress ${sandbox_tenant}; set $pick git; }" % (g.dir, g.dir))
    with g:
        def policy(org, path="/sandbox/", **claims):
            r = g.request("POST", path + "v1/conversations/c/commands",
                          {"command": "show"}, token(org=org, **claims))
            return json.loads(r.json["stdout"])["preamble"]["egress"]

        for org, user, want in (
                ("acme", "a", "python"), ("git-x", "a", "git"),
                ("other", "a", None), ("hollow", "a", None),
                ("direct", "git", "git"), ("direct", "python", "python"),
                ("twice", "bob", "git"), ("twice", "eve", "python")):
            same(policy(org, sub=user), number(want) if want else 0,
                 "%s of %s" % (user, org))
            got = limits(g, token=token(org=org, sub=user))
            same(got and got["policy"], want, "v1/limits of " + org)
        same(g.error_log.count("[error]"), 0, "errors")

        # what no policy is named after is told, but not each time: once in
        # ten seconds, by each worker
        begun = time.monotonic()
        for _ in range(20):
            same(policy("nobody", "/plain/"), 0, "an unknown policy")
        same(policy("direct", sub="<x>"), 0, "no name at all")
        same(policy("git", "/plain/"), number("git"), "a tenant's own")
        same(policy("none", "/plain/"), 0, "none is none")
        lines = [one for one in g.error_log.splitlines()
                 if "no such \"sandbox_egress_policy\"" in one]
        most = 2 + 2 * int((time.monotonic() - begun) / 10)
        check(1 <= len(lines) <= most, "lines of an unknown policy", lines)
        check("nobody" in lines[0] and "no network" in lines[0], "it is told",
              lines[0])
        check("<x>" not in g.error_log, "a token's words are not")

        g.request("GET", "/plain/health", token=None)
        g.request("GET", "/plain/v1/limits", token="bad")
        # of two workers, in any order
        for line in ("git command.run git", "none command.run -",
                     "- health -", "- limits -"):
            wait_for(lambda line=line: line in g.read("logs/egress.log")
                     .splitlines(), LONG, line + " in the log")
        log = g.read("logs/egress.log").splitlines()
        same(log.count("git command.run git"), 1, "with a policy")
        same(log.count("none command.run -"), 1, "without")
        check("- health -" in log, "health", log[-5:])
        same(log.count("- limits -"), 1, "refused")


@test("egress/client: what it sends has no say in its policy", seconds=200)
def no_choice():
    """Variables that were set or looked at before, headers, arguments."""
    maps = """
        map $sandbox_tenant $pick { default none; acme $more; }
        map $sandbox_user $more { default git; }
        """
    g = Gateway(runner="mock", http=PYTHON + GIT + maps, location=(
        "sandbox_tenant_claim org; sandbox_egress $pick; "
        "set $more $http_x_policy; set $pick $arg_policy; "
        "add_header X-Seen \"$pick $more\" always;"))
    with g:
        for org, want in (("acme", number("git")), ("other", 0)):
            r = g.request("POST", "v1/conversations/c/commands?policy=python",
                          {"command": "show"}, token(org=org),
                          headers={"X-Policy": "python"})
            same(json.loads(r.json["stdout"])["preamble"]["egress"], want,
                 "policy of " + org)


@test("egress/limits-and-metrics", seconds=200)
def told():
    many = "sandbox_egress_policy many { allow %s; }" % " ".join(
        "h%03d.example.org" % n for n in range(256))
    g = Gateway(runner="mock", http=PYTHON + GIT + many,
                location="sandbox_egress python;",
                server="location = /metrics { sandbox_metrics; } "
                "location /many/ { sandbox on; sandbox_egress many; "
                "sandbox_jwt_secret_file DIR/jwt.key; }")
    g.options["server"] = g.options["server"].replace("DIR", g.dir)
    g.described = True
    with g:
        in_force(g)
        same(limits(g), {
            "policy": "python", "inForce": True, "enforced": "hard",
            "port": 443,
            "allow": ["*.cdn.example.net", "files.example.org",
                      "index.example.org"], "allowed": 3, "connections": 7,
            "totalBytes": 5 << 20, "tunnelSeconds": 90,
            "packageIndex": "https://index.example.org/simple/"}, "limits")
        got = limits(g, "/many/v1/limits")
        same((len(got["allow"]), got["allowed"], got["packageIndex"]),
             (100, 256, None), "many names")

        # a new worker asks at once, an old one within five seconds
        g.output("c", "mock: counted=python,1,22,3,4,500,6000")
        g.reload()

        def metrics():
            return g.request("GET", "/metrics").body.decode()

        wait_for(lambda: 'policy="python"} 22' in metrics(), LONG,
                 "the counters of a PING")
        text = metrics()
        runner = "unix:" + g.socket
        for name, value in (("open", 1), ("tunnels_total", 22),
                            ("refused_total", 3), ("failed_total", 4),
                            ("sent_bytes_total", 500),
                            ("received_bytes_total", 6000)):
            line = 'sandbox_egress_%s{runner="%s",policy="python"} %d\n' \
                % (name, runner, value)
            check(line in text, "no line of", name, text[-3000:])
            check('sandbox_egress_%s{runner="%s",policy="git"} 0\n'
                  % (name, runner) in text, "no line of git", name)
        check('sandbox_egress_in_force{runner="%s"} 1\n' % runner in text,
              "in force", text[-3000:])
        for family in set(one.split("{")[0].split(" ")[0]
                          for one in text.splitlines()
                          if one.startswith("sandbox_egress")):
            same(text.count("# TYPE %s " % family), 1, "type of " + family)

        # a runner that is gone has nothing in force
        g.expected.append("[crit]")
        g.stop_runner(signal.SIGTERM)
        g.reload()
        wait_for(lambda: not limits(g)["inForce"], LONG, "not in force")
        check('sandbox_egress_in_force{runner="%s"} 0\n' % runner
              in metrics(), "not in force")


@test("egress/docs: its examples are right")
def examples():
    with open(TOP + "/docs/egress.md") as f:
        text = f.read()
    blocks = re.findall(r"^```nginx\n(.*?)^```$", text, re.M | re.S)
    check(len(blocks) >= 3, "examples", len(blocks))
    with open(TOP + "/conf.d/sandbox.conf") as f:
        shown = re.search(r"^#sandbox_egress_policy.*?^#}$", f.read(),
                          re.M | re.S).group(0)
    blocks.append("".join(one[1:] for one in shown.splitlines(True)))
    folder = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
    try:
        os.mkdir(folder + "/tmp")
        ca = shutil.copy(Authority().file, folder + "/ca.pem")
        for name, data in (("runner.key", "5a" * 32), ("secret", "s" * 32)):
            with open(os.path.join(folder, name), "w") as f:
                f.write(data)
            os.chmod(f.name, 0o600)
        policies = ""
        for number, block in enumerate(blocks):
            block = re.sub(r"^http \{\n(.*)^\}$", r"\1", block, flags=re.M | re.S)
            block = re.sub(r"/etc/nginx/[\w-]+\.pem", ca, block)
            block = block.replace("...", "").replace(
                "server {", "server { listen unix:%s/s%d;" % (folder, number))
            policies += "".join(re.findall(r"^ *sandbox_egress_policy mirror "
                                           r".*?^ *\}$", block, re.M | re.S))
            if "sandbox_egress_policy" not in block:
                block += PYTHON + policies
            conf = folder + "/nginx.conf"
            with open(conf, "w") as f:
                f.write("load_module %s; pid %s/pid; error_log stderr warn; "
                        "events { } http { access_log off; %s sandbox_runner "
                        "unix:%s/r; sandbox_runner_key %s/runner.key; "
                        "sandbox_jwt_secret_file %s/secret;\n%s\n}"
                        % (MODULE, folder, "".join(
                            "%s_temp_path %s/tmp/%s; " % (n, folder, n)
                            for n in ("client_body", "proxy", "fastcgi",
                                      "uwsgi", "scgi")),
                           folder, folder, folder, block))
            done = subprocess.run(
                [NGINX, "-t", "-c", conf, "-e", "stderr"], timeout=LONG,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            out = done.stdout.decode()
            check(done.returncode == 0 and not re.search(
                r"\[(warn|error|alert|crit|emerg)\]", out),
                  "an example is refused:", out, block)
    finally:
        shutil.rmtree(folder)


main()
