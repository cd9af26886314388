"""Mixed traffic for bench/soak, and what each answer is held against: clients
that know what their conversations must have.  Knows nothing of processes and
mounts: those are soak_host.py's.

A conversation has one client, which does one thing at a time with it, so what
may be there is known: the bytes that were acknowledged last, or, where the
answer was lost, those before or those sent.  An answer that only a death
explains is right while one is near; else it is a fault."""

import collections
import hashlib
import http.client
import io
import itertools
import json
import os
import random
import re
import socket
import struct
import tarfile
import threading
import time
import urllib.parse

import h2
import mcp
import stream
from gateway import TOP, Response, token

# what a death near by explains; all but runner_lost: nothing was started

NEAR = {(503, "runner_unreachable"), (503, "runner_lost"),
        (503, "sandbox_failed"), (503, "runner_stopping")}
KINDS = ("attachments", "files")
MOST_FAULTS = 200


def documented():
    """(status, code) of the table in docs/api.md."""
    out = set()
    with open(TOP + "/docs/api.md", encoding="utf-8") as f:
        for line in f:
            found = re.match(r"\| (\d{3}) \| ((?:`[a-z_0-9]+`(?:, )?)+) \|",
                             line)
            if found:
                out |= {(int(found.group(1)), code) for code in
                        re.findall(r"`([a-z_0-9]+)`", found.group(2))}
    return out


def digest(data):
    return None if data is None else hashlib.sha256(data).hexdigest()


def skill(number):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, text in (("SKILL.md", "---\nname: s\ndescription: Soaks.\n"
                            "---\n"), ("m_soak.py", "N = %d\n" % number)):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            t.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


class Soak:
    """What all clients share: counts, faults, when a death was near."""

    def __init__(self, gateway, port_h2, seed, pause=0.1, grace=12):
        self.g = gateway
        self.port_h2 = port_h2
        self.seed = seed
        self.pause = pause
        self.grace = grace
        self.lock = threading.Lock()
        self.answers = collections.Counter()    # (what, status, code)
        self.done = collections.Counter()       # actions
        self.faults = []
        self.codes = documented()
        self.deaths = []            # [begin, end or None] of each
        self.ended = False
        self.gate = threading.Event()           # clients go on
        self.gate.set()
        self.clients = []

    def count(self, what, status, code):
        with self.lock:
            self.answers[what, status, code] += 1

    def fault(self, what, why):
        with self.lock:
            if len(self.faults) < MOST_FAULTS:
                self.faults.append("%s %s: %s" % (
                    time.strftime("%H:%M:%S"), what, why))
                print("FAULT " + self.faults[-1], flush=True)

    def near(self, begun):
        """Whether a death was near while that went on."""
        now = time.monotonic()
        with self.lock:
            return any(b <= now and (e is None or begun <= e + self.grace)
                       for b, e in self.deaths[-50:])

    def dies(self):
        with self.lock:
            self.deaths.append([time.monotonic(), None])

    def lives(self):
        with self.lock:
            self.deaths[-1][1] = time.monotonic()

    def start(self, clients, talks):
        self.clients = [Client(self, n, talks) for n in range(clients)]
        for client in self.clients:
            client.start()

    def hold(self, seconds):
        """No client does anything; whether all came to a rest."""
        self.gate.clear()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if all(c.resting or not c.is_alive() for c in self.clients):
                return True
            time.sleep(0.05)
        return False

    def go(self):
        self.gate.set()

    def stop(self, seconds):
        """Ends the clients; those that did not come to an end."""
        self.ended = True
        self.gate.set()
        end = time.monotonic() + seconds
        for client in self.clients:
            client.join(max(0, end - time.monotonic()))
        return [c.name for c in self.clients if c.is_alive()]


class Place:
    """One file, by the digests that it may have; None: it is not there."""

    def __init__(self):
        self.may_be = [None]

    def wrote(self, what, acknowledged):
        if acknowledged:
            self.may_be = [what]
        elif what not in self.may_be:
            self.may_be.append(what)

    def found(self, what):
        if what not in self.may_be:
            raise AssertionError("its bytes are %r, none of %r"
                                 % (what, self.may_be))
        self.may_be = [what]


class Talk:
    """A conversation, and what must be in it."""

    def __init__(self, name, tokens):
        self.name = name
        self.tokens = tokens
        self.numbers = itertools.count(1)
        self.seen = set()           # ids that sandboxes before this one had
        self.empty()
        self.places = {kind: {} for kind in KINDS}
        self.skills = {}            # name: [number or None, ...]

    def empty(self):
        """It has a fresh sandbox, or none."""
        self.ids = {}               # "done", "may", "not"
        self.used = False
        self.sandbox = None
        self.fs = {}

    def next_id(self):
        return "%s-%d" % (self.name, next(self.numbers))

    def url(self, path=""):
        return "v1/conversations/%s%s" % (self.name, path)

    def place(self, kind, name):
        places = self.fs if kind == "fs" else self.places[kind]
        return places.setdefault(name, Place())


