"""A connection to a port of a sandbox, as httpcore wants its streams."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpcore

from dsec_runtime.errors import SandboxError

if TYPE_CHECKING:
    from dsec_runtime.channel.exchange import Exchange


class Tunnel(httpcore.AsyncNetworkStream):
    """Made over an exchange that `Channel.dial` has opened."""

    def __init__(self, connection: Exchange) -> None:
        self._connection = connection
        self._pieces = aiter(connection)
        self._rest = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, at most so many bytes; nothing is the end."""
        if not self._rest:
            try:
                async with asyncio.timeout(timeout):
                    self._rest = await anext(self._pieces, b"")
            except TimeoutError as error:
                raise httpcore.ReadTimeout(str(error)) from error
            except SandboxError as error:
                raise httpcore.ReadError(error.message) from error
        found, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        try:
            async with asyncio.timeout(timeout):
                await self._connection.write(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except SandboxError as error:
            raise httpcore.WriteError(error.message) from error

    async def aclose(self) -> None:
        """Close it."""
        self._connection.close()

    def get_extra_info(self, info: str) -> Any:
        """Nothing is known."""
        return None
