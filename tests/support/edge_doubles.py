"""Doubles for the edge's unit tests: a tier that makes no sandboxes, a clock that is set by hand.

What is real runs in tests/integration/runtime; these only say what the edge asked a tier for, and
fail where a test wants them to.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dsec_layers.linux.procinfo import start_ticks
from dsec_runtime.edge.alone import only_one
from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.pressure import Load
from dsec_runtime.edge.service import Edge
from dsec_runtime.errors import CreationFailedError, InfrastructureError
from dsec_runtime.spec import (
    MIB,
    USUAL_SNAPSHOT,
    Environment,
    SandboxSpec,
    SnapshotOptions,
    Tier,
)
from dsec_runtime.tiers.tier import OomKill, Running, Usage

if TYPE_CHECKING:
    from dsec_runtime.channel import Channel

SPEC = SandboxSpec(environment=Environment(reference="env/demo:v1"))
PLENTY = Load(64 << 30, 0.0)


class HandClock:
    """A clock that stands still until it is told."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def pass_(self, seconds: float) -> None:
        self.now_s += seconds


class TierDouble:
    """A TierDriver whose sandboxes are sleeping processes of the host, and nothing more.

    `fails` names methods that raise; `gate`, when it is set to an Event, holds back `create`.
    """

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.asked: list[tuple[str, str]] = []
        self.fails: set[str] = set()
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.left: list[str] = []
        self.oom_kills = 0

    def create(self, sandbox: str, spec: SandboxSpec) -> Running:
        self.entered.set()
        if self.gate is not None:
            self.gate.wait()
        self._ask("create", sandbox, CreationFailedError)
        return self._begin(sandbox)

    def reattach(self, running: Running) -> bool:
        self._ask("reattach", running.id)
        return start_ticks(running.pid) == running.pid_start

    def destroy(self, sandbox: str) -> None:
        self._ask("destroy", sandbox)
        process = self.processes.pop(sandbox, None)
        if process is not None:
            process.kill()
            process.wait()

    def pause(self, running: Running) -> int:
        self._ask("pause", running.id)
        return 5 * MIB

    def resume(self, running: Running) -> None:
        self._ask("resume", running.id)

    def snapshot(
        self, running: Running, reference: str, options: SnapshotOptions = USUAL_SNAPSHOT
    ) -> str:
        self._ask("snapshot", running.id)
        return f"sha256:{reference}"

    def fork(self, running: Running, sandboxes: Mapping[str, SandboxSpec]) -> list[Running]:
        self._ask("fork", running.id, CreationFailedError)
        return [self._begin(sandbox) for sandbox in reversed(list(sandboxes))]

    def usage(self, running: Running) -> Usage:
        self._ask("usage", running.id)
        return Usage(
            memory_bytes=1,
            swap_bytes=2,
            cpu_s=0.5,
            pids=3,
            disk_bytes=4,
            oom_kills=self.oom_kills,
            throttled_s=0.25,
        )

    def last_oom(self, running: Running) -> OomKill | None:
        return OomKill(process="hog", pid=7, limit_bytes=MIB) if self.oom_kills else None

    def leftovers(self, known: frozenset[str]) -> list[str]:
        return [*self.left, *(each for each in self.processes if each not in known)]

    def root(self, running: Running) -> Path | None:
        return None

    def count(self, what: str) -> int:
        """How often it was asked for this."""
        return sum(each == what for each, _ in self.asked)

    def _ask(
        self, what: str, sandbox: str, error: type[InfrastructureError] = InfrastructureError
    ) -> None:
        self.asked.append((what, sandbox))
        if what in self.fails:
            raise error(f"{what} fails in this test")

    def _begin(self, sandbox: str) -> Running:
        process = self.processes[sandbox] = subprocess.Popen(["sleep", "1000"])
        ticks = start_ticks(process.pid)
        assert ticks is not None
        return Running(
            id=sandbox,
            socket="/nowhere",
            pid=process.pid,
            pid_start=ticks,
            digests=("sha256:a", "sha256:b"),
        )


class ChannelDouble:
    """A channel that is open, and nothing more."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


async def connect_double(_: str) -> Channel:
    """For tests in which nobody speaks to the agent."""
    return cast("Channel", ChannelDouble())


@contextlib.asynccontextmanager
async def edge_over(
    tier: TierDouble, home: Path, clock: HandClock, **settings: object
) -> AsyncIterator[Edge]:
    """A started edge without its face, which sweeps when the test says so; ended afterwards."""
    config = EdgeConfig(home=home, sweep_s=3600.0, **settings)  # type: ignore[arg-type]
    with only_one(config):
        edge = Edge(config, {Tier.CONTAINER: tier}, connect_double, clock)
        edge.admission.measure = lambda: PLENTY
        try:
            await edge.start()
            yield edge
        finally:
            await edge.close()


def end_all(tier: TierDouble) -> None:
    """End the processes of the double."""
    for process in tier.processes.values():
        process.kill()
        process.wait()
