#!/usr/bin/env python3
"""The cache of verified tokens in the zone: never beyond exp, never for another
policy or other keys, bounded, and without a token in it."""

import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import SECRET, Gateway, token, wait_for         # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
SHOW = "add_header X-Cache $sandbox_token_cache always;" \
       "add_header X-User $sandbox_user always;"
COUNTERS = ("hits", "misses", "evictions", "refused", "entries", "bytes")


def policy(name, more="", key="jwt.key"):
    return """
        location /%s/ {
            sandbox on;
            sandbox_jwt_secret_file %s;
            %s
            %s
        }
    """ % (name, g.path(key), more, SHOW)


def start():
    global g
    g = Gateway(runner="mock", log_level="info", workers=2)
    g.write("other.key", SECRET)
    g.write("copy.key", SECRET)
    g.options["location"] = SHOW
    g.options["server"] = "location = /counters { return 200 '{%s}'; }" \
        % ",".join('"%s":$sandbox_token_cache_%s' % (n, n) for n in COUNTERS) \
        + policy("same") \
        + policy("copy", key="copy.key") \
        + policy("a", "sandbox_jwt_audience a; sandbox_realm x;") \
        + policy("b", "sandbox_jwt_audience b; sandbox_realm x;") \
        + policy("ab", "sandbox_jwt_audience a b; sandbox_realm x;") \
        + policy("issuer", "sandbox_jwt_issuer i;") \
        + policy("leeway", "sandbox_jwt_leeway 30s;") \
        + policy("permission", "sandbox_permission tools:run;") \
        + policy("reader", "sandbox_permission_read sandbox:read;") \
        + policy("claim", "sandbox_permission_claim roles;") \
        + policy("tenant", "sandbox_tenant_claim org;") \
        + policy("conversation", "sandbox_conversation_claim chat;") \
        + policy("algorithms", "sandbox_jwt_algorithms HS256;")
    g.start()


def stop():
    g.stop()


def counters():
    return json.loads(g.request("GET", "/counters", token=None).body)


def ask(text, where="/sandbox/", path="v1/limits", **options):
    return g.request("GET", where + path, token=text, **options)


def expect(text, cache, status=200, where="/sandbox/", path="v1/limits"):
    r = ask(text, where, path)
    same(r.status, status, where + path)
    same(r.headers["X-Cache"], cache, where + path)
    return r


@test("auth/cache-hit")
def hit():
    before = counters()
    text = token(sub="hit")
    same(expect(text, "miss").headers["X-User"], "hit", "user")
    for _ in range(20):                     # whichever worker it is
        same(expect(text, "hit").headers["X-User"], "hit", "user")
    after = counters()
    same(after["hits"] - before["hits"], 20, "hits")
    same(after["misses"] - before["misses"], 1, "misses")
    same(after["entries"] - before["entries"], 1, "entries")
    check(after["bytes"] > before["bytes"], "no bytes", after)


@test("auth/cache-same-session")
def session():
    # what comes out of the cache is what went in: the same session
    text = token(sub="séssion", iss="https://id.example/", org="örg")
    for where in ("/sandbox/", "/tenant/"):
        seen = []
        for cache in ("miss", "hit", "hit"):
            r = g.request("POST", where + "v1/conversations/c/commands",
                          {"command": "echo"}, token=text)
            same(r.headers["X-Cache"], cache)
            seen.append(json.loads(r.json["stdout"])["preamble"])
        for name in ("session", "tenant"):
            same(len({p[name] for p in seen}), 1, name)


@test("auth/cache-refusals")
def refusals():
    before = counters()
    for text in (token(sub="x", secret=b"another secret of more than 32 bytes"),
                 token(sub="x", exp=int(time.time()) - 5),
                 token(sub=None), "a.b.c"):
        for _ in range(2):
            expect(text, "miss", 401)
    expect(None, "-", 401)
    same(counters()["entries"], before["entries"], "entries")
    text = token(sub="denied", permissions=[])
    for cache in ("miss", "hit", "hit"):
        r = expect(text, cache, 403)
        same(r.json["code"], "insufficient_scope")
        same(r.headers["X-User"], "-", "user of a refused request")


