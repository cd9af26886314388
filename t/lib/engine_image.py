"""Images as an engine takes them from a registry: asked for by digest, each
byte checked, unpacked once.

What a layer is unpacked to is kept by the layer's digest, whichever image it
is of, and is not fetched again: in `cache` when it
is large, since a base is the same for many engines, else in the engine's own
place.
"""

import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LARGE = 32 << 20
MOST = 4 << 30
ADDRESS = re.compile(r"((?:127\.[0-9.]+|localhost):\d+)/([a-z0-9][a-z0-9/._-]*)"
                     r"@(sha256:[0-9a-f]{64})")


class Failed(Exception):
    pass


class Absent(Failed):
    pass


class Registry:
    """A connection for one image."""

    def __init__(self, host, name):
        self.host = host
        self.name = name
        self.conn = http.client.HTTPConnection(host, timeout=60)
        self.used = False

    def ask(self, method, kind, digest, accept):
        """The open answer."""
        path = "/v2/%s/%s/%s" % (self.name, kind, digest)
        try:
            try:
                answer = self.ask_once(method, path, accept)
            except (ConnectionError, http.client.RemoteDisconnected):
                # an idle connection may be closed at any time, as by a reload
                if not self.used:
                    raise
                self.conn.close()
                answer = self.ask_once(method, path, accept)
            self.used = True
        except ConnectionRefusedError:
            raise Failed('failed to do request: %s "http://%s%s": dial tcp %s:'
                         ' connect: connection refused'
                         % (method.title(), self.host, path, self.host))
        except (OSError, http.client.HTTPException) as e:
            raise Failed('failed to do request: %s "http://%s%s": %s'
                         % (method.title(), self.host, path, e))
        if answer.status == 404:
            answer.read()
            raise Absent("%s/%s@%s: not found" % (self.host, self.name,
                                                  digest))
        if answer.status != 200:
            answer.read()
            raise Failed("unexpected status from %s request to http://%s%s: "
                         "%d %s" % (method, self.host, path, answer.status,
                                    answer.reason))
        return answer

    def ask_once(self, method, path, accept):
        self.conn.request(method, path, headers={"Accept": accept})
        return self.conn.getresponse()

    def json(self, kind, digest, accept):
        data = self.ask("GET", kind, digest, accept).read(4 << 20)
        if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
            raise Failed("failed to validate digest %s" % digest)
        return json.loads(data)

    def head(self, digest):
        answer = self.ask("HEAD", "manifests", digest, MANIFEST)
        answer.read()
        kind = answer.headers.get("Content-Type")
        if kind != MANIFEST:
            raise Failed("unexpected media type %s for %s" % (kind, digest))

    def layer(self, layer, file):
        digest = layer["digest"]
        try:
            answer = self.ask("GET", "blobs", digest,
                              "application/octet-stream")
        except Absent:
            raise Failed("failed to copy: httpReadSeeker: failed open: could "
                         "not fetch content descriptor %s (%s) from remote: "
                         "not found" % (digest, layer["mediaType"]))
        hashed, size = hashlib.sha256(), 0
        while True:
            data = answer.read(1 << 20)
            if not data:
                break
            size += len(data)
            if size > MOST:
                raise Failed("a layer of more than %d bytes" % MOST)
            hashed.update(data)
            file.write(data)
        if "sha256:" + hashed.hexdigest() != digest:
            raise Failed('failed commit on ref "layer-%s": unexpected commit '
                         "digest sha256:%s, expected %s: failed precondition"
                         % (digest, hashed.hexdigest(), digest))


class Image:
    """What `from` knows; its layers come when they are needed."""

    def __init__(self, address, known):
        self.address = address
        found = ADDRESS.fullmatch(address)
        if not found:
            raise Failed("only HOST:PORT/NAME@sha256:DIGEST of the loopback "
                         "is known here")
        self.host, self.name, self.digest = found.groups()
        registry = Registry(self.host, self.name)
        registry.head(self.digest)
        manifest = registry.json("manifests", self.digest, MANIFEST)
        digest = manifest["config"]["digest"]
        if digest not in known:
            known[digest] = registry.json("blobs", digest, "*/*")
        self.config = known[digest]
        self.layers = manifest["layers"]
        if len(self.config["rootfs"]["diff_ids"]) != len(self.layers):
            raise Failed("mismatched image rootfs and manifest layers")
        registry.conn.close()

    def environment(self):
        return list(self.config.get("config", {}).get("Env") or [])

    def folders(self, root, cache):
        """Of the unpacked layers, the lowest first."""
        out = []
        for layer in self.layers:
            place = cache if layer["size"] > LARGE else root
            out.append(self.unpacked(layer, place + "/layers"))
        return out

    def unpacked(self, layer, place):
        os.makedirs(place, exist_ok=True)
        folder = place + "/" + layer["digest"].partition(":")[2]
        if os.path.isdir(folder):
            return folder
        with open(place + "/lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.isdir(folder):
                for name in os.listdir(place):
                    if name.startswith("new."):
                        shutil.rmtree(place + "/" + name)
                self.unpack(layer, place, folder)
        return folder

    def unpack(self, layer, place, folder):
        registry = Registry(self.host, self.name)
        registry.head(self.digest)
        temporary = tempfile.mkdtemp(prefix="new.", dir=place)
        try:
            packed = temporary + "/layer"
            with open(packed, "wb") as f:
                registry.layer(layer, f)
            os.mkdir(temporary + "/root")
            kind = layer["mediaType"].rpartition("+")[2]
            tool = {"zstd": ["zstd", "-dcq"], "gzip": ["gzip", "-dc"]}.get(
                kind, ["cat"])
            with open(packed, "rb") as f:
                first = subprocess.Popen(tool, stdin=f,
                                         stdout=subprocess.PIPE)
            second = subprocess.Popen(
                ["tar", "-x", "--xattrs", "--xattrs-include=*",
                 "--numeric-owner", "-p", "-C", temporary + "/root"],
                stdin=first.stdout)
            first.stdout.close()
            if second.wait() or first.wait():
                raise Failed("failed to extract layer %s" % layer["digest"])
            os.chmod(temporary + "/root", 0o755)
            os.rename(temporary + "/root", folder)
        finally:
            registry.conn.close()
            shutil.rmtree(temporary, ignore_errors=True)
