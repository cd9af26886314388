#!/usr/bin/env python3
"""sandboxctl token: what it prints is signed as it says, and a key the
gateway would not take is refused with a sentence.

    t/unit/run t/unit/ctl_token.py
"""

import json
import os
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.abspath(__file__)) + "/../.."
sys.path.insert(0, TOP + "/t/lib")

import jose                                                    # noqa: E402
from tap import check, main, same, test                        # noqa: E402

CTL = os.path.abspath(os.environ.get("BUILD") or TOP + "/build") \
    + "/sandboxctl"


def file(name, data):
    path = os.path.join(jose.folder(), name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def mint(key, *options):
    return subprocess.run((CTL, "token", "--key", key, "--sub", "alice")
                          + options, capture_output=True, timeout=250,
                          stdin=subprocess.DEVNULL)


def parts(text):
    """Header, claims, what is signed, signature."""
    header, claims, signature = text.split(".")
    return (json.loads(jose.from_base64url(header)),
            json.loads(jose.from_base64url(claims)),
            (header + "." + claims).encode(),
            jose.from_base64url(signature))


def der(signature):
    """Two numbers as ASN.1 has them, for openssl."""
    out = b""
    for half in (signature[:len(signature) // 2],
                 signature[len(signature) // 2:]):
        value = int.from_bytes(half, "big")
        number = value.to_bytes(value.bit_length() // 8 + 1, "big")
        out += bytes([2, len(number)]) + number
    return bytes([0x30] + ([0x81] if len(out) > 127 else [])
                 + [len(out)]) + out


def verified(algorithm, key, signed, signature):
    if algorithm.startswith("HS"):
        return key.signature(signed, algorithm) == signature
    if algorithm.startswith("ES"):
        same(len(signature), 2 * jose.CURVES[algorithm][1], "signature")
        signature = der(signature)
    out = jose.openssl("dgst", "-sha" + algorithm[2:], "-verify",
                       file("public.pem", key.public.encode()), "-signature",
                       file("signature", signature), data=signed)
    return out == b"Verified OK\n"


@test("ctl/token-algorithms")
def algorithms():
    secret = jose.Key("HS512")
    rsa = jose.Key("RS256")
    for bits in ("256", "384", "512"):
        for kind, key in (("HS", secret), ("RS", rsa),
                          ("ES", jose.Key("ES" + bits))):
            name = kind + bits
            path = file("secret", secret.secret) if kind == "HS" else key.path
            r = mint(path, "--algorithm", name)
            same(r.returncode, 0, name + r.stderr.decode())
            header, claims, signed, signature = parts(r.stdout.decode()
                                                      .rstrip("\n"))
            same(header, {"alg": name, "typ": "JWT"}, name)
            same(claims["permissions"], ["sandbox:execute"], name)
            check(verified(name, key, signed, signature), name)


@test("ctl/token-claims")
def claims():
    key = jose.Key("HS256", secret=b"s" * 32)
    now = int(time.time())
    r = mint(file("secret", key.secret), "--tenant", "acme", "--issuer", "me",
             "--audience", "you", "--ttl", "5m", "--permission", "a",
             "--permission", "b")
    header, body, signed, signature = parts(r.stdout.decode().rstrip("\n"))
    same(header["alg"], "HS256")
    check(verified("HS256", key, signed, signature), "HS256")
    iat = body.pop("iat")
    check(now <= iat <= time.time(), "iat", iat, now)
    same(body, {"sub": "alice", "tenant": "acme", "iss": "me", "aud": "you",
                "permissions": ["a", "b"], "exp": iat + 300})


@test("ctl/token-more-claims")
def more():
    key = file("secret", b"s" * 32)
    r = mint(key, "--claim", "org=acme", "--claim=conversation=first",
             "--claim", "https://example.com/tenant=a=b", "--claim", "x.y=",
             "--claim", "n=1")
    same((r.returncode, r.stderr), (0, b""))
    body = parts(r.stdout.decode().rstrip("\n"))[1]
    for name in ("sub", "iat", "exp", "permissions"):
        del body[name]
    same(body, {"org": "acme", "conversation": "first", "n": "1",
                "https://example.com/tenant": "a=b", "x.y": ""})

    for name in ("sub", "iss", "aud", "tenant", "permissions", "iat", "exp",
                 "nbf"):
        r = mint(key, "--claim", name + "=x")
        same((r.returncode, r.stdout), (2, b""), name)
        check(name.encode() in r.stderr, name, r.stderr)
    for words, word in ((("--claim", "org"), b"NAME=VALUE"),
                        (("--claim", "=x"), b"NAME=VALUE"),
                        (("--claim", b"org=\xff"), b"UTF-8"),
                        (("--claim", b"\xff=org"), b"UTF-8"),
                        (("--claim", "a=1", "--claim", "a=2"), b"twice")):
        r = mint(key, *words)
        same((r.returncode, r.stdout), (2, b""), repr(words))
        check(word in r.stderr, repr(words), r.stderr)


@test("ctl/token-refused")
def refused():
    secret = file("secret", b"s" * 32)
    curve = jose.Key("ES384")
    short = jose.Key("RS256", bits=1024)
    for path, name, word in (
            (secret, "HS384", b"HS384 needs a longer secret"),
            (file("few", b"s" * 31), "HS256", b"at least 32"),
            (file("pem", curve.public.encode()), "HS256", b"PEM"),
            (secret, "RS256", b"no private key"),
            (file("pem", curve.public.encode()), "ES384", b"no private key"),
            (curve.path, "ES256", b"ES256 needs a key of another type"),
            (curve.path, "RS256", b"RS256 needs a key of another type"),
            (short.path, "RS256", b"1024 bits"),
            (secret, "none", b"--algorithm \"none\""),
            (secret, "hs256", b"--algorithm \"hs256\""),
            (secret, "PS256", b"--algorithm \"PS256\"")):
        r = mint(path, "--algorithm", name)
        check(r.returncode != 0 and word in r.stderr, name, r.stderr)
        same(r.stdout, b"", name)


if __name__ == "__main__":
    main()
