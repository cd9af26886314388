#!/usr/bin/env python3
"""What an administrator meets first; group admin of the cases, as far as it
needs real sandboxes."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import AGENT, CACHE, RUNNER, Gateway, wait_for  # noqa: E402
from runner import together                                  # noqa: E402
from tap import check, main, same, test                      # noqa: E402


@test("admin/minimal")
def minimal():
    """Two directives in the location; the rest are defaults."""
    with Gateway(pool=1) as g:
        text = g.read("nginx.conf")
        location = re.search(r"location /sandbox/ \{(.*?)\}", text, re.S)
        same(len([x for x in location.group(1).split(";") if x.strip()]), 2)
        same(g.run("first", "echo hello; id -un")["stdout"],
             "hello\nsandbox\n")


@test("admin/runner-down")
def runner_down():
    g = Gateway(runner=None, pool=1, ready=False)
    g.expected.append("[crit]")
    with g:
        r = g.command("down", "true")
        same((r.status, r.json["code"]), (503, "runner_unreachable"))
        check(int(r.headers["Retry-After"]) > 0, "Retry-After", r)
        g.kind = "real"
        g.start_runner()
        g.wait_ready()
        g.run("down", "echo x > f")
        g.stop_runner(signal.SIGINT)
        r = g.command("down", "true")
        same((r.status, r.json["code"]), (503, "runner_unreachable"))
        g.start_runner()
        g.wait_ready()
        # --ephemeral: nothing is kept over an orderly end
        same(g.run("down", "ls f; true")["stdout"], "")


@test("admin/socket-rights")
def socket_rights():
    with Gateway(pool=1) as g:
        mode = os.stat(g.socket)
        same(stat.S_IMODE(mode.st_mode) & 0o007, 0, "for everybody")
        # another local user can't connect, even to a socket he may open
        code = ("import os, socket, sys; os.setgroups([]); os.setgid(65534);"
                "os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
                "s.connect(%r); s.settimeout(5);"
                "s.sendall(bytes.fromhex(%r)); print(s.recv(4096).hex())")
        first = wire.Preamble(wire.PING, key=g.key).encode().hex()
        text = [sys.executable, "-c", code % (g.socket, first)]
        r = subprocess.run(text, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        check(r.returncode != 0 and b"Permission denied" in r.stderr,
              "connected:", r)
        os.chmod(g.socket, 0o666)
        r = subprocess.run(text, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        answer = bytes.fromhex(r.stdout.decode().strip() or "")
        check(b"unauthorized_peer" in answer or not answer,
              "answered a stranger:", answer)
        check(b"READY" not in answer and len(answer) < 300, "told:", answer)
        # the right user with a wrong key
        c = wire.Client(g.socket, key=b"x" * 32)
        same(c.call(wire.PING).code, "unauthorized_peer")
        # and with the right one
        c = wire.Client(g.socket, key=g.key)
        same(c.call(wire.PING).result["READY"], 1)


@test("admin/key-file-rights")
def key_file_rights():
    g = Gateway(pool=1)
    os.chmod(g.path("runner.key"), 0o644)
    try:
        g.start_runner()
    except AssertionError as error:
        check(re.search(r"mode|0600|0644|readable|others", str(error)),
              "no remedy:", str(error))
    else:
        check(False, "a key that everybody can read was taken")
    finally:
        g.stop(check=False)


@test("admin/kernel-features", seconds=900, backends="local", why="runner")
def kernel_features():
    """The start-up probe says what is missing, and nothing runs."""
    with Gateway(runner=None, ready=False) as g:
        g.expected.append("[crit]")
        base = os.path.realpath(CACHE + "/base/current/rootfs")
        common = ["--socket", g.socket + ".x", "--key-file",
                  g.path("runner.key"), "--state", g.path("probe"),
                  "--ephemeral", "--pool", "1"]
        for name, options, why in (
                ("no base", ["--base", "/nonexistent", "--agent", AGENT],
                 r"base"),
                ("no agent", ["--base", base, "--agent", "/nonexistent"],
                 r"agent"),
                ("no runtime", ["--base", base, "--agent", AGENT,
                                "--runtime", "/nonexistent"], r"runtime|"
                 r"nonexistent"),
                ("a runtime that fails", ["--base", base, "--agent", AGENT,
                                          "--runtime", "/bin/false"],
                 r"false|runtime|container")):
            r = subprocess.run([RUNNER] + common + options, timeout=280,
                               stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
            check(r.returncode not in (0, -11, -6), name, r)
            check(re.search(why, r.stdout.decode()), name, r.stdout.decode())
            check(not os.path.exists(g.socket + ".x"), name, "a socket")

        # a host, or a container that it is started in, that lacks something
        covered = ["unshare", "--mount", "sh", "-c"]
        mounts = subprocess.run(["unshare", "--mount", "true"],
                                stderr=subprocess.DEVNULL).returncode == 0
        for name, start, why in (
                ("no mounts", ["setpriv", "--bounding-set", "-sys_admin"],
                 r"mount namespace.*Remedy: run as root, with CAP_SYS_ADMIN"),
                ("no chroot", ["setpriv", "--bounding-set", "-sys_chroot"],
                 r"mount namespace.*Remedy:.*CAP_SYS_CHROOT"),
                ("no loop devices", covered + [
                    "mount --bind /dev/null /dev/loop-control; exec \"$@\"",
                    "covered"], r"loop device.*Remedy:"),
                ("no host at all", ["unshare", "--user", "--map-root-user",
                                    "--mount"], r"Remedy:"),
                ("a /proc of which parts are hidden", covered + [
                    "mount -t tmpfs -o ro none /proc/sys; exec \"$@\"",
                    "covered"], r"crun.*Remedy: run on the host itself")):
            if start[0] == "unshare" and not mounts:
                continue                # a bare chroot has none to cover
            r = subprocess.run(start + [RUNNER] + common
                               + ["--base", base, "--agent", AGENT],
                               timeout=280, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
            same(r.returncode, 1, name)
            check(re.search(why, r.stdout.decode()), name, r.stdout.decode())
            check(not os.path.exists(g.socket + ".x"), name, "a socket")


@test("admin/state-disk-full", seconds=600, backends="local", why="runner")
def state_disk_full():
    """The file system of the state folder is full: what runs goes on, what
    is new is refused with the cause, deletion frees space."""
    g = Gateway(pool=1, location="sandbox_disk 256m;")
    image = g.path("disk")
    os.mkdir(g.state)
    with open(image, "wb") as f:
        f.truncate(400 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True,
                   stderr=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", image, g.state], check=True)
    try:
        g.runner_options += ["--reserve", "64"]
        g.start()
        g.run("full", "echo kept > f; head -c 100M /dev/urandom > big")
        with open(g.state + "/filler", "wb") as f:
            try:
                while True:
                    f.write(bytes(1 << 20))
                    f.flush()
            except OSError:
                pass
        got = []
        for n in range(6):
            r = g.command("full%d" % n, "true")
            got.append((r.status, r.json.get("code")))
            if r.status != 200:
                check(r.status in (503, 507), "got", r)
                check(r.status == 507 or int(r.headers["Retry-After"]) > 0,
                      "Retry-After", r)
        check([x for x in got if x[0] != 200], "nothing was refused", got)
        # a running one goes on, also where it writes
        r = g.run("full", "cat f; echo more >> f; sync; echo end")
        check(r["stdout"].startswith("kept\n"), "got", r)
        same(g.delete("full").status, 204)
        os.remove(g.state + "/filler")
        wait_for(lambda: g.command("again", "true").status == 200, 60,
                 "space again")
    finally:
        try:
            g.expected.append("[crit]")
            g.end(g.nginx, signal.SIGTERM)
            g.end(g.runner, signal.SIGINT)
        finally:
            subprocess.run(["umount", "-l", g.state], check=True)
            g.stop(check=False)


@test("admin/two-runners", backends="local", why="runner")
def two_runners():
    """Several can run at once; one state folder has one owner."""
    with Gateway(pool=1) as a, Gateway(pool=1) as b:
        a.run("two", "echo a > f")
        same(b.run("two", "cat f; true")["stdout"], "")
        c = Gateway(pool=1, state=a.state)
        try:
            c.start_runner()
        except AssertionError as error:
            check("state" in str(error), "no reason:", str(error))
        else:
            check(False, "two runners on one state folder")
        finally:
            c.stop(check=False)
        same(a.run("two", "cat f")["stdout"], "a\n")


@test("wire/refusals-of-the-runner", backends="local", why="runner")
def wire_refusals():
    """Foreign bytes at the socket: an ERROR or an end, never a hang."""
    with Gateway(pool=1) as g:
        def speak(data, shut=True):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(100)
            s.connect(g.socket)
            try:
                s.sendall(data)
                if shut:
                    s.shutdown(socket.SHUT_WR)
                out = b""
                while True:
                    piece = s.recv(65536)
                    if not piece:
                        return out
                    out += piece
            except (ConnectionResetError, BrokenPipeError):
                return b""
            finally:
                s.close()

        good = wire.Preamble(wire.PING, key=g.key).encode()
        speaks = []
        for data in (b"", b"S", good[:127], b"GET / HTTP/1.0\r\n\r\n",
                     b"x" * 128, bytes(128), b"x" * 100000,
                     good[:7] + b"\x09" + good[8:],
                     good[:8] + b"\xee" + good[9:],
                     wire.Preamble(wire.PING, key=g.key,
                                   head=768 * 1024).encode(),
                     wire.Preamble(99, key=g.key).encode(),
                     wire.Preamble(wire.COMMAND, key=g.key,
                                   head=10).encode() + b"\0\1\0\0\0\4id"):
            for shut in (True, False):
                speaks.append(lambda data=data, shut=shut: speak(data, shut))
        # a second each for what never comes, so all at once
        for answer in together(*speaks):
            check(isinstance(answer, bytes), "no end:", answer)
        c = wire.Client(g.socket, key=g.key)
        for key in (bytes(32), g.key[:-1] + b"\0"):
            same(c.call(wire.PING, **{"key": key}).code,
                 "unauthorized_peer")
        same(c.call(wire.PING).result["READY"], 1)
        # a command by hand, with PING from the agent while it is silent
        for seconds in (6, 12, 40):     # the machine may stand still
            a = c.command("sleep %d; echo hi" % seconds, session=b"h" * 32)
            same((a.stdout, a.outcome), (b"hi\n", "exit"))
            if a.pings:
                break
        check(a.pings >= 1, "no PING in 40 s")
        # chunks, as for a body of unknown length
        head = wire.fields(("COMMAND", "cat"), ("WALL_MS", 120000),
                           ("CPU_MS", 10000), ("OUTPUT", 65536),
                           ("OUTPUT_TOTAL", 1 << 20), ("OPEN_FILES", 256),
                           ("PENDING", 5), ("DIGEST", bytes(32)))
        a = c.call(wire.COMMAND, head, chunks=[b"abc", b"d" * 5000],
                   session=b"h" * 32)
        same(a.stdout, b"abc" + b"d" * 5000)
        # NO_CREATE of a session that has no sandbox
        a = c.command("true", session=b"n" * 32, flags=wire.NO_CREATE)
        same(a.code, "no_sandbox")
        # an instance that is not the current one
        a = c.command("true", session=b"h" * 32, instance=999)
        same(a.code, "gone")
        for text, fields in (("true", dict(cwd="relative")),
                             ("true", dict(cwd="/etc")),
                             ("a\0b", {}), ("", {}),
                             ("true", dict(command_id="a/b")),
                             ("true", dict(command_id="x" * 65)),
                             ("true", dict(env=["NOVALUE"])),
                             ("true", dict(env=["=x"])),
                             ("true", dict(env=["A\0=x"]))):
            a = c.command(text, session=b"h" * 32, **fields)
            check(a.code in ("bad_request", "cwd_outside", "cwd_missing")
                  or text == "" and a.outcome == "exit",
                  "taken:", text, fields, a)
        a = c.command("x" * (512 * 1024 + 1), session=b"h" * 32)
        check(a.code in ("command_too_large", "bad_request"), "got", a)
        same(c.command("echo end", session=b"h" * 32).stdout, b"end\n")


@test("wire/slow-and-silent-clients", backends="local", why="runner")
def slow_clients():
    """Clients that say nothing, or one byte a second, hold nobody up."""
    with Gateway(pool=1) as g:
        silent = []
        for n in range(100):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(100)
            s.connect(g.socket)
            if n % 2:
                s.sendall(b"SBXWIRE\1")
            silent.append(s)
        same(g.run("slow", "echo x")["stdout"], "x\n")
        # they are ended by a deadline, with or without a word
        end = time.monotonic() + 90
        for s in silent:
            while time.monotonic() < end:
                try:
                    if not s.recv(4096):
                        break
                except ConnectionResetError:
                    break
            check(time.monotonic() < end, "a silent client is kept")
            s.close()
        # a head that never comes whole
        first = wire.Preamble(wire.COMMAND, key=g.key, session=b"s" * 32,
                              head=1000).encode()
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(100)
        s.connect(g.socket)
        s.sendall(first + b"x")
        same(g.run("slow", "echo y")["stdout"], "y\n")
        out = b""
        try:
            while True:
                piece = s.recv(4096)
                if not piece:
                    break
                out += piece
        except ConnectionResetError:
            pass
        check(b"slow_request" in out or b"bad_request" in out or not out,
              "got", out)
        s.close()


@test("wire/reader-that-stops", backends="local", why="runner")
def reader_stops():
    """A client that reads nothing never stops the command."""
    with Gateway(pool=1) as g:
        c = wire.Client(g.socket, key=g.key)
        head = wire.fields(
            ("COMMAND", "head -c 50M /dev/zero | tr '\\0' x; echo done > d"),
            ("WALL_MS", 200000), ("CPU_MS", 60000), ("OUTPUT", 1 << 18),
            ("OUTPUT_TOTAL", 1 << 30), ("OPEN_FILES", 256), ("PENDING", 5),
            ("DIGEST", bytes(32)))
        s = c.send(wire.COMMAND, head, session=b"r" * 32)
        wait_for(lambda: c.command("cat d", session=b"r" * 32).stdout
                 == b"done\n", 30, "the end of the command")
        a = c.answer(s)
        same(a.result["STDOUT_BYTES"], 50 << 20)
        same(len(a.gaps), 1)
        s.close()


main()
