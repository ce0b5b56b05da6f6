"""A command that runs in a sandbox: its output, its input, its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final

import websockets
from websockets.asyncio.client import ClientConnection

from dsec_runtime import wire
from dsec_runtime.errors import EdgeUnreachableError
from dsec_runtime.sdk.output import STDOUT, Output, Position
from dsec_runtime.sdk.results import ExecResult, finished
from dsec_runtime.sdk.transport import Transport, data_of
from dsec_runtime.spec import ExecEnd, ExecInfo, ExecSpec

_PART: Final = 256 << 10


class Process:
    """Made by `Sandbox.start` and `Sandbox.attach`; leaving its `async with` leaves it running.

    A connection that breaks is made again, and output goes on at the offset where it was. All
    methods raise SandboxErrors.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        info: ExecInfo,
        position: Position,
    ) -> None:
        self.id = info.id
        self.spec = ExecSpec(argv=info.argv or (info.id,))
        self._transport = transport
        self._path = f"{path}/execs/{info.id}"
        self._position = position
        self._socket: ClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._parser = wire.Parser()

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.detach()

    async def __aiter__(self) -> AsyncIterator[Output]:
        """Output as it comes, until the command has ended."""
        while self._position.end is None:
            message = await self._receive()
            for frame in self._parser.feed(message):
                piece = self._position.take(frame)
                if piece is not None:
                    yield piece
        await self.detach()

    async def wait(self) -> ExecEnd:
        """Read the rest of its output to nowhere; how it ended."""
        async for _ in self:
            pass
        assert self._position.end is not None
        return self._position.end

    async def collect(self) -> ExecResult:
        """All output that has not been read yet, and how it ended."""
        kept = {"stdout": bytearray(), "stderr": bytearray()}
        async for piece in self:
            kept[piece.stream] += piece.data
        assert self._position.end is not None
        return finished(
            self.id, self.spec, self._position.end, bytes(kept["stdout"]), bytes(kept["stderr"])
        )

    @property
    def end(self) -> ExecEnd | None:
        """How it ended; None until its output has been read to the end."""
        return self._position.end

    @property
    def offsets(self) -> tuple[int, int]:
        """How much of standard output and error has been read: where to attach later."""
        at = self._position.query
        return at[STDOUT], at["stderr"]

    async def write(self, data: bytes | str) -> None:
        """Give it input. It must have been started with `stdin=True` or a terminal."""
        raw = memoryview(data.encode() if isinstance(data, str) else data)
        for at in range(0, len(raw), _PART):
            await self._send(wire.frame(wire.Kind.STDIN, raw[at : at + _PART]))

    async def close_stdin(self) -> None:
        """End its input."""
        await self._send(wire.frame(wire.Kind.CLOSE_STDIN))

    async def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal."""
        await self._send(wire.frame(wire.Kind.RESIZE, wire.size_payload(rows, columns)))

    async def signal(self, number: int) -> None:
        """Send a signal to its first process."""
        await self._send(wire.frame(wire.Kind.SIGNAL, offset=number))

    async def kill(self) -> None:
        """Kill it and all that it started."""
        await self._transport.call("DELETE", self._path, type(None))

    async def detach(self) -> None:
        """Close the connection; the command goes on."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _receive(self) -> bytes:
        while True:
            socket = await self._connected()
            try:
                message = await socket.recv()
            except websockets.ConnectionClosed:
                await self._dropped(socket)
                continue
            return data_of(message)

    async def _send(self, frame: bytes) -> None:
        """Input is sent once: what was under way when a connection broke may be lost."""
        socket = await self._connected()
        try:
            await socket.send(frame)
        except websockets.ConnectionClosed as error:
            await self._dropped(socket)
            raise EdgeUnreachableError("the connection broke; input may be lost") from error

    async def _connected(self) -> ClientConnection:
        async with self._connecting:
            if self._socket is None:
                self._parser = wire.Parser()
                self._socket = await self._transport.again(self._open)
            return self._socket

    async def _open(self) -> ClientConnection:
        return await self._transport.open_socket(
            f"{self._path}/stream", params=self._position.query
        )

    async def _dropped(self, socket: ClientConnection) -> None:
        if self._socket is socket:
            self._socket = None
        with contextlib.suppress(websockets.WebSocketException):
            await socket.close()
