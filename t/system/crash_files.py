#!/usr/bin/env python3
"""kill -9 of a worker, an agent and the runner while files are on their way:
uploads, saves, staging.  Each dies before each call that changes a file or
tells of one, one after the other, until it gets through.  After every death:
no half file is listed or served, what was acknowledged is there with its
bytes, nothing temporary stays, and all of it works again."""

import hashlib
import http.client
import os
import random
import signal
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

from gateway import Gateway, alive, wait_for                 # noqa: E402
from kill_at import KillAt, points                           # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="runner")

SIZE = 70000
BIG = 700000                            # of an attachment
KINDS = ("attachments", "files")

g = None
rnd = random.Random(6)


def start():
    global g
    g = Gateway(pool=2, workers=1)
    g.options["http"] = "sandbox_store %s/store;" % g.dir
    g.expected += ["exited on signal 9", "the agent of slot", "runner_lost"]
    g.start()


def stop():
    g.stop()


def digest(data):
    return None if data is None else hashlib.sha256(data).hexdigest()


class Place:
    """A file as it may be: its old bytes, or the new ones if whoever wrote
    them has no answer; None is no file.  `path` is below the conversation."""

    def __init__(self, conversation, path):
        self.conversation = conversation
        self.path = path
        self.may_be = [None]
        self.url = "v1/conversations/%s/%s" % (conversation,
                                               urllib.parse.quote(path))

    def wrote(self, data, acknowledged):
        self.may_be = [data] if acknowledged else self.may_be + [data]

    def found(self, what, where):
        """What is there is one of these, and is so from now on."""
        for data in self.may_be:
            if digest(data) == what:
                self.may_be = [data]
                return
        check(False, "%s of %s is none of what it may be, of %r:" % (
            where, self.path, [d and len(d) for d in self.may_be]), what)


last = None                             # Response of a request


def tried(*arguments):
    """The Response of a request, None if it has none."""
    global last
    last = None
    try:
        last = g.request(*arguments)
    except (OSError, http.client.HTTPException):
        pass
    return last


def good(response):
    return response is not None and response.status in (200, 201, 204)


def put(place, data):
    answer = good(tried("PUT", place.url, data))
    place.wrote(data, answer)
    return answer


def save(place, source, data):
    answer = good(tried("POST", "v1/conversations/%s/files"
                        % place.conversation,
                        {"path": source, "overwrite": True,
                         "name": place.path.split("/")[1]}))
    place.wrote(data, answer)
    return answer


def remove(place):
    answer = good(tried("DELETE", place.url))
    place.wrote(None, answer)
    return answer


def command(conversation, text):
    return tried("POST", "v1/conversations/%s/commands" % conversation,
                 {"command": text})


def ran(response):
    return good(response) and response.json["outcome"] == "exit"


def temporary():
    """What writers have in the store, and bodies that nginx keeps."""
    out = []
    for folder in (g.dir + "/store/.tmp", g.dir + "/tmp/body"):
        if os.path.isdir(folder):
            out += os.listdir(folder)
    return out


def stored(conversation, kind):
    """Files on the disk that a list should have."""
    return sum(len(files) for path, _, files in os.walk(g.dir + "/store")
               if path.endswith("/%s/%s" % (conversation, kind)))


def look(conversation, places):
    """The lists, and each file by itself: as they may be, and the same."""
    for kind in KINDS:
        r = g.request("GET", "v1/conversations/%s/%s" % (conversation, kind))
        same(r.status, 200, repr(r))
        listed = {f["name"]: f for f in r.json[kind]}
        same(len(listed), stored(conversation, kind), "all are listed")
        names = {p.path.split("/")[1] for p in places
                 if p.path.startswith(kind)}
        same(sorted(set(listed) - names), [], "others of " + kind)

        for place in places:
            if not place.path.startswith(kind):
                continue
            entry = listed.get(place.path.split("/")[1])
            r = g.request("GET", place.url)
            same(r.status, 200 if entry else 404, place.path)
            what = hashlib.sha256(r.body).hexdigest() if entry else None
            place.found(what, "GET")
            if entry:
                same((entry["size"], entry["etag"]),
                     (len(r.body), '"%s"' % what[:32]), place.path)
                same(r.headers["ETag"], entry["etag"], place.path)


