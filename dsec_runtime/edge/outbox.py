"""What a command writes, gathered into frames while the client is slow, with a bound.

Small answers become one piece: the first is held back for a moment, because most commands end
within it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from dsec_runtime import alive, wire
from dsec_runtime.errors import SandboxError
from dsec_runtime.spec import ExecEnd, Problem

if TYPE_CHECKING:
    from dsec_runtime.channel import Process

_LINGER_S: Final = 0.004
_BOUND_BYTES: Final = 1 << 20
_NOTHING: Final = wire.frame(wire.Kind.STDOUT)  # no byte of output: the connection lives
_KINDS: Final = {"stdout": wire.Kind.STDOUT, "stderr": wire.Kind.STDERR}


class Outbox:
    """Reads `process` to its end; `judge` has the last word on how it ended, or `explain`."""

    def __init__(
        self,
        process: Process,
        judge: Callable[[Process], Awaitable[ExecEnd]],
        explain: Callable[[SandboxError], Awaitable[SandboxError]],
    ) -> None:
        self._process = process
        self._judge = judge
        self._explain = explain
        self._parts: list[bytes] = []  # joined once, however many there are
        self._size = 0
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._over = False
        self._lingering = False

    async def pieces(self) -> AsyncGenerator[tuple[bytes, bool]]:
        """Whole frames, one or more at a time, and whether they are the last.

        While nothing is written there is an empty one now and then.
        When it is left early the command goes on.
        """
        gathering = asyncio.create_task(self._gather())
        try:
            while True:
                if not await self._came():
                    yield _NOTHING, False
                    continue
                self._ready.clear()
                over, parts = self._over, self._parts
                self._parts, self._size = [], 0
                self._room.set()
                if parts or over:
                    yield b"".join(parts), over
                if over:
                    return
        finally:
            gathering.cancel()

    async def _came(self) -> bool:
        """Wait until there is something to say, or for so long that this is to be said."""
        try:
            async with asyncio.timeout(alive.KEEPALIVE_S):
                await self._ready.wait()
        except TimeoutError:
            return False
        return True

    async def _gather(self) -> None:
        try:
            async for stream, offset, data in self._process:
                self._parts += (wire.head(_KINDS[stream], len(data), offset), data)
                await self._grown(len(data))
            end = await self._judge(self._process)
            self._parts.append(wire.frame(wire.Kind.END, msgspec.json.encode(end)))
        except SandboxError as found:
            error = await self._explain(found)
            problem = Problem(
                code=error.code, message=error.message, hint=error.hint, detail=error.detail
            )
            self._parts.append(wire.frame(wire.Kind.PROBLEM, msgspec.json.encode(problem)))
        self._over = True
        self._ready.set()

    async def _grown(self, size: int) -> None:
        self._size += size
        if self._lingering:
            self._ready.set()
        else:
            self._lingering = True
            asyncio.get_running_loop().call_later(_LINGER_S, self._ready.set)
        if self._size >= _BOUND_BYTES:
            self._ready.set()
            self._room.clear()
            await self._room.wait()
