"""A small internet of network namespaces: a node, and a world of servers behind it.

    world (198.51.100.0/24 and others on lo) ── 192.0.2.1 ═══ 192.0.2.10 ── node

Nothing of it touches the machine's own network.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
from pyroute2 import IPRoute

from dsec_runtime.linux import namespaces
from dsec_runtime.linux.namespaces import Inside
from dsec_runtime.network import links

Result = TypeVar("Result")

NODE, GATEWAY = "192.0.2.10", "192.0.2.1"
ONE, TWO, OTHER, METADATA, PRIVATE = (
    *("198.51.100.1", "198.51.100.2", "203.0.113.9"),
    *("169.254.169.254", "10.77.0.1"),
)
TCP_PORTS = (25, 80, 443)
UDP_PORT = 5000
NODE_PORT = 7000
WAIT_S = 30.0  # for what must happen
QUIET_S = 0.3  # for what must not


@dataclass
class Internet:
    """What a test may look at and change. `names` is what the world's name server knows."""

    node: Path
    resolv_conf: Path
    names: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)  # who connected, as the world saw it
    pushing: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def internet(folder: Path) -> Iterator[Internet]:
    """Made in the empty `folder`, and gone afterwards."""
    node, world = folder / "node", folder / "world"
    resolv_conf = folder / "resolv.conf"
    resolv_conf.write_text(f"# of the test\nnameserver {GATEWAY}\n")
    found = Internet(node, resolv_conf)
    with contextlib.ExitStack() as stack:
        for path, prepare in ((world, _world), (node, lambda: _node(world))):
            namespaces.in_new_network(path, prepare)
            stack.callback(namespaces.forget, path)
        with Inside(world, "world") as inside:
            inside.run(_world_up)
            servers = inside.run(lambda: _servers(found))
        with Inside(node, "node") as inside:
            inside.run(lambda: links.wait_until_up("eth0"))
            servers.append(inside.run(lambda: _tcp(found, NODE_PORT)))
        for server in servers:
            stack.callback(server.server_close)
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        stack.callback(found.pushing.set)
        yield found


def inside(path: Path, work: Callable[[], Result]) -> Result:
    """The result of `work` in the network namespace kept at `path`."""

    def entered() -> Result:
        namespaces.enter(path)
        return work()

    return namespaces.in_thread(entered)


def connect(netns: Path, address: str, port: int) -> socket.socket:
    """A TCP connection from a namespace. Raises OSError."""
    return inside(netns, lambda: socket.create_connection((address, port), timeout=WAIT_S))


def reaches(netns: Path, address: str, port: int) -> bool:
    """Whether an echo comes back by TCP; what is refused must be refused at once."""
    try:
        with connect(netns, address, port) as connection:
            connection.sendall(b"echo")
            return connection.recv(4) == b"echo"
    except (ConnectionRefusedError, ConnectionResetError):
        return False


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """What comes back for `data` by a connection. Raises OSError."""
    connection.sendall(data)
    return connection.recv(len(data))


def answers(netns: Path, address: str, port: int) -> bool:
    """Whether a connection can be made soon; no answer at all is a no."""
    try:
        inside(netns, lambda: socket.create_connection((address, port), timeout=QUIET_S)).close()
    except OSError:
        return False
    return True


def echoes(netns: Path, address: str, port: int, wait_s: float = QUIET_S) -> bool:
    """Whether an echo comes back by UDP."""

    def work() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.settimeout(wait_s)
            datagrams.connect((address, port))
            try:
                datagrams.send(b"echo")
                return datagrams.recv(4) == b"echo"
            except OSError:
                return False

    return inside(netns, work)


def look_up(
    netns: Path,
    server: str,
    name: str,
    rdtype: str = "A",
    *,
    tcp: bool = False,
    wait_s: float = WAIT_S,
) -> dns.message.Message:
    """The answer that a name server gives to a question from a namespace."""
    import dns.query

    query = dns.message.make_query(name, rdtype, use_edns=True)
    ask = dns.query.tcp if tcp else dns.query.udp
    return inside(netns, lambda: ask(query, server, timeout=wait_s))


def addresses(answer: dns.message.Message) -> list[str]:
    """The addresses of an answer."""
    return [record.to_text() for rrset in answer.answer for record in rrset]


def _world() -> None:
    with IPRoute() as netlink:
        loopback = netlink.link_lookup(ifname="lo")[0]
        netlink.link("set", index=loopback, state="up")
        for address in (ONE, TWO, OTHER, METADATA, PRIVATE):
            netlink.addr("add", index=loopback, address=address, prefixlen=32)


