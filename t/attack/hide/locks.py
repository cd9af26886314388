# Asleep in the kernel: a lock, the end of a FIFO, a full pipe, a socket.
import fcntl
import os
import socket
import time

lock = open("/tmp/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
os.path.exists("/tmp/fifo") or os.mkfifo("/tmp/fifo")
a, b = socket.socketpair()
r, w = os.pipe()

for work in (lambda: fcntl.flock(open("/tmp/lock", "w"), fcntl.LOCK_EX),
             lambda: fcntl.lockf(open("/tmp/lock", "w"), fcntl.LOCK_EX),
             lambda: open("/tmp/fifo"),
             lambda: os.write(w, bytes(1 << 22)),
             lambda: a.sendall(bytes(1 << 22)),
             lambda: a.recv(1)):
    if os.fork() == 0:
        os.setsid()
        work()
        time.sleep(9999)

time.sleep(0.05)
open(os.environ["HIDE_READY"], "w").close()
if os.fork() == 0:
    time.sleep(9999)                     # it has the lock
