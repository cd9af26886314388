"""The objects of an engine's API, and what its queries do.

A result has a number, the same in all sessions, by what it was asked for; the
same question has the same answer, and is not carried out again.  Containers
are real ones (engine_crun), volumes are folders under the engine's root.
"""

import base64
import codecs
import hashlib
import json
import os
import pickle
import re
import signal
import shutil
import socket
import subprocess
import sys
import threading
import time

from engine import Engine, Gone
from engine_crun import Container, overlay
from engine_graphql import (Reader, Refused, Unsupported, dumps, refusal,
                            validate)
from engine_http import ready
from engine_image import Failed, Image
from engine_network import Network, domain_of, libc, name_of
from engine_schema import KEPT, OBJECTS, SCHEMA
from engine_values import read_id, unfit, varint

FIRST = 4460                # numbers up to here are the engine's own
OUTPUT = 1 << 30
JSON = "application/json"
TRACE = " [traceparent:%s-%s]" % ("0" * 32, "0" * 16)

HERE = os.path.dirname(os.path.abspath(__file__))

codecs.register_error("go", lambda e: ("\ufffd" * (e.end - e.start), e.end))


class Problem(Exception):
    """A field that failed: an error of the answer."""

    def __init__(self, message, path=None, extensions=None):
        super().__init__(message)
        self.error = {"message": message}
        if path is not None:
            self.error["path"] = path
        if extensions:
            self.error["extensions"] = extensions


class Left(Gone):
    """The client has."""


class Result:
    """What a chain of fields is: never changed once it is there."""

    def __init__(self, number, kind, name, arguments, parent, digest, chain):
        self.number = number
        self.kind = kind
        self.name = name
        self.arguments = arguments
        self.parent = parent
        self.digest = digest
        self.chain = chain

    def id(self):
        kind = self.kind.encode()
        inner = b"\x0a" + bytes((len(kind),)) + kind + b"\x18\x01"
        body = b"\x08" + varint(self.number) + b"\x12" \
            + bytes((len(inner),)) + inner
        return base64.b64encode(b"\x12" + varint(len(body)) + body).decode()


class Task:
    """Work that some wait for; when all of them have left it may stop."""

    def __init__(self, work):
        self.done = threading.Event()
        self.left = threading.Event()
        self.lock = threading.Lock()
        self.work = work            # until somebody waits for it
        self.waiters = 0
        self.socks = []             # of those; None: not to be watched
        self.wake = {}              # by what they wait with: their sessions
        self.closed = set()         # sessions
        self.value = None
        self.error = None

    def run(self, work):
        try:
            self.value = work(self)
        except BaseException as e:
            self.error = e
        with self.lock:
            self.done.set()
            for fd in self.wake:
                os.eventfd_write(fd, 1)

    def join(self, sock):
        """False: all have left before."""
        with self.lock:
            if self.left.is_set():
                return False
            self.waiters += 1
            self.socks.append(sock)
            work, self.work = self.work, None
        if work:
            threading.Thread(target=self.run, args=(work,),
                             daemon=True).start()
        return True

    def deserted(self):
        """All have left, be it noticed or not."""
        with self.lock:
            return self.left.is_set() or all(
                sock is not None and closed(sock) for sock in self.socks)

    def close(self, session):
        with self.lock:
            self.closed.add(session)    # also for who is about to wait
            for fd in [f for f in self.wake if self.wake[f] == session]:
                os.eventfd_write(fd, 1)

    def wait(self, sock, session):
        """Raises Left when `sock` is closed by the other side."""
        gone = sock
        fd = os.eventfd(0)
        with self.lock:
            self.wake[fd] = session
        try:
            while not self.done.is_set():
                if session in self.closed:
                    raise Problem("session is closing")
                watched = [fd] if gone is None else [fd, gone]
                can = ready(watched, seconds=1)
                if gone in can and closed(gone):
                    raise Left()
                if gone in can:
                    gone = None         # the next request is early
        finally:
            with self.lock:
                del self.wake[fd]
                self.socks.remove(sock)
                self.waiters -= 1
                if self.waiters == 0:
                    self.left.set()
            os.close(fd)
        if self.error:
            raise self.error
        return self.value