@test("auth/cache-outlives-exp")
def exp():
    for seconds in (8, 40, 200):
        soon = time.time() + seconds
        text = token(sub="soon", exp=soon)
        seen = [ask(text) for _ in range(2)]
        time.sleep(1)
        seen.append(ask(text))
        if time.time() < soon - 2:
            break                           # none of them was late
    same([(r.status, r.headers["X-Cache"]) for r in seen],
         [(200, "miss"), (200, "hit"), (200, "hit")])
    time.sleep(max(0, soon + 1 - time.time()))
    expect(text, "miss", 401)
    expect(text, "miss", 401)


@test("auth/cache-two-policies")
def policies():
    # a token that one location takes is looked at anew by any other policy
    text = token(sub="two", aud="a")
    expect(text, "miss", where="/a/")
    expect(text, "hit", where="/a/")
    expect(text, "miss", 401, where="/b/")
    expect(text, "miss", where="/ab/")
    expect(text, "miss", where="/sandbox/")
    expect(text, "hit", where="/same/")     # the same file, all else the same
    expect(text, "miss", where="/copy/")
    expect(text, "miss", 401, where="/issuer/")
    expect(text, "miss", where="/leeway/")
    expect(text, "miss", 403, where="/permission/")
    expect(text, "miss", where="/reader/")
    expect(text, "miss", 403, where="/claim/")
    expect(text, "miss", 401, where="/tenant/")
    expect(text, "miss", 401, where="/conversation/")
    expect(text, "hit", where="/algorithms/")   # what follows from the key
    expect(text, "hit", where="/a/")


@test("auth/cache-permissions")
def permissions():
    text = token(sub="reader", permissions=["sandbox:read"])
    for cache in ("miss", "hit"):
        expect(text, cache, 403, "/reader/", "v1/limits")
        expect(text, "hit", 200, "/reader/", "v1/conversations/c")
    for cache in ("miss", "hit"):
        expect(text, cache, 403, "/sandbox/", "v1/conversations/c")


@test("auth/cache-conversation")
def conversation():
    text = token(sub="one", chat="mine")
    where = "/conversation/"
    expect(text, "miss", 200, where, "v1/conversations/mine")
    for path in ("yours", "Mine", "min", "mine2", "mine.", "m"):
        r = expect(text, "hit", 404, where, "v1/conversations/" + path)
        same(r.json["code"], "not_found")
    expect(text, "hit", 200, where, "v1/conversations/mine")
    expect(text, "hit", 200, where, "v1/limits")


@test("auth/cache-key-change")
def keys():
    text = token(sub="keys")
    expect(text, "miss")
    expect(text, "hit")
    g.reload()                              # nothing has changed
    expect(text, "hit")
    try:
        g.write("jwt.key", b"another secret, and of more than 32 bytes")
        g.reload()
        for _ in range(4):
            expect(text, "miss", 401)
        expect(text, "miss", where="/copy/")
    finally:
        g.write("jwt.key", SECRET)
        g.reload()
    expect(text, "hit")


def zone():
    """The zone's bytes, from a worker: one of before a reload may leave."""
    wait_for(lambda: len(g.workers()) == 2, what="the end of old workers")
    pid = g.workers()[0]
    found = b""
    with open("/proc/%d/maps" % pid) as maps, \
            open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for line in maps:
            if "/dev/zero" in line and " rw-s " in line:
                low, high = (int(x, 16) for x in line.split()[0].split("-"))
                mem.seek(low)
                found += mem.read(high - low)
    check(len(found) >= 1024 * 1024, "no zone found", len(found))
    return found


@test("auth/cache-holds-no-token")
def memory():
    for seconds in (5, 40, 200):
        soon = time.time() + seconds
        text = token(sub="name-to-be-found", exp=soon)
        r = ask(text)
        if time.time() < soon - 2:
            break
    same((r.status, r.headers["X-Cache"]), (200, "miss"))
    data = zone()
    check(b"name-to-be-found" in data, "the name is not in the zone")
    for part in text.split("."):
        for piece in (part[:24], part[-24:]):
            check(piece.encode() not in data, "a part of a token", piece)
    time.sleep(max(0, soon + 1 - time.time()))
    expect(text, "miss", 401)
    check(b"name-to-be-found" not in zone(), "the name is left")


