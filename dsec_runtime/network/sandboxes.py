"""One sandbox as the packet filter has it, and how that changes with its rules and answers."""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from dsec_runtime.network import ruleset
from dsec_runtime.network.addresses import Address
from dsec_runtime.network.answers import Answers, NodeNames
from dsec_runtime.network.rules import Policy
from dsec_runtime.network.ruleset import Member
from dsec_runtime.spec import RefusedName

_MOST_NAMES: Final = 128  # refused ones that are remembered

Grants = dict[tuple[str, Address], str]  # the chain of an address in `names` or `held`


@dataclass(slots=True)
class Change:
    """A transaction: lines for nft(8), chains that they need, and the grants after it."""

    grants: Grants
    lines: list[str] = field(default_factory=list)
    chains: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Sandbox:
    """What is in the kernel, and what it was made from.

    `policy` is None for one of an earlier process whose rules have not been told again; `marks` are
    all generations that its connections may carry.
    """

    member: Member
    slot: int
    policy: Policy | None
    ruling: str
    generation: int
    grants: Grants = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)
    marks: list[int] = field(default_factory=list)
    _refused: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)

    def granted(self) -> set[Address]:
        """The addresses that are in the kernel."""
        return {address for _, address in self.grants}

    def regrant(
        self,
        node: NodeNames,
        policy: Policy,
        addresses: Iterable[Address],
        now_s: float,
        *,
        renew: bool,
    ) -> Change:
        """Make the kernel have of `addresses` what `policy` says of their names.

        An element that stays the same keeps its end unless it is to `renew`.
        """
        change = Change(dict(self.grants))
        for address in addresses:
            left_s = math.ceil(self.answers.until(address, now_s) - now_s)
            for kind, after_s, timeout_s in (
                ("names", now_s, left_s),
                ("held", -math.inf, ruleset.HELD_S),
            ):
                ports = self.answers.open_ports(node, policy, address, after_s=after_s)
                old = change.grants.get((kind, address))
                new = ruleset.ports_chain(ports) if ports else None
                if old == new and not renew:
                    continue
                if old:
                    change.lines += ruleset.ungrant(kind, self.member, address, old)
                    del change.grants[kind, address]
                if new:
                    change.chains[new] = ruleset.ports_ruling(ports)
                    names = self.answers.names(address)
                    change.lines.append(
                        ruleset.grant(kind, self.member, address, new, timeout_s, names)
                    )
                    change.grants[kind, address] = new
        return change

    def note_refused(self, name: str, reason: str) -> None:
        """Remember a name that was not answered; those not asked for longest are forgotten."""
        self._refused[name, reason] = self._refused.pop((name, reason), 0) + 1
        if len(self._refused) > _MOST_NAMES:
            self._refused.popitem(last=False)

    def refused_names(self) -> tuple[RefusedName, ...]:
        """Those that are remembered, the latest last."""
        return tuple(
            RefusedName(name=name, reason=reason, count=count)
            for (name, reason), count in self._refused.items()
        )


def new_generation() -> int:
    """A mark for connections that no connection of this sandbox carries yet."""
    return secrets.randbelow((1 << 32) - 1) + 1
