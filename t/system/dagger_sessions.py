#!/usr/bin/env python3
"""sandbox-runner --dagger, which holds the sessions of container engines, with
engines that are as strict as the real one but run nothing.

With SANDBOX_TEST_DAGGER=tcp://HOST:PORT what can be asked of a real engine is.
"""

import hashlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import BUILD, free_port, wait_for               # noqa: E402
from tap import check, log, main, same, test           # noqa: E402

try:
    from engine import Engine, transcript
except ImportError:
    Engine = None

KEY = bytes(range(32))


def start():
    if Engine is None:
        raise SystemExit("python3-h2 is missing: run 'make deps'")


class Owner:
    """The daemon, with these engines."""

    def __init__(self, *engines):
        self.engines = engines

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
        self.socket = self.folder + "/socket"
        with open(self.folder + "/key", "w") as f:
            os.chmod(f.name, 0o600)
            f.write(KEY.hex() + "\n")
        self.log = open(self.folder + "/log", "w+")
        log(self.folder + "/log", "owner of sessions")
        self.process = self.run()
        self.client = wire.Client(self.socket, key=KEY)
        self.up()
        return self

    def up(self):
        """Until it listens, which is a moment after its file is there."""
        def connects():
            try:
                self.client.connect().close()
            except OSError:
                return False
            return True

        wait_for(connects, 60, "its socket")

    def run(self):
        options = []
        for engine in self.engines:
            options += ["--dagger", engine if isinstance(engine, str)
                        else "tcp://127.0.0.1:%d" % engine.port]
        return subprocess.Popen(
            [BUILD + "/sandbox-runner", "--socket", self.socket, "--key-file",
             self.folder + "/key"] + options, stderr=self.log,
            stdin=subprocess.DEVNULL)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.log.close()
            subprocess.run(["rm", "-rf", self.folder], check=True)

    def ask(self):
        return self.client.call(wire.PING).result

    def tell(self):
        """What it says of each engine."""
        return [dict(wire.read_fields(e)) for e in self.ask()["ENGINE"]]

    def ready(self, count=1):
        wait_for(lambda: sum(e["READY"] for e in self.tell()) == count, 90,
                 "%d engines to be ready" % count)
        return self.tell()

    def text(self):
        self.log.flush()
        with open(self.folder + "/log") as f:
            return f.read()


@test("dagger/transcript")
def recorded():
    """The engine of these tests first: as the real one, byte for byte."""
    # what was recorded has no question for health in between
    with Engine(health=1000) as engine:
        for got, expected in transcript(engine.port):
            same(got, expected)
        same(engine.faults, [])


@test("dagger/session-held", beside=True)
def held():
    real = os.environ.get("SANDBOX_TEST_DAGGER")
    if real:
        with Owner(real) as owner:
            told = owner.ready()[0]
            time.sleep(25)
            same(owner.ready()[0], told, "after some questions for health")
        return
    with Engine(health=0.2) as engine, Owner(engine) as owner:
        told = owner.ready()[0]
        same(told["ENGINE_NAME"], b"tcp://127.0.0.1:%d" % engine.port)
        check(told["ENGINE_GENERATION"] > 1.7e12, "its generation", told)
        check(told["ENGINE_DOMAIN"].endswith(b".dagger.local"), "domain", told)
        client = engine.attached()[0]
        wait_for(lambda: client.asked >= 10, 60, "questions for its health")
        wait_for(lambda: client.held.pings == 0, 60, "answers to all pings")
        same(len(engine.attached()), 1)
        same(engine.faults, [])
        same(owner.tell()[0], told, "the same session all the time")
        same([r[:2] for r in engine.requests],
             [("GET", "/sessionAttachables"), ("POST", "/query")])


@test("dagger/session-ends-with-its-owner", beside=True)
def ends():
    with Engine() as engine:
        for sign in (signal.SIGTERM, signal.SIGINT):
            with Owner(engine) as owner:
                owner.ready()
                owner.process.send_signal(sign)
                same(owner.process.wait(60), 0)
                same(engine.requests[-1][1], "/shutdown")
                same(engine.clients, {})
                check(not os.path.exists(owner.socket), "its socket is left")
        same(engine.faults, [])


