"""An index of packages for tests of uv, run inside a sandbox on its loopback,
where there is no other network: what is installed there, as far as a resolver
asks for it, and the wheels of a folder.

    python3 loopback_index.py PORT FOLDER
"""

import hashlib
import http.server
import importlib.metadata
import os
import re
import sys
import zipfile


def normal(name):
    return re.sub("[-_.]+", "_", name).lower()


def known(folder):
    """File name to (metadata, wheel): none, but a sum of its own, of what is
    installed."""
    out = {}
    for d in importlib.metadata.distributions():
        name = "%s-%s-py3-none-any.whl" % (normal(d.metadata["Name"]),
                                           d.version)
        out[name] = d.read_text("METADATA").encode(), name.encode()
    for name in os.listdir(folder):
        with zipfile.ZipFile(os.path.join(folder, name)) as z:
            part = [n for n in z.namelist() if n.endswith("/METADATA")][0]
            with open(os.path.join(folder, name), "rb") as f:
                out[name] = z.read(part), f.read()
    return out


def sum_of(data):
    return "sha256=" + hashlib.sha256(data).hexdigest()


class Index(http.server.BaseHTTPRequestHandler):
    files = {}

    def find(self):
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "simple":
            return "".join(
                '<a href="/files/%s#%s" data-core-metadata="%s">%s</a>\n'
                % (n, sum_of(wheel), sum_of(metadata), n)
                for n, (metadata, wheel) in self.files.items()
                if n.startswith(normal(name) + "-")).encode()
        if name.endswith(".metadata"):
            return self.files.get(name[:-len(".metadata")], (b"", b""))[0]
        return self.files.get(name, (b"", b""))[1]

    def do_GET(self):
        body = self.find()
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    Index.files = known(sys.argv[2])
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])),
                                    Index).serve_forever()
