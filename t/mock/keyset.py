#!/usr/bin/env python3
"""Key sets by URL: a server of keys of our own that rotates, hangs, drips,
lies and goes away; group auth of the cases as far as they are about it."""

import contextlib
import gzip
import http.client
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import (NGINX, TOP, Gateway, alive, token,      # noqa: E402
                     wait_for)
from hold import held                                    # noqa: E402
from jose import (Key, base64url, claims, compact, folder,   # noqa: E402
                  jwks)
from key_server import (Authority, KeyServer, SilentServer,  # noqa: E402
                        client_of)
from tap import check, main, same, skip, test                      # noqa: E402

A = B = C = None                # keys; A signs what is good from the start


def setup():
    global A, B, C
    A = Key("RS256", kid="a")
    B = Key("ES256", kid="b")
    C = Key("RS256", kid="c")


def gateway(*urls, name="keys", extra="", **options):
    """A gateway whose /NAME/ takes its keys from those URLs."""
    options.setdefault("runner", None)
    options.setdefault("ready", False)
    options["server"] = location(*urls, name=name, extra=extra) \
        + options.get("server", "")
    g = Gateway(**options)
    g.expected.append("[crit] ")    # connect() to the runner that is not there
    return g


def location(*urls, name="keys", extra=""):
    return """
        location /%s/ {
            sandbox on;
            %s
            %s
            add_header X-Worker $pid always;
        }
    """ % (name, " ".join("sandbox_jwks_url %s;" % u for u in urls), extra)


def ask(g, text, where="keys", **options):
    return g.request("GET", "/%s/v1/limits" % where, token=text, **options)


def status(g, text, where="keys"):
    return ask(g, text, where).status


def becomes(g, text, code, seconds=20, where="keys"):
    wait_for(lambda: status(g, text, where) == code, seconds,
             "status %d of %s" % (code, where))


def failures(g):
    return g.error_log.count("can't be fetched")


def storm_token(number):
    """A kid that nobody has, and a signature nobody looks at."""
    return ".".join((compact({"alg": "RS256", "kid": "x%d" % number}),
                     compact(claims()), base64url(os.urandom(256))))


@contextlib.contextmanager
def lookups():
    """The sanitizer's search for leaks at exit can't stand a thread that
    ends beside it, as libcurl's do after a lookup."""
    before = os.environ.get("ASAN_OPTIONS")
    if before is not None:
        os.environ["ASAN_OPTIONS"] = before + ":detect_leaks=0"
    try:
        yield
    finally:
        if before is not None:
            os.environ["ASAN_OPTIONS"] = before


