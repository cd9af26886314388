"""Packages for tests of uv: wheels that are made here, and an index of them on
the loopback of a sandbox, which has no other network."""

import io
import os
import zipfile

from gateway import TOP, wait_for

# what a sandbox with a network would have anyway
ONLINE = "env -u UV_OFFLINE UV_DEFAULT_INDEX=http://127.0.0.1:8123/simple/ "


def wheel(name, version="1.0"):
    """A module of that name that says 42."""
    out = io.BytesIO()
    info = "%s-%s.dist-info/" % (name, version)
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(name + ".py", "answer = 42\n")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: %s\n"
                   "Version: %s\n" % (name, version))
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: tests\n"
                   "Root-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "%s.py,,\n%sMETADATA,,\n%sWHEEL,,\n"
                   "%sRECORD,,\n" % (name, info, info, info))
    return out.getvalue()


def start(g, conversation, *names):
    """The index with those packages; its command's id, "index"."""
    files = "v1/conversations/" + conversation + "/fs/tmp/index/"
    for name in names:
        g.request("PUT", "%swheels/%s-1.0-py3-none-any.whl?root=/"
                  % (files, name), wheel(name))
    with open(os.path.join(TOP, "t/lib/loopback_index.py"), "rb") as f:
        g.request("PUT", files + "index.py?root=/", f.read())
    r = g.command(conversation, "python3 /tmp/index/index.py 8123 "
                  "/tmp/index/wheels", background=True, commandId="index")
    assert r.status == 202, r
    wait_for(lambda: g.run(conversation, "curl -sf 127.0.0.1:8123/simple/"
                           + names[0])["exitCode"] == 0, 20, "the index")


def stop(g, conversation):
    g.request("DELETE", "v1/conversations/%s/commands/index" % conversation)
