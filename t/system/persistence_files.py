#!/usr/bin/env python3
"""What becomes of files when a sandbox stops, is replaced, lost or deleted:
those that commands made, attachments, the Files panel, installed packages;
group persistence of the cases, as far as it is about files."""

import glob
import os
import random
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import packages                                              # noqa: E402
from gateway import Gateway, alive, cgroup_of, in_cgroup     # noqa: E402
from gateway import in_namespace, loop_devices, mounts       # noqa: E402
from gateway import pid_namespace, pinned, wait_for          # noqa: E402
from tap import backends, check, main, same, test            # noqa: E402

backends("local", why="home")

g = None
V = "v1/conversations/"


def start():
    global g
    g = Gateway(pool=1, zone="1m idle=1s")
    g.options["http"] = """
        sandbox_store %s/store files=1000;
        sandbox_disk 128m;
        sandbox_wall_time 400s;
    """ % g.dir
    g.described = True
    g.start()


def stop():
    g.stop()


def put(conversation, path, data, status=201):
    r = g.request("PUT", V + conversation + "/" + path, data)
    same(r.status, status, "PUT %s: %r" % (path, r))
    return r


def get(conversation, path, status=200):
    r = g.request("GET", V + conversation + "/" + path)
    same(r.status, status, "GET %s: %r" % (path, r))
    return r


def staged(conversation, text="ls attachments"):
    """stdout of a command that has nothing to tell of attachments."""
    r = g.run(conversation, text)
    same((r["exitCode"], r["stagingNotices"]), (0, []), r)
    return r["stdout"]


def idle(conversation):
    wait_for(lambda: g.status(conversation)["state"] == "idle", 30,
             "the idle stop")


# everything there is to know of files, and what is in them
LOOK = """cd ~ && find . /var/tmp -not -path './.cache*' -printf \
'%p %y %m %u %s %T@ %l %n\\n' 2>&1 | grep -v '^[./a-z]* d' | sort; \
find . -type d -not -path './.cache*' -printf '%p %m\\n' | sort; \
find . -type f -not -path './.cache*' -not -path './.venv*' \
-exec sha256sum {} + | sort; python3 -c 'import os; \
print(os.listdir(b"odd"), os.stat("sparse").st_blocks < 100)'"""


@test("persistence/survives-stop")
def survives():
    put("stop", "attachments/data.csv", b"a,b\n")
    put("stop", "fs/by/client.bin", random.Random(1).randbytes(300000))
    put("stop", "files/panel.txt", b"panel")
    first = g.run("stop", "mkdir -p d/e odd; echo 1 > a; chmod 751 a; "
                  "ln -s a link; ln a hard; ln -s /nowhere dangling; "
                  "touch -d '2001-02-03 04:05:06.789012345' d/old; "
                  "chmod 000 d/e; mkfifo fifo; echo .x > .hidden; "
                  "truncate -s 10M sparse; echo changed >> "
                  "attachments/data.csv; echo v > /var/tmp/v;"
                  " python3 -c 'open(b\"odd/\\xff\\n\", \"w\")'")
    same(first["exitCode"], 0, first)
    before = g.output("stop", LOOK)
    check("attachments/data.csv" in before and "dangling" in before, before)
    tag = get("stop", "fs/by/client.bin").headers["ETag"]

    for n in range(2):
        idle("stop")
        # the store needs no container, and none is woken for it
        same(get("stop", "files/panel.txt").body, b"panel")
        same(get("stop", "attachments/data.csv").body, b"a,b\n")
        same(g.status("stop")["state"], "idle")
        if n == 1:
            # what asks for a file of the container wakes it
            r = get("stop", "fs/by/client.bin")
            same((r.headers["ETag"], len(r.body)), (tag, 300000))
        r = g.run("stop", LOOK)
        same((r["exitCode"], r["sandboxId"], r["sandboxCreated"],
              r["stagingNotices"]), (0, first["sandboxId"], False, []), r)
        gone = set(before.splitlines()) - set(r["stdout"].splitlines())
        new = set(r["stdout"].splitlines()) - set(before.splitlines())
        check(not gone and not new, "other files", sorted(gone), sorted(new))

    # and goes on: a new attachment, a write, both kept over the next stop
    put("stop", "attachments/new.csv", b"new")
    same(staged("stop", "cat attachments/new.csv; echo 2 > a; cat hard"),
         "new2\n")
    idle("stop")
    put("stop", "fs/a", b"3", 200)
    same(staged("stop", "cat a; stat -c %a a"), "3751\n")


@test("persistence/packages-survive data/plot-cache")
def packages_survive():
    packages.start(g, "pack", "tinya", "tinyb")
    same(g.output("pack", packages.ONLINE + "uv add -q tinya && "
                  "uv pip install -q /tmp/index/wheels/tinyb*"), "")
    packages.stop(g, "pack")
    g.output("pack", "python3 -c 'import matplotlib.pyplot as p; p.plot([1]); "
             "p.savefig(\"a.png\")'")
    idle("pack")
    r = g.run("pack", "python3 -c 'import tinya, tinyb, pandas; "
              "print(tinya.answer + tinyb.answer)' && uv add -q tinya && "
              "uv pip list -q | grep -c tiny; touch mark; python3 -c 'import "
              "matplotlib.pyplot as p; p.plot([1]); p.savefig(\"a.png\")'; "
              "find ~ -newer mark -name 'fontlist*'")
    same((r["exitCode"], r["stdout"], r["stderr"]), (0, "84\n2\n", ""), r)


