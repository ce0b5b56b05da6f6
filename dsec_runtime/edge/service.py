"""The edge without its face: everything that a request needs, put together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from dsec_runtime.edge.admission import Admission
from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.creating import Creating
from dsec_runtime.edge.driving import Driving
from dsec_runtime.edge.events import Events
from dsec_runtime.edge.eviction import Eviction
from dsec_runtime.edge.execs import Execs
from dsec_runtime.edge.fncalls import Fncalls, TaskMakers
from dsec_runtime.edge.journal import Journal
from dsec_runtime.edge.life import Connect, Life
from dsec_runtime.edge.metrics import Metrics
from dsec_runtime.edge.network import Networks
from dsec_runtime.edge.pressure import lately
from dsec_runtime.edge.recovery import recover
from dsec_runtime.edge.sandboxes import Clock, Sandboxes
from dsec_runtime.edge.sweep import Sweep
from dsec_runtime.network.network import Network
from dsec_runtime.spec import Tier
from dsec_runtime.tiers.tier import TierDriver


class Edge:
    """One edge over its home, which must be its own; between `start` and `close` it may be used."""

    def __init__(
        self,
        config: EdgeConfig,
        tiers: Mapping[Tier, TierDriver],
        connect: Connect,
        clock: Clock = time.time,
        network: Network | None = None,
        fncall: TaskMakers | None = None,
    ) -> None:
        self.config = config
        (config.state / "events").mkdir(mode=0o700, parents=True, exist_ok=True)
        self.started_s = clock()
        self.metrics = Metrics()
        self.events = Events(config.state / "events")
        self._journal = Journal(config.state / "journal.sqlite")
        self.sandboxes = Sandboxes(config, self._journal, self.events, self.metrics, clock)
        self.driving = Driving(tiers, threads=config.creations + 4)
        self.life = Life(self.sandboxes, self.driving, connect)
        self.admission = Admission(config, self.metrics, lately())
        self.networks = Networks(network, self.driving)
        self.creating = Creating(self.sandboxes, self.life, self.admission, self.networks)
        self.execs = Execs(self.sandboxes, self.life)
        self.fncalls: Fncalls | None = None
        if fncall is not None:
            self.fncalls = Fncalls(
                config, fncall, self.driving, self.admission, self.sandboxes, self.metrics
            )
        self.eviction = Eviction(self.sandboxes, self.life, self.admission)
        self.sweep = Sweep(self.sandboxes, self.life, self.eviction)
        self.ending = asyncio.Event()  # streams close themselves
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> Mapping[str, int]:
        """Find what a former edge has left, and begin to sweep; what was found."""
        found = await recover(self.sandboxes, self.life, self.networks)
        self._sweeping = asyncio.create_task(self.sweep.run())
        return found

    def drain(self) -> None:
        """Begin nothing new, and end what would go on for ever."""
        self.admission.draining = True
        self.ending.set()

    async def close(self) -> None:
        """Let what was begun come to its end. Sandboxes go on, for the next edge."""
        self.drain()
        if self._sweeping is not None:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping
        if self.fncalls is not None:
            await self.fncalls.close()
        await self.driving.settled()
        self.life.close()
        self.driving.close()
        self.events.flush()
        self._journal.close()
