#!/usr/bin/env python3
"""The way out of a sandbox, by the runner's own wire: policies, the proxy, the
environment of commands, packages by uv, and every way in which proxy and
runner can end and start again.  The world is a loopback address, with a resolver, a
certificate authority and an index of packages of the test's own."""

import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import egress                                                # noqa: E402
import wire                                                  # noqa: E402
from gateway import BUILD, CACHE, Gateway, alive, token      # noqa: E402
from gateway import wait_for                                 # noqa: E402
from packages import wheel                                   # noqa: E402
from runner import Runner, session, tenant                   # noqa: E402
from tap import backends, check, main, same, skip, test      # noqa: E402

backends("local", why="egress")

NAMES = {"index.test": [egress.HOST], "files.test": [egress.HOST],
         "other.test": [egress.HOST], "a.wild.test": [egress.HOST],
         "wild.test": [egress.HOST], "private.test": ["10.1.2.3"],
         "both.test": ["10.1.2.3", egress.HOST, "169.254.169.254"],
         "closed.test": ["127.83.0.2"], "slow.test": None}
INDEX = "https://index.test/simple/"
EGRESS = BUILD + "/sandbox-egress"

folder = resolver = authority = server = runner = None


def policies(**more):
    """The table that most tests use."""
    packs = dict(index=INDEX, ca=authority.text)
    packs.update(more)
    return egress.table(
        egress.policy("packs", "index.test", "files.test", **packs),
        egress.policy("wild", "*.wild.test", "private.test", "both.test",
                      "closed.test", "none.test", "slow.test"),
        egress.policy("few", "index.test", connections=2),
        egress.policy("short", "index.test", ms=1000),
        egress.policy("small", "index.test", size=300000))


def start():
    global folder, resolver, authority, server, runner
    folder = tempfile.mkdtemp(prefix="sandbox-egress.")
    resolver = egress.Resolver(NAMES)
    authority = egress.Authority(folder, *NAMES)
    server = egress.Server(authority)
    server.pages.update(egress.index_pages({
        "tinya-1.0-py3-none-any.whl": wheel("tinya"),
        "tinyb-1.0-py3-none-any.whl": wheel("tinyb")},
        os.path.realpath(CACHE + "/base/current/rootfs")))
    server.pages["/hello"] = b"hello\n"
    server.pages["/big"] = b"x" * 4000000
    server.pages["/away"] = (302, {"Location": "https://other.test/hello"},
                             b"")
    runner = Runner("--pool", "2", "--egress-resolver", resolver.address,
                    "--egress-allow-address", egress.HOST + "/32")
    runner.start()
    push(policies())


def stop():
    if runner:
        complaints = runner.complaints()
        runner.close()
        same(complaints, [])
    if server:
        server.close()
    if resolver:
        resolver.close()
    if folder:
        shutil.rmtree(folder)


def push(body, r=None):
    answer = egress.push((r or runner).client, body)
    same(answer.code, None, "the table is taken")
    return answer.result["EGRESS_DIGEST"]


def run(name, text, policy="packs", r=None, **fields):
    """What a command of that conversation said; it must have run."""
    answer = (r or runner).command(
        name, text, egress=egress.policy_id(policy) if policy else 0,
        **dict({"wall_ms": 110000}, **fields))
    same(answer.code, None, text)
    return answer


def out(name, text, policy="packs", **options):
    answer = run(name, text, policy, **options)
    same((answer.result["EXIT_CODE"], answer.stderr), (0, b""), text)
    return answer.stdout.decode()


def counts(policy, r=None):
    return egress.counts((r or runner).call(wire.PING).result, policy)


def curl(url, more=""):
    return "curl -sS -m 50 -o /dev/null -w '%%{http_code} %%{http_connect}' " \
        "%s %s; true" % (more, url)


