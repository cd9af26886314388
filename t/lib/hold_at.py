"""Holds a process in the middle of its system calls, until a test lets it go:
what comes meanwhile has come before its next step.

    h = HoldAt(pid, silent)
    ...                         # what makes it work
    h.hear()                    # it stands there now
    h.go()

`there(call, value, first)` is asked at each call, in a child of ours that
traces the process: before it with a value of None, and afterwards; `first` is
the first argument.
"""

import ctypes
import errno
import os
import platform
import select
import signal
import socket
import struct

from kill_at import INTERRUPT, SEIZE, SYSCALL, SYSCALL_INFO
from kill_at import TRACESYSGOOD, WALL, ptrace
from tap import check, same

RECEIVE = {"x86_64": 45, "aarch64": 207}[platform.machine()]
GETFD = 438                             # of a pidfd


def silent(call, value, first):
    """It has found a connection silent."""
    return call == RECEIVE and value == -errno.EAGAIN


class Reading:
    """It is about to read something of which that is true."""

    def __init__(self, pid, true):
        self.pidfd = os.pidfd_open(pid)
        self.true = true
        self.libc = ctypes.CDLL(None, use_errno=True)

    def __call__(self, call, value, first):
        return call == RECEIVE and value is None \
            and self.true(self.peek(first))

    def peek(self, number):
        fd = self.libc.syscall(GETFD, self.pidfd, number, 0)
        if fd < 0:
            return b""
        with socket.socket(fileno=fd) as sock:
            try:
                return sock.recv(4096, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except OSError:
                return b""


class HoldAt:
    def __init__(self, pid, there):
        self.pid = pid
        self.there = there
        self.said, said = os.pipe()
        turn, self.turn = os.pipe()
        self.tracer = os.fork()
        if self.tracer == 0:
            try:
                self.trace(said, turn)
            finally:
                os._exit(0)             # it goes on then
        os.close(said)
        os.close(turn)
        same(self.tell(), b"traced")

    def tell(self):
        check(select.select([self.said], [], [], 100)[0], "not a word")
        return os.read(self.said, 100)

    def hear(self):
        same(self.tell(), b"there", "what it does")

    def go(self):
        os.close(self.turn)
        os.waitpid(self.tracer, 0)
        os.close(self.said)

    def trace(self, said, turn):
        os.close(self.turn)
        info = ctypes.create_string_buffer(128)
        call, first, traced = 0, 0, False
        ptrace(SEIZE, self.pid, 0, TRACESYSGOOD)
        ptrace(INTERRUPT, self.pid)
        while True:
            _, status = os.waitpid(self.pid, WALL)
            if not os.WIFSTOPPED(status):
                return
            forward = 0
            if not traced:
                traced = True
                os.write(said, b"traced")
            elif os.WSTOPSIG(status) == signal.SIGTRAP | 0x80:
                ptrace(SYSCALL_INFO, self.pid, len(info),
                       ctypes.addressof(info))
                value, argument = struct.unpack_from("=qq", info, 24)
                if info[0] == b"\1":
                    call, first, value = value, argument, None
                if self.there(call, value, first):
                    os.write(said, b"there")
                    os.read(turn, 1)
                    return
            elif not status >> 16:
                forward = os.WSTOPSIG(status)
            ptrace(SYSCALL, self.pid, 0, forward)
