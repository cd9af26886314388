#!/usr/bin/env python3
"""The proxy for sandboxes on engines: one listener that all of them share, and
a token for each command that says whose it is.  By the owner's own wire and by
sockets, and once by an agent in a container as engines make them; the world is a loopback address with a resolver and a
certificate authority of the test's own."""

import base64
import hashlib
import hmac
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import agent_box                                             # noqa: E402
import egress                                                # noqa: E402
import wire                                                  # noqa: E402
from gateway import BUILD, CACHE, TOP, wait_for              # noqa: E402
from packages import wheel                                   # noqa: E402
from tap import check, log, main, same, skip, test           # noqa: E402

KEY = bytes(range(32))
NAMES = {"index.test": [egress.HOST], "files.test": [egress.HOST],
         "other.test": [egress.HOST], "third.test": [egress.HOST]}
LONG = 120
WAIT = 60                       # seconds for an answer

folder = resolver = authority = server = None


def start():
    global folder, resolver, authority, server
    # more than a thousand connections at once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (max(soft, min(hard, 8192)), hard))
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


def table(*hosts, **more):
    return egress.table(
        egress.policy("packs", *(hosts or ("index.test", "files.test")),
                      **more),
        egress.policy("few", "index.test", connections=2),
        egress.policy("short", "index.test", ms=1000),
        egress.policy("small", "index.test", size=300000))


class Owner:
    """The owner of an engine that nobody has, with its proxy."""

    def __init__(self, *options, listen=("127.0.0.1:0",), push=True,
                 prefix=()):
        self.folder = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
        self.socket = self.folder + "/socket"
        with open(self.folder + "/key", "w") as f:
            os.chmod(f.name, 0o600)
            f.write(KEY.hex() + "\n")
        self.log = open(self.folder + "/log", "w+")
        log(self.folder + "/log", "owner and proxy")
        words = [*prefix, BUILD + "/sandbox-runner", "--socket", self.socket,
                 "--key-file", self.folder + "/key",
                 "--egress-resolver", resolver.address,
                 "--egress-allow-address", egress.HOST + "/32", *options]
        if "--dagger" not in options:
            words += ["--dagger", "tcp://127.0.0.1:1"]
        for address in listen:
            words += ["--egress-listen", address]
        self.process = subprocess.Popen(words, stderr=self.log,
                                        stdin=subprocess.DEVNULL)
        self.client = wire.Client(self.socket, key=KEY)
        try:
            wait_for(self.answers, WAIT, "the owner")
            if push:
                self.push(table())
            if listen:
                host, _, port = self.proxies()[0].rpartition(":")
                self.proxy = (host, int(port or 0))
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            same(self.process.wait(WAIT), 0, "its status")
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.log.close()
            shutil.rmtree(self.folder)

    def answers(self):
        try:
            return self.ask()
        except OSError:
            return None

    def ask(self):
        return self.client.call(wire.PING).result

    def proxies(self):
        engines = [dict(wire.read_fields(e)) for e in self.ask()["ENGINE"]]
        return [e.get("EGRESS_PROXY", b"").decode() for e in engines]

    def push(self, body):
        answer = egress.push(self.client, body)
        same(answer.code, None, "the table is taken")

    def counts(self, name="packs"):
        return egress.counts(self.ask(), name)

    def text(self):
        self.log.flush()
        with open(self.folder + "/log", errors="replace") as f:
            return f.read()

    def wait_text(self, words):
        wait_for(lambda: words in self.text(), WAIT, words)

    def children(self):
        path = "/proc/%d/task/%d/children" % ((self.process.pid,) * 2)
        with open(path) as f:
            return [int(x) for x in f.read().split()]

    # a connection, from an address of its own

    def connect(self, source="127.0.0.1"):
        sock = socket.create_connection(self.proxy, WAIT, (source, 0))
        sock.settimeout(WAIT)
        return sock

    def request(self, sock, head):
        sock.sendall(head.encode() if isinstance(head, str) else head)
        return answer_of(sock)

    def tunnel(self, secret, host="index.test", source="127.0.0.1", port=443):
        """The connection, and the status of its answer."""
        sock = self.connect(source)
        status, _, _ = self.request(sock, connect(host, secret, port))
        return sock, status

    def status(self, *arguments, **options):
        sock, status = self.tunnel(*arguments, **options)
        sock.close()
        return status