@test("egress/environment")
def environment():
    def variables(policy):
        text = out("env", "env -0 | tr '\\0' '\\n'", policy)
        return dict(line.split("=", 1) for line in text.splitlines())

    none = variables(None)
    same(none.get("UV_OFFLINE"), "1")
    same([n for n in none if "proxy" in n.lower()], [])
    same(none.get("UV_DEFAULT_INDEX"), None)
    same(none["SSL_CERT_FILE"], "/etc/ssl/certs/ca-certificates.crt")

    some = variables("packs")
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        same(some[name], "http://127.0.0.1:3128", name)
        same(some[name.lower()], some[name], name)
    same(some["NO_PROXY"], "localhost,127.0.0.1,::1")
    same(some["no_proxy"], some["NO_PROXY"])
    same(some["NODE_USE_ENV_PROXY"], "1")
    same(some["UV_DEFAULT_INDEX"], INDEX)
    same(some.get("UV_OFFLINE"), None)
    bundle = some["SSL_CERT_FILE"]
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
                 "NODE_EXTRA_CA_CERTS"):
        same(some[name], bundle, name)
    text = out("env", "cat " + bundle)
    check(authority.text.decode().strip() in text, "the operator's CA")
    check(text.count("BEGIN CERTIFICATE") > 50, "and the base's")
    answer = run("env", "echo x >> %s; rm -f %s; : > /etc/ssl/sandbox/x; "
                 "stat -c '%%U %%a' %s" % ((bundle,) * 3))
    same(answer.stdout, b"root 644\n", "a user can't change it")
    same(answer.stderr.count(b"denied"), 3)

    # another policy, other settings; and what a request sets itself wins
    wild = variables("wild")
    same(wild.get("UV_DEFAULT_INDEX"), None)
    same(wild["SSL_CERT_FILE"], "/etc/ssl/certs/ca-certificates.crt")
    same(variables(None).get("UV_OFFLINE"), "1")
    own = runner.client.call(
        wire.COMMAND, wire.fields(("COMMAND", "echo $HTTPS_PROXY"),
                                  ("ENV", "HTTPS_PROXY=mine")),
        session=session("env"), tenant=tenant("env"),
        egress=egress.policy_id("packs"))
    same(own.stdout, b"mine\n")


@test("egress/allowed")
def allowed():
    before = counts("packs")
    same(out("get", "curl -sS https://index.test/hello"), "hello\n")
    same(out("get", "curl -sS https://INDEX.test/hello"), "hello\n")
    same(out("get", "python3 -c 'import httpx; "
             "print(httpx.get(\"https://files.test/hello\", timeout=90).text, "
             "end=\"\")'"),
         "hello\n")
    same(out("get", "node -e 'fetch(\"https://files.test/hello\")"
             ".then(r => r.text()).then(t => process.stdout.write(t))'"
             " 2>/dev/null"), "hello\n")
    same(out("get", "curl -sS https://index.test/big | wc -c"), "4000000\n")
    same(out("get", curl("https://a.wild.test/hello", "2>/dev/null"), "wild"),
         "000 200",
         "its certificate is not the world's without the operator's CA")
    # of several addresses those that are forbidden are left out
    same(out("get", curl("https://both.test/hello", "-k"), "wild"), "200 200")

    def counted():
        now = counts("packs")
        return now["tunnels"] - before["tunnels"] == 5 and now["open"] == 0 \
            and now["down"] - before["down"] > 4000000 \
            and now["up"] - before["up"] > 1000
    wait_for(counted, 60, "the counters")
    wait_for(lambda: re.search(
        r'egress: sandbox sbx_[0-9a-f]{20}, policy "packs", tunnel '
        r"to index.test:443 \(%s:443\), \d+ bytes out, "
        r"4\d{6} in, \d+ ms: (closed|reset by the sandbox|its policy)"
        % re.escape(egress.HOST), runner.text()), 60, "a line for each tunnel")


