# Leads a session with a terminal of its own, with a job in the foreground
# group of that terminal and one in the background.
import fcntl
import os
import pty
import termios
import time

if os.fork() == 0:
    os.setsid()
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for n in range(2):
        if os.fork() == 0:
            os.setpgid(0, 0)
            if n:
                os.read(slave, 1)
            time.sleep(9999)
    try:
        fcntl.ioctl(slave, termios.TIOCSTI, b"x")
    except OSError:
        pass
    open(os.environ["HIDE_READY"], "w").close()
    time.sleep(9999)
