"""A small TAP runner for the system tests.

A test is a function with the decorator `test("group/slug")`.  It fails by
`assert`, an exception, or a `check(...)` that does not hold; it is skipped by
`skip("reason")`.  `main()` runs them in order of definition, or those named on
the command line, each under a deadline of its own, so that nothing hangs.
"""

import os
import signal
import sys
import time
import traceback

TESTS = []
SLOW = int(os.environ.get("SANDBOX_TEST_SLOW") or 1)    # under valgrind: 20


class Skip(Exception):
    pass


class Deadline(BaseException):
    """Not an Exception, so that no `except Exception` of a test eats it."""


def test(name, seconds=120):
    def keep(function):
        TESTS.append((name, seconds, function))
        return function
    return keep


def skip(reason):
    raise Skip(reason)


def check(condition, what, *details):
    if not condition:
        raise AssertionError(" ".join([what] + [short(d) for d in details]))


def same(got, expected, what=""):
    if got != expected:
        raise AssertionError("%s: got %s, expected %s"
                             % (what or "value", short(got), short(expected)))


def short(value, most=600):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else (
        text[:most // 2] + " [...] " + text[-most // 2:])


def run_one(seconds, function):
    def expired(number, frame):
        raise Deadline("not done after %d s" % seconds)

    old = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds * SLOW)
    try:
        function()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def main(setup=None, teardown=None):
    """Runs the tests of this file and ends the process."""
    # a TERM must run the teardown as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    wanted = sys.argv[1:]
    tests = [t for t in TESTS if not wanted or t[0] in wanted]
    failed = number = 0
    out = sys.stdout

    try:
        if setup:
            try:
                setup()
            except Exception:
                failed = number = 1
                tests = []
                print("not ok 1 - setup")
                for line in traceback.format_exc().splitlines():
                    print("#   " + line)
        for number, (name, seconds, function) in enumerate(tests, 1):
            begun = time.monotonic()
            try:
                run_one(seconds, function)
            except Skip as reason:
                print("ok %d - %s # SKIP %s" % (number, name, reason))
            except (Exception, Deadline) as error:
                failed += 1
                print("not ok %d - %s" % (number, name))
                text = str(error) if isinstance(error, AssertionError) \
                    else "%s: %s" % (type(error).__name__, error)
                for line in text.splitlines():
                    print("#   " + line)
                for step in traceback.extract_tb(error.__traceback__)[2:]:
                    print("#   at %s:%d %s" % (step.filename, step.lineno,
                                               step.line))
            else:
                print("ok %d - %s" % (number, name))
            if time.monotonic() - begun > 3:
                print("# %.1f s" % (time.monotonic() - begun))
            out.flush()
    finally:
        if teardown:
            try:
                teardown()
            except Exception:
                failed += 1
                number += 1
                print("not ok %d - teardown" % number)
                for line in traceback.format_exc().splitlines():
                    print("#   " + line)

    print("1..%d" % number)
    sys.exit(1 if failed or not number else 0)
