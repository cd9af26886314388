#!/usr/bin/env python3
"""Keys of every kind from files, and signatures in every way they can be
wrong for them: algorithms, curves, lengths, key ids; group auth."""

import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import NGINX, SLOW, Gateway                     # noqa: E402
from jose import Key, base64url, claims, compact, from_base64url, \
    jwks, openssl                                            # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
keys = {}
supported = []
HS = ("HS256", "HS384", "HS512")
RS = ("RS256", "RS384", "RS512")
PS = ("PS256", "PS384", "PS512")
ES = ("ES256", "ES384", "ES512")
SIZES = {"ES256": 64, "ES384": 96, "ES512": 132, "EdDSA": 64}


def location(name, *lines):
    return "location /%s/ { sandbox on; sandbox_realm one; %s }\n" \
        % (name, " ".join(line + ";" for line in lines))


def try_configuration(server):
    """nginx -t with that in the server: what it says, or nothing."""
    g.configure(server=server)
    p = subprocess.run([NGINX, "-t", "-q", "-c", g.path("nginx.conf"),
                        "-e", "stderr"], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
    return p.stdout.decode() if p.returncode else ""


def known(algorithm, directive):
    """Whether the libjwt of this machine has it; if not, nginx says so."""
    said = try_configuration(location("probe", directive,
                                      "sandbox_jwt_algorithms " + algorithm))
    check(not said or "libjwt" in said, "no reason given:", said)
    return not said


def start():
    global g
    g = Gateway(runner="mock", workers=1,
                http="large_client_header_buffers 4 64k;")
    keys["HS"] = Key("HS512", kid="hs", secret=os.urandom(64))
    keys["RS"] = Key("RS256", kid="rs")
    for name in ES:
        keys[name] = Key(name, kid=name.lower())
    keys["EdDSA"] = Key("EdDSA", kid="ed")
    keys["other RS"] = Key("RS256", kid="rs2")
    keys["other ES256"] = Key("ES256", kid="es2")

    files = {}
    for name, key in keys.items():
        if name == "HS":
            files[name] = g.write("hs.key", key.secret)
        else:
            files[name] = g.write(name.replace(" ", "-") + ".pem",
                                  key.public, 0o644)
    pem = {name: "sandbox_jwt_key_file " + path
           for name, path in files.items()}

    supported.extend(HS + RS + ES)
    for name in PS:
        if known(name, pem["RS"]):
            supported.append(name)
    if known("EdDSA", pem["EdDSA"]):
        supported.append("EdDSA")
    print("# this libjwt has " + " ".join(supported))

    hex_file = g.write("hex.key", keys["HS"].secret.hex() + "\n")
    b64_file = g.write("b64.key", base64url(keys["HS"].secret) + "\n")
    short = g.write("short.key", keys["HS"].secret[:32])

    # two dozen keys that are never used, and one of each kind that is
    filler = [Key("ES256", kid="filler%d" % n).jwk() for n in range(3)]
    filler = [dict(filler[n % 3], kid="filler%d" % n) for n in range(24)]
    real = [k for n, k in keys.items() if "other" not in n]
    g.write("set.json", jwks(*(filler[:12] + real + filler[12:])))
    no_kid = keys["RS"].jwk(kid=None)
    g.write("one.json", jwks(no_kid))
    g.write("alg.json", jwks(keys["RS"].jwk(alg="RS384"),
                             keys["other RS"].jwk(use="enc"),
                             keys["ES256"].jwk(key_ops=["verify"])))
    g.write("full.json", jwks(*[dict(filler[0], kid="f%d" % n)
                                for n in range(63)] + [keys["RS"]]))

    all_keys = [pem[n] for n in ("RS",) + ES] \
        + ["sandbox_jwt_secret_file " + files["HS"]]
    if "EdDSA" in supported:
        all_keys.append(pem["EdDSA"])
    g.options["server"] = "".join((
        location("hs", "sandbox_jwt_secret_file " + files["HS"]),
        location("hex", "sandbox_jwt_secret_file %s format=hex" % hex_file),
        location("b64", "sandbox_jwt_secret_file %s format=base64url"
                 % b64_file),
        location("short", "sandbox_jwt_secret_file " + short),
        location("rs", pem["RS"]),
        location("es256", pem["ES256"]),
        location("es384", pem["ES384"]),
        location("es512", pem["ES512"]),
        location("ed", pem["EdDSA"]) if "EdDSA" in supported else "",
        location("all", *all_keys),
        location("set", "sandbox_jwks_file %s/set.json" % g.dir),
        location("one", "sandbox_jwks_file %s/one.json" % g.dir),
        location("alg", "sandbox_jwks_file %s/alg.json" % g.dir),
        location("full", "sandbox_jwks_file %s/full.json" % g.dir),
        location("narrow", pem["RS"], pem["ES256"],
                 "sandbox_jwt_algorithms RS256"),
        location("pinned", pem["RS"] + " kid=one",
                 pem["other RS"] + " kid=two"),
        location("mixed", pem["RS"] + " kid=one", pem["other RS"]),
        location("two", pem["RS"], pem["other RS"]),
    ))
    g.start()


def stop():
    g.stop()


WHERE = {"HS": ("hs", "hex", "b64"), "RS": ("rs",), "ES256": ("es256",),
         "ES384": ("es384",), "ES512": ("es512",), "EdDSA": ("ed",)}


def own(algorithm):
    """The key of that algorithm, and the locations that have it alone."""
    name = {"H": "HS", "R": "RS", "P": "RS"}.get(algorithm[0], algorithm)
    return keys[name], WHERE[name]


def locations():
    return [w for n, ws in WHERE.items() for w in ws
            if n != "EdDSA" or "EdDSA" in supported] + ["all", "set"]


def expect(where, text, status, what=""):
    r = g.request("GET", "/%s/v1/limits" % where, token=text)
    same(r.status, status, "%s in %s" % (what, where))
    if status == 401:
        same(r.json["code"], "invalid_token", what)
    return r


def signed(algorithm, key=None, header=None, **more):
    key = key or own(algorithm)[0]
    return key.sign(dict({"alg": algorithm}, **(header or {})),
                    claims(**more), algorithm)


@test("auth/algorithms")
def algorithms():
    """Each is good with its key, and with no other."""
    for algorithm in supported:
        key, places = own(algorithm)
        text = signed(algorithm)
        for where in locations():
            expect(where, text, 200 if where in places or where == "all"
                   else 401, algorithm)
        text = signed(algorithm, header={"kid": key.kid, "typ": "JWT"})
        # a secret in a set is for the one algorithm that it names
        expect("set", text, 401 if algorithm in HS[:2] else 200,
               algorithm + " by kid")


@test("auth/algorithms-not-here")
def not_here():
    """What this libjwt lacks is refused in the configuration and here."""
    for algorithm in PS + ("EdDSA",):
        if algorithm in supported:
            continue
        for where in locations():
            expect(where, signed(algorithm), 401, algorithm)
    said = try_configuration(location("x", "sandbox_jwt_key_file %s/RS.pem"
                                      % g.dir, "sandbox_jwt_algorithms none"))
    check("none" in said, "none was taken:", said)


@test("auth/secret-sizes")
def secret_sizes():
    """32 bytes are enough for HS256 only."""
    short = Key("HS256", secret=keys["HS"].secret[:32])
    for algorithm, status in zip(HS, (200, 401, 401)):
        expect("short", signed(algorithm, short), status, algorithm)


@test("auth/curve-mismatch")
def curve_mismatch():
    places = ("es256", "es384", "es512", "all", "set")
    for algorithm in ES:
        for other in ES:
            if algorithm == other:
                continue
            for kid in (None, keys[other].kid, keys[algorithm].kid):
                header = {"alg": algorithm, "kid": kid} if kid \
                    else {"alg": algorithm}
                text = compact(header) + "." + compact(claims())
                signature = keys[other].signature(text.encode(), algorithm)
                size = SIZES[algorithm] // 2
                half = len(signature) // 2
                for data in (signature,
                             signature[:half][-size:].rjust(size, b"\0")
                             + signature[half:][-size:].rjust(size, b"\0")):
                    for where in places:
                        expect(where, text + "." + base64url(data), 401,
                               "%s by a %s key" % (algorithm, other))


@test("auth/sig-length")
def signature_length():
    for algorithm in supported:
        key, places = own(algorithm)
        text = compact({"alg": algorithm}) + "." + compact(claims())
        good = key.signature(text.encode(), algorithm)
        for size in (0, 1, len(good) - 1, len(good) + 1, 2 * len(good), 63,
                     65, 128, 21000):
            if size == len(good):
                continue
            data = (good + b"\0" * size)[:size]
            log = g.error_log
            expect(places[0], text + "." + base64url(data), 401,
                   "%s, %d bytes" % (algorithm, size))
            lines = [line for line in g.error_log[len(log):].splitlines()
                     if "sandbox token" in line]
            check(len(lines) <= 1, "lines of log:", lines)
    same(len(g.workers()), 1, "workers")


@test("auth/signature-changed")
def signature_changed():
    """One bit, anywhere, of each algorithm; also of what it is over."""
    for algorithm in supported:
        key, places = own(algorithm)
        text = signed(algorithm)
        head, _, end = text.rpartition(".")
        good = from_base64url(end)
        for at in (0, 1, len(good) // 2, len(good) - 1):
            data = bytearray(good)
            data[at] ^= 0x10
            expect(places[0], head + "." + base64url(bytes(data)), 401,
                   "%s, byte %d" % (algorithm, at))
        for data in (b"\0" * len(good), b"\xff" * len(good),
                     good[len(good) // 2:] + good[:len(good) // 2]):
            if data != good:
                expect(places[0], head + "." + base64url(data), 401,
                       algorithm)
        other = signed(algorithm, sub="mallory").split(".")
        a, b, c = text.split(".")
        expect(places[0], ".".join((a, other[1], c)), 401, algorithm)
        expect(places[0], ".".join((compact({"alg": algorithm, "x": 1}),
                                    b, c)), 401, algorithm)
        expect(places[0], text, 200, algorithm)


@test("auth/es-der")
def es_der():
    """A signature as OpenSSL writes it is not one of JWS."""
    for algorithm in ES:
        text = compact({"alg": algorithm}) + "." + compact(claims())
        der = openssl("dgst", "-sha" + algorithm[2:], "-sign",
                      keys[algorithm].path, data=text.encode())
        expect(algorithm.lower(), text + "." + base64url(der), 401,
               algorithm)


@test("auth/alg-none")
def alg_none():
    for name in ("none", "None", "NONE", "nOnE"):
        for end in ("", "AAAA", base64url(b"x" * 64)):
            for kid in (None, "rs", "hs"):
                header = {"alg": name, "kid": kid} if kid else {"alg": name}
                text = compact(header) + "." + compact(claims()) + "." + end
                for where in locations() + ["one", "alg", "narrow"]:
                    expect(where, text, 401, name)


@test("auth/hs-with-public-key")
def hs_with_public_key():
    """HMAC by whatever form of a public key an attacker can have."""
    for name in ("RS",) + ES + ("EdDSA",):
        pem = keys[name].public.encode()
        der = openssl("pkey", "-in", keys[name].path, "-pubout", "-outform",
                      "DER")
        with open(g.path("set.json"), "rb") as f:
            whole = f.read()
        for secret in (pem, pem.rstrip(b"\n"), pem.replace(b"\n", b"\r\n"),
                       pem.strip().replace(b"\n", b""), der, whole,
                       json.dumps(keys[name].jwk()).encode(), b"\0"):
            for algorithm in HS:
                fake = Key(algorithm, secret=secret)
                for header in ({}, {"kid": keys[name].kid}):
                    text = signed(algorithm, fake, header)
                    for where in ("rs", name.lower(), "all", "set"):
                        if "/%s/" % where in g.read("nginx.conf"):
                            expect(where, text, 401, "HMAC by " + name)


@test("auth/hs-empty-key")
def hs_empty_key():
    """A key of a set that has no alg does not verify HMAC of nothing."""
    empty = Key("HS256", secret=b"x")
    empty.secret = b""
    for algorithm in HS:
        for where in ("one", "set", "alg", "all", "rs"):
            for header in ({}, {"kid": "rs"}, {"kid": ""}):
                expect(where, signed(algorithm, empty, header), 401,
                       algorithm)


@test("auth/key-of-the-token")
def key_of_the_token():
    """jwk, jku, x5c, x5u in a header are nobody's keys."""
    mallory = keys["other RS"]
    for header in ({"jwk": mallory.jwk()},
                   {"jku": "http://127.0.0.1:%d/jwks" % g.port},
                   {"x5u": "http://127.0.0.1:%d/x" % g.port},
                   {"x5c": ["MIIB"]}, {"x5t": "AAAA"}):
        for where in ("rs", "set", "all", "one"):
            expect(where, mallory.sign(dict(header, alg="RS256"), claims()),
                   401, str(header)[:40])
            if where == "rs":
                expect(where, keys["RS"].sign(dict(header, alg="RS256"),
                                              claims()), 200,
                       "beside a good signature")
    check("/jwks" not in g.read("logs/access.log"), "it was fetched")


@test("auth/kid")
def kid():
    one, two = keys["RS"], keys["other RS"]
    for where, key, name, status in (
            ("pinned", one, "one", 200), ("pinned", two, "two", 200),
            # the key of that name, and no other
            ("pinned", one, "two", 401), ("pinned", two, "one", 401),
            ("pinned", one, "three", 401), ("pinned", one, None, 401),
            ("pinned", one, "ONE", 401), ("pinned", one, "one ", 401),
            ("pinned", one, "on", 401), ("pinned", one, "", 401),
            # a key without a name is for tokens that name no known key
            ("mixed", one, "one", 200), ("mixed", two, "one", 401),
            ("mixed", two, "three", 200), ("mixed", two, None, 200),
            ("mixed", one, None, 401), ("mixed", one, "three", 401),
            ("two", one, None, 200), ("two", two, None, 200),
            ("two", one, "x", 200), ("two", two, "x", 200),
            ("one", one, None, 200), ("one", one, "x", 200),
            ("one", two, None, 401),
            ("set", one, None, 401), ("set", one, "rs", 200),
            ("set", one, "rs2", 401), ("set", one, "es256", 401)):
        header = {"alg": "RS256"}
        if name is not None:
            header["kid"] = name
        expect(where, key.sign(header, claims()), status,
               "kid %r" % name)
    for name in (5, [], {}, None, True, "a\0b", "x" * 256):
        text = one.sign({"alg": "RS256", "kid": name}, claims())
        for where in ("pinned", "set"):
            expect(where, text, 401, "kid %r" % (name,))


@test("auth/key-set-members")
def key_set_members():
    """alg pins, use and key_ops decide whether a key is for signatures."""
    for algorithm in RS:
        expect("alg", signed(algorithm, header={"kid": "rs"}),
               200 if algorithm == "RS384" else 401, algorithm)
    expect("alg", keys["other RS"].sign({"alg": "RS256", "kid": "rs2"},
                                        claims()), 401, "use: enc")
    expect("alg", signed("ES256", header={"kid": "es256"}), 200, "verify")


@test("auth/key-set-large")
def key_set_large():
    """64 keys, the last one is found; 65 are a configuration error."""
    size = os.path.getsize(g.path("full.json"))
    check(size > 8192, "a small set: %d bytes" % size)
    expect("full", signed("RS256", header={"kid": "rs"}), 200)
    with open(g.path("full.json")) as f:
        more = json.load(f)
    more["keys"].insert(0, dict(more["keys"][0], kid="one-more"))
    g.write("more.json", json.dumps(more))
    old = g.options["server"]
    said = try_configuration(location("more", "sandbox_jwks_file %s/more.json"
                                      % g.dir))
    g.configure(server=old)
    check("64" in said, "65 keys:", said)


@test("auth/algorithms-configured")
def narrow():
    expect("narrow", signed("RS256"), 200)
    for algorithm in ("RS384", "RS512", "ES256"):
        expect("narrow", signed(algorithm), 401, algorithm)


@test("auth/wrong-key")
def wrong_key():
    for algorithm, name in (("RS256", "other RS"), ("ES256", "other ES256")):
        for kid in (None, own(algorithm)[0].kid, keys[name].kid):
            header = {"kid": kid} if kid else {}
            for where in ("rs", "es256", "set", "all", "one"):
                expect(where, signed(algorithm, keys[name], header), 401,
                       name)
    for algorithm in HS:
        text = signed(algorithm, Key(algorithm, secret=os.urandom(64)))
        for where in ("hs", "hex", "b64", "all"):
            expect(where, text, 401, algorithm)
    # the digits themselves are not the secret
    for name, where in (("hex.key", "hex"), ("b64.key", "b64")):
        with open(g.path(name), "rb") as f:
            data = f.read()
        for secret in (data, data.strip()):
            expect(where, signed("HS256", Key("HS256", secret=secret)), 401,
                   name)


@test("auth/bad-then-good-all-algorithms")
def bad_then_good():
    """In one worker, by one connection: no error of one stays for another."""
    c = g.connect()
    texts = {a: signed(a) for a in supported}
    for n in range(20):
        for algorithm in supported:
            where = own(algorithm)[1][0]
            good = texts[algorithm]
            bad = (compact({"alg": "none"}) + "." + compact(claims()) + ".",
                   good[:-6] + "AAAAAA", "a.b.c",
                   texts[supported[(supported.index(algorithm) + 5)
                                   % len(supported)]])[n % 4]
            path = "/%s/v1/limits" % where
            got = g.request("GET", path, token=bad, connection=c).status
            # HMAC of another size is good there, too
            check(got == 401 or n % 4 == 3 and got == 200
                  and where == own(supported[(supported.index(algorithm) + 5)
                                             % len(supported)])[1][0],
                  "%s after %s: %d" % (where, algorithm, got))
            same(g.request("GET", path, token=good, connection=c).status,
                 200, algorithm)
    c.close()


def anonymous_memory(pid):
    """kB of a process that are its own."""
    with open("/proc/%d/smaps_rollup" % pid) as f:
        found = dict(line.split()[:2] for line in f if ":" in line
                     and line.startswith(("Pss", "Anonymous")))
    return int(found.get("Pss_Anon:") or found["Anonymous:"])


@test("auth/no-leak-per-request", seconds=900)
def no_leak():
    """Thousands of tokens that nobody saw before, good ones and bad ones of
    each kind, and the worker is no larger."""
    worker = g.workers()[0]
    c = g.connect()
    texts = [(own(a)[1][0], signed(a)) for a in supported if a not in HS]
    bad = [(where, text[:-6] + "AAAAAA") for where, text in texts] \
        + [("all", "a.b.c"), ("set", compact({"alg": "none"}) + ".e30."),
           ("pinned", keys["RS"].sign({"alg": "RS256", "kid": "x"},
                                      claims()))]

    def some(count):
        for n in range(count):
            for where, text in bad:
                same(g.request("GET", "/%s/v1/limits" % where, token=text,
                               connection=c).status, 401)
            # HMAC is quick to make: a new token each time
            for where, status in (("hs", 200), ("rs", 401)):
                text = signed("HS256", None, None, jti=os.urandom(8).hex())
                same(g.request("GET", "/%s/v1/limits" % where, token=text,
                               connection=c).status, status)

    if SLOW > 1:
        return some(5)
    some(300)                   # the cache of the zone is full by now
    first = anonymous_memory(worker)
    some(300)
    grown = anonymous_memory(worker) - first
    c.close()
    print("# the worker grew by %d kB" % grown)
    check(os.environ.get("SANDBOX_TEST_NGINX") or grown < 512,
          "the worker grew by %d kB" % grown)


@test("auth/expired-in-every-algorithm")
def expired():
    for algorithm in supported:
        expect(own(algorithm)[1][0],
               signed(algorithm, exp=int(time.time()) - 60), 401, algorithm)


@test("auth/token-size")
def token_size():
    """Whole tokens of up to 16 KiB where nginx lets them in."""
    for size, status in ((1000, 200), (4000, 200), (8000, 200),
                         (15500, 200), (17000, 401), (40000, 401)):
        text = keys["RS"].sign({"alg": "RS256"},
                               claims(filler="x" * (size * 3 // 4 - 500)))
        expect("rs", text, status, "%d bytes" % len(text))
        # never a compare of a part
        expect("rs", text[:-4] + "AAAA", 401, "%d bytes" % len(text))


main(start, stop)
