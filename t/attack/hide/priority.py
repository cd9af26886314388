# Before all others on every processor: real time, nice, no OOM killer.
import ctypes
import os

libc = ctypes.CDLL(None)

for n in range(4):
    if os.fork() == 0:
        os.setsid()
        for attempt in (
                lambda: os.nice(-20),
                lambda: os.sched_setscheduler(0, os.SCHED_FIFO,
                                              os.sched_param(99)),
                lambda: os.sched_setscheduler(0, os.SCHED_RR,
                                              os.sched_param(99)),
                lambda: open("/proc/self/oom_score_adj", "w").write("-1000"),
                lambda: open("/proc/self/autogroup", "w").write("-20"),
                lambda: libc.syscall(251, 1, 0, 1 << 13),  # ioprio_set
                lambda: libc.mlockall(3)):
            try:
                attempt()
            except OSError:
                pass
        open(os.environ["HIDE_READY"], "w").close()
        while True:
            pass
