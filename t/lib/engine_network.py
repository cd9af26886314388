"""The network of an engine's containers, and the names in it.

A bridge in a network namespace of its own, with one leg on this side, which
has the gateway's address; a container has another.  All of it is held by
processes of the engine alone, so that it is gone when they are, whatever ended
them.  Nothing of this side's rules is touched.
"""

import ctypes
import fcntl
import ipaddress
import os
import random
import socket
import struct
import threading

NEWNET = 0x40000000
BIND = 4096

libc = ctypes.CDLL(None, use_errno=True)
xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits.restype = ctypes.c_uint64
xxhash.XXH3_64bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)


def name_of(data):
    """13 digits that stand for these bytes in names."""
    value = xxhash.XXH3_64bits(data, len(data)) << 1
    return "".join("0123456789abcdefghijklmnopqrstuv"[value >> 5 * n & 31]
                   for n in range(12, -1, -1))


def domain_of(session):
    return name_of(session.encode()) + ".dagger.local"


def need(rc, what):
    if rc != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))


def attribute(kind, data):
    if isinstance(data, str):
        data = data.encode() + b"\0"
    size = 4 + len(data)
    return struct.pack("=HH", size, kind) + data + bytes(-size % 4)


class Netlink:
    """Of the network namespace of the thread that makes it."""

    ADD, LINK, ADDRESS, ROUTE = 0x600, 16, 20, 24

    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self.socket.bind((0, 0))
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, kind, flags, body):
        self.number += 1
        self.socket.send(struct.pack("=IHHII", 16 + len(body), kind,
                                     flags | 5, self.number, 0) + body)
        answer = self.socket.recv(65536)
        error = -struct.unpack_from("=i", answer, 16)[0]
        if error:
            raise OSError(error, os.strerror(error))

    def pair(self, name, namespace, peer):
        """A cable from here to the namespace that is open as that."""
        inner = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + attribute(3, peer) \
            + attribute(28, struct.pack("=i", namespace))
        self.ask(self.LINK, self.ADD, struct.pack("=BxHiII", 0, 0, 0, 0, 0)
                 + attribute(3, name)
                 + attribute(18, attribute(1, "veth")
                             + attribute(2, attribute(1, inner))))

    def bridge(self, name):
        self.ask(self.LINK, self.ADD, struct.pack("=BxHiII", 0, 0, 0, 0, 0)
                 + attribute(3, name) + attribute(18, attribute(1, "bridge")))

    def up(self, name, master=None):
        body = struct.pack("=BxHiII", 0, 0, socket.if_nametoindex(name), 1, 1)
        if master:
            body += attribute(10, struct.pack(
                "=I", socket.if_nametoindex(master)))
        self.ask(self.LINK, 0, body)

    def address(self, name, address, bits=24):
        packed = socket.inet_aton(address)
        self.ask(self.ADDRESS, self.ADD, struct.pack(
            "=BBBBI", socket.AF_INET, bits, 0, 0, socket.if_nametoindex(name))
            + attribute(1, packed) + attribute(2, packed))

    def default(self, gateway):
        self.ask(self.ROUTE, self.ADD, struct.pack(
            "=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
            + attribute(5, socket.inet_aton(gateway)))


def taken():
    """What this side's routes and addresses lie in."""
    out = []
    with open("/proc/net/route") as f:
        for line in f.read().splitlines()[1:]:
            field = line.split()
            target, mask = (struct.pack("<I", int(field[n], 16))
                            for n in (1, 7))
            if mask != bytes(4):
                out.append(ipaddress.ip_network(
                    "%s/%s" % (socket.inet_ntoa(target),
                               socket.inet_ntoa(mask)), strict=False))
    return out


class Network:
    """`10.A.B` of a network of 254 addresses; None: one that is free."""

    def __init__(self, prefix=None):
        self.lock = threading.Lock()
        self.names = {}             # of services, in full: address
        self.mode = lambda: ""      # "silent": no name is answered; "astray":
                                    # each name has an address of nobody; or an
                                    # address, which each has then
        self.asked = []             # names, in order
        self.count = 0
        self.used = set()
        ready, failed = threading.Event(), []
        threading.Thread(target=self.middle, args=(prefix, ready, failed),
                         daemon=True).start()
        ready.wait()
        if failed:
            raise failed[0]
        self.names_at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.names_at.bind((self.gateway, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def middle(self, prefix, ready, failed):
        """The thread that the bridge's namespace lives by."""
        try:
            with Netlink() as outer:
                need(libc.unshare(NEWNET), "unshare")
                self.namespace = os.open("/proc/thread-self/ns/net",
                                         os.O_RDONLY | os.O_CLOEXEC)
                with Netlink() as inner:
                    inner.up("lo")
                    inner.bridge("dagger0")
                    inner.up("dagger0")
                    self.leg(outer, prefix)
                    inner.up("outside", "dagger0")
        except OSError as e:
            failed.append(e)
        ready.set()
        threading.Event().wait()

    def leg(self, outer, prefix):
        """Its name says which network it is, so nobody else has both."""
        for _ in range(200):
            self.prefix = prefix or "10.%d.%d" % (random.randrange(100, 250),
                                                  random.randrange(256))
            self.gateway = self.prefix + ".1"
            self.name = "sbx" + socket.inet_aton(self.prefix + ".0").hex()[2:6]
            wanted = ipaddress.ip_network(self.prefix + ".0/24")
            if not prefix and any(wanted.overlaps(n) for n in taken()):
                continue
            try:
                outer.pair(self.name, self.namespace, "outside")
            except FileExistsError:
                if prefix:
                    raise
                continue
            # of the outer namespace, where this thread is no longer
            outer_index = outer_of(outer, self.name)
            outer.ask(outer.ADDRESS, outer.ADD, struct.pack(
                "=BBBBI", socket.AF_INET, 24, 0, 0, outer_index)
                + attribute(1, socket.inet_aton(self.gateway))
                + attribute(2, socket.inet_aton(self.gateway)))
            outer.ask(outer.LINK, 0, struct.pack("=BxHiII", 0, 0, outer_index,
                                                 1, 1))
            return
        raise OSError("no free network")

    def take(self):
        with self.lock:
            for _ in range(252):
                self.count = self.count % 252 + 1
                if self.count not in self.used:
                    self.used.add(self.count)
                    return "%s.%d" % (self.prefix, self.count + 1)
        raise OSError("no address is free")

    def give(self, address):
        with self.lock:
            self.used.discard(int(address.rpartition(".")[2]) - 1)

    def container(self, path, address):
        """A namespace with that address, held by a mount on the file path."""
        failed = []
        thread = threading.Thread(target=self.join,
                                  args=(path, address, failed))
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def join(self, path, address, failed):
        try:
            need(libc.unshare(NEWNET), "unshare")
            with open(path, "w"):
                pass
            need(libc.mount(b"/proc/thread-self/ns/net", path.encode(), None,
                            BIND, None), "mount of a namespace")
            port = "c" + address.rpartition(".")[2]
            with Netlink() as netlink:
                netlink.up("lo")
                netlink.pair("eth0", self.namespace, port)
                netlink.address("eth0", address)
                netlink.up("eth0")
                netlink.default(self.gateway)
            need(libc.setns(self.namespace, NEWNET), "setns")
            with Netlink() as netlink:
                netlink.up(port, "dagger0")
        except OSError as e:
            failed.append(e)

    def serve(self):
        while True:
            try:
                data, peer = self.names_at.recvfrom(2048)
                answer = self.answer(data)
                if answer:
                    self.names_at.sendto(answer, peer)
            except (IndexError, struct.error, UnicodeDecodeError, OSError):
                continue

    def answer(self, data):
        mode = self.mode()
        if mode == "silent":
            return None
        number, flags, count = struct.unpack_from(">HHH", data)
        if flags & 0x8000 or count != 1:
            return None
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode())
            at += 1 + data[at]
        question = data[12:at + 5]
        kind = struct.unpack_from(">H", data, at + 1)[0]
        name = ".".join(labels).lower()
        self.asked.append(name)
        del self.asked[:-1000]
        address = self.names.get(name)
        ours = name.endswith(".dagger.local") or "." not in name
        known = address or any(n.endswith("." + name)
                               for n in list(self.names))
        flags = 0x8180 if known else (0x8183 if ours else 0x8185)
        if address is None or kind not in (1, 255):
            return struct.pack(">6H", number, flags, 1, 0, 0, 0) + question
        if mode == "astray":
            address = self.prefix + ".254"
        elif mode:
            address = mode
        return struct.pack(">6H", number, 0x8580, 1, 1, 0, 0) + question \
            + b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) \
            + socket.inet_aton(address)


def outer_of(netlink, name):
    """The index of a device in the namespace of that socket."""
    request = struct.pack("16si12x", name.encode(), 0)
    return struct.unpack_from("i", fcntl.ioctl(
        netlink.socket, 0x8933, request), 16)[0]
