"""Calls of the tiers from the loop: in threads, and carried to their end whoever stops waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from dsec_layers.errors import DsecError
from dsec_runtime.errors import (
    InfrastructureError,
    InvalidRequestError,
    SandboxError,
    UnsupportedError,
)
from dsec_runtime.spec import Tier
from dsec_runtime.tiers.tier import TierDriver

P = ParamSpec("P")
T = TypeVar("T")


class Driving:
    """The tiers of the node, and threads to call them in."""

    def __init__(self, tiers: Mapping[Tier, TierDriver], threads: int) -> None:
        self.tiers = dict(tiers)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tier")
        self._tasks: set[asyncio.Task[object]] = set()

    def tier(self, tier: Tier) -> TierDriver:
        """Its driver. Raises UnsupportedError, and InvalidRequestError for that of tasks."""
        try:
            return self.tiers[tier]
        except KeyError:
            if tier is Tier.FNCALL:
                raise InvalidRequestError(
                    "a task has no sandbox of its own", hint="POST /v1/fncall runs one"
                ) from None
            raise UnsupportedError(
                f"this edge has no {tier.value} tier", hint="`dsec doctor` tells what a node can do"
            ) from None

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread. Raises what it raises, always as a SandboxError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))
        except SandboxError:
            raise
        except DsecError as error:
            raise InfrastructureError(error.message, hint=error.hint) from error
        except OSError as error:
            raise InfrastructureError(str(error)) from error

    async def finish(self, work: Coroutine[object, object, T]) -> T:
        """Await `work`, which goes on to its end when the caller is cancelled."""
        return await asyncio.shield(self.spawn(work))

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start `work`; what it raises is for whoever awaits it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    async def settled(self) -> None:
        """Wait for all that was started."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        """End the threads, when they are idle."""
        self._threads.shutdown(wait=False)

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: whoever cares has awaited it
