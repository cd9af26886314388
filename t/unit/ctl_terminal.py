#!/usr/bin/env python3
"""sandboxctl on a terminal against a gateway, and sandboxes, that are hostile:
each string of each answer wants to be obeyed by the terminal, to hide, or to
turn the line round.  Nothing of it gets there but what a command itself has
written, which is raw on purpose.

    t/unit/run t/unit/ctl_terminal.py
"""

import base64
import http.server
import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.abspath(__file__)) + "/../.."
sys.path.insert(0, TOP + "/t/lib")

from tap import check, main, same, test                      # noqa: E402

CTL = os.path.abspath(os.environ.get("BUILD") or TOP + "/build") \
    + "/sandboxctl"
EVIL = "a\x1b[2J\x1b]0;title\x07\r\n\u009b31m\u202egnp\u2066\u200b\x7fz"
PLAIN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e"
                   "\u2060-\u206f\ufeff]")
server = folder = None


def evil(kind):
    """An object as the interface has it, each string of it is hostile."""
    receipt = {name: EVIL for name in (
        "commandId", "sandboxId", "cwd", "signal", "outcome", "state",
        "startedAt", "endedAt", "acceptedAt", "command")}
    receipt.update(exitCode=3, durationMs=5, cpuMs=1, stdout="", stderr="",
                   stagingNotices=[{"name": EVIL, "code": EVIL,
                                    "detail": EVIL}])
    entry = {name: EVIL for name in (
        "name", "type", "mode", "modifiedAt", "createdAt", "etag", "target",
        "id", "conversationId", "state", "lastUsedAt", "description",
        "title", "path", "url", "expiresAt", "commandId")}
    entry.update(size=5, commands=3, diskBytes=7,
                 nameBase64=base64.b64encode(EVIL.encode()).decode(),
                 targetBase64=base64.b64encode(EVIL.encode()).decode())
    if kind == "receipt":
        return receipt
    if kind == "commands":
        return {"commands": [receipt, dict(receipt, outcome=None)],
                "next": EVIL}
    if kind == "problem":
        return {name: EVIL for name in ("type", "title", "detail", "code",
                                        "requestId")}
    return dict(entry, entries=[entry], files=[entry], attachments=[entry],
                skills=[entry], conversations=[entry], library=[entry],
                next=None, limits={EVIL: {EVIL: EVIL}, "memoryBytes": 3},
                status="ready", reason=EVIL, words=[EVIL, EVIL],
                notices=[{"name": EVIL, "code": EVIL, "detail": EVIL}],
                **{EVIL: [EVIL]})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def serve(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if "/bad" in path:
            return self.reply(422, json.dumps(evil("problem")).encode(),
                              "application/problem+json")
        if "ndjson" in self.headers.get("Accept", ""):
            receipt = evil("receipt")
            events = [dict(receipt, type="started", seq=1),
                      {"type": "gap", "seq": 2, "stream": EVIL, "bytes": 3},
                      {"type": EVIL, "seq": 3, "data": EVIL},
                      dict(receipt, type="result", seq=4)]
            return self.reply(200, b"".join(json.dumps(e).encode() + b"\n"
                                            for e in events),
                              "application/x-ndjson")
        if path.endswith("/commands") and self.command == "GET":
            value = evil("commands")
        elif "/commands" in path:
            value = evil("receipt")
        else:
            value = evil("object")
        return self.reply(200, json.dumps(value).encode(), "application/json")

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = serve


def start():
    global server, folder
    folder = tempfile.TemporaryDirectory(prefix="sandbox-terminal.")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()


def stop():
    server.shutdown()
    folder.cleanup()


def terminal(*words):
    """All that the program writes to its terminal."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen(
        [CTL, words[0], "--url", "http://127.0.0.1:%d/sandbox"
         % server.server_address[1], "--token", "t"] + list(words[1:]),
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        cwd=folder.name, start_new_session=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"})
    os.close(theirs)
    out, end = b"", time.monotonic() + 250
    while time.monotonic() < end:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            piece = os.read(ours, 65536)
        except OSError:
            piece = b""
        if not piece:
            break
        out += piece
    else:
        p.kill()
    os.close(ours)
    p.wait()
    check(time.monotonic() < end, "it ended", words)
    return out


def harmless(*words):
    out = terminal(*words)
    text = out.decode()             # it is UTF-8

    # what a terminal makes of a line's end, and the bar of a transfer
    text = text.replace("\r\n", "\n")
    text = re.sub("\r[^\r\x1b]*\x1b\\[K", "", text).replace("\r\x1b[K", "")
    if "--json" in words:
        text = text.replace("\x7f", "")     # to a terminal it is nothing
    found = PLAIN.search(text)
    check(not found, "%r of %r gets to the terminal" % (
        found and found.group(), words), text)
    for line in text.split("\n"):
        check(not line.startswith(("gnp", "z")), "a line of its own", text)
    return text


@test("escape/terminal-injection: sandboxctl, answers")
def answers():
    for words in (("ps", "c"), ("status",), ("status", "c"), ("ls",),
                  ("ls", "-l", "c"), ("ls", "-l", "c", "attachments"),
                  ("ls", "-l", "c", "fs:a"), ("ls", "c"), ("ls", "--json", "c"),
                  ("logs", "c", "x"), ("wait", "c", "x"),
                  ("cancel", "c", "x"), ("reset", "c"),
                  ("save", "c", "a"), ("link", "c", "a"),
                  ("skills", "ls", "c"), ("skills", "ls", "--library", "c"),
                  ("run", "c", "true")):
        if words[0] == "skills":
            words = words[:2] + ("--url", "http://127.0.0.1:%d/sandbox"
                                 % server.server_address[1],
                                 "--token", "t") + words[2:]
            out = subprocess.run([CTL] + list(words), cwd=folder.name,
                                 stdin=subprocess.DEVNULL, check=False,
                                 stdout=subprocess.PIPE, timeout=250,
                                 stderr=subprocess.STDOUT).stdout.decode()
            found = PLAIN.search(out)
            check(not found, "%r of %r" % (found and found.group(), words),
                  out)
            continue
        check(harmless(*words) or words[0] in ("cancel", "reset", "logs"),
              "it says something", words)


@test("escape/terminal-injection: sandboxctl, refusals and names of files")
def refusals():
    with open(os.path.join(folder.name, "up"), "wb") as f:
        f.write(b"x")
    for words in (("ps", "bad"), ("status", "bad"), ("ls", "bad"),
                  ("run", "bad", "true"), ("logs", "bad", "x"),
                  ("cancel", "bad", "x"), ("put", "bad", "up"),
                  ("get", "bad", "fs:a"), ("save", "bad", "a"),
                  ("link", "bad", "a"), ("rm", "bad"), ("rm", "bad", "fs:a"),
                  ("put", "c", "up"), ("rm", "c", "fs:a"),
                  ("get", "c", "fs:" + EVIL)):
        harmless(*words)


if __name__ == "__main__":
    main(start, stop)
