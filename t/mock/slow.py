#!/usr/bin/env python3
"""Clients that take their time: streams that nobody writes to, heads and
bodies that come byte by byte, answers that are not read.  One worker has all of
them; others are served meanwhile, and its memory has a bound for each.

    SANDBOX_TEST_MANY=N     streams (1000; 10000 needs "ulimit -n" of 25000)
"""

import asyncio
import multiprocessing
import os
import resource
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import Gateway, token, wait_for                 # noqa: E402
from tap import SLOW, Skip, check, main, same, test          # noqa: E402

MANY = int(os.environ.get("SANDBOX_TEST_MANY") or 1000) // SLOW
SLOWER = 200                # heads, and bodies, that do not come to their end


async def patient(path):
    """A runner whose commands with a stream go on until they are left."""
    async def one(reader, writer):
        try:
            first = wire.Preamble.decode(
                await reader.readexactly(wire.PREAMBLE_SIZE))
            head = await reader.readexactly(first.head)
            answer = wire.frame(wire.HEAD, wire.fields(("STATUS", 200)))
            if first.operation == wire.PING:
                answer += wire.frame(wire.RESULT, wire.fields(("READY", 1)))
            elif first.operation == wire.COMMAND:
                fields = wire.unique(wire.read_fields(head))
                if fields.get("STREAM"):
                    writer.write(answer + wire.frame(
                        wire.STARTED, (1).to_bytes(8, "big")
                        + (10 ** 12).to_bytes(8, "big")))
                    await asyncio.wait_for(reader.read(1), 5)
                answer += wire.frame(wire.RESULT, wire.fields(
                    ("OUTCOME", 0), ("EXIT_CODE", 0)))
            writer.write(answer)
            await writer.drain()
        except asyncio.TimeoutError:
            asyncio.ensure_future(pings(reader, writer))
            return
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    async def pings(reader, writer):
        try:
            while not reader.at_eof():
                writer.write(wire.frame(wire.PING_FRAME))
                await writer.drain()
                await asyncio.sleep(5)
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_unix_server(one, path, backlog=4096)
    os.chmod(path, 0o666)
    async with server:
        await server.serve_forever()


def runner(path):
    asyncio.run(patient(path))


class Many(Gateway):
    def configure(self, **changes):
        super().configure(**changes)
        text = self.read("nginx.conf")
        assert "worker_connections 1024;" in text
        self.write("nginx.conf", text.replace(
            "worker_connections 1024;",
            "worker_connections %d;" % (3 * MANY + 2000)))


def resident(g):
    total = 0
    for pid in g.workers():
        with open("/proc/%d/statm" % pid) as f:
            total += int(f.read().split()[1]) * 4096
    return total


def connect(g):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(60 * SLOW)
    s.connect(("127.0.0.1", g.port))
    return s


@test("attack/slow-clients", seconds=600)
def slow_clients():
    need = 2 * MANY + 3 * SLOWER + 500
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < need:
        raise Skip("%d descriptors are needed: ulimit -n" % need)
    resource.setrlimit(resource.RLIMIT_NOFILE, (
        need, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    g = Many(runner=None, workers=1, log_level="warn", http=(
             "client_header_timeout 10m; client_body_timeout 10m;"),
             main="worker_rlimit_nofile %d;" % (3 * MANY + 2000))
    g.expected.append("setrlimit(RLIMIT_NOFILE")
    process = multiprocessing.get_context("fork").Process(
        target=runner, args=(g.socket,), daemon=True)
    process.start()
    held = []
    try:
        with g:
            wait_for(lambda: os.path.exists(g.socket), 20, "the runner")
            g.wait_ready(60)
            other = token(sub="other")

            def served():
                begun = time.monotonic()
                r = g.command("o", "true", token=other)
                same(r.status, 200, r)
                return time.monotonic() - begun

            served()
            before = resident(g)
            body = b'{"command":"sleep 1000"}'
            head = ("POST /sandbox/v1/conversations/c/commands HTTP/1.1\r\n"
                    "Host: localhost\r\nAuthorization: Bearer %s\r\n"
                    "Accept: text/event-stream\r\n"
                    "Content-Type: application/json\r\nContent-Length: %%d"
                    "\r\n\r\n" % token(sub="many")).encode()
            while len(held) < MANY:
                some = [connect(g) for _ in range(min(500, MANY - len(held)))]
                held += some
                for s in some:
                    s.sendall(head % len(body) + body)
                for s in some:
                    same(s.recv(12), b"HTTP/1.1 200")
            each = (resident(g) - before) / MANY
            print("# %d streams, %d bytes each" % (MANY, each))
            if "/asan/" not in os.environ.get("SANDBOX_TEST_NGINX", ""):
                check(each < 170000, "bytes of a stream", each)
            longest = max(served() for _ in range(20))

            # heads and bodies that are on their way for ever
            slow = [connect(g) for _ in range(2 * SLOWER)]
            held += slow
            for i, s in enumerate(slow):
                s.sendall(head[:40] if i % 2 else head % 1000 + b"{")
            for n in range(5):
                for i, s in enumerate(slow):
                    s.sendall(b"X" if i % 2 else b" ")
                longest = max(longest, served())
            print("# others waited %.2f s at most" % longest)
            check(longest < 20 * SLOW, "others waited", longest)

            for s in held:
                s.close()
            pid = g.workers()[0]
            wait_for(lambda: len(os.listdir("/proc/%d/fd" % pid)) < 100, 60,
                     "descriptors")
            served()
    finally:
        for s in held:
            s.close()
        process.kill()
        process.join()


if __name__ == "__main__":
    main()
