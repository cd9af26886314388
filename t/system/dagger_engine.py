#!/usr/bin/env python3
"""The engine of these tests, with its containers: that it is as the real one
was seen to be (each sentence here was an answer of v0.21.5).

With SANDBOX_TEST_DAGGER=tcp://HOST:PORT the same is asked of a real engine,
where that can be; SANDBOX_TEST_DAGGER_DNS is the address of its names.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")

import wire                                                  # noqa: E402
from gateway import AGENT, wait_for                          # noqa: E402
from tap import check, main, same, skip, test                # noqa: E402

try:
    from engine_client import (Registry, Session, address_of, leaf,
                               quoted)
    from engine_program import Program
except ImportError:
    Program = None

REAL = os.environ.get("SANDBOX_TEST_DAGGER")
TRACE = " [traceparent:%s-%s]" % ("0" * 32, "0" * 16)
LIVES = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]
DEAF = ["sh", "-c", "trap '' TERM; sleep 1000"]

state = {}
cleanup = contextlib.ExitStack()


def start():
    if Program is None:
        raise SystemExit("python3-h2 is missing: run 'make deps'")
    state["registry"] = cleanup.enter_context(Registry(AGENT))
    if REAL:
        state["address"] = REAL
        state["resolver"] = os.environ.get("SANDBOX_TEST_DAGGER_DNS",
                                           "10.87.0.1")
    else:
        engine = cleanup.enter_context(Program())
        state["address"] = engine.address
        state["resolver"] = engine.resolver
    state["session"] = cleanup.enter_context(Session(state["address"]))
    state["base"] = state["session"].get("{container{from(address:%s){id}}}"
                                         % quoted(state["registry"].image))


def stop():
    cleanup.close()


def only_ours():
    """An engine of its own is needed, which is ended in ways."""
    if REAL:
        skip("not with an engine that others use")


def nonce():
    return os.urandom(12).hex()


def chain(*steps, base=None):
    """A query of fields in one another, from the image on."""
    steps = ('loadContainerFromID(id:"%s")' % (base or state["base"]),) \
        + steps
    return "{" + "{".join(steps) + "}" * len(steps)


def env(value, name="N"):
    return 'withEnvVariable(name:"%s",value:%s)' % (name, quoted(value))


def mount(volume, path="/v", more=""):
    return 'withMountedCache(path:"%s",cache:"%s"%s)' % (path, volume, more)


def execute(args, want="exitCode stdout stderr", more=",expect:ANY", key=None,
            before=()):
    """The query of a command."""
    if isinstance(args, str):
        args = ["sh", "-c", args]
    return chain(*before, env(key or nonce()), "withExec(args:%s,noInit:true"
                 "%s)" % (quoted(args), more), want)


def service(args, key, want="start hostname", before=(), skip_health=True):
    return chain(*before, env(key), "withExposedPort(port:9000%s)"
                 % (",experimentalSkipHealthcheck:true" if skip_health
                    else ""), "asService(args:%s,noInit:true)"
                 % quoted(args), want)


def volume(key, more="", session=None):
    return (session or state["session"]).get(
        '{cacheVolume(key:"%s"%s){id}}' % (key, more))


def lists(session, where, path="/v"):
    """What is in a volume."""
    return session.get(execute("cd %s; head -v * 2>/dev/null; true" % path,
                               "stdout", before=[mount(where, path)]))


def refused(message, line, column, code="VALIDATION"):
    return {"message": message, "locations": [{"line": line,
                                               "column": column}],
            "extensions": {"code": "GRAPHQL_%s_FAILED" % code}}


@test("dagger/engine-reads", beside=True)
def reads():
    """Queries that are none, values that are none, ids that are none."""
    s, base = state["session"], state["base"]

    for text, error in (
            ("{nope}", refused('Cannot query field "nope" on type "Query". '
                               'Did you mean "node"?', 1, 2)),
            ("{version{id}}", refused('Cannot query field "id" on type '
                                      '"String".', 1, 10)),
            ("{contaner{id}}", refused(
                'Cannot query field "contaner" on type "Query". Did you mean '
                '"container"?', 1, 2)),
            ("{container{from{id}}}", refused(
                'Field "from" argument "address" of type "String!" is '
                "required, but it was not provided.", 1, 12)),
            ("{version(a:1)}", refused('Unknown argument "a" on field '
                                       '"Query.version".', 1, 2)),
            ("{container(platfrm:1){id}}", refused(
                'Unknown argument "platfrm" on field "Query.container". Did '
                'you mean "platform"?', 1, 2)),
            ('{container{from(address:"a",address:"b"){id}}}', refused(
                'There can be only one argument named "address".', 1, 29)),
            ("mutation{version}", refused(
                'Schema does not support operation type "mutation"', 1, 1)),
            ("{a:version a:defaultPlatform}", refused(
                'Fields "a" conflict because "version" and "defaultPlatform" '
                "are different fields. Use different aliases on the fields to "
                "fetch both if this was intentional.", 1, 12)),
            ("{", refused("Expected Name, found <EOF>", 1, 2, "PARSE")),
            ("{ }", refused("expected at least one definition, found }", 1, 3,
                            "PARSE")),
            ("\n\n  {version(}", refused("Expected Name, found }", 3, 12,
                                         "PARSE")),
            ('{version "a"}', refused("Expected Name, found String", 1, 11,
                                      "PARSE")),
            ("{version}}", refused("Unexpected }", 1, 10, "PARSE")),
            ("x", refused('Unexpected Name "x"', 1, 1, "PARSE")),
            ('{container(a:"x){id}}', refused("Unexpected <Invalid>", 1, 22,
                                              "PARSE")),
            ('{version(a:"\\q")}', refused("Unexpected <Invalid>", 1, 14,
                                           "PARSE")),
            ("{version ;}", refused("Expected Name, found <Invalid>", 1, 10,
                                    "PARSE"))):
        same(s.ask(text), (422, {"errors": [error], "data": None}), text)

    same([e["message"] for e in s.ask("{version,nope2,container{nix}}")[1]
          ["errors"]],
         ['Cannot query field "nope2" on type "Query". Did you mean "node"?',
          'Cannot query field "nix" on type "Container". Did you mean "id"?'])
    same(s.error("{container}"), {
        "message": 'field "container" of type "Container" must have a '
        "selection of subfields", "path": ["container"]})
    same(s.ask('{loadContainerFromID(id:""){id}}'), (422, {"errors": [
        {"message": "internal system error"}], "data": None}))

    for text, field, argument, wrong in (
            ("{container{from(address:1){id}}}", "from", "address",
             "dagql.String (String!) using dagql.String: cannot create String "
             "from int64"),
            ('{cacheVolume(key:"x",sharing:FOO){id}}', "cacheVolume",
             "sharing", "dagql.DynamicOptional (CacheSharingMode) using "
             'dagql.DynamicOptional: invalid enum member "FOO" for '
             "core.CacheSharingMode"),
            ('{loadContainerFromID(id:"garbage"){id}}', "loadContainerFromID",
             "id", "dagql.Scalar[github.com/dagger/dagger/dagql.AnyID] "
             "(ContainerID!) using dagql.Scalar[github.com/dagger/dagger/"
             "dagql.AnyID]: invalid ID string: failed to decode base64: "
             "illegal base64 data at input byte 4"),
            (chain(mount(base), "id"), "withMountedCache", "cache",
             "dagql.ID[*github.com/dagger/dagger/core.CacheVolume] (ID!) "
             "using dagql.ID[*github.com/dagger/dagger/core.CacheVolume]: "
             'expected "CacheVolume" ID, got Container! ID')):
        same(s.error(text)["message"], 'query:\n%s\n\nerror: parse selections'
             ': parse field "%s": init arg "%s" value as %s'
             % (text, field, argument, wrong))


@test("dagger/engine-http", beside=True)
def http():
    s = state["session"]
    head = b'{"errors":[{"message":"json request body could not be decoded: '
    for body, kind, answer in (
            (b"", "application/json", (400, "application/json", head
                                       + b'EOF body:"}],"data":null}')),
            (b"x", "application/json", (
                400, "application/json", head + b"invalid character 'x' "
                b'looking for beginning of value body:x"}],"data":null}')),
            (b'{"query":"{version}"}', None, (
                400, "text/plain", b'{"errors":[{"message":"transport not '
                b'supported"}],"data":null}')),
            (b"{}", "application/json", (
                422, "application/json", b'{"errors":[{"message":"no '
                b'operation provided","extensions":{"code":"GRAPHQL_'
                b'VALIDATION_FAILED"}}],"data":null}')),
            (b'{"query":"{"}', "application/json", (
                422, "application/json", b'{"errors":[{"message":"Expected '
                b'Name, found \\u003cEOF\\u003e","locations":[{"line":1,'
                b'"column":2}],"extensions":{"code":"GRAPHQL_PARSE_FAILED"}}]'
                b',"data":null}'))):
        same(s.request("POST", "/query", body, kind), answer)
    same(s.request("POST", "/other"), (404, "text/plain",
                                       b"404 page not found\n"))

    # bodies of more than 2 KB are in pieces; names are in order

    for size in (900, 1100, 100000):
        text = chain(env("y" * size),
                     'z:envVariable(name:"N") a:envVariable(name:"N")')
        _, fields, body = s.whole("POST", "/query", (
            '{"query":%s}' % quoted(text)).encode())
        check(body.endswith(b'{"withEnvVariable":{"a":"%s","z":"%s"}}}}'
                            % (b"y" * size, b"y" * size)), "the answer", body)
        same(fields.get("transfer-encoding"),
             "chunked" if len(body) > 2048 else None, len(body))
    got = s.request("POST", "/query",
                    b'{"query":"{version defaultPlatform}"}')[2]
    check(got.startswith(b'{"data":{"defaultPlatform":"linux/amd64",'
                         b'"version":"'), "the order", got)

    # connections: kept, closed, of old clients

    def plain(line, fields, *ends):
        with socket.create_connection(s.peer, 30) as sock:
            body = b'{"query":"{defaultPlatform}"}'
            sock.sendall(("%s\r\n%s%sContent-Type: application/json\r\n"
                          "Content-Length: %d\r\n\r\n" % (
                              line, s.header(), fields, len(body))).encode()
                         + body)
            got = b""
            while not got.endswith(ends):
                data = sock.recv(4096)
                if not data:
                    return got + b" and its end"
                got += data
            return got

    good = b'{"data":{"defaultPlatform":"linux/amd64"}}'
    got = plain("POST /query HTTP/1.1", "Host: x\r\n", good)
    check(b"\r\nContent-Length: 42\r\n\r\n" in got, "it is kept", got)
    got = plain("POST /query HTTP/1.1", "Host: x\r\nConnection: close\r\n",
                b"none")
    check(b"\r\nConnection: close\r\n\r\n" + good + b" and" in got,
          "it is closed", got)
    got = plain("POST /query HTTP/1.0", "", b"none")
    check(got.startswith(b"HTTP/1.0 200 OK\r\n") and got.endswith(
        good + b" and its end"), "HTTP/1.0", got)
    check(plain("POST /query HTTP/1.1", "", b"none").endswith(
        b"400 Bad Request: missing required Host header and its end"),
        "no host")

    # who asks

    plain = "get or init client: %s"
    known = 'client "%s" already exists with different secret token' \
        % s.metadata["client_id"]
    for name, text in (("client_id", "client ID is required"),
                       ("session_id", "session ID is required"),
                       ("client_secret_token",
                        "client secret token is required"), ("", known)):
        other = Session(state["address"], attach=False, **(
            {name: None} if name else dict(s.metadata,
                                           client_secret_token="other")))
        same(other.request("POST", "/query", b'{"query":"{version}"}'),
             (200, "text/plain", b'{"data":null,"errors":[{"message":"%s"}]}\n'
              % (plain % text).replace('"', '\\"').encode()))
        for method, path in (("GET", "/sessionAttachables"),
                             ("POST", "/shutdown")):
            same(other.request(method, path), (
                200, "text/plain", (plain % text).encode() + b"\n"))
    again = Session(state["address"], attach=False, **s.metadata)
    same(again.attach(), 'session attachables for client "%s" already exist\n'
         % s.metadata["client_id"])
    again.header = lambda: ""
    same(again.request("POST", "/query"), (
        500, "text/plain", b"failed to get client metadata: failed to JSON-"
        b"unmarshal X-Dagger-Client-Metadata: unexpected end of JSON input"
        b"\n"))


@test("dagger/engine-nobody-attached", beside=True)
def unattached():
    with Session(state["address"], attach=False) as s:
        same(s.request("POST", "/query", b'{"query":"{version}"}'), (
            200, "text/plain", b'{"data":null,"errors":[{"message":"waiting '
            b"for client session attachables: context deadline exceeded\"}]}"
            b"\n"))


@test("dagger/engine-image", beside=True)
def image():
    """By digest; what is not there; what is not what its digest says."""
    r, s = state["registry"], state["session"]
    same(s.get("{container{from(address:%s){id}}}" % quoted(r.image)),
         state["base"])
    missing = r.image[:-64] + "0" * 64
    same(s.error("{container{from(address:%s){id}}}" % quoted(missing)), {
        "message": 'failed to resolve image "%s" (platform: "linux/amd64"): '
        "%s: not found" % (missing, missing), "path": ["container", "from"]})
    gone = "127.0.0.1:1/x@sha256:" + "0" * 64
    same(s.error("{container{from(address:%s){id}}}" % quoted(gone))
         ["message"], 'failed to resolve image "%s" (platform: "linux/amd64"):'
         ' failed to do request: Head "http://127.0.0.1:1/v2/x/manifests/'
         'sha256:%s": dial tcp 127.0.0.1:1: connect: connection refused'
         % (gone, "0" * 64))
    if REAL:
        return
    manifest = "/v2/sandbox/manifests/" + r.digest
    asked = [(m, "blob" if "/blobs/" in p else p) for m, p in r.asked
             if p == manifest or "/blobs/" in p]
    same(asked[:3], [("HEAD", manifest), ("GET", manifest), ("GET", "blob")])


def small(folder, kind, wrong):
    """An image of the agent alone: its manifest's digest, and the layer's."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(AGENT, "a")
        entry = tarfile.TarInfo("random")
        entry.size = 16
        tar.addfile(entry, io.BytesIO(os.urandom(16)))
    layer = data.getvalue()
    if kind == "tar+gzip":
        layer = gzip.compress(layer, 1)

    def put(where, what):
        if not isinstance(what, bytes):
            what = json.dumps(what).encode()
        digest = "sha256:" + hashlib.sha256(what).hexdigest()
        os.makedirs("%s/v2/small/%s" % (folder, where), exist_ok=True)
        with open("%s/v2/small/%s/%s" % (folder, where, digest), "wb") as f:
            f.write(what)
        return {"digest": digest, "size": len(what),
                "mediaType": "application/vnd.oci.image.layer.v1." + kind}

    described = put("blobs", layer)
    path = "%s/v2/small/blobs/%s" % (folder, described["digest"])
    if wrong == "gone":
        os.remove(path)
    elif wrong == "spoiled":
        with open(path, "r+b") as f:
            f.write(b"other")
    config = put("blobs", {
        "architecture": "amd64", "os": "linux", "config": {}, "rootfs": {
            "type": "layers", "diff_ids": ["sha256:" + os.urandom(32).hex()]}})
    config["mediaType"] = "application/vnd.oci.image.config.v1+json"
    return put("manifests", {
        "schemaVersion": 2, "config": config, "layers": [described],
        "mediaType": "application/vnd.oci.image.manifest.v1+json"})[
            "digest"], described["digest"]


