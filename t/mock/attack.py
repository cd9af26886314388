#!/usr/bin/env python3
"""What somebody may try who has good tokens, or none, and patience."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, token, wait_for                 # noqa: E402
from jose import Key, jwks                                   # noqa: E402
from key_server import KeyServer                             # noqa: E402
from tap import check, main, same, test                      # noqa: E402


def keys(url):
    return """
        location /keys/ {
            sandbox on;
            sandbox_jwks_url %s interval=1s cooldown=1s;
        }
    """ % url


def padded(key):
    """A set of some pages."""
    return json.dumps(dict(json.loads(jwks(key)), x="x" * 20000))


@test("attack/keyset-room", seconds=120)
def keyset_room():
    """Tokens that hold one place on each page of the zone, and other sizes on
    what pages are left: a set of keys has its room all the same, so a key
    that was withdrawn is refused."""
    old, new = Key("RS256", kid="old"), Key("RS256", kid="new")
    with KeyServer(padded(old)) as server:
        g = Gateway(runner=None, ready=False, workers=1, zone="192k",
                    server=keys(server.url),
                    location="add_header X-Cache $sandbox_token_cache always;"
                             "add_header X-Evictions"
                             " $sandbox_token_cache_evictions always;")
        g.expected.append("[crit] ")    # there is no runner
        with g:
            def status(key):
                return g.request("GET", "/keys/v1/limits",
                                 token=key.token()).status

            wait_for(lambda: status(old) == 200, 20, "the first set")
            c = g.connect()

            def ask(text):
                r = g.request("GET", "v1/limits", token=text, connection=c)
                same(r.status, 200)
                return r

            small = [token(sub="s%03d" % n) for n in range(500)]
            for text in small:
                ask(text)
            for text in small[::16]:
                ask(text)
            for n in range(250):
                r = ask(token(sub="%03d" % n + "x" * 200, iss="y" * 300))
            check(int(r.headers["X-Evictions"]) > 0, "the cache is not full")

            server.answer(padded(new))
            wait_for(lambda: status(new) == 200, 20, "the new set")
            same(status(old), 401, "the key that was withdrawn")
            check("there is no room" not in g.error_log, g.error_log[-500:])

            # and tokens are known again from the second time on
            ask(small[0])
            same(ask(small[0]).headers["X-Cache"], "hit")
            c.close()


main()