class Pinger:
    """Asks for `health` every 2 ms, in a process of its own; worst() tells
    the longest time that one took.  In `longest` is what was between two
    answers: a machine that stands still does so in there, too."""

    def __init__(self, g):
        self.port = g.port

    def __enter__(self):
        self.stop, stop = multiprocessing.Pipe()
        self.result, result = multiprocessing.Pipe()
        self.process = multiprocessing.Process(
            target=self.run, args=(self.port, stop, result,
                                   time.monotonic()), daemon=True)
        self.process.start()
        return self

    def __exit__(self, *error):
        self.stop.send(None)
        self.times, self.failed, self.longest = self.result.recv()
        self.process.join()

    @staticmethod
    def run(port, stop, result, last):
        signal.alarm(0)
        times, failed, longest = [], [], 0
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        while not stop.poll(0.002):
            started = time.monotonic()
            try:
                c.request("GET", "/sandbox/health")
                r = c.getresponse()
                r.read()
                if r.status != 200:
                    failed.append(r.status)
            except (OSError, http.client.HTTPException) as error:
                failed.append(repr(error))
                c.close()
            now = time.monotonic()
            times.append((now - started) * 1e3)
            longest, last = max(longest, now - last), now
        longest = max(longest, time.monotonic() - last)
        result.send((sorted(times), failed[:3], longest * 1e3))

    def worst(self, what):
        """In ms, and into the report; no request may have failed."""
        same(self.failed, [], "pings that failed")
        times = self.times
        print("# %s: %d pings, median %.2f ms, 99.9 %% below %.1f ms, worst "
              "%.1f ms" % (what, len(times), times[len(times) // 2],
                           times[int(len(times) * 0.999)], times[-1]))
        return times[-1]


@test("auth/keyset-fetched")
def fetched():
    """One set for all that name it, asked for without proxies, at once."""
    with KeyServer(jwks(A, B)) as server, KeyServer("") as proxy:
        url = server.url + "?secret=in-the-query"
        g = gateway(url, workers=2, main="env http_proxy=http://127.0.0.1:%d;"
                    "env all_proxy=http://127.0.0.1:%d;"
                    % (proxy.port, proxy.port),
                    server=location(url, name="other"))
        with g:
            becomes(g, A.token(), 200)
            same(status(g, B.token()), 200)
            same(status(g, A.token(), "other"), 200)
            same(status(g, C.token()), 401)
            same(status(g, token()), 401, "the other location's secret")
            same(server.fetches, 1, "fetches for two locations and workers")
            same(proxy.connections, 0, "connections to a proxy")
            _, method, target, headers = server.seen[0]
            same((method, target), ("GET", "/jwks.json?secret=in-the-query"))
            same(headers["accept-encoding"], "identity")
            check("authorization" not in headers, "a token was sent", headers)
            # the other worker may be the one that has answered so far
            wait_for(lambda: "is new: 2 keys" in g.error_log, 20,
                     "a line in the log")
            check("in-the-query" not in g.error_log, "a query in the log")


@test("auth/keyset-two-workers")
def two_workers():
    """Both verify, though only one of them fetches."""
    with KeyServer(jwks(A)) as server:
        with gateway(server.url, workers=2) as g:
            becomes(g, A.token(), 200)

            def both():
                r = ask(g, A.token())
                same(r.status, 200)
                seen.add(r.headers["X-Worker"])
                return len(seen) == 2
            seen = set()
            wait_for(both, 30, "an answer of both workers")
            same(server.fetches, 1, "fetches")


@test("auth/keyset-unavailable")
def unavailable():
    """No set yet: 503 for what it might verify, 401 for what it can't."""
    with KeyServer("") as server:
        server.refuse()
        with gateway(server.url, workers=1, server=location(
                server.url, name="both",
                extra="sandbox_jwt_secret_file jwt.key;")) as g:
            r = ask(g, A.token())
            same((r.status, r.json["code"]), (503, "keys_unavailable"))
            check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
            same(status(g, "a.b.c"), 401, "no token at all")
            r = ask(g, None)
            same(r.status, 401)
            same(ask(g, token(), "both").status, 200, "the secret's token")
            same(status(g, A.token(), "both"), 503, "the set's token")
            same(status(g, A.token({"alg": "RS256"}), "both"), 503,
                 "the set's token without a kid")
            same(status(g, token(secret=b"x" * 48), "both"), 401,
                 "a forged one: secrets are in no set")
            same(g.request("GET", "/keys/health", token=None).status, 200)
            wait_for(lambda: "can't be connected to" in g.error_log, 20,
                     "a line in the log")
            check("gets 503" in g.error_log, g.error_log[-500:])
            server.answer(jwks(A))
            server.listen()
            becomes(g, A.token(), 200, 30)
            same(status(g, A.token(), "both"), 200)
            wait_for(lambda: "is fetched again" in g.error_log, 10,
                     "the recovery in the log")
            same(g.error_log.count("is fetched again"), 1)


@test("auth/key-rotation", seconds=180)
def rotation():
    with KeyServer(jwks(A)) as server:
        with gateway(server.url + " interval=2s cooldown=1s", workers=2) as g:
            becomes(g, A.token(), 200)
            same(status(g, B.token()), 401)
            server.answer(jwks(A, B))
            started = time.monotonic()
            becomes(g, B.token(), 200, 20)
            print("# a new key is taken after %.1f s (interval 2 s)"
                  % (time.monotonic() - started))
            same(status(g, A.token()), 200)
            server.answer(jwks(B))
            started = time.monotonic()
            text = A.token()
            # each worker has its own keys, and each knows it now
            wait_for(lambda: [status(g, text) for _ in range(8)] == [401] * 8,
                     20, "the end of a key that was removed")
            print("# a removed key is refused after %.1f s (interval 2 s)"
                  % (time.monotonic() - started))
            same(status(g, B.token()), 200)
            check("signal process started" not in g.error_log, "a reload?")


@test("auth/keyset-unknown-kid-brings-it", seconds=120)
def unknown_kid():
    """401 at once, and the set is fetched long before its interval ends."""
    with KeyServer(jwks(A)) as server:
        with gateway(server.url + " interval=1d cooldown=2s", workers=2) as g:
            becomes(g, A.token(), 200)
            server.answer(jwks(A, C))
            started = time.monotonic()
            r = ask(g, C.token())
            same(r.status, 401)
            check("invalid_token" in r.headers["WWW-Authenticate"], r)
            check(time.monotonic() - started < 30, "it waited")
            becomes(g, C.token(), 200, 20)

            # tokens that came while it was fetched may ask for one more

            def settled():
                fetches = server.fetches
                time.sleep(6)
                return server.fetches == fetches and fetches
            fetches = wait_for(settled, what="an end of fetches")
            # by the cooldown, where that took longer
            check(2 <= fetches <= 3 + (time.monotonic() - started - 4) // 2,
                  "fetches", fetches)
            # a known kid with a bad signature is no reason to fetch
            bad = A.token()[:-8] + "AAAAAAAA"
            for _ in range(20):
                same(status(g, bad), 401)
            time.sleep(4)
            same(server.fetches, fetches, "fetches after bad signatures")


@test("auth/kid-storm", seconds=180)
def kid_storm():
    """1,000 unknown kids in 10 s, good tokens alongside."""
    with KeyServer(jwks(A)) as server:
        with gateway(server.url + " interval=1d cooldown=5s", workers=2) as g:
            becomes(g, A.token(), 200)
            good, times, bad, wrong = A.token(), [], [], []
            before = server.fetches
            started = time.monotonic()

            def storm(first):
                c = g.connect()
                for n in range(first, 1000, 4):
                    at = started + n / 100
                    time.sleep(max(0, at - time.monotonic()))
                    r = ask(g, storm_token(n), connection=c)
                    bad.append(r.status)

            def calm():
                c = g.connect()
                while any(t.is_alive() for t in threads):
                    at = time.monotonic()
                    r = ask(g, good, connection=c)
                    times.append(time.monotonic() - at)
                    if r.status != 200:
                        wrong.append(repr(r))
                    time.sleep(0.005)

            threads = [threading.Thread(target=storm, args=(n,))
                       for n in range(4)]
            for t in threads:
                t.start()
            calm()
            took = time.monotonic() - started
            fetches = server.fetches - before
            same(len(bad), 1000, "refusals")
            same(set(bad), {401}, "status of unknown kids")
            same(wrong[:3], [], "good tokens")
            times.sort()
            print("# %d unknown kids in %.1f s: %d fetches (cooldown 5 s); "
                  "%d good requests, median %.2f ms, worst %.1f ms"
                  % (len(bad), took, fetches, len(times),
                     times[len(times) // 2] * 1e3, times[-1] * 1e3))
            check(1 <= fetches <= took / 5 + 1, "fetches:", fetches)
            moments = [s[0] for s in server.seen]
            gaps = [b - a for a, b in zip(moments[1:], moments[2:])]
            check(all(gap > 2 for gap in gaps), "too soon:", gaps)


def bad_answers():
    """(name, how to answer, what the log says)"""
    good = jwks(A)
    many = json.dumps({"keys": [dict(A.jwk(), kid="m%d" % n)
                                for n in range(65)]})
    return (
        ("500", dict(body="oops", status=500), "status 500"),
        ("404", dict(body=good, status=404), "status 404"),
        ("HTML", dict(body="<html><body>Log in, please</body></html>",
                      headers={"Content-Type": "text/html"}),
         "no key set that can be used"),
        ("gzip", dict(body=gzip.compress(good.encode()),
                      headers={"Content-Encoding": "gzip"}),
         "Content-Encoding"),
        ("said to be gzip", dict(body=good,
                                 headers={"content-encoding": " GZIP "}),
         "Content-Encoding"),
        ("gzip, not said", dict(body=gzip.compress(good.encode())),
         "no key set that can be used"),
        ("half", dict(body=good, cut=len(good) // 2), "before the answer"),
        ("half, said to be all", dict(body=good[:len(good) // 2]),
         "no key set that can be used"),
        ("nothing", dict(body="", raw=b""), "before the answer"),
        ("empty", dict(body=""), "no key set that can be used"),
        ("no HTTP", dict(body="", raw=b"SSH-2.0-OpenSSH\r\n\r\n"), "HTTP"),
        ("no keys", dict(body='{"keys":[]}'), "no key set that can be used"),
        ("other JSON", dict(body='["keys"]'), "no key set that can be used"),
        ("private key only",
         dict(body=json.dumps({"keys": [dict(A.jwk(), d="AQAB")]})),
         "no key set that can be used"),
        ("65 keys", dict(body=many), "no key set that can be used"),
        ("300 kB", dict(body=good + " " * 300000), "more than 262144 bytes"),
        ("300 kB, not said",
         dict(body=good + " " * 300000, headers={"Content-Length": None}),
         "more than 262144 bytes"),
        ("endless headers",
         dict(body="", raw=b"HTTP/1.1 200 x\r\n"
              + (b"A: " + b"b" * 2000 + b"\r\n") * 60 + b"\r\n"),
         "of headers"),
        ("an escape sequence", dict(body="", raw=b"HTTP/1.1 200 x\r\n"
                                    b"Content-Length: \x1b[31m\r\n\r\n"),
         "can't be fetched"),
        ("redirect", dict(body=good, status=302,
                          headers={"Location": "/other.json"}),
         "status 302"),
        ("204", dict(body="", status=204), "status 204"),
    )


def answers_badly(server, g, answers):
    for name, how, line in answers:
        server.answer(**how)
        before, lines = server.fetches, failures(g)
        wait_for(lambda: server.fetches >= before + 2, 30, "a fetch: " + name)
        wait_for(lambda: failures(g) > lines, 10,
                 "a line in the log: " + name)
        last = [t for t in g.error_log.splitlines()
                if "can't be fetched" in t][-1]
        check(line in last, name + ": the log says", last)
        check("stay in use" in last, last)
        check("\x1b" not in last, "a control character", last)
        same(status(g, A.token()), 200, "after " + name)
        told = failures(g) - lines
        # one a fetch, and the one before; so long as we look, it goes on
        check(told <= server.fetches - before + 1, "too many lines", told,
              g.error_log[-2000:])
    targets = {s[2] for s in server.seen}
    same(targets, {"/jwks.json"}, "redirects are not followed")
    server.answer(jwks(A, C))
    becomes(g, C.token(), 200)
    same(g.error_log.count("is fetched again"), 1, "recoveries")
    check("A: b" not in g.error_log, "an answer in the log")


@test("auth/keyset-bad-answers", seconds=900)
def keyset_bad_answers():
    """The last good set stays, one line each, and nobody waits."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(KeyServer(jwks(A))) for _ in range(3)]
        gateways = [stack.enter_context(gateway(
            server.url + " interval=1s cooldown=1s timeout=60s", workers=1))
            for server in servers]
        for g in gateways:
            becomes(g, A.token(), 200)
        with Pinger(gateways[0]) as pinger:
            jobs = [held(lambda n=n: answers_badly(
                servers[n], gateways[n], bad_answers()[n::3]))
                for n in range(3)]
            for job in jobs:
                job.result(850)
        pinger.worst("bad answers")


@test("auth/keyset-repeated-failure", seconds=60)
def repeated_failure():
    """The same problem is told once an interval, not with every attempt."""
    with KeyServer("") as server:
        server.answer("no", status=503)
        with gateway(server.url + " interval=1h cooldown=1s", workers=1) as g:
            wait_for(lambda: server.fetches >= 5, 30, "five attempts")
            same(failures(g), 1, "lines in the log")
            server.answer("no", status=502)
            wait_for(lambda: failures(g) == 2, 20, "the other problem")


@test("auth/keyset-large", seconds=60)
def large():
    """64 keys in 40 kB; others beside them are left out."""
    keys = [dict(A.jwk(), kid="k%d" % n, x5t="x" * 250) for n in range(61)]
    keys += [A.jwk(), B.jwk(), dict(C.jwk(), use="enc")]
    body = json.dumps({"keys": keys})
    check(40000 < len(body) < 60000, "size", len(body))
    with KeyServer(body) as server:
        with gateway(server.url, workers=1) as g:
            becomes(g, A.token(), 200)
            same(status(g, B.token()), 200)
            same(status(g, C.token()), 401, "a key for encryption")
            same(status(g, A.token(header=A.header(kid="k60"))), 200)
            check("is new: 63 keys" in g.error_log, g.error_log[-300:])
    with KeyServer(jwks(A, dict(C.jwk(), d="AQAB"))) as server:
        with gateway(server.url, workers=1) as g:
            becomes(g, A.token(), 200)
            same(status(g, C.token()), 401, "a key that is everybody's")


@test("auth/keyset-hanging-server", seconds=180)
def hanging():
    """A server that says nothing for 60 s, or a byte now and then, or does
    not even do its handshake: nobody else's request is delayed."""
    with KeyServer(jwks(A)) as server, SilentServer("") as silent, \
            Gateway(runner=None, ready=False, workers=1) as other:
        other.expected.append("[crit] ")
        url = server.url + " interval=1s cooldown=1s timeout=60s"
        with gateway(url, workers=1, server=location(
                "https://127.0.0.1:%d/ ca=%s timeout=10s cooldown=1s"
                % (silent.port, Authority().file), name="tls")) as g:
            becomes(g, A.token(), 200)
            for how in ("hang", "drip"):
                getattr(server, how)()
                server.drop()
                before = server.fetches
                wait_for(lambda: server.fetches > before, 30, "a fetch")
                # what this machine does to a gateway without key sets, all
                # the time that the other one is asked
                with Pinger(other) as control, Pinger(g) as pinger:
                    end = time.monotonic() + 6
                    while time.monotonic() < end:
                        same(status(g, A.token()), 200)
                usual = max(control.worst("no key set"), control.longest)
                check(pinger.worst("a server that " + how + "s")
                      < 2000 + 2 * usual, "requests were held up")
                check(server.fetches <= before + 2, "it does not wait for it",
                      server.fetches - before)
                server.answer(jwks(A))
                server.drop()
            wait_for(lambda: silent.connections >= 2, 20,
                     "another fetch by TLS")
            wait_for(lambda: "no complete answer" in g.error_log, 20,
                     "a time-out in the log")
            same(status(g, A.token(), "tls"), 503)


@test("auth/keyset-timeout", seconds=60)
def timeout():
    """The fetch ends by itself, and the next one is as good as any."""
    with KeyServer(jwks(A)) as server:
        server.hang()
        with gateway(server.url + " timeout=500ms cooldown=1s",
                     workers=1) as g:
            wait_for(lambda: "no complete answer" in g.error_log, 20,
                     "a time-out in the log")
            server.answer(jwks(A))
            becomes(g, A.token(), 200)


@test("auth/keyset-unresolvable", seconds=60)
def unresolvable():
    """Names are looked up, and nobody waits for that either."""
    with lookups(), gateway("http://no-such-host.invalid/ insecure "
                            "timeout=12s cooldown=1s", workers=1) as g:
        with Pinger(g) as pinger:
            wait_for(lambda: failures(g), 30, "a line in the log")
            time.sleep(2)
        check(pinger.worst("a name that does not resolve") < 11000,
              "requests were held up")
        check("can't be resolved" in g.error_log
              or "no complete answer" in g.error_log, g.error_log[-500:])


def slow_lookups(seconds):
    """A library for LD_PRELOAD."""
    path = "%s/slow%d.so" % (folder(), seconds)
    subprocess.run(["gcc", "-shared", "-fPIC", "-DSLOW_LOOKUP=%d" % seconds,
                    "-o", path, TOP + "/t/lib/slow_lookup.c", "-ldl"],
                   check=True)
    return path


@test("auth/keyset-slow-lookup", seconds=120)
def slow_lookup():
    """A resolver that takes 20 s, longer than the time-out: no request waits
    for its thread, nor does the end of nginx; and those lookups may still be
    out when a worker has unloaded the module."""
    if "ASAN_OPTIONS" in os.environ:
        skip("the sanitizer wants to be the first library")
    for number in (signal.SIGQUIT, signal.SIGTERM):
        g = gateway("http://keys.invalid/ insecure timeout=500ms cooldown=1s",
                    workers=1)
        os.environ["LD_PRELOAD"] = slow_lookups(20)
        try:
            g.configure()
            g.start()
        finally:
            del os.environ["LD_PRELOAD"]
        good = False
        try:
            with Pinger(g) as pinger:
                # nginx has put its error log in the place of stderr
                wait_for(lambda: g.error_log.count("slow lookup") >= 3, 30,
                         "lookups")
                wait_for(lambda: "no complete answer" in g.error_log, 20,
                         "a time-out in the log")
                time.sleep(1)
            check(pinger.worst("lookups of 20 s, timeout=500ms") < 10000,
                  "requests were held up")
            started = time.monotonic()
            g.end(g.nginx, number, 120)
            took = time.monotonic() - started
            print("# signal %d in a lookup: %.0f ms" % (number, took * 1e3))
            check(took < 18, "it took %.1f s" % took)
            good = True
        finally:
            g.stop(check=good)


@test("auth/keyset-tls", seconds=120)
def tls():
    ours, other = Authority("ours"), Authority("other")
    with KeyServer(jwks(A), ours.server()) as server, \
            KeyServer(jwks(A), ours.server("DNS:elsewhere")) as elsewhere, \
            KeyServer(jwks(A), other.server()) as foreign:
        with gateway(server.url + " ca=" + ours.file, workers=1) as g:
            becomes(g, A.token(), 200)

        # ca= is read with the configuration: workers need not, later changes
        # do not matter
        g = gateway(server.url + " interval=1s ca=ca.pem", workers=1)
        with open(ours.file) as f:
            g.write("ca.pem", f.read(), 0o600)
        with g:
            becomes(g, A.token(), 200)
            g.write("ca.pem", "", 0o600)
            before = server.fetches
            wait_for(lambda: server.fetches >= before + 2, 20, "fetches")
            same(failures(g), 0)

        for url in (foreign.url + " ca=" + ours.file,
                    elsewhere.url + " ca=" + ours.file,
                    server.url):        # vouched for by nobody of the system
            with gateway(url + " cooldown=1s", workers=1) as g:
                wait_for(lambda: failures(g), 20, "a line in the log")
                check("is not trusted" in g.error_log, g.error_log[-500:])
                same(status(g, A.token()), 503, url)


@test("auth/keyset-not-tls", seconds=60)
def not_tls():
    """Plain HTTP where TLS is expected, and a server that goes away."""
    with KeyServer(jwks(A)) as server:
        url = server.url.replace("http:", "https:")
        with gateway(url + " cooldown=1s ca=" + Authority().file,
                     workers=1) as g:
            wait_for(lambda: failures(g), 20, "a line in the log")
            check("TLS fails" in g.error_log, g.error_log[-500:])
            same(status(g, A.token()), 503)


@test("auth/keyset-reload", seconds=180)
def reload():
    """A set that was fetched serves at once after a reload, whatever its
    server does meanwhile."""
    with KeyServer(jwks(A)) as server:
        with gateway(server.url + " timeout=60s", workers=2) as g:
            becomes(g, A.token(), 200)
            server.hang()
            for n in range(3):
                old = g.reload()
                for _ in range(10):
                    same(status(g, A.token()), 200, "after reload %d" % n)
            wait_for(lambda: not any(alive(p) for p in old), 20,
                     "the end of old workers, in the middle of a fetch")
            server.refuse()
            g.reload()
            same(status(g, A.token()), 200, "without a server")

            # times may change; the set is the same
            g.reload(server=location(server.url + " interval=1h cooldown=1s"))
            same(status(g, A.token()), 200, "with other times")
            # another URL is another set, and this one comes back
            g.reload(server=location(server.url + "?x=y"))
            same(status(g, A.token()), 503, "another URL")
            g.reload(server=location(server.url))
            same(status(g, A.token()), 200, "the first URL again")
            # a reload fetches, so that an operator can ask for it
            server.answer(jwks(C))
            server.listen()
            g.reload()
            becomes(g, C.token(), 200, 20)
            becomes(g, A.token(), 401, 20)


@test("auth/keyset-many-reloads", seconds=180)
def many_reloads():
    with KeyServer(jwks(A)) as server:
        with gateway(server.url + " cooldown=1s", workers=2) as g:
            becomes(g, A.token(), 200)
            for n in range(20):
                # URLs that come and go take no room for ever
                g.reload(server=location(server.url, server.url + "?n=%d"
                                         % n))
                same(status(g, A.token()), 200, "reload %d" % n)
            check("[emerg]" not in g.error_log, g.error_log[-500:])


@test("auth/keyset-worker-killed", seconds=180)
def worker_killed():
    """kill -9 in the middle of a fetch: its successor fetches."""
    with KeyServer(jwks(A)) as server:
        with gateway(server.url + " interval=1s cooldown=1s timeout=60s",
                     workers=2) as g:
            g.expected.append("exited on signal 9")
            becomes(g, A.token(), 200)
            for _ in range(3):
                server.hang()
                before = server.fetches
                wait_for(lambda: server.fetches > before, 30, "a fetch")
                victim = wait_for(lambda: client_of(server.port)
                                  & set(g.workers()), 20, "worker 0").pop()
                os.kill(victim, signal.SIGKILL)
                wait_for(lambda: len(g.workers()) == 2
                         and victim not in g.workers(), 20, "a new worker")
                same(status(g, A.token()), 200)
                wait_for(lambda: server.fetches > before + 1, 20,
                         "the fetch of its successor")
                server.answer(jwks(A))
                server.drop()
            server.answer(jwks(A, C))
            becomes(g, C.token(), 200, 20)


@test("auth/keyset-shutdown", seconds=180)
def shutdown():
    """No way to end nginx waits for a fetch, and none leaves an alert."""
    for number in (signal.SIGQUIT, signal.SIGTERM):
        for how in ("hang", "drip", "silent", "resolve"):
            server = SilentServer("") if how == "silent" else KeyServer("")
            url = server.url + " timeout=60s"
            if how == "silent":
                url = url.replace("http:", "https:") + " ca=" \
                    + Authority().file
            elif how == "resolve":
                url = "http://no-such-host.invalid/ insecure timeout=60s"
            else:
                getattr(server, how)()
            with server, lookups(), gateway(url, workers=2) as g:
                if how != "resolve":
                    wait_for(lambda: server.connections, 20, "a fetch")
                    wait_for(lambda: server.fetches, 20, "a request")
                started = time.monotonic()
                g.end(g.nginx, number, 120)
                took = time.monotonic() - started
                print("# signal %d, server: %s: %.0f ms" % (number, how,
                                                            took * 1e3))
                check(took < 50, "it took %.1f s" % took)
                check("open socket" not in g.error_log, g.error_log[-500:])


@test("auth/keyset-upgrade", seconds=120)
def upgrade():
    """A new binary beside the old one, each with its own set."""

    def pid(name):
        text = g.read(name).strip()
        return int(text) if text else None

    with KeyServer(jwks(A)) as server:
        # what nginx does not name there is lost to the new binary
        g = gateway(server.url, workers=1,
                    main="env ASAN_OPTIONS; env LSAN_OPTIONS;")
        masters = set()
        try:
            # a master whose parent is there takes itself for the new one
            g.configure()
            subprocess.run([NGINX, "-c", g.path("nginx.conf"), "-e",
                            g.path("logs/error.log")], check=True,
                           stdin=subprocess.DEVNULL)
            old = wait_for(lambda: pid("nginx.pid"), 20, "nginx")
            masters.add(old)
            becomes(g, A.token(), 200)
            same(server.fetches, 1)
            os.kill(old, signal.SIGUSR2)
            new = wait_for(lambda: pid("nginx.pid") not in (None, old)
                           and pid("nginx.pid"), 20, "the new master")
            masters.add(new)
            wait_for(lambda: server.fetches == 2, 20, "its own fetch")
            wait_for(lambda: g.error_log.count("is new") == 2, 20,
                     "its own set")
            for _ in range(20):
                same(status(g, A.token()), 200)
            os.kill(old, signal.SIGQUIT)
            wait_for(lambda: not alive(old), 20, "the end of the old one")
            same(status(g, A.token()), 200)
            same(g.log_problems(), [], "in the log")
        finally:
            for master in masters:
                if alive(master):
                    os.kill(master, signal.SIGTERM)
                    wait_for(lambda: not alive(master), 20, "the end")
            g.stop(check=False)


@test("auth/keyset-crowded")
def crowded():
    """Keys that no token can name: the ninth is told of, not just ignored."""
    nameless = {"alg": "ES256"}
    line = 'more than 8 keys for ES256 without a "kid"'
    for n, status_of_last in ((8, 200), (9, 401)):
        keys = [Key("ES256").jwk() for _ in range(n - 1)] + [B.jwk(kid=None)]
        with KeyServer(jwks(A, *keys)) as server:
            with gateway(server.url, workers=1) as g:
                becomes(g, A.token(), 200)
                same(status(g, B.token(nameless)), status_of_last)
                wait_for(lambda: "is new: %d keys" % (n + 1) in g.error_log,
                         10, "a line in the log")
                same(line in g.error_log, n > 8, "it is told of")


@test("auth/keyset-several", seconds=60)
def several():
    """Four sets in a location; one that fails takes nothing from the rest."""
    with KeyServer(jwks(A)) as one, KeyServer(jwks(B)) as two, \
            KeyServer("<html>") as bad:
        with gateway(one.url, two.url, bad.url, workers=1) as g:
            becomes(g, A.token(), 200)
            becomes(g, B.token(), 200)
            # C may be in the set that is not here
            r = ask(g, C.token())
            same((r.status, r.json["code"]), (503, "keys_unavailable"))


@test("auth/keyset-zone-full", seconds=120)
def zone_full():
    """The last good set stays, the log says which size would do."""
    big = json.dumps({"keys": [C.jwk()], "x": "x" * 250000})
    with KeyServer(jwks(A)) as server:
        with gateway(server.url + " interval=1s cooldown=1s", workers=1,
                     zone="192k") as g:
            becomes(g, A.token(), 200)
            server.answer(big)
            wait_for(lambda: "there is no room" in g.error_log, 20,
                     "a line in the log")
            check("2m would do" in g.error_log, g.error_log[-500:])
            same(status(g, A.token()), 200)
            same(status(g, C.token()), 401)
            g.reload(zone="2m")
            becomes(g, C.token(), 200, 20)


@test("auth/keyset-no-connections", seconds=60)
def no_connections():
    """nginx has none left for a fetch: it is told, and the next one works."""
    with KeyServer(jwks(A)) as server:
        g = gateway(server.url + " interval=1s cooldown=1s", workers=1)
        g.expected.append("worker_connections are not enough")

        def configure(**changes):
            Gateway.configure(g, **changes)
            g.write("nginx.conf", g.read("nginx.conf").replace(
                "worker_connections 1024", "worker_connections 16"))
        g.configure = configure
        with g:
            becomes(g, A.token(), 200)
            held = []
            try:
                # half a request each: nginx may not close these for others
                def crowded():
                    if len(held) < 40:
                        s = socket.create_connection(("127.0.0.1", g.port),
                                                     60)
                        held.append(s)
                        s.sendall(b"GET /sandbox/health HTTP/1.1\r\n"
                                  b"A: b\r\n")
                    return "worker_connections are not enough" in g.error_log
                wait_for(crowded, 20, "an nginx that takes no more")
                wait_for(lambda: "no memory or no connection" in g.error_log,
                         20, "a line in the log")
            finally:
                for s in held:
                    s.close()
            wait_for(lambda: "is fetched again" in g.error_log, 20,
                     "a fetch that works")
            same(status(g, A.token()), 200)


@test("auth/keyset-single-process", seconds=60)
def single_process():
    """Without a master, as developers run it."""
    with KeyServer(jwks(A)) as server:
        with gateway(server.url + " interval=1s", workers=1,
                     main="master_process off;") as g:
            becomes(g, A.token(), 200)
            server.answer(jwks(C))
            becomes(g, C.token(), 200)
            same(status(g, A.token()), 401)


def nginx_test(g):
    g.configure()
    p = subprocess.run([NGINX, "-t", "-c", g.path("nginx.conf"),
                        "-e", g.path("logs/test.log")],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return p.returncode, p.stdout.decode(errors="replace")


@test("auth/keyset-configuration")
def configuration():
    """Every mistake is found while the configuration is read."""
    ca = Authority().file
    long = "https://id.example/" + "x" * 2048
    bad = (
        ("ftp://id.example/jwks", 'must begin with "https://"'),
        ("file:///etc/passwd", "invalid URL"),
        ("ldap://id.example/", 'must begin with "https://"'),
        ("id.example/jwks", "invalid URL"),
        ("https://", "invalid URL"),
        ("https:///jwks", "invalid URL"),
        ("https://a%20b/jwks", "invalid URL"),
        ('"https://id.example/a b"', "a space"),
        ("https://id.example/\u00e9", "not ASCII"),
        ('""', "it must have 1 to 2048"),
        (long, "it must have 1 to 2048"),
        ("https://id.example:0/jwks", "invalid port"),
        ("https://id.example:65536/jwks", "invalid URL"),
        ("https://user:pa55word@id.example/jwks", "names a user"),
        ("https://pa55word@id.example/jwks", "names a user"),
        ("https://id.example/jwks#keys", "fragment"),
        ("http://id.example/jwks", "not encrypted"),
        ("http://10.0.0.1/jwks", "not encrypted"),
        ("http://127.0.0.1.example/jwks", "not encrypted"),
        ("http://localhost.example/jwks", "not encrypted"),
        ("http://[::2]/jwks", "not encrypted"),
        ("https://id.example/jwks insecure", "for \"http://\" only"),
        ("http://127.0.0.1/jwks ca=" + ca, 'for "https://" only'),
        ("https://id.example/jwks ca=/no/such/file", "can't open"),
        ("https://id.example/jwks ca=/etc/passwd", "holds no certificate"),
        ("https://id.example/jwks ca=", "unknown parameter"),
        ("https://id.example/jwks interval=0", "from 1s to 1d"),
        ("https://id.example/jwks interval=2d", "from 1s to 1d"),
        ("https://id.example/jwks interval=", "from 1s to 1d"),
        ("https://id.example/jwks timeout=10ms", "from 100ms to 60s"),
        ("https://id.example/jwks timeout=61s", "from 100ms to 60s"),
        ("https://id.example/jwks cooldown=100ms", "from 1s to 1h"),
        ("https://id.example/jwks cool=1s", "unknown parameter"),
        ("https://a.example/ ; sandbox_jwks_url https://a.example/",
         "is duplicate"),
        ("; sandbox_jwks_url ".join("https://%d.example/" % n
                                    for n in range(5)), "too many key sets"),
        ("https://a.example/; } location /b/ { sandbox on; "
         "sandbox_jwks_url https://a.example/ interval=1h", "one set"),
        ("", "invalid number of arguments"),
    )
    for url, expected in bad:
        g = gateway(url)
        try:
            code, text = nginx_test(g)
            check(code != 0, "taken:", url)
            check(expected in text, "%s: nginx says" % url, text)
            check("pa55word" not in text, "a password in the log", text)
        finally:
            g.stop(check=False)
    good = (
        "https://id.example/jwks", "https://id.example:8443/a?c=d:///&e=%20",
        "https://[2001:db8::1]/", "http://127.0.0.1:1/", "http://127.9.9.9/",
        "http://localhost:1/", "http://[::1]:1/", "HTTPS://ID.EXAMPLE/jwks",
        "http://id.example/ insecure", "https://id.example/ ca=" + ca,
        "https://id.example/ interval=1d timeout=100ms cooldown=1h",
        "https://a.example/; sandbox_jwks_url https://b.example/",
        "https://a.example/; } location /b/ { sandbox on; "
        "sandbox_jwks_url https://a.example/",
    )
    for url in good:
        g = gateway(url)
        try:
            code, text = nginx_test(g)
            same((code, "[emerg]" in text), (0, False), url + ": " + text)
        finally:
            g.stop(check=False)


main(setup)