def answer_of(sock):
    """Status, head and body of an answer; status 0: there was none."""
    got = b""
    try:
        while b"\r\n\r\n" not in got:
            piece = sock.recv(4096)
            if not piece:
                break
            got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        if head and b" 200 " not in head.split(b"\r\n")[0]:
            while True:
                piece = sock.recv(4096)
                if not piece:
                    break
                body += piece
    except ConnectionResetError:
        pass
    if not got:
        return 0, "", ""
    return int(got.split()[1]), head.decode(), body.decode()


def basic(secret):
    return "Basic " + base64.b64encode(secret.encode()).decode()


def connect(host="index.test", secret=None, port=443):
    text = "CONNECT %s:%d HTTP/1.1\r\nHost: %s\r\n" % (host, port, host)
    if secret is not None:
        text += "Proxy-Authorization: %s\r\n" % (
            basic(secret) if ":" in secret else secret)
    return text + "\r\n"


def session(number):
    return bytes([number]) * 32


def secret(number=1, name="packs", seconds=600, key=KEY, **options):
    return egress.token(key, session(number), name,
                        int(time.time()) + seconds, **options)


def over(sock):
    """Whether the other side has ended it."""
    try:
        return not sock.recv(4096)
    except ConnectionResetError:
        return True


def ended(socks):
    """Of connections on which nothing was said: how many are over."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock, select.POLLIN)
    return len(poll.poll(0))


@test("egress/engine-allowed", beside=True)
def allowed():
    with Owner() as o:
        sock, status = o.tunnel(secret())
        same(status, 200)
        context = ssl.create_default_context(cafile=authority.pem)
        tls = context.wrap_socket(sock, server_hostname="index.test")
        server.pages["/allowed"] = b"hello\n"
        tls.sendall(b"GET /allowed HTTP/1.0\r\nHost: index.test\r\n\r\n")
        got = b""
        while not got.endswith(b"hello\n"):
            piece = tls.recv(4096)
            check(piece, "it ends early", got)
            got += piece
        tls.close()
        same([s for s in server.seen if s[1] == "/allowed"],
             [("index.test", "/allowed")])
        wait_for(lambda: (lambda c: c["tunnels"] == 1 and c["open"] == 0
                          and c["up"] > 100 and c["down"] > 100)(o.counts()),
                 WAIT, "the counters")
        wait_for(lambda: re.search(
            'egress: sandbox %s, policy "packs", tunnel to index.test:443 '
            r"\(%s:443\), \d+ bytes out, \d+ in, \d+ ms: "
            % (session(1).hex(), re.escape(egress.HOST)), o.text()), WAIT,
            "a line of it, with the session")
        # the scheme is in any case, and other fields stand around it
        sock = o.connect()
        same(o.request(sock, "CONNECT INDEX.test:443 HTTP/1.1\r\nA: b\r\n"
                       "proxy-AUTHORIZATION:bAsIc  %s \r\nC: d\r\n\r\n"
                       % basic(secret()).split()[1])[0], 200)
        sock.close()


@test("egress/engine-refused", beside=True)
def refused():
    """Each byte of a token counts; the refusal says what is missing."""
    with Owner() as o:
        good = secret()
        user, password = good.split(":")
        other = egress.token(KEY, session(2), "packs", int(time.time()) + 600)
        now = int(time.time())
        for words in (
                None, "Basic", "Basic ", "Basic dXNlcjpwYXNz", "Bearer x",
                basic(good)[:-4], basic(good) + "AAAA", "x" * 4000,
                user + ":" + "0" * 64,
                user + ":" + password.upper(),
                user.upper() + ":" + password,
                other.split(":")[0] + ":" + password,
                secret(key=bytes(32)),
                # signed for another policy, another session, another time
                secret(sign=(session(1), "few", now + 600)),
                secret(sign=(session(2), "packs", now + 600)),
                egress.token(KEY, session(1), "packs", now + 9999999,
                             sign=(session(1), "packs", now + 600)),
                egress.token(KEY, session(1), 0, now + 600),
                secret(seconds=-1), secret(seconds=-100000)):
            sock = o.connect()
            status, head, body = o.request(sock, connect(secret=words))
            sock.close()
            same(status, 407, words)
            check('Proxy-Authenticate: Basic realm="' in head, "it asks", head)
            check("environment of the command" in body, "what to do", body)

        # the runner's key itself signs nothing
        text = bytes.fromhex(user)
        mac = hmac.digest(KEY, b"sandbox-egress" + text, "sha256").hex()
        same(o.status(user + ":" + mac), 407, "by the runner's key")

        # whose it is comes before what it is
        for head, expected in (
                ("GET http://index.test/ HTTP/1.1\r\n", (407, 403)),
                ("CONNECT %s:443 HTTP/1.1\r\n" % egress.HOST, (407, 403)),
                ("CONNECT index.test:22 HTTP/1.1\r\n", (407, 403)),
                ("CONNECT third.test:443 HTTP/1.1\r\n", (407, 403))):
            for words, status in zip(("", "Proxy-Authorization: %s\r\n"
                                      % basic(good)), expected):
                sock = o.connect()
                same(o.request(sock, head + words + "\r\n")[0], status, head)
                sock.close()
        same("third.test" in resolver.asked, False, "nobody is asked of it")
        sock = o.connect()
        same(o.request(sock, connect(secret=good).replace(
            "\r\n\r\n", "\r\nProxy-Authorization: %s\r\n\r\n" % basic(good)))
            [0], 400, "two of them")
        sock.close()

        # strangers are nobody's in the counters, what has expired is
        wait_for(lambda: o.counts()["refused"] == 6, WAIT, "the counters")
        same(o.counts()["tunnels"], 0)
        for words in ("no credentials", "credentials that are none of ours",
                      "wrong credentials", "expired credentials"):
            o.wait_text("egress: connection from 127.0.0.1:")
            o.wait_text("refused: " + words)
        same(o.status(good), 200, "and the good one is good")


@test("egress/engine-table", beside=True)
def changed():
    """A token names a policy: what that allows is what the table says now."""
    with Owner(push=False) as o:
        words = secret()
        same("EGRESS_DIGEST" in o.ask(), False, "no table yet")
        same(o.status(words), 403, "without a table")
        o.push(table())
        sock, status = o.tunnel(words)
        same(status, 200)
        keeps, status = o.tunnel(words, "files.test")
        same(status, 200)

        o.push(table("files.test", "other.test"))
        check(over(sock), "what is allowed no more ends")
        same(o.status(words), 403, "the same token later")
        same(o.status(words, "other.test"), 200, "what is new")
        same(ended([keeps]), 0, "what stays allowed stays")

        # the policy is gone: so are its tunnels, and its tokens are nothing
        o.push(egress.table(egress.policy("few", "index.test")))
        check(over(keeps), "the policy's end")
        sock = o.connect()
        status, _, body = o.request(sock, connect("files.test", words))
        sock.close()
        same(status, 403)
        check("has no network" in body, "what it says", body)
        same(o.status(secret(name="few")), 200, "another policy")
        o.push(table())
        same(o.status(words), 200, "given again")


@test("egress/engine-bounds", beside=True)
def bounds():
    """The caps of a policy, for each session."""
    with Owner() as o:
        first, status = o.tunnel(secret(1, "few"))
        same(status, 200)
        second, status = o.tunnel(secret(1, "few"))
        same(status, 200)
        same(o.status(secret(1, "few")), 503, "a third one")
        same(o.status(secret(2, "few")), 200, "of another session")
        same(o.status(secret(1, "packs")), 200, "by another policy")
        wait_for(lambda: o.counts("few")["refused"] == 1, WAIT, "counted")
        first.close()
        wait_for(lambda: o.status(secret(1, "few")) == 200, WAIT,
                 "room again")
        second.close()

        # time, of the policy and of the token: tunnels end by themselves
        def opens(name, seconds):
            # on a busy machine it may expire on its way
            sock, status = o.tunnel(secret(1, name, seconds))
            check(status in (200, 407), "its status", status)
            return sock if status == 200 else sock.close()

        for name, seconds in (("short", 600), ("packs", 3)):
            sock = wait_for(lambda: opens(name, seconds), WAIT, "a tunnel")
            check(over(sock), "it ends")
            sock.close()
        o.wait_text("its time is over")
        wait_for(lambda: o.text().count("its time is over") == 2, WAIT,
                 "both of them")

        # bytes, of a server that sends without end
        with socket.create_server((egress.HOST, 444)) as world:
            with Owner("--egress-allow-port", "444") as p:
                sock, status = p.tunnel(secret(1, "small"), port=444)
                same(status, 200)
                world.settimeout(WAIT)
                peer = world.accept()[0]
                peer.settimeout(WAIT)

                def sends():
                    try:
                        while True:
                            peer.sendall(b"x" * 65536)
                    except OSError:
                        pass

                thread = threading.Thread(target=sends, daemon=True)
                thread.start()
                got = 0
                try:
                    while True:
                        piece = sock.recv(65536)
                        if not piece:
                            break
                        got += len(piece)
                except ConnectionResetError:
                    pass
                thread.join(WAIT)
                check(not thread.is_alive(), "the server hears of it")
                peer.close()
                sock.close()
                check(got < 300000 + 2 * 65536, "bytes that came", got)
                same(p.status(secret(1, "small"), port=444), 403,
                     "and nothing more")
                check("carried all the bytes" in p.request(
                    p.connect(), connect(secret=secret(1, "small")))[2],
                    "what it says")
                same(p.status(secret(2, "small")), 200, "another session")


@test("egress/engine-strangers", beside=True)
def strangers():
    """Who says nothing of itself takes no room of those that do."""
    with Owner() as o:
        # slow ones: a byte now and then, or none
        slow = [o.connect("127.0.0.7") for _ in range(300)]
        for sock in slow[::2]:
            try:
                sock.sendall(b"CONNECT ")
            except OSError:
                pass
        for source in ("127.0.0.7", "127.0.0.8"):
            same(o.status(secret(), source=source), 200, source)
        # at most 256 of one place, the oldest made room
        wait_for(lambda: ended(slow) >= 44, WAIT, "the end of the oldest")

        # 1,000 at once from one address: so many are let in, and no more
        crowd = []
        for _ in range(1000):
            try:
                crowd.append(o.connect("127.0.0.9"))
            except OSError:
                pass
        wait_for(lambda: len(crowd) - ended(crowd) <= 256, WAIT,
                 "no more than 256")
        same(o.status(secret(), source="127.0.0.8"), 200, "another one")

        # who is wrong all the time is not even told so any more
        told = 0
        for _ in range(700):
            sock = o.connect("127.0.0.10")
            try:
                status, _, _ = o.request(sock, connect(secret="Basic x"))
            except OSError:
                status = 0
            sock.close()
            if status == 0:
                break
            told += 1
        check(told >= 400, "many are told", told)
        same(o.status(secret(), source="127.0.0.8"), 200, "another one")

        # and it is not for ever
        def again():
            try:
                return o.status(secret(), source="127.0.0.10") == 200
            except OSError:
                return False

        wait_for(again, WAIT, "the same address again")
        # by themselves slow ones end after ten seconds
        wait_for(lambda: ended(slow) == len(slow), LONG, "the slow ones")
        for sock in slow + crowd:
            sock.close()
        same(o.counts()["refused"], 0, "they are nobody's")


@test("egress/engine-proxy-ends", beside=True)
def proxy_ends():
    """Another one begins, on the same listener, and counts on."""
    with Owner() as o:
        first = o.children()
        same(len(first), 1, "its children")
        sock, status = o.tunnel(secret())
        same(status, 200)
        wait_for(lambda: o.counts()["open"] == 1, WAIT, "its count")
        os.kill(first[0], signal.SIGKILL)
        check(over(sock), "its tunnels end")
        same(o.status(secret()), 200, "connections wait for the next one")
        wait_for(lambda: o.counts()["tunnels"] == 2, WAIT, "they add up")
        second = o.children()
        same((len(second), second != first), (1, True), "another one")
        check("is lost: it ended" in o.text(), "the log")
        child = second[0]
    wait_for(lambda: not os.path.exists("/proc/%d" % child), WAIT,
             "it ends with its owner")
    # one that can't be started is none, and nginx hears so
    with Owner("--egress", "/nonexistent", push=False) as o:
        wait_for(lambda: o.proxies() == [""], WAIT, "no proxy any more")
        o.wait_text('the proxy "/nonexistent" can\'t be run')


@test("egress/engine-confined", beside=True)
def confined():
    """What the proxy has not: rights, files, the key of the runner.  Its owner
    has no more than by its unit."""
    with open(TOP + "/systemd/sandbox-dagger.service") as f:
        rights = re.search(r"^CapabilityBoundingSet=(.*)$", f.read(), re.M)[1]
    rights = ",".join("+" + r[4:].lower() for r in rights.split())
    with Owner(prefix=("setpriv", "--no-new-privs", "--bounding-set",
                       "-all," + rights)) as o:
        same(o.status(secret()), 200)
        # what it gives back of its memory it has given back by then
        wait_for(lambda: (lambda c: c["tunnels"] == 1 and c["open"] == 0)(
            o.counts()), WAIT, "its end")
        pid = o.children()[0]
        with open("/proc/%d/status" % pid) as f:
            found = dict(line.split(":\t", 1) for line in f if ":\t" in line)
        check("0" not in found["Uid"].split(), "its user", found["Uid"])
        same(int(found["CapPrm"], 16) | int(found["CapBnd"], 16)
             & int(found["CapEff"], 16), 0)
        same(found["Seccomp"].strip(), "2")
        same(found["NoNewPrivs"].strip(), "1")
        same(os.listdir("/proc/%d/root" % pid), [], "its root")
        subkey = hmac.digest(KEY, b"egress", "sha256")
        seen = {"key": False, "subkey": False}
        with open("/proc/%d/maps" % pid) as maps, \
                open("/proc/%d/mem" % pid, "rb", 0) as memory:
            for line in maps:
                span, rights = line.split()[:2]
                if not rights.startswith("rw"):
                    continue
                low, high = (int(x, 16) for x in span.split("-"))
                memory.seek(low)
                data = memory.read(min(high - low, 1 << 26))
                seen["subkey"] |= subkey in data
                seen["key"] |= KEY in data or KEY.hex().encode() in data
        same(seen, {"key": False, "subkey": True})
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            words = f.read()
        check(subkey.hex().encode() not in words, "its arguments", words)


@test("egress/engine-owner", beside=True)
def owner():
    """What nginx asks and tells, and what is refused."""
    with Owner("--dagger", "tcp://127.0.0.1:1", "--dagger",
               "tcp://127.0.0.1:2", "--dagger", "tcp://127.0.0.1:3",
               listen=("127.0.0.1:0", "127.0.0.2:0"), push=False) as o:
        one, two, three = o.proxies()
        check(one.startswith("127.0.0.1:") and two.startswith("127.0.0.2:"),
              "an address for each engine", one, two)
        same(three, two, "the last for those that have none")

        same(egress.push(o.client, table(), bytes(32)).code, "bad_request")
        same(egress.push(o.client, b"junk" * 10).code, "bad_request")
        same(o.client.call(wire.EGRESS, b"x" * 100, b"").code, "bad_request")
        same("EGRESS_DIGEST" in o.ask(), False, "none was taken")
        with o.client.send(wire.EGRESS, b"", b"") as sock:
            same(o.client.answer(sock).code, "bad_request", "no digest")
        too_long = wire.Preamble(wire.EGRESS, body=5 << 20, key=KEY)
        with o.client.connect() as sock:
            sock.sendall(too_long.encode())
            same(o.client.answer(sock).code, "bad_request", "too long")

        # one that comes slowly; meanwhile there is no other, then there is
        body = table()
        head = wire.fields(("EGRESS_DIGEST", hashlib.sha256(body).digest()))
        first = wire.Preamble(wire.EGRESS, head=len(head), body=len(body),
                              key=KEY)
        sock = o.client.connect()
        sock.sendall(first.encode() + head + body[:10])

        def busy():
            return egress.push(o.client, table()).code == "at_capacity"

        wait_for(busy, WAIT, "that it is being read")
        same(o.ask()["READY"], 0, "questions are answered meanwhile")
        sock.sendall(body[10:])
        same(o.client.answer(sock).code, None)
        sock.close()
        # who leaves in the middle leaves no lock behind
        sock = o.client.connect()
        sock.sendall(first.encode() + head + body[:10])
        wait_for(busy, WAIT, "that it is being read")
        sock.close()
        wait_for(lambda: egress.push(o.client, table("other.test")).code
                 is None, WAIT, "room for another")
        same(o.ask()["EGRESS_DIGEST"],
             hashlib.sha256(table("other.test")).digest())
        empty = egress.push(o.client, b"")
        same((empty.code, empty.result["EGRESS_DIGEST"]),
             (None, hashlib.sha256(b"").digest()), "none at all")

    # many engines and many policies: what has no room is left out
    many = []
    for i in range(16):
        many += ["--dagger", "tcp://127.0.0.1:%d" % (i + 1)]
    with Owner(*many, push=False) as o:
        o.push(egress.table(*[egress.policy("p%062d" % i, "index.test")
                              for i in range(64)]))
        result = o.ask()
        same(len(result["ENGINE"]), 16)
        check(len(result["EGRESS_COUNT"]) > 20, "counters",
              len(result["EGRESS_COUNT"]))

    # without a listener the table is taken, and there is no proxy
    with Owner(listen=()) as o:
        same(o.proxies(), [""])
        check("EGRESS_DIGEST" in o.ask(), "the table")
        same(o.children(), [])


@test("egress/engine-options", beside=True)
def options():
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/key", "w") as f:
            os.chmod(f.name, 0o600)
            f.write(KEY.hex())
        words = [BUILD + "/sandbox-runner", "--socket", d + "/socket",
                 "--key-file", d + "/key"]
        for value in ("3128", "host:3128", "0.0.0.0:3128", "[::]:3128",
                      "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:",
                      "::1:3128", "[127.0.0.1]:1"):
            done = subprocess.run(
                words + ["--dagger", "tcp://127.0.0.1:1", "--egress-listen",
                         value], stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE, timeout=WAIT, check=False)
            same(done.returncode, 1, value)
            check(b'--egress-listen "%s"' % value.encode() in done.stderr,
                  "says which", done.stderr)
        # a bridge may come later than the owner
        with Owner(listen=("127.0.0.1:0", "192.0.2.1:0", "[2001:db8::1]:0")) \
                as o:
            o.wait_text("no interface of this host has the address of "
                        '--egress-listen "192.0.2.1:0" yet')
            o.wait_text('"[2001:db8::1]:0" yet')
            same(o.status(secret()), 200)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = subprocess.run(
                words + ["--dagger", "tcp://127.0.0.1:1", "--egress-listen",
                         "127.0.0.1:%d" % taken.getsockname()[1]],
                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=WAIT, check=False)
            same(done.returncode, 1)
            check(b"can't be listened on: Address already in use"
                  in done.stderr, "why not", done.stderr)
        done = subprocess.run(
            words + ["--state", d, "--base", d, "--agent", d + "/key",
                     "--egress-listen", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=WAIT,
            check=False)
        same(done.returncode, 1)
        check(b"is for --dagger" in done.stderr, "why not", done.stderr)


# A host with a bridge, two containers on it, and a world behind; all of it in
# namespaces that end with this program.

NETWORK = r"""
import os, socket, subprocess, sys, threading, time