def inside(conversation, places, staged):
    """What a command sees: the files of fs/, the attachments as they are in
    the store, and no others."""
    r = g.command(conversation, "sha256sum x/* attachments/* 2> /dev/null;"
                  "find / -xdev -name '.sandbox-*' 2> /dev/null")
    same(r.status, 200, repr(r))
    same(r.json["stagingNotices"], [], "notices")
    found = {}
    for line in r.json["stdout"].splitlines():
        check(len(line) > 66 and line[64:66] == "  ", "left behind:", line)
        found[line[66:]] = line[:64]
    for place in places:
        if place.path.startswith("fs/"):
            place.found(found.pop(place.path[3:], None), "the file")
            r = g.request("GET", place.url)
            same((r.status, digest(r.body) if r.status == 200 else None),
                 (404, None) if place.may_be == [None]
                 else (200, digest(place.may_be[0])), place.path)
        elif place.path.startswith("attachments/") and staged:
            same(found.pop(place.path, None), digest(place.may_be[0]),
                 "staged, " + place.path)
    same(found, {}, "other files")


def agent(conversation):
    """The agent of its sandbox, as the runner has noted it."""
    name = g.status(conversation)["sandboxId"]
    for slot in os.listdir(g.state + "/slots"):
        try:
            with open("%s/slots/%s/record" % (g.state, slot)) as f:
                record = dict(line.split(" ", 1) for line
                              in f.read().splitlines() if " " in line)
        except OSError:
            continue
        if record.get("id") == name and int(record["pid"]) > 1:
            return int(record["pid"])
    return None


def swept(conversation):
    """Nothing but the manifest, and an empty spool."""
    here = "/proc/%d/root/var/lib/sandbox" % agent(conversation)
    left = set(os.listdir(here)) - {"manifest", "spool"}
    return not left and not os.listdir(here + "/spool")


def empty_spool(conversation):
    wait_for(lambda: swept(conversation), 20, "an empty spool")


def worker():
    def one():
        pids = g.workers()
        return pids[0] if len(pids) == 1 else None
    return wait_for(one, 20, "a worker")


def works():
    """Until requests are answered again."""
    wait_for(lambda: (lambda r: r and r.json["status"] == "ready")(
        tried("GET", "health")), 20, "a gateway that is ready")


def some(numbers, most):
    """So many of them, the first, the last and between, elsewhere each
    time; all of them with SANDBOX_CRASH_ALL."""
    if os.environ.get("SANDBOX_CRASH_ALL") or len(numbers) <= most:
        return numbers
    return sorted({numbers[0], numbers[-1],
                   *random.sample(numbers, most - 2)})


def one_by_one(what, victim, act, after, least=4, most=30):
    """act(), in peace; then with a death before each call that it makes."""
    for _ in range(5):
        with KillAt(victim(), 0) as k:
            worked = act(0)
        if worked or last is None or last.status != 503 \
                or "in time" not in last.json["detail"]:
            break
        # traced, all of it is slow; on a busy machine nobody waits so long
        after()
    check(worked, "nobody died, and it did not work:", what, last)
    after()
    names = []
    for n in some(points(k.calls), most):
        pid = victim()
        with KillAt(pid, n) as k:
            act(n)
        if k.killed:
            names.append(k.killed)
            wait_for(lambda: not alive(pid), 20, "the death of %d" % pid)
        after()
    print("# %s: %d deaths, before %s" % (what, len(names), " ".join(
        "%s:%d" % (x, names.count(x)) for x in sorted(set(names)))))
    check(len(names) >= least, "so few calls of", what, k.calls)
    return len(names)


