#!/usr/bin/env python3
"""docs/security.md says of each claim which test shows it.  Each test that it
names is there, each row names one, and each file of t/attack is named."""

import fnmatch
import glob
import os
import re
import sys

TOP = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../..")

number = failed = 0


def ok(good, name, *details):
    global number, failed
    number += 1
    print("%s %d - %s" % ("ok" if good else "not ok", number, name))
    if not good:
        failed += 1
        for text in details:
            print("#   %s" % (text,))


def read(path):
    with open(path, errors="replace") as f:
        return f.read()


def known():
    """Ids in test files: "group/slug" as a literal, also its beginning."""
    whole, begins = set(), set()
    for path in glob.glob(TOP + "/t/**/*", recursive=True) \
            + glob.glob(TOP + "/base/*"):
        if os.path.isfile(path) and not path.endswith(("security_docs.py",
                                                       ".json")):
            if "/corpus/" in path or "/node_modules/" in path:
                continue
            for name in re.findall(r"""["']([a-z0-9_]+/[a-z0-9][a-z0-9/_.-]*)""",
                                   read(path)):
                (begins if name.endswith(("-", "/")) else whole).add(name)
    return whole, begins


def is_file(name):
    path = TOP + "/" + name
    return any(os.path.exists(path + end) for end in ("", ".c", ".py", ".t")) \
        or bool(glob.glob(path))


def there(name, whole, begins):
    if name.startswith(("t/run ", "make ")):
        return True
    if name.startswith(("t/", "base/", "bench/")) and is_file(name):
        return True
    if "*" in name:
        return bool(fnmatch.filter(whole, name))
    return name in whole or any(name.startswith(b) for b in begins)


def main():
    text = read(TOP + "/docs/security.md")
    whole, begins = known()
    named = set()

    rows = [line for line in text.splitlines()
            if line.startswith("| ") and line.count(" | ") >= 2
            and not line.startswith("|--")]
    rows = [[c.strip() for c in line.strip("| ").split(" | ")]
            for line in rows]
    begin = next(i for i, r in enumerate(rows)
                 if r[0].startswith("threat"))
    rows = rows[begin + 1:]

    ok(len(rows) > 60, "rows of threats", len(rows))

    for row in rows:
        tests = re.findall(r"`([^`]+)`", row[-1])
        missing = [t for t in tests if not there(t, whole, begins)]
        named |= set(tests)
        ok(len(row) == 3 and tests and not missing, row[0][:60],
           "columns: %d" % len(row), "not there: %s" % missing)

    for path in sorted(glob.glob(TOP + "/t/attack/*.py")):
        name = "t/attack/" + os.path.basename(path)
        ids = set(re.findall(r"\battack/[a-z0-9/_-]+|\bhide/[a-z0-9/_-]+",
                             read(path)))
        ok(name in named or any(fnmatch.filter(ids, n) or n in ids
                                for n in named),
           name + " is named")

    ok("## What is not promised" in text, "what is not promised is said")
    print("1..%d" % number)
    return failed != 0


sys.exit(main())
