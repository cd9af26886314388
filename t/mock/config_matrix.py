#!/usr/bin/env python3
"""admin/config-mistakes: a matrix of configurations, made from one table of
the directives: what is right is accepted on each level without a word; what
is wrong is refused, and the message names directive, value, file and line.
The table is held against the module's, docs/directives.md and conf.d."""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import jose                                                  # noqa: E402
from gateway import MODULE, NGINX, SLOW, TOP, Gateway        # noqa: E402
from key_server import Authority                          # noqa: E402
from tap import check, main, same, test                      # noqa: E402

ANY = ("http", "server", "location")
SIZES = ["0", "-1", "", "x", "1.5m", "10s", "1k k", "99999999999999999999g"]
TIMES = ["-1", "", "x", "1.5s", "10k", "1s s", "99999999999999999999s"]
NUMBERS = ["0", "-1", "", "x", "10k", "1.5", "0x20", "99999999999999999999"]
PATHS = ["a..b", ".a", "a.", ".", "", r"a\x", "a.b.c.d.e.f.g.h.i", "x" * 256]
WORDS = ["", ('"a b"', "a b"), 'a"b', r"a\b", "a\x7fb",
         ("x" * 3000, "3000")]
FILES = ["", "DIR/nowhere", "DIR", "DIR/empty", "DIR/garbage"]
PLAIN = r'[^\s;{}"\\]+'


class Directive:
    """default: as docs and conf.d have it, None where there is none.  Wrong
    values are (arguments, what the message must say of them): the last of the
    arguments where there is no second, only the directive where it is None,
    for what may be a secret.  Lists of right ones are as long as each other
    where two directives are compared with one another.  A block is its name
    and what is in it."""

    def __init__(self, default, good, bad, contexts=ANY, most=1, often=False,
                 block=False):
        self.block = block
        self.default = default
        self.good = good
        self.bad = [b if isinstance(b, tuple) else (b, last(b)) for b in bad]
        self.contexts = contexts
        self.most = most                # arguments; None: any number
        self.often = often


def last(arguments):
    return arguments if re.fullmatch(r"\S* \S*", arguments) is None \
        else arguments.split(" ")[-1]


def cap(default, good, bad):
    """A number with a unit; the first argument is what is wrong."""
    return Directive(default, good, [b for b in bad if " " not in b])


