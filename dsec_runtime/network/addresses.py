"""Names and addresses: how they are written, which the sandboxes have, which nobody may reach."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dsec_layers.errors import InvalidInputError

Address = ipaddress.IPv4Address
Network4 = ipaddress.IPv4Network

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")

# "This" network, loopback, link-local (metadata services), multicast, reserved and broadcast: the
# special-purpose registry of RFC 6890. No rule opens them.
NEVER: Final = tuple(
    Network4(it)
    for it in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")
)
# RFC 1918 and RFC 6598: where a site keeps what outsiders should not reach.
_PRIVATE: Final = tuple(
    Network4(it) for it in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
_FIRST_SLOT: Final = 16
_LINKS: Final = 64  # links to the node, of four addresses each, at the end of the range


def normal_name(name: str) -> str:
    """`name` as rules and the resolver compare it. Raises ValueError for what is no host name."""
    plain = name.rstrip(".").lower()
    if not plain.isascii():
        plain = plain.encode("idna").decode()
    if len(plain) > 253 or not _NAME.fullmatch(plain):
        raise ValueError(f"{name!r} is no host name")
    return plain


def network(text: str) -> Network4:
    """The network of a CIDR. Raises ValueError, also for IPv6, which sandboxes do not have."""
    found = ipaddress.ip_network(text, strict=False)
    if not isinstance(found, Network4):
        raise ValueError(f"{text}: sandboxes have no IPv6")  # a value, not a type
    return found


def is_private(address: Address) -> bool:
    """Whether `address` belongs to a site, not to the world."""
    return any(address in it for it in _PRIVATE)


@dataclass(frozen=True, slots=True)
class Range:
    """The addresses of one node's sandboxes.

    The second address is the resolver's and the gateway's, those from the 16th are the sandboxes',
    and the last 256 join the router to the node.
    """

    network: Network4

    @classmethod
    def parse(cls, text: str) -> Range:
        """Raises InvalidInputError."""
        try:
            found = Network4(text)
        except ValueError as error:
            raise InvalidInputError(f"network range: {error}") from error
        if not 8 <= found.prefixlen <= 22:
            raise InvalidInputError(f"network range {text}: a prefix of 8 to 22 is needed")
        return cls(found)

    @property
    def resolver(self) -> Address:
        """Where the sandboxes ask for names; also their gateway."""
        return self.network.network_address + 1

    @property
    def slots(self) -> range:
        """The numbers that sandboxes may have."""
        return range(_FIRST_SLOT, self.network.num_addresses - 4 * _LINKS)

    def address(self, slot: int) -> Address:
        """The address of the sandbox with this number."""
        return self.network.network_address + slot

    def slot(self, address: Address) -> int:
        """The number of the sandbox with this address."""
        return int(address) - int(self.network.network_address)

    def links(self, first: int) -> Iterator[tuple[Address, Address]]:
        """Pairs of addresses for the link: the node's and the router's, beginning anywhere."""
        base = self.network.broadcast_address - 4 * _LINKS + 1
        for number in range(_LINKS):
            begin = base + 4 * ((first + number) % _LINKS)
            yield begin + 1, begin + 2
