"""Keys and tokens for tests, of every algorithm; the openssl program signs.

    key = Key("ES256")                  # made anew, gone with the process
    key.public                          # PEM, as sandbox_jwt_key_file wants it
    key.token(sub="bob")                # good unless a claim says otherwise
    key.sign({"alg": "HS256"}, body)    # any header and payload, bytes too
    jwks(key, other)                    # text of a key set
"""

import atexit
import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import tempfile
import time

CURVES = {"ES256": ("P-256", 32), "ES384": ("P-384", 48),
          "ES512": ("P-521", 66)}
DIR = None


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def number(value, size=None):
    """A big number as JWK has it."""
    return base64url(value.to_bytes(size or (value.bit_length() + 7) // 8,
                                    "big"))


def openssl(*args, data=None):
    p = subprocess.run(("openssl",) + args, input=data,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.returncode:
        raise AssertionError("openssl %s: %s" % (" ".join(args),
                                                 p.stderr.decode()[-500:]))
    return p.stdout


def folder():
    global DIR
    if DIR is None:
        DIR = tempfile.mkdtemp(prefix="sandbox-keys.", dir="/tmp")
        owner = os.getpid()
        atexit.register(lambda: os.getpid() == owner
                        and shutil.rmtree(DIR, ignore_errors=True))
    return DIR


def claims(**more):
    """Good ones; a claim given as None is left out."""
    body = {"sub": "alice", "exp": int(time.time()) + 3600,
            "permissions": ["sandbox:execute"]}
    body.update(more)
    return {k: v for k, v in body.items() if v is not None}


def compact(value):
    """Header or payload as the bytes of a part."""
    if isinstance(value, (dict, list)):
        value = json.dumps(value)
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    return base64url(value)


class Key:
    count = 0

    def __init__(self, algorithm, kid=None, secret=None, bits=2048):
        Key.count += 1
        self.algorithm = algorithm
        self.kid = kid
        self.hash = "sha" + algorithm[2:]
        self.secret = secret
        if algorithm.startswith("HS"):
            self.secret = secret or os.urandom(64)
            return
        self.path = "%s/%d.pem" % (folder(), Key.count)
        if algorithm == "EdDSA":
            how = ("ED25519",)
        elif algorithm in CURVES:
            how = ("EC", "-pkeyopt",
                   "ec_paramgen_curve:" + CURVES[algorithm][0])
        else:
            how = ("RSA", "-pkeyopt", "rsa_keygen_bits:%d" % bits)
        openssl("genpkey", "-algorithm", *how, "-out", self.path)

    @property
    def public(self):
        return openssl("pkey", "-in", self.path, "-pubout").decode()

    @property
    def private(self):
        with open(self.path) as f:
            return f.read()

    # signatures

    def signature(self, text, algorithm=None):
        """Of these bytes, in the form a token has; by another algorithm of
        the same kind of key where one is named."""
        algorithm = algorithm or self.algorithm
        digest = "sha" + algorithm[2:]
        if algorithm.startswith("HS"):
            return hmac.new(self.secret, text,
                            getattr(hashlib, digest)).digest()
        if algorithm == "EdDSA":
            path = "%s/to-sign.%d" % (folder(), os.getpid())
            with open(path, "wb") as f:
                f.write(text)
            return openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.path,
                           "-in", path)
        args = ["dgst", "-" + digest, "-sign", self.path]
        if algorithm.startswith("PS"):
            args += ["-sigopt", "rsa_padding_mode:pss", "-sigopt",
                     "rsa_pss_saltlen:-1"]
        out = openssl(*args, data=text)
        if algorithm in CURVES:
            out = raw_ecdsa(out, CURVES[self.algorithm][1])
        return out

    def sign(self, header, payload, algorithm=None):
        text = compact(header) + "." + compact(payload)
        return text + "." + base64url(self.signature(text.encode(),
                                                     algorithm))

    def header(self, **more):
        out = {"alg": self.algorithm, "typ": "JWT"}
        if self.kid is not None:
            out["kid"] = self.kid
        out.update(more)
        return {k: v for k, v in out.items() if v is not None}

    def token(self, header=None, **more):
        return self.sign(header or self.header(), claims(**more))

    # as a member of a key set

    def jwk(self, **more):
        if self.algorithm.startswith("HS"):
            out = {"kty": "oct", "k": base64url(self.secret),
                   "alg": self.algorithm}
        elif self.algorithm == "EdDSA":
            der = openssl("pkey", "-in", self.path, "-pubout", "-outform",
                          "DER")
            out = {"kty": "OKP", "crv": "Ed25519", "x": base64url(der[-32:])}
        elif self.algorithm in CURVES:
            curve, size = CURVES[self.algorithm]
            der = openssl("pkey", "-in", self.path, "-pubout", "-outform",
                          "DER")
            out = {"kty": "EC", "crv": curve,
                   "x": base64url(der[-2 * size:-size]),
                   "y": base64url(der[-size:])}
        else:
            text = openssl("rsa", "-in", self.path, "-noout", "-modulus")
            out = {"kty": "RSA", "e": "AQAB", "n": number(
                int(text.decode().strip().partition("=")[2], 16))}
        if self.kid is not None:
            out["kid"] = self.kid
        out.update(more)
        return {k: v for k, v in out.items() if v is not None}


def raw_ecdsa(der, size):
    """The two numbers of a DER signature, each of the size of the curve."""
    at = 2 if der[1] < 0x80 else 2 + (der[1] & 0x7f)
    out = b""
    for _ in range(2):
        length = der[at + 1]
        out += int.from_bytes(der[at + 2:at + 2 + length],
                              "big").to_bytes(size, "big")
        at += 2 + length
    return out


def jwks(*keys):
    return json.dumps({"keys": [k.jwk() if isinstance(k, Key) else k
                                for k in keys]})