@test("dagger/engine-image-layers", beside=True)
def layers():
    """Packed or not; not there; not what their digest says."""
    s = state["session"]
    with tempfile.TemporaryDirectory(prefix="sandbox-t.", dir="/tmp") as folder:
        with Registry(None, folder) as r:
            for kind, wrong, text in (
                    ("tar+gzip", None, None), ("tar", None, None),
                    ("tar+gzip", "gone", "failed to copy: httpReadSeeker: "
                     "failed open: could not fetch content descriptor %s "
                     "(application/vnd.oci.image.layer.v1.tar+gzip) from "
                     "remote: not found"),
                    ("tar+gzip", "spoiled", 'failed commit on ref "layer-%s":'
                     " unexpected commit digest sha256:")):
                manifest, layer = small(folder, kind, wrong)
                address = "%s/small@%s" % (r.host, manifest)
                image = s.get('{container{from(address:"%s"){id}}}' % address)
                run = chain(env(nonce()), 'withExec(args:["/a","--none"],'
                            "expect:ANY,noInit:true)", "exitCode", base=image)
                if wrong is None:
                    same(s.get(run), 2, kind)
                    continue
                got = s.error(run)["message"]
                check(got.startswith('pull image "%s": ' % address
                                     + text % layer), wrong, got)


