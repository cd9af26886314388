#!/usr/bin/env python3
"""The agent refuses to be anything but the first process of a sandbox.

Its sweep, kill(-1, SIGKILL), reaches all of a pid namespace, so every start
here is inside a pid namespace made for it, where a sweep that should not
happen would hit this test's own victims only.  It is never started in the
namespace of the host.
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import AGENT                                    # noqa: E402
from tap import SANITIZED, check, main, same, skip, test     # noqa: E402


def inside(script, *options):
    """A shell script as PID 1 of a new pid namespace; AGENT is in $1."""
    command = ["unshare", "--pid", "--fork", "--kill-child",
               "--mount-proc"] + list(options) \
        + ["sh", "-c", "[ $$ = 1 ] || exit 99\n" + script, "sh", AGENT]
    return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=150,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


VICTIM = "sleep 200 & victim=$!\n"
AFTER = "\nkill -0 $victim && echo victim lives\n"


@test("agent/guard-not-first")
def not_first():
    r = inside(VICTIM + "timeout 100 \"$1\" < /dev/null; echo status $?"
               + AFTER)
    text = r.stdout.decode()
    check("victim lives" in text, "it swept:", text)
    status = int(re.search(r"status (\d+)", text).group(1))
    check(status not in (0, 124, 137), "it ran:", text)
    check("sandbox-runner" in text, "no explanation:", text)


@test("agent/guard-not-first-tcp")
def not_first_tcp():
    r = inside(VICTIM + "echo %s > /tmp/secret.$$; timeout 100 \"$1\" "
               "--listen 127.0.0.1:1 --secret-file /tmp/secret.$$; "
               "echo status $?; rm /tmp/secret.$$" % ("a" * 64) + AFTER)
    text = r.stdout.decode()
    check("victim lives" in text, "it swept:", text)
    status = int(re.search(r"status (\d+)", text).group(1))
    check(status not in (0, 124, 137), "it ran:", text)


@test("agent/guard-host-ids")
def host_ids():
    """PID 1, but user ids are the host's: refused."""
    r = inside("exec \"$1\"")
    text = r.stdout.decode()
    check(r.returncode not in (0, 124), "it ran:", r)
    check("user namespace" in text, "no explanation:", text)


@test("agent/guard-bad-options")
def bad_options():
    for options in ("--listen 127.0.0.1:1", "--secret-file /dev/null",
                    "--what", "--listen", "x y z"):
        r = inside("exec \"$1\" " + options)
        check(r.returncode not in (0, 124), options, r)
        check(b"usage" in r.stdout, options, r)


@test("agent/static")
def static():
    if SANITIZED:
        skip("with a sanitizer it has libraries")
    r = subprocess.run(["ldd", AGENT], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
    check(r.returncode != 0 and b"not a dynamic" in r.stdout
          or b"statically linked" in r.stdout, "it has libraries:", r)
    with open(AGENT, "rb") as f:
        same(f.read(4), b"\x7fELF")


main()
