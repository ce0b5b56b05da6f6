"""Links, addresses, routes and neighbours, several changes in one call (rtnetlink(7)).

What is made for each sandbox is made by this: pyroute2 took 9 ms of CPU for it, this takes one.
Numbers are those of linux/netlink.h, if_link.h, if_addr.h, rtnetlink.h, neighbour.h and veth.h.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final, Self

IFF_UP: Final = 0x1
IFF_NOARP: Final = 0x80

_ERROR: Final = 2  # NLMSG_ERROR, which with 0 is the acknowledgement
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400
_NEW: Final = _CREATE | _EXCLUSIVE
_NEW_LINK, _DELETE_LINK, _GET_LINK = 16, 17, 18
_NEW_ADDRESS, _NEW_ROUTE, _NEW_NEIGHBOUR = 20, 24, 28
_MAC, _NAME, _OPERSTATE, _LINK_INFO, _NETNS = 1, 3, 16, 18, 28  # IFLA_*
_SEND_QUEUES, _RECEIVE_QUEUES = 31, 32
_INFO_KIND, _INFO_DATA, _PEER = 1, 2, 1
_ADDRESS, _LOCAL = 1, 2  # IFA_*
_DESTINATION, _OUT, _GATEWAY = 1, 4, 5  # RTA_*
_TARGET, _TARGET_MAC = 1, 2  # NDA_*
_UP: Final = 6  # IF_OPER_UP, RFC 2863
_MAIN_TABLE, _BOOT_PROTOCOL, _UNICAST, _UNIVERSE, _LINK_SCOPE = 254, 3, 1, 0, 253
_PERMANENT: Final = 0x80  # NUD_PERMANENT
_INET: Final = int(socket.AF_INET)
_LARGEST: Final = 1 << 16
_HEADER = struct.Struct("=IHHII")  # length, type, flags, number, port
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, which of them change
_INT = struct.Struct("=i")

Message = tuple[int, int, bytes]  # type, flags, what follows the header


class Rtnetlink:
    """A socket of the calling thread's network namespace, for any thread."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._socket.bind((0, 0))
        self._lock = threading.Lock()

    def run(self, *messages: Message) -> None:
        """Make these changes, in order. Raises OSError of the first that fails; others are made."""
        with self._lock:
            self._send(messages, _ACK)
            left, failed = len(messages), 0
            while left:
                for kind, body in _split(self._socket.recv(_LARGEST)):
                    left -= kind == _ERROR
                    failed = failed or -_INT.unpack_from(body)[0]
        if failed:
            raise OSError(failed, f"rtnetlink: {os.strerror(failed)}")

    def is_up(self, index: int) -> bool:
        """Whether a link sends what it is given. Raises OSError without such a link."""
        with self._lock:
            self._send([(_GET_LINK, 0, _LINK.pack(0, 0, index, 0, 0))], 0)
            ((kind, body),) = _split(self._socket.recv(_LARGEST))
        if kind == _ERROR:
            number = -_INT.unpack_from(body)[0]
            raise OSError(number, f"rtnetlink: link {index}: {os.strerror(number)}")
        return (_OPERSTATE, bytes([_UP])) in _attributes(body[_LINK.size :])

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, messages: Sequence[Message], flags: int) -> None:
        parts = [
            _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags | own, 0, 0) + body
            for kind, own, body in messages
        ]
        self._socket.send(b"".join(parts))


@dataclass(frozen=True, slots=True)
class End:
    """One end of a new veth pair; in another namespace when `netns` (a descriptor) is given.

    With one queue: unless told, the kernel keeps memory for one for each processor, and uses one.
    """

    index: int
    name: str
    mac: bytes
    netns: int | None = None

    def encoded(self) -> bytes:
        """As IFLA attributes behind their header."""
        body = _LINK.pack(0, 0, self.index, 0, 0)
        body += _attribute(_NAME, self.name.encode() + b"\0") + _attribute(_MAC, self.mac)
        for queues in (_SEND_QUEUES, _RECEIVE_QUEUES):
            body += _attribute(queues, _INT.pack(1))
        return body if self.netns is None else body + _attribute(_NETNS, _INT.pack(self.netns))


def add_veth(own: End, other: End) -> Message:
    """A pair of links, `own` of this namespace (veth(4))."""
    peer = _attribute(_PEER, other.encoded())
    info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, peer)
    return _NEW_LINK, _NEW, own.encoded() + _attribute(_LINK_INFO, info)


def set_link(index: int, flags: int) -> Message:
    """Switch these flags of a link on."""
    return _NEW_LINK, 0, _LINK.pack(0, 0, index, flags, flags)


def delete_link(index: int) -> Message:
    """Remove a link, with its other end."""
    return _DELETE_LINK, 0, _LINK.pack(0, 0, index, 0, 0)


def add_address(index: int, address: IPv4Address) -> Message:
    """An address of a link, of no network."""
    packed = _attribute(_LOCAL, address.packed) + _attribute(_ADDRESS, address.packed)
    return _NEW_ADDRESS, _NEW, struct.pack("=BBBBi", _INET, 32, 0, 0, index) + packed


def add_route(index: int, target: IPv4Address) -> Message:
    """One address that is at the other end of a link."""
    route = _attribute(_DESTINATION, target.packed) + _attribute(_OUT, _INT.pack(index))
    return _NEW_ROUTE, _NEW, _route(32, _LINK_SCOPE) + route


def add_default_route(index: int, gateway: IPv4Address) -> Message:
    """The way to all else."""
    route = _attribute(_GATEWAY, gateway.packed) + _attribute(_OUT, _INT.pack(index))
    return _NEW_ROUTE, _NEW, _route(0, _UNIVERSE) + route


def add_neighbour(index: int, address: IPv4Address, mac: bytes) -> Message:
    """A neighbour who is known for ever, without being asked."""
    head = struct.pack("=BxxxiHBB", _INET, index, _PERMANENT, 0, 0)
    known = _attribute(_TARGET, address.packed) + _attribute(_TARGET_MAC, mac)
    return _NEW_NEIGHBOUR, _CREATE | _REPLACE, head + known


def _route(bits: int, scope: int) -> bytes:
    return struct.pack(
        "=BBBBBBBBI", _INET, bits, 0, 0, _MAIN_TABLE, _BOOT_PROTOCOL, scope, _UNICAST, 0
    )


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:size]
        data = data[size + -size % 4 :]


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        size, kind, *_ = _HEADER.unpack_from(data)
        yield kind, data[_HEADER.size : size]
        data = data[size + -size % 4 :]
