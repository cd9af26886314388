"""What the module sees of the Dagger backend, without containers: the owner of
sessions (PING on a unix socket), engines (POST /query), agents (mock_runner's,
on TCP) and the name server of their network, all in this process.

    with World(engines=2) as world:
        g = Gateway(runner=None); world.configure(g) ...

An engine makes volumes, and starts an agent for each definition of a service,
once.  What goes wrong is said by attributes; a test may change them at any
time.  Agents have addresses below 127, all of them port 9000.
"""

import base64
import hashlib
import json
import os
import random
import re
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import mock_runner                                             # noqa: E402
import wire                                                    # noqa: E402
from gateway import free_port                                  # noqa: E402

PORT = 9000


def serve(listener, handler):
    """A thread for each connection, until the listener is closed."""
    def accept():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    def one(sock):
        try:
            handler(sock)
        except (OSError, ValueError, wire.Bad, wire.Lost, mock_runner.Close):
            pass
        finally:
            sock.close()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def shut(listener):
    """Closes it, and nobody waits in accept() any more."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    listener.close()


def listen(address, port, wait=10):
    end = time.monotonic() + wait
    while True:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(64)
            return listener
        except OSError:
            listener.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


class Mock(mock_runner.Mock):
    first = 0                       # instance of a volume that is new

    def session(self, key):
        new = key not in self.sessions
        session = super().session(key)
        if new:
            session.instance = self.first
        return session


class Agent:
    """Of one service; `mock` has the sessions and the secret."""

    def __init__(self, engine, definition, environment):
        self.engine = engine
        self.definition = definition
        self.environment = environment
        self.session = environment["SANDBOX_ENGINE_SESSION"]
        self.epoch = int(environment["SANDBOX_ENGINE_EPOCH"])
        self.address = engine.world.address()
        self.fenced = False
        self.drop = 0               # connections that are closed unread
        self.connections = 0
        self.preambles = []
        self.socks = set()
        self.listener = None
        volume = engine.volumes.setdefault(self.session, {})
        if "mock" not in volume:
            volume["mock"] = Mock(b"")
            volume["mock"].first = engine.wipes * 1000
        self.mock = volume["mock"]
        self.secret = bytes.fromhex(environment["SANDBOX_ENGINE_SECRET"])

    def start(self):
        if self.engine.deaf:
            return
        delay = self.engine.delay
        if delay:
            threading.Timer(delay, self.up).start()
        else:
            self.up()

    def up(self):
        self.listener = serve(listen(self.address, PORT), self.one)

    @property
    def alive(self):
        return self.listener is not None

    def end(self):
        """As a container that is gone: its connections are reset."""
        if self.listener is not None:
            shut(self.listener)
            self.listener = None
        for sock in list(self.socks):
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def one(self, sock):
        self.connections += 1
        if self.drop:
            self.drop -= 1
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack("ii", 1, 0))
            return
        self.socks.add(sock)
        try:
            connection = Connection(self.mock, sock)
            connection.agent = self
            connection.serve()
        finally:
            self.socks.discard(sock)


class Connection(mock_runner.Connection):
    agent = None

    def read(self):
        super().read()
        self.agent.preambles.append(self.first)
        if self.agent.fenced:
            self.error("fenced", 0)
            raise mock_runner.Close
        if self.first.key != self.agent.secret:
            self.error("unauthorized_peer", 0)
            raise mock_runner.Close
        self.mock.key = self.first.key


class Engine:
    def __init__(self, world, number):
        self.world = world
        self.number = number
        self.deaf = False           # agents never listen
        self.delay = 0              # seconds, before one listens
        self.hang = set()           # "volumes", "service", "exec": no answer
        self.refuse = {}            # likewise: a sentence
        self.path = None            # of such an error
        self.ready = True           # as the owner tells it
        self.proxy = None           # likewise: of egress, "ADDRESS:PORT"
        self.generation = int(time.time() * 1000) + number
        self.domain = "e%d.dagger.local" % number
        self.volumes = {}           # session: what is in it
        self.wipes = 1              # instances rise
        self.agents = {}            # definition: Agent
        self.hosts = {}             # name: Agent
        self.queries = []           # "volumes", "service", "exec"
        self.now = threading.local()    # .kind: what this thread answers
        self.open = 0               # questions that wait
        self.started = []           # all agents there ever were
        self.executed = []          # those of execs
        self.nonces = set()
        self.lock = threading.Lock()
        self.listener = None
        self.port = None
        self.up()

    @property
    def name(self):
        return "tcp://127.0.0.1:%d" % self.port

    @property
    def metadata(self):
        return base64.b64encode(b'{"client_id":"c%d","session_id":"s%d"}' % (
            self.number, self.generation)).decode()

    def up(self):
        # nobody's while it is down
        self.port = self.port or free_port()
        listener = listen("127.0.0.1", self.port)
        self.listener = serve(listener, self.one)
        self.ready = True

    def down(self, wipe=True):
        """Killed: agents end, volumes are empty when it is there again."""
        self.ready = False
        shut(self.listener)
        self.end_agents()
        if wipe:
            self.volumes = {}
            self.wipes += 1

    def end_agents(self):
        with self.lock:
            agents, self.agents = list(self.agents.values()), {}
            self.hosts = {}
        for agent in agents:
            agent.end()

    def renew(self):
        """Another session: agents of the one before end."""
        self.generation += 1000
        self.end_agents()

    def agent(self, session=None):
        """The one that there is (of that session)."""
        found = [a for a in self.agents.values() if a.alive
                 and (session is None or a.session == session)]
        return found[-1] if found else None

    def one(self, sock):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                return
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        head = head.decode("latin-1")
        length = int(re.search(r"(?i)content-length: *(\d+)", head).group(1))
        while len(body) < length:
            piece = sock.recv(65536)
            if not piece:
                return
            body += piece
        metadata = re.search(r"(?i)x-dagger-client-metadata: *(.*)\r?", head)
        text = json.loads(body)["query"]
        kind = "volumes" if "cacheVolume" in text else \
            "service" if "asService" in text else "exec"
        with self.lock:
            self.queries.append(kind)
            self.now.kind = kind
            self.open += 1
        try:
            if metadata.group(1).strip() != self.metadata:
                return self.answer(sock, error="session is not known")
            if kind in self.hang:
                while kind in self.hang:
                    sock.settimeout(0.1)
                    try:
                        if not sock.recv(1):
                            return
                    except socket.timeout:
                        pass
            if kind in self.refuse:
                return self.answer(sock, error=self.refuse[kind])
            self.answer(sock, getattr(self, "do_" + kind)(text))
        finally:
            with self.lock:
                self.open -= 1

    def answer(self, sock, data=None, error=None):
        out = {"data": data} if error is None else \
            {"data": None, "errors": [dict({"message": error}, **(
                {"path": self.path} if self.path else {}))]}
        out = json.dumps(out).encode()
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\nConnection: close\r\n\r\n"
                     % len(out) + out)

    def do_volumes(self, text):
        return {alias: {"id": "vol-" + hashlib.sha256(
                    (key + owner).encode()).hexdigest()[:24]}
                for alias, key, owner in re.findall(
                    r'(\w+):cacheVolume\(key:"([^"]+)",owner:"([^"]+)"\)',
                    text)}

    def nest(self, text, leaf):
        """The answer has the shape of the question."""
        names = re.findall(r"\{(\w+)[({]", text)
        out = leaf
        for name in reversed(names):
            out = {name: out}
        return out

    def environment(self, text):
        return dict(re.findall(
            r'withEnvVariable\(name:"(\w+)",value:"([^"]*)"\)', text))

    def do_service(self, text):
        if text.count("{") != text.count("}"):
            raise ValueError("braces")
        definition = hashlib.sha256(text.encode()).hexdigest()
        with self.lock:
            agent = self.agents.get(definition)
            if agent is None or not (agent.alive or self.deaf or self.delay):
                agent = Agent(self, definition, self.environment(text))
                self.agents[definition] = agent
                self.hosts[definition[:13]] = agent
                self.started.append(agent)
                agent.start()
        return self.nest(text, {"hostname": definition[:13],
                                "start": "svc"})


    def do_exec(self, text):
        """The same agent on one connection, whose bytes are in the query."""
        environment = self.environment(text)
        data = base64.b64decode(re.search(r'stdin:"([^"]*)"', text).group(1),
                                validate=True)
        if environment["SANDBOX_ENGINE_NONCE"] in self.nonces:
            raise ValueError("a nonce that is known")
        self.nonces.add(environment["SANDBOX_ENGINE_NONCE"])
        agent = Agent(self, None, environment)
        self.executed.append(agent)
        ours, theirs = socket.socketpair()
        out = b""
        threading.Thread(target=ours.sendall, args=(data,),
                         daemon=True).start()

        def serve_one():
            try:
                agent.one(theirs)
            except (OSError, wire.Bad, wire.Lost, mock_runner.Close):
                pass
            theirs.close()
        threading.Thread(target=serve_one, daemon=True).start()
        while True:
            piece = ours.recv(65536)
            if not piece:
                break
            out += piece
        ours.close()
        return self.nest(text, {"exitCode": 0, "stderr": "",
                                "stdout": base64.b64encode(out).decode()})


class Owner:
    """sandbox-runner --dagger, as far as nginx sees it."""

    def __init__(self, world, path, key):
        self.world = world
        self.path = path
        self.mock = mock_runner.Mock(key)
        self.mock.world = world
        self.listener = None

    def up(self):
        listener = socket.socket(socket.AF_UNIX)
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        listener.bind(self.path)
        os.chmod(self.path, 0o666)
        listener.listen(64)
        self.listener = serve(listener, self.one)

    def down(self):
        shut(self.listener)
        os.unlink(self.path)

    def one(self, sock):
        OwnerConnection(self.mock, sock).serve()


class OwnerConnection(mock_runner.Connection):
    def operation_ping(self):
        self.mock.world.questions += 1
        self.mock.world.speaks.wait(60)
        engines = self.mock.world.engines
        self.reply(("READY", int(any(e.ready for e in engines))),
                   ("VERSION", "0.0-mock"), ("RUNTIME", "dagger"),
                   *[("ENGINE", wire.fields(
                       ("ENGINE_NAME", e.name), ("READY", int(e.ready)),
                       ("DETAIL", None if e.ready else "it is down"),
                       ("ENGINE_GENERATION", e.generation if e.ready else None),
                       ("ENGINE_METADATA", e.metadata if e.ready else None),
                       ("ENGINE_DOMAIN", e.domain if e.ready else None),
                       ("EGRESS_PROXY", e.proxy)))
                     for e in engines],
                   ("EGRESS_DIGEST",
                    hashlib.sha256(self.mock.table).digest()))


class Names:
    """DNS for the agents' names; `silent`: no answer at all."""

    def __init__(self, world):
        self.world = world
        self.silent = False
        self.missing = 0            # questions that get NXDOMAIN
        self.asked = []
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                data, peer = self.sock.recvfrom(2048)
            except OSError:
                return
            if not data:
                return
            try:
                answer = self.answer(data)
            except (IndexError, struct.error):
                continue
            if answer and not self.silent:
                self.sock.sendto(answer, peer)

    def answer(self, data):
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode())
            at += 1 + data[at]
        question = data[12:at + 5]
        name = ".".join(labels)
        self.asked.append(name)
        address = None
        for engine in self.world.engines:
            host, _, domain = name.partition(".")
            agent = engine.hosts.get(host)
            if domain == engine.domain and agent is not None:
                address = agent.address
        if self.missing:
            self.missing -= 1
            address = None
        head = data[:2] + struct.pack(
            ">HHHHH", 0x8180 if address else 0x8183, 1, int(bool(address)),
            0, 0)
        if address is None:
            return head + question
        return head + question + struct.pack(
            ">HHHIH", 0xc00c, 1, 1, 60, 4) + socket.inet_aton(address)

    def end(self):
        self.sock.close()


