# Stops and wakes, from a session of its own, everything that it can.
import os
import signal
import time

if os.fork() == 0:
    os.setsid()
    open(os.environ["HIDE_READY"], "w").close()
    while True:
        for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGTSTP):
            for name in os.listdir("/proc"):
                if name.isdigit() and int(name) != os.getpid():
                    try:
                        os.kill(int(name), number)
                    except OSError:
                        pass
        time.sleep(0.001)