class Lost(Exception):
    """There was no answer, and a death was near."""


class Client(threading.Thread):
    def __init__(self, soak, number, talks):
        super().__init__(name="client %d" % number, daemon=True)
        self.soak = soak
        self.g = soak.g
        self.number = number
        self.rnd = random.Random("%s %d" % (soak.seed, number))
        self.resting = False
        self.what = "-"
        self.made = 0
        self.talks = [self.talk() for _ in range(talks)]

    def talk(self):
        self.made += 1
        user = self.rnd.randrange(2)
        claims = {"sub": "user%d" % user, "exp": int(time.time()) + 7200,
                  "iss": "tenant%d" % (self.number % 3)}
        return Talk("c%d.%d" % (self.number, self.made),
                    [token(iat=int(time.time()) - n, **claims)
                     for n in range(2)])

    def run(self):
        names = [name for name, weight in ACTIONS for _ in range(weight)]
        while not self.soak.ended:
            if not self.soak.gate.is_set():
                self.resting = True
                self.soak.gate.wait()
                self.resting = False
                continue
            self.act(self.rnd.choice(names), self.rnd.choice(self.talks))
            time.sleep(min(3, self.rnd.expovariate(1 / self.soak.pause)))

    def act(self, name, talk):
        self.what = name
        try:
            getattr(self, "do_" + name)(talk)
        except Lost:
            pass
        except Exception as error:      # whatever it is, it is to be told
            trace = error.__traceback__
            while trace.tb_next:
                trace = trace.tb_next
            self.soak.fault("%s of %s" % (name, talk.name), "%s: %s (line %d)"
                            % (type(error).__name__, str(error)[:1500],
                               trace.tb_lineno))
        with self.soak.lock:
            self.soak.done[name] += 1

    # asking

    def ask(self, talk, method, path, body=None, good=(200,), headers=None,
            over_h2=None, timeout=90):
        """The Response, also one that is excused; None: no answer came."""
        begun = time.monotonic()
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        secret = self.rnd.choice(talk.tokens)
        try:
            if over_h2 or over_h2 is None and self.rnd.random() < 0.25:
                r = self.ask_h2(method, path, body, secret, headers, timeout)
            else:
                r = self.g.request(method, path, body, secret, headers,
                                   timeout)
        except (OSError, http.client.HTTPException, h2.Lost) as error:
            self.soak.count(self.what, "lost", type(error).__name__)
            if not self.soak.near(begun):
                raise AssertionError("no answer to %s %s: %r" % (
                    method, path, error)) from error
            return None
        return self.judge(r, begun, method, path, good)

    def judge(self, r, begun, method, path, good):
        code = None
        if r.status >= 400 and method != "HEAD":
            code = r.json.get("code") if r.body[:1] == b"{" else "no JSON"
            r.code = code
            if (r.status, code) not in self.soak.codes:
                raise AssertionError("not documented: %s %s: %r"
                                     % (method, path, r))
        elif method == "POST" and r.body[:1] == b"{":
            code = r.json.get("outcome")
        self.soak.count(self.what, r.status, code)
        if r.status in good or (r.status, code) in good:
            return r
        if (r.status, code) in NEAR and self.soak.near(begun):
            return r
        raise AssertionError("%s %s: %r" % (method, path, r))

    def ask_h2(self, method, path, body, secret, headers, timeout):
        sent = {"authorization": "Bearer " + secret,
                "content-type": "application/json"}
        sent.update(headers or {})
        if body is not None:
            sent["content-length"] = str(len(body))
        with h2.Connection(self.soak.port_h2, timeout) as c:
            s = c.request(method, "/sandbox/" + path, tuple(sent.items()),
                          body)
            c.wait(s)
            if s.status is None or not s.ended:
                raise h2.Lost("reset %r, GOAWAY %r" % (s.reset, c.goaway))
            return Response(s.status, {}, s.body)

    def again(self, seconds, function):
        """function() until it gives something; a fault if it never does."""
        end = time.monotonic() + seconds
        while True:
            value = function()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError("no good answer within %d s" % seconds)
            time.sleep(0.3)

    def ok(self, talk, *arguments, **options):
        """The Response of a call that can be sent again, at last."""
        good = options.get("good", (200,))

        def one():
            r = self.ask(talk, *arguments, **options)
            return r if r is not None and (
                r.status in good
                or (r.status, getattr(r, "code", None)) in good) else None
        return self.again(120, one)

    # commands

    def started(self, r):
        """Whether a command may have run, by that answer."""
        return r is None or r.status < 400 or r.code == "runner_lost"

    def command(self, talk, text, out=None, good=("exit",), also=(),
                **fields):
        """Appends its id to the sandbox's list; the result, or None."""
        name = talk.next_id()
        talk.ids[name] = "not"
        body = dict(fields, command="echo %s >> ran; %s" % (name, text),
                    commandId=name)
        result = None
        for _ in range(self.rnd.choice((1, 1, 3))):
            r = self.ask(talk, "POST", talk.url("/commands"), body,
                         (200,) + also)
            if self.started(r):
                talk.ids[name] = "may"
            if r is not None and r.status == 200:
                result = r.json
                break
            time.sleep(self.rnd.random())
        if result is None:
            return None
        self.outcome(talk, name, result, good)
        if result["outcome"] == "exit" and out is not None \
                and not result.get("outputExpired"):
            self.equal(result["stdout"], out, "stdout of " + name)
        return result

    def outcome(self, talk, name, result, good=("exit",)):
        """An acknowledged end."""
        if result["outcome"] == "runner_lost":
            if not self.soak.near(time.monotonic() - 60):
                raise AssertionError("lost: %r" % result)
            return
        if result["outcome"] not in good:
            raise AssertionError("outcome: %r" % result)
        if talk.sandbox not in (None, result["sandboxId"]):
            raise AssertionError("another sandbox: %r, it was %s" % (
                result, talk.sandbox))
        talk.sandbox = result["sandboxId"]
        talk.used = True
        if result["outcome"] == "exit":
            if result["exitCode"] != 0:
                raise AssertionError("ended badly: %r" % result)
            talk.ids[name] = "done"

    @staticmethod
    def equal(got, expected, what):
        if got != expected:
            raise AssertionError("%s: %r, not %r" % (
                what, got if len(repr(got)) < 400 else repr(got)[:400],
                expected if len(repr(expected)) < 400
                else repr(expected)[:400]))

    def listed(self, talk):
        """The ids that its sandbox says have run, in that order."""
        def one():
            r = self.ask(talk, "POST", talk.url("/commands"),
                         {"command": "cat ran 2> /dev/null; true"})
            if r is None or r.status != 200 \
                    or r.json["outcome"] == "runner_lost":
                return None
            self.equal((r.json["outcome"], r.json["truncated"]),
                       ("exit", False), "the list of what ran")
            return r.json
        result = self.again(120, one)
        return result["stdout"].split(), result["sandboxCreated"]

    def counted(self, talk):
        """Nothing ran twice, and all that was acknowledged ran."""
        ran, created = self.listed(talk)
        counts = collections.Counter(ran)
        for name, n in counts.items():
            state = talk.ids.get(name)
            if n > 1 or state in (None, "not") or name in talk.seen:
                raise AssertionError("%s ran %d times, is %r%s" % (
                    name, n, state, ", and before" * (name in talk.seen)))
        missing = [name for name, state in talk.ids.items()
                   if state == "done" and name not in counts]
        if missing:
            raise AssertionError("acknowledged, and not in the list%s: %r" % (
                " of a new sandbox" if created else "", missing[:5]))
        return ran

    def do_short(self, talk):
        n = self.rnd.randrange(1000)
        self.command(talk, "echo $((%d + 1))" % n, "%d\n" % (n + 1))

    def do_long(self, talk):
        self.command(talk, "sleep %.1f; echo end"
                     % self.rnd.uniform(1, 5), "end\n")

    def do_output(self, talk):
        n = self.rnd.choice((10000, 100000))
        self.command(talk, "head -c %d /dev/zero | tr '\\0' x" % n, "x" * n)

    def do_stdin(self, talk):
        data = "".join(self.rnd.choice("abcde \n") for _ in range(
            self.rnd.randrange(5000)))
        self.command(talk, "cat", data, stdin=data)

    def do_env(self, talk):
        self.command(talk, 'echo "$A"', "b c\n", env={"A": "b c"})

    def do_python(self, talk):
        self.command(talk, "python3 -c 'print(6 * 7)'", "42\n")

    def do_background(self, talk):
        name = talk.next_id()
        talk.ids[name] = "may"
        r = self.ask(talk, "POST", talk.url("/commands"), {
            "command": "echo %s >> ran; sleep %d; echo x" % (
                name, self.rnd.randrange(1, 8)),
            "commandId": name, "background": True}, (202, 200,
                                                     (429, "too_many_pending")))
        if not self.started(r):
            talk.ids[name] = "not"
        if r is None or r.status != 202:
            return
        talk.used = True
        if self.rnd.random() < 0.5:
            self.cancel(talk, name)

    def cancel(self, talk, name):
        """Its processes are gone when that is answered."""
        r = self.ask(talk, "DELETE", talk.url("/commands/" + name), None,
                     (200, (404, "command_not_found"), (404, "no_sandbox")))
        if r is not None and r.status == 200 and r.json["outcome"] not in (
                "cancelled", "exit", "runner_lost"):
            raise AssertionError("cancelled: %r" % r)
        return r

    def open(self, talk, name, text, **fields):
        """A Stream, None if it was refused for a death."""
        begun = time.monotonic()
        over = self.rnd.random() < 0.25
        kind = self.rnd.choice(("text/event-stream", "application/x-ndjson"))
        talk.ids[name] = "may"
        try:
            s = stream.Stream(
                self.g, talk.name, "echo %s >> ran; %s" % (name, text),
                accept=kind, token=talk.tokens[0], h2=over,
                port=self.soak.port_h2 if over else None, timeout=90,
                commandId=name, **fields)
        except (OSError, http.client.HTTPException, AssertionError) as error:
            self.soak.count(self.what, "lost", type(error).__name__)
            if not self.soak.near(begun):
                raise
            return None
        if s.status != 200:
            r = Response(s.status, s.headers, s.body())
            s.close()
            self.judge(r, begun, "POST", "commands", ())
            if not self.started(r):
                talk.ids[name] = "not"
            return None
        self.soak.count(self.what, 200, "stream")
        return s

    def read(self, s, begun, until=None):
        """Events to the end or to that text; whether it broke off."""
        try:
            for _ in s:
                if until and until in s.text:
                    return False
        except (OSError, http.client.HTTPException) as error:
            self.soak.count(self.what, "broken", type(error).__name__)
            if not self.soak.near(begun):
                raise
            return True
        return s.result is None

    def do_stream(self, talk):
        """To its end, wherever it breaks off; all of it, and nothing twice."""
        name, n = talk.next_id(), self.rnd.randrange(3, 20)
        begun = time.monotonic()
        s = self.open(talk, name, "for i in $(seq %d); do echo line $i; "
                      "sleep 0.%d; done" % (n, self.rnd.randrange(1, 4)))
        if s is None:
            return
        text, result = b"", None
        end = time.monotonic() + 120
        while result is None:
            broken = self.read(s, begun)
            refused = [e for e in s.events if e["type"] == "refused"]
            text += s.bytes("stdout")
            result, seq = s.result, s.seq
            s.close()
            if refused:
                if (refused[0]["status"], refused[0]["code"]) not in NEAR \
                        or not self.soak.near(begun):
                    raise AssertionError("refused: %r" % refused)
                if refused[0]["code"] != "runner_lost":
                    talk.ids[name] = "not"
                return
            if result is None:
                self.soak.count(self.what, 200, "resumed")
                if not broken:
                    raise AssertionError("ended without a result")
                s = self.resume(talk, name, seq, end)
                if s is None:
                    return
        whole = "".join("line %d\n" % i for i in range(1, n + 1)).encode()
        self.outcome(talk, name, result)
        if result["outcome"] == "exit":
            self.equal(text, whole, "what was streamed")
        elif not whole.startswith(text):
            raise AssertionError("streamed %r" % text)

    def resume(self, talk, name, seq, end):
        """The stream behind that; None where the command never began."""
        while True:
            begun = time.monotonic()
            try:
                s = stream.Stream(self.g, talk.name, name, method="GET",
                                  accept="text/event-stream",
                                  token=talk.tokens[0], timeout=90,
                                  **({"after": seq} if seq else {}))
            except (OSError, http.client.HTTPException) as error:
                self.soak.count(self.what, "lost", type(error).__name__)
                if not self.soak.near(begun):
                    raise
                s = None
            if s is not None and s.status == 200:
                return s
            if s is not None:
                r = Response(s.status, s.headers, s.body())
                s.close()
                never = ((404, "command_not_found"), (404, "no_sandbox"))
                self.judge(r, begun, "GET", "commands/" + name,
                           () if seq else never)
                if (r.status, r.code) in never:
                    return None
            if time.monotonic() > end:
                raise AssertionError("it could not be resumed")
            time.sleep(0.3)

    def do_cancel(self, talk):
        name, mark = talk.next_id(), "mark%d" % self.rnd.randrange(10 ** 9)
        begun = time.monotonic()
        s = self.open(talk, name, ": %s; (exec -a %s sleep 50) & exec -a %s "
                      "sleep 50" % (mark, mark, mark))
        if s is None:
            return
        try:
            for _ in s:
                break
            r = self.cancel(talk, name)
            if r is not None and r.status == 200:
                if r.json["outcome"] != "runner_lost":
                    talk.used = True
                self.command(talk, "pgrep -c -f '[m]%s'; true" % mark[1:],
                             "0\n")
            if not self.read(s, begun) and s.result["outcome"] not in (
                    "cancelled", "runner_lost"):
                raise AssertionError("the stream's end: %r" % s.result)
        except (OSError, http.client.HTTPException):
            if not self.soak.near(begun):
                raise
        finally:
            s.close()
            self.cancel(talk, name)

    def do_typed(self, talk):
        """What comes by POST stdin is what it reads."""
        name = talk.next_id()
        begun = time.monotonic()
        s = self.open(talk, name, "echo go; sha256sum")
        if s is None:
            return
        data, whole = [], True
        try:
            if self.read(s, begun, "go\n"):
                self.cancel(talk, name)         # nginx was reloaded
                return
            whole = s.result is None
            for n in range(3 if whole else 0):
                data.append(self.rnd.randbytes(self.rnd.randrange(1, 30000)))
                r = self.ask(talk, "POST", talk.url("/commands/%s/stdin%s" % (
                    name, "?eof=1" if n == 2 else "")), data[-1],
                    (200, (409, "command_ended"), (404, "no_sandbox"),
                     (404, "command_not_found")),
                    {"Content-Type": "application/octet-stream"})
                whole = r is not None and r.status == 200 \
                    and r.json["bytes"] == len(data[-1])
                if not whole:
                    break
            if whole and not self.read(s, begun) \
                    and s.result["outcome"] == "exit":
                self.equal(s.text, "go\n%s  -\n" % digest(b"".join(data)),
                           "what it read")
                self.outcome(talk, name, s.result)
        finally:
            s.close()
            if not whole:
                if not self.soak.near(begun):
                    raise AssertionError("its stdin was not taken")
                self.cancel(talk, name)

    def raw(self, talk, method, path, body, length, kind="application/json"):
        """A request of which only these bytes are sent, on a socket."""
        s = socket.create_connection(("127.0.0.1", self.g.port), 30)
        head = ("%s /sandbox/%s HTTP/1.1\r\nHost: localhost\r\n"
                "Authorization: Bearer %s\r\nContent-Type: %s\r\n"
                "Content-Length: %d\r\n\r\n" % (
                    method, path, talk.tokens[0], kind, length))
        s.sendall(head.encode() + body)
        return s

    def hang_up(self, s):
        if self.rnd.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                         struct.pack("ii", 1, 0))
        s.close()

    def do_disconnect(self, talk):
        """A client that goes: the command goes on, or is cancelled."""
        name, begun = talk.next_id(), time.monotonic()
        cancel = self.rnd.random() < 0.4
        body = json.dumps({"command": "echo %s >> ran; sleep %.1f; echo x" % (
            name, self.rnd.uniform(0, 3)), "commandId": name,
            "onDisconnect": "cancel" if cancel else "continue"}).encode()
        short = self.rnd.random() < 0.2
        talk.ids[name] = "not" if short else "may"
        try:
            s = self.raw(talk, "POST", talk.url("/commands"),
                         body[:-5] if short else body, len(body))
        except OSError:
            if not self.soak.near(begun):
                raise
            return
        time.sleep(self.rnd.uniform(0, 1.5))
        self.hang_up(s)
        if short:
            return

        def ended():
            r = self.ask(talk, "GET", talk.url("/commands/" + name), None,
                         (200, (404, "command_not_found"),
                          (404, "no_sandbox")))
            if r is None or r.status not in (200, 404):
                return None
            if r.status == 200 and "outcome" not in r.json:
                return None
            return r
        r = self.again(120, ended)
        if r.status == 200:
            self.outcome(talk, name, r.json,
                         ("exit", "cancelled") if cancel else ("exit",))

    # the container's files, and the store

    def bytes(self):
        return self.rnd.randbytes(self.rnd.choice((
            0, 1, 100, 5000, 70000, 70000, 1500000)))

    def do_put(self, talk, name=None):
        kind = self.rnd.choice(("fs", "fs") + KINDS)
        name = name or "%s%d" % (self.rnd.choice(("f", "a b", "\u00e4")),
                                 self.rnd.randrange(3))
        place, data = talk.place(kind, name), self.bytes()
        r = self.ask(talk, "PUT", talk.url("/%s/%s" % (
            kind, urllib.parse.quote(name))), data, (200, 201))
        if r is None or r.status < 300 or r.code == "runner_lost":
            place.wrote(digest(data), r is not None and r.status < 300)

    def get(self, talk, kind, name, place):
        r = self.ask(talk, "GET", talk.url("/%s/%s" % (
            kind, urllib.parse.quote(name))), None,
            (200, (404, "file_not_found"), (404, "no_sandbox")))
        if r is None or r.status not in (200, 404):
            return False
        try:
            place.found(digest(r.body) if r.status == 200 else None)
        except AssertionError as error:
            raise AssertionError("%s/%s: %s, %r" % (
                kind, name, error, r if r.status != 200 else len(r.body)))
        return True

    def some(self, talk):
        """A file of it, whichever."""
        every = [(kind, name, place)
                 for kind, places in [("fs", talk.fs), *talk.places.items()]
                 for name, place in places.items()]
        return self.rnd.choice(every) if every else None

    def do_get(self, talk):
        one = self.some(talk)
        if one:
            self.get(talk, *one)

    def do_remove(self, talk):
        one = self.some(talk)
        if not one:
            return
        kind, name, place = one
        r = self.ask(talk, "DELETE", talk.url("/%s/%s" % (
            kind, urllib.parse.quote(name))), None,
            (204, (404, "file_not_found"), (404, "no_sandbox")))
        if r is not None and r.status == 404:
            place.found(None)
        elif r is None or r.status == 204 or r.code == "runner_lost":
            place.wrote(None, r is not None and r.status == 204)

    def do_cut(self, talk):
        """An upload that breaks off changes nothing."""
        one = self.some(talk)
        if not one:
            return
        kind, name, place = one
        data = self.rnd.randbytes(self.rnd.randrange(1, 60000))
        begun = time.monotonic()
        try:
            s = self.raw(talk, "PUT", talk.url("/%s/%s" % (
                kind, urllib.parse.quote(name))), data, len(data) + 1,
                "application/octet-stream")
        except OSError:
            if not self.soak.near(begun):
                raise
            return
        time.sleep(self.rnd.uniform(0, 0.3))
        self.hang_up(s)
        self.get(talk, kind, name, place)

    def do_slow(self, talk):
        """A download of which only the beginning is read."""
        one = self.some(talk)
        if not one:
            return
        begun = time.monotonic()
        try:
            s = self.raw(talk, "GET", talk.url("/%s/%s" % (
                one[0], urllib.parse.quote(one[1]))), b"", 0)
            s.recv(1000)
        except OSError:
            if not self.soak.near(begun):
                raise
            return
        time.sleep(self.rnd.uniform(0, 0.5))
        self.hang_up(s)

    def do_save(self, talk):
        """From the container to the Files panel; and its link."""
        sources = [n for n, p in talk.fs.items()
                   if len(p.may_be) == 1 and p.may_be[0]]
        if not sources:
            return
        source = self.rnd.choice(sources)
        what, place = talk.fs[source].may_be[0], talk.place("files", "saved")
        r = self.ask(talk, "POST", talk.url("/files"), {
            "path": source, "name": "saved", "overwrite": True}, (200, 201))
        if r is None or r.status < 300 or r.code == "runner_lost":
            place.wrote(what, r is not None and r.status < 300)
        if r is None or r.status >= 300:
            return
        r = self.ask(talk, "POST", talk.url("/files/saved/link"))
        if r is None or r.status != 200:
            return
        r = self.ask(talk, "GET", r.json["url"][len("/sandbox/"):])
        if r is not None and r.status == 200:
            self.equal(digest(r.body), what, "what a link leads to")

    def do_staged(self, talk):
        """Attachments are what a command sees."""
        sure = {n: p.may_be[0] for n, p in talk.places["attachments"].items()
                if len(p.may_be) == 1}
        r = self.command(talk, "cd attachments 2> /dev/null || exit 0; "
                         "sha256sum -- * 2> /dev/null; true")
        if r is None or r["outcome"] != "exit":
            return
        found = {line[66:]: line[:64] for line in r["stdout"].splitlines()}
        for name, what in sure.items():
            self.equal(found.get(name), what, "staged, " + name)

    def do_skill(self, talk):
        numbers = talk.skills.setdefault("soak", [None])
        if self.rnd.random() < 0.25:
            number = None
            r = self.ask(talk, "DELETE", talk.url("/skills/soak"), None,
                         (204, (404, "skill_not_found")))
            done = r is not None and r.status in (204, 404)
        else:
            number = self.rnd.randrange(10 ** 6)
            r = self.ask(talk, "PUT", talk.url("/skills/soak"),
                         skill(number), (200, 201))
            done = r is not None and r.status < 300
        if done:
            numbers[:] = [number]
        else:
            numbers.append(number)
        r = self.command(talk, "python3 -c 'import m_soak; print(m_soak.N)'"
                         " 2> /dev/null || echo None")
        if r is not None and r["outcome"] == "exit":
            told = r["stdout"].strip()
            if told not in [str(n) for n in numbers]:
                raise AssertionError("the skill is %r, none of %r"
                                     % (told, numbers))

    def do_crowd(self, talk):
        """Commands and files at once, in one conversation."""
        errors = []

        def one(n):
            try:
                for _ in range(3):
                    if n < 4:
                        # the others change attachments again and again
                        self.command(talk, "sleep 0.%d; echo %d" % (n, n),
                                     "%d\n" % n,
                                     also=((503, "staging_conflict"),))
                    else:
                        self.do_put(talk, "t%d" % n)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=one, args=(n,), daemon=True)
                   for n in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(300)
        if any(t.is_alive() for t in threads):
            raise AssertionError("one has no end")
        if errors:
            raise errors[0]

    # lists

    def pages(self, talk, path, name, most=100):
        out, cursor = [], None
        while most:
            most -= 1
            r = self.ask(talk, "GET", path + ("?limit=%d" % self.rnd.choice(
                (7, 100))) + ("&cursor=" + urllib.parse.quote(cursor)
                              if cursor else ""), None,
                         (200, (404, "no_sandbox")))
            if r is None or r.status != 200:
                raise Lost()
            out += r.json[name]
            cursor = r.json["next"]
            if cursor is None:
                return out
        raise AssertionError("%s has no end" % path)

    def do_lists(self, talk):
        for kind in KINDS:
            have = {f["name"] for f in self.pages(
                talk, talk.url("/" + kind), kind)}
            places = talk.places[kind]
            sure = {n for n, p in places.items()
                    if len(p.may_be) == 1 and p.may_be[0]}
            may = {n for n, p in places.items() if p.may_be != [None]}
            if not sure <= have <= may:
                raise AssertionError("%s: %r, not %r to %r" % (
                    kind, have, sure, may))

    def do_history(self, talk):
        ids = [c["commandId"] for c in self.pages(
            talk, talk.url("/commands"), "commands")]
        if len(ids) != len(set(ids)):
            raise AssertionError("some are twice in the history: %r" % [
                i for i in ids if ids.count(i) > 1][:5])
        wrong = [i for i in ids if talk.ids.get(i) == "not"]
        if wrong:
            raise AssertionError("refused, and in the history: %r" % wrong)

    def do_folder(self, talk):
        entries = {e["name"] for e in self.pages(
            talk, talk.url("/fs/"), "entries")}
        sure = {n for n, p in talk.fs.items()
                if len(p.may_be) == 1 and p.may_be[0]}
        if not sure <= entries:
            raise AssertionError("not in the folder: %r" % (sure - entries))

    def do_conversations(self, talk):
        def listed():
            return talk.name in {c["conversationId"] for c in self.pages(
                talk, "v1/conversations", "conversations")}

        # a thread writes it down, which its first command does not wait for
        end = time.monotonic() + 120
        while talk.used and not listed():
            if time.monotonic() > end:
                raise AssertionError("not in the list: " + talk.name)
            time.sleep(0.3)

    def do_state(self, talk):
        r = self.ask(talk, "GET", talk.url())
        if r is not None and r.status == 200 and talk.used \
                and r.json["state"] == "none":
            raise AssertionError("it is gone: %r" % r.json)

    def do_about(self, talk):
        path, good = self.rnd.choice((
            ("health", (200,)), ("health?ready", (200, 503)),
            ("openapi.json", (200,)), ("v1/limits", (200,)),
            ("v1/nothing", ((404, "not_found"),)),
            ("v1/conversations/none/fs/x", ((404, "no_sandbox"),))))
        begun = time.monotonic()
        try:
            r = self.g.request("GET", path, None,
                               self.rnd.choice(talk.tokens))
        except (OSError, http.client.HTTPException):
            if not self.soak.near(begun):
                raise
            return
        if path == "health?ready":
            self.soak.count(self.what, r.status, None)
        else:
            self.judge(r, begun, "GET", path, good)

    def do_stranger(self, talk):
        """Another user's is not there."""
        other = token(sub="stranger%d" % self.rnd.randrange(3),
                      iss="tenant%d" % (self.number % 3))
        begun = time.monotonic()
        try:
            r = self.g.request("GET", talk.url(), None, other)
            if r.status == 200:
                self.equal(r.json["state"], "none", "somebody else's")
            self.judge(r, begun, "GET", talk.url(), (200,))
            r = self.g.request("GET", talk.url("/fs/ran"), None, other)
            self.judge(r, begun, "GET", "fs", ((404, "no_sandbox"),))
            r = self.g.request("GET", talk.url(), None, other + "x")
            self.judge(r, begun, "GET", talk.url(),
                       ((401, "invalid_token"),))
        except (OSError, http.client.HTTPException):
            if not self.soak.near(begun):
                raise

    # MCP

    def do_mcp(self, talk):
        c = mcp.Client(self.g, talk.name, token=talk.tokens[0],
                       revision=self.rnd.choice((mcp.LEGACY, mcp.MODERN)))
        getattr(self, "mcp_" + self.rnd.choice((
            "run", "run", "file", "search", "skill")))(talk, c)

    def tool(self, c, name, **arguments):
        """structuredContent; None where a death is in the way."""
        begun = time.monotonic()
        try:
            r = c.request("tools/call", {"name": name,
                                         "arguments": arguments})
        except (OSError, http.client.HTTPException) as error:
            self.soak.count(self.what, "lost", type(error).__name__)
            if not self.soak.near(begun):
                raise
            return None
        if r.status != 200 or "result" not in r.json:
            if r.status == 200 and "error" in r.json:
                raise AssertionError("%s: %r" % (name, r))
            self.judge(r, begun, "POST", "mcp", ())
            return None
        result = r.json["result"]
        if not result.get("isError"):
            self.soak.count(self.what, 200, name)
            return result["structuredContent"]
        told = (result["_meta"]["status"], result["_meta"]["code"])
        self.soak.count(self.what, *told)
        if told not in self.soak.codes:
            raise AssertionError("not documented: %r" % result)
        if told == (404, "file_not_found") or told == (404, "no_sandbox"):
            return told
        if told not in NEAR or not self.soak.near(begun):
            raise AssertionError("%s: %r" % (name, result))
        return told

    def mcp_run(self, talk, c):
        name = talk.next_id()
        talk.ids[name] = "may"
        got = self.tool(c, "run_command", commandId=name,
                        command="echo %s >> ran; echo hi" % name)
        if isinstance(got, tuple) and got[1] != "runner_lost":
            talk.ids[name] = "not"
        elif isinstance(got, dict):
            self.outcome(talk, name, got)
            if got["outcome"] == "exit":
                self.equal(got["stdout"], "hi\n", "stdout")

    def mcp_file(self, talk, c):
        place = talk.place("fs", "mcp.txt")
        text = "one\ntwo %d\n" % self.rnd.randrange(10 ** 6)
        got = self.tool(c, "save_file", path="mcp.txt", content=text)
        lost = not isinstance(got, dict)
        if got is None or not isinstance(got, tuple) \
                or got[1] == "runner_lost":
            place.wrote(digest(text.encode()), not lost)
        if lost:
            return
        got = self.tool(c, "edit_file", path="mcp.txt", old_string="one",
                        new_string="three")
        if got is None or not isinstance(got, tuple) \
                or got[1] == "runner_lost":
            place.wrote(digest(text.replace("one", "three").encode()),
                        isinstance(got, dict))
        got = self.tool(c, "read_file", path="mcp.txt")
        if isinstance(got, dict):
            place.found(digest(got["text"].encode()))

    def mcp_search(self, talk, c):
        self.tool(c, "search_files", pattern="tw[o]", path=".")

    def mcp_skill(self, talk, c):
        self.tool(c, "load_skill")

    # ends

    def check_files(self, talk):
        """Each file, by HTTP; and its list of what ran."""
        for kind, places in [("fs", talk.fs), *talk.places.items()]:
            for name, place in list(places.items()):
                self.again(120, lambda k=kind, n=name, p=place:
                           self.get(talk, k, n, p))
        return self.counted(talk)

    def do_verify(self, talk):
        self.check_files(talk)

    def do_reset(self, talk):
        ran = self.check_files(talk)
        self.ok(talk, "POST", talk.url("/reset"), b"")
        talk.seen |= set(ran)
        talk.empty()

    def do_fresh(self, talk):
        self.again(120, lambda: (self.command(talk, "true") or {}).get(
            "outcome") == "exit")
        ran = self.check_files(talk)
        old, fs, used = talk.ids, talk.fs, (talk.used, talk.sandbox)
        talk.empty()
        result = self.command(talk, "true", fresh=True)
        if result is not None and result["outcome"] == "exit":
            talk.seen |= set(ran)
            return
        now, _ = self.listed(talk)
        if set(ran) & set(now):
            talk.ids.update(old)
            talk.fs, (talk.used, talk.sandbox) = fs, used
        elif not self.soak.near(time.monotonic() - 60):
            raise AssertionError("replaced, and no result: %r" % result)
        else:
            talk.seen |= set(ran)

    def do_delete(self, talk):
        self.check_files(talk)
        self.delete(talk)

    def delete(self, talk):
        self.ok(talk, "DELETE", talk.url(), good=(204,))
        r = self.ok(talk, "GET", talk.url())
        self.equal(r.json["state"], "none", "state after DELETE")
        for kind in KINDS:
            self.equal(self.pages(talk, talk.url("/" + kind), kind), [],
                       kind + " after DELETE")
        if talk in self.talks:
            self.talks[self.talks.index(talk)] = self.talk()


ACTIONS = (("short", 12), ("long", 2), ("output", 2), ("stdin", 3),
           ("env", 1), ("python", 1), ("background", 3), ("stream", 6),
           ("cancel", 3), ("typed", 3), ("disconnect", 4), ("put", 10),
           ("get", 8), ("remove", 3), ("cut", 3), ("slow", 2), ("save", 4),
           ("staged", 4), ("skill", 2), ("lists", 2), ("history", 2),
           ("folder", 2), ("conversations", 2), ("state", 2), ("about", 3),
           ("stranger", 1), ("mcp", 6), ("crowd", 2), ("verify", 2), ("reset", 1),
           ("fresh", 1), ("delete", 1))
