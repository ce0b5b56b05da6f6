"""Bytes on their way to an agent: how far they may be ahead, and what to send again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from dsec_runtime.channel import frames
from dsec_runtime.channel.frames import Type

if TYPE_CHECKING:
    from dsec_runtime.channel.link import Link

_PART: Final = frames.MAX_DATA


class Outflow:
    """What has been written and is not acknowledged is kept, for a link that comes later."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._kept = bytearray()
        self._acked = 0  # offset at which `_kept` begins
        self._link: Link | None = None
        self._number = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._over = False

    def begin(self, link: Link, number: int, taken: int) -> None:
        """Go on over this link with what follows `taken`, all that the agent has."""
        self._link, self._number = link, number
        if taken > self._acked + len(self._kept):  # what others wrote before us
            self._kept.clear()
            self._acked = taken
        # It stays kept until it is acknowledged: what the agent has it may not have passed on.
        skip = max(0, taken - self._acked)
        self._send(self._acked + skip, bytes(self._kept[skip:]))
        if self._closed:
            self._send_end()

    @property
    def acknowledged(self) -> int:
        """The offset up to which the agent has it."""
        return self._acked

    def suspend(self) -> None:
        """The link is gone."""
        self._link = None

    def acknowledge(self, offset: int) -> None:
        """The agent has passed on everything before the offset."""
        if offset > self._acked + len(self._kept):
            raise frames.MalformedError("an acknowledgement of what was never sent")
        if offset < self._acked:  # what others wrote before us, on its way to the command
            return
        del self._kept[: offset - self._acked]
        self._acked = offset
        self._changed.set()

    def stop(self) -> None:
        """Nobody reads it any more: what is written from now on is dropped."""
        self._over = True
        self._kept.clear()
        self._changed.set()

    async def write(self, data: bytes | memoryview) -> None:
        """Returns when the agent or this window has taken all of it."""
        view = memoryview(data)
        while view and not self._over:
            room = self._window - len(self._kept)
            if room <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            part = bytes(view[: min(room, _PART)])
            view = view[len(part) :]
            self._send(self._acked + len(self._kept), part)
            self._kept += part
            if self._link is not None:
                await self._link.drained()

    async def flushed(self) -> None:
        """Wait until everything is acknowledged."""
        while self._kept and not self._over:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Nothing follows."""
        if not self._closed:
            self._closed = True
            self._send_end()

    def _send(self, offset: int, data: bytes) -> None:
        if self._link is None:
            return
        for at in range(0, len(data), _PART):
            part = data[at : at + _PART]
            self._link.send(frames.encode_data(self._number, offset + at, part))

    def _send_end(self) -> None:
        if self._link is not None:
            self._link.send(frames.encode(Type.EOF, self._number))
