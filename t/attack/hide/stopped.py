# Stopped processes: a child, its parent, and a whole stopped group.
import os
import signal
import time


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(9999)


pids = []
for n in range(4):
    pid = os.fork()
    if pid == 0:
        if n % 2:
            os.setpgid(0, 0)
        if os.fork() == 0:
            stopped()
        os.kill(0 if n % 2 else os.getpid(), signal.SIGSTOP)
        time.sleep(9999)
    pids.append(pid)

for pid in pids:
    os.waitpid(pid, os.WUNTRACED)
open(os.environ["HIDE_READY"], "w").close()
