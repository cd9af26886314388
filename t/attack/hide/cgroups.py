# Wants to move to another control group, by file, by mount, by clone3().
import ctypes
import glob
import os
import time

libc = ctypes.CDLL(None, use_errno=True)


class Args(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack",
        "stack_size", "tls", "set_tid", "set_tid_size", "cgroup")]


if os.fork() == 0:
    os.setsid()
    os.makedirs("/tmp/cg", exist_ok=True)
    for kind in (b"cgroup2", b"cgroup"):
        libc.mount(b"none", b"/tmp/cg", kind, 0, None)
    places = ["/sys/fs/cgroup", "/tmp/cg", "/proc/1/cwd", "/proc/1/root/sys"]
    for place in places:
        for path in glob.glob(place + "/**/cgroup.procs", recursive=True):
            try:
                with open(path, "w") as f:
                    f.write(str(os.getpid()))
            except OSError:
                pass
        try:
            os.mkdir(place + "/mine")
        except OSError:
            pass
    # any descriptor of ours or of process 1 that may be a group
    for path in glob.glob("/proc/self/fd/*") + glob.glob("/proc/1/fd/*"):
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        args = Args(flags=0x200000000, exit_signal=17, cgroup=fd)
        if libc.syscall(435, ctypes.byref(args), ctypes.sizeof(args)) == 0:
            time.sleep(9999)
        os.close(fd)
    open(os.environ["HIDE_READY"], "w").close()
    time.sleep(9999)