class World:
    def __init__(self, engines=1):
        self.net = "127.%d." % random.SystemRandom().randrange(1, 255)
        self.start = random.SystemRandom().randrange(256)
        self.last = 0
        self.lock = threading.Lock()
        self.engines = [Engine(self, n) for n in range(engines)]
        self.names = Names(self)
        self.owner = None
        self.questions = 0          # to the owner
        self.speaks = threading.Event()     # cleared: it answers later
        self.speaks.set()

    def address(self):
        """One that nobody had before, nor another test has."""
        with self.lock:
            while True:
                self.last += 1
                address = "%s%d.%d" % (self.net, self.start % 256,
                                       self.last % 250 + 1)
                if self.last % 250 == 0:
                    self.start += 1
                with socket.socket() as s:
                    try:
                        s.bind((address, PORT))
                        return address
                    except OSError:
                        continue

    def lines(self, more=""):
        """Directives for a location (or above)."""
        return """
            sandbox_backend dagger;
            sandbox_dagger %s resolver=127.0.0.1:%d %s;
            sandbox_dagger_image 127.0.0.1:5000/sandbox@sha256:%s;
        """ % (" ".join(e.name for e in self.engines), self.names.port,
               more, "0" * 64)

    def own(self, gateway):
        """The owner, where that gateway looks for it."""
        self.owner = Owner(self, gateway.socket, gateway.key)
        self.owner.up()

    def end(self):
        for engine in self.engines:
            shut(engine.listener)
            engine.end_agents()
        self.names.end()
        if self.owner:
            shut(self.owner.listener)
