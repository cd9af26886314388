#!/usr/bin/env python3
"""Each test that docs/operations.md names is there."""

import glob
import os
import re
import sys

TOP = os.path.dirname(os.path.abspath(__file__)) + "/../.."
sys.path.insert(0, TOP + "/t/lib")

from tap import check, main, same, test                      # noqa: E402


@test("docs/operations")
def operations():
    with open(TOP + "/docs/operations.md") as f:
        table = [line for line in f if line.count(" | ") == 4]
    check(len(table) > 15, "so few rows", len(table))
    names = set()
    for path in glob.glob(TOP + "/t/*/*.py"):
        with open(path) as f:
            for name in re.findall(r'@test\("([^":]+)', f.read()):
                names |= set(name.split())
    for row in table[1:]:
        named = re.findall(r"`([a-z]+/[a-z-]+)`", row.split(" | ")[-1])
        check(named, "a row without a test:", row[:100])
        same(set(named) - names, set(), row[:100])


if __name__ == "__main__":
    main()