T = {
    "sandbox": Directive("off", ["on", "env"],
                         ["ON", "yes", "true", "", "1"]),
    "sandbox_zone": Directive(
        "sandbox:1m running=10 queue=200 idle=10m",
        ["sandbox:128k", "z:1m max=1 per_tenant=1 running=1 queue=0 idle=1s",
         "z:16m max=100000 per_tenant=100000 running=100000 queue=100000 "
         "idle=30d expire=3650d", "z:2m idle=1h expire=1h"],
        ["z", "z:", ":1m", "z:x", "z:-1m", "z:64k", "z:127k", "",
         "z:1m max=0", "z:1m max=x", "z:1m max=100001", "z:1m per_tenant=0",
         "z:1m running=0", "z:1m queue=-1", "z:1m queue=1k", "z:1m idle=0",
         "z:1m idle=31d", "z:1m expire=0", "z:1m expire=9m", "z:1m max",
         "z:1m colour=red", "z:1m MAX=1", ("z:1m max=1 max=2", "max=2"),
         ("z:1m max=3 idle=1m max=3", "max=3"),
         ("z:1m idle=1h expire=59m", "expire=59m")],
        contexts=("http",), most=None),
    "sandbox_backend": Directive("local", ["local", "dagger"],
                                 ["docker", "", "Local", "Dagger"]),
    "sandbox_dagger": Directive(
        None, ["tcp://127.0.0.1:1234",
               "unix:///run/dagger/engine.sock move=1s isolated",
               "tcp://10.0.0.1:1 resolver=off tcp://[fe80::1]:65535 move=1d",
               "move=30s resolver=10.87.0.1:53 tcp://localhost:1235 isolated"],
        ["", "127.0.0.1:1234", "tcp://", "tcp://:1234", "tcp://127.0.0.1",
         "tcp://127.0.0.1:0", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:1x",
         "tcp://127.0.0.1:1234/a", "tcp://127.0.0.1:1?a", "tcp://unix:1",
         "tcp://unix:/run/a.sock", "tcp://u@127.0.0.1:1", "tls://127.0.0.1:1",
         "unix://run/a.sock", "unix:///", "unix:/run/a.sock",
         "unix:///run/a:b", "unix:///" + "x" * 108,
         "tcp://" + "x" * 120 + ":1", ("isolated", "no engine"),
         ("tcp://127.0.0.1:1 ISOLATED", "ISOLATED"),
         ("tcp://127.0.0.1:1 isolated isolated", "isolated"),
         "tcp://127.0.0.1:1 move=", "tcp://127.0.0.1:1 move=0",
         "tcp://127.0.0.1:1 move=999ms", "tcp://127.0.0.1:1 move=25h",
         ("tcp://127.0.0.1:1 move=1s move=1s", "move=1s"),
         "tcp://127.0.0.1:1 resolver=", "tcp://127.0.0.1:1 resolver=a.example",
         "tcp://127.0.0.1:1 resolver=10.0.0.1:65536",
         "tcp://127.0.0.1:1 resolver=10.0.0.1/8",
         ("tcp://127.0.0.1:1 colour=red", "colour=red"),
         ("tcp://10.0.0.1:1 tcp://10.0.0.2:1 tcp://10.0.0.1:1",
          "tcp://10.0.0.1:1")], most=None, often=True),
    "sandbox_dagger_image": Directive(
        None, ["127.0.0.1:5000/sandbox DIR/digest",
               "images.example/a/b@sha256:" + "5a" * 32],
        ["", "sandbox", "127.0.0.1:5000/sandbox", "127.0.0.1:5000/sandbox:1",
         "a/b@sha256:5a", "a/b@sha512:" + "5a" * 32,
         "a/b@sha256:" + "5A" * 32, "sandbox@sha256:" + "5a" * 32,
         'a/"b"@sha256:' + "5a" * 32, "/a@sha256:" + "5a" * 32,
         "a//b@sha256:" + "5a" * 32, "x" * 256 + "/a@sha256:" + "5a" * 32,
         ("sandbox DIR/digest", "sandbox"), ("a/ DIR/digest", "a/"),
         ("a/b@sha256:" + "5a" * 32 + " DIR/digest", "5a5a"),
         "a/b DIR/nowhere", "a/b DIR", "a/b DIR/empty", "a/b DIR/garbage",
         "a/b DIR/long", "a/b DIR/runner.key"], most=2),
    "sandbox_runner": Directive(
        None, ["unix:DIR/r.sock", "unix:/nowhere/at/all"],
        ["", "unix:", "unix:/", "unix:r.sock", "/run/s", "127.0.0.1:1",
         ("unix:DIR/empty", "DIR/empty"), ("unix:DIR", "DIR"),
         ("unix:/" + "x" * 107, "108"), ("unix:/" + "x" * 3000, "3001")]),
    "sandbox_runner_key": Directive(
        None, ["DIR/runner.key"], FILES + ["DIR/hex.key", "DIR/long"]),
    "sandbox_connect_timeout": cap("5s", ["1ms", "10m", "5s"],
                                   TIMES + ["0", "601s", "11m"]),
    "sandbox_send_timeout": cap("5m", ["1ms", "10m", "5m"],
                                TIMES + ["0", "601s", "11m"]),
    "sandbox_jwt_key_file": Directive(
        None, ["DIR/rsa.pem", "DIR/ec.pem kid=a", "DIR/rsa.pem kid=" +
               "x" * 255],
        FILES + [("DIR/private.pem", "private.pem"), "DIR/secret",
                 "DIR/rsa.pem kid=", "DIR/rsa.pem kid", "DIR/rsa.pem x",
                 "DIR/rsa.pem format=raw",
                 ("DIR/rsa.pem kid=" + "x" * 256, "kid=" + "x" * 256)],
        most=2, often=True),
    "sandbox_jwt_secret_file": Directive(
        None, ["DIR/secret", "DIR/secret format=raw kid=s",
               "DIR/runner.key format=hex kid=h"],
        ["", "DIR/nowhere", "DIR", "DIR/empty", "DIR/short", "DIR/rsa.pem",
         "DIR/set.json", "DIR/secret kid=", "DIR/secret what=raw",
         ("DIR/secret format=base32", "base32"),
         ("DIR/secret format=hex", "DIR/secret"),
         ("DIR/secret format=raw format=raw", "format=raw"),
         ("DIR/secret kid=a kid=b", "kid=b")], most=3, often=True),
    "sandbox_jwks_file": Directive(
        None, ["DIR/set.json"], FILES + ["DIR/rsa.pem", "DIR/none.json"],
        often=True),
    "sandbox_jwks_url": Directive(
        None, ["https://id.example/jwks.json ca=DIR/ca.pem",
               "http://127.0.0.1:1/a interval=1s timeout=100ms cooldown=1s",
               "http://localhost/b?c=d interval=1d timeout=60s cooldown=1h",
               "http://[::1]:8080/", "http://id.example/ insecure"],
        [("", "0 bytes"), ("https://", None), ("id.example/jwks", None),
         ("http:///a", None), ("ftp://id.example/", None),
         ("https://u:geheim@id.example/", None),
         ("https://id.example/#geheim", None),
         ("https://id.example:0/geheim", None),
         ("https://id.example:65536/geheim", None),
         ("https://id.example/a?geheim b", None),
         ("https://id.example/" + "geheim" * 400, "bytes"),
         ("http://id.example/a?geheim", "http://id.example/a"),
         ("https://id.example/a insecure", "insecure"),
         ("http://localhost/a ca=DIR/ca.pem", "ca="),
         ("https://id.example/ ca=DIR/nowhere", "DIR/nowhere"),
         ("https://id.example/ ca=DIR/garbage", "DIR/garbage"),
         "https://id.example/ ca=", "http://[::1]/ interval=0",
         "http://[::1]/ interval=25h", "http://[::1]/ timeout=99ms",
         "http://[::1]/ timeout=61s", "http://[::1]/ cooldown=500ms",
         "http://[::1]/ cooldown=61m", "http://[::1]/ cooldown=",
         "http://[::1]/ ttl=1m",
         ("http://[::1]/ insecure insecure", "insecure"),
         ("http://[::1]/ timeout=1s interval=5s timeout=2s", "timeout=2s")],
        most=None, often=True),
    "sandbox_jwt_algorithms": Directive(
        None, ["HS256", "HS256 HS384 HS512 RS256 RS384 RS512", "ES256 HS256"],
        ["none", "", "hs256", "HS257", "HS2560", ("HS256 x", "x"),
         ("RS256 HS256 RS256", "RS256")], most=None),
    "sandbox_jwt_issuer": Directive(
        None, ["https://id.example/", "x", "y" * 1024], WORDS),
    "sandbox_jwt_audience": Directive(
        None, ["one", "a b c d e f g h i j k l m n o p"],
        WORDS + [("a b c d e f g h i j k l m n o p q", "17")], most=None),
    "sandbox_jwt_leeway": cap("0", ["0", "1s", "60s", "1m"],
                              TIMES + ["61s", "2m", "500ms", "1s500ms"]),
    "sandbox_permission": Directive("sandbox:execute", ["run", "a:b.c/d"],
                                    WORDS),
    "sandbox_permission_read": Directive(
        None, ["sandbox:read", "look"], WORDS),
    "sandbox_permission_claim": Directive(
        "permissions scope", ["a", "a.b.c.d.e.f.g.h", "a b c d e f g h",
                              r'"https://x\.example/y"'],
        PATHS + [("a b..c", "b..c"), ("a b c d e f g h i", "9")], most=None),
    "sandbox_tenant_claim": Directive(
        None, ["org", "a.b", r'"a\.b"'], PATHS),
    "sandbox_conversation_claim": Directive(
        None, ["chat", "a.b", r'"a\.b"'], PATHS),
    "sandbox_realm": Directive(None, ["house", "a.b", "x" * 1024], WORDS),
    "sandbox_store": Directive(
        "off", ["off", "DIR/store", "DIR/store/", "DIR/s2 files=1 size=1k "
                "tenant_size=1k", "DIR/s3 files=10000 size=1g "
                "tenant_size=1024000g"],
        ["", "/", "store", "DIR/empty", "DIR/no/where", ("/" + "x" * 3000, "3001"),
         "DIR/store files=0", "DIR/store files=10001", "DIR/store files=x",
         "DIR/store size=1023", "DIR/store size=x", "DIR/store what",
         "DIR/store tenant_size=0", "off files=1", "DIR/store size=11g",
         ("DIR/store size=2k tenant_size=1k", "tenant_size=1k"),
         ("DIR/store files=2 files=2", "files=2"),
         ("DIR/store size=1k files=2 size=3k", "size=3k")], most=4),
    "sandbox_skills": Directive(
        "off", ["off", "DIR/skills", "DIR/skills/"],
        ["", "/", "skills", "DIR/nowhere", "DIR/empty",
                ("/" + "x" * 3000, "3001")]),
    "sandbox_mcp_origins": Directive(
        "none", ["none", "https://chat.example", "http://lan:3000 "
                 "https://[::1]:8443"],
        ["", "*", "null", "chat.example", "https://", "https://chat.example/",
         "https://chat.example/a",
         "https://u@chat.example", "https://chat.example:x",
         ("https://a.example https://a.example", "https://a.example"),
         ("https://a.example none", "none")], most=None),
    "sandbox_mcp_conversation": Directive(
        "header", ["header", "argument"], ["", "both", "Header"]),
    "sandbox_egress_policy": Directive(
        None, [name + " { %s }" % lines for name, lines in (
            ("a", ""), ("B_1.-", "allow a.example *.b-c.example x2.example;"),
            ("c", "allow xn--bcher-kva.example; connections 1; bytes 1k; "
             "time 1s; package_index https://xn--bcher-kva.example;"),
            ("d", "package_index https://a.b.example:443/simple/; "
             "connections 1024; bytes 1024g; time 1d; allow *.b.example; "
             "ca_certificate DIR/ca.pem;"),
            ("x" * 64, "allow %s;" % " ".join(
                "h%d.example.org" % n for n in range(256))))],
        [('"" { }', ""), ("none { }", "none"), ("off { }", "off"),
         ("x/y { }", "x/y"), ("$a { }", "$a"), ("x" * 65 + " { }", "x" * 65)]
        + [("p { %s %s; }" % (line, quoted_value), value)
           for line, values in (
               ("allow", ["A.example", "a.example.", ".example", "a..example",
                          "-a.example", "a-.example", "localhost", "a_b.example",
                          "*", "*.", "*.example", "*example.org", "a.*.example",
                          "**.example.org", "127.0.0.1", "127.1", "2130706433",
                          "0x7f000001", "0x7f.1", "0177.0.0.1", "1.2.3.4.5",
                          "a.0x", "a.example.1", "[::1]", "::1",
                          "a.example:443", "https://a.example", "a.example/x",
                          "b\x01.example", "a b.example", "",
                          "x" * 64 + ".example",
                          ".".join(["x" * 50] * 5) + ".ex"]),
               ("connections", ["0", "-1", "x", "1.5", "1025"]),
               ("bytes", ["0", "", "10s", "1023", "1025g"]),
               ("time", ["0", "x", "10k", "999ms", "25h"]),
               ("package_index", [
                   "", "https://", "http://a.example/", "a.example/simple/",
                   "https:///simple/", "https://127.0.0.1/",
                   "https://*.example.org/", "https://a.example:8443/",
                   "https://a.example:44/", "https://a.example:4433/",
                   "https://A.example/", "https://a.example/?x",
                   "https://a.example/#x", "https://u@a.example/",
                   "https://a.example@b.example/", "https://a.example/a b"]),
               ("ca_certificate", ["", "DIR/nowhere", "DIR", "DIR/empty",
                                   "DIR/garbage", "DIR/private.pem",
                                   "DIR/rsa.pem", "DIR/half.pem",
                                   "DIR/both.pem"]))
           for value in values
           for quoted_value in [value if re.fullmatch(PLAIN, value)
                                else '"%s"' % value]]
        + [("p { package_index https://a.example/%s; }" % ("x" * 1010), "xxx"),
           ("p { allow a.example a.example; }", "a.example"),
           ("p { allow a.example; allow a.example; }", "a.example"),
           ("p { allow %s; }" % " ".join(
               "h%d.example.org" % n for n in range(257)), "h256.example.org"),
           ("p { allow; }", "allow"), ("p { connections 1 2; }", "connections"),
           ("p { connections 1; connections 1; }", "connections"),
           ("p { bytes 1m; bytes 1m; }", "bytes"),
           ("p { time 1m; time 1m; }", "time"),
           ("p { ca_certificate DIR/ca.pem; ca_certificate DIR/ca.pem; }",
            "ca_certificate"),
           ("p { allow a.example; package_index https://a.example; "
            "package_index https://a.example; }", "package_index"),
           ("p { allow b.example *.a.example; "
            "package_index https://a.example/x/; }", "https://a.example/x/"),
           ("p { package_index https://a.example/; }", "https://a.example/"),
           ("p { deny a.example; }", "deny"), ("p { a.example; }", "a.example")],
        contexts=("http",), often=True, block=True),
    "sandbox_egress": Directive(
        "none", ["none", "off", "$sandbox_tenant", "${sandbox_user}",
                 "$p_map"],
        ["", "nowhere", "x/y", "$", "$a-b", "$nowhere", "$p_set", "$p_geo",
         "$p_client", "$p_client_value", "$p_client_key", "$p_client_again",
         "$p_client_regex", "$p_hosts", "$p_unknown", "$p_round",
         "$http_x_policy", "$arg_policy", "$cookie_policy", "$remote_addr",
         "$uri", "$sandbox_id", "$sandbox_operation", "$sandbox_egress",
         "$sandbox_command_id", "$1", "a$sandbox_tenant", ('"a b"', "a b")]),
    "sandbox_metrics": Directive(None, [""], [], contexts=("location",),
                                 most=0),
    "sandbox_cpu_time": cap("30s", ["1s", "1d", "30s"],
                            TIMES + ["0", "999ms", "25h"]),
    "sandbox_wall_time": cap("120s", ["1s", "1d", "120s"],
                             TIMES + ["0", "999ms", "25h"]),
    "sandbox_background_time": cap("10m", ["1s", "1d", "10m"],
                                   TIMES + ["0", "999ms", "25h"]),
    "sandbox_memory": cap("1g", ["32m", "1024g", "1g"],
                          SIZES + ["31m", "1025g"]),
    "sandbox_base": Directive(
        "default", ["default", "data-science_3.2", "x" * 64],
        ["", "a b", "a/b", "a=b", "a:b", ("x" * 65, "x" * 64)]),
    "sandbox_disk": cap("1g", ["32m", "1024g", "1g"],
                        SIZES + ["31m", "1025g"]),
    "sandbox_output": cap("256k", ["1k", "4m", "256k"],
                          SIZES + ["1023", "5m"]),
    "sandbox_output_total": cap("1g", ["1k", "1024g", "1g"],
                                SIZES + ["1023", "1025g"]),
    "sandbox_file_size": cap("16m", ["1k", "4g", "16m"],
                             SIZES + ["1023", "5g"]),
    "sandbox_command_size": cap("256k", ["1k", "512k", "256k"],
                                SIZES + ["1023", "513k"]),
    "sandbox_processes": cap("256", ["8", "65536", "256"],
                             NUMBERS + ["7", "65537"]),
    "sandbox_open_files": cap("1024", ["16", "1048576", "1024"],
                              NUMBERS + ["15", "1048577"]),
    "sandbox_pending": cap("10", ["1", "1000", "10"], NUMBERS + ["1001"]),
}

