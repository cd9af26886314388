#!/usr/bin/env python3
"""docs/jwt-faults.md: each of the 46 faults names tests, and they exist."""

import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = HERE + "/../.."
sys.path.insert(0, HERE + "/../lib")

from tap import check, main, same, test                        # noqa: E402


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def rows():
    """Number and what is named for it, of each row of the table."""
    return [(int(n), re.findall(r"`([^`]+: [^`]+)`", tests)) for n, tests in
            re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$",
                       read("docs/jwt-faults.md"), re.M)]


def exists(path, name):
    """A test of that name: not just the word somewhere in the file."""
    text = read(path)
    if path.startswith("t/mock/"):
        return '@test("%s"' % name in text
    if path.endswith(".t"):
        return re.search("^=== %s: " % re.escape(name), text, re.M)
    return re.search(r"%s(?![\w-])" % re.escape(name), text)


@test("jwt-faults/all-of-them")
def all_of_them():
    same([n for n, _ in rows()], list(range(1, 47)), "rows")


@test("jwt-faults/tests-exist")
def tests_exist():
    for number, named in rows():
        check(named, "fault %d names no test" % number)
        for path, _, name in (entry.partition(": ") for entry in named):
            if path == "absent":
                for f in glob.glob(TOP + "/src/*/*.[ch]"):
                    check(not re.search(r"\b%s\b" % name, read(f)),
                          "%s is in %s" % (name, f))
            else:
                check(os.path.exists(os.path.join(TOP, path)),
                      "fault %d: there is no %s" % (number, path))
                check(exists(path, name),
                      "fault %d: %s has no test %s" % (number, path, name))


@test("jwt-faults/unit-tests-are-listed")
def listed():
    """What a unit test says of a fault stands in the table."""
    table = read("docs/jwt-faults.md")
    for f in glob.glob(TOP + "/t/unit/*.c"):
        for number in re.findall(r"jwt-fault-(\d+)", read(f)):
            check("jwt-fault-%s`" % number in table,
                  "fault %s of %s is not in the table" % (number, f))


main()
