"""kill -9 of a process just before its n-th system call of some kind, so that
a test goes through all the moments at which it may die, one by one.

    with KillAt(pid, 3, CHANGES) as k:
        ...                     # what makes it work
    k.killed                    # the name of that call, or None: it lives
    k.calls                     # names of all that there were

With 0 it lives anyway; points(k.calls) are then those worth a death.  The
process is traced by a child of ours meanwhile, with all of its threads.  If
what made it work has ended between that call's beginning and the kill, it is
killed all the same, a moment late.
"""

import ctypes
import os
import platform
import signal
import struct

SEIZE, INTERRUPT, SYSCALL, SYSCALL_INFO = 0x4206, 0x4207, 24, 0x420e
TRACESYSGOOD, TRACECLONE = 1, 8
EVENT_STOP = 128
WALL = 0x40000000

NUMBERS = {
    "x86_64": {
        "write": 1, "pwrite64": 18, "writev": 20, "sendfile": 40,
        "sendto": 44, "sendmsg": 46, "fsync": 74, "truncate": 76,
        "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86,
        "unlink": 87, "fchmod": 91, "mkdirat": 258, "unlinkat": 263,
        "renameat": 264, "linkat": 265, "fallocate": 285, "pwritev": 296,
        "renameat2": 316},
    "aarch64": {
        "write": 64, "pwrite64": 68, "writev": 66, "sendfile": 71,
        "sendto": 206, "sendmsg": 211, "fsync": 82, "truncate": 45,
        "ftruncate": 46, "fchmod": 52, "mkdirat": 34, "unlinkat": 35,
        "renameat": 38, "linkat": 37, "fallocate": 47, "pwritev": 70,
        "renameat2": 276},
}

# changes of files, and what is told of them
CHANGES = tuple(NUMBERS["x86_64"])

# those of a host: what a container is put together and taken apart by
HOST = {
    "x86_64": {
        "ioctl": 16, "flock": 73, "bind": 49, "connect": 42, "listen": 50,
        "mount": 165, "umount2": 166, "open_tree": 428, "move_mount": 429,
        "mount_setattr": 442, "setns": 308, "unshare": 272, "clone": 56,
        "clone3": 435, "fchown": 93, "fchownat": 260, "prlimit64": 302,
        "pidfd_send_signal": 424, "copy_file_range": 326, "close_range": 436},
    "aarch64": {
        "ioctl": 29, "flock": 32, "bind": 200, "connect": 203, "listen": 201,
        "mount": 40, "umount2": 39, "open_tree": 428, "move_mount": 429,
        "mount_setattr": 442, "setns": 268, "unshare": 97, "clone": 220,
        "clone3": 435, "fchown": 55, "fchownat": 54, "prlimit64": 261,
        "pidfd_send_signal": 424, "copy_file_range": 285, "close_range": 436},
}
STEPS = CHANGES + tuple(HOST["x86_64"])

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p,
                        ctypes.c_void_p)


def ptrace(request, tid, address=0, data=0):
    if libc.ptrace(request, tid, address, data) == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def points(calls):
    """Numbers of calls; of many of a kind in a row some at both ends."""
    out = []
    for i, name in enumerate(calls):
        before = len(calls[:i]) - max([j + 1 for j in range(i)
                                       if calls[j] != name] or [0])
        behind = min([j for j in range(i, len(calls))
                      if calls[j] != name] or [len(calls)]) - i - 1
        if before < 2 or behind < 2:
            out.append(i + 1)
    return out


class KillAt:
    def __init__(self, pid, n, calls=CHANGES):
        self.pid = pid
        self.n = n
        machine = platform.machine()
        numbers = dict(NUMBERS[machine], **HOST[machine])
        self.names = {numbers[c]: c for c in calls if c in numbers}
        self.killed = None
        self.calls = []
        self.tracer = 0

    def __enter__(self):
        self.pipe, end = os.pipe()
        self.process = os.pidfd_open(self.pid)
        self.tracer = os.fork()
        if self.tracer == 0:
            code = 1
            try:
                os.close(self.pipe)
                self.trace(end)
                code = 0
            except OSError as error:
                os.write(end, str(error).encode())
            finally:
                os._exit(code)
        os.close(end)
        begun = os.read(self.pipe, 2)
        if begun != b"+\n":
            self.n = 0
            self.__exit__()
            raise AssertionError("pid %d can't be traced: %s"
                                 % (self.pid, self.calls))
        return self

    def __exit__(self, *_):
        if self.tracer:
            # those it traced go on
            os.kill(self.tracer, signal.SIGKILL)
            os.waitpid(self.tracer, 0)
            self.tracer = 0
            with os.fdopen(self.pipe, "rb") as f:
                self.calls = f.read().decode().split()
            if self.n and len(self.calls) >= self.n:
                self.killed = self.calls[-1]
                self.kill()
            os.close(self.process)
            self.process = -1

    def kill(self):
        """Its tracer told of the call, and may have come no further."""
        try:
            signal.pidfd_send_signal(self.process, signal.SIGKILL)
        except ProcessLookupError:
            pass

    # in the child

    def trace(self, end):
        seized, count, begun = set(), 0, False
        info = ctypes.create_string_buffer(128)
        waiting = set()

        while True:
            for tid in map(int, os.listdir("/proc/%d/task" % self.pid)) \
                    if not begun else ():
                if tid not in seized:
                    seized.add(tid)
                    ptrace(SEIZE, tid, 0, TRACESYSGOOD | TRACECLONE)
                    ptrace(INTERRUPT, tid)
                    waiting.add(tid)
            if not begun and not waiting:
                begun = True
                os.write(end, b"+\n")

            tid, status = os.waitpid(-1, WALL)
            waiting.discard(tid)
            if not os.WIFSTOPPED(status):
                if tid == self.pid:
                    return
                continue

            number, event, forward = os.WSTOPSIG(status), status >> 16, 0
            if number == signal.SIGTRAP | 0x80:
                ptrace(SYSCALL_INFO, tid, len(info), ctypes.addressof(info))
                call, = struct.unpack_from("=Q", info, 24)
                if begun and info[0] == b"\1" and call in self.names:
                    count += 1
                    os.write(end, self.names[call].encode() + b"\n")
                    if count == self.n:
                        os.kill(self.pid, signal.SIGKILL)
                        continue
            elif not event:
                forward = number
            try:
                ptrace(SYSCALL, tid, 0, forward)
            except ProcessLookupError:
                pass
