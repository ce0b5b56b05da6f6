"""The network of a node's sandboxes, as the edge and the tiers use it.

    network = Network(home)
    claimed = network.claim("sb-1", [NetworkRule(service="pypi")])
    ...                                  # the sandbox runs in the namespace claimed.netns
    network.apply("sb-1", [])            # its connections are cut
    network.release("sb-1")

All that it makes lies below `home/run/netns`, in network namespaces of its own, and in one table of
the node's packet filter; see docs/network.md.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from dsec_runtime.errors import InvalidRequestError, StateConflictError, UnsupportedError
from dsec_runtime.linux import namespaces
from dsec_runtime.network import resolver, services, upstream
from dsec_runtime.network.addresses import Range
from dsec_runtime.network.answers import NodeNames
from dsec_runtime.network.filter import Filter
from dsec_runtime.network.pool import Pool
from dsec_runtime.network.resolver import Resolver
from dsec_runtime.network.router import Router
from dsec_runtime.network.rules import Policy, compile_rules
from dsec_runtime.network.settings import Settings
from dsec_runtime.spec import NetworkCounts, NetworkRule

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_USUAL: Final = Settings()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A sandbox's network: the file of its namespace, its address, and where it asks for names."""

    netns: Path
    address: str
    resolver: str


class Network:
    """Thread-safe; all methods block. Errors are `errors.SandboxError`s.

    `resolv_conf` is the file that sandboxes show as /etc/resolv.conf.
    """

    def __init__(self, home: Path, settings: Settings = _USUAL) -> None:
        """Find what an earlier process left, or make it, and begin to answer names.

        Raises UnsupportedError naming what the machine lacks, InfrastructureError, and
        InvalidInputError for the operator's table or the range.
        """
        folder = home / "run/netns"
        self._claims = folder / "claims"
        self._claims.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._table_path = home / "edge/services.toml"
        self._lock = threading.Lock()
        self._filled = False
        addresses = Range.parse(settings.range)
        self._own = addresses.network
        self._seen = _state(self._table_path)
        self._node = NodeNames.of(services.read(self._table_path), self._own)
        with contextlib.ExitStack() as stack:
            self._router = Router(folder, addresses, settings.node)
            stack.callback(self._router.close)
            self._filter = Filter(self._router, self._node, settings.grace_s, settings.counts_age_s)
            self._pool = Pool(self._router, settings.ready)
            stack.callback(self._pool.close)
            self._adopt()
            self.resolv_conf = folder / "resolv.conf"
            self.resolv_conf.write_text(f"nameserver {addresses.resolver}\n")
            sockets = self._router.inside.run(lambda: resolver.listen(addresses.resolver))
            self._resolver = Resolver(
                self._filter,
                lambda: upstream.nameservers(settings.resolv_conf),
                sockets,
                lambda: namespaces.enter(settings.node),
            )
            stack.pop_all()
        self._pool.start()

    def claim(self, sandbox_id: str, rules: Sequence[NetworkRule]) -> Claimed:
        """A namespace for this sandbox under these rules; the one it has, if it has one.

        Raises InvalidRequestError, OverloadedError and InfrastructureError.
        """
        policy = self._compile(rules)
        claim = self._claim_file(sandbox_id)
        slot = self._filter.slot(sandbox_id)
        if slot is not None:
            self._filter.apply(sandbox_id, policy)
            return self._claimed(slot)
        slot = self._pool.take()
        with contextlib.ExitStack() as undo:
            undo.callback(self._pool.discard, slot)
            _write_claim(claim, slot)
            undo.callback(claim.unlink)
            self._filter.admit(sandbox_id, slot, self._pool.member(slot), policy)
            undo.pop_all()
        return self._claimed(slot)

    def claimed(self, sandbox_id: str) -> Claimed | None:
        """What a sandbox has, or None."""
        slot = self._filter.slot(sandbox_id)
        return None if slot is None else self._claimed(slot)

    def check(self, rules: Sequence[NetworkRule]) -> None:
        """Raise InvalidRequestError where `rules` mean nothing on this node."""
        self._compile(rules)

    def apply(self, sandbox_id: str, rules: Sequence[NetworkRule]) -> None:
        """Put `rules` in the place of those that hold, in one step, for connections too.

        Raises InvalidRequestError, UnknownSandboxError and InfrastructureError; then the old hold.
        """
        self._filter.apply(sandbox_id, self._compile(rules))

    def counts(self, sandbox_id: str) -> NetworkCounts:
        """What it was allowed and refused so far. Raises UnknownSandboxError."""
        return self._filter.counts(sandbox_id)

    def release(self, sandbox_id: str) -> None:
        """End a sandbox's network and whatever of it is left; no error when there is nothing."""
        claim = self._claim_file(sandbox_id)
        slot = self._filter.expel(sandbox_id)
        if slot is not None:
            self._pool.discard(slot)
        claim.unlink(missing_ok=True)

    def leftovers(self, known: Iterable[str]) -> list[str]:
        """The ids that have a network here and are not `known`; `release` takes it away."""
        return sorted({it.name for it in self._claims.iterdir()} - set(known))

    def reconcile(self, known: Mapping[str, Sequence[NetworkRule]]) -> list[str]:
        """After a start: tell the rules of the sandboxes that live on; those whose network is lost.

        Connections go on where the rules mean the same as before.
        """
        lost = [it for it in known if self._filter.slot(it) is None]
        for sandbox_id in known.keys() - set(lost):
            try:
                self._filter.apply(sandbox_id, self._compile(known[sandbox_id]))
            except (InvalidRequestError, UnsupportedError) as error:
                # The operator took a service away: what is not known any more is not allowed.
                _log.warning("network of %s: %s; it is allowed nothing", sandbox_id, error)
                self._filter.apply(sandbox_id, Policy())
        return sorted(lost)

    def close(self) -> None:
        """Stop answering. Sandboxes keep their networks, and a new process finds them.

        Where there is none any more, all is taken away from the node.
        """
        self._stop()
        if any(self._claims.iterdir()):
            self._router.close()
        else:
            self._router.remove()

    def remove(self) -> None:
        """Take everything of this home away from the node; no sandbox may run any more."""
        for claim in self._claims.iterdir():
            claim.unlink()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        self._pool.close()
        self._resolver.close()

    def _adopt(self) -> None:
        """Keep the claimed networks that are whole; take all others away."""
        claims = {it.name: int(it.read_text() or 0) for it in self._claims.iterdir()}
        whole = {
            sandbox_id: slot for sandbox_id, slot in claims.items() if self._pool.is_whole(slot)
        }
        missing = self._filter.adopt(whole)
        for sandbox_id, slot in claims.items():
            if sandbox_id in whole and sandbox_id not in missing:
                self._pool.adopt(slot)
            else:
                (self._claims / sandbox_id).unlink()
        self._pool.sweep()

    def _claimed(self, slot: int) -> Claimed:
        addresses = self._router.addresses
        return Claimed(self._pool.path(slot), str(addresses.address(slot)), str(addresses.resolver))

    def _claim_file(self, sandbox_id: str) -> Path:
        if not _ID.fullmatch(sandbox_id):
            raise InvalidRequestError(f"{sandbox_id!r} is no id of a sandbox")
        return self._claims / sandbox_id

    def _compile(self, rules: Sequence[NetworkRule]) -> Policy:
        try:
            return compile_rules(rules, self._current_node().table)
        except UnsupportedError:
            if not self._fill():
                raise
            return compile_rules(rules, self._current_node().table)

    def _fill(self) -> bool:
        """Fill the table from the node's own settings, once; whether something was new."""
        with self._lock:
            if self._filled:
                return False
            self._filled = True
            from dsec_layers.linux.hostloan import Host
            from dsec_runtime.network import hostservices

            return bool(services.fill(self._table_path, hostservices.find(Host())))

    def _current_node(self) -> NodeNames:
        """What the operator says now. Raises InvalidInputError."""
        with self._lock:
            seen = _state(self._table_path)
            if seen != self._seen:
                node = NodeNames.of(services.read(self._table_path), self._own)
                self._filter.set_node(node)
                self._seen, self._node = seen, node
            return self._node


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ino


def _write_claim(path: Path, slot: int) -> None:
    """Raises StateConflictError when the sandbox is being given a network by another thread."""
    try:
        with path.open("x") as file:
            file.write(str(slot))
    except FileExistsError as error:
        raise StateConflictError(f"sandbox {path.name} is being given a network") from error