@test("dagger/session-lost-is-a-new-one", beside=True)
def lost():
    """By a connection that ends, by an engine that is killed and returns."""
    with Engine() as engine, Owner(engine) as owner:
        first = owner.ready()[0]
        engine.attached()[0].held.end()
        wait_for(lambda: owner.tell()[0].get("ENGINE_GENERATION", 0)
                 > first["ENGINE_GENERATION"], 90, "another session")
        second = owner.tell()[0]
        check(second["ENGINE_METADATA"] != first["ENGINE_METADATA"]
              and second["ENGINE_DOMAIN"] != first["ENGINE_DOMAIN"],
              "the same ids", first, second)
        same([r[1] for r in engine.requests].count("/shutdown"), 1,
             "ends of the session before")
        same(len(engine.clients), 1)

        engine.kill()
        wait_for(lambda: not owner.tell()[0]["READY"], 60, "that it is gone")
        gone = owner.tell()[0]
        check("ENGINE_METADATA" not in gone and gone["DETAIL"], "of it", gone)
        same(owner.ask()["READY"], 0)
        with Engine(engine.port) as again:
            third = owner.ready()[0]
            check(third["ENGINE_GENERATION"] > second["ENGINE_GENERATION"],
                  "its generation", second, third)
            same(again.faults, [])
        same(engine.faults, [])


@test("dagger/killed-owner", beside=True)
def killed():
    """The next one has ids of its own; the engine ends the old session."""
    with Engine(health=0.2) as engine, Owner(engine) as owner:
        first = owner.ready()[0]
        owner.process.kill()
        owner.process.wait(60)
        os.unlink(owner.socket)
        owner.process = owner.run()
        owner.up()
        second = owner.ready()[0]
        check(second["ENGINE_GENERATION"] > first["ENGINE_GENERATION"]
              and second["ENGINE_METADATA"] != first["ENGINE_METADATA"],
              "ids", first, second)
        wait_for(lambda: len(engine.attached()) == 1, 60, "one session")


@test("dagger/refused-silent-foreign", beside=True)
def refused():
    """Engines that say no, that say nothing, that are none, beside a good
    one: it serves, and each has its reason."""
    with Engine() as no, Engine() as silent, Engine() as good, \
            socket.create_server(("127.0.0.1", 0)) as foreign:
        no.refuse = "session attachables for client \"x\" already exist\x1b[2J"
        silent.deaf = True
        foreign.settimeout(60)
        with Owner(no, silent, good,
                   "tcp://127.0.0.1:%d" % foreign.getsockname()[1],
                   "tcp://127.0.0.1:%d" % free_port()) as owner:
            wait_for(lambda: owner.tell()[2]["READY"], 90, "the good one")
            sock, _ = foreign.accept()
            sock.recv(65536)
            sock.sendall(b"220 mail here\r\n\r\n" + b"x" * 5000)
            sock.close()
            wait_for(lambda: b"already exist" in owner.tell()[0]["DETAIL"], 60,
                     "what the first one says")
            told = owner.tell()
            same([e["READY"] for e in told], [0, 0, 1, 0, 0])
            check(all(e["DETAIL"] for i, e in enumerate(told) if i != 2),
                  "reasons", told)
            check(b"\x1b" not in told[0]["DETAIL"]
                  and "\x1b" not in owner.text(), "a terminal's", told[0])
            same(owner.ask()["READY"], 1)
            log_lines = [x for x in owner.text().splitlines() if "error:" in x]
            check(len(log_lines) <= 8, "a line for each attempt", log_lines)
            same(good.faults, [])


@test("dagger/refused-silent-foreign: web servers and others that are none",
      beside=True)
