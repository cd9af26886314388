"""thin.py SITE BASE: move the packages of a venv out of it, to BASE.

SITE is the site-packages of the venv.  What stays there is what uv reads to
tell what is installed: each *.dist-info, without its larger files, and with
a RECORD of only what stayed, so that "uv remove" finds just that to delete.
sitecustomize.py appends BASE to sys.path, so a package that uv installs
later comes before the one in BASE.

So the home of a sandbox holds 1 MB instead of 250 MB, nothing a user does
can damage the shared copy, and it does not count against his disk.
"""

import csv
import pathlib
import shutil
import sys

KEEP = {
    "INSTALLER",
    "METADATA",
    "RECORD",
    "REQUESTED",
    "WHEEL",
    "entry_points.txt",
    "top_level.txt",
}


def thin(info, site):
    """Cut a *.dist-info down to what uv and importlib.metadata read."""

    for path in sorted(info.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        elif path.parent != info or path.name not in KEEP:
            path.unlink()

    record = info / "RECORD"

    with record.open(newline="") as f:
        rows = list(csv.reader(f))

    # "../" are the scripts in the venv's bin, which stay too

    rows = [
        row
        for row in rows
        if row[0].startswith("../")
        or row[0].startswith(info.name) and (site / row[0]).exists()
    ]

    with record.open("w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows(rows)


def main():
    site, base = map(pathlib.Path, sys.argv[1:])

    base.mkdir(parents=True, exist_ok=True)

    for path in sorted(site.iterdir()):
        if path.suffix == ".dist-info":
            # the whole of it, licences included, goes with the code
            shutil.copytree(path, base / path.name)
            thin(path, site)

        elif path.name.startswith("_virtualenv") or path.name == "__pycache__":
            continue

        else:
            shutil.move(path, base / path.name)


main()
