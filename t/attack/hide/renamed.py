# A kernel thread by its name; environment and arguments overwritten.
import ctypes
import os
import time

libc = ctypes.CDLL(None)
ready = os.environ["HIDE_READY"]

if os.fork() == 0:
    libc.prctl(15, b"kworker/0:1-ev", 0, 0, 0)
    with open("/proc/self/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    # arg_start, arg_end, env_start, env_end
    for first, last in ((45, 46), (47, 48)):
        begin, end = int(fields[first]), int(fields[last])
        if 0 < begin < end:
            ctypes.memset(begin, 0, end - begin)
    open(ready, "w").close()
    while True:
        time.sleep(9999)
