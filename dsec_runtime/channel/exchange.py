"""A request that goes on with data, in one direction or both."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from dsec_runtime.channel import frames, replies
from dsec_runtime.channel.flow import Outflow
from dsec_runtime.channel.frames import Fields, Frame, Type
from dsec_runtime.errors import InfrastructureError, RequestTimeoutError, SandboxError

if TYPE_CHECKING:
    from dsec_runtime.channel.link import Link

_ACK_BYTES: Final = frames.WINDOW // 4


class Exchange:
    """A context manager: leaving it ends what the agent still does for it."""

    def __init__(self, link: Link, kind: Type, request: bytes, path: str | None) -> None:
        self._link = link
        self._path = path
        self._number = link.open(self)
        self._open = True
        self._output = Outflow(frames.WINDOW)
        self._output.begin(link, self._number, 0)
        self._pieces: collections.deque[bytes] = collections.deque()
        self._changed = asyncio.Event()
        self._accepted = asyncio.Event()
        self._no_more = False
        self._taken: int | None = None  # offset after what the reader has
        self._acked = 0
        self._reply: Fields = {}
        self._end: Fields | None = None
        self._error: SandboxError | None = None
        link.send(frames.encode(kind, self._number, request))

    # what the link calls

    def received(self, frame: Frame) -> None:
        """A frame of its channel."""
        match frame.type:
            case Type.DATA:
                if self._taken is None:
                    self._taken = self._acked = frame.offset
                self._pieces.append(frame.payload)
            case Type.ACK:
                self._output.acknowledge(frame.offset)
            case Type.REPLY:
                self._reply = frames.fields_of(frame.payload)
                self._accepted.set()
            case Type.EOF:
                self._no_more = True
            case Type.END:
                self._end = frames.fields_of(frame.payload)
                self._finish()
            case Type.ERROR:
                found = frames.fields_of(frame.payload)
                self._error = replies.error_of(found, path=self._path)
                self._finish()
            case Type.CLOSED if self._end is None and self._error is None:
                self._error = InfrastructureError("the agent's helper for this request died")
                self._finish()
        self._changed.set()

    def lost(self) -> None:
        """The link is gone."""
        if self._end is None and self._error is None:
            self._error = RequestTimeoutError(
                "the connection to the sandbox broke; the request may have been carried out"
            )
        self._finish()

    def _finish(self) -> None:
        self._no_more = True
        self._output.stop()
        self._accepted.set()
        self._changed.set()

    # what the caller calls

    async def accepted(self) -> Fields:
        """Wait until the agent has begun; what it says of it. Raises what it refuses with."""
        await self._accepted.wait()
        if self._error is not None:
            raise self._error
        return self._reply

    async def read(self) -> bytes:
        """The next bytes, none at the end. Raises the error with which it ended."""
        while not self._pieces:
            if self._no_more:
                if self._error is not None:
                    raise self._error
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = self._pieces.popleft()
        assert self._taken is not None
        self._taken += len(data)
        if self._taken - self._acked >= _ACK_BYTES and not self._no_more:
            self._acked = self._taken
            payload = frames.encode_offset(self._taken)
            self._link.send(frames.encode(Type.ACK, self._number, payload))
        return data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def write(self, data: bytes | memoryview) -> None:
        """Returns when it is on its way. Raises the error with which the exchange has ended."""
        await self._output.write(data)
        if self._error is not None:
            raise self._error

    def write_end(self) -> None:
        """Nothing follows."""
        self._output.close()

    async def ended(self) -> Fields:
        """Wait for the end; what the agent says of it. Data that comes meanwhile is kept."""
        while self._end is None:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()
        return self._end

    def close(self) -> None:
        """End it, also when it is not done."""
        if self._open:
            self._open = False
            self._link.forget(self._number)
            self._link.send(frames.encode(Type.CLOSE, self._number))
            self._finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