# of v1/limits, with the factor of its unit

LIMITS = {
    "sandbox_cpu_time": ("cpuSeconds", "time"),
    "sandbox_wall_time": ("timeoutSeconds", "time"),
    "sandbox_background_time": ("backgroundSeconds", "time"),
    "sandbox_memory": ("memoryBytes", "size"),
    "sandbox_disk": ("diskBytes", "size"),
    "sandbox_output": ("outputBytes", "size"),
    "sandbox_output_total": ("outputTotalBytes", "size"),
    "sandbox_file_size": ("fileBytes", "size"),
    "sandbox_command_size": ("commandBytes", "size"),
    "sandbox_processes": ("processes", "number"),
    "sandbox_open_files": ("openFiles", "number"),
    "sandbox_pending": ("pending", "number"),
}

# maps and the like for "sandbox_egress"

VARIABLES = """
map $sandbox_tenant $p_map { default none; a off; "~^b(.)" $p_inner; c ""; }
map "$sandbox_user $sandbox_tenant" $p_inner { default $sandbox_user; }
map $http_x $p_client { default none; }
map $sandbox_tenant $p_client_value { default none; a $http_x; }
map $sandbox_tenant$arg_x $p_client_key { default none; }
map $sandbox_tenant $p_client_again { default $p_client; }
map $sandbox_tenant $p_client_regex { default none; "~^a" "x${cookie_a}"; }
map $sandbox_tenant $p_hosts { hostnames; default none; *.example none; }
map $sandbox_tenant $p_unknown { default none; a nowhere; }
map $sandbox_tenant $p_round { default $p_round; }
geo $p_geo { default none; }
""".strip().split("\n")

