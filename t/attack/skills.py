#!/usr/bin/env python3
"""Tars that are made to be read in two ways, thousands of small faults in
them: what the gateway takes is what the agent takes, it is unpacked as a reader
of another make understands it, and nothing of it is outside of /skills/NAME.

Each tar is one that is good, or one that attacks, with one to three changes
(the sums of its headers are put right again), from a seed that is printed."""

import hashlib
import io
import json
import os
import random
import sys
import tarfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway                                  # noqa: E402
from tap import check, main, same, test                      # noqa: E402

SEED = int(os.environ.get("SEED", "1"))
ROUNDS = int(os.environ.get("ROUNDS", "12"))            # of 16 that are taken
S = "v1/conversations/c/skills"

# what is in /skills/NAME, seen from inside: type, mode, size or target
WALK = r"""
import hashlib, json, os, sys
out = {}
for name in os.listdir("/skills"):
    top = "/skills/" + name
    found = out[name] = {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for f in folders + files:
            path = os.path.join(folder, f)
            st = os.lstat(path)
            key = os.fsdecode(path)[len(top) + 1:].encode(
                "utf8", "surrogateescape").hex()
            if os.path.islink(path):
                real = os.path.realpath(path)
                inside = (real + b"/").startswith(os.fsencode(top) + b"/")
                found[key] = ["link", os.readlink(path).hex(), inside]
            elif os.path.isdir(path):
                found[key] = ["folder", st.st_uid, st.st_mode & 0o7777]
            else:
                with open(path, "rb") as file:
                    found[key] = ["file", st.st_uid, st.st_mode & 0o7777,
                                  hashlib.sha256(file.read()).hexdigest(),
                                  st.st_nlink]
print(json.dumps(out))
"""
# and all that is writable, or was made, anywhere else
ELSEWHERE = ("find / -xdev -newer /tmp/mark -not -path '/skills/*' "
             "-not -path '/proc/*' -not -path /skills -not -path '/tmp*' "
             "-not -path '/dev/*' -not -path /var/lib/sandbox 2> /dev/null; ls -A /tmp /home/sandbox/"
             "attachments; true")

g = None


def start():
    global g
    g = Gateway(pool=1)
    g.options["http"] = "sandbox_store %s/store; sandbox_disk 512m;" % g.dir
    g.start()


def stop():
    g.stop()


def entry(name, kind=tarfile.REGTYPE, target="", data=b"", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(data)
    info.mode = mode
    return info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512)


def seeds():
    link, folder = tarfile.SYMTYPE, tarfile.DIRTYPE
    long = "n" * 90 + "/" + "m" * 90
    return [
        [entry("SKILL.md", data=b"# x\n"), entry("a/b", data=b"12345"),
         entry("a/c/d", data=b"x" * 700, mode=0o755)],
        [entry("d", folder), entry("d/l", link, "../e"), entry("e", data=b"e"),
         entry("x/y/z/k", link, "../../.."), entry("q", link, "x/y/z")],
        [entry(long, data=b"long"), entry("k" * 120, data=b"pax"),
         entry("l", link, long)],
        [entry("l", link, "d"), entry("d", folder), entry("d/x", data=b"1"),
         entry("t", data=b"2")],
        [entry("é" * 60, data=b"3"), entry("./dot/./x"[2:], data=b"4"),
         entry("f", data=bytes(1024)), entry("g", data=b"5" * 512)],
        [entry("a", data=b"1"), entry("b", tarfile.LNKTYPE, "a"),
         entry("c", tarfile.CHRTYPE), entry("../u", data=b"6"),
         entry("/abs", data=b"7")],
    ]


PATHS = [b"../../x", b"/etc/x", b"l/x", b"d/x", b"a", b"a/b", b"./a", b"..",
         b".", b"", b"q/x", b"a/../b", b"x/y/z/k/e", b"e", b"SKILL.md",
         b"k/../..", b"n" * 99, b"a//b", b"d/", b"\xff\xfe", b"x\ny"]
NUMBERS = [b"00000000000\0", b"00000000001\0", b"00000000777 ",
           b"77777777777\0", b"            ", b"\x80" + bytes(10) + b"\x05",
           b"-0000000001\0", b"1\0" + bytes(10), b"000000\x0000001"]


def sums(data):
    data = bytearray(data)
    for at in range(0, len(data) - 511, 512):
        block = data[at:at + 512]
        if any(block) and block[257:262] == b"ustar":
            block[148:156] = b" " * 8
            data[at + 148:at + 156] = b"%06o\0 " % sum(block)
    return bytes(data)


