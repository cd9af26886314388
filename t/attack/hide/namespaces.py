# Namespaces of its own, and those of process 1, where the kernel lets it.
import ctypes
import os
import time

libc = ctypes.CDLL(None, use_errno=True)
FLAGS = (0x10000000, 0x20000000, 0x02000000, 0x00020000, 0x40000000, 0x80)

if os.fork() == 0:
    os.setsid()
    for flag in FLAGS:                   # user, pid, cgroup, mnt, net, time
        libc.unshare(flag | 0x10000000)
        libc.unshare(flag)
    for name in ("user", "pid", "cgroup", "mnt"):
        try:
            libc.setns(os.open("/proc/1/ns/" + name, os.O_RDONLY), 0)
        except OSError:
            pass
    # clone() with each of them, by the raw call: it must not share our stack
    for flag in FLAGS:
        if libc.syscall(56, flag | 17, 0, 0, 0, 0) == 0:
            time.sleep(9999)
    if os.fork() == 0:
        open(os.environ["HIDE_READY"], "w").close()
        time.sleep(9999)
    time.sleep(9999)