@test("dagger/engine-ids", beside=True)
def ids():
    s = state["session"]
    key = nonce()
    one = volume(key)
    same(volume(key), one, "the same in the session")
    with Session(state["address"]) as other:
        same(volume(key, session=other), one, "and in another")
        # the real one knows that images are equal, not only questions
        same(other.get(chain("id")) if not REAL else state["base"],
             state["base"])
    others = {volume(key, more) for more in (
        ",sharing:LOCKED", ',owner:"1000:1000"',
        ',owner:"1000:1000",sharing:PRIVATE')}
    same(len(others | {one}), 4, "volumes of a key")
    same(s.error('{loadContainerFromID(id:"%s"){id}}' % one), {
        "message": "load Container: expected Container, got CacheVolume",
        "path": ["loadContainerFromID"]})
    same(s.error('{loadContainerFromID(id:"EhMIv4Q9Eg0KCUNvbnRhaW5lchgB"){id}'
                 '}'), {"message": 'arg "id": resolve ID input "engineResult('
                        '999999): Container!": resolve result 999999: missing '
                        'shared result', "path": ["loadContainerFromID"]})


@test("dagger/engine-exec", beside=True)
def codes():
    s = state["session"]
    for code in (0, 1, 127, 192, 255):
        same(s.get(execute("echo out; echo err >&2; exit %d" % code)),
             {"exitCode": code, "stderr": "err\n", "stdout": "out\n"})
    for code, script in ((137, "exit 137"), (191, "exit 191"),
                         (143, "sh -c 'kill $$'; exit $?")):
        script = "echo ' out'; " + script
        error = s.error(execute(script, "exitCode"))
        same((error["message"], error["path"][:2], error["path"][-2:],
              error["extensions"]["exitCode"], error["extensions"]["stdout"]),
             ("exit code: %d%s" % (code, TRACE), ["container", "from"],
              ["withExec", "exitCode"], code, "out"))
        same((error["extensions"]["_type"], error["extensions"]["cmd"]),
             ("EXEC_ERROR", ["sh", "-c", script]))
    same(s.error(execute("exit 5", "stdout", more=""))["message"],
         "exit code: 5" + TRACE)
    same(s.error(execute("true", "stdout", ",expect:FAILURE"))["message"],
         "exit code: 0" + TRACE)
    same(s.get(execute("exit 5", "exitCode", ",expect:FAILURE")), 5)
    same(s.get(execute(["/nope"])), {
        "exitCode": 1, "stdout": "", "stderr": 'runc run failed: unable to '
        'start container process: exec: "/nope": stat /nope: no such file or '
        "directory\n"})
    same(s.error(execute([], "exitCode")), {
        "message": "no command has been set",
        "path": ["container", "from", "withEnvVariable", "withExec",
                 "exitCode"]})
    same(s.error(execute(["id"], "stdout", ",insecureRootCapabilities:true"))
         ["message"], "security.insecure is not allowed" + TRACE)
    same(s.get(execute(["printf", "\\377a\\0b<>\\342\\200\\250\\n"],
                       "stdout")), "\ufffda\0b<>\u2028\n")
    same(s.get(execute(["cat"], "stdout", ',expect:ANY,stdin:"a\\u0000\\"b'
                       '\\\\\\n\\t\\u00e9"')), 'a\0"b\\\n\t\u00e9')
    begun = time.monotonic()
    same(s.get(execute("sleep 500 & echo now", "stdout")), "now\n")
    check(time.monotonic() - begun < 250, "a process that was left was "
          "waited for")


