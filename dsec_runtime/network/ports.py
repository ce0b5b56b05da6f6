"""Sets of ports, for each protocol: what a rule says of packets beside where they go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final, Literal

Protocol = Literal["tcp", "udp"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("tcp", "udp")
HIGHEST: Final = 65535

Ranges = tuple[tuple[int, int], ...]  # first and last, ascending, with a gap between two
_ALL: Final[Ranges] = ((0, HIGHEST),)


@dataclasses.dataclass(frozen=True, slots=True)
class PortSet:
    """Ports of TCP and ports of UDP."""

    tcp: Ranges = ()
    udp: Ranges = ()

    @classmethod
    def of(cls, ports: Iterable[int], protocol: Literal["tcp", "udp", "any"]) -> PortSet:
        """These ports, or all where none is given, of one protocol or both."""
        ranges = _joined((port, port) for port in ports) or _ALL
        return cls(
            ranges if protocol in ("tcp", "any") else (),
            ranges if protocol in ("udp", "any") else (),
        )

    def __or__(self, other: PortSet) -> PortSet:
        return PortSet(_joined(self.tcp + other.tcp), _joined(self.udp + other.udp))

    def __and__(self, other: PortSet) -> PortSet:
        return PortSet(_common(self.tcp, other.tcp), _common(self.udp, other.udp))

    def __sub__(self, other: PortSet) -> PortSet:
        return PortSet(
            _common(self.tcp, _complement(other.tcp)), _common(self.udp, _complement(other.udp))
        )

    def __bool__(self) -> bool:
        return bool(self.tcp or self.udp)

    def holds(self, protocol: Protocol, port: int) -> bool:
        """Whether this port of this protocol is in the set."""
        return any(first <= port <= last for first, last in self.ranges(protocol))

    def ranges(self, protocol: Protocol) -> Ranges:
        """The ports of one protocol."""
        return self.tcp if protocol == "tcp" else self.udp

    def is_all(self, protocol: Protocol) -> bool:
        """Whether all ports of this protocol are in the set."""
        return self.ranges(protocol) == _ALL


ALL: Final = PortSet(_ALL, _ALL)
NONE: Final = PortSet()


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def _complement(ranges: Ranges) -> Ranges:
    return tuple(_gaps(ranges))


def _gaps(ranges: Ranges) -> Iterator[tuple[int, int]]:
    begin = 0
    for first, last in ranges:
        if begin < first:
            yield begin, first - 1
        begin = last + 1
    if begin <= HIGHEST:
        yield begin, HIGHEST


def _common(left: Ranges, right: Ranges) -> Ranges:
    pairs = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return _joined((first, last) for first, last in pairs if first <= last)
