#!/usr/bin/env python3
"""auth/key-file-reload: fifty reloads with traffic and other keys each time.
The right key decides, no request is lost, no memory stays behind."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import SLOW, Gateway, token, wait_for   # noqa: E402
from jose import Key, jwks                                   # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
ROUNDS = 50 if SLOW == 1 else 8
WARM = 10
MOST = 1024                     # kB that all processes may grow together
keys = {}
traffic = None


def start():
    global g
    for kind in ("RS256", "ES256", "ES384", "HS256"):
        keys[kind] = [Key(kind, kid="%s-%d" % (kind, n)) for n in range(2)]
    g = Gateway(runner="mock", workers=2, log_level="notice")
    g.options["http"] = "keepalive_requests 1000000;"
    g.options["server"] = """
        location /secret/ {
            sandbox on;
            sandbox_realm keys;
            sandbox_jwt_secret_file %(dir)s/secret.key;
        }
        location /pem/ {
            sandbox on;
            sandbox_realm keys;
            sandbox_jwt_key_file %(dir)s/key.pem;
            sandbox_jwt_key_file %(dir)s/second.pem kid=second;
        }
        location /set/ {
            sandbox on;
            sandbox_realm keys;
            sandbox_jwks_file %(dir)s/set.json;
            sandbox_permission_claim permissions a.b.c "d\\\\.e";
        }
    """ % {"dir": g.dir}
    install(0)
    g.start()


def stop():
    if traffic:
        traffic.stop()
    g.stop()


def replace(name, data, mode=0o600):
    """As an operator does it: never half a file."""
    g.write(name + ".new", data, mode)
    os.rename(g.path(name + ".new"), g.path(name))


def install(n):
    """The keys of round n."""
    n %= 2
    replace("secret.key", keys["HS256"][n].secret)
    replace("key.pem", keys["RS256"][n].public, 0o644)
    replace("second.pem", keys["ES384"][n].public, 0o644)
    replace("set.json", jwks(*[keys[k][n] for k in
                               ("ES256", "RS256", "HS256")]))


def tokens(n):
    """Location and token, for each that is good in round n."""
    n %= 2
    second = keys["ES384"][n]
    return (("secret", keys["HS256"][n].token()),
            ("pem", keys["RS256"][n].token({"alg": "RS256"})),
            ("pem", second.token({"alg": "ES384", "kid": "second"})),
            ("set", keys["ES256"][n].token()),
            ("set", keys["RS256"][n].token()),
            ("set", keys["HS256"][n].token()))


class Traffic:
    """Requests without a break; what is answered otherwise than expected."""

    def __init__(self):
        self.on = True
        self.wrong = []
        self.counts = {}
        fixed = token()
        ours = [t for n in range(2) for t in tokens(n)]
        jobs = [lambda: self.one("GET", "/sandbox/v1/limits", fixed, (200,)),
                lambda: self.command(fixed)] \
            + [lambda w=w, t=t: self.one("GET", "/%s/v1/limits" % w, t,
                                         (200, 401)) for w, t in ours]
        self.threads = [threading.Thread(target=self.run, args=(jobs, n),
                                         daemon=True) for n in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, jobs, at):
        while self.on and len(self.wrong) < 20:
            at += 1
            try:
                jobs[at % len(jobs)]()
            except Exception as error:          # also a lost connection
                self.wrong.append("%s: %s" % (type(error).__name__, error))
            time.sleep(0.002)

    def one(self, method, path, text, statuses, body=None):
        # a connection each: an idle one may be closed while it is used
        r = g.request(method, path, body, text, {"Connection": "close"})
        self.counts[r.status] = self.counts.get(r.status, 0) + 1
        if r.status not in statuses:
            self.wrong.append("%s %s: %r" % (method, path, r))
        return r

    def command(self, text):
        """One that is still running when its worker is told to leave."""
        r = self.one("POST", "/sandbox/v1/conversations/traffic/commands",
                     text, (200,),
                     {"command": "mock: sleep=0.2 stdout=through"})
        if r.json.get("stdout") != "through":
            self.wrong.append("a command: %r" % r)

    def stop(self):
        self.on = False
        for thread in self.threads:
            thread.join(150)
        return [t for t in self.threads if t.is_alive()]


def memory(pid):
    """Pss, and what of it is no file: other nginx share the files."""
    out = {}
    with open("/proc/%d/smaps_rollup" % pid) as f:
        for line in f:
            part = line.split()
            if part[0].startswith("Pss"):
                out[part[0].rstrip(":")] = int(part[1])
    own = out.get("Pss_Anon")
    return out["Pss"], out["Pss"] if own is None \
        else own + out.get("Pss_Shmem", 0)


def measure():
    """Of master and workers, once the old workers are gone."""
    wait_for(lambda: len(g.workers()) == 2, 30, "the end of old workers")
    master = memory(g.master())
    workers = [memory(p) for p in g.workers()]
    return {"master": master[1], "all": master[1] + sum(w[1] for w in workers),
            "pss": master[0] + sum(w[0] for w in workers)}


def settled(samples, name):
    return sorted(s[name] for s in samples)[len(samples) // 2]


@test("auth/key-file-reload", seconds=1100)
def key_file_reload():
    global traffic
    traffic = Traffic()
    samples = []
    for n in range(1, ROUNDS + 1):
        install(n)
        g.reload()
        for where, text in tokens(n):
            same(g.request("GET", "/%s/v1/limits" % where, token=text).status,
                 200, "round %d, %s" % (n, where))
        for where, text in tokens(n + 1):
            same(g.request("GET", "/%s/v1/limits" % where, token=text).status,
                 401, "round %d, %s, the old key" % (n, where))
        if n > WARM - 5 and n <= WARM or n > ROUNDS - 5:
            samples.append(measure())
        check(not traffic.wrong, "round %d:" % n, traffic.wrong[:3])
    check(not traffic.stop(), "a request hangs")
    check(not traffic.wrong, "traffic:", traffic.wrong[:3])
    total = sum(traffic.counts.values())
    print("# %d reloads, %d requests: %s" % (ROUNDS, total, traffic.counts))
    check(traffic.counts.get(200, 0) > ROUNDS, "no traffic:", traffic.counts)

    # other allocators keep what was freed
    if os.environ.get("SANDBOX_TEST_NGINX") or SLOW > 1:
        return
    early, late = samples[:5], samples[5:]
    for name in ("master", "all", "pss"):
        print("# %s: %d kB after %d, %d kB after %d"
              % (name, settled(early, name), WARM, settled(late, name),
                 ROUNDS))
    for name in ("master", "all"):
        grown = settled(late, name) - settled(early, name)
        check(grown <= MOST, "%s grew by %d kB: %s" % (name, grown, [
            s[name] for s in samples]))


@test("auth/key-file-bad-at-reload")
def bad_key():
    """A file that is no key changes nothing: the old keys go on."""
    n = ROUNDS
    for name, data in (("key.pem", "no key"), ("secret.key", b"short"),
                       ("set.json", '{"keys":[]}'), ("key.pem", b""),
                       ("set.json", "<html>")):
        replace(name, data)
        at = len(g.error_log)
        g.expected.append("[emerg]")
        workers = g.workers()
        os.kill(g.master(), 1)
        wait_for(lambda: "[emerg]" in g.error_log[at:], 20, "an error line")
        check(name in g.error_log[at:], "the file is not named:",
              g.error_log[at:])
        same(g.workers(), workers, "workers")
        for where, text in tokens(n):
            same(g.request("GET", "/%s/v1/limits" % where, token=text).status,
                 200, "%s after a bad %s" % (where, name))
        install(n)
    g.reload()
    same(g.request("GET", "/sandbox/v1/limits").status, 200)


main(start, stop)