@test("dagger/engine-exec-init", beside=True)
def with_init():
    """A first process that is not the program."""
    s = state["session"]
    if not REAL and os.system("command -v cc > /dev/null") != 0:
        skip("no compiler")
    same(s.get(chain(env(nonce()), 'withExec(args:["/nope"],expect:ANY)',
                     "exitCode stdout stderr")),
         {"exitCode": 1, "stdout": "",
          "stderr": "fork/exec /nope: no such file or directory\n"})
    same(s.get(chain(env(nonce()), 'withExec(args:["sh","-c","echo $$; exit '
                     '7"],expect:ANY)', "exitCode")), 7)


@test("dagger/engine-exec-once", beside=True)
def once():
    """The same question is not carried out again, unless it failed."""
    s = state["session"]
    key, now = nonce(), "date +%s%N"
    first = s.get(execute(now, "stdout", key=key))
    same(s.get(execute(now, "stdout", key=key)), first)
    with Session(state["address"]) as other:
        same(other.get(execute(now, "stdout", key=key)), first)
    check(s.get(execute(now, "stdout")) != first, "another nonce")
    same(s.get(execute(now + "; exit 9", "stdout", key=key)),
         s.get(execute(now + "; exit 9", "stdout", key=key)))
    failed = [s.error(execute(now + "; exit 5", "stdout", more="", key=key))
              ["extensions"]["stdout"] for _ in range(2)]
    check(failed[0] != failed[1], "a failure was kept", failed)
    out = []
    threads = [threading.Thread(target=lambda: out.append(s.get(execute(
        "sleep 1; " + now, "stdout", key=key)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(len(set(out)), 1, "runs of the same command at a time")


@test("dagger/engine-exec-changes", beside=True)
def changes():
    """What a command changes is there for those after it, and nobody else."""
    s = state["session"]
    same(s.get(chain(env(nonce()), 'withExec(args:["sh","-c","echo 1 > /one; '
                     'rm /etc/passwd"],noInit:true)',
                     'withNewFile(path:"/two/x",contents:"2",permissions:256)',
                     'withExec(args:["sh","-c","cat /one /two/x; stat -c %a '
                     '/two/x; ls /etc/passwd; pwd"],expect:ANY,noInit:true)',
                     "stdout")), "1\n2400\n/\n")
    same(s.get(execute("ls /one /two 2>/dev/null; cat /etc/passwd | wc -l",
                       "stdout")) != "0\n", True)
    same(s.get(chain('withUser(name:"sandbox")', 'withWorkdir(path:"home")',
                     'withWorkdir(path:"zz")', env(nonce()),
                     'withExec(args:["sh","-c","id -u; pwd; stat -c %u .; '
                     'echo $HOME"],noInit:true)', "stdout")),
         "1000\n/home/zz\n1000\n/home/sandbox\n")
    same(s.error(chain('withUser(name:"nosuch")', env(nonce()),
                       'withExec(args:["id"],noInit:true)', "stdout"))
         ["message"], "get user: unable to find user nosuch: no matching "
         "entries in passwd file" + TRACE)
    v = volume(nonce())
    same(s.error(chain(mount(v), 'withNewFile(path:"/v/b",contents:"x")',
                       env(nonce()), 'withExec(args:["true"])', "stdout"))
         ["message"], "failed to locate path /v/b: /v/b: cannot retrieve path "
         "from cache")


@test("dagger/engine-container", beside=True)
def inside():
    """What a command finds around it."""
    s = state["session"]
    out = s.get(execute(
        "id -u; cat /proc/self/uid_map; grep -E '^(CapEff|CapBnd|Seccomp|"
        "NoNewPrivs):' /proc/self/status; cat /etc/resolv.conf; hostname; "
        "echo $$; ls /proc/1/task | wc -l; stat -fc %T / /v; ulimit -n; "
        "env | grep -c ^OTEL_", "stdout",
        before=[mount(volume(nonce(), ',owner:"7:7"'))]))
    same(" ".join(out.split()), " ".join((
        "0 0 0 4294967295 CapEff: 00000000a80425fb CapBnd: 00000000a80425fb "
        "NoNewPrivs: 0 Seccomp: 2 nameserver %s search %s dagger 1 1 "
        "overlayfs overlayfs 20000 10" % (state["resolver"], s.domain)
        ).split()))
    out = s.get(execute(["python3", "-c", "\n".join((
        "import ctypes, errno, socket",
        "libc = ctypes.CDLL(None, use_errno=True)",
        "def ask(number, *a):",
        "    ctypes.set_errno(0)",
        "    libc.syscall(number, *a)",
        "    return errno.errorcode.get(ctypes.get_errno(), 'fine')",
        # unshare, mount, keyctl, clone3, clone of a user namespace, bpf,
        # io_uring_setup, personality, setns, openat2
        "print(ask(272, 0x10000000), ask(165, 0, 0, 0, 0, 0), ask(250, 0), ",
        "    ask(435, 0, 0), ask(56, 0x10000011, 0, 0, 0, 0), ask(321, 0),",
        "    ask(425, 1, 0), ask(135, 0), ask(308, -1, 0),",
        "    ask(437, -1, 0, 0, 0))",
        "for family in socket.AF_NETLINK, socket.AF_PACKET, 40:",
        "    try:",
        "        socket.socket(family, socket.SOCK_RAW).close()",
        "        print('open')",
        "    except OSError as e:",
        "        print(errno.errorcode[e.errno])"))], "stdout stderr"))
    same((out["stderr"], out["stdout"].split()), (
        "", "EPERM EPERM EPERM ENOSYS EPERM EPERM EPERM fine EPERM EINVAL "
        "open open EPERM".split()))


@test("dagger/engine-volumes", beside=True)
def volumes():
    s = state["session"]
    key = nonce()
    shared, locked = volume(key), volume(key, ",sharing:LOCKED")
    ours = volume(key, ',owner:"1000:1001"')
    for v, owner in ((shared, "0 0"), (locked, "0 0"), (ours, "1000 1001")):
        same(s.get(execute("ls /v; stat -c '%u %g' /v; echo x > /v/$N",
                           "stdout", before=[mount(v)])), owner + "\n")
    for v in (shared, locked, ours):
        check("x" in lists(s, v), "what was written", lists(s, v))
    same(lists(s, volume(key, ",sharing:PRIVATE")), "")
    same(s.get(execute("ls /v; stat -c %u /v", "stdout", before=[
        mount(shared, more=',owner:"7:7",sharing:LOCKED')])), "7\n",
        "another volume by other words at the mount")
    same(s.error(chain(mount(shared), 'file(path:"/v/a")', "contents"))
         ["message"] if REAL else "", "/v/a: cannot retrieve path from cache"
         if REAL else "")


@test("dagger/engine-locked", beside=True)
def locked():
    """One after another; who has left meanwhile is not run."""
    s = state["session"]
    v, told = volume(nonce(), ",sharing:LOCKED"), volume(nonce())

    def one(name):
        s.get(execute(
            "date +%%s.%%N > /v/%s; touch /told/%s; until [ -e /told/go-%s ]; "
            "do sleep 0.1; done; date +%%s.%%N >> /v/%s" % ((name,) * 4),
            "exitCode", before=[mount(v), mount(told, "/told")]))

    def begun(*but):
        return [n for n in "ab" if n not in but
                and "==> %s <==" % n in lists(s, told)]

    def go(name):
        s.get(execute("touch /v/go-" + name, "exitCode",
                      before=[mount(told)]))

    threads = [threading.Thread(target=one, args=(n,)) for n in "ab"]
    for thread in threads:
        thread.start()
    one_of = wait_for(begun, 90, "one of them")
    same(len(one_of), 1, "they that have begun")
    go(*one_of)
    other = wait_for(lambda: begun(*one_of), 90, "the other one")
    gone = s.send("POST", "/query", ('{"query":%s}' % quoted(execute(
        "echo > /v/never", "exitCode", before=[mount(v)]))).encode())
    time.sleep(0.2)
    gone.close()
    go(*other)
    for thread in threads:
        thread.join()
    times = {}
    for part in lists(s, v).split("==>")[1:]:
        name, _, text = part.partition("<==")
        times[name.strip()] = [float(n) for n in text.split()]
    same(sorted(times), ["a", "b"])
    first, second = sorted(times.values())
    check(second[0] >= first[1], "at the same time", times)


@test("dagger/engine-exec-ends", beside=True)
def ends():
    """With who asked for it: closed, or half closed."""
    s = state["session"]
    v = volume(nonce())
    for half in (False, True):
        name = "half" if half else "whole"
        sock = s.send("POST", "/query", ('{"query":%s}' % quoted(execute(
            "while :; do date +%%s%%N > /v/%s; sleep 0.1; done" % name,
            "exitCode", before=[mount(v)]))).encode())
        wait_for(lambda: name in lists(s, v), 90, "its beginning")
        if half:
            sock.shutdown(socket.SHUT_WR)
            # it is closed, or told of an error
            sock.settimeout(60)
            sock.recv(4096)
        sock.close()

        def still():
            before = lists(s, v)
            time.sleep(0.5)
            return lists(s, v) == before

        wait_for(still, 60, "its end")


@test("dagger/engine-service", beside=True)
def services():
    s = state["session"]
    key = nonce()
    v = volume(key)
    query = service(["sh", "-c", "hostname >> /v/begun; exec sleep 1000"],
                    key, before=[mount(v)])
    out = []
    threads = [threading.Thread(target=lambda: out.append(s.get(query)))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(out, [out[0]] * 4)
    same(s.get(query), out[0])
    name, full = out[0]["hostname"], out[0]["hostname"] + "." + s.domain

    def begun(*domains):
        return lists(s, v) == "==> begun <==\n" + "".join(
            "%s.%s\n" % (name, domain) for domain in domains)

    wait_for(lambda: begun(s.domain), 90, "one container, with that name")
    address = address_of(state["resolver"], full)
    check(isinstance(address, str), "its address", address)
    same(address_of(state["resolver"], full.upper()), address)
    same(address_of(state["resolver"], full, 28), 0x8180, "no AAAA")
    same(address_of(state["resolver"], "no" + full), 0x8183, "no such name")
    same(address_of(state["resolver"], name), 0x8183, "the short name")

    # another session has another one of it

    with Session(state["address"]) as other:
        same(other.get(query), out[0], "the id and the name are the same")
        wait_for(lambda: begun(s.domain, other.domain), 90, "two containers")
        second = address_of(state["resolver"], name + "." + other.domain)
        check(isinstance(second, str) and second != address, "its address",
              second)

    # with the session it is over at once, and its name with it

    same(address_of(state["resolver"], name + "." + other.domain), 0x8183)
    same(address_of(state["resolver"], full), address)

    # ended, it is begun again by the same words

    same(s.get('{loadServiceFromID(id:"%s"){stop(kill:true)}}'
               % out[0]["start"]), out[0]["start"])
    same(address_of(state["resolver"], full), 0x8183)
    same(s.get(query), out[0])
    wait_for(lambda: begun(s.domain, other.domain, s.domain), 90,
             "the next one")


@test("dagger/engine-service-words", beside=True)
def service_words():
    s = state["session"]
    key = nonce()
    same(s.get(service(LIVES, key, 'hostname endpoint a:endpoint(port:80) '
                       'b:endpoint(scheme:"tcp")')),
         (lambda n: {"a": n + ":80", "b": "tcp://%s:9000" % n,
                     "endpoint": n + ":9000", "hostname": n})(
             s.get(service(LIVES, key, "hostname"))))
    same(s.error(chain(env(key), "asService(args:%s)" % quoted(LIVES),
                       "endpoint"))["message"], "no ports exposed")
    same(s.error(service([], key, "start"))["message"],
         "no service command has been set")
    # it was started; that it has ended is found by who connects
    for args in (["/nope"], ["nope"], ["sh", "-c", "exit 7"]):
        check("hostname" in s.get(service(args, key)), "no answer")
    error = s.error(service(["sh", "-c", "echo why; exit 3"], key, "start",
                            skip_health=False))
    same((error["message"], error["extensions"]["exitCode"]),
         ("exit code: 3" + TRACE * 2, 3))
    begun = s.get(service(["python3", "-c", "import socket, time\n"
                           "s = socket.create_server(('', 9000))\n"
                           "while True: s.accept()"], key,
                          skip_health=False))
    socket.create_connection((address_of(
        state["resolver"], begun["hostname"] + "." + s.domain), 9000),
        30).close()


@test("dagger/engine-service-ends", beside=True)
def service_ends():
    """`stop` asks, and waits; `kill` and the session's end do not."""
    v = volume(nonce())
    s = state["session"]

    def run(session, name):
        return session.get(service(
            ["sh", "-c", "trap 'echo asked >> /v/%s; sleep 1; exit 0' TERM; "
             "echo begun > /v/%s; sleep 1000 & wait" % (name, name)], nonce(),
            "start", before=[mount(v)]))

    def text(name):
        for part in lists(s, v).split("==>"):
            if part.startswith(" %s <==" % name):
                return part.partition("\n")[2].split()
        return []

    for name, more in (("asked", ""), ("killed", "(kill:true)")):
        started = run(s, name)
        wait_for(lambda: text(name), 90, "its beginning")
        begun = time.monotonic()
        s.get('{loadServiceFromID(id:"%s"){stop%s}}' % (started, more))
        took = time.monotonic() - begun
        check(took >= 1 or more, "it was not waited for", took)
        same(text(name), ["begun"] + ([] if more else ["asked"]))
        same(s.get('{loadServiceFromID(id:"%s"){stop%s}}' % (started, more)),
             started, "what is ended may be ended")
    with Session(state["address"]) as other:
        run(other, "session")
        wait_for(lambda: text("session"), 90, "its beginning")
        same(other.request("POST", "/shutdown"), (200, "", b""))
    time.sleep(0.3)
    same(text("session"), ["begun"])


@test("dagger/engine-shutdown", beside=True)
def shutdown():
    """What is being asked in a session that is ended is told so."""
    v = volume(nonce())
    with Session(state["address"]) as other:
        got = []
        thread = threading.Thread(target=lambda: got.append(other.ask(execute(
            "echo > /v/begun; sleep 1000", "exitCode", before=[mount(v)]))))
        thread.start()
        wait_for(lambda: "begun" in lists(state["session"], v), 90,
                 "its beginning")
        same(other.request("POST", "/shutdown"), (200, "", b""))
        thread.join()
        same((got[0][0], got[0][1]["data"], got[0][1]["errors"][0]["message"]),
             (200, None, "session is closing"))


@test("dagger/engine-service-locked", beside=True)
def service_locked():
    """It has its volume for life: who waits can't even leave."""
    with Session(state["address"]) as s:
        v = volume(nonce(), ",sharing:LOCKED", s)
        told = volume(nonce(), session=s)
        started = s.get(service(
            ["sh", "-c", "trap 'exit 0' TERM; echo > /told/begun; sleep 1000 "
             "& wait"], nonce(), "start",
            before=[mount(v), mount(told, "/told")]))
        wait_for(lambda: "begun" in lists(s, told), 90, "its beginning")
        waits = s.send("POST", "/query", ('{"query":%s}' % quoted(execute(
            "echo > /v/never", "exitCode", before=[mount(v)]))).encode())
        waits.settimeout(1.5)
        try:
            same(waits.recv(1), None, "it ran beside the service")
        except TimeoutError:
            pass
        waits.close()
        s.get('{loadServiceFromID(id:"%s"){stop}}' % started)
        same(lists(s, v), "", "what a client that has left had asked for")


@test("dagger/engine-agent", beside=True)
def agent():
    """The agent as its first process, reached from here by its name."""
    s = state["session"]
    secret = os.urandom(32)
    home = volume(nonce(), ',owner:"1000:1000"')
    started = s.get(service(
        ["/usr/libexec/sandbox/sandbox-agent", "--listen", "0.0.0.0:9000",
         "--secret-file", "/run/secret"], nonce(), before=[
             mount(home, "/home/sandbox"),
             'withNewFile(path:"/run/secret",contents:"%s\\n",permissions:256)'
             % secret.hex()]))
    client = wire.Client((address_of(
        state["resolver"], started["hostname"] + "." + s.domain), 9000),
        key=secret, timeout=60)

    def up():
        try:
            client.connect().close()
            return True
        except OSError:
            return False

    wait_for(up, 60, "its port")
    a = client.command("id -u; pwd; echo kept > it; cat /etc/resolv.conf | "
                       "wc -l")
    same((a.stdout, a.outcome), (b"1000\n/home/sandbox\n2\n", "exit"))
    same(lists(s, home), "==> it <==\nkept\n")


# engines of their own


def ready(engine):
    """A session, the image's id, and a volume's, with a file in it."""
    s = Session(engine.address)
    base = s.get("{container{from(address:%s){id}}}"
                 % quoted(state["registry"].image))
    v = s.get('{cacheVolume(key:"kept"){id}}')
    return s, base, v


def put(s, base, v, script):
    return s.get(chain(mount(v), env(nonce()), "withExec(args:%s,noInit:true)"
                       % quoted(["sh", "-c", script]), "stdout", base=base))


@test("dagger/engine-restart", beside=True)
def restart():
    """SIGTERM keeps volumes and ids; SIGKILL loses all of them."""
    only_ours()
    with Program() as engine:
        s, base, v = ready(engine)
        made = s.get(chain(env("x"), "id", base=base))
        put(s, base, v, "echo 1 > /v/f")
        asked = len(state["registry"].asked)
        same(engine.terminate(), 0)
        engine.start()
        s = Session(engine.address)
        same(put(s, base, v, "cat /v/f"), "1\n")
        same(s.get('{cacheVolume(key:"kept"){id}}'), v)
        same(s.get("{container{from(address:%s){id}}}"
                   % quoted(state["registry"].image)), base)
        check("missing shared result" in s.error(chain(
            "id", base=made))["message"], "what nothing was made of is kept")

        engine.kill()
        engine.start()
        s = Session(engine.address)
        for old, kind in ((base, "Container"), (v, "CacheVolume")):
            check("missing shared result" in s.error(
                '{load%sFromID(id:"%s"){id}}' % (kind, old))["message"],
                "an id is still there")
        again = s.get("{container{from(address:%s){id}}}"
                      % quoted(state["registry"].image))
        same(again, base, "numbers begin where they did")
        v = s.get('{cacheVolume(key:"kept"){id}}')
        same(put(s, base, v, "ls /v"), "", "a volume of the same name")

        same(engine.terminate(), 0)
        engine.start("--wipe")
        s = Session(engine.address)
        check("missing shared result" in s.error(chain(
            "id", base=base))["message"], "an id")
        check(len(state["registry"].asked) > asked, "nothing was fetched")


@test("dagger/engine-term", beside=True)
def term():
    """What is asked meanwhile is told; services are gone."""
    only_ours()
    with Program() as engine:
        s, base, v = ready(engine)
        s.get(chain(mount(v), env("x"), "asService(args:%s,noInit:true)"
                    % quoted(DEAF), "start", base=base))
        got = []
        query = chain(mount(v), env("y"), 'withExec(args:["sh","-c","echo > '
                      '/v/begun; sleep 1000"],noInit:true)', "exitCode",
                      base=base)
        thread = threading.Thread(target=lambda: got.append(s.ask(query)))
        thread.start()
        wait_for(lambda: put(s, base, v, "ls /v") == "begun\n", 90,
                 "its beginning")
        same(engine.terminate(), 0)
        thread.join()
        same(got, [(200, {"errors": [
            {"message": "engine is shutting down", "path": [
                "container", "from", "withMountedCache", "withEnvVariable",
                "withExec", "exitCode"]}], "data": None})])


def beats(session, base, v, key):
    """A service that writes on and on."""
    return session.get(chain(
        mount(v), env(key), "asService(args:%s,noInit:true)"
        % quoted(["sh", "-c", "trap 'echo > /v/asked' TERM; while :; do "
                  "date +%s%N > /v/now; sleep 0.1; done"]),
        "start hostname", base=base))["hostname"] + "." + session.domain


@test("dagger/engine-lost-is-not-seen", beside=True)
def unseen():
    """A connection that is gone is missed when its health is asked for."""
    only_ours()
    with Program("--health", "1000") as engine:
        s, base, v = ready(engine)
        full = beats(s, base, v, "x")
        s.lose()
        again = Session(engine.address, attach=False, **s.metadata)
        same(again.attach(), 'session attachables for client "%s" already '
             'exist\n' % s.metadata["client_id"])
        check(again.get("{version}"), "it was noticed at once")
        now = put(again, base, v, "cat /v/now")
        wait_for(lambda: put(again, base, v, "cat /v/now") != now, 90,
                 "the service to go on")
        check(isinstance(address_of(engine.resolver, full), str), "its name")


@test("dagger/engine-lost", beside=True)
def lost():
    """Then its services are ended, and its ids are free."""
    only_ours()
    with Program("--health", "1") as engine:
        s, base, v = ready(engine)
        full = beats(s, base, v, "x")
        busy, got = Session(engine.address), []
        thread = threading.Thread(target=lambda: got.append(put(
            busy, base, v, "echo > /v/begun; sleep 5; echo done")))
        thread.start()
        wait_for(lambda: "begun" in put(s, base, v, "ls /v"), 90,
                 "its beginning")
        busy.lose()
        s.lose()
        wait_for(lambda: address_of(engine.resolver, full) == 0x8183, 90,
                 "the end of its service")
        with Session(engine.address) as other:
            first = put(other, base, v, "ls /v; cat /v/now")
            check("asked" not in first, "it was asked to end", first)
            time.sleep(0.5)
            same(put(other, base, v, "ls /v; cat /v/now"), first)
        thread.join()
        same(got, ["done\n"], "what was asked before")
        again = Session(engine.address, attach=False, **s.metadata)
        wait_for(lambda: again.attach() is None, 90, "the ids are free")
        check(again.get("{version}"), "a session of these ids")
        again.lose()


@test("dagger/engine-unreachable", beside=True)
def unreachable():
    """Services whose address is nobody's, or is not told."""
    only_ours()
    with Program("--unreachable", "silent") as engine:
        for way in ("silent", "astray"):
            engine.names(way)
            s, base, v = ready(engine)
            name = s.get(chain(env("x"), "asService(args:%s,noInit:true)"
                               % quoted(LIVES), "start hostname",
                               base=base))["hostname"] + "." + s.domain
            if way == "astray":
                try:
                    socket.create_connection((address_of(engine.resolver,
                                                         name), 9000), 1)
                    check(False, "somebody is there")
                except OSError as e:
                    check(not isinstance(e, ConnectionRefusedError), "it is "
                          "somebody's", e)
            else:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                    sock.settimeout(0.5)
                    sock.sendto(bytes(12), (engine.resolver, 53))
                    try:
                        same(sock.recv(10), None, "an answer")
                    except TimeoutError:
                        pass
            same(put(s, base, v, "echo works"), "works\n")
        same(engine.faults(), [])


@test("dagger/engine-leaves-nothing", beside=True)
def leaves():
    """However it ends: no process, network, mount or folder is left."""
    only_ours()
    with Program() as engine, Program() as beside:
        check(engine.prefix != beside.prefix, "the same network")
        for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            s, base, v = ready(engine)
            put(s, base, v, "true")
            s.get(chain(mount(v), env("x"), "asService(args:%s,noInit:true)"
                        % quoted(DEAF), "start", base=base))
            if end == signal.SIGKILL:
                engine.kill()
            else:
                engine.terminate()
            # kill() has seen the end of all of its processes
            with open("/proc/self/mountinfo") as f:
                check(engine.root not in f.read(), "a mount is left")
            engine.start()
        check(Session(beside.address).get("{version}"), "the other one")

        # it ends with who has started it, too

        child = subprocess.Popen(
            [sys.executable, "-c", "import sys, time; sys.path.insert(0, %r);"
             "from engine_program import Program\n"
             "with Program(root=%r) as e:\n"
             "    print(e.address, e.name(), flush=True)\n"
             "    time.sleep(1000)" % (sys.path[0], beside.root + "/own")],
            stdout=subprocess.PIPE, text=True)
        address, name = child.stdout.readline().split()
        with Session(address) as other:
            check(name in [n for _, n in socket.if_nameindex()], "its network")
            child.kill()
            child.wait()
            wait_for(lambda: name not in [n for _, n in socket.if_nameindex()],
                     60, "the end of its network")
        child.stdout.close()


main(start, stop)
