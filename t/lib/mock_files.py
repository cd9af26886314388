"""Files of a sandbox that is none, for the mock runner: a dictionary of paths
for each session, read, written, removed and searched as an agent would, but for
links, permissions and disks.
"""

import fnmatch
import hashlib
import re
import struct
import time

import wire

PIECE = 8191                    # bytes of a DATA frame, an odd number


def records(items):
    """Records of fields, in DATA frames that cut them anywhere."""
    out = b"".join(struct.pack(">I", len(r)) + r
                   for r in (wire.fields(*item) for item in items))
    return [out[at:at + 1009] for at in range(0, len(out), 1009)]


class Files:
    """What a Connection of the mock does with FILE_... operations."""

    def wait(self):
        """Before each answer, and each part of one."""
        time.sleep(self.session.slow)

    def place(self):
        path = self.fields.get("PATH", b"")
        return (b"/" if self.fields.get("ROOT") else b"/home/sandbox/") + path

    def absent(self):
        if self.first.flags & wire.NO_CREATE and not self.session.created:
            self.error("no_sandbox", 0)
            return True
        return False

    def below(self, path):
        path = path.rstrip(b"/") + b"/"
        return sorted(p for p in self.session.files if p.startswith(path))

    @staticmethod
    def about(data, written):
        return (("FILE_TYPE", 0), ("FILE_SIZE", len(data)),
                ("FILE_MODE", 0o644), ("MODIFIED_NS", 1764460800 * 10 ** 9),
                ("ETAG", hashlib.sha256(b"%d " % written + data)
                 .hexdigest()[:16]))

    def end(self, *pairs):
        self.ended = True
        self.send(wire.frame(wire.RESULT, wire.fields(*pairs)))

    def operation_file_read(self):
        self.wait()
        if self.absent():
            return
        path = self.place()
        found = self.session.files.get(path)
        if found is None:
            if not self.below(path):
                return self.error("file_not_found", 0)
            self.headed = True
            self.send(wire.frame(wire.HEAD, wire.fields(
                ("STATUS", 200), ("FILE_TYPE", 1), ("FILE_SIZE", 0),
                ("ETAG", "dir"))))
            return self.end(("BYTES", 0))
        self.headed = True
        self.send(wire.frame(wire.HEAD, wire.fields(
            ("STATUS", 200), *self.about(*found))))
        data = found[0]
        for at in range(0, len(data), PIECE):
            self.wait()
            self.send(wire.frame(wire.DATA, data[at:at + PIECE]))
        self.wait()
        self.end(("BYTES", len(data)))

    def operation_file_write(self):
        session, path = self.session, self.place()
        session.touch()
        self.wait()
        self.headed = True
        self.send(wire.frame(wire.HEAD, wire.fields(("STATUS", 200))))
        self.wait()
        old = session.files.get(path)
        wanted = self.fields.get("IF_MATCH")
        if self.below(path):
            return self.end(("STATUS", 409), ("CODE", "is_a_directory"),
                            ("DETAIL", "It is a directory."))
        if wanted is not None and (
                old is None
                or dict(self.about(*old))["ETAG"].encode() not in wanted):
            return self.end(("STATUS", 412), ("CODE", "precondition_failed"),
                            ("DETAIL", "The file is another one by now."))
        session.written += 1
        session.files[path] = (self.body, session.written)
        self.end(("STATUS", 200 if old else 201),
                 *self.about(*session.files[path]))

    def operation_file_remove(self):
        if self.absent():
            return
        path = self.place()
        if path in self.session.files:
            del self.session.files[path]
            return self.reply(("FILE_TYPE", 0))
        inside = self.below(path)
        if not inside:
            return self.error("file_not_found", 0)
        if not self.fields.get("RECURSIVE"):
            return self.error("not_empty", 0)
        for name in inside:
            del self.session.files[name]
        self.reply(("FILE_TYPE", 1))

    def looks(self, name):
        globs = self.fields.get("GLOB")
        globs = [globs] if isinstance(globs, bytes) else globs
        return not globs or any(
            fnmatch.fnmatchcase(name.rpartition(b"/")[2], g) for g in globs)

    def matches(self, names, expression):
        for path, name in names:
            data, written = self.session.files[path]
            if expression is None:
                yield (("FILE_NAME", name),) + self.about(data, written)[:4]
                continue
            for number, line in enumerate(data.split(b"\n"), 1):
                if expression.search(line):
                    yield (("FILE_NAME", name), ("LINE", number),
                           ("TEXT", line[:512]))

    def operation_file_search(self):
        if self.absent():
            return
        base = self.place().rstrip(b"/")
        pattern = self.fields.get("PATTERN")
        if pattern is not None:
            if self.fields.get("LITERAL"):
                pattern = re.escape(pattern)
            try:
                pattern = re.compile(pattern, re.I if self.fields.get(
                    "IGNORE_CASE") else 0)
            except re.error as error:
                self.detail = "%s" % str(error).replace(" ", "%20")
                return self.error("bad_pattern", 0)
        if base in self.session.files:
            names = [(base, b"")]
        else:
            names = [(p, p[len(base) + 1:]) for p in self.below(base)]
            if not names:
                return self.error("file_not_found", 0)
        limit = self.fields["LIMIT"]
        found = list(self.matches([n for n in names if self.looks(n[0])],
                                  pattern))
        self.headed = True
        self.send(wire.frame(wire.HEAD, wire.fields(("STATUS", 200))))
        for piece in records(found[:limit]):
            self.wait()
            self.send(wire.frame(wire.DATA, piece))
        self.end(("MORE", int(len(found) > limit)))