@test("egress/refused")
def refused():
    before = counts("packs")
    for url, words in (
            ("https://other.test/", 'not in the operator\'s egress policy '
             '"packs"'),
            ("https://index.test:8443/", "Port 8443 can't be reached"),
            ("https://%s/" % egress.HOST, "use the name of the host")):
        answer = run("no", "python3 - <<'E'\nimport urllib.request\n"
                     "try:\n urllib.request.urlopen('%s')\nexcept Exception "
                     "as e:\n print(e)\nE" % url)
        check(words in answer.stdout.decode(), url, answer.stdout)
    said = out("no", "curl -s http://index.test/hello")
    check("use https://" in said, "plain http", said)
    same(out("no", curl("https://index.test/away", "-L 2>/dev/null")),
         "000 403", "a redirect to where it may not go")
    for url, code in (("https://private.test/", "403"),
                      ("https://wild.test/", "403"),
                      ("https://none.test/", "502"),
                      ("https://closed.test/", "403")):
        same(out("no", curl(url, "-k 2>/dev/null"), "wild"), "000 " + code,
             url)
    check("other.test" not in resolver.asked,
          "nobody is asked about a name that is not allowed")
    wait_for(lambda: counts("packs")["refused"] - before["refused"] == 5, 60,
             "the counters")
    wait_for(lambda: 'refused: other.test:443 is not in policy "packs"'
             in runner.text(), 60, "a line for a refusal")
    wait_for(lambda: "leads to a forbidden address (10.1.2.3:443, private)"
             in runner.text(), 60, "and why")


@test("egress/none")
def none():
    """Without a policy there is nothing, at once, and it says what to do."""
    began = time.monotonic()
    answer = run("off", "uv add tinya", None)
    check(answer.result["EXIT_CODE"] != 0, "it fails")
    check(b"network is off" in answer.stderr, "and says why", answer.stderr)
    check(time.monotonic() - began < 40, "at once")
    for text in ("curl -sS -m 20 https://index.test/hello",
                 "curl -sS -m 20 -x http://127.0.0.1:3128 https://index.test/",
                 "curl -sS -m 20 https://%s/hello -k" % egress.HOST):
        answer = run("off", text, None)
        check(answer.result["EXIT_CODE"] in (5, 6, 7), text, answer.stderr)

    # a policy that ends: its listener stays and refuses
    same(out("off", "curl -sS https://index.test/hello"), "hello\n")
    answer = run("off", "curl -sS -m 20 -x http://127.0.0.1:3128 "
                 "https://index.test/hello", None)
    check(answer.result["EXIT_CODE"] and b"403" in answer.stderr,
          "refused", answer.stderr)