def mutate(rng, blocks):
    """One to three changes in the list of entries, then its end."""
    blocks = [bytearray(b) for b in blocks]
    for _ in range(rng.randint(0, 3)):
        i = rng.randrange(len(blocks))
        b = blocks[i]
        # the header may have one before it
        at = rng.choice([n for n in range(0, len(b), 512)
                         if b[n + 257:n + 262] == b"ustar"] or [0])
        what = rng.randrange(10)
        if what == 0:
            name = rng.choice(PATHS)
            b[at:at + 100] = name.ljust(100, b"\0")[:100]
        elif what == 1:
            b[at + 157:at + 257] = rng.choice(PATHS).ljust(100, b"\0")[:100]
        elif what == 2:
            b[at + 156] = rng.choice(b"0\x00" b"1234567xgLKSDV")
        elif what == 3:
            b[at + 124:at + 136] = rng.choice(NUMBERS)
        elif what == 4:
            b[at + 345:at + 500] = rng.choice(PATHS).ljust(155, b"\0")
        elif what == 5:
            blocks.insert(rng.randrange(len(blocks)), bytearray(b))
        elif what == 6:
            rng.shuffle(blocks)
        elif what == 7:
            b[at + 100:at + 108] = rng.choice([b"0004755\0", b"0000000\0",
                                               b"0177777\0", b"zzzzzzz\0"])
        elif what == 8:
            blocks.insert(i, bytearray(entry("p", b"x", data=rng.choice([
                b"12 path=../x\n", b"9 path=a\n", b"11 path=d/x\n",
                b"16 linkpath=../x\n", b"10 size=99\n", b"9 size=5\n",
                b"13 path=q/x/y\n", b"30 mtime=1234567890.123456789\n"]))))
        elif rng.random() < 0.5:
            # owner, time and devices, which count for nothing here, are the
            # end of the tar for Python if they are no numbers
            b[at + rng.choice([*range(108), *range(124, 136), 156,
                               *range(157, 257), *range(345, 500)])] \
                = rng.randrange(256)
        else:
            blocks.pop(i)
            if not blocks:
                blocks = [bytearray(entry("only", data=b"o"))]
    return sums(b"".join(blocks)) + bytes(1024 * rng.randint(1, 10))


def members(t):
    """A header for all entries before none is an error for Python."""
    try:
        while (m := t.next()) is not None:
            yield m
    except tarfile.ReadError as error:
        if str(error) != "end of file header":
            raise


def expected(data):
    """As Python's reader has it; its own idea of what to refuse is not
    asked for."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf8",
                      errors="surrogateescape") as t:
        for m in members(t):
            parts = [p for p in m.name.split("/") if p not in ("", ".")]
            if not parts:
                continue
            for n in range(1, len(parts)):
                found.setdefault("/".join(parts[:n]), ["folder", 0, 0o755])
            if m.issym():
                value = ["link", os.fsencode(m.linkname).hex(), True]
            elif m.isdir():
                value = ["folder", 0, 0o755]
            else:
                content = t.extractfile(m).read()
                value = ["file", 0, 0o755 if m.mode & 0o111 else 0o644,
                         hashlib.sha256(content).hexdigest(), 1]
            found["/".join(parts)] = value
    return {k.encode("utf8", "surrogateescape").hex(): v
            for k, v in found.items()}


@test("files/skill-archive: gateway, agent and others read a tar alike",
      seconds=800)
def alike():
    rng = random.Random(SEED)

    # the first staging makes the agent's own folder, and Python may write into
    # its folders: what is newer than that is looked for
    r = g.request("PUT", S + "/s0", sums(b"".join(seeds()[0])) + bytes(1024))
    same(r.status, 201, repr(r))
    same(g.output("c", "python3 -c 'import hashlib, json, os, sys'; "
                  "test -e /skills/s0/SKILL.md && touch /tmp/mark"), "")
    tried = taken = 0
    for _ in range(ROUNDS):
        kept, c = {}, g.connect()
        for _ in range(400):
            data = mutate(rng, rng.choice(seeds()))
            tried += 1
            name = "s%d" % len(kept)
            r = g.request("PUT", S + "/" + name, data, connection=c)
            if r.status in (200, 201):
                kept[name] = data
                if len(kept) == 16:
                    break
            else:
                check((r.status, r.json["code"]) == (422, "skill_refused"),
                      "PUT: seed %d, tar %d" % (SEED, tried), r)
        c.close()
        result = g.run("c", "cat > /tmp/walk.py; python3 /tmp/walk.py",
                       stdin=WALK)
        same((result["exitCode"], [n for n in result["stagingNotices"]
                                   if n["code"] != "requirements"]), (0, []),
             "seed %d: the agent refuses what the gateway takes" % SEED)
        found = json.loads(result["stdout"])
        same(sorted(found), sorted(kept))
        for name, data in kept.items():
            try:
                want = expected(data)
                odd = {bytes.fromhex(k): (found[name].get(k), want.get(k))
                       for k in set(found[name]) | set(want)
                       if found[name].get(k) != want.get(k)}
                same(odd, {}, "seed %d, in /tmp/skill-attack.tar" % SEED)
            except Exception:
                with open("/tmp/skill-attack.tar", "wb") as f:
                    f.write(data)
                raise
        taken += len(kept)
    print("# seed %d: %d tars, %d taken" % (SEED, tried, taken))
    same(g.output("c", ELSEWHERE),
         "/home/sandbox/attachments:\n\n/tmp:\nmark\nwalk.py\n")
    check(taken == 16 * ROUNDS, "too few were good", taken)


main(start, stop)
