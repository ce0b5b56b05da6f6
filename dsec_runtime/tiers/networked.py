"""A tier whose sandboxes have a network: made before they boot, and gone after their end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from dsec_runtime.errors import SandboxError
from dsec_runtime.network.network import Network
from dsec_runtime.spec import USUAL_SNAPSHOT, SandboxSpec, SnapshotOptions
from dsec_runtime.tiers.tier import OomKill, Running, TierDriver, Usage


class NetworkedTier:
    """See TierDriver. `tier` finds each sandbox's network by `claim`, and this one releases it."""

    def __init__(self, tier: TierDriver, network: Network) -> None:
        self._tier, self._network = tier, network

    def create(self, sandbox: str, spec: SandboxSpec) -> Running:
        """See TierDriver."""
        with self._released([sandbox]):
            return self._tier.create(sandbox, spec)

    def reattach(self, running: Running) -> bool:
        """See TierDriver. One that has lost its network is of no use."""
        return self._network.claimed(running.id) is not None and self._tier.reattach(running)

    def destroy(self, sandbox: str) -> None:
        """See TierDriver."""
        self._tier.destroy(sandbox)
        self._network.release(sandbox)

    def pause(self, running: Running) -> int:
        """See TierDriver."""
        return self._tier.pause(running)

    def resume(self, running: Running) -> None:
        """See TierDriver."""
        self._tier.resume(running)

    def snapshot(
        self, running: Running, reference: str, options: SnapshotOptions = USUAL_SNAPSHOT
    ) -> str:
        """See TierDriver."""
        return self._tier.snapshot(running, reference, options)

    def fork(self, running: Running, sandboxes: Mapping[str, SandboxSpec]) -> list[Running]:
        """See TierDriver."""
        with self._released(sandboxes):
            return self._tier.fork(running, sandboxes)

    def usage(self, running: Running) -> Usage:
        """See TierDriver."""
        return self._tier.usage(running)

    def last_oom(self, running: Running) -> OomKill | None:
        """See TierDriver."""
        return self._tier.last_oom(running)

    def leftovers(self, known: frozenset[str]) -> list[str]:
        """See TierDriver."""
        return sorted({*self._tier.leftovers(known), *self._network.leftovers(known)})

    def root(self, running: Running) -> Path | None:
        """See TierDriver."""
        return self._tier.root(running)

    @contextlib.contextmanager
    def _released(self, sandboxes: Mapping[str, SandboxSpec] | list[str]) -> Iterator[None]:
        """On an error no network of these sandboxes is left."""
        try:
            yield
        except BaseException:
            for sandbox in sandboxes:
                with contextlib.suppress(SandboxError):  # told by `leftovers`, and tried again
                    self._network.release(sandbox)
            raise


def find_network(network: Network, sandbox: str, spec: SandboxSpec) -> Path:
    """The namespace for a sandbox of a tier, under the rules of its specification."""
    return network.claim(sandbox, spec.network).netns
