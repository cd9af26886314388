"""A gateway for tests: nginx with the module, and a real or a mock runner,
everything in a folder of its own that is gone at the end.

    with Gateway() as g:
        g.run("conversation", "echo hi")     # a dict, the result

Environment: BUILD (build), CACHE (/var/cache/sandbox), SANDBOX_TEST_NGINX
(the nginx binary), SANDBOX_TEST_MODULE (the module), SANDBOX_TEST_KEEP (leave
the folder for a look), SANDBOX_TEST_SLOW (waits are longer by this factor),
SANDBOX_TEST_H2 (requests go over HTTP/2, by curl; each has a connection),
SANDBOX_TEST_OPENAPI (answers must be what openapi.json says, as where a test
sets `described`), BACKEND (local, or dagger for all gateways with a real
runner; see gateway_engine.py).
"""

import base64
import ctypes
import email
import glob
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

import gateway_engine
import openapi
import tap

TOP = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../..")
BUILD = os.path.abspath(os.environ.get("BUILD") or TOP + "/build")
CACHE = os.environ.get("CACHE") or "/var/cache/sandbox"
NGINX = os.environ.get("SANDBOX_TEST_NGINX") or shutil.which(
    "nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
MODULE = os.environ.get("SANDBOX_TEST_MODULE") \
    or BUILD + "/ngx_http_sandbox_module.so"
AGENT = BUILD + "/sandbox-agent"
RUNNER = BUILD + "/sandbox-runner"
BACKEND = os.environ.get("BACKEND") or "local"
SLOW = int(os.environ.get("SANDBOX_TEST_SLOW") or 1)
H2 = bool(os.environ.get("SANDBOX_TEST_H2"))
OPENAPI = bool(os.environ.get("SANDBOX_TEST_OPENAPI"))

SECRET = b"a secret of more than thirty-two bytes"
BAD_LOG = re.compile(r"\[(alert|crit|emerg)\]|AddressSanitizer|runtime error:"
                     r"|exited on signal|SUMMARY: ")


kept_ports = []


def free_port():
    """One that nobody is given for a connection of his own meanwhile, and no
    other test: a name, kept until this process ends, says that it is taken."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind("\0sandbox-test-port-%d" % port)
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        kept_ports.append(name)
        return port


# A machine may stand still for a while: what must come is waited for so long
# at least, whatever a test thinks of its own.  That it came soon is no test's.

LEAST = 60


def wait_for(condition, seconds=20, what="what was waited for"):
    """Polls until it is true; the value, or an AssertionError."""
    seconds = max(seconds, LEAST)
    end = time.monotonic() + seconds * SLOW
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("%s did not come within %g s"
                                 % (what, seconds))
        time.sleep(0.02)


def stat(pid):
    """Its state, and when it began."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            words = f.read().rpartition(")")[2].split()
        return words[0], words[19]
    except (FileNotFoundError, ProcessLookupError):
        return "Z", None


class Process(int):
    """A pid that somebody else may have later: he is not alive() for it."""

    def __new__(cls, pid):
        self = super().__new__(cls, pid)
        self.begun = stat(pid)[1]
        return self


def alive(pid):
    state, begun = stat(pid)
    return state != "Z" and getattr(pid, "begun", begun) == begun


def pid_namespace(pid):
    try:
        return os.readlink("/proc/%d/ns/pid" % pid)
    except OSError:
        return None


def pinned(pid):
    """A descriptor of its pid namespace: as long as it is open, no other one
    has that number; that of one that has gone is the next one's."""
    return os.open("/proc/%d/ns/pid" % pid, os.O_RDONLY)


def all_pids():
    return [int(n) for n in os.listdir("/proc") if n.isdigit()]


def user_of(pid):
    try:
        with open("/proc/%d/status" % pid) as f:
            return int(re.search(r"^Uid:\s+(\d+)", f.read(), re.M).group(1))
    except OSError:
        return None


def of_users(pids, agent):
    """Those that live, but for the agent's own: on engines it measures by a
    process, and each command has one that stays a moment longer."""
    return [p for p in pids if alive(p)
            and user_of(p) not in (None, user_of(agent))]


def in_namespace(name):
    """Host pids of a pid namespace, "pid:[4026532000]" as seen inside."""
    return [Process(p) for p in all_pids() if pid_namespace(p) == name]


def cgroup_of(pid):
    """Our runner's group of that process, "sandbox-HASH"."""
    try:
        with open("/proc/%d/cgroup" % pid) as f:
            found = re.search(r"/(sandbox-[^/\s]+)", f.read())
            return found and found.group(1)
    except OSError:
        return None


