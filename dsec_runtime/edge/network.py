"""The network rules of sandboxes, as far as this edge can hold to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dsec_runtime.edge.driving import Driving
from dsec_runtime.errors import InvalidRequestError, UnsupportedError
from dsec_runtime.network.network import Network
from dsec_runtime.spec import NetworkCounts, NetworkRule


class Networks:
    """The networks of this edge's sandboxes; without `network` they have their loopback only."""

    def __init__(self, network: Network | None, driving: Driving) -> None:
        self._network, self._driving = network, driving

    async def check(self, rules: Sequence[NetworkRule]) -> None:
        """Refuse what is malformed and what this edge cannot do.

        Raises InvalidRequestError and UnsupportedError.
        """
        if self._network is None:
            _check_denied(rules)
        elif rules:
            await self._driving.call(self._network.check, rules)

    async def apply(self, sandbox: str, rules: Sequence[NetworkRule]) -> None:
        """Let rules take the place of those that a sandbox has; its connections are judged again.

        Raises as `check`, and InfrastructureError.
        """
        if self._network is None:
            _check_denied(rules)
        else:
            await self._driving.call(self._network.apply, sandbox, rules)

    async def counts(self, sandbox: str) -> NetworkCounts:
        """What a sandbox was allowed and refused. Raises UnknownSandboxError."""
        if self._network is None:
            return NetworkCounts(
                allowed_packets=0, allowed_bytes=0, refused_packets=0, refused_bytes=0
            )
        return await self._driving.call(self._network.counts, sandbox)

    async def reconcile(self, rules: Mapping[str, Sequence[NetworkRule]]) -> None:
        """After a start: let the sandboxes that live on have their rules again."""
        if self._network is not None:
            await self._driving.call(self._network.reconcile, rules)


def _check_denied(rules: Iterable[NetworkRule]) -> None:
    """Rules that deny are kept by a loopback; one that allows something cannot be."""
    for rule in rules:
        named = [each for each in (rule.service, rule.domain, rule.cidr) if each is not None]
        if len(named) != 1:
            raise InvalidRequestError("a network rule names one service, domain or cidr")
        if rule.allow:
            raise UnsupportedError(
                f"this edge cannot open the network to {named[0]}: it denies all",
                hint="leave out the rules that allow; `dsec doctor` tells what is missing",
            )
