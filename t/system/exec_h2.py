#!/usr/bin/env python3
"""The tests of exec.py once more, over HTTP/2."""

import os
import runpy

os.environ["SANDBOX_TEST_H2"] = "1"
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            "exec.py"), run_name="__main__")
