"""Have matplotlib make its list of fonts, in the home of who runs this.

Else the first chart of each sandbox would pay for it, with a warning.  The
order of the list is that of the directory: sorted, two builds are equal.
"""

import glob
import json
import os

import matplotlib.font_manager

for name in glob.glob(os.path.expanduser("~/.cache/matplotlib/fontlist-*")):
    with open(name) as f:
        fonts = json.load(f)

    for key in "afmlist", "ttflist":
        fonts[key].sort(key=lambda e: (e["fname"], e.get("index", 0)))

    with open(name, "w") as f:
        json.dump(fonts, f, indent=2)