def closed(sock):
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class Volume:
    """A folder of a key, an overlay when it has an owner; what has it alone
    holds `lock`."""

    def __init__(self, folder, sharing):
        self.folder = folder
        self.lock = threading.Lock() if sharing != "SHARED" else None
        self.merged = folder + "/merged"

    def mount(self, owner):
        if not owner:
            os.makedirs(self.merged, exist_ok=True)
            return
        for name in ("lower", "upper", "work", "merged"):
            os.makedirs(self.folder + "/" + name, exist_ok=True)
        if not os.path.exists(self.folder + "/owned"):
            user, _, group = owner.partition(":")
            for name in ("lower", "upper"):
                os.chown(self.folder + "/" + name, int(user),
                         int(group or user))
            with open(self.folder + "/owned", "w"):
                pass
        overlay(self.merged, [self.folder + "/lower"],
                self.folder + "/upper", self.folder + "/work")


class Running:
    """A service of one session."""

    def __init__(self):
        self.lock = threading.Lock()
        self.container = None
        self.held = []
        self.over = threading.Event()


class ContainerEngine(Engine):
    def __init__(self, root, cache, network=None, wipe=False, host="127.0.0.1",
                 port=0, health=5.0, version="v0.21.5", exec_delay=0.0,
                 unreachable=None):
        super().__init__(port=port, health=health, version=version, host=host)
        self.root = os.path.realpath(root)
        self.cache = os.path.realpath(cache) + "/engine"
        self.exec_delay = exec_delay
        self.network = Network(network)
        self.network.mode = self.names_mode
        self.results = {}           # by digest
        self.numbers = {}           # the same by number
        self.count = FIRST
        self.images = {}            # by address
        self.configs = {}           # by digest
        self.layers = {}            # of files and commands, by digest
        self.finished = {}          # commands: by digest, (code, out, err)
        self.tasks = {}
        self.volumes = {}           # by number
        self.starts = set()         # tasks
        self.services = {}          # by (session, digest)
        self.stopping = False
        self.boxes = 0
        self.objects = threading.RLock()
        self.load(wipe)
        with open(self.root + ".names", "w") as f:
            f.write(unreachable or "")

    def names_mode(self):
        """Said by a file, so that a test can change it."""
        with open(self.root + ".names") as f:
            return f.read().strip()

    def fault(self, text):
        super().fault(text)
        print("fault: " + text, file=sys.stderr, flush=True)

    # what is kept over an end, and lost by a crash

    def load(self, wipe):
        state = self.root + "/state"
        os.makedirs(self.root, exist_ok=True)
        self.disk()
        try:
            with open(state, "rb") as f:
                kept = None if wipe else pickle.load(f)
        except (OSError, EOFError, pickle.UnpicklingError):
            kept = None
        if os.path.exists(state):
            os.remove(state)
        for name in os.listdir(self.root):
            if name == "lost+found" \
                    or kept and name in ("volumes", "results", "layers"):
                continue
            path = self.root + "/" + name
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.remove(path)
        for name in ("volumes", "results", "containers", "layers", "crun"):
            os.makedirs(self.root + "/" + name, exist_ok=True)
        if kept:
            self.count, results, self.layers, self.finished, self.images = kept
            for result in results:
                self.results[result.digest] = result
                self.numbers[result.number] = result

    def disk(self):
        """An overlay can't be written to an overlay: a disk in a file."""
        kind = subprocess.run(["stat", "-fc", "%T", self.root], check=True,
                              stdout=subprocess.PIPE).stdout.strip()
        if kind != b"overlayfs":
            return
        file = self.root + ".disk"
        if not os.path.exists(file):
            with open(file, "wb") as f:
                f.truncate(16 << 30)
            subprocess.run(["mkfs.ext4", "-q", "-F", file], check=True)
        subprocess.run(["mount", "-o", "loop", file, self.root], check=True)

    def save(self):
        keep = {}
        for result in list(self.numbers.values()):
            if result.name in KEPT:
                while result and result.number not in keep:
                    keep[result.number] = result
                    for value in result.arguments.values():
                        if isinstance(value, Result):
                            keep[value.number] = value
                    result = result.parent
        with open(self.root + "/state.new", "wb") as f:
            pickle.dump((self.count, [keep[n] for n in sorted(keep)],
                         self.layers, self.finished, self.images), f)
        os.rename(self.root + "/state.new", self.root + "/state")

    def terminate(self):
        """As SIGTERM does: what is asked now fails, what is there stays."""
        self.stopping = True
        self.close_listener()
        with self.objects:
            tasks = list(self.tasks.values())
            services = list(self.services.values())
        for task in tasks:
            task.left.set()

        # who waits for a volume that a service has does so until it is killed

        end = time.monotonic() + 300
        while (self.tasks or self.active) and time.monotonic() < end:
            time.sleep(0.01)
        threads = [threading.Thread(target=self.stop_one, args=(s,))
                   for s in services]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for volume in self.volumes.values():
            libc.umount2(volume.merged.encode(), 2)
        self.save()

    # queries

    def result(self, client, query, sock=None):
        """Status, type and body."""
        session = client.session
        try:
            fields = Reader(query).document()
            if fields is None:
                raise Refused(refusal("GRAPHQL_VALIDATION_FAILED",
                                      "no operation provided"))
            validate(fields, "Query", SCHEMA)
        except Refused as e:
            return 422, JSON, dumps({"errors": e.errors, "data": None})
        except Unsupported as e:
            self.fault("a query with what is not here: %s" % e)
            return self.internal(str(e))
        errors = []
        if any(f.arguments.get("id") == "" for f in fields):
            return 422, JSON, dumps({"errors": [
                {"message": "internal system error"}], "data": None})
        self.check(fields, "Query", query, errors)
        if errors:
            return 200, JSON, dumps({"errors": errors, "data": None})
        try:
            data = self.select(fields, "Query", None, session, sock)
        except Problem as e:
            error = {name: e.error[name] for name in
                     ("message", "path", "extensions") if name in e.error}
            return 200, JSON, dumps({"errors": [error], "data": None})
        except Unsupported as e:
            self.fault("a query with what is not here: %s" % e)
            return self.internal(str(e))
        return 200, JSON, dumps({"data": data})

    def internal(self, text):
        return 422, JSON, dumps({"errors": [
            {"message": "internal system error (%s)" % text}], "data": None})

    def check(self, fields, kind, query, errors):
        """The values of arguments, and objects without fields; the first
        that is wrong."""
        for field in fields:
            if errors or field.name == "__typename":
                continue
            known, result = SCHEMA[kind][field.name]
            if result in OBJECTS and not field.selection:
                errors.append({"message": 'field "%s" of type "%s" must have '
                               "a selection of subfields"
                               % (field.name, result), "path": [field.name]})
            for name, value in field.arguments.items():
                wrong = unfit(field.name, name, value, known[name])
                if wrong and not errors:
                    errors.append({"message": (
                        'query:\n%s\n\nerror: parse selections: parse field '
                        '"%s": init arg "%s" value as %s'
                        % (query, field.name, name, wrong))})
            self.check(field.selection or [], result, query, errors)

    def select(self, fields, kind, parent, session, sock):
        """The fields of one level beside each other, as the engine does."""
        out, failed, threads = {}, [], []

        def one(field):
            try:
                out[field.alias] = self.field(field, kind, parent, session,
                                              sock)
            except BaseException as e:
                failed.append(e)

        for field in fields:
            if field.name in ("id", "version", "hostname", "defaultPlatform"):
                one(field)
            else:
                threads.append(threading.Thread(target=one, args=(field,)))
        if len(threads) == 1:
            threads.pop().run()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return {name: out[name] for name in sorted(out)}

    def field(self, field, kind, parent, session, sock):
        if field.name == "__typename":
            return kind
        known, result = SCHEMA[kind][field.name]
        if result not in OBJECTS:
            return self.leaf(field.name, field.arguments, parent, session,
                             sock)
        value = self.object(field, kind, result, parent, session)
        return self.select(field.selection, result, value, session, sock)

    def object(self, field, kind, result, parent, session):
        chain = (parent.chain if parent else []) + [field.name]
        arguments = dict(field.arguments)
        if field.name.startswith("load"):
            return self.loaded(arguments["id"], result, [field.name], "")
        if field.name == "withMountedCache":
            arguments["cache"] = self.loaded(arguments["cache"],
                                             "CacheVolume", chain, "cache")
        if field.name == "asService":
            self.command(parent, arguments, chain)
        getattr(self, "make_" + field.name, lambda *_: None)(
            parent, arguments, chain)
        return self.known(result, field.name, arguments, parent, chain)

    def known(self, kind, name, arguments, parent, chain):
        """The result of that question: one for all who ask it."""
        text = json.dumps([kind, name, sorted(
            (k, v.number if isinstance(v, Result) else v)
            for k, v in arguments.items()), parent and parent.digest])
        digest = hashlib.sha256(text.encode("utf-8",
                                            "surrogatepass")).hexdigest()
        with self.objects:
            if digest not in self.results:
                self.count += 1
                self.results[digest] = self.numbers[self.count] = Result(
                    self.count, kind, name, arguments, parent, digest, chain)
            return self.results[digest]

    def loaded(self, text, kind, path, argument):
        number, said = read_id(text)
        if said != kind and not argument:
            raise Problem("load %s: expected %s, got %s" % (kind, kind, said),
                          path)
        found = self.numbers.get(number)
        if number <= FIRST:
            raise Problem("load %s: load engineResult(%d): %s!: expected %s!,"
                          " got ObjectTypeDef!" % (kind, number, kind, kind),
                          path)
        if found is None:
            raise Problem('arg "%s": resolve ID input "engineResult(%d): %s!"'
                          ": resolve result %d: missing shared result"
                          % (argument or "id", number, said, number), path)
        if found.kind != kind:
            raise Problem("load %s: load engineResult(%d): %s!: expected %s!,"
                          " got %s!" % (kind, number, kind, kind, found.kind),
                          path)
        return found

    @staticmethod
    def command(result, arguments, chain):
        """Of a service of that container."""
        args = arguments.get("args") or (result.arguments["args"] if
                                         result.name == "withExec" else [])
        if not args:
            raise Problem("no service command has been set", chain)
        return args

    # what a field does when it is asked for, not later

    def make_from(self, parent, arguments, chain):
        address = arguments["address"]
        if address in self.images:
            return
        if not re.match(r"[a-zA-Z0-9]", address):
            raise Problem("failed to resolve identity inputs for Container."
                          'from: resolve implicit input "fromSessionScope": '
                          "failed to parse image address %s: invalid "
                          "reference format" % address, chain)
        try:
            image = Image(address, self.configs)
        except Failed as e:
            raise Problem('failed to resolve image "%s" (platform: '
                          '"linux/amd64"): %s' % (address, e), chain)
        with self.objects:
            self.images[address] = image

    def make_cacheVolume(self, parent, arguments, chain):
        owner = arguments.get("owner", "")
        if owner and not owner.replace(":", "").isdigit():
            raise Problem("evaluate cache source directory: failed to parse "
                          "ownership %s: open /etc/passwd: no such file or "
                          "directory" % owner, chain)
        arguments.setdefault("sharing", "SHARED")
        arguments["owner"] = owner

    def make_withMountedCache(self, parent, arguments, chain):
        """Another way to share is another volume."""
        volume = arguments["cache"]
        wanted = dict(volume.arguments)
        for name in ("sharing", "owner"):
            if name in arguments:
                wanted[name] = arguments.pop(name)
        if wanted != volume.arguments:
            arguments["cache"] = self.known("CacheVolume", "cacheVolume",
                                            wanted, None, ["cacheVolume"])

    # plain values

    def leaf(self, name, arguments, parent, session, sock):
        if parent is None:
            return {"version": self.version,
                    "defaultPlatform": "linux/amd64"}[name]
        if name == "id":
            return parent.id()
        if parent.kind == "Service":
            return self.service(name, arguments, parent, session, sock)
        path = parent.chain + [name]
        if name == "envVariable":
            for entry in self.box(parent)["env"]:
                if entry.startswith(arguments["name"] + "="):
                    return entry.partition("=")[2]
            return None
        if name == "label":
            return self.box(parent)["labels"].get(arguments["name"])
        at = parent
        while at and at.name != "withExec":
            at = at.parent
        if name == "sync" and at is None:
            return parent.id()
        if at is None or not at.arguments["args"]:
            raise Problem("no command has been set", path)
        code, out, err = self.executed(at, path, session, sock)
        if name == "sync":
            return parent.id()
        return code if name == "exitCode" else (
            out if name == "stdout" else err).decode("utf-8", "go")

    # containers

    def lineage(self, result):
        out = []
        while result:
            out.append(result)
            result = result.parent
        return reversed(out)

    def box(self, result, session=None, sock=None, path=None):
        """What a container is, by what was said of it."""
        box = {"env": [], "labels": {}, "volumes": [], "layers": [],
               "cwd": "/", "user": "", "ports": [], "most": OUTPUT}
        for step in self.lineage(result):
            a = step.arguments
            if step.name == "from":
                image = self.image(a["address"], step.chain)
                config = image.config.get("config", {})
                box["env"] = image.environment()
                box["cwd"] = config.get("WorkingDir") or "/"
                box["user"] = config.get("User") or ""
                box["labels"] = dict(config.get("Labels") or {})
                box["image"] = image
            elif step.name in ("withEnvVariable", "withoutEnvVariable"):
                start = a["name"] + "="
                old = [i for i, e in enumerate(box["env"])
                       if e.startswith(start)]
                if step.name == "withoutEnvVariable":
                    box["env"] = [e for e in box["env"]
                                  if not e.startswith(start)]
                elif old:
                    box["env"][old[0]] = start + a["value"]
                else:
                    box["env"].append(start + a["value"])
            elif step.name == "withLabel":
                box["labels"][a["name"]] = a["value"]
            elif step.name == "withUser":
                box["user"] = a["name"]
            elif step.name == "withWorkdir":
                box["cwd"] = os.path.normpath(os.path.join(box["cwd"],
                                                           a["path"]))
            elif step.name == "withMountedCache":
                target = os.path.normpath(os.path.join(box["cwd"], a["path"]))
                box["volumes"] = [v for v in box["volumes"]
                                  if v[0] != target] + [(target, a["cache"])]
            elif step.name == "withExposedPort":
                box["ports"].append((a["port"], a.get(
                    "experimentalSkipHealthcheck", False)))
            elif step.name == "withNewFile":
                box["layers"].append(step)
                target = os.path.normpath(os.path.join(box["cwd"], a["path"]))
                for place, _ in box["volumes"]:
                    if target.startswith(place + "/"):
                        box["wrong"] = "failed to locate path %s: %s: " \
                            "cannot retrieve path from cache" % (target,
                                                                 target)
            elif step.name == "withExec" and step is not result:
                box["layers"].append(step)
        return box

    def image(self, address, chain):
        self.make_from(None, {"address": address}, chain)
        return self.images[address]

    def folders(self, box, session, sock):
        """Of all layers; commands that they come from are run."""
        out = []
        if "image" in box:
            try:
                out = box["image"].folders(self.root, self.cache)
            except Failed as e:
                raise Problem('pull image "%s": %s'
                              % (box["image"].address, e))
        for step in box["layers"]:
            if step.name == "withNewFile":
                out.append(self.file(step))
            else:
                self.executed(step, step.chain, session, sock)
                out.append(self.layers[step.digest])
        return out

    def file(self, step):
        a = step.arguments
        with self.objects:
            if step.digest in self.layers:
                return self.layers[step.digest]
            folder = "%s/results/%d" % (self.root, step.number)
            path = folder + os.path.normpath("/" + a["path"].lstrip("/"))
            os.makedirs(os.path.dirname(path))
            with open(path, "wb") as f:
                f.write(a["contents"].encode("utf-8", "replace"))
            os.chmod(path, a.get("permissions", 420))
            if a.get("owner"):
                user, _, group = a["owner"].partition(":")
                os.chown(path, int(user), int(group or user))
            self.layers[step.digest] = folder
            return folder

    def volume(self, result):
        a = result.arguments
        with self.objects:
            if result.number not in self.volumes:
                volume = Volume("%s/volumes/%d" % (self.root, result.number),
                                a["sharing"])
                volume.mount(a["owner"])
                self.volumes[result.number] = volume
            return self.volumes[result.number]

    def take(self, box, held):
        """Volumes that one has alone: this wait is not to be ended."""
        for _, result in sorted(box["volumes"], key=lambda v: v[1].number):
            volume = self.volume(result)
            if volume.lock and volume not in held:
                volume.lock.acquire()
                held.append(volume)

    def container(self, box, session, args, no_init, sock):
        if "wrong" in box:
            raise Problem(box["wrong"])
        box["layers"] = self.folders(box, session, sock)
        box["binds"] = [(path, self.volume(v).merged)
                        for path, v in box["volumes"]]
        box["args"] = args
        box["init"] = None if no_init else self.init()
        box["hostname"] = box.get("hostname") or "dagger"
        box["env"] = with_telemetry(box["env"])
        with self.objects:
            self.boxes += 1
            name = "fake-%d-%d" % (self.port, self.boxes)
        container = Container("%s/containers/%s" % (self.root, name),
                              self.network, box, domain_of(session))
        try:
            container.prepare()
        except BaseException:
            container.remove()
            raise
        return container

    def init(self):
        """The first process of a container, when it is not the program."""
        with self.objects:
            path = self.root + "/init"
            if not os.path.exists(path):
                subprocess.run(["cc", "-static", "-O1", "-o", path,
                                HERE + "/engine_init.c"], check=True)
            return path

    # commands

    def executed(self, step, path, session, sock):
        """Code, output and errors of a command that has been run once."""
        if step.digest in self.finished:
            return self.finished[step.digest]
        while True:
            with self.objects:
                task = self.tasks.get(step.digest)
                if task is None:
                    if self.stopping:
                        raise Problem("engine is shutting down", path)
                    self.begin(session)
                    task = self.tasks[step.digest] = Task(
                        lambda t: self.execute(step, session, t))
                if task.join(sock):
                    break
            # the one before is about to end
            task.done.wait(0.01)
            with self.objects:
                if task.done.is_set() \
                        and self.tasks.get(step.digest) is task:
                    del self.tasks[step.digest]
        try:
            code, out, err = task.wait(sock, session)
        except Problem as e:
            e.error.setdefault("path", path)
            raise
        expect = step.arguments.get("expect", "SUCCESS")
        args = step.arguments["args"]
        good = {"SUCCESS": code == 0, "FAILURE": 0 < code < 128 or code > 191,
                "ANY": code < 128 or code > 191}[expect]
        if good:
            return code, out, err
        raise exec_error("exit code: %d" % code, args, code, out, err, path)

    def execute(self, step, session, task):
        held, container = [], None
        a = step.arguments
        try:
            if a.get("insecureRootCapabilities"):
                raise exec_error("security.insecure is not allowed",
                                 a["args"])
            box = self.box(step)
            self.take(box, held)
            if task.deserted():
                raise self.over()
            if self.exec_delay:
                task.left.wait(self.exec_delay)
            container = self.container(box, session, a["args"],
                                       a.get("noInit"), None)
            wrong = container.missing()
            if wrong:
                return self.finish(step, container, 1, b"",
                                   wrong.encode() + b"\n")
            self.begin_one(container, a["args"], a.get("stdin"))
            while not container.ended.wait(0.005):
                if task.left.is_set():
                    container.kill()
                    raise self.over()
            return self.finish(step, container, container.code & 255,
                               *container.output)
        finally:
            if container:
                container.kill()
                container.remove()
            for volume in held:
                volume.lock.release()
            with self.objects:
                if self.tasks.get(step.digest) is task:
                    del self.tasks[step.digest]
            self.end(session)

    @staticmethod
    def begin_one(container, args, stdin=None):
        try:
            container.start(stdin.encode("utf-8", "replace")
                            if stdin else None)
        except ValueError as e:
            raise exec_error("get user: %s" % e, args)

    def over(self):
        return Problem("engine is shutting down" if self.stopping
                       else "context canceled")

    def finish(self, step, container, code, out, err):
        """What is remembered of it, unless it failed."""
        answer = (code, out, err)
        expect = step.arguments.get("expect", "SUCCESS")
        if code == 0 or (expect != "SUCCESS" and not 127 < code < 192):
            folder = "%s/results/%d" % (self.root, step.number)
            shutil.rmtree(folder, ignore_errors=True)
            container.remove(folder)
            self.layers[step.digest] = folder
            self.finished[step.digest] = answer
        return answer

    # services

    def service(self, name, arguments, result, session, sock):
        hostname = name_of(bytes.fromhex(result.digest))
        if name == "hostname":
            return hostname
        if name == "sync":
            return result.id()
        if name == "endpoint":
            ports = self.box(result)["ports"]
            port = arguments.get("port") or (ports and ports[0][0])
            if not port:
                raise Problem("no ports exposed", result.chain + [name])
            scheme = arguments.get("scheme")
            return "%s%s:%d" % (scheme + "://" if scheme else "", hostname,
                                port)
        key = (session, result.digest)
        with self.objects:
            running = self.services.setdefault(key, Running())
        if name == "stop":
            self.stop_one(running, not arguments.get("kill"), sock)
            return result.id()
        with self.objects:
            if self.stopping:
                raise Problem("engine is shutting down",
                              result.chain + [name])
            self.begin(session)
            task = Task(lambda t: self.start(result, running, hostname,
                                             session, t))
            self.starts.add(task)
            task.join(sock)
        try:
            task.wait(sock, session)
        except Problem as e:
            e.error.setdefault("path", result.chain + [name])
            raise
        return result.id()

    def start(self, result, running, hostname, session, task):
        try:
            with running.lock:
                if running.container is None \
                        or running.container.ended.is_set():
                    if running.container:
                        running.over.wait()
                    self.start_one(result, running, hostname, session)
        finally:
            with self.objects:
                self.starts.discard(task)
            self.end(session)

    def start_one(self, result, running, hostname, session):
        a = result.arguments
        box = self.box(result.parent)
        last = result.parent
        args = self.command(last, a, result.chain)
        if last.name == "withExec" and a.get("args"):
            box["layers"].append(last)
        full = hostname + "." + domain_of(session)
        box["hostname"] = full
        box["most"] = 1 << 16
        self.take(box, running.held)
        container = None
        try:
            container = self.container(box, session, args, a.get("noInit"),
                                       None)
            wrong = container.missing()
            if wrong:
                container.fail(wrong)
            else:
                self.begin_one(container, args)
                self.network.names[full] = container.address
            self.ready(container, box["ports"], args)
        except BaseException:
            if container:
                container.kill()
            self.gone(running, container, full)
            raise
        running.container, running.over = container, threading.Event()
        threading.Thread(target=self.watch_one, args=(
            running, container, full, running.over), daemon=True).start()

    def ready(self, container, ports, args):
        """Until all its ports can be connected to."""
        end = time.monotonic() + 60
        for port, skip in ports:
            while not skip:
                if container.ended.is_set():
                    raise exec_error(
                        "exit code: %d%s" % (container.code, TRACE), args,
                        container.code, *container.output)
                if time.monotonic() > end:
                    raise Problem("health check of port %d: timed out" % port)
                try:
                    socket.create_connection((container.address, port),
                                             1).close()
                    break
                except OSError:
                    time.sleep(0.01)

    def watch_one(self, running, container, full, over):
        container.ended.wait()
        for text in container.output:
            for line in text.decode("utf-8", "replace").splitlines():
                print("%s: %s" % (full, line), file=sys.stderr)
        print("%s: ended with %d" % (full, container.code), file=sys.stderr,
              flush=True)
        self.gone(running, container, full)
        over.set()

    def gone(self, running, container, full):
        if container and self.network.names.get(full) == container.address:
            del self.network.names[full]
        if container:
            container.remove()
        held, running.held = running.held, []
        for volume in held:
            volume.lock.release()

    def stop_one(self, running, ask=False, sock=None):
        """Asked to end it has all the time that it wants; else it is ended,
        as all of a session are."""
        container, over = running.container, running.over
        if container is None:
            return
        if ask:
            container.signal(signal.SIGTERM)
            while not container.ended.wait(0.01):
                if sock and closed(sock):
                    raise Left()
        else:
            container.kill()
        over.wait()

    def session_over(self, session):
        """Its services end, and are forgotten."""
        with self.objects:
            tasks = list(self.tasks.values()) + list(self.starts)
        for task in tasks:
            task.close(session)
        with self.objects:
            gone = [k for k in self.services if k[0] == session]
            ended = [self.services.pop(k) for k in gone]
        threads = [threading.Thread(target=self.stop_one, args=(r,))
                   for r in ended]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def exec_error(text, args, code=-1, out=b"", err=b"", path=None):
    return Problem(text + TRACE, path, {
        "_type": "EXEC_ERROR", "cmd": args, "exitCode": code,
        "stderr": err.decode("utf-8", "go").strip(),
        "stdout": out.decode("utf-8", "go").strip()})


def with_telemetry(env):
    """What the engine gives every program."""
    at = "http://127.0.0.1:4318"
    out = list(env)
    if not any(e.startswith("PATH=") for e in out):
        out.append("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
                   "/sbin:/bin")
    out += ["OTEL_TRACES_EXPORTER=otlp",
                       "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
                       "OTEL_EXPORTER_OTLP_ENDPOINT=" + at]
    for name in ("TRACES", "LOGS", "METRICS"):
        out += ["OTEL_EXPORTER_OTLP_%s_PROTOCOL=http/protobuf" % name,
                "OTEL_EXPORTER_OTLP_%s_ENDPOINT=%s/v1/%s" % (
                    name, at, name.lower())]
        if name == "TRACES":
            out.append("OTEL_EXPORTER_OTLP_TRACES_LIVE=1")
    return out
