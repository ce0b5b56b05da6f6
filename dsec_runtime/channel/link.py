"""One connection to an agent: frames out, and frames in to whoever has their channel."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, cast

from dsec_runtime.channel import frames
from dsec_runtime.channel.frames import Decoder, Frame, Tag, Type, Value
from dsec_runtime.errors import EdgeUnreachableError

_CONNECT_S: Final = 30.0  # a crowded node may take long to let the agent run
_SCRATCH_BYTES: Final = 512 << 10


class Receiver(Protocol):
    """Who has a channel."""

    def received(self, frame: Frame) -> None:
        """A frame of the channel. May raise MalformedError, which ends the link."""

    def lost(self) -> None:
        """The link is gone; nothing more comes."""


class _Scratch(threading.local):
    """What all links of a thread read into, one after the other: they keep partial frames only."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_SCRATCH_BYTES))


_scratch: Final = _Scratch()


class Link(asyncio.BufferedProtocol):
    """Made by `connect`; `on_lost` is called once, however it ended, after the receivers'."""

    def __init__(self, on_lost: Callable[[Link], None]) -> None:
        self._on_lost = on_lost
        self._nonce = os.urandom(16)
        self._decoder = Decoder(self._nonce)
        self._receivers: dict[int, Receiver] = {}
        self._numbers = itertools.count(1)
        self._greeted: asyncio.Future[frames.Fields] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.lost = asyncio.Event()
        self.instance = b""
        self.features = 0

    @classmethod
    async def connect(cls, path: str | Path, on_lost: Callable[[Link], None]) -> Link:
        """Connect and greet. Raises EdgeUnreachableError when nothing that we know answers."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                loop = asyncio.get_running_loop()
                _, link = await loop.create_unix_connection(lambda: cls(on_lost), str(path))
                try:
                    await link._greet()
                except BaseException:
                    link.close()
                    raise
        except (OSError, TimeoutError, ConnectionError) as error:
            raise EdgeUnreachableError(
                f"the agent of the sandbox does not answer: {error or 'no greeting'}"
            ) from error
        return link

    async def _greet(self) -> None:
        fields: list[tuple[int, Value]] = [(Tag.NONCE, self._nonce), (Tag.VERSION, frames.VERSION)]
        self.send(frames.encode(Type.HELLO, payload=frames.encode_fields(fields)))
        answer = await self._greeted
        self.instance = answer.get(Tag.INSTANCE, b"") or b"?"
        self.features = frames.number(answer, Tag.FEATURES)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it

    def get_buffer(self, sizehint: int) -> memoryview:
        """Asyncio fills it and calls buffer_updated before anything else may run."""
        return _scratch.view

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        try:
            for frame in self._decoder.feed(_scratch.view[:nbytes]):
                self._dispatch(frame)
        except frames.MalformedError:
            self.close()
            self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio has lost it, or it was closed."""
        if self.lost.is_set():
            return
        self.lost.set()
        self._may_write.set()
        if not self._greeted.done():
            self._greeted.set_exception(ConnectionError("the connection ended"))
            self._greeted.exception()  # seen, also when nobody waits any more
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.lost()
        if self.instance:
            self._on_lost(self)

    def pause_writing(self) -> None:
        """The socket takes no more now."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._may_write.set()

    def _dispatch(self, frame: Frame) -> None:
        if frame.type == Type.HELLO and not self._greeted.done():
            self._greeted.set_result(frames.fields_of(frame.payload))
        elif receiver := self._receivers.get(frame.channel):
            if frame.type == Type.CLOSED:
                del self._receivers[frame.channel]
            receiver.received(frame)

    # our side

    def open(self, receiver: Receiver) -> int:
        """A channel number; frames that come on it go to `receiver` until `forget`."""
        number = next(self._numbers) & 0xFFFFFFFF
        self._receivers[number] = receiver
        return number

    def forget(self, channel: int) -> None:
        """Nothing more is expected on it."""
        self._receivers.pop(channel, None)

    def send(self, data: bytes) -> None:
        """Send whole frames; when the link is lost they are, too."""
        if self._transport is not None and not self.lost.is_set():
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the socket takes more, or is lost."""
        await self._may_write.wait()

    def close(self) -> None:
        """End it; receivers are told when asyncio has."""
        if self._transport is not None:
            self._transport.abort()
