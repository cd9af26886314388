# Ignores and blocks every signal that can be.
import os
import signal
import time

if os.fork() == 0:
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    open(os.environ["HIDE_READY"], "w").close()
    while True:
        time.sleep(9999)
