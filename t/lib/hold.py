"""Commands that run until a test lets them go: what is to be seen meanwhile
does not depend on how fast the machine is.

    t = held(lambda: g.run("c", HOLD))
    ...
    let_go(g, "c")
"""

import threading
import urllib.parse

import wire
from runner import session, tenant
from tap import check, same

HOLD = "until [ -e go ]; do sleep 0.02; done; rm go"


class Thread(threading.Thread):
    """Its function's value, or what it raised, is what result() gives."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self.function = function
        self.value = self.error = None
        self.start()

    def run(self):
        try:
            self.value = self.function()
        except Exception as error:
            self.error = error

    def result(self, seconds=200):
        self.join(seconds)
        check(not self.is_alive(), "no answer within %d s" % seconds)
        if self.error is not None:
            raise self.error
        return self.value


held = Thread


def let_go(g, conversation, **options):
    """Of a gateway."""
    r = g.request("PUT", "v1/conversations/%s/fs/go"
                  % urllib.parse.quote(conversation, safe=":"), b"", **options)
    same(r.status, 201, "letting it go")


def let_go_of(r, name, whose=None):
    """Of a runner, by the wire."""
    answer = r.call(wire.FILE_WRITE, name, wire.fields(("PATH", "go")),
                    tenant=tenant(whose or name))
    same(answer.code, None, "letting it go")