@test("auth/cache-full", seconds=240)
def full():
    g.reload(http="sandbox_zone small:128k;")
    try:
        # names of several sizes: places of several sizes
        lengths = (1, 60, 250, 120)
        c = g.connect()
        texts = [token(sub="%04d" % n + "x" * lengths[n % 4], org="y" * 200,
                       iss="z" * (n % 3) * 300) for n in range(600)]
        for text in texts:
            r = g.request("GET", "v1/limits", token=text, connection=c)
            same(r.status, 200, "a token when the zone is full")
            same(r.headers["X-Cache"], "miss")
        now = counters()
        check(now["bytes"] <= 64 * 1024, "more than half of the zone", now)
        check(now["bytes"] > 32 * 1024, "the zone is hardly used", now)
        check(now["evictions"] > 0, "nothing was evicted", now)
        check(0 < now["entries"] < 600, "entries", now)
        expect(texts[-1], "hit")            # what was used last has stayed
        expect(texts[0], "miss")
        c.close()
    finally:
        g.reload(http="")


@test("auth/cache-no-room", seconds=240)
def no_room():
    """Places of one size, one of them in use on each page: larger names find
    no page that is free, and tokens are good all the same."""
    g.reload(http="sandbox_zone small:128k;")
    try:
        c = g.connect()

        def ask(text):
            r = g.request("GET", "v1/limits", token=text, connection=c)
            same(r.status, 200, "a token when there is no room")
            return r.headers["X-Cache"]

        small = [token(sub="s%03d" % n) for n in range(256)]
        for text in small:
            ask(text)
        for text in small[::16]:
            ask(text)
        for n in range(60):
            ask(token(sub="%03d" % n + "x" * 200, iss="y" * 300))
        now = counters()
        check(now["refused"] > 0, "there was room", now)
        check(now["bytes"] <= 64 * 1024, "more than half of the zone", now)
        # what is evicted meanwhile makes room again
        for n in range(400):
            last = token(sub="%03d" % n + "z" * 200, iss="y" * 300)
            ask(last)
            if ask(last) == "hit":
                break
        same(ask(last), "hit", "a token when there is room again")
        c.close()
    finally:
        g.reload(http="")


@test("auth/cache-lru")
def lru():
    g.reload(http="sandbox_zone small:128k;")
    try:
        c = g.connect()
        keep = token(sub="kept")
        for n in range(600):
            g.request("GET", "v1/limits", token=token(sub="user %d" % n),
                      connection=c)
            if n % 20 == 0:
                g.request("GET", "v1/limits", token=keep, connection=c)
        check(counters()["evictions"] > 0, "nothing was evicted")
        expect(keep, "hit")                 # it was used all the time
        c.close()
    finally:
        g.reload(http="")


@test("auth/cache-worker-killed")
def killed():
    g.expected.append("exited on signal 9")
    text = token(sub="killed")
    expect(text, "miss")
    for _ in range(5):
        wait_for(lambda: len(g.workers()) == 2, 20, "two workers, no old ones")
        old = g.workers()
        os.kill(old[0], signal.SIGKILL)
        wait_for(lambda: len(set(g.workers()) - {old[0]}) == 2, 20,
                 "another worker")
        wait_for(lambda: still(text), 20, "an answer")
    expect(text, "hit")


def still(text):
    try:
        return ask(text, timeout=60).status == 200
    except OSError:
        return False


@test("auth/cache-random-tokens")
def many():
    # many connections, both workers: the tree stays whole
    texts = [token(sub="u%d" % n) for n in range(50)]
    for n in range(500):
        r = ask(texts[n * 7 % 50])
        same(r.status, 200)
        same(r.headers["X-User"], "u%d" % (n * 7 % 50), "another's name")


main(start, stop)
