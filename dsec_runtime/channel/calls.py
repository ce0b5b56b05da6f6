"""A request with one answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from dsec_runtime.channel import frames
from dsec_runtime.channel.frames import Frame, Type

if TYPE_CHECKING:
    from dsec_runtime.channel.link import Link

_ANSWERS: Final = (Type.REPLY, Type.END, Type.ERROR, Type.PONG)


class Call:
    """Sent when it is made."""

    def __init__(self, link: Link, kind: Type, request: bytes) -> None:
        self._link = link
        self._number = link.open(self)
        self._answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        link.send(frames.encode(kind, self._number, request))

    async def answer(self) -> Frame:
        """The frame that answers, an ERROR too. Raises ConnectionError without the link."""
        try:
            return await self._answer
        finally:
            if not self._answer.done() or self._answer.cancelled():
                self._link.send(frames.encode(Type.CLOSE, self._number))
            self._link.forget(self._number)

    def received(self, frame: Frame) -> None:
        """A frame of its channel."""
        if not self._answer.done() and frame.type in _ANSWERS:
            self._answer.set_result(frame)

    def lost(self) -> None:
        """The link is gone."""
        if not self._answer.done():
            self._answer.set_exception(ConnectionError("the connection broke"))