def none():
    """It is said what answers there, and their pages go into no log."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Owner("tcp://127.0.0.1:%d" % server.server_port,
                   "tcp://127.0.0.1:%d" % free_port(),
                   "unix:///nonexistent/engine") as owner:
            wait_for(lambda: [e["DETAIL"].split(b" (")[0]
                              for e in owner.tell()] == [
                b"it answers, but is no Dagger engine: a web server",
                b"nobody listens there", b"there is no such socket"], 120,
                "what each of them is")
            text = owner.text()
            check("<html" not in text, "a page", text)
            lines = [x.split(": engine ")[1].split()[0]
                     for x in text.splitlines() if " is not ready: " in x]
            same(sorted(set(lines)), sorted(
                e["ENGINE_NAME"].decode() for e in owner.tell()))
            check(len(lines) < 9, "a line for each attempt", text)
    finally:
        server.shutdown()
        server.server_close()


class Page(http.server.BaseHTTPRequestHandler):
    """A web server, which has no such page."""

    def do_GET(self):
        self.send_response(502)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"\n<html><body>no such page</body></html>\n" * 50)

    do_POST = do_GET

    def log_message(self, *_):
        pass


@test("dagger/who-may-ask", beside=True)
def asks():
    with Engine() as engine, Owner(engine) as owner:
        owner.ready()
        wrong = wire.Client(owner.socket, key=bytes(32))
        same(wrong.call(wire.PING).code, "unauthorized_peer")
        same(owner.client.call(wire.STATUS).code, "not_on_this_backend")
        same(owner.client.call(wire.COMMAND).code, "not_on_this_backend")
        same(owner.client.call(wire.PING, body=b"x" * 100).code, "bad_request")
        for junk in (b"GET / HTTP/1.1\r\n\r\n" + b"x" * 128, b"\0" * 128):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(60)
                sock.connect(owner.socket)
                sock.sendall(junk)
                check(sock.recv(4096), "an answer")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(owner.socket)
            sock.sendall(b"SBX")
            same(sock.recv(10), b"", "after its deadline")
        crowd = []
        for _ in range(300):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(owner.socket)
            crowd.append(sock)
        for sock in crowd:
            sock.close()
        same(owner.ready()[0]["READY"], 1)
        same(os.stat(owner.socket).st_mode & 0o777, 0o600)


@test("dagger/options", beside=True)
def options():
    with tempfile.NamedTemporaryFile("w") as key:
        os.chmod(key.name, 0o600)
        key.write(KEY.hex())
        key.flush()
        for value, words in (
                ("127.0.0.1:1234", "neither tcp://HOST:PORT nor unix:///PATH"),
                ("tcp://127.0.0.1", "has no host and port"),
                ("tcp://:1234", "has no host and port"),
                ("tcp://127.0.0.1:1a", "has no host and port"),
                ("tcp://127.0.0.1:99999", "has no host and port"),
                ("unix:///" + "x" * 110, "longer than"),
                ("tcp://" + "x" * 200 + ":1", "longer than")):
            done = subprocess.run(
                [BUILD + "/sandbox-runner", "--dagger", value, "--socket",
                 key.name + ".socket", "--key-file", key.name],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
            same(done.returncode, 1, value)
            check(words in done.stderr.decode(), value, done.stderr)


@test("dagger/options: those that would have no effect, and the folder",
      beside=True)
def useless():
    with tempfile.TemporaryDirectory(prefix="sandbox-t.", dir="/tmp") as path:
        with open(path + "/key", "w") as f:
            os.chmod(f.name, 0o600)
            f.write(KEY.hex() + "\n")
        command = [BUILD + "/sandbox-runner", "--dagger", "tcp://127.0.0.1:1",
                   "--key-file", path + "/key", "--socket"]

        for words in (["--pool", "4"], ["--state", path], ["--ephemeral"],
                      ["--memory=64"]):
            done = subprocess.run(
                command + [path + "/socket"] + words, timeout=60,
                stdin=subprocess.DEVNULL, capture_output=True)
            text = done.stderr.decode()
            same(done.returncode, 1, text)
            check(words[0].split("=")[0] + " is for sandboxes of this host"
                  in text, "why", text)

        done = subprocess.run(
            command + [path + "/no/such/socket"], timeout=60,
            stdin=subprocess.DEVNULL, capture_output=True)
        same(done.returncode, 1, done.stderr)
        check(b"install -d -m 0711 " + path.encode() + b"/no/such"
              in done.stderr, "what to do", done.stderr)

        process = subprocess.Popen(command + [path + "/run/socket"],
                                   stdin=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: os.path.exists(path + "/run/socket"), 60,
                     "its socket")
            same(os.stat(path + "/run").st_mode & 0o7777, 0o711)
        finally:
            process.terminate()
            process.wait(60)


VARIABLE = "ARCHESTRA_CODE_RUNTIME_DAGGER_RUNNER_HOST"


@test("dagger/options: the engine of the environment", beside=True)
def environment():
    with tempfile.TemporaryDirectory(prefix="sandbox-t.", dir="/tmp") as path:
        with open(path + "/key", "w") as f:
            os.chmod(f.name, 0o600)
            f.write(KEY.hex() + "\n")

        def start(value, *options):
            env = dict(os.environ)
            env.pop(VARIABLE, None)
            if value is not None:
                env[VARIABLE] = value
            return subprocess.Popen(
                [BUILD + "/sandbox-runner"] + list(options)
                + ["--socket", path + "/socket", "--key-file", path + "/key"],
                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)

        for value in (None, ""):
            process = start(value, "--dagger")
            text = process.communicate(timeout=60)[1].decode()
            same(process.returncode, 1, text)
            check("--dagger names no engine" in text and VARIABLE in text,
                  "no engine", text)
        process = start("127.0.0.1:1", "--dagger")
        text = process.communicate(timeout=60)[1].decode()
        same(process.returncode, 1, text)
        check(VARIABLE in text and "127.0.0.1:1" in text, "a bad one", text)

        # one of the command line is the only one then
        for value, options, name in (
                ("tcp://127.0.0.1:1", ["--dagger"], b"tcp://127.0.0.1:1"),
                ("nonsense", ["--dagger", "tcp://127.0.0.1:2"],
                 b"tcp://127.0.0.1:2"),
                (None, ["--dagger=unix:///a"], b"unix:///a")):
            process = start(value, *options)
            try:
                client = wire.Client(path + "/socket", key=KEY)

                def told():
                    try:
                        return client.call(wire.PING).result["ENGINE"]
                    except (OSError, wire.Lost):
                        return None

                wait_for(lambda: told() is not None, 60, "its answer")
                same([dict(wire.read_fields(e))["ENGINE_NAME"]
                      for e in told()], [name])
            finally:
                process.terminate()
                process.communicate(timeout=60)


MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry(http.server.BaseHTTPRequestHandler):
    """What nginx serves of `make registry`: (type, bytes) by path."""

    files = {}

    def do_GET(self):
        kind, data = self.files.get(self.path, (None, b"nothing"))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_HEAD = do_POST = do_GET

    def log_message(self, *_):
        pass


def answer(names):
    """A name server that knows nothing, until it is asked nothing."""
    try:
        while True:
            question, client = names.recvfrom(512)
            if not question:
                return
            names.sendto(question[:2] + b"\x81\x83" + question[4:], client)
    except OSError:
        pass


def hang_up(listener):
    try:
        while True:
            sock, _ = listener.accept()
            sock.recv(65536)
            sock.close()
    except OSError:
        pass


@test("ctl/doctor-dagger", beside=True)
def doctor():
    """Engine, owner of its session, image: each fault has its line."""
    def digest(data):
        return "sha256:" + hashlib.sha256(data).hexdigest()

    config, layer = b"{}", os.urandom(5000)
    manifest = json.dumps({"config": {"digest": digest(config), "size": 2},
                           "layers": [{"digest": digest(layer),
                                       "size": len(layer)}]}).encode()
    path = "/v2/sandbox/manifests/" + digest(manifest)
    Registry.files.update({
        path: (MANIFEST, manifest),
        "/v2/sandbox/blobs/" + digest(config): ("x/y", config),
        "/v2/sandbox/blobs/" + digest(layer): ("x/y", layer)})

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Engine() as engine, Owner(engine) as owner:
            owner.ready()
            name = "tcp://127.0.0.1:%d" % engine.port
            other = "tcp://127.0.0.1:%d" % server.server_port
            file = owner.folder + "/digest"
            with open(file, "w") as f:
                f.write(digest(manifest) + "\n")

            def run(good, *lines, engines=(name,), resolver="off",
                    **environment):
                done = subprocess.run(
                    [BUILD + "/sandboxctl", "doctor", "--socket",
                     owner.socket, "--key-file", owner.folder + "/key",
                     "--resolver", resolver, "--digest", file, "--image",
                     "127.0.0.1:%d/sandbox" % server.server_port]
                    + [word for e in engines for word in ("--dagger", e)],
                    cwd=owner.folder, stdin=subprocess.DEVNULL, timeout=120,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    env=dict(os.environ, **environment))
                text = done.stdout.decode()
                same(done.returncode, 0 if good else 1, text)
                same(good, "FAIL" not in text, text)
                for line in lines:
                    check(line in text, line, text)
                return text

            well = ("ok    engine: %s answers" % name,
                    "ok    route: %s is used by exec: slower" % name,
                    "no name server of its containers",
                    "ok    owner of sessions: has one on %s" % name,
                    "ok    image: 127.0.0.1:%d/sandbox@%s"
                    % (server.server_port, digest(manifest)))
            run(True, *well)
            run(True, *well, engines=(), **{VARIABLE: name})

            # by which route, and why
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
                names.bind(("127.0.0.1", 0))
                there = "127.0.0.1:%d" % names.getsockname()[1]
                thread = threading.Thread(target=answer, args=(names,),
                                          daemon=True)
                thread.start()
                wait_for(lambda: "ok    route: %s is used by service" % name
                         in run(True, there, resolver=there), 120,
                         "the other route")
                names.sendto(b"", names.getsockname())
                thread.join(60)
            run(True, "ok    route: %s is used by exec: slower" % name,
                "%s, does not answer (" % there, resolver=there)

            # who answers nothing, and what is none
            with socket.create_server(("127.0.0.1", 0)) as deaf:
                threading.Thread(target=hang_up, args=(deaf,),
                                 daemon=True).start()
                run(False, "is no ADDRESS[:PORT]", "engine: unix:///no/such "
                    "does not answer: there is no such socket",
                    "does not answer: it closes the connection",
                    engines=(name, "unix:///no/such", "tcp://127.0.0.1:%d"
                             % deaf.getsockname()[1]), resolver="a.name")
                deaf.shutdown(socket.SHUT_RDWR)
            run(False, "FAIL  engine: what answers at %s is no Dagger engine "
                "but a web server (HTTP status 404)" % other,
                "FAIL  owner of sessions: it was not told of %s" % other,
                *well, engines=(name, other))

            Registry.files[path] = ("text/plain", manifest)
            run(False, MANIFEST)
            Registry.files[path] = (MANIFEST, manifest + b" ")
            run(False, "another digest")
            del Registry.files[path]
            run(False, "HTTP status 404")
            Registry.files[path] = (MANIFEST, manifest)
            Registry.files["/v2/sandbox/blobs/" + digest(layer)] \
                = ("x/y", layer[1:])
            run(False, "is not there as a whole")
            with open(file, "w") as f:
                f.write("sha256:" + "0" * 63)
            run(False, "holds no digest")

            engine.close_listener()
            text = run(False, "FAIL  engine: %s does not answer: connection "
                       "refused; nobody listens there" % name)
            check("HTTP status 0" not in text, "a status of nobody", text)
            owner.process.terminate()
            owner.process.wait(60)
            run(False, "FAIL  owner of sessions: it does not answer")
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main(start)
