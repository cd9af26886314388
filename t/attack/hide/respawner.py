# Two that watch each other by pidfd, and a third that watches a file by
# inotify like cron: whoever ends is started anew.
import ctypes
import os
import select

libc = ctypes.CDLL(None)
TABLE = "/tmp/crontab"


def start(work, *arguments):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            work(*arguments)
        finally:
            os._exit(1)
    return pid


def watch(pid):
    while True:
        poll = select.poll()
        poll.register(os.pidfd_open(pid), select.POLLIN)
        poll.poll()
        pid = start(watch, os.getpid())


def cron():
    fd = libc.inotify_init()
    libc.inotify_add_watch(fd, TABLE.encode(), 0x0002 | 0x0400 | 0x0008)
    open(os.environ["HIDE_READY"], "w").close()
    while True:
        os.read(fd, 4096)
        start(watch, os.getpid())


open(TABLE, "w").close()
first = start(watch, os.getpid())
start(watch, first)
start(cron)
