"""What a service manager does for the runner: holds its socket, starts it
with LISTEN_FDS, hears what it tells, and never asks whether it still lives."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess

import gateway
from gateway import AGENT, CACHE, die_with_parent, wait_for

# descriptor 3 is the socket, and no other one of ours stays open
START = 'LISTEN_PID=$$ LISTEN_FDS=${fds:-1} exec "$@" 3<&%d %d<&-'


def activate(listener, command, **options):
    """Popen of a command that gets the socket as descriptor 3."""
    fd = fcntl.fcntl(listener, fcntl.F_DUPFD_CLOEXEC, 10)
    try:
        return subprocess.Popen(
            ["bash", "-c", START % (fd, fd), "start"] + command,
            pass_fds=[fd], stdin=subprocess.DEVNULL, **options)
    finally:
        os.close(fd)


class Service(gateway.Gateway):
    """A Gateway whose runner has a socket that outlives it."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.ephemeral = False
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.socket)
        shutil.chown(self.socket, "root", "www-data")
        os.chmod(self.socket, 0o660)
        self.listener.listen(4096)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.path("notify"))
        self.notify.setblocking(False)
        self.heard = []

    def prefix(self):
        """What the runner is started by."""
        return []

    def start_runner(self, wait=True):
        self.runner_number += 1
        log = self.path("logs/runner.%d.log" % self.runner_number)
        command = [gateway.RUNNER, "--socket", self.socket,
                   "--key-file", self.path("runner.key"),
                   "--state", self.state,
                   "--base", os.path.realpath(CACHE + "/base/current/rootfs"),
                   "--agent", AGENT, "--runtime-dir", self.path("agents"),
                   "--pool", str(self.pool), "--peer-user", "www-data",
                   "--socket-group", "www-data"] + self.runner_options
        if self.ephemeral:
            command.append("--ephemeral")
        self.heard = []
        with open(log, "wb") as out:
            self.runner = activate(
                self.listener, self.prefix() + command, stdout=out, stderr=out,
                env=dict(os.environ, NOTIFY_SOCKET=self.path("notify"),
                         WATCHDOG_USEC="20000000"),
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGINT))
        def ready():
            if self.runner.poll() is not None:
                raise AssertionError("the runner ended with %d: %s" % (
                    self.runner.returncode, self.read(log)[-3000:]))
            return "READY=1" in self.told()
        if wait:
            wait_for(ready, 60, "a ready runner")

    def told(self):
        """What the runner has said, of the one that was started last."""
        while True:
            try:
                data, _, _, _ = self.notify.recvmsg(4096)
            except BlockingIOError:
                return self.heard
            self.heard.append(data.decode())

    def stop(self, check=True):
        try:
            super().stop(check)
        finally:
            self.listener.close()
            self.notify.close()

    def sweep(self):
        self.ephemeral = True
        super().sweep()