def acts(conversation):
    """Names of what is done, and the functions; each n brings other bytes."""
    c = conversation
    places = [Place(c, "attachments/new"), Place(c, "attachments/a b"),
              Place(c, "files/f"), Place(c, "files/saved"),
              Place(c, "fs/x/deep"), Place(c, "attachments/big")]
    new, attached, file, saved, deep, big = places
    source = rnd.randbytes(SIZE)

    def gone(n):
        check(g.request("DELETE", new.url).status in (204, 404), "DELETE")
        new.may_be = [None]

    def stage(n):
        data = rnd.randbytes(BIG + n)
        same(g.request("PUT", big.url, data).status in (200, 201), True)
        big.may_be = [data]
        return data

    def run(n):
        r = command(c, "sha256sum < attachments/big")
        if ran(r):
            same((r.json["stdout"].split()[0], r.json["stagingNotices"]),
                 (digest(big.may_be[0]), []), "staged")
        return ran(r)

    def prepare():
        same(g.request("PUT", "v1/conversations/%s/fs/source" % c,
                       source).status in (200, 201), True)

    prepare()
    return places, {
        "PUT attachments, new": (gone, lambda n: put(
            new, rnd.randbytes(1000 + n))),
        "PUT attachments": (None, lambda n: put(attached,
                                                rnd.randbytes(SIZE + n))),
        "PUT files": (None, lambda n: put(file, rnd.randbytes(SIZE + n))),
        "DELETE files": (lambda n: put(file, b"gone"),
                         lambda n: remove(file)),
        "POST files": (None, lambda n: save(saved, "source", source)),
        "PUT fs": (None, lambda n: put(deep, rnd.randbytes(SIZE + n))),
        "staging": (stage, run),
    }


@test("files/crash-worker", 900)
def crash_worker():
    places, all_acts = acts("w")
    for what in ("PUT attachments, new", "PUT attachments", "PUT files",
                 "DELETE files", "POST files", "PUT fs", "staging"):
        before, act = all_acts[what]

        def after():
            worker()
            works()
            look("w", places)
            wait_for(lambda: not temporary(), 20, "the sweep of a worker")
            inside("w", places, True)
            empty_spool("w")
        died = []

        def victim():
            died.append(1)
            if before:
                before(len(died))
            return worker()
        one_by_one(what, victim, act, after)
    g.delete("w")


@test("files/crash-worker-delete", 600)
def crash_delete():
    """DELETE of a conversation takes all of it, or nothing."""
    url = "v1/conversations/d"
    paths = ["/attachments/a", "/files/f"]
    acknowledged = []

    def victim():
        for path in paths:
            check(good(g.request("PUT", url + path, b"x" * 5000)), path)
        return worker()

    def act(n):
        acknowledged[:] = [good(tried("DELETE", url))]
        return acknowledged[0]

    def after():
        worker()
        works()
        statuses = {g.request("GET", url + path).status for path in paths}
        check(statuses in ([{404}] if acknowledged[0] else [{200}, {404}]),
              "half of it:", statuses)
        trash = g.dir + "/store/.trash"
        wait_for(lambda: not os.path.isdir(trash) or not os.listdir(trash),
                 20, "the sweep of what was deleted")

    one_by_one("DELETE of a conversation", victim, act, after)


@test("files/crash-agent", 900)
def crash_agent():
    places, all_acts = acts("a")
    new, attached, big = places[0], places[1], places[5]
    put(new, b"a new one")
    put(attached, b"another")
    for what in ("PUT fs", "POST files", "staging"):
        before, act = all_acts[what]

        def after():
            look("a", places)
            wait_for(lambda: not temporary(), 20, "the end of writers")
            inside("a", places, True)
            empty_spool("a")
        died = []

        def victim():
            died.append(1)
            if before:
                before(len(died))
            return wait_for(lambda: agent("a"), 20, "an agent")
        one_by_one(what, victim, act, after, 4, 14)

    # one goes, one comes, one is replaced; and then the first comes back
    old, other = rnd.randbytes(5000), rnd.randbytes(7000)

    def victim():
        same(g.request("DELETE", attached.url).status in (204, 404), True)
        same(g.request("PUT", new.url, other).status in (200, 201), True)
        attached.may_be, new.may_be = [None], [other]
        inside("a", places, True)
        same(g.request("PUT", attached.url, old).status in (200, 201), True)
        attached.may_be = [old]
        inside("a", places, True)
        same(g.request("DELETE", attached.url).status, 204)
        data = rnd.randbytes(6000)
        same(g.request("PUT", new.url, data).status, 200)
        attached.may_be, new.may_be = [None], [data]
        return wait_for(lambda: agent("a"), 20, "an agent")

    def after():
        same(g.request("PUT", attached.url, old).status, 201)
        attached.may_be = [old]
        inside("a", places, True)
        empty_spool("a")

    one_by_one("attachments that go and come back", victim,
               lambda n: ran(command("a", "true")), after)
    g.delete("a")


def runner_lives():
    if not alive(g.runner.pid):
        g.runner.wait(100)
        g.start_runner()
        g.reload()                      # new workers look for it at once
    works()


