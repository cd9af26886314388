#!/usr/bin/env python3
"""`make install`: what is where, nginx with the installed configuration, and
the runner as its unit starts it."""

import os
import re
import shutil
import shlex
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import gateway                                               # noqa: E402
from gateway import BUILD, TOP                               # noqa: E402
from service import Service                                  # noqa: E402
from tap import backends, check, main, same, skip, test      # noqa: E402

backends("local", why="runner")

DOC = "usr/share/doc/libnginx-mod-http-sandbox"
FILES = {
    "usr/lib/nginx/modules/ngx_http_sandbox_module.so": 0o644,
    "usr/sbin/sandbox-runner": 0o755,
    "usr/bin/sandboxctl": 0o755,
    "usr/lib/sandbox/sandbox-agent": 0o755,
    "usr/lib/sandbox/sandbox-egress": 0o755,
    "usr/share/nginx/modules-available/mod-http-sandbox.conf": 0o644,
    "usr/lib/systemd/system/sandbox-runner.service": 0o644,
    "usr/lib/systemd/system/sandbox-dagger.service": 0o644,
    "usr/lib/systemd/system/sandbox-runner.socket": 0o644,
    "usr/lib/systemd/system/nginx.service.d/sandbox.conf": 0o644,
    "usr/lib/tmpfiles.d/sandbox-runner.conf": 0o644,
    DOC + "/examples/sandbox.conf": 0o644,
    DOC + "/examples/sandbox-dagger.conf": 0o644,
    DOC + "/copyright": 0o644,
    "etc/nginx/snippets/sandbox.conf": 0o644,
}
folder = None


def start():
    global folder
    folder = tempfile.mkdtemp(prefix="sandbox-install.")
    os.chmod(folder, 0o755)
    make("install")


def stop():
    shutil.rmtree(folder)


