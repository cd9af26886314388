# Run by every Python of the image at its start, also in a venv.
#
# The shared libraries and the mounted skills come last on the path, so that
# neither can hide a module: not of the standard library, and not one that
# "uv add" installed in another version.  A venv that someone made himself
# sees the skills only; isolation is what it was made for.


def _sandbox():
    import os
    import sys

    add = []

    if sys.prefix in (sys.base_prefix, "/home/sandbox/.venv"):
        add.append("/opt/sandbox/site-packages")

    try:
        add += sorted(e.path for e in os.scandir("/skills") if e.is_dir())
    except OSError:
        pass

    have = set(sys.path)
    sys.path += [p for p in add if p not in have]


_sandbox()
del _sandbox