@test("egress/uv", seconds=200)
def uv():
    """uv add by the index of the policy; locked, and there after a stop."""
    text = "python3 -c 'import tinya, pandas; print(tinya.answer)'"
    same(out("uv", "uv add -q tinya && " + text), "42\n")
    same(out("uv", "grep -c tinya pyproject.toml"), "1\n")
    check("registry = \"%s\"" % INDEX.rstrip("/")
          in out("uv", "cat uv.lock").replace('/"', '"'), "it is locked")
    # a name that is not there: an error, and nothing is spoilt
    answer = run("uv", "uv add -q not-there-at-all")
    check(answer.result["EXIT_CODE"] != 0 and answer.stderr, "says so")
    # its container ends; what was installed is there without a network
    pid = int(runner.record("uv")["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), 60, "its end")
    same(out("uv", text, None), "42\n")
    same(out("uv", "uv sync -q --locked && " + text, None), "42\n")


@test("egress/bounds")
def bounds():
    ask = ("import socket\n"
           "def ask():\n"
           "    s = socket.create_connection(('127.0.0.1', 3128))\n"
           "    s.settimeout(50)\n"
           "    s.sendall(b'CONNECT index.test:443 HTTP/1.1\\r\\n\\r\\n')\n"
           "    return s, s.recv(4096).split()[1].decode()\n")
    same(out("bounds", "python3 - <<'E'\n" + ask
             + "print([s[1] for s in [ask() for _ in range(3)]])\nE", "few"),
         "['200', '200', '503']\n", "connections")
    wait_for(lambda: counts("few")["refused"] == 1, 60, "the counter")

    same(out("bounds", "python3 - <<'E'\n" + ask
             + "s, line = ask()\nprint(line, s.recv(1))\nE", "short"),
         "200 b''\n", "time")
    wait_for(lambda: "its time is over" in runner.text(), 60, "the log")

    said = out("bounds", curl("https://index.test/big", "-k 2>/dev/null"),
               "small")
    same(said.split()[1], "200", "bytes: cut in the middle")
    wait_for(lambda: "carried all the bytes" in runner.text(), 60, "the log")
    same(out("bounds", curl("https://index.test/hello", "-k 2>/dev/null"),
             "small"), "000 403", "and nothing more")


@test("egress/half-close")
def half_close():
    """Each direction ends by itself, and not a byte is lost on the way."""
    listener = socket.create_server((egress.HOST, 444))
    r = Runner("--pool", "0", "--egress-resolver", resolver.address,
               "--egress-allow-address", egress.HOST + "/32",
               "--egress-allow-port", "444")
    try:
        r.start()
        push(policies(), r)
        sock = r.client.send(
            wire.COMMAND, wire.fields(("COMMAND", "python3 - <<'E'\n"
                "import socket, hashlib\n"
                "s = socket.create_connection(('127.0.0.1', 3128))\n"
                "s.sendall(b'CONNECT index.test:444 HTTP/1.1\\r\\n\\r\\n'\n"
                "          b'early ')\n"
                "print(s.recv(100).split()[1])\n"
                "s.sendall(b'late')\n"
                "s.shutdown(socket.SHUT_WR)\n"
                "h, n = hashlib.sha256(), 0\n"
                "while True:\n"
                "    d = s.recv(65536)\n"
                "    if not d: break\n"
                "    h.update(d); n += len(d)\n"
                "print(n, h.hexdigest())\nE")),
            session=session("half"), tenant=tenant("half"),
            egress=egress.policy_id("packs"))
        listener.settimeout(200)
        peer = listener.accept()[0]
        peer.settimeout(200)
        got = b""
        while True:
            piece = peer.recv(4096)
            if not piece:
                break
            got += piece
        same(got, b"early late", "what the sandbox said, to its end")
        data = os.urandom(8 << 20)
        peer.sendall(data)
        peer.close()
        answer = r.client.answer(sock)
        sock.close()
        import hashlib
        same(answer.stdout.decode().split(),
             ["b'200'", str(len(data)), hashlib.sha256(data).hexdigest()])
    finally:
        listener.close()
        r.close()


@test("egress/loopback-servers")
def loopback():
    """A server of the sandbox is reached directly, from command to command."""
    out("local", "(python3 -m http.server 8055 -b 127.0.0.1 "
        ">/dev/null 2>&1 &) ; for i in $(seq 400); do curl -sf "
        "http://127.0.0.1:8055/ >/dev/null && break; sleep 0.1; done")
    same(out("local", "curl -sS -o /dev/null -w '%{http_code}' "
             "http://localhost:8055/; python3 -c 'import urllib.request as u; "
             "print(u.urlopen(\"http://127.0.0.1:8055/\").status)'"),
         "200200\n")


def tunnel(name, policy="packs", r=None):
    """A command that holds a tunnel; it says how that ended."""
    sock = (r or runner).client.send(
        wire.COMMAND, wire.fields(("STREAM", 1), ("COMMAND",
            "python3 -u - <<'E'\n"
            "import socket\n"
            "s = socket.create_connection(('127.0.0.1', 3128))\n"
            "s.sendall(b'CONNECT index.test:443 HTTP/1.1\\r\\n\\r\\n')\n"
            "print(s.recv(100).split()[1])\n"
            "try:\n print(s.recv(1))\n"
            "except ConnectionResetError:\n print(b'')\nE")),
        session=session(name), tenant=tenant(name),
        egress=egress.policy_id(policy))
    answer = (r or runner).client.answer(
        sock, wire.Answer(stream=True), lambda a: b"200" in a.stdout)
    return sock, answer


@test("egress/table")
def tables():
    """A table that changes holds at once, also for what is open."""
    c = runner.client
    digest = c.call(wire.PING).result["EGRESS_DIGEST"]
    good = policies()
    for what, body in (
            ("half a field", good[:-1]),
            ("a host with a dot at its end", egress.table(
                egress.policy("x", "a.test."))),
            ("an address", egress.table(egress.policy("x", "127.0.0.1"))),
            ("capitals", egress.table(egress.policy("x", "A.test"))),
            ("an id twice", egress.table(egress.policy("x", "a.test"),
                                         egress.policy("x", "b.test"))),
            ("no PEM", egress.table(egress.policy("x", "a.test", ca=b"x"))),
            ("an index without TLS", egress.table(
                egress.policy("x", "a.test", index="http://a.test/")))):
        same(egress.push(c, body).code, "bad_request", what)
    same(egress.push(c, good, bytes(32)).code, "bad_request", "its digest")
    same(c.call(wire.PING).result["EGRESS_DIGEST"], digest, "nothing changed")

    sock, answer = tunnel("table")
    new = egress.table(egress.policy("packs", "files.test"))
    same(push(new), c.call(wire.PING).result["EGRESS_DIGEST"])
    runner.client.answer(sock, answer)
    sock.close()
    check(answer.stdout.endswith(b"b''\n"), "the tunnel ended", answer)
    same(out("table", curl("https://index.test/hello", "-k 2>/dev/null")),
         "000 403")
    same(out("table", curl("https://files.test/hello", "-k")), "200 200")
    same(out("table", "echo ${UV_DEFAULT_INDEX-none}"), "none\n")
    push(policies())
    same(out("table", "curl -sS https://index.test/hello; "
             "echo $UV_DEFAULT_INDEX"), "hello\n%s\n" % INDEX)


@test("egress/unknown-policy")
def unknown():
    """A command with a policy that nobody knows yet waits for the table."""
    for n in range(5):      # a machine may need longer for it than one waits
        name = "fresh%d" % n
        sock = runner.client.send(
            wire.COMMAND, wire.fields(("COMMAND", "echo $UV_DEFAULT_INDEX")),
            session=session("new"), tenant=tenant("new"),
            egress=egress.policy_id(name))
        push(egress.table(egress.policy(name, "index.test", index=INDEX)))
        got = runner.client.answer(sock).stdout.decode()
        sock.close()
        if got == INDEX + "\n":
            break
    same(got, INDEX + "\n")
    push(policies())
    # and goes on without, when none comes
    same(out("new", curl("https://index.test/", "2>/dev/null"), "never"),
         "000 403")


@test("egress/queue-order")
def queue_order():
    """Each command has the policy that it came with, whoever waits."""
    texts = ["echo ${UV_OFFLINE-on}", "echo ${UV_OFFLINE-on}; sleep 0.1"] * 4
    socks = [runner.client.send(
        wire.COMMAND, wire.fields(("COMMAND", text), ("PENDING", 10)),
        session=session("order"), tenant=tenant("order"),
        egress=egress.policy_id("packs") if i % 2 else 0)
        for i, text in enumerate(texts)]
    got = []
    for sock in socks:
        got.append(runner.client.answer(sock).stdout.decode().strip())
        sock.close()
    # the last one that came has it, once all are handed over
    same(got[-1], "on", "the last one")
    same(out("order", texts[0], None), "1\n")
    same(out("order", texts[0]), "on\n")


def proxy_of(r):
    """The pid of a runner's proxy."""
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                with open("/proc/%s/stat" % p) as f:
                    stat = f.read()
                if "(sandbox-egress)" in stat \
                        and int(stat.rpartition(")")[2].split()[1]) \
                        == r.process.pid and alive(int(p)):
                    return int(p)
            except OSError:
                pass
    return None


@test("egress/proxy-has-no-rights")
def no_rights():
    out("rights", "curl -sS https://index.test/hello")
    pid = proxy_of(runner)
    with open("/proc/%d/status" % pid) as f:
        status = dict(line.split(":", 1) for line in f.read().splitlines())
    for name in ("Uid", "Gid"):
        ids = set(status[name].split())
        check(len(ids) == 1 and "0" not in ids, name, status[name])
    same(status["Groups"].strip(), "")
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        same(int(status[name], 16), 0, name)
    same(status["NoNewPrivs"].strip(), "1")
    same(status["Seccomp"].strip(), "2")
    same(os.listdir("/proc/%d/root" % pid), [], "its root is empty")
    kinds = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            kinds.add(os.readlink("/proc/%d/fd/%s" % (pid, fd)).split(":")[0])
        except FileNotFoundError:
            pass            # a tunnel's that has just ended
    check(kinds and kinds <= {"socket", "anon_inode", "/dev/null",
                              runner.log}, "its descriptors", kinds)


@test("egress/proxy-dies", seconds=200)
def proxy_dies():
    """Tunnels end with it, a new one serves the same sandboxes."""
    sock, answer = tunnel("dies")
    before = counts("packs")["tunnels"]
    old = proxy_of(runner)
    os.kill(old, signal.SIGKILL)
    runner.client.answer(sock, answer)
    sock.close()
    check(answer.stdout.endswith(b"b''\n"), "the tunnel ended", answer)
    wait_for(lambda: proxy_of(runner) not in (None, old), 60, "a new one")
    wait_for(lambda: out("dies", curl("https://index.test/hello",
                                      "2>/dev/null")) == "200 200", 60,
             "the network again")
    wait_for(lambda: counts("packs")["tunnels"] > before, 60,
             "counters that go on")


@test("egress/proxy-that-can't-run", seconds=200)
def no_proxy():
    """Then there is no network, which is known at once; and as soon as there
    is one there is a network, also for what runs already."""
    program = os.path.join(folder, "proxy")
    with Runner("--pool", "1", "--egress", program, "--egress-resolver",
                resolver.address, "--egress-allow-address", egress.HOST) as r:
        push(policies(), r)
        text = "curl -s -m 30 -o /dev/null https://index.test/hello; echo $?"
        # 7: there is no proxy; 28: it would have waited
        wait_for(lambda: out("without", text, r=r) == "7\n", 60,
                 "a refusal at once")
        wait_for(lambda: "can't be run" in r.text()
                 and "--egress FILE" in r.text(), 60,
                 "a log that says what to do")
        shutil.copy(EGRESS, program)
        same(out("without", "for i in $(seq 300); do curl -s -m 5 "
                 "https://index.test/hello && break; sleep 0.2; done", r=r), "hello\n")


@test("egress/runner-dies", seconds=200)
def runner_dies():
    """A runner that was killed: the next one has table, policies, listeners,
    also for what runs in a sandbox meanwhile; and the old proxy is gone."""
    r = Runner("--pool", "0", "--egress-resolver", resolver.address,
               "--egress-allow-address", egress.HOST + "/32",
               ephemeral=False)
    try:
        r.start()
        digest = push(policies(), r)
        sock = r.client.send(
            wire.COMMAND, wire.fields(
                ("DETACH", 1), ("WALL_MS", 600000),
                ("COMMAND", "for i in $(seq 3000); do test -e go && curl -s "
                 "-m 5 https://index.test/hello -o got && break; "
                 "sleep 0.2; done; sleep 600")),
            session=session("lives"), tenant=tenant("lives"),
            egress=egress.policy_id("packs"))
        same(r.client.answer(sock).code, None)
        sock.close()
        same(out("lives", "curl -sS https://index.test/hello", r=r),
             "hello\n")
        wait_for(lambda: os.path.exists(r.state + "/egress"), 60, "its file")
        wait_for(lambda: open(r.state + "/egress", "rb").read() == policies(),
                 60, "all of it")
        agent, old = int(r.record("lives")["pid"]), proxy_of(r)
        r.kill()
        wait_for(lambda: not alive(old), 60, "the end of its proxy")
        r.start()
        same(r.call(wire.PING).result["EGRESS_DIGEST"], digest)
        check(alive(agent), "the sandbox lives")
        # before any request comes for it: the background command's network
        wait_for(lambda: proxy_of(r), 60, "a proxy")
        out("lives", "touch go; for i in $(seq 600); do "
            "test -s got && break; sleep 0.1; done; cat got", r=r)
        same(out("lives", "curl -sS https://index.test/hello; "
                 "echo $UV_DEFAULT_INDEX", r=r), "hello\n%s\n" % INDEX)
        same(int(r.record("lives")["pid"]), agent, "it is the same one")
        # an orderly end, too
        old = proxy_of(r)
        same(r.end(signal.SIGTERM), 0)
        wait_for(lambda: not alive(old), 60, "the end of its proxy")
        r.start()
        same(out("lives", "curl -sS https://index.test/hello", r=r),
             "hello\n")
    finally:
        r.close()


@test("egress/port-taken")
def port_taken():
    """Who takes the port first has no network, and harms nobody else."""
    out("taken", "(python3 -m http.server 3128 >/dev/null 2>&1 &); "
        "for i in $(seq 400); do curl -sf http://127.0.0.1:3128/ >/dev/null "
        "&& break; sleep 0.1; done", None)
    answer = run("taken", curl("https://index.test/hello", "2>/dev/null"))
    check(not answer.stdout.startswith(b"200"), "no network", answer.stdout)
    wait_for(lambda: "its port 3128 can't be listened on" in runner.text(),
             60, "the log")
    same(out("get", "curl -sS https://index.test/hello"), "hello\n")


def gateway(hosts, found, http, location):
    """A gateway whose runner lets names lead to those addresses."""
    g = Gateway(pool=1, http=http, location=location)
    for address in found:
        g.runner_options += ["--egress-allow-address", address]
    if hosts is None:
        g.runner_options += ["--egress-resolver", resolver.address]
    return g


@test("egress/gateway")
def by_nginx():
    """All of it: nginx's policies, chosen by the token, changed by a reload
    that ends no sandbox."""
    policy = """
        sandbox_egress_policy one { allow index.test;
            package_index %s; ca_certificate %s; }
        sandbox_egress_policy two { allow %s; ca_certificate %s; }
        map $sandbox_user $network { default none; alice one; bob two; }
    """
    with gateway(None, [egress.HOST], policy
                 % (INDEX, authority.pem, "files.test", authority.pem),
                 "sandbox_egress $network;") as g:
        bob, carol = token(sub="bob"), token(sub="carol")
        first = g.run("net", "uv add -q tinya && python3 -c 'import tinya; "
                      "print(tinya.answer)'")
        same((first["stdout"], first["stderr"]), ("42\n", ""))
        text = "curl -sS -m 20 https://%s.test/hello; true"
        same(g.output("b", text % "files", token=bob), "hello\n")
        check("403" in g.run("b", text % "index", token=bob)["stderr"],
              "another policy")
        same(g.output("c", "echo $UV_OFFLINE", token=carol), "1\n")
        check("network is off" in g.run("c", "uv add tinya", token=carol)
              ["stderr"], "no policy")
        sandbox = g.status("b", token=bob)["sandboxId"]
        g.reload(http=policy % (INDEX, authority.pem, "index.test",
                                authority.pem))
        wait_for(lambda: g.output("b", text % "index", token=bob)
                 == "hello\n", 60, "the new policies")
        check("403" in g.run("b", text % "files", token=bob)["stderr"],
              "and the old ones are gone")
        same(g.status("b", token=bob)["sandboxId"], sandbox,
             "the same sandbox")


@test("egress/real-index", seconds=300)
def real_index():
    """The index that uv has by default, where this machine reaches it.  With
    SANDBOX_TEST_INDEX something large, too."""
    hosts, found = egress.real_index(
        os.path.realpath(CACHE + "/base/current/rootfs"))
    if not hosts:
        skip(found)
    ca = egress.certificates(os.path.join(folder, "world.pem"))
    policy = "sandbox_egress_policy index { allow %s; %s }" % (
        " ".join(hosts), "ca_certificate %s;" % ca if ca else "")
    names = {"six": "six"}
    if os.environ.get("SANDBOX_TEST_INDEX"):
        names["scikit-learn"] = "sklearn"
    with gateway(hosts, found, policy, "sandbox_egress index;") as g:
        for name, module in names.items():
            r = g.run("real", "uv add -q %s && python3 -c 'import %s' && "
                      "uv lock -q --check && grep -c '^name = \"%s\"' "
                      "uv.lock" % (name, module, name), timeoutSeconds=120)
            if r["timedOut"] \
                    or r["exitCode"] and egress.FAULT.search(r["stderr"]):
                skip("the index was not reached: " + r["stderr"][-200:])
            same((r["exitCode"], r["stdout"]), (0, "1\n"), name
                 + r["stderr"][-300:])


@test("egress/options")
def options():
    r = Runner()
    import subprocess
    for words in (["--egress-allow-address", "0.0.0.0/0"],
                  ["--egress-allow-address", "10.0.0.1/8"],
                  ["--egress-allow-address", "host"],
                  ["--egress-allow-port", "0"],
                  ["--egress-resolver", "a host"],
                  ["--egress-user", "root"], ["--egress", "relative"]):
        done = subprocess.run(r.command_line() + words,
                              stderr=subprocess.PIPE)
        same(done.returncode, 1, words)
        check(words[0].encode() in done.stderr, "says which", done.stderr)
    shutil.rmtree(r.dir)


if __name__ == "__main__":
    main(start, stop)