def in_cgroup(name):
    return [Process(p) for p in all_pids()
            if cgroup_of(p) == name and alive(p)]


def cgroup_folders(name):
    """Where in the cgroup hierarchies that group still is."""
    out = []
    for top, folders, _ in os.walk("/sys/fs/cgroup"):
        for folder in list(folders):
            if folder == name:
                out.append(os.path.join(top, folder))
                folders.remove(folder)
        if top.count("/") > 6:
            folders[:] = []
    return out


def loop_devices(folder):
    """Loop devices whose file lies (or lay) in that folder."""
    out = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path) as f:
                if folder in f.read():
                    out.append(path.split("/")[3])
        except OSError:
            pass
    return out


def mounts(text):
    """Mount lines with that text, in the namespaces of all processes."""
    seen, out = set(), []
    for pid in all_pids():
        try:
            space = os.readlink("/proc/%d/ns/mnt" % pid)
            if space in seen:
                continue
            seen.add(space)
            with open("/proc/%d/mountinfo" % pid) as f:
                out += [line.strip() for line in f if text in line]
        except OSError:
            pass
    return out


def bound_sockets(text):
    with open("/proc/net/unix") as f:
        return [line.split()[-1] for line in f if text in line]


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(secret=SECRET, header=None, **claims):
    """HS256; a claim of None is left out."""
    body = {"sub": "alice", "exp": int(time.time()) + 3600,
            "permissions": ["sandbox:execute"]}
    body.update(claims)
    body = {k: v for k, v in body.items() if v is not None}
    text = base64url(json.dumps(header or {"alg": "HS256"}).encode()) + "." \
        + base64url(json.dumps(body).encode())
    return text + "." + base64url(
        hmac.new(secret, text.encode(), hashlib.sha256).digest())


def die_with_parent(number):
    """In the child: that signal when the test's own process is gone."""
    libc = ctypes.CDLL(None, use_errno=True)

    def child():
        libc.prctl(1, number, 0, 0, 0)
    return child


class Response:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return "%d %s %r" % (self.status, dict(self.headers),
                             self.body[:800])


