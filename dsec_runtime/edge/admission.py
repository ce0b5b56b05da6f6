"""Whether the node takes one more sandbox now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.metrics import Metrics
from dsec_runtime.edge.pressure import Load, load
from dsec_runtime.errors import OverloadedError


class Admission:
    """So many creations at a time, so many that wait, and none when memory is short."""

    def __init__(
        self, config: EdgeConfig, metrics: Metrics, measure: Callable[[], Load] = load
    ) -> None:
        self._config = config
        self._metrics = metrics
        self.measure = measure
        self._turns = asyncio.Semaphore(config.creations)
        self.creating = 0  # also those that wait
        self.draining = False

    @contextlib.asynccontextmanager
    async def turn(self, count: int = 1) -> AsyncIterator[None]:
        """Wait for a place among the creations, and hold it."""
        self.creating += count
        try:
            async with self._turns:
                yield
        finally:
            self.creating -= count

    def check(self, live: int, count: int = 1) -> None:
        """Whether the node takes `count` beside `live` sandboxes. Raises OverloadedError."""
        config = self._config
        if self.draining:
            self._refuse("draining", "the edge is about to end", 5.0)
        if live + count > config.max_sandboxes:
            limit = config.max_sandboxes
            self._refuse("sandboxes", f"the node has its {limit} sandboxes", 10.0)
        if self.creating + count > config.creations + config.waiting:
            self._refuse("queue", f"{self.creating} creations wait already", 2.0)
        now = self.measure()
        if now.available_bytes < config.reserve_bytes:
            free = now.available_bytes >> 20
            self._refuse("memory", f"the node has {free} MiB of memory left", 5.0)
        if now.memory_pressure > config.max_pressure:
            share = f"{now.memory_pressure:.0f} %"
            self._refuse("pressure", f"the node waited for memory {share} of the time", 10.0)

    @property
    def is_short(self) -> bool:
        """Whether memory is so short that nothing is created."""
        now = self.measure()
        return (
            now.available_bytes < self._config.reserve_bytes
            or now.memory_pressure > self._config.max_pressure
        )

    def _refuse(self, why: str, message: str, retry_after_s: float) -> None:
        self._metrics.refused.labels(why).inc()
        raise OverloadedError(
            message,
            hint=f"try again in {retry_after_s:g} s, or elsewhere",
            detail={"retry_after_s": retry_after_s, "why": why},
        )
