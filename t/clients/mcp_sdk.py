#!/usr/bin/env python3
"""Others' MCP clients against nginx, runner, agent and a real container.

Their packages come by npm, with the versions and hashes of package-lock.json,
once into CACHE/clients/HASH; without node 18 or npm (Debian: nodejs and npm)
the tests are skipped, and say so."""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import CACHE, Gateway, token                     # noqa: E402
from tap import main, skip, test                              # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
g = None
missing = None
modules = None
version = 0


def install():
    """The folder with node_modules, or why there is none."""
    global version
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return None, "node and npm are missing: apt-get install nodejs npm"
    version = int(re.match(r"v(\d+)", subprocess.run(
        [node, "--version"], stdout=subprocess.PIPE, check=True)
        .stdout.decode()).group(1))
    if version < 18:
        return None, "node is older than 18"
    digest = hashlib.sha256()
    for name in ("package.json", "package-lock.json"):
        with open(HERE + "/" + name, "rb") as f:
            digest.update(f.read())
    folder = "%s/clients/%s" % (CACHE, digest.hexdigest()[:16])
    if os.path.isdir(folder):
        return folder, None
    work = folder + ".new.%d" % os.getpid()
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE + "/" + name, work)
        p = subprocess.run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund",
             "--loglevel", "error"], cwd=work, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
            check=False)
        if p.returncode:
            lines = [line for line in p.stdout.decode(errors="replace")
                     .splitlines() if "://" not in line]
            return None, "npm could not get the packages: %s" \
                % " ".join(lines)[:200]
        os.rename(work, folder)
        return folder, None
    except subprocess.TimeoutExpired:
        return None, "npm did not get the packages within 240 s"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def start():
    global g, missing, modules
    modules, missing = install()
    if missing:
        return
    g = Gateway(pool=2, workers=1)
    os.mkdir(g.dir + "/library", 0o755)
    with tarfile.open(g.dir + "/library/charts.tar", "w") as t:
        for name, data in (
                ("SKILL.md", b"---\nname: charts\ndescription: Draws.\n---\n"
                             b"# Charts\nimport chart_tools\n"),
                ("chart_tools.py", b"def draw(): return 'drawn'\n")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    os.chmod(g.dir + "/library/charts.tar", 0o644)
    g.options["http"] = """
        sandbox_store %s/store;
        sandbox_skills %s/library;
        sandbox_disk 256m;
    """ % (g.dir, g.dir)
    g.start()


def stop():
    if g:
        g.stop()


def run(line):
    if missing:
        skip(missing)
    p = subprocess.run(
        ["node", HERE + "/mcp_sdk.mjs", line, modules,
         "http://127.0.0.1:%d/sandbox/v1/conversations/sdk-%s/mcp"
         % (g.port, line), token()], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280,
        check=False)
    out = p.stdout.decode(errors="replace")
    for step in out.splitlines():
        print("#   " + step)
    if p.returncode or "\nnot ok" in out or not re.search(r"^1\.\.\d+$", out,
                                                          re.M):
        raise AssertionError("the client ended with %d" % p.returncode)


@test("mcp/sdk-handshake", 180)
def v1():
    """@modelcontextprotocol/sdk, revision 2025-11-25."""
    run("v1")


@test("mcp/sdk-stateless", 180)
def v2():
    """@modelcontextprotocol/client, revision 2026-07-28."""
    if not missing and version < 20:
        skip("this client needs node 20")
    run("v2")


main(start, stop)
