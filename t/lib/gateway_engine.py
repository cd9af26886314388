"""The Dagger backend for a gateway of tests: an engine, the owner of its
session, and the image that nginx serves to it.

SANDBOX_TEST_DAGGER=tcp://HOST:PORT takes a real engine in place of ours; its
containers must be in reach, so such a test may have to run in the network
namespace of the engine.
"""

import os
import signal
import subprocess

import tap

REAL = os.environ.get("SANDBOX_TEST_DAGGER")

# the engine's own libraries are Debian's

PYTHON = "/usr/bin/python3"

REGISTRY = """
    server {
        listen 127.0.0.1:%d;
        root %s;
        access_log off;
        location ~ ^/v2/[^/]+/manifests/ {
            types { }
            default_type application/vnd.oci.image.manifest.v1+json;
        }
        location ~ ^/v2/[^/]+/blobs/ {
            types { }
            default_type application/octet-stream;
        }
    }
"""


class Engines:
    """`count` engines, or the real one; .names are what nginx is told."""

    def __init__(self, folder, count=1, options=()):
        self.programs = []
        if REAL:
            self.names = [REAL]
            return
        from engine_program import Program
        for n in range(count):
            root = "%s/engine.%d" % (folder, n)
            os.makedirs(root, exist_ok=True)
            program = Program(*options, root=root, python=PYTHON)
            program.start()
            tap.log(program.log, "engine %d" % n)
            self.programs.append(program)
        self.names = [p.address for p in self.programs]

    def lines(self, extra=""):
        """The directives that name them."""
        if REAL:
            return "sandbox_dagger %s %s;" % (REAL, extra)
        return "\n".join("sandbox_dagger %s resolver=%s %s;"
                         % (p.address, p.resolver, extra)
                         for p in self.programs)

    def end(self):
        for program in self.programs:
            if program.process is not None:
                program.terminate()


def image(top, build, cache):
    """Digest of the image, made when there is none of this agent."""
    rootfs = os.path.realpath(cache + "/base/current/rootfs")
    out = subprocess.run(
        [top + "/tools/registry", rootfs, build + "/sandbox-agent",
         cache + "/registry"], stdout=subprocess.PIPE, check=True)
    return out.stdout.decode().split()[-1]


def owner(runner, socket, key, engines, extra):
    """Command line of the owner of the sessions."""
    command = [runner, "--socket", socket, "--key-file", key,
               "--peer-user", "www-data", "--socket-group", "www-data"]
    for name in engines.names:
        command += ["--dagger", name]
    return command + list(extra)


END = signal.SIGTERM