NEEDED = ["sandbox_zone", "sandbox_runner", "sandbox_runner_key",
          "sandbox_dagger_image",
          "sandbox_jwt_secret_file", "sandbox"]
folder = None


def start():
    global folder
    folder = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
    os.chmod(folder, 0o711)
    rsa, ec = jose.Key("RS256"), jose.Key("ES256")
    files = {
        "runner.key": "5a" * 32 + "\n", "secret": b"\xff" * 64,
        "digest": "sha256:" + "5a" * 32 + "\n",
        "hex.key": "5a" * 31, "long": "5a" * 600, "empty": "",
        "short": "x" * 31, "garbage": "this is no key at all, but as long\n",
        "none.json": '{"keys":[]}', "rsa.pem": rsa.public,
        "ec.pem": ec.public, "private.pem": rsa.private,
        "set.json": jose.jwks(jose.Key("HS256", kid="set"), rsa),
    }
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
        os.chmod(os.path.join(folder, name), 0o600)
    with open(Authority().file) as f:
        one = f.read()
    for name, data in (
            ("ca.pem", one), ("three.pem", "a comment\n" + one * 3),
            ("large.pem", one * (500 * 1024 // len(one))),
            ("half.pem", one + one[:len(one) // 2]),
            ("both.pem", one + ec.private)):
        with open(os.path.join(folder, name), "w") as f:
            f.write(data)
    for name in ("skills", "tmp"):
        os.mkdir(os.path.join(folder, name), 0o755)


def stop():
    shutil.rmtree(folder, ignore_errors=True)


def quoted(arguments):
    """One argument that nginx would not take as it is; lists as they are."""
    if arguments == "" or re.fullmatch(r'".*"', arguments):
        return arguments or '""'
    if all(re.fullmatch(PLAIN, a) for a in arguments.split(" ")):
        return arguments
    return '"%s"' % re.sub(r'(["\\])', r"\\\1", arguments)


def line(name, arguments):
    if T[name].block:
        return "%s %s" % (name, arguments)
    if T[name].most == 0:
        return "%s %s;" % (name, arguments) if arguments else name + ";"
    return "%s %s;" % (name, quoted(arguments))


def environment(number):
    """To look for leaks takes longer than all else: of every tenth."""
    env = dict(os.environ, ARCHESTRA_CODE_RUNTIME_ENABLED="true")
    if number % 10:
        env["ASAN_OPTIONS"] = "%s:detect_leaks=0" % env.get(
            "ASAN_OPTIONS", "detect_odr_violation=0")
    return env


class Case:
    """A configuration; `mark` is the line that is wrong, `says` what of it
    the message must name; none of `hides` may be in it."""

    def __init__(self, name, lines, mark=None, says=(), hides=()):
        self.name, self.mark = name, mark
        self.lines, self.says, self.hides = lines, says, hides

    def run(self, number):
        path = "%s/%d.conf" % (folder, number)
        text = "\n".join(self.lines) + "\n"
        # "nginx -t" binds it, and removes it: each its own
        text = text.replace("DIR/n.sock", "DIR/%d.sock" % number)
        text = text.replace("DIR", folder)
        with open(path, "w") as f:
            f.write(text)
        done = subprocess.run(
            [NGINX, "-t", "-c", path, "-e", "stderr"], timeout=300 * SLOW,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(number))
        wrong = self.judge(done.returncode, done.stdout.decode("latin-1"),
                           path)
        os.unlink(path)
        if wrong:
            return "%s: %s\n%s" % (self.name, wrong, done.stdout[-1500:])
        return None

    def judge(self, status, out, path):
        # the leak checker itself fails now and then
        if re.search(r"ERROR: \w+Sanitizer|runtime error:", out):
            return "a report of the sanitizer"
        if self.mark is None:
            if status != 0:
                return "refused, status %d" % status
            if re.search(r"\[(warn|error|alert|crit|emerg)\]", out):
                return "accepted, but not without a word"
            return None
        if status != 1:
            return "accepted, or ended badly: status %d" % status
        lines = [one for one in out.splitlines() if "[emerg]" in one]
        if len(lines) != 1:
            return "%d messages" % len(lines)
        where = " in %s:%d" % (path, 1 + self.lines.index(self.mark))
        if not lines[0].endswith(where):
            return "not told with its line, \"%s\"" % where
        for what in self.says:
            what = what.replace("DIR", folder)
            if what not in lines[0]:
                return "the message does not name \"%s\"" % what[:100]
        for what in self.hides:
            if what in out:
                return "the message tells \"%s\"" % what
        return None


def conf(http=(), server=(), location=(), main=(), events=(), nested=(),
         more=(), without=()):
    """Lines; what is needed stands in http, but where it is given."""
    given = [one.split()[0].rstrip(";")
             for part in (http, server, location) for one in part]
    keys = any(one.startswith(("sandbox_jwt_key", "sandbox_jwt_secret",
                               "sandbox_jwks")) for one in given)
    base = []
    for name, values in (("sandbox_zone", "z:1m"),
                         ("sandbox_runner", "unix:DIR/r.sock"),
                         ("sandbox_runner_key", "DIR/runner.key"),
                         ("sandbox_dagger_image", "a/b DIR/digest"),
                         ("sandbox_jwt_secret_file", "DIR/secret")):
        if name not in given and name not in without \
                and not (keys and name.startswith("sandbox_jwt")):
            base.append("    " + line(name, values))
    on = [] if "sandbox" in given + list(without) else [
        "            sandbox on;"]
    return (["load_module %s;" % MODULE, "pid DIR/pid;",
             "error_log stderr warn;", "env ARCHESTRA_CODE_RUNTIME_ENABLED;"]
            + list(main)
            + ["events {"] + list(events)
            + ["}", "http {", "    access_log off;"]
            + ["    %s_temp_path DIR/tmp/%s;" % (p, p) for p in (
                "client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
            + base + ["    " + one for one in VARIABLES]
            + ["    " + one for one in http]
            + ["    server {", "        listen unix:DIR/n.sock;",
               "        set $p_set none;"]
            + ["        " + one for one in server]
            + ["        location /s/ {"] + on
            + ["            " + one for one in location]
            + ["            location /s/n/ {"]
            + ["                " + one for one in nested]
            + ["            }", "        }", "    }"]
            + list(more) + ["}"])


INDENT = {"http": 4, "server": 8, "location": 12}


def at(context, lines, **others):
    others.setdefault(context, [])
    others[context] = list(others[context]) + list(lines)
    return conf(**others)


def judged(cases):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        results = pool.map(lambda pair: pair[1].run(pair[0]),
                           enumerate(cases))
        wrong = [r for r in results if r]
    check(not wrong, "%d of %d configurations:\n%s"
          % (len(wrong), len(cases), "\n".join(wrong[:8])))
    print("# %d configurations" % len(cases))


@test("admin/config-mistakes: a matrix: each wrong value of each directive",
      seconds=900)
def wrong_values():
    cases = []
    for name, d in T.items():
        for n, (arguments, names) in enumerate(d.bad):
            context = d.contexts[n % len(d.contexts)]
            text = line(name, arguments)
            hides = []
            if names is None:
                names, hides = "", ["geheim"]
            mark = " " * INDENT[context] + text
            says = [name, names]
            cases.append(Case("%s in %s" % (text[:90], context),
                              at(context, [text]), mark, says, hides))
    judged(cases)


@test("admin/config-mistakes: a matrix: number of values, twice, wrong place",
      seconds=900)
def wrong_places():
    cases = []
    for n, (name, d) in enumerate(T.items()):
        context = d.contexts[n % len(d.contexts)]
        one = line(name, d.good[0])
        if d.most != 0:
            text = name + (" { }" if d.block else ";")
            cases.append(Case(text, at(context, [text]),
                              " " * INDENT[context] + text,
                              [name, "number of arguments"]))
        if d.most is not None:
            text = "%s %s%s" % (name, " ".join(["x"] * (d.most + 1)),
                                " { }" if d.block else ";")
            says = [name, "number of arguments"]
            cases.append(Case(text, at(context, [text]),
                              " " * INDENT[context] + text, says))
        for context in d.contexts:
            if d.often:
                break
            again = " %s" % one
            cases.append(Case("%s twice in %s" % (name, context),
                              at(context, [one, again]),
                              " " * INDENT[context] + again,
                              [name, "is duplicate"]))
        places = {
            "main": conf(main=[one]),
            "events": conf(events=[one]),
            "upstream": conf(http=["upstream u {", one,
                                   "server 127.0.0.1:1; }"]),
            "if": conf(location=["if ($arg_a) {", one, "}"]),
            "limit_except": conf(location=["limit_except GET {", one, "}"]),
        }
        for place in ANY:
            if place not in d.contexts:
                places[place] = at(place, [one])
        for place, lines in places.items():
            mark = [x for x in lines if x.strip() == one][0]
            if name in NEEDED and lines.count(mark) > 1:
                continue
            cases.append(Case("%s in %s" % (name, place), lines, mark,
                              [name, "is not allowed here"]))
    judged(cases)


def value(name, k):
    good = T[name].good
    return good[k % len(good)]


@test("admin/config-mistakes: a matrix: each right value, on each level",
      seconds=900)
def right_values():
    cases = []
    names = [n for n in T if n not in ("sandbox", "sandbox_zone",
                                       "sandbox_metrics",
                                       "sandbox_egress_policy")]
    policies = [line("sandbox_egress_policy", one)
                for one in T["sandbox_egress_policy"].good]
    cases += [Case(one[:60], conf(http=[one])) for one in policies]
    cases.append(Case("all policies", conf(
        http=policies, location=["sandbox_egress a;"])))
    # of 64 with three certificates each; they may stand behind their use
    cases.append(Case("many policies", conf(
        location=["sandbox_egress q63;"], http=[
            "sandbox_egress_policy q%d { allow a.example; ca_certificate "
            "DIR/three.pem; }" % n for n in range(64)])))
    count = max(len(T[n].good) for n in T)
    for k in range(count):
        all_of_them = [line(n, value(n, k)) for n in names]
        for mode in T["sandbox"].good:
            cases.append(Case(
                "all in http, %d" % k, conf(
                    http=[line("sandbox_zone", value("sandbox_zone", k))]
                    + all_of_them, location=["sandbox %s;" % mode])))
    # all together, each in a server and a location of its own
    more = []
    for k in range(count):
        all_of_them = [line(n, value(n, k)) for n in names]
        more += ["server { listen unix:DIR/s%d.sock;" % k] + all_of_them \
            + ["sandbox on; location /s%d/ { location /s%d/n/ { sandbox off; "
               "} location = /s%d/m { sandbox_metrics; } } }" % (k, k, k)]
        more += ["server { listen unix:DIR/l%d.sock; location /l%d/ {"
                 % (k, k), "sandbox on;"] + all_of_them + ["} }"]
    cases.append(Case("all in servers and locations", conf(more=more)))
    for name, d in T.items():
        if d.default is None or name == "sandbox_zone":
            continue
        for context in d.contexts:
            cases.append(Case("the default of %s, in %s" % (name, context),
                              at(context, [line(name, d.default)])))
    # inherited by what stands further in, or replaced there
    for name in names:
        if name == "sandbox_backend":       # each wants a socket of its own
            continue
        outer, inner = value(name, 2), value(name, 1)
        cases.append(Case("%s on three levels" % name, conf(
            http=[line(name, outer)], server=[line(name, inner)],
            nested=[line(name, outer)])))
    cases.append(Case("sandbox_backend on three levels", conf(
        http=["sandbox_backend local;", "sandbox_dagger tcp://10.0.0.1:1;"],
        server=["sandbox_backend dagger;"], location=[
            "sandbox_runner unix:DIR/d.sock;"], nested=[
            "sandbox_backend local;", "sandbox_runner unix:DIR/r.sock;"])))
    # both, and engines in more than one location
    cases.append(Case("locations of both backends", conf(
        server=["location /d/ { sandbox on; sandbox_runner unix:DIR/d.sock; "
                "sandbox_dagger tcp://10.0.0.1:1 tcp://10.0.0.2:1; }",
                "location /e/ { sandbox on; sandbox_runner unix:DIR/d.sock; "
                "sandbox_dagger tcp://10.0.0.2:1 move=5s; "
                "sandbox_dagger tcp://10.0.0.3:1 resolver=10.0.0.4; }"])))
    cases.append(Case("sixteen engines", conf(location=[
        "sandbox_dagger tcp://10.0.0.%d:1;" % n for n in range(1, 17)])))
    cases.append(Case("an engine makes it dagger, without a socket", conf(
        location=["sandbox_dagger tcp://10.0.0.1:1;"],
        without=["sandbox_runner"])))
    judged(cases)


@test("admin/config-mistakes: a matrix: what does not go together",
      seconds=900)
def combinations():
    on = "            sandbox on;"
    cases = []

    def refused(name, lines, says, mark=on):
        cases.append(Case(name, lines, mark, says))

    # of two values, each where it may stand
    pairs = [
        ("sandbox_output 200k;", "sandbox_output_total 100k;",
         ["sandbox_output_total", "102400", "sandbox_output", "204800"]),
        ("sandbox_permission look;", "sandbox_permission_read look;",
         ["sandbox_permission_read", "sandbox_permission", "look"]),
        ("sandbox_jwt_secret_file DIR/secret;",
         "sandbox_jwt_algorithms RS256 ES256;",
         ["sandbox_jwt_algorithms", "RS256", "ES256", "HS256"]),
        ("sandbox_jwt_key_file DIR/rsa.pem;",
         "sandbox_jwt_algorithms ES256;",
         ["sandbox_jwt_algorithms", "ES256", "RS256"]),
        ("sandbox_jwks_url http://[::1]/;", "sandbox_jwt_algorithms HS256;",
         ["sandbox_jwt_algorithms", "HS256", "RS256"]),
        ("sandbox_jwks_file DIR/set.json;", "sandbox_jwt_algorithms ES512;",
         ["sandbox_jwt_algorithms", "ES512", "HS256"]),
    ]
    for one, other, says in pairs:
        for first in ANY:
            for second in ANY:
                parts = {"http": [], "server": [], "location": []}
                parts[first].append(one)
                parts[second].append(other)
                refused("%s in %s, %s in %s" % (one, first, other, second),
                        conf(**parts), says)
    # what only the nested location has is told where its "sandbox" stands
    refused("a nested location's pair", conf(
        location=["sandbox_output 200k;"],
        nested=["sandbox_output_total 100k;"]),
        ["/s/n/", "sandbox_output_total"])

    # what is missing
    for name in ("sandbox_runner", "sandbox_runner_key"):
        refused("no " + name, conf(without=[name]), [name, "/s/"])
    refused("no keys", conf(without=["sandbox_jwt_secret_file"]),
            ["sandbox_jwt_key_file", "sandbox_jwt_secret_file",
             "sandbox_jwks_file", "sandbox_jwks_url", "/s/"])

    # engines
    refused("dagger without an engine", conf(
        server=["sandbox_backend dagger;"]), ["sandbox_dagger", "/s/"])
    one = "sandbox_dagger tcp://10.0.0.1:1;"
    refused("an engine twice", at("location", [one, " " + one]),
            ["sandbox_dagger", "tcp://10.0.0.1:1"], "             " + one)
    again = "sandbox_dagger tcp://10.0.0.1:1 isolated;"
    refused("an engine with other parameters", conf(
        server=[one], location=[again]),
        ["sandbox_dagger", "tcp://10.0.0.1:1", "isolated"],
        "            " + again)
    again = "sandbox_dagger tcp://10.0.0.2:1 move=6s;"
    refused("two times to move", at("location", [
        "sandbox_dagger tcp://10.0.0.1:1 move=5s;", again]),
        ["sandbox_dagger", "move=6s"], "            " + again)
    many = ["sandbox_dagger tcp://10.0.0.%d:1;" % n for n in range(1, 18)]
    refused("seventeen engines", at("location", many),
            ["sandbox_dagger", "tcp://10.0.0.17:1"],
            "            " + many[-1])
    mark = "sandbox on;"
    refused("an engine with two owners", conf(location=[one], more=[
        "server { listen unix:DIR/o.sock; location /o/ {", mark,
        "sandbox_runner unix:DIR/o.runner;", one, "} }"]),
        ["tcp://10.0.0.1:1", "/o/", "sandbox_runner"], mark)
    refused("a socket of both backends", conf(
        location=[one], nested=["sandbox_backend local;"]),
        ["sandbox_runner", "unix:", "/r.sock", "local", "dagger"])

    # locations that can't serve
    for head in ("= /x", "~ ^/x", "@x"):
        mark = "        location %s { sandbox on; }" % head
        refused("location " + head, conf(server=[mark.strip()]),
                ["sandbox", head.split()[-1].lstrip("^")], mark)
    for other in ("proxy_pass http://127.0.0.1:1;", "sandbox_metrics;",
                  "stub_status;", "fastcgi_pass 127.0.0.1:1;"):
        refused("beside " + other, conf(location=[other]),
                ["sandbox", "/s/"])
        mark = "            sandbox_metrics;"
        if "metrics" not in other:
            refused("metrics beside " + other, conf(
                location=["sandbox off;", other, "sandbox_metrics;"]),
                ["sandbox_metrics", "/s/"], mark)

    # keys, and sets of them
    url = "sandbox_jwks_url http://[::1]/%s;"
    refused("five URLs", at("location", [url % n for n in range(5)]),
            ["sandbox_jwks_url", "http://[::1]/4"],
            "            " + url % 4)
    refused("a URL twice", at("location", [url % "a", " " + url % "a"]),
            ["sandbox_jwks_url", "is duplicate"],
            "             " + url % "a")
    again = "sandbox_jwks_url http://[::1]/a interval=1m;"
    refused("a URL with other times", conf(
        server=[url % "a"], location=[again]),
        ["sandbox_jwks_url", "http://[::1]/a"], "            " + again)
    many = ["sandbox_jwt_secret_file DIR/secret kid=%d;" % n
            for n in range(65)]
    refused("65 keys", at("location", many),
            ["sandbox_jwt_secret_file", "/secret"], "            " + many[-1])
    # found by trying: both are 54878 on the wire
    refused("two bases of one number", conf(
        http=["sandbox_base b538;"], server=["sandbox_base b648;"]),
        ["sandbox_base", "b538", "b648", "54878"],
        "        sandbox_base b648;")
    refused("nine keys without a kid",
            at("location", ["sandbox_jwt_secret_file DIR/secret;"] * 9),
            ["/s/", "HS256", "kid"])

    # who signs for one server must not be in the sessions of the other
    mark = "sandbox on;"
    other = ["server { listen unix:DIR/o.sock; location /s/ {",
             mark, "sandbox_jwt_key_file DIR/rsa.pem; } }"]
    refused("the same realm in two servers", conf(more=other),
            ["/s/", "sandbox_realm", "sandbox_jwt_issuer"], mark)

    # policies of egress
    text = "sandbox_egress_policy p { allow a.example; }"
    refused("a policy twice", conf(http=[text, " " + text]),
            ["sandbox_egress_policy", "p", "is duplicate"], "     " + text)
    many = ["sandbox_egress_policy p%d { }" % n for n in range(65)]
    refused("65 policies", conf(http=many), ["sandbox_egress_policy", "p64"],
            "    " + many[-1])
    many = ["sandbox_egress_policy p%d { allow a.example; ca_certificate "
            "DIR/large.pem; }" % n for n in range(9)]
    refused("more than 4 MiB of policies", conf(http=many),
            ["sandbox_egress_policy", "ca_certificate"], "    " + many[-1])
    mark = "            sandbox_egress $sandbox_conversation;"
    refused("by the conversation, which clients choose", conf(
        http=["sandbox_egress_policy p { }"], location=[mark.strip()]),
        ["sandbox_egress", "sandbox_conversation_claim", "/s/"], mark)
    cases.append(Case("by the conversation of the token", conf(location=[
        mark.strip(), "sandbox_conversation_claim chat;"])))
    mark = "            package_index https://b.example/;"
    refused("an index told at its line", conf(http=[
        "sandbox_egress_policy p {", mark.strip(), "allow a.example;", "}"]),
        ["package_index", "b.example"], "    " + mark.strip())

    # a zone that is another's
    mark = "    sandbox_zone z:1m;"
    for zone, line_of in (
            ("limit_req_zone $uri zone=z:1m rate=1r/s;", None),
            ("sandbox_zone y:1m;", "    sandbox_zone y:1m;")):
        lines = conf(http=[zone], without=["sandbox_zone"])
        at_end = lines.index("    " + zone)
        lines.insert(at_end if line_of else at_end + 1, mark)
        refused("two zones, " + zone, lines,
                ["sandbox_zone" if line_of else "z"], line_of or mark)

    # what is overridden further in does no harm further out
    for outer, inner in (
            ("sandbox_output_total 100k;", "sandbox_output_total 1g;"),
            ("sandbox_jwt_algorithms ES256;", "sandbox_jwt_algorithms HS256;"),
            ("sandbox_permission_read sandbox:execute;",
             "sandbox_permission_read look;")):
        for context in ("http", "server"):
            cases.append(Case("%s in %s" % (outer, context),
                              at(context, [outer], location=[inner])))
    judged(cases)


ENGINE = "ARCHESTRA_CODE_RUNTIME_DAGGER_RUNNER_HOST"


@test("admin/config-mistakes: an engine of the environment, where none is "
      "configured", seconds=120)
def engine_of_environment():
    def run(engine, lines, keep=True):
        with open(folder + "/engine.conf", "w") as f:
            f.write("\n".join((["env %s;" % ENGINE] if keep else []) + lines)
                    .replace("DIR", folder) + "\n")
        env = environment(1)
        env.pop(ENGINE, None)
        if engine is not None:
            env[ENGINE] = engine
        done = subprocess.run(
            [NGINX, "-t", "-c", folder + "/engine.conf", "-e", "stderr"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
            timeout=300 * SLOW)
        return done.returncode, [
            one for one in done.stdout.decode().splitlines()
            if re.search(r"\[(warn|error|emerg)\]", one)]

    nothing = conf(without=["sandbox_runner"])
    local = conf()
    dagger = conf(server=["sandbox_backend dagger;"])
    engines = conf(server=["sandbox_dagger tcp://10.0.0.1:1;"])

    for engine in ("tcp://127.0.0.1:1234", "tcp://[::1]:1",
                   "unix:///run/dagger/engine.sock"):
        for lines in (nothing, local, dagger, engines):
            same(run(engine, lines), (0, []), engine)
    status, wrong = run("tcp://127.0.0.1:1234", nothing, keep=False)
    same((status, len(wrong)), (0, 1), "without \"env\"")
    check("env %s;" % ENGINE in wrong[0], "says what to add", wrong)
    same(run("tcp://127.0.0.1:1234", local, keep=False), (0, []),
         "it is not used")

    for engine in ("127.0.0.1:1234", "tcp://127.0.0.1", "tls://127.0.0.1:1",
                   "unix://a", "tcp://127.0.0.1:1 isolated", "tcp://a/b:1"):
        for lines in (nothing, dagger):
            status, wrong = run(engine, lines)
            same((status, len(wrong)), (1, 1), engine)
            check(ENGINE in wrong[0] and '"%s"' % engine in wrong[0],
                  "names variable and value", wrong)
        for lines in (local, engines):
            same(run(engine, lines), (0, []), "%s is not used" % engine)

    # not set, or empty: as ever
    for engine in (None, ""):
        status, wrong = run(engine, nothing)
        same((status, len(wrong)), (1, 1), "no runner")
        check("sandbox_runner" in wrong[0], "no runner", wrong)
        status, wrong = run(engine, dagger)
        same((status, len(wrong)), (1, 1), "no engine")
        check("sandbox_dagger" in wrong[0] and ENGINE in wrong[0],
              "no engine", wrong)

    # with another engine in another location, whose parameters are its own
    same(run("tcp://10.0.0.1:1", conf(
        server=["location /d/ { sandbox on; "
                "sandbox_dagger tcp://10.0.0.1:1 isolated; }"],
        without=["sandbox_runner"])), (0, []), "the same engine, configured")


@test("admin/config-mistakes: in a file that is included it is that file")
def included():
    path = folder + "/inner.inc"
    for text, says in (("sandbox_memory 1x;", "sandbox_memory"),
                       ("location /t/ {\n}\nsandbox on;", "sandbox_runner")):
        with open(path, "w") as f:
            f.write("# a comment\n%s\n" % text)
        lines = conf(server=["include DIR/inner.inc;"], without=["sandbox"]
                     + (["sandbox_runner"] if says[8:] == "runner" else []))
        with open(folder + "/outer.conf", "w") as f:
            f.write("\n".join(lines).replace("DIR", folder) + "\n")
        out = subprocess.run(
            [NGINX, "-t", "-c", folder + "/outer.conf", "-e", "stderr"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=300 * SLOW).stdout.decode()
        number = 2 + text.count("\n")
        emerg = [one for one in out.splitlines() if "[emerg]" in one]
        same(len(emerg), 1, "messages")
        check(says in emerg[0]
              and emerg[0].endswith(" in %s:%d" % (path, number)),
              "file and line", emerg[0])


# what is written of them


def module_table():
    with open(TOP + "/src/module/ngx_http_sandbox_module.c") as f:
        text = f.read()
    table = text[text.index("ngx_http_sandbox_commands[] = {"):
                 text.index("ngx_null_command")]
    found = {}
    for name, kind in re.findall(
            r'\{ ngx_string\("(sandbox\w*)"\),\s*([A-Z0-9_|\s]+),', table):
        found[name] = kind
    return found


def documented():
    """name: (default, context, rows)"""
    with open(TOP + "/docs/directives.md") as f:
        text = f.read()
    found = {}
    for heads, body in re.findall(
            r"^### (sandbox.*?)$(.*?)(?=^##|\Z)", text, re.M | re.S):
        rows = dict(re.findall(r"^\| (\w+) \| (.*?) \|$", body, re.M))
        heads = heads.split(", ")
        defaults = re.findall(r"`([^`]*)`", rows.get("Default", ""))
        for n, head in enumerate(heads):
            default = [d for d in defaults if d.split(" ")[0] == head]
            default = default[0].split(" ", 1)[1].rstrip(";") if default \
                else defaults[n] if n < len(defaults) \
                and rows["Default"].startswith("`") else None
            found[head] = (default, rows)
    caps = text[text.index("## Caps"):text.index("## Variables")]
    for name, default in re.findall(
            r"^\| `(sandbox_\w+) \w+` \| (\S+) \|", caps, re.M):
        found[name] = (default, None)
    return found


@test("admin/config-mistakes: docs/directives.md has each directive, in full")
def docs():
    written = documented()
    same(sorted(written), sorted(module_table()), "directives in the docs")
    for name, d in T.items():
        default, rows = written[name]
        same(default, d.default, "the default of %s in the docs" % name)
        if rows is None:                # the table of caps says it for all
            continue
        for other in ("number", "line"):        # tables of the text's
            rows.pop(other, None)
        same(sorted(rows), ["Context", "Default", "Inherited", "Reload",
                            "Syntax"], "what is said of " + name)
        same(rows["Context"], ", ".join(d.contexts), "context of " + name)
        check("`%s" % name in rows["Syntax"], "syntax of " + name,
              rows["Syntax"])


@test("admin/config-mistakes: conf.d explains each directive, with its default")
def examples():
    with open(TOP + "/conf.d/sandbox.conf") as f:
        text = f.read()
    shown = {}
    for name, arguments in re.findall(
            r"^ *#? ?(sandbox\w*)(?: ([^;{\n]*))?[;{]", text, re.M):
        shown.setdefault(name, []).append(arguments)
    same(sorted(set(shown)), sorted(T), "directives in conf.d/sandbox.conf")
    explained = []
    for name, arguments in re.findall(
            r"^#(sandbox\w*)(?: ([^;\n]*))?;", text, re.M):
        if T[name].default is not None:
            explained.append((name, arguments))
    for name, arguments in explained:
        # "off" and "none" are said in words, and the line shows a use
        check(arguments == T[name].default
              or T[name].default in ("off", "none"),
              "what is commented out is the default", name, arguments)


@test("admin/config-mistakes: this table is the module's")
def the_module():
    table = module_table()
    same(sorted(T), sorted(table), "directives")
    for name, kind in table.items():
        contexts = ANY if "ANYWHERE" in kind else tuple(
            context for context, bit in (("http", "HTTP_MAIN_CONF"),
                                         ("server", "HTTP_SRV_CONF"),
                                         ("location", "HTTP_LOC_CONF"))
            if bit in kind)
        same(T[name].contexts, contexts, "contexts of " + name)


def number(text, kind):
    units = {"time": {"s": 1, "m": 60, "d": 86400, "": 1},
             "size": {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "": 1},
             "number": {"": 1}}[kind]
    digits, unit = re.fullmatch(r"(\d+)(\w?)", text).groups()
    return int(digits) * units[unit]


@test("admin/config-mistakes: v1/limits: defaults are as written, inheritance")
def inheritance():
    other = {"time": "77s", "size": "64m", "number": "99"}
    small = {"sandbox_output": "300k", "sandbox_command_size": "300k"}
    inner = {"time": "66s", "size": "65m", "number": "98"}
    least = {"sandbox_output": "301k", "sandbox_command_size": "301k"}

    def lines(values, special):
        return " ".join("%s %s;" % (n, special.get(n, values[kind]))
                        for n, (_, kind) in LIMITS.items())

    g = Gateway(runner="mock", server=(
        "location /inner/ { sandbox on; %s sandbox_jwt_secret_file %s; "
        "sandbox_realm a; location /inner/nested/ { sandbox_pending 97; } }"))
    g.options["server"] %= (lines(inner, least), g.dir + "/jwt.key")
    g.options["main"] = "env ARCHESTRA_CODE_RUNTIME_ENABLED;"
    with g:
        got = g.request("GET", "v1/limits").json
        for name, (member, kind) in LIMITS.items():
            same(got[member], number(T[name].default, kind),
                 "default of " + name)
        same(got["base"], "default")
        got = got["sandboxes"]
        same((got["running"], got["queued"], got["idleSeconds"]),
             (10, 200, 600), "defaults of sandbox_zone")
        g.configure(http=lines(other, small) + " sandbox_base data;")
        g.reload()
        for path, values, special in (("/sandbox/", other, small),
                                      ("/inner/", inner, least)):
            got = g.request("GET", path + "v1/limits").json
            same(got["base"], "data", path)
            for name, (member, kind) in LIMITS.items():
                same(got[member],
                     number(special.get(name, values[kind]), kind),
                     "%s at %s" % (name, path))


main(start, stop)