@test("files/crash-runner", 900)
def crash_runner():
    """It is not on the way of bytes; but it makes sandboxes and wakes them."""
    places, all_acts = acts("r")
    deaths = 0                          # it makes others meanwhile: no two
                                        # times have the same calls
    for what in ("PUT attachments", "POST files", "PUT fs", "staging"):
        before, act = all_acts[what]

        def after():
            runner_lives()
            look("r", places)
            inside("r", places, True)
            empty_spool("r")

        def victim(asleep=what != "PUT attachments"):
            if before:
                before(rnd.randrange(1000))
            if asleep:
                pid = agent("r")
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda: not alive(pid), 20, "the end of an agent")
                wait_for(lambda: g.status("r")["state"] == "idle", 20,
                         "a sandbox that sleeps")
            return g.runner.pid
        deaths += one_by_one(what, victim, act, after, 0, 4)
    wait_for(lambda: not temporary(), 20, "the end of writers")
    g.delete("r")

    # a sandbox is made for the file that comes; each time another one
    names = []

    def victim():
        names.append("m%d" % len(names))
        return g.runner.pid

    def act(n):
        place = Place(names[-1], "fs/x/first")
        answer = put(place, rnd.randbytes(SIZE + n))
        made.append(place)
        return answer

    def after():
        runner_lives()
        inside(names[-1], [made[-1]], True)
        g.delete(names[-1])

    made = []
    deaths += one_by_one("PUT fs, the first of a sandbox", victim, act,
                         after, 1)
    check(deaths > 4, "so few deaths:", deaths)
    check("could not be started" not in g.runner_log, "a sandbox was in its "
          "own way:", g.runner_log[-2000:])
    left = [os.path.join(path, f) for path, _, files in os.walk(g.state)
            for f in files if ".new" in f]
    same(left, [], "temporary files of the runner")


@test("files/staging-race")
def race():
    """Commands that bring along different attachments: each finds its own,
    at the end all are there, and none has another name."""
    wrong = []

    def one(n):
        for i in range(6):
            name, data = "f%d.%d" % (n, i), rnd.randbytes(200000 + n)
            url = "v1/conversations/race/attachments/" + name
            if not good(tried("PUT", url, data)):
                wrong.append("PUT")
            r = command("race", "sha256sum < attachments/" + name)
            got = r.json if good(r) else None
            if got is None or got["stagingNotices"] \
                    or got["stdout"].split() != [digest(data), "-"]:
                wrong.append((name, r))
            sums[name] = digest(data)

    sums = {}
    threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(wrong, [], "commands")
    out = g.output("race", "cd attachments && sha256sum *")
    same({line[66:]: line[:64] for line in out.splitlines()}, sums)


@test("files/staging-changed-while-replaced")
def changed():
    """The user's version of an attachment stays, whichever way it changed,
    and the new one is there beside it."""
    url = "v1/conversations/ch/attachments/d.csv"
    for n, how in enumerate((
            "echo mine > attachments/d.csv", "echo mine >> attachments/d.csv",
            "printf 'mi\\n' > t; mv t attachments/d.csv",
            "rm attachments/d.csv; mkdir attachments/d.csv",
            "ln -sf /etc/passwd attachments/d.csv")):
        conversation = "ch%d" % n
        url = "v1/conversations/%s/attachments/d.csv" % conversation
        same(g.request("PUT", url, b"one\n").status, 201)
        g.output(conversation, how)
        before = g.output(conversation, "ls -ld --time-style=full-iso "
                          "attachments/d.csv; cat attachments/d.csv; true")
        same(g.request("PUT", url, b"two\n").status, 200)
        r = g.run(conversation, "cat 'attachments/d (2).csv'")
        same(r["stdout"], "two\n", how)
        same([x["code"] for x in r["stagingNotices"]], ["renamed"], how)
        same(g.output(conversation, "ls -ld --time-style=full-iso "
                      "attachments/d.csv; cat attachments/d.csv; true"),
             before, how)
        # the next one takes the place of ours, not of his
        same(g.request("PUT", url, b"three\n").status, 200)
        r = g.run(conversation, "cat 'attachments/d (2).csv'; "
                  "ls attachments | wc -l")
        same((r["stdout"], r["stagingNotices"]), ("three\n2\n", []), how)
        g.delete(conversation)


if __name__ == "__main__":
    main(start, stop)
