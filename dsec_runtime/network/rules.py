"""What a sandbox's rules mean: a decision for each name, and one for each address.

Nothing is allowed that no rule allows. Of the rules that speak of a port, the most specific one
decides: a name before a `*.` above it and a long suffix before a short one, a long prefix before a
short one; between equals the refusal wins. A packet is allowed

- when the networks allow it (`Policy.networks`), or
- when no network rule speaks of it and its address was the answer to a name that is allowed
  (`Policy.name`). A refused network is refused for names too.

Names are answered when a rule allows them. A rule that allows all addresses allows all names that
no other rule refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dsec_runtime.errors import InvalidRequestError, UnsupportedError
from dsec_runtime.network.addresses import Address, Network4, network, normal_name
from dsec_runtime.network.ports import NONE, PortSet, Protocol
from dsec_runtime.network.services import Service, Table
from dsec_runtime.spec import NetworkRule


@dataclass(frozen=True, slots=True)
class NameRule:
    """Of a name, or with `below` of all names below it. `own` is the operator's (a service)."""

    name: str
    below: bool
    allow: bool
    ports: PortSet
    own: bool

    def speaks_of(self, name: str) -> bool:
        """Whether this rule is about `name`."""
        return name.endswith("." + self.name) if self.below else name == self.name

    @property
    def rank(self) -> tuple[bool, int, bool]:
        """Sorts the rule that decides before those over which it does."""
        return self.below, -len(self.name), self.allow


@dataclass(frozen=True, slots=True)
class CidrRule:
    """Of all addresses of a network."""

    network: Network4
    allow: bool
    ports: PortSet

    @property
    def rank(self) -> tuple[int, bool]:
        """Sorts the rule that decides before those over which it does."""
        return -self.network.prefixlen, self.allow


@dataclass(frozen=True, slots=True)
class NameDecision:
    """What is allowed at the addresses of a name. `own`: the operator vouches for the name."""

    ports: PortSet
    own: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a sandbox, compiled: those that decide first stand first."""

    names: tuple[NameRule, ...] = ()
    networks: tuple[CidrRule, ...] = ()

    @property
    def digest(self) -> str:
        """The same for the same meaning in the same words."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:24]

    def name(self, name: str) -> NameDecision:
        """What is allowed at the addresses that `name` has; it is answered when anything is."""
        allowed, refused, own = NONE, NONE, False
        for rule in self.names:
            if not rule.speaks_of(name):
                continue
            if rule.allow:
                granted = rule.ports - refused - allowed
                own |= rule.own and bool(granted)
                allowed |= granted
            else:
                refused |= rule.ports - allowed
        return NameDecision(allowed | (self._everywhere() - refused), own)

    def address(self, address: Address) -> tuple[PortSet, PortSet]:
        """The ports that the networks allow at `address`, and those that they refuse."""
        allowed, refused = NONE, NONE
        for rule in self.networks:
            if address not in rule.network:
                continue
            if rule.allow:
                allowed |= rule.ports - refused
            else:
                refused |= rule.ports - allowed
        return allowed, refused

    def allows(
        self,
        address: Address,
        protocol: Protocol,
        port: int,
        names: Iterable[str] = (),
    ) -> bool:
        """Whether a packet may go there, when `names` were answered with this address.

        The kernel decides; this says what it must decide.
        """
        for rule in self.networks:
            if address in rule.network and rule.ports.holds(protocol, port):
                return rule.allow
        return any(self.name(name).ports.holds(protocol, port) for name in names)

    def _everywhere(self) -> PortSet:
        found, refused = NONE, NONE
        for rule in self.networks:
            if rule.network.prefixlen == 0 and rule.allow:
                found |= rule.ports - refused
            elif rule.network.prefixlen == 0:
                refused |= rule.ports
        return found


NOTHING = Policy()


def compile_rules(rules: Sequence[NetworkRule], table: Table) -> Policy:
    """The decisions that `rules` make, with the services of the operator's `table`.

    Raises InvalidRequestError naming the rule, and UnsupportedError for a service it does not have.
    """
    names: list[NameRule] = []
    networks: list[CidrRule] = []
    for number, rule in enumerate(rules):
        try:
            _add(rule, table.services, names, networks)
        except ValueError as error:
            raise InvalidRequestError(f"network[{number}]: {error}") from error
    return Policy(
        tuple(sorted(set(names), key=lambda it: (it.rank, repr(it)))),
        tuple(sorted(set(networks), key=lambda it: (it.rank, repr(it)))),
    )


def _add(
    rule: NetworkRule,
    services: Mapping[str, Service],
    names: list[NameRule],
    networks: list[CidrRule],
) -> None:
    given = [it for it in (rule.service, rule.domain, rule.cidr) if it is not None]
    if len(given) != 1:
        raise ValueError("exactly one of service, domain and cidr is needed")
    ports = PortSet.of(rule.ports, rule.protocol)
    if rule.domain is not None:
        names.append(_name_rule(rule.domain, allow=rule.allow, ports=ports, own=False))
        return
    if rule.cidr is not None:
        networks.append(CidrRule(network(rule.cidr), rule.allow, ports))
        return
    service = services.get(rule.service or "")
    if service is None:
        known = ", ".join(sorted(services)) or "none"
        raise UnsupportedError(
            f"this node knows no service {rule.service} (it knows: {known})",
            hint="name it in edge/services.toml of the edge's home, see docs/network.md",
        )
    ports &= PortSet.of(service.ports, service.protocol)
    names += [_name_rule(it, allow=rule.allow, ports=ports, own=True) for it in service.names]
    networks += [CidrRule(network(it), rule.allow, ports) for it in service.networks]


def _name_rule(text: str, *, allow: bool, ports: PortSet, own: bool) -> NameRule:
    below = text.startswith("*.")
    name = normal_name(text.removeprefix("*."))
    if name.replace(".", "").isdigit():
        raise ValueError(f"{text} is an address; give it as cidr")
    return NameRule(name, below, allow, ports, own)