@test("persistence: attachments over reset, fresh, a lost sandbox")
def again():
    for n in range(30):
        put("again", "attachments/f%02d" % n, b"%d" % n)
    put("again", "files/panel", b"kept")
    all_of_them = "".join(str(n) for n in range(30))
    read = "cat attachments/* && ls attachments | wc -l"
    same(staged("again", read), all_of_them + "30\n")

    # what was changed, removed, added: the sandbox's own, and gone with it
    g.output("again", "cd attachments; echo x > f00; rm f01; echo y > own; "
             "mv f02 moved; echo z > ../work")
    seen = set()
    for way in ("reset", "fresh", "lost"):
        if way == "reset":
            r = g.request("POST", V + "again/reset")
            same(r.status, 200, r)
            r = g.run("again", read)
        elif way == "fresh":
            g.output("again", "echo x > attachments/f00; echo z > work")
            r = g.run("again", read, fresh=True)
        else:
            # the runner has lost all it had, as on a new host
            g.output("again", "echo x > attachments/f00; echo z > work")
            g.stop_runner()
            shutil.rmtree(g.state)
            g.start_runner()
            g.wait_ready()
            r = g.run("again", read)
        same((r["stdout"], r["stagingNotices"], r["sandboxCreated"]),
             (all_of_them + "30\n", [], True), way)
        check(r["sandboxId"] not in seen, "an old sandbox", way)
        seen.add(r["sandboxId"])
        same(staged("again", "ls work attachments/own 2>/dev/null; true"), "",
             way)
        same(get("again", "files/panel").body, b"kept", way)


@test("persistence/boot-leftovers: files after an unclean reboot")
def reboot():
    """Nobody is there any more, the state folder says otherwise."""
    put("boot", "attachments/a", b"1")
    put("boot", "files/b", b"2")
    old = g.run("boot", "echo kept > f; cat attachments/a; sleep 1000 "
                "> /dev/null 2>&1 &")
    put("boot", "fs/c", b"3")
    pids = in_cgroup(cgroup_of(g.agent("boot")))
    check(len(pids) > 1, "no processes", pids)
    g.kill_runner()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_for(lambda: not any(alive(p) for p in pids), 20, "the end of all")
    g.start_runner()
    g.wait_ready()
    r = g.run("boot", "cat f c attachments/a; pgrep sleep")
    same((r["stdout"], r["sandboxId"], r["sandboxCreated"],
          r["stagingNotices"]),
         ("kept\n31", old["sandboxId"], False, []), r)
    same(get("boot", "files/b").body, b"2")


@test("persistence: an attachment that a command has changed, then the user")
def changed():
    """NAME is the command's, NAME (2) the user's, told once, over stops."""
    put("both", "attachments/d.csv", b"1")
    put("both", "attachments/folder", b"1")
    put("both", "attachments/link", b"1")
    put("both", "attachments/removed", b"1")
    g.output("both", "cd attachments; echo mine >> d.csv; rm folder removed "
             "link; mkdir folder; ln -s /etc/passwd link")
    idle("both")
    for name in ("d.csv", "folder", "link", "removed"):
        put("both", "attachments/" + name, b"two", 200)
    r = g.run("both", "cd attachments; cat d.csv 'd (2).csv' 'folder (2)' "
              "'link (2)' removed; readlink link; ls")
    same(r["stdout"].split("\n", 1)[0], "1mine")
    check("twotwotwotwo/etc/passwd\n" in r["stdout"], "contents", r)
    told = {n["name"]: n for n in r["stagingNotices"]}
    for name, new in (("d.csv", "d (2).csv"), ("folder", "folder (2)"),
                      ("link", "link (2)")):
        same(told[name]["code"], "renamed")
        check(new in told[name]["detail"], "which name", told[name])
    check("removed" not in told, "told without need", told)
    same(staged("both", "true"), "")
    # the next version takes the place of that which is ours
    idle("both")
    put("both", "attachments/d.csv", b"three", 200)
    same(staged("both", "cd attachments; cat d*"), "three1mine\n")
    # gone for the user: what the command made of it stays
    for name in ("d.csv", "folder", "link", "removed"):
        same(g.request("DELETE", V + "both/attachments/" + name).status, 204)
    same(staged("both", "cd attachments; ls; cat d.csv").split()[:4],
         ["d.csv", "folder", "link", "1mine"])