def make(target):
    done = subprocess.run(["make", "-C", TOP, "BUILD=" + BUILD,
                           "DESTDIR=%s/dest" % folder, target],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    same(done.returncode, 0, done.stdout.decode())


def installed():
    top = folder + "/dest"
    return {os.path.relpath(os.path.join(path, name), top):
            stat.S_IMODE(os.stat(os.path.join(path, name)).st_mode)
            for path, _, names in os.walk(top) for name in names}


@test("install/files")
def files():
    same(installed(), FILES)
    for path, _, _ in os.walk(folder + "/dest"):
        same(stat.S_IMODE(os.stat(path).st_mode), 0o755, path)
    make("install")
    same(installed(), FILES, "a second time")


# The system as it is, with what is installed above it, in mounts that nobody
# else sees; all that is written is gone with them.

ROOT = """
set -e
cd %s
mount -t tmpfs tmpfs mnt
mkdir mnt/dest mnt/u mnt/w mnt/root
cp -a dest/. mnt/dest
mount -t overlay overlay -o lowerdir=mnt/dest:/,upperdir=mnt/u,workdir=mnt/w \
    mnt/root
mount --rbind /proc mnt/root/proc
mount --rbind /dev mnt/root/dev
exec chroot mnt/root /bin/bash -c "$1"
"""


def own_mounts():
    if subprocess.run(["unshare", "--mount", "true"],
                      stderr=subprocess.DEVNULL).returncode != 0:
        skip("there are no mounts of our own here (a bare chroot)")


def in_root(script):
    own_mounts()
    os.makedirs(folder + "/mnt", exist_ok=True)
    return subprocess.run(
        ["unshare", "--mount", "bash", "-c", ROOT % folder, "root", script],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)


@test("install/nginx")
def nginx():
    done = in_root(r"""
        set -e
        ln -s /usr/share/nginx/modules-available/mod-http-sandbox.conf \
            /etc/nginx/modules-enabled/50-mod-http-sandbox.conf
        openssl genrsa 2048 2> /dev/null \
            | openssl rsa -pubout -out /etc/nginx/sandbox-issuer.pem 2> /dev/null
        rm -rf /etc/nginx/sites-enabled/* /var/lib/nginx/sandbox
        echo 'server { listen 127.0.0.1:1; include snippets/sandbox.conf; }' \
            > /etc/nginx/conf.d/test.conf
        echo WITHOUT A KEY
        nginx -t && exit 1
        echo WITH A KEY
        sandbox-runner --make-key /etc/nginx/sandbox-runner.key
        stat -c '%a %U %s' /etc/nginx/sandbox-runner.key
        nginx -t
        stat -c 'store %a' /var/lib/nginx/sandbox
        cp """ + "/" + DOC + r"""/examples/sandbox.conf /etc/nginx/conf.d/
        sed -i 's/listen 8080/listen 127.0.0.1:2/' /etc/nginx/conf.d/sandbox.conf
        rm /etc/nginx/conf.d/test.conf
        nginx -t
        cp """ + "/" + DOC + r"""/examples/sandbox-dagger.conf \
            /etc/nginx/conf.d/sandbox.conf
        sed -i 's/listen 8080/listen 127.0.0.1:2/
                s/listen 127.0.0.1:5000/listen 127.0.0.1:3/' \
            /etc/nginx/conf.d/sandbox.conf
        mkdir -p /var/cache/sandbox/registry
        printf 'sha256:%064d' 0 > /var/cache/sandbox/registry/digest
        nginx -t
        sandboxctl --version > /dev/null || sandboxctl --help > /dev/null
    """)
    text = done.stdout.decode()
    same(done.returncode, 0, text)
    before, with_key = text.split("WITH A KEY")
    check("/etc/nginx/sandbox-runner.key" in before, "what is missing", text)
    check("600 root 65" in with_key, "the key", text)
    check("store 700" in with_key, "the store", text)
    same(with_key.count("test is successful"), 3, text)


@test("install/units")
def units():
    if not shutil.which("systemd-analyze"):
        skip("there is no systemd-analyze here to look at the units")
    done = in_root(r"""
        for unit in sandbox-runner.socket sandbox-runner.service \
                sandbox-dagger.service nginx.service; do
            systemd-analyze verify --man=no $unit
        done
        echo VERIFIED
        rm -rf /run/sandbox
        systemd-tmpfiles --create sandbox-runner.conf || exit 1
        stat -c '%a %U %n' /run/sandbox /var/lib/sandbox
    """)
    text = done.stdout.decode()
    same(done.returncode, 0, text)
    # others' units are none of our business
    told, _, rest = text.partition("VERIFIED")
    same([line for line in told.splitlines() if "sandbox" in line], [])
    check("711 root /run/sandbox\n700 root /var/lib/sandbox\n" in rest, text)


def unit(name):
    """Its settings, continued lines joined."""
    with open(folder + "/dest/usr/lib/systemd/system/" + name) as f:
        text = f.read().replace("\\\n", " ")
    return dict(re.findall(r"(?m)^([A-Z]\w+)=(.*)", text))


@test("install/socket-and-service-agree")
def agree():
    service, socket = unit("sandbox-runner.service"), \
        unit("sandbox-runner.socket")
    line = shlex.split(service["ExecStart"])
    same(line[line.index("--socket") + 1], socket["ListenStream"])
    key = line[line.index("--key-file") + 1]
    same(shlex.split(socket["ExecStartPre"])[-1], key)
    with open(folder + "/dest/etc/nginx/snippets/sandbox.conf") as f:
        text = f.read()
    check("unix:%s;" % socket["ListenStream"] in text, "nginx's socket", text)
    check("sandbox_runner_key %s;" % key in text, "nginx's key", text)
    for name in line:
        if name.startswith("/usr/"):
            check(name[1:] in FILES, "not installed", name)
    same((service["KillMode"], service["Delegate"]), ("process", "yes"))
    # the owner of sessions, and what nginx has by default
    owner = shlex.split(unit("sandbox-dagger.service")["ExecStart"])
    with open(folder + "/dest/" + DOC + "/examples/sandbox-dagger.conf") as f:
        text = f.read()
    for option, line in (("--socket", "sandbox_runner unix:%s;"),
                         ("--key-file", "sandbox_runner_key %s;")):
        value = owner[owner.index(option) + 1]
        check(line % value in text, option, value)
    same(owner[-2:], ["--dagger", "$SANDBOX_DAGGER_OPTIONS"])
    same((socket["SocketMode"], socket["DirectoryMode"]), ("0660", "0711"))


class Hardened(Service):
    """The runner under what its unit says, as far as no systemd is needed."""

    def prefix(self):
        names = re.findall(r"CAP_(\w+)",
                           unit("sandbox-runner.service")
                           ["CapabilityBoundingSet"])
        check(len(names) > 10, "capabilities", names)
        # what a kernel does not know it does not give either
        return ["unshare", "--mount", "--propagation", "slave", "bash", "-c",
                """set -e
                for d in /usr /etc /boot; do
                    [ ! -d $d ] || { mount --bind $d $d
                                     mount -o remount,bind,ro $d; }
                done
                mount -t tmpfs -o ro,mode=0 tmpfs /home
                exec "$@"
                """, "hardened",
                "setpriv", "--no-new-privs", "--bounding-set",
                ",".join("-" + name.lower() for name in names)]


@test("install/unit-hardening", seconds=200)
def hardening():
    """All that a sandbox does works under the unit's restrictions, and they
    are in force."""
    own_mounts()
    for option in ("ProtectSystem", "ProtectHome", "NoNewPrivileges"):
        check(unit("sandbox-runner.service").get(option), option)
    with Hardened(pool=1) as g:
        with open("/proc/%d/status" % g.runner.pid) as f:
            status = f.read()
        check("NoNewPrivs:\t1" in status, "new privileges")
        same(int(re.search(r"CapBnd:\s+(\w+)", status).group(1), 16)
             & (1 << 16 | 1 << 25 | 1 << 13), 0, "SYS_MODULE, SYS_TIME, "
             "NET_RAW")
        same(g.output("hard", "id -un; python3 -c 'import numpy; print(1)'; "
                      "(sleep 1000 > /dev/null 2>&1 &); touch /tmp/x; echo ok"),
             "sandbox\n1\nok\n")
        r = g.run("hard", "python3 -c 'bytearray(300 << 20)'; "
                  "head -c 20M /dev/zero > big; ls -s big")
        check("big" in r["stdout"], "got", r)
        same(g.run("hard", "sleep 60", timeoutSeconds=1)["outcome"],
             "timeout")
        pid = g.agent("hard")
        g.kill_runner()
        g.start_runner()
        same(g.agent("hard"), pid, "taken over")
        same(g.output("hard", "pgrep -c sleep"), "1\n")
        same(g.delete("hard").status, 204)


@test("install/removed")
def removed():
    make("uninstall")
    same(set(installed()), {"etc/nginx/snippets/sandbox.conf"}, "what stays")


if __name__ == "__main__":
    gateway.OPENAPI = False
    main(start, stop)