def _node(world: Path) -> None:
    with IPRoute() as netlink, world.open() as world_file:
        netlink.link("set", index=netlink.link_lookup(ifname="lo")[0], state="up")
        peer = {"ifname": "node", "net_ns_fd": world_file.fileno()}
        netlink.link("add", ifname="eth0", kind="veth", peer=peer)
        index = netlink.link_lookup(ifname="eth0")[0]
        netlink.addr("add", index=index, address=NODE, prefixlen=24)
        netlink.link("set", index=index, state="up")
        netlink.route("add", dst="default", gateway=GATEWAY)


def _world_up() -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname="node")[0]
        netlink.addr("add", index=index, address=GATEWAY, prefixlen=24)
        netlink.link("set", index=index, state="up")


def _servers(found: Internet) -> list[socketserver.BaseServer]:
    servers: list[socketserver.BaseServer] = [_tcp(found, port) for port in TCP_PORTS]
    servers += [_Udp((address, UDP_PORT), _Echo) for address in (ONE, OTHER)]
    servers.append(_dns(found, GATEWAY))
    servers.append(_dns(found, OTHER))
    return servers


class _Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


class _Udp(socketserver.UDPServer):
    pass


def _tcp(found: Internet, port: int) -> _Tcp:
    """Echoes; after the word `push` it sends without being asked once `pushing` is set."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            found.peers.append(self.client_address[0])
            with contextlib.suppress(OSError):
                while data := self.request.recv(4096):
                    if data == b"push":
                        found.pushing.wait()
                    self.request.sendall(data)

    return _Tcp(("", port), Handler)


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        data, server = self.request
        server.sendto(data, self.client_address)


def _dns(found: Internet, address: str) -> _Udp:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data, server = self.request
            query = dns.message.from_wire(data)
            question = query.question[0]
            name = question.name.to_text(omit_final_dot=True).lower()
            found.asked.append(name)
            response = dns.message.make_response(query)
            if name not in found.names:
                response.set_rcode(dns.rcode.NXDOMAIN)
            else:
                ttl_s, known = found.names[name]
                response.answer.append(
                    dns.rrset.from_text_list(question.name, ttl_s, "IN", "A", list(known))
                )
            server.sendto(response.to_wire(), self.client_address)

    return _Udp((address, 53), Handler)


def udp_packets(source: str, target: str, *, pieces: int = 1) -> list[bytes]:
    """A UDP datagram to the echo port as IPv4 packets for a raw socket, in so many fragments.

    The kernel fills in the checksums of the headers.
    """
    datagram = struct.pack("!HHHH", 4000, UDP_PORT, 8 + 8 * pieces, 0) + b"fragment" * pieces
    size = len(datagram) if pieces == 1 else 8
    packets = []
    for offset in range(0, len(datagram), size):
        more = _MORE_FRAGMENTS if offset + size < len(datagram) else 0
        part = datagram[offset : offset + size]
        header = struct.pack(
            "!BBHHHBBH4s4s",
            *(0x45, 0, 20 + len(part), 7, more | offset // 8, 64, socket.IPPROTO_UDP, 0),
            *(socket.inet_aton(source), socket.inet_aton(target)),
        )
        packets.append(header + part)
    return packets


def send_raw(netns: Path, packet: bytes, target: str) -> None:
    """Send an IPv4 packet as it is from a namespace."""

    def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            raw.sendto(packet, (target, 0))

    inside(netns, work)


def send_frame(netns: Path, frame: bytes, interface: str = "eth0") -> None:
    """Send a frame of the link layer as it is from a namespace."""

    def work() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((interface, 0))
            raw.send(frame)

    inside(netns, work)


class Tap:
    """Everything that comes in by an interface of a namespace while it is open."""

    def __init__(self, netns: Path, interface: str) -> None:
        def work() -> socket.socket:
            tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
            tap.bind((interface, _ALL_PROTOCOLS))
            tap.settimeout(WAIT_S)
            return tap

        self._socket = inside(netns, work)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def until(self, last: bytes) -> list[bytes]:
        """The frames that came in, up to the first one that has `last` in it."""
        frames: list[bytes] = []
        while not frames or last not in frames[-1]:
            frame, (_, _, kind, *_) = self._socket.recvfrom(65536)
            if kind != socket.PACKET_OUTGOING:
                frames.append(frame)
        return frames


_ALL_PROTOCOLS = 3  # ETH_P_ALL
_MORE_FRAGMENTS = 0x2000  # RFC 791
