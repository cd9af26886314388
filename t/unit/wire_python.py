#!/usr/bin/env python3
"""The Python wire protocol of the tests agrees with src/wire, and with
itself: what is written is read back."""

import os
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../lib")

import wire                                                    # noqa: E402
from tap import check, main, same, test                        # noqa: E402


@test("wire/header")
def header():
    same(wire.differences(HERE + "/../../src/wire/sandbox_wire.h"), [])


@test("wire/preamble")
def preamble():
    a = wire.Preamble(wire.COMMAND, wire.FRESH, 7, wire.CHUNKED, 2 ** 63,
                      b"k" * 32, b"s" * 32, b"t" * 16, 1, 2, 3, 4, base=5)
    same(len(a.encode()), 128)
    same(vars(wire.Preamble.decode(a.encode())), vars(a))
    for at in (0, 11):
        bad = bytearray(a.encode())
        bad[at] ^= 4
        try:
            wire.Preamble.decode(bytes(bad))
        except wire.Bad:
            continue
        check(False, "byte %d changed is read" % at)


@test("wire/fields")
def some_fields():
    pairs = [("COMMAND", b"echo hi"), ("ENV", b"A=1"), ("ENV", b"B="),
             ("WALL_MS", 5)]
    data = wire.fields(*pairs)
    same(wire.read_fields(data), pairs)
    for cut in range(1, len(data)):
        try:
            whole = wire.read_fields(data[:cut])
            same(wire.fields(*whole), data[:cut])
        except wire.Bad:
            pass


@test("wire/answer")
def answer():
    a, b = socket.socketpair()
    b.sendall(wire.frame(wire.PING_FRAME)
              + wire.frame(wire.HEAD, wire.fields(("STATUS", 200)))
              + wire.frame(wire.STDOUT, struct.pack(">Q", 1) + b"out")
              + wire.frame(wire.GAP, struct.pack(">QBQ", 2, 2, 9))
              + wire.frame(wire.STDERR, struct.pack(">Q", 3) + b"err")
              + wire.frame(wire.RESULT, wire.fields(("OUTCOME", 0))))
    b.close()
    got = wire.Client("").answer(a)
    same((got.pings, got.stdout, got.stderr, got.gaps, got.outcome),
         (1, b"out", b"err", [(2, 9, 3)], "exit"))


@test("wire/cut-is-lost")
def cut():
    for end in (b"", wire.frame(wire.HEAD), b"\0", b"\0\0\0\x09\x07abc"):
        a, b = socket.socketpair()
        b.sendall(end)
        b.close()
        try:
            got = wire.Client("").answer(a)
        except wire.Lost:
            continue
        check(False, "a cut answer was taken:", got)


main()
