"""What every tier can do; the edge knows nothing else of them.

A tier keeps no state of its own that a restart could lose: `Running` is what it needs to find a
sandbox again, and the edge's journal keeps it. Each method may be called from any thread and is
safe to repeat: a crash between two steps is answered by `destroy` or `reattach`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from dsec_runtime.spec import USUAL_SNAPSHOT, SandboxSpec, SnapshotOptions


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox as the node runs it.

    `socket` is where its agent listens (see docs/formats/guest-protocol.md); `pid` its first
    process, with `pid_start` its start time in clock ticks, so that a pid used again is not it;
    `digests` are its layers, lowest first. `env`, `workdir` and `user` are what a command gets that
    does not say otherwise: what the layers wish, overridden by the specification. `own` is the
    tier's own.
    """

    id: str
    socket: str
    pid: int
    pid_start: int
    digests: tuple[str, ...]
    env: Mapping[str, str] = {}
    workdir: str = "/"
    user: str | None = None
    own: Mapping[str, str] = {}


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox uses now, and what its limits have stopped so far."""

    memory_bytes: int
    swap_bytes: int
    cpu_s: float
    pids: int
    disk_bytes: int
    oom_kills: int
    throttled_s: float


class OomKill(msgspec.Struct, frozen=True, kw_only=True):
    """A process that the kernel killed when the sandbox reached its limit; `pid` is the node's."""

    process: str
    pid: int
    limit_bytes: int


class TierDriver(Protocol):
    """One isolation tier on this node. All methods block; errors are `errors.SandboxError`s."""

    def create(self, sandbox: str, spec: SandboxSpec) -> Running:
        """Mount, limit and boot the sandbox of this id; on error nothing of it is left."""

    def reattach(self, running: Running) -> bool:
        """Whether the sandbox still runs; called once for each after a restart."""

    def destroy(self, sandbox: str) -> None:
        """End it and remove all that it has, also when only half of it was made."""

    def pause(self, running: Running) -> int:
        """Freeze it and give its memory back; how many bytes that gave. Resumed when it fails."""

    def resume(self, running: Running) -> None:
        """Let it go on, with its memory fetched ahead."""

    def snapshot(
        self, running: Running, reference: str, options: SnapshotOptions = USUAL_SNAPSHOT
    ) -> str:
        """Commit what it wrote as a layer under `reference`; the layer's digest."""

    def fork(self, running: Running, sandboxes: Mapping[str, SandboxSpec]) -> list[Running]:
        """New sandboxes, by id, that begin with its files as they are now."""

    def usage(self, running: Running) -> Usage:
        """What it uses; cheap enough for a poll of thousands."""

    def last_oom(self, running: Running) -> OomKill | None:
        """The last process that was killed for want of memory, where the node can tell."""

    def leftovers(self, known: frozenset[str]) -> list[str]:
        """Ids of sandboxes of which something is left on this node and that are not `known`."""

    def root(self, running: Running) -> Path | None:
        """Its root file system as the node sees it, where the tier has one."""
