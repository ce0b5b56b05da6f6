"""Services in a sandbox, reached from outside."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Final

import httpx
import websockets
from websockets.asyncio.client import ClientConnection

from dsec_runtime.errors import SandboxError
from dsec_runtime.sdk.transport import Transport, data_of

_PART: Final = 256 << 10


class Ports:
    """TCP ports of a sandbox, on its loopback device."""

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = path

    async def forward(self, port: int, *, local_port: int = 0, host: str = "127.0.0.1") -> Forward:
        """Listen here and carry connections to `port` inside; 0 takes a free local port."""
        made = Forward(self._transport, f"{self._path}/ports/{port}")
        await made.listen(host, local_port)
        return made

    def http(self, port: int, *, timeout: float | None = 60.0) -> httpx.AsyncClient:
        """A client whose requests go to the HTTP service on `port` inside; close it yourself."""
        return self._transport.client_below(f"{self._path}/http/{port}", timeout)


class Forward:
    """A local port; it is closed at the end of its `async with`, and its connections with it."""

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = path
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self.host = ""
        self.port = 0
        self.error: SandboxError | None = None  # of the last connection that could not be carried

    async def __aenter__(self) -> Forward:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def listen(self, host: str, port: int) -> None:
        """Begin. Raises OSError when the port is taken."""
        self._server = await asyncio.start_server(self._accept, host, port)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        """Listen no more, and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            async with await self._transport.open_socket(self._path) as socket:
                await _carry(reader, writer, socket)
        except SandboxError as error:
            self.error = error
        except (OSError, websockets.ConnectionClosed):
            pass  # either side has gone, and the other is told by the end
        finally:
            self._carrying.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: ClientConnection
) -> None:
    """Bytes both ways; an empty message is the end of one direction."""

    async def inwards() -> None:
        while part := await reader.read(_PART):
            await socket.send(part)
        await socket.send(b"")

    sending = asyncio.create_task(inwards())
    try:
        async for message in socket:
            data = data_of(message)
            if not data:
                writer.write_eof()
                break
            writer.write(data)
            await writer.drain()
        await sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
