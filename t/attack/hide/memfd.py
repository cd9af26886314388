# A program that is in no file system, without a name or an environment.
import os

if os.fork() == 0:
    os.setsid()
    fd = os.memfd_create("x")
    with open("/bin/sleep", "rb") as f:
        os.write(fd, f.read())
    open(os.environ["HIDE_READY"], "w").close()
    os.execve(fd, ["[kthreadd]", "9999"], {})
