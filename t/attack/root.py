#!/usr/bin/env python3
"""Roots that were prepared for whoever mounts, starts or reads in them next:
masked paths, /dev, /proc, /sys, /tmp, homes and the agent's own program are
links, FIFOs, folders or scripts when a stopped sandbox wakes.  Its user can't
do that; root of its namespace, which is what an agent that was taken over is,
can.  Whatever comes of it is the sandbox's own trouble: nothing of the host is
touched, nothing hangs, and DELETE ends it."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import AGENT, CACHE, Gateway, alive, wait_for   # noqa: E402
from tap import check, main, same, test                      # noqa: E402

g = None
canary = None
before = None
BASE = os.path.realpath(CACHE + "/base/current/rootfs")

# what of the host a link could lead to, and what must stay as it is
FILES = [shutil.which("crun") or shutil.which("runc"), AGENT,
         BASE + "/usr/bin/bash", BASE + "/usr/bin/env", BASE + "/etc/passwd",
         "/etc/passwd", "/etc/hostname"]


def state():
    out = {}
    for path in FILES:
        st = os.stat(path)
        with open(path, "rb") as f:
            out[path] = (hashlib.sha256(f.read()).hexdigest(), st.st_mode,
                         st.st_uid, st.st_nlink, st.st_mtime_ns)
    for path in (canary, "/etc", "/tmp", "/var/cache/sandbox", BASE,
                 BASE + "/etc", BASE + "/usr/bin", BASE + "/home/sandbox"):
        st = os.stat(path)
        out[path] = (st.st_mode, st.st_uid, st.st_gid)
    out["in the canary"] = sorted(os.listdir(canary))
    out["in the base's etc"] = sorted(os.listdir(BASE + "/etc"))
    return out


def as_root(agent, text):
    """As root of the sandbox's namespaces, without its system call filter."""
    done = subprocess.run(
        ["nsenter", "-t", str(agent), "-U", "-m", "-r/proc/%d/root" % agent,
         "-S", "0", "-G", "0", "/bin/sh", "-c", UMOUNT + text],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=300)
    same(done.returncode, 0, "%s: %s" % (text, done.stdout))


# the image has none
UMOUNT = """uncover() {
    perl -e '$p = shift; syscall(166, $p, 2) and die "umount: $!"' $1
}; """

# name: what root of the namespace does, and whether the sandbox still works
ROOTS = {
    # the mounts of the next start go through these
    "dev-link": "uncover /dev && rm -rf /dev && ln -s HOST /dev",
    "dev-up": "uncover /dev && rm -rf /dev &&"
              " ln -s ../../../../../../../../HOST /dev",
    "dev-file": "uncover /dev && rm -rf /dev && echo > /dev",
    "dev-pts": "uncover /dev && rm -rf /dev/* && ln -s HOST /dev/pts &&"
               " ln -s HOST/file /dev/null",
    "proc-link": "uncover /proc && rm -rf /proc && ln -s HOST /proc",
    "proc-self": "uncover /proc && rm -rf /proc && mkdir /proc &&"
                 " ln -s HOST /proc/self && ln -s HOST /proc/sys &&"
                 " ln -s HOST/file /proc/kcore",
    "tmp-link": "uncover /tmp && rm -rf /tmp && ln -s HOST /tmp",
    "tmp-etc": "uncover /tmp && rm -rf /tmp && ln -s /etc /tmp",
    "tmp-fifo": "uncover /tmp && rm -rf /tmp && mkfifo /tmp",
    "sys-link": "rmdir /sys && ln -s HOST /sys",
    # what the runner or the agent opens
    "homes": "mv /home/sandbox /home/was; ln -s HOST /home/sandbox;"
             " rmdir /skills; ln -s HOST /skills; rm -rf /var/lib/sandbox;"
             " ln -s HOST /var/lib/sandbox",
    "fifos": "for f in /bin/bash /etc/passwd /etc/group /etc/nsswitch.conf"
             " /etc/ld.so.cache; do rm -f $f && mkfifo $f; done",
    "bin-link": "perl -e 'for (\"/bin\", \"/lib64\") {"
                " unlink $_; symlink \"HOST\", $_ or die }'",
    # the program that is started: CVE-2019-5736 and its kin
    "agent-self": "rm -f AGENT; printf '#!/proc/self/exe\\n' > AGENT;"
                  " chmod 755 AGENT",
    "agent-link": "rm -f AGENT; ln -s /proc/self/exe AGENT",
    "agent-fd": "rm -f AGENT; ln -s /proc/self/fd/3 AGENT",
    "agent-fifo": "rm -f AGENT; mkfifo AGENT",
    "agent-folder": "rm -f AGENT; mkdir AGENT",
    "agent-shell": "rm -f AGENT; printf '#!/bin/sh\\nfor p in self 1; do echo x"
                   " > /proc/$p/exe; echo x > /proc/$p/cwd/x; for f in"
                   " /proc/$p/fd/*; do echo x > $f/x; echo x > $f/../x; cat"
                   " $f/../../../etc/shadow; done; done; sleep 1\\n' > AGENT;"
                   " chmod 755 AGENT",
}


def hostile(name):
    conversation = "root-" + name
    text = ROOTS[name].replace("HOST", canary) \
        .replace("AGENT", "/usr/libexec/sandbox-agent")
    g.run(conversation, "echo kept > kept")
    agent = g.agent(conversation)
    as_root(agent, text)
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: not alive(agent), 20, "the end of the agent")

    # it wakes, or it is told why not; a client of it never waits for ever
    r = g.command(conversation, "cat kept; ls /tmp /dev /proc > /dev/null",
                  timeout=280)
    check(r.status in (200, 503), "woken:", r)
    same(g.delete(conversation, timeout=280).status, 204, "its end")
    same(state(), before, "something of the host")
    same(g.status(conversation)["state"], "none")
    print("# %s: %d" % (name, r.status))


def make(name):
    @test("attack/root/" + name, seconds=900, beside=True)
    def attempt():
        hostile(name)


for item in ROOTS:
    make(item)


@test("attack/root/others-notice-nothing")
def others():
    same(g.output("neighbour", "echo fine"), "fine\n")
    same(os.listdir(canary), ["file"])


def start():
    global g, canary, before
    g = Gateway(pool=2)
    g.start()
    # anybody may write there, if he gets there
    canary = g.path("canary")
    os.mkdir(canary)
    os.chmod(canary, 0o777)
    with open(canary + "/file", "w") as f:
        f.write("host\n")
    os.chmod(canary + "/file", 0o666)
    FILES.append(canary + "/file")
    before = state()


def stop():
    g.stop()


main(start, stop)
