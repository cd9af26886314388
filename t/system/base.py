#!/usr/bin/env python3
"""Base images by name: sandbox_base, --base NAME=DIR; what a sandbox keeps."""

import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import CACHE, Gateway                           # noqa: E402
from tap import SANITIZED, backends, check, main, same, skip, test  # noqa: E402

backends("local", why="runner")

WORDS = "cat /usr/share/name 2> /dev/null || ls /usr/bin | wc -l"


def small(folder):
    """A root file system of a few programs of the real one."""
    base = os.path.realpath(CACHE + "/base/current/rootfs")
    for path in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64",
                 "usr/share", "etc", "home/sandbox", "proc",
                 "dev", "tmp", "skills"):
        os.makedirs(os.path.join(folder, path))
    for link in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink(os.path.join(base, link)):
            os.symlink(os.readlink(os.path.join(base, link)),
                       os.path.join(folder, link))
    programs = ["/usr/bin/" + n for n in ("bash", "cat", "ls", "wc")]
    libraries = subprocess.run(["chroot", base, "ldd"] + programs,
                               stdout=subprocess.PIPE, text=True, check=True)
    for path in programs + sorted(set(re.findall(r"(/\S+) \(0x",
                                                 libraries.stdout))):
        to = folder + path
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(os.path.realpath(base + path), to)
    for path in ("etc/passwd", "etc/group"):
        shutil.copy(os.path.join(base, path), os.path.join(folder, path))
    shutil.chown(folder + "/home/sandbox", 1000, 1000)
    os.chmod(folder + "/tmp", 0o1777)
    with open(folder + "/usr/share/name", "w") as f:
        f.write("small\n")


def refused(g, conversation):
    r = g.command(conversation, "true")
    same((r.status, r.json["code"]), (503, "unknown_base"))
    check(int(r.headers["Retry-After"]) > 0, "when to try again")


@test("base/choice: a location's image, fixed when the sandbox is made")
def choice():
    if SANITIZED:
        skip("with a sanitizer the agent needs libraries of the image")
    g = Gateway(pool=1, ephemeral=False)
    folder = g.dir + "/small"
    small(folder)
    g.runner_options += ["--base", "small=" + folder]
    with g:
        same(g.request("GET", "v1/limits").json["base"], "default")
        check(int(g.output("old", WORDS + "; echo kept > kept")) > 100,
              "a large one")

        g.reload(location="sandbox_base small;")
        same(g.request("GET", "v1/limits").json["base"], "small")
        same(g.output("new", WORDS + "; echo kept > kept"), "small\n")
        check(g.output("old", WORDS) != "small\n", "it changed its image")
        same(g.output("old", "cat kept"), "kept\n")
        same(g.request("POST", "v1/conversations/old/reset").status, 200)
        same(g.output("old", WORDS), "small\n", "after reset:")

        g.reload(location="sandbox_base default;")
        same(g.output("new", WORDS), "small\n", "whatever others want:")
        check(g.output("new", WORDS, fresh=True) != "small\n",
              "a fresh one is as the location says")

        # what a runner without that name has to do with it
        g.reload(location="sandbox_base small;")
        same(g.output("new", WORDS + "; echo kept > kept", fresh=True),
             "small\n")
        g.runner_options[-2:] = []
        g.stop_runner(signal.SIGTERM)
        g.start_runner()
        g.wait_ready()
        same(g.output("new", WORDS + "; cat kept"), "small\nkept\n", "adopted:")
        refused(g, "third")
        check("has no base image \"small\" that \"sandbox_base\" asks for"
              in g.error_log, "nginx says it")
        check("nginx asks for a base that is none of \"default\""
              in g.runner_log, "the runner, too")

        g.stop_runner(signal.SIGINT)
        g.start_runner()
        g.wait_ready()
        same(g.output("new", WORDS + "; cat kept"), "small\nkept\n", "woken:")

        g.stop_runner(signal.SIGINT)
        os.rename(folder, folder + ".2")
        g.start_runner()
        g.wait_ready()
        refused(g, "new")
        check("there is no base \"small\" any more" in g.runner_log,
              "and why")

        g.stop_runner(signal.SIGINT)
        g.runner_options += ["--base", "small=" + folder + ".2"]
        g.start_runner()
        g.wait_ready()
        same(g.output("new", WORDS + "; cat kept"), "small\nkept\n",
             "on what has its name now:")
        g.delete("old")
        g.delete("new")


main()
