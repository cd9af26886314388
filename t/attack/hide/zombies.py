# Makes zombies that nobody waits for, and goes on when there are fewer.
import os
import time

if os.fork() == 0:
    os.setsid()
    for n in range(60):
        if os.fork() == 0:
            os._exit(0)
    open(os.environ["HIDE_READY"], "w").close()
    while True:
        try:
            if os.fork() == 0:
                os._exit(0)
        except OSError:
            pass
        time.sleep(0.05)
