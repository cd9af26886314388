#!/usr/bin/env python3
"""bench/soak in its shortest form, with the same seed each time: some deaths
among mixed traffic, then nothing may be lost, left or counted twice."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import TOP                                      # noqa: E402
from tap import backends, check, main, test                  # noqa: E402

backends("local", why="runner")


@test("persistence/soak-short", 560)
def soak_short():
    r = subprocess.run(
        [sys.executable, TOP + "/bench/soak", "--seconds", "14", "--round",
         "14", "--seed", "8", "--clients", "4", "--talks", "2", "--pause",
         "0.05", "--deaths", "1-2", "--idle", "1", "--grace", "300", "--json",
         "/dev/null"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False)
    text = r.stdout.decode(errors="replace")
    check(r.returncode == 0, "what is wrong:", text[-6000:])
    check("faults: 0" in text, "no count of faults:", text[-2000:])
    print("# " + text.strip().replace("\n", "\n# "))


if __name__ == "__main__":
    main()