@test("persistence/expired-clear")
def expired():
    put("ended", "attachments/a", b"1")
    put("ended", "files/b", b"1")
    old = g.run("ended", "echo x > f", commandId="one")
    link = g.request("POST", V + "ended/files/b/link").json["url"]
    same(g.delete("ended").status, 204)
    same(g.status("ended"), {"conversationId": "ended", "state": "none"})
    for method, path, code in (
            ("GET", "fs/f", "no_sandbox"), ("DELETE", "fs/f", "no_sandbox"),
            ("GET", "commands/one", "no_sandbox"),
            ("DELETE", "commands/one", "no_sandbox"),
            ("GET", "attachments/a", "file_not_found"),
            ("GET", "files/b", "file_not_found")):
        r = g.request(method, V + "ended/" + path)
        same((r.status, r.json["code"]), (404, code), path)
    r = g.request("POST", V + "ended/files", {"path": "f"})
    same((r.status, r.json["code"]), (404, "no_sandbox"))
    same(g.request("GET", link, token=None).status, 404)
    # and it can be used again, as new, and says so
    r = g.run("ended", "ls f attachments/a; ls ~/attachments", commandId="one")
    check(r["sandboxCreated"] and r["sandboxId"] != old["sandboxId"], "got", r)
    same((r["stdout"], r["stagingNotices"]), ("", []))
    same(get("ended", "files").json["files"], [])
    same(put("ended", "files/b", b"2").status, 201)
    same(g.request("GET", link, token=None).status, 410, "of another content")


@test("persistence/thousand-commands: two hundred uploads")
def many_uploads():
    times = []
    for n in range(200):
        put("long", "attachments/a%03d" % n, b"%d" % n)
        put("long", "fs/up/f%03d" % n, b"%d" % n)
        if n % 10 == 9:
            begun = time.monotonic()
            same(staged("long", "ls attachments up | wc -l"),
                 "%d\n" % (2 * n + 2 + 3))
            times.append(time.monotonic() - begun)
    print("# a command with ten new attachments: the first three %d ms, the "
          "last three %d ms" % (sum(times[:3]) / 3e-3, sum(times[-3:]) / 3e-3))
    sums = staged("long", "cat attachments/* | md5sum; cat up/* | md5sum")
    same(*sums.splitlines())


def slot_of(sandbox):
    """The number of its slot."""
    for path in glob.glob(g.state + "/slots/*/record"):
        try:
            with open(path) as f:
                if "\nid %s\n" % sandbox in f.read():
                    return path.split("/")[-2]
        except OSError:
            pass
    raise AssertionError("no slot of " + sandbox)


@test("persistence/delete-all", seconds=800)
def delete_all():
    """Deep trees, a full disk, stopped processes, what can't be removed: all
    of it is gone, from the host, too."""
    for n in range(20):
        put("all", "attachments/%d" % n, b"x" * 5000)
        put("all", "files/%d" % n, b"x")
    g.run("all", "python3 -c 'import os\nfor n in range(2000):\n"
             "    os.mkdir(\"d\" * 50); os.chdir(\"d\" * 50)'; "
             "chattr +i pyproject.toml 2>/dev/null; chmod -R 000 d* "
             "attachments; (sleep 1000 > /dev/null 2>&1 & kill -STOP $!); "
             "touch /dev/shm/x; (python3 -c 'import mmap, time; m = mmap.mmap("
             "-1, 9999999); time.sleep(1000)' > /dev/null 2>&1 &) ; "
             "for n in 1 2 3; do cat < /dev/zero > full$n; sync; done 2>/dev/null;"
             " exec 9< full1; "
             "sleep 1000 > /dev/null 2>&1 &", timeout=500)   # sync: the host's
    same(g.run("all", "head -c 100000 /dev/zero > more")["outcome"],
         "exit", "there was no room before")
    check(int(g.output("all", "df --output=avail -k . | tail -n 1")) < 100,
          "there is room")
    pid = g.agent("all")
    sandbox = g.run("all", "true")["sandboxId"]
    space, pin = pid_namespace(pid), pinned(pid)
    check(len(in_namespace(space)) > 2, "processes", in_namespace(space))
    slot = "%s/slots/%s/" % (g.state, slot_of(sandbox))
    check(loop_devices(slot), "no disk in", slot)
    begun = time.monotonic()
    same(g.delete("all").status, 204)
    check(time.monotonic() - begun < 100, "deletion takes long")
    same(g.status("all")["state"], "none")
    wait_for(lambda: not in_namespace(space), 20, "the end of its processes")
    os.close(pin)
    wait_for(lambda: not loop_devices(slot), 20, "the end of its disk")
    wait_for(lambda: not os.path.exists(slot), 20, "the end of its slot")
    same([m for m in mounts(sandbox)], [])
    wait_for(lambda: not os.listdir(g.dir + "/store/.trash"), 20,
             "an empty trash")
    same(glob.glob(g.dir + "/store/*/*/*/all"), [], "its store")
    for kind in ("attachments", "files"):
        same(get("all", kind).json[kind], [])
    # at once again, and with room
    r = g.run("all", "ls attachments /dev/shm | grep -c . ; head -c 50000000 "
              "/dev/zero > big; stat -c %s big")
    same(r["stdout"].split()[-1], "50000000", r)


main(start, stop)
