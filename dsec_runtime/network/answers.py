"""One policy for names and addresses: what a name opens, and what of it is known per sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dsec_runtime.network.addresses import NEVER, Address, Network4, is_private, network
from dsec_runtime.network.ports import NONE, PortSet
from dsec_runtime.network.rules import Policy
from dsec_runtime.network.services import Table

MOST_ADDRESSES: Final = 512  # of a sandbox; those asked for longest ago give way


@dataclass(frozen=True, slots=True)
class NodeNames:
    """What the operator says of names and addresses. `never` is refused to all."""

    table: Table
    never: tuple[Network4, ...]

    @classmethod
    def of(cls, table: Table, own: Network4) -> NodeNames:
        """Of a node whose sandboxes are in `own`."""
        return cls(table, (*NEVER, own, *map(network, table.policy.never)))

    def is_never(self, address: Address) -> bool:
        """Whether no sandbox may reach `address`."""
        return any(address in it for it in self.never)

    def hosts(self, name: str) -> tuple[Address, ...]:
        """The addresses that the operator gives `name`."""
        return tuple(map(Address, self.table.hosts.get(name, ())))

    def opens(self, policy: Policy, name: str, address: Address) -> PortSet:
        """The ports that the answer `address` to `name` opens; what networks open is not in it."""
        if self.is_never(address):
            return NONE
        decision = policy.name(name)
        vouched = decision.own or self.table.policy.private_answers or address in self.hosts(name)
        if is_private(address) and not vouched:
            return NONE
        return decision.ports - policy.address(address)[1]

    def answers(self, policy: Policy, name: str, address: Address) -> bool:
        """Whether `address` may be told as an answer to `name`: something there can be reached."""
        if self.is_never(address):
            return False
        return bool(self.opens(policy, name, address) or policy.address(address)[0])


@dataclass(slots=True)
class Answers:
    """The answers that one sandbox got: for each address its names and until when they hold."""

    _known: dict[Address, dict[str, float]] = field(default_factory=dict)

    def add(self, name: str, address: Address, until_s: float) -> list[Address]:
        """Note an answer; addresses that were given up for it."""
        names = self._known.pop(address, {})
        names[name] = max(until_s, names.pop(name, until_s))
        self._known[address] = names
        gone = list(self._known)[: max(0, len(self._known) - MOST_ADDRESSES)]
        for each in gone:
            del self._known[each]
        return gone

    def addresses(self) -> Iterator[Address]:
        """Those that were answered, the oldest first."""
        yield from self._known

    def names(self, address: Address) -> list[str]:
        """To which it was answered, the latest first."""
        return list(reversed(self._known.get(address, {})))

    def until(self, address: Address, now_s: float) -> float:
        """When the last answer with `address` expires; in the past when it has."""
        return max(self._known.get(address, {}).values(), default=now_s)

    def open_ports(
        self, node: NodeNames, policy: Policy, address: Address, *, after_s: float
    ) -> PortSet:
        """What its names open at `address`, of those answers that hold longer than `after_s`."""
        ports = NONE
        for name, until_s in self._known.get(address, {}).items():
            if until_s > after_s:
                ports |= node.opens(policy, name, address)
        return ports