class Gateway:
    described = OPENAPI
    description = None

    def __init__(self, runner="real", location="", http="", server="",
                 main="", workers=2, log_level="info", pool=2, h2=H2,
                 runner_options=(), ready=True, state=None, zone="1m",
                 mode="on", ephemeral=True, backend=None, engines=1,
                 engine_options=(), dagger="", connections=1024):
        self.kind = runner
        self.backend = "local" if runner != "real" else backend or BACKEND
        self.engines = None         # on the dagger backend: Engines
        self.served = None          # of another gateway, which ends them
        self.engine_count = engines
        self.engine_options = list(engine_options)
        self.dagger = dagger        # more parameters of "sandbox_dagger"
        self.ephemeral = ephemeral  # the runner's end is that of all it made
        self.options = dict(location=location, http=http, server=server,
                            main=main, workers=workers, log_level=log_level,
                            h2=h2, zone=zone, mode=mode,
                            connections=connections)
        self.pool = pool
        self.runner_options = list(runner_options)
        self.ready = ready
        self.nginx = self.runner = None
        self.expected = []          # log lines that this test provokes
        self.sanitizer = ""         # more of ASAN_OPTIONS
        self.ending = None          # so long was the log when it was stopped
        self.port = free_port()
        self.registry = free_port()
        self.dir = tempfile.mkdtemp(prefix="sandbox-t.", dir="/tmp")
        os.chmod(self.dir, 0o711)
        os.mkdir(self.dir + "/logs")
        os.mkdir(self.dir + "/tmp")
        shutil.chown(self.dir + "/tmp", "www-data")
        self.socket = self.dir + "/runner.sock"
        self.key = os.urandom(32)
        self.write("runner.key", self.key.hex() + "\n")
        self.write("jwt.key", SECRET)
        self.state = state or self.dir + "/state"
        self.runner_number = 0
        tap.log(self.path("logs/error.log"), "error.log")

    # files

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, data, mode=0o600):
        data = data.encode() if isinstance(data, str) else data
        with open(self.path(name), "wb") as f:
            f.write(data)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def read(self, name):
        try:
            with open(self.path(name), errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    @property
    def error_log(self):
        return self.read("logs/error.log")

    # life

    def beside(self, other):
        """Another nginx in front of that one's runner, or engines."""
        self.socket = other.socket
        self.write("runner.key", other.key.hex() + "\n")
        self.backend = other.backend
        self.registry = other.registry
        self.served = other.engines
        return self

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop(check=False)
            raise
        return self

    def __exit__(self, kind, value, trace):
        self.stop(check=kind is None)

    def start(self):
        if self.kind:
            self.start_runner()
        self.start_nginx()

    def configure(self, **changes):
        """Writes nginx.conf; changed options stay."""
        self.options.update(changes)
        o = self.options
        zone = "sandbox_zone sandbox:%s;" % o["zone"]
        if "sandbox_zone" in o["http"]:
            zone = ""
        if self.backend == "dagger":
            # nobody waits for a turn there: as many as a test wants at once
            zone = zone.replace(";", " running=1000;") + self.engine_lines()
        self.write("nginx.conf", """
load_module %s;
user www-data;
worker_processes %d;
pid %s/nginx.pid;
error_log %s/logs/error.log %s;
%s
events {
    worker_connections %d;
}
http {
    access_log %s/logs/access.log;
    client_body_temp_path %s/tmp/body;
    proxy_temp_path %s/tmp/proxy;
    fastcgi_temp_path %s/tmp/fastcgi;
    uwsgi_temp_path %s/tmp/uwsgi;
    scgi_temp_path %s/tmp/scgi;
    %s
    sandbox_runner unix:%s;
    sandbox_runner_key %s/runner.key;
    %s
    server {
        listen 127.0.0.1:%d%s backlog=1024;
        location /sandbox/ {
            sandbox %s;
            sandbox_jwt_secret_file %s/jwt.key;
            %s
        }
        %s
    }
}
""" % ((MODULE, o["workers"], self.dir, self.dir, o["log_level"], o["main"])
            + (o["connections"],) + (self.dir,) * 6
            + (zone, self.socket, self.dir, o["http"], self.port,
               " http2" if o["h2"] else "", o["mode"], self.dir,
               o["location"], o["server"])))

    def engine_lines(self):
        return """
    sandbox_backend dagger;
    sandbox_dagger_image 127.0.0.1:%d/sandbox@%s;
    %s
%s""" % (self.registry, gateway_engine.image(TOP, BUILD, CACHE),
         (self.served or self.engines).lines(self.dagger),
         "" if self.served else gateway_engine.REGISTRY
         % (self.registry, CACHE + "/registry"))

    def start_nginx(self):
        self.configure()
        environment = dict(os.environ)
        environment.setdefault("ASAN_OPTIONS", "detect_odr_violation=0:"
                               "detect_leaks=0:log_path=%s/logs/asan"
                               % self.dir)
        environment["ASAN_OPTIONS"] += self.sanitizer
        with open(self.path("logs/nginx.out"), "ab") as out:
            self.nginx = subprocess.Popen(
                [NGINX, "-c", self.path("nginx.conf"), "-g", "daemon off;",
                 "-e", self.path("logs/error.log")],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, env=environment,
                preexec_fn=die_with_parent(signal.SIGTERM))

        def up():
            if self.nginx.poll() is not None:
                raise AssertionError("nginx did not start: "
                                     + self.read("logs/nginx.out")[-2000:]
                                     + self.error_log[-2000:])
            try:
                return self.request("GET", "health", token=None)
            except OSError:
                return None
        wait_for(up, 30, "nginx")
        # one of them is enough for an answer
        wait_for(lambda: self.all_workers(set()), 30, "all workers")
        if self.kind and self.ready:
            self.wait_ready()

    def wait_ready(self, seconds=30):
        wait_for(lambda: self.request("GET", "health", token=None).json
                 ["status"] == "ready", seconds, "a ready gateway")

    def start_runner(self):
        self.runner_number += 1
        log = self.path("logs/runner.%d.log" % self.runner_number)
        tap.log(log, "runner's log")
        if self.kind == "mock":
            # what one that was killed has left is not this one's
            if os.path.exists(self.socket):
                os.unlink(self.socket)
            command = [sys.executable, TOP + "/t/lib/mock_runner.py",
                       "--socket", self.socket,
                       "--key-file", self.path("runner.key")]
        elif self.backend == "dagger":
            if self.engines is None:
                self.engines = gateway_engine.Engines(
                    self.state, self.engine_count, self.engine_options)
            command = gateway_engine.owner(
                RUNNER, self.socket, self.path("runner.key"), self.engines,
                self.runner_options)
        else:
            base = os.path.realpath(CACHE + "/base/current/rootfs")
            if not os.path.isdir(base):
                raise AssertionError("no base image below %s: make base"
                                     % CACHE)
            command = [RUNNER, "--socket", self.socket,
                       "--key-file", self.path("runner.key"),
                       "--state", self.state, "--base", base,
                       "--agent", AGENT,
                       "--runtime-dir", self.path("agents"),
                       "--pool", str(self.pool), "--peer-user", "www-data",
                       "--socket-group", "www-data"] + self.runner_options
            if self.ephemeral:
                command.append("--ephemeral")
        with open(log, "wb") as out:
            self.runner = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGINT))

        def up():
            if self.runner.poll() is not None:
                with open(log, errors="replace") as f:
                    raise AssertionError("the runner ended with %d: %s"
                                         % (self.runner.returncode,
                                            f.read()[-3000:]))
            if self.kind == "mock":
                return os.path.exists(self.socket)
            with open(log, errors="replace") as f:
                return "sandbox-runner: ready" in f.read()
        wait_for(up, 60, "the runner")

    @property
    def runner_log(self):
        return "".join(self.read("logs/runner.%d.log" % n)
                       for n in range(1, self.runner_number + 1))

    def end(self, process, number, seconds=120):
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError("pid %d did not end on signal %d within "
                                 "%d s" % (process.pid, number, seconds))

    def stop_runner(self, number=signal.SIGINT):
        try:
            self.end(self.runner, number)
        finally:
            self.runner = None

    def kill_runner(self):
        self.runner.kill()
        self.runner.wait()
        self.runner = None

    def stop(self, check=True):
        problems = []
        self.ending = len(self.error_log)
        tap.log_ends(self.path("logs/error.log"))
        for n in range(1, self.runner_number + 1):
            tap.log_ends(self.path("logs/runner.%d.log" % n))
        for process, number in ((self.nginx, signal.SIGTERM),
                                (self.runner, signal.SIGINT)):
            try:
                self.end(process, number)
            except AssertionError as error:
                problems.append(str(error))
        self.nginx = self.runner = None
        if self.engines is not None:
            self.engines.end()
            self.engines = None
        self.sweep()
        if check:
            problems += self.log_problems()
        elif os.environ.get("SANDBOX_TEST_VERBOSE"):
            print(self.error_log[-4000:] + self.runner_log[-4000:],
                  file=sys.stderr)
        if not os.environ.get("SANDBOX_TEST_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)
        if problems and check:
            raise AssertionError("\n".join(problems))

    def sweep(self):
        """After a runner that was killed: another one ends what it left."""
        if self.kind != "real" or self.backend != "local" \
                or not glob.glob(self.state + "/slots/*"):
            return
        self.ephemeral = True
        try:
            self.start_runner()
            self.stop_runner(signal.SIGINT)
        except (AssertionError, OSError) as error:
            print("# can't clear up after a runner: %s" % error)

    def log_problems(self):
        # at the end, who has not ended within a few seconds is killed by nginx
        log, last, end = self.error_log.rpartition("signal 15 (SIGTERM) rec")
        if not last and self.ending is not None:
            # a log without notices
            log, end = end[:self.ending], end[self.ending:]
        if last or self.ending is not None:
            end = re.sub(".*exited on signal 9.*", "", end)
        lines = (log + last + end).splitlines()
        for name in glob.glob(self.path("logs/asan*")):
            with open(name, errors="replace") as f:
                lines += f.read().splitlines()
        lines += self.runner_log.splitlines()
        # who was killed may have been in the midst of something
        midst = tuple(" was locked by " + pid for pid in re.findall(
            r" (\d+) exited on signal", self.error_log))
        return ["in a log: " + line for line in lines
                if BAD_LOG.search(line) and not line.endswith(midst)
                and not any(e in line for e in self.expected)][:20]

    # nginx

    def master(self):
        return self.nginx.pid

    def workers(self):
        with open("/proc/%d/task/%d/children" % ((self.nginx.pid,) * 2)) as f:
            pids = [int(p) for p in f.read().split()]
        out = []
        for pid in pids:
            try:
                with open("/proc/%d/cmdline" % pid) as f:
                    # valgrind hides the title that nginx gives itself
                    title = f.read()
                    if "worker process" in title or "memcheck" in title:
                        out.append(Process(pid))
            except (FileNotFoundError, ProcessLookupError):
                pass
        return out

    def all_workers(self, old):
        """Whether there are as many as configured, beside those."""
        return "master_process off" in self.options["main"] \
            or len(set(self.workers()) - old) >= self.options["workers"]

    def reload(self, **changes):
        """HUP, and waits until new workers are there."""
        if changes:
            self.configure(**changes)
        old = set(self.workers())
        os.kill(self.nginx.pid, signal.SIGHUP)
        wait_for(lambda: self.all_workers(old), 20, "new workers")
        # the old ones accept until they are told to leave
        wait_for(lambda: all(self.leaving(p) for p in old), 20,
                 "old workers on their way out")
        return old

    def leaving(self, pid):
        try:
            with open("/proc/%d/cmdline" % pid) as f:
                title = f.read()
        except OSError:
            return True
        return "shutting down" in title or not alive(pid) \
            or "memcheck" in title and "%d#%d: gracefully shutting down" \
            % (pid, pid) in self.error_log

    # requests

    def connect(self, timeout=150):
        return http.client.HTTPConnection("127.0.0.1", self.port,
                                          timeout=timeout)

    def headers(self, token_text, body, extra):
        out = {}
        if token_text == "":
            token_text = token()
        if token_text is not None:
            out["Authorization"] = "Bearer " + token_text
        if body is not None:
            out["Content-Type"] = "application/json"
        out.update(extra or {})
        return out

    def request(self, method, path, body=None, token="", headers=None,
                timeout=150, connection=None):
        """One call; path is below /sandbox/ unless it begins with a slash."""
        if not path.startswith("/"):
            path = "/sandbox/" + path
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        headers = self.headers(token, body, headers)
        if self.options["h2"]:
            r = self.request_h2(method, path, body, headers, timeout)
        else:
            r = self.request_h1(method, path, body, headers, timeout,
                                connection)
        if self.described:
            if self.description is None:
                self.description = openapi.load()
            openapi.check_answer(self.description, "/sandbox/", method, path,
                                 r)
        return r

    def request_h1(self, method, path, body, headers, timeout, connection):
        c = connection or self.connect(timeout)
        try:
            c.request(method, path, body, headers)
            r = c.getresponse()
            return Response(r.status, r.headers, r.read())
        finally:
            if connection is None:
                c.close()

    def request_h2(self, method, path, body, headers, timeout):
        command = ["curl", "-si", "--path-as-is", "--http2-prior-knowledge",
                   "-X", method,
                   "-m", str(timeout * SLOW), "-H", "Expect:",
                   "http://127.0.0.1:%d%s" % (self.port, path)]
        for name, value in headers.items():
            command += ["-H", "%s: %s" % (name, value)]
        if method == "HEAD":
            command += ["-I"]
        if body is not None:
            command += ["--data-binary", "@-"]
        for _ in range(20):
            p = subprocess.run(command, input=body or b"", check=False,
                               timeout=timeout * SLOW + 10,
                               stdout=subprocess.PIPE)
            # this curl forgets an answer that comes before all of the body
            # is sent, as a refusal does; an answer to a command never is
            if p.returncode not in (18, 92) or p.stdout and method != "PUT":
                break
        if p.returncode:
            raise OSError("curl ended with %d" % p.returncode)
        head, _, rest = p.stdout.partition(b"\r\n\r\n")
        status, _, lines = head.partition(b"\r\n")
        return Response(int(status.split()[1]),
                        email.message_from_bytes(lines + b"\r\n\r\n"), rest)

    def command(self, conversation, text, token="", query="", timeout=150,
                connection=None, **fields):
        """POST .../commands: the Response, whatever it is."""
        path = "v1/conversations/%s/commands%s" % (
            urllib.parse.quote(conversation, safe=":"), query)
        return self.request("POST", path, dict(fields, command=text), token,
                            timeout=timeout, connection=connection)

    def run(self, conversation, text, **fields):
        """The result of a command that must be 200."""
        response = self.command(conversation, text, **fields)
        if response.status != 200:
            raise AssertionError("no result of %r: %r" % (text[:200],
                                                          response))
        return response.json

    def output(self, conversation, text, **fields):
        """stdout of a command that must exit with 0."""
        result = self.run(conversation, text, **fields)
        if result["exitCode"] != 0:
            raise AssertionError("%r ended with %r" % (text[:200], result))
        return result["stdout"]

    def agent(self, conversation, **options):
        """Host pid of the agent of that conversation's sandbox."""
        name = self.output(conversation, "readlink /proc/self/ns/pid",
                           **options).strip()
        for pid in in_namespace(name):
            try:
                with open("/proc/%d/status" % pid) as f:
                    inside = re.search(r"^NSpid:.*\s(\d+)$", f.read(), re.M)
            except OSError:
                continue                # that command's own, and it has gone
            if inside and inside.group(1) == "1":
                return pid
        raise AssertionError("no agent in %s" % name)

    def status(self, conversation, **options):
        return self.request("GET", "v1/conversations/" + conversation,
                            **options).json

    def delete(self, conversation, **options):
        return self.request("DELETE", "v1/conversations/" + conversation,
                            **options)
