"""The sandboxes in the router's packet filter: each change is one transaction of the kernel."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dsec_runtime.errors import UnknownSandboxError
from dsec_runtime.linux.nftables import NftError
from dsec_runtime.network import kernelstate, ruleset
from dsec_runtime.network.addresses import Address
from dsec_runtime.network.answers import NodeNames
from dsec_runtime.network.router import Router
from dsec_runtime.network.rules import Policy
from dsec_runtime.network.ruleset import Member
from dsec_runtime.network.sandboxes import Change, Sandbox, new_generation
from dsec_runtime.spec import NetworkCounts, RefusedDestination

_SPARE_CHAINS: Final = 64  # that nothing uses any more and that are kept


class _Counted(NamedTuple):
    allowed: Mapping[str, tuple[int, int]]
    refused_by: Mapping[str, tuple[int, int]]
    refused: Mapping[str, list[RefusedDestination]]


class Filter:
    """Thread-safe; it is the book of the resolver, too (`resolver.Book`)."""

    def __init__(
        self, router: Router, node: NodeNames, grace_s: float, counts_age_s: float
    ) -> None:
        """Answers hold `grace_s` longer than they say; counts may be `counts_age_s` old."""
        self._router, self._table, self._node = router, router.filter, node
        self._grace_s, self._counts_age_s = grace_s, counts_age_s
        self._lock = threading.RLock()
        self._sandboxes: dict[str, Sandbox] = {}
        self._sources: dict[str, Sandbox] = {}
        self._counted: tuple[float, _Counted] | None = None
        router.load(node.never)
        self._chains = kernelstate.chains(self._table)

    def adopt(self, slots: Mapping[str, int]) -> list[str]:
        """Keep the sandboxes of an earlier process, by id; those that the kernel does not have.

        What it has of others is removed.
        """
        with self._lock:
            found = kernelstate.sandboxes(self._table, self._router.addresses)
            for sandbox_id, slot in slots.items():
                if slot in found:
                    self._keep(sandbox_id, found.pop(slot))
            for other in found.values():
                self._remove(other)
            return sorted(slots.keys() - self._sandboxes.keys())

    def set_node(self, node: NodeNames) -> None:
        """The operator's table has changed: what nobody may reach holds at once."""
        with self._lock:
            self._table.run(ruleset.set_never(node.never))
            self._node = node

    def slot(self, sandbox_id: str) -> int | None:
        """The number of a sandbox's namespace, None without one."""
        with self._lock:
            found = self._sandboxes.get(sandbox_id)
            return found.slot if found else None

    def admit(self, sandbox_id: str, slot: int, member: Member, policy: Policy) -> None:
        """Let a new sandbox send, under `policy`. Raises NftError."""
        mark, ruling = new_generation(), ruleset.ruling_chain(policy)
        sandbox = Sandbox(member, slot, policy, ruling, mark, marks=[mark])
        with self._lock:
            change = Change({}, ruleset.admit(member, mark, ruling))
            change.chains[ruling] = ruleset.ruling(policy)
            self._commit(sandbox, change)
            self._keep(sandbox_id, sandbox)

    def apply(self, sandbox_id: str, policy: Policy) -> None:
        """Put `policy` in the place of what holds now; all connections are judged again by it.

        Raises UnknownSandboxError and NftError, after which the old rules hold.
        """
        with self._lock:
            sandbox = self._sandbox(sandbox_id)
            ruling = ruleset.ruling_chain(policy)
            if ruling == sandbox.ruling:
                sandbox.policy = policy
                return
            mark = new_generation()
            change = sandbox.regrant(
                self._node, policy, sandbox.granted(), time.monotonic(), renew=False
            )
            change.chains[ruling] = ruleset.ruling(policy)
            change.lines += ruleset.unset_ruling(sandbox.member, sandbox.generation, sandbox.ruling)
            change.lines += ruleset.set_ruling(sandbox.member, mark, ruling)
            self._commit(sandbox, change)
            sandbox.policy, sandbox.ruling, sandbox.generation = policy, ruling, mark
            sandbox.marks.append(mark)

    def expel(self, sandbox_id: str) -> int | None:
        """Stop a sandbox's traffic and forget it; the number of its namespace."""
        with self._lock:
            sandbox = self._sandboxes.get(sandbox_id)
            if sandbox is None:
                return None
            self._remove(sandbox)
            del self._sandboxes[sandbox_id]
            del self._sources[str(sandbox.member.address)]
            self._drop_spare_chains()
            return sandbox.slot

    def counts(self, sandbox_id: str) -> NetworkCounts:
        """What it was allowed and refused so far. Raises UnknownSandboxError and NftError."""
        with self._lock:
            sandbox = self._sandbox(sandbox_id)
            counted = self._count()
            address = str(sandbox.member.address)
            allowed = counted.allowed.get(address, (0, 0))
            refused = counted.refused_by.get(sandbox.member.interface, (0, 0))
            return NetworkCounts(
                allowed_packets=allowed[0],
                allowed_bytes=allowed[1],
                refused_packets=refused[0],
                refused_bytes=refused[1],
                refused=tuple(counted.refused.get(address, ())),
                refused_names=sandbox.refused_names(),
            )

    def refusal(self, source: str, name: str) -> str | None:
        """Why a sandbox may not ask for `name`, see `resolver.Book`."""
        with self._lock:
            sandbox = self._sources.get(source)
            if sandbox is None or sandbox.policy is None:
                return "not a sandbox with rules"
            return None if sandbox.policy.name(name).ports else "no rule allows it"

    def hosts(self, name: str) -> tuple[Address, ...]:
        """The operator's own addresses of `name`."""
        return self._node.hosts(name)

    def open(
        self, source: str, name: str, addresses: Iterable[Address], ttl_s: int
    ) -> list[Address]:
        """Open an answer's addresses to the sandbox that asked; which of them may be told."""
        with self._lock:
            sandbox = self._sources.get(source)
            if sandbox is None or sandbox.policy is None:
                return []
            told = [it for it in addresses if self._node.answers(sandbox.policy, name, it)]
            now_s = time.monotonic()
            touched = set(told)
            for address in told:
                touched.update(sandbox.answers.add(name, address, now_s + ttl_s + self._grace_s))
            change = sandbox.regrant(self._node, sandbox.policy, touched, now_s, renew=True)
            self._commit(sandbox, change)
            return told

    def note_refused(self, source: str, name: str, reason: str) -> None:
        """Remember a question that was refused."""
        with self._lock:
            if sandbox := self._sources.get(source):
                sandbox.note_refused(name, reason)

    def _sandbox(self, sandbox_id: str) -> Sandbox:
        try:
            return self._sandboxes[sandbox_id]
        except KeyError:
            raise UnknownSandboxError(f"sandbox {sandbox_id} has no network here") from None

    def _keep(self, sandbox_id: str, sandbox: Sandbox) -> None:
        self._sandboxes[sandbox_id] = sandbox
        self._sources[str(sandbox.member.address)] = sandbox

    def _commit(self, sandbox: Sandbox, change: Change) -> None:
        new = change.chains.keys() - self._chains
        lines = [line for chain in new for line in change.chains[chain]] + change.lines
        if lines:
            self._table.run(lines)
        self._chains |= new
        sandbox.grants = change.grants

    def _remove(self, sandbox: Sandbox) -> None:
        lines = ruleset.expel(sandbox.member, sandbox.generation, sandbox.ruling)
        for (kind, address), chain in sandbox.grants.items():
            lines += ruleset.ungrant(kind, sandbox.member, address, chain)
        self._table.run(lines)
        for mark in sandbox.marks:
            self._router.connections.forget(mark)

    def _drop_spare_chains(self) -> None:
        used = {it.ruling for it in self._sandboxes.values()}
        used |= {chain for it in self._sandboxes.values() for chain in it.grants.values()}
        spare = self._chains - used
        if len(spare) <= _SPARE_CHAINS:
            return
        for chain in spare:
            # An element that has just expired may still refer to it; then it goes another time.
            with contextlib.suppress(NftError):
                self._table.run(ruleset.delete_chain(chain))
                self._chains.discard(chain)

    def _count(self) -> _Counted:
        now_s = time.monotonic()
        if self._counted is None or now_s - self._counted[0] > self._counts_age_s:
            counted = _Counted(
                kernelstate.counters(self._table, "allowed"),
                kernelstate.counters(self._table, "refused_by"),
                kernelstate.refused(self._table),
            )
            self._counted = now_s, counted
        return self._counted[1]
