"""A small TAP runner for the system tests.

A test is a function with the decorator `test("group/slug")`.  It fails by
`assert`, an exception, or a `check(...)` that does not hold; it is skipped by
`skip("reason")`.  `main()` runs them in order of definition, or those named on
the command line, each under a deadline of its own, so that nothing hangs.
Those that mostly wait, and disturb nobody, may be `beside` each other: all that
follow one another with it run at the same time.

A test that can hold on one backend only says which, and why, by a word that
stands in backticks in the first column of a table of docs/backends.md:

    @test("leftovers/killed", backends="local", why="runner")

On the other one it is skipped, with that row.  A file of which that is so says
it once: backends("local", why="runner").

What fails somewhere else is to be understood from what is printed: below a test
that failed come the last lines of all logs that it can have written, told of by
log() and log_ends().
"""

import os
import re
import signal
import sys
import threading
import time
import traceback

TESTS = []
SANITIZED = bool(os.environ.get("SANDBOX_REPORTS"))  # agent, runner
LEAST = 300         # seconds, for a machine with other things to do
SLOW = int(os.environ.get("SANDBOX_TEST_SLOW") or 1)    # under valgrind: 20
BACKEND = os.environ.get("BACKEND") or "local"
BACKENDS = os.path.dirname(os.path.abspath(__file__)) \
    + "/../../docs/backends.md"

whole = None        # why no test of this file can hold on this backend


class Skip(Exception):
    pass


class Deadline(BaseException):
    """Not an Exception, so that no `except Exception` of a test eats it."""


def test(name, seconds=300, beside=False, backends=None, why=None):
    reason = elsewhere(backends, why)

    def no():
        skip(reason)

    def keep(function):
        TESTS.append((name, max(seconds, LEAST), no if reason else function,
                      beside))
        return function
    return keep


def elsewhere(backends, why):
    """Why that holds on other backends only; None where it holds."""
    if backends is None:
        return None
    with open(BACKENDS, encoding="utf-8") as f:
        row = re.search(r"(?m)^\| ([^|]*?) ?\(`%s`\)" % re.escape(why),
                        f.read())
    if not row:
        raise AssertionError("docs/backends.md has no row `%s`" % why)
    if BACKEND in backends.split():
        return None
    return "on the %s backend only, `%s`: %s" % (
        " and ".join(backends.split()), why, row.group(1))


def backends(names, why):
    """Of all tests of this file."""
    global whole
    whole = elsewhere(names, why)


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


LOG_LINES, LOG_BYTES, LOG_MOST = 20, 65536, 6
LOG_DULL = re.compile(r"closed keepalive|\[notice\].*(process|exit|signal)")

logs = {}           # what is there: path, title
ended = []          # of what has gone meanwhile: title, its last lines


def log(path, title):
    logs[path] = title


def log_ends(path):
    """Before what wrote it ends, and says so at length."""
    if path in logs:
        ended.append((logs.pop(path), last_lines(path)))
        del ended[:-LOG_MOST]


def last_lines(path):
    try:
        with open(path, "rb") as f:
            f.seek(max(0, os.path.getsize(path) - LOG_BYTES))
            text = f.read().decode(errors="replace")
    except OSError:
        return []
    return [line[:240] for line in text.splitlines()
            if not LOG_DULL.search(line)][-LOG_LINES:]


def print_logs():
    there = [(title, last_lines(path)) for path, title in list(logs.items())]
    for title, lines in (ended + there)[-LOG_MOST:]:
        for line in lines:
            print("#   %s: %s" % (title, line))


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


class Beside:
    """A test in a thread: run() is for its end, and raises what it did."""

    def __init__(self, seconds, function):
        self.seconds = seconds
        self.function = function
        self.error = None
        self.begun = self.ended = time.monotonic()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        try:
            self.function()
        except BaseException as error:
            self.error = error
        self.ended = time.monotonic()

    def run(self):
        until = self.begun + self.seconds * SLOW
        self.thread.join(max(0, until - time.monotonic()))
        if self.thread.is_alive():
            self.ended = time.monotonic()
            raise Deadline("not done after %d s" % self.seconds)
        if self.error is not None:
            raise self.error


class Alone:
    """A test in the main thread."""

    def __init__(self, seconds, function):
        self.seconds = seconds
        self.function = function
        self.begun = self.ended = 0

    def run(self):
        self.begun = time.monotonic()
        ended.clear()
        try:
            run_one(self.seconds, self.function)
        finally:
            self.ended = time.monotonic()


def one_by_one(tests):
    """Name and test of each, begun when it is its turn."""
    i = 0
    while i < len(tests):
        n = i
        while n < len(tests) and tests[n][3]:
            n += 1
        if n - i < 2:
            n = i + 1
            yield tests[i][0], Alone(*tests[i][1:3])
        else:
            yield from [(name, Beside(seconds, function))
                        for name, seconds, function, _ in tests[i:n]]
        i = n


def main(setup=None, teardown=None):
    """Runs the tests of this file and ends the process."""
    # a TERM must run the teardown as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    wanted = sys.argv[1:]
    tests = [t for t in TESTS if not wanted or t[0] in wanted]
    if whole:
        print("ok 1 - all %d tests # SKIP %s\n1..1" % (len(tests), whole))
        sys.exit(0)
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
                print_logs()
        for number, (name, one) in enumerate(one_by_one(tests), 1):
            try:
                one.run()
            except Skip as reason:
                print("ok %d - %s # SKIP %s" % (number, name, reason))
            except (Exception, Deadline) as error:
                failed += 1
                print("not ok %d - %s" % (number, name))
                text = str(error) if isinstance(error, AssertionError) \
                    else "%s: %s" % (type(error).__name__, error)
                for line in text.splitlines():
                    print("#   " + line)
                steps = traceback.extract_tb(error.__traceback__)
                while len(steps) > 1 and steps[0].filename == __file__:
                    steps.pop(0)
                for step in steps:
                    print("#   at %s:%d %s" % (step.filename, step.lineno,
                                               step.line))
                print_logs()
            else:
                print("ok %d - %s" % (number, name))
            if one.ended - one.begun > 3:
                print("# %.1f s" % (one.ended - one.begun))
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
                print_logs()

    print("1..%d" % number)
    sys.exit(1 if failed or not number else 0)
