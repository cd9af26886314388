#!/usr/bin/env python3
"""Tests of files.py once more over HTTP/2: those in which bodies, ranges, names
and refusals travel."""

import os
import runpy
import sys

os.environ["SANDBOX_TEST_H2"] = "1"
sys.argv[1:] = sys.argv[1:] or [
    "files/roundtrip-bytes", "files/roundtrip-bytes: attached, saved",
    "files/range", "files/etag", "files/overwrite-rules",
    "files/content-disposition", "files/symlink-inside", "files/base64-strict",
    "a file that is too large", "files/atomic-upload"]
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            "files.py"), run_name="__main__")