def run(*words, ns=None):
    words = (["nsenter", "-t", str(ns), "-n"] if ns else []) + list(words)
    return subprocess.run(words, check=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE).stdout

SERVER = '''
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("up", flush=True)
while True:
    s.accept()[0].close()
'''

ASK = '''
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 1.5)
    print(1)
except OSError:
    print(0)
'''

def space():
    p = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE)
    own = os.readlink("/proc/self/ns/net")
    while os.readlink("/proc/%d/ns/net" % p.pid) == own:
        time.sleep(0.01)
    run("ip", "link", "set", "lo", "up", ns=p.pid)
    return p.pid

def serve(ns, address, port):
    p = subprocess.Popen(
        (["nsenter", "-t", str(ns), "-n"] if ns else [])
        + [sys.executable, "-c", SERVER, address, str(port)],
        stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"up\n"

def reach(ns, address, port):
    return int(run(sys.executable, "-c", ASK, address, str(port), ns=ns))

def ip(words, ns=None):
    run("ip", *words.split(), ns=ns)

ip("link set lo up")
ip("link add dagger0 type bridge")
ip("addr add 10.87.0.1/16 dev dagger0")
ip("link set dagger0 up")
one, two, world = space(), space(), space()
for number, ns in ((11, one), (12, two)):
    ip("link add v%d type veth peer name eth0 netns %d" % (number, ns))
    ip("link set v%d master dagger0 up" % number)
    ip("addr add 10.87.0.%d/16 dev eth0" % number, ns)
    ip("link set eth0 up", ns)
    ip("route add default via 10.87.0.1", ns)
ip("link add wan type veth peer name eth0 netns %d" % world)
ip("addr add 198.51.100.1/24 dev wan")
ip("link set wan up")
ip("addr add 198.51.100.2/24 dev eth0", world)
ip("link set eth0 up", world)
ip("route add 10.87.0.0/16 via 198.51.100.1", world)
with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
    f.write("1")
serve(None, "10.87.0.1", 3128)
serve(None, "10.87.0.1", 53)
serve(None, "198.51.100.1", 3128)
serve(one, "10.87.0.11", 9000)
serve(two, "10.87.0.12", 9000)
serve(world, "198.51.100.2", 443)

def look():
    return [reach(one, "10.87.0.1", 3128), reach(None, "10.87.0.11", 9000),
            reach(None, "198.51.100.2", 443), reach(one, "10.87.0.1", 53),
            reach(one, "198.51.100.1", 3128), reach(one, "10.87.0.12", 9000),
            reach(one, "198.51.100.2", 443)]

# all, when the first n of them can be reached

def until(n):
    end = time.monotonic() + 100
    seen = look()
    while seen[:n] != [1] * n and time.monotonic() < end:
        time.sleep(0.2)
        seen = look()
    return seen

print(until(7), flush=True)
loaded = subprocess.run(["nft", "-f", sys.argv[1]], stderr=subprocess.PIPE)
if loaded.returncode:
    print("skip " + loaded.stderr.decode().replace("\n", " "))
else:
    # what has to come is waited for
    print(until(3))
"""


@test("egress/engine-firewall", beside=True)
def firewall():
    """The rules of docs/egress.md, on a bridge: to the proxy, back to nginx,
    and nowhere else."""
    for name in ("nft", "ip"):
        if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") \
                is None:
            skip("there is no " + name)
    with open(TOP + "/docs/egress.md") as f:
        rules = f.read().split("```nft\n")[1].split("```")[0]
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/rules", "w") as f:
            f.write(rules)
        done = subprocess.run(
            ["unshare", "-n", "-p", "-f", "--kill-child", "--mount-proc",
             sys.executable, "-c", NETWORK, d + "/rules"],
            env=dict(os.environ, PATH=os.environ["PATH"]
                     + ":/usr/sbin:/sbin"), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=280,
            check=False)
    same((done.returncode, done.stderr[-1500:]), (0, b""))
    before, after = done.stdout.decode().splitlines()
    same(before, "[1, 1, 1, 1, 1, 1, 1]", "without the rules")
    if after.startswith("skip"):
        skip("this kernel takes no such rules: " + after[5:200])
    same(after, "[1, 1, 1, 0, 0, 0, 0]", "proxy, agent, the host's own; "
         "names, another port, another container, the world")


CLIENTS = r"""
import httpx, json, os, subprocess, urllib.request

def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    return (done.stdout.decode().strip() or done.stderr.decode())[-400:]

url = "https://index.test/hello"
said = {
    "curl": run("curl", "-sS", url),
    "urllib": urllib.request.urlopen(url).read().decode().strip(),
    "httpx": httpx.get(url, timeout=100).text.strip(),
    "node": run("node", "-e", "fetch('%s').then(r => r.text())"
                ".then(t => process.stdout.write(t))" % url),
    "git": run("git", "ls-remote", "https://index.test/repo.git"),
    "uv": run("uv", "pip", "install", "-q", "--target", "/tmp/packages",
              "tinya") or run("python3", "-c", "import sys; "
              "sys.path.insert(0, '/tmp/packages'); import tinya; "
              "print(tinya.answer)"),
}
print(json.dumps(said))
"""


@test("egress/engine-clients", beside=True)
def clients():
    """Programs of the base image say whose they are by themselves: with the
    first request, since what they are told by a 407 some never try."""
    refs = b"".join(b"%04x%s" % (len(t) + 4, t) if t else b"0000" for t in (
        b"# service=git-upload-pack\n", b"",
        b"%s HEAD\0agent=test\n" % (b"1" * 40), b""))
    server.pages["/repo.git/info/refs?service=git-upload-pack"] = (
        200, {"Content-Type": "application/x-git-upload-pack-advertisement"},
        refs)
    root = os.path.realpath(CACHE + "/base/current/rootfs")
    with Owner() as o, tempfile.TemporaryDirectory() as d:
        proxy = "http://%s@%s:%d" % ((secret(),) + o.proxy)
        env = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY",
                             "http_proxy"), proxy)
        env.update(dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE",
                                  "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
                                  "NODE_EXTRA_CA_CERTS"), "/tmp/ca.pem"))
        env.update(NODE_USE_ENV_PROXY="1", HOME="/tmp", NO_PROXY="localhost",
                   UV_DEFAULT_INDEX="https://index.test/simple/",
                   GIT_HTTP_PROXY_AUTHMETHOD="basic",
                   PATH="/usr/local/bin:/usr/bin:/bin")
        with open(d + "/clients.py", "w") as f:
            f.write(CLIENTS)
        os.chmod(d, 0o755)
        done = subprocess.run(
            ["unshare", "-m", "--propagation", "private", "sh", "-ec",
             'mount -t tmpfs -o mode=1777 none "$1/tmp"; '
             'mount --rbind /dev "$1/dev"; mount -t proc none "$1/proc"; '
             'cp "$2" "$1/tmp/ca.pem"; cp "$3/clients.py" "$1/tmp/"; '
             'chmod 644 "$1/tmp/ca.pem" "$1/tmp/clients.py"; '
             'exec /usr/sbin/chroot --userspec=65533:65533 "$1" python3 /tmp/clients.py',
             "sh", root, authority.pem, d], env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=250,
            check=False)
        same((done.returncode, done.stderr[-600:]), (0, b""), done.stderr)
        same(json.loads(done.stdout), {
            "curl": "hello", "urllib": "hello", "httpx": "hello",
            "node": "hello", "uv": "42", "git": "1" * 40 + "\tHEAD"})
        check("no credentials" not in o.text(), "one asked first", o.text())


@test("egress/engine-command")
def command():
    """Of two commands in one container that one has a way out that nginx gave
    it; nothing of it is left for the next."""
    agent_box.alone()
    fence = agent_box.Fence()
    box = None
    try:
        box = agent_box.Box(fence).start()
        with Owner() as o:
            words = egress.token(KEY, agent_box.SESSION, "packs",
                                 int(time.time()) + 600)
            way = {"EGRESS_PROXY": "%s:%d" % o.proxy, "EGRESS_TOKEN": words,
                   "EGRESS_INDEX": "https://index.test/simple/",
                   "EGRESS_CA": authority.text}

            def run(text, **more):
                # of others' processes a machine may be full: their user is the
                # same one, as on a host of engines
                def ran():
                    a = box.run(text, **more)
                    return None if b"temporarily unavail" in a.stderr else a

                return wait_for(ran, LONG, "room for processes")

            def out(text, **more):
                a = run(text, **more)
                same((a.code, a.result.get("EXIT_CODE"), a.stderr),
                     (None, 0, b""), text)
                return a.stdout.decode()

            same(out("echo $UV_OFFLINE$https_proxy"), "1\n")
            same(out("curl -sS https://index.test/hello", **way), "hello\n")
            same(out("python3 -c 'import httpx; "
                     "print(httpx.get(\"https://files.test/hello\", "
                     "timeout=100).text)'; "
                     "echo $UV_OFFLINE$UV_DEFAULT_INDEX", **way),
                 "hello\n\nhttps://index.test/simple/\n")
            same(out("uv add -q tinya && python3 -c 'import tinya; "
                     "print(tinya.answer)'", **way), "42\n")
            text = out("stat -c '%U %a' $SSL_CERT_FILE; tail -n 30 "
                       "$SSL_CERT_FILE; grep -c BEGIN $SSL_CERT_FILE", **way)
            check(text.startswith("root 644\n")
                  and authority.text.decode().strip() in text,
                  "its certificates", text)
            check(int(text.split()[-1]) > 50, "and the base's", text)
            a = run("curl -sS -m 100 https://other.test/hello", **way)
            check(b"403" in a.stderr, "what the policy has not", a.stderr)
            # another policy has no index, and the base's certificates alone
            way = {"EGRESS_PROXY": way["EGRESS_PROXY"], "EGRESS_TOKEN": words}
            a = run("echo $UV_DEFAULT_INDEX$UV_OFFLINE; "
                    "curl -sS https://index.test/hello", **way)
            same(a.stdout, b"\n")
            check(b"certificate" in a.stderr, "not trusted", a.stderr)
            # one without the other is none
            way.pop("EGRESS_TOKEN")
            for more in (way, {}):
                same(out("echo $UV_OFFLINE$https_proxy", **more), "1\n")
                a = run("python3 -c 'import socket; socket.socket()'", **more)
                check(b"Address family not supported" in a.stderr, "a socket",
                      a.stderr)
            a = box.run("true", EGRESS_PROXY="a host", EGRESS_TOKEN=words)
            same(a.code, "bad_request")
            wait_for(lambda: o.counts()["refused"] == 1
                     and o.counts()["open"] == 0, WAIT, "the counters")
            o.wait_text("egress: sandbox %s, policy"
                        % agent_box.SESSION.hex())
    finally:
        if box is not None:
            box.stop()
        fence.remove()


if __name__ == "__main__":
    main(start, stop)
