"""Requests to the edge: errors become exceptions, lost replies are asked for again."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import httpx
import msgspec
import websockets
from websockets.asyncio.client import ClientConnection, connect, unix_connect

from dsec_runtime import wire
from dsec_runtime.errors import (
    EdgeUnreachableError,
    InfrastructureError,
    RequestTimeoutError,
    SandboxError,
    from_code,
)
from dsec_runtime.messages import JSON, KEY_HEADER, OWNER_HEADER
from dsec_runtime.sdk.address import Address
from dsec_runtime.sdk.http1 import BrokenError, Content, Http, Params, Response, query
from dsec_runtime.spec import Problem

T = TypeVar("T")
_SAFE: Final = frozenset({"GET", "PUT", "DELETE", "PATCH"})
DEADLINE_S: Final = 600.0  # for what answers when it is done, however long that takes
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_encode = msgspec.json.encode


class Transport:
    """Connections to one edge. `patience_s` is how long one that is away is waited for."""

    def __init__(
        self,
        address: Address,
        *,
        token: str | None = None,
        owner: str | None = None,
        patience_s: float = 10.0,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self.patience_s = patience_s
        self._tls = None if address.socket else verify or ssl.create_default_context()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        if owner:
            self._headers[OWNER_HEADER] = owner
        self._http = Http(address, self._headers, self._tls)

    async def close(self) -> None:
        """Close all connections that are not in use."""
        self._http.close()
        await asyncio.sleep(0)  # they close in the next round of the loop

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: object = None,
        *,
        params: Params | None = None,
        key: str | None = None,
        again: bool = False,
        timeout: float = DEADLINE_S,
    ) -> T:
        """Ask, and decode the answer. Raises SandboxError.

        When the reply is lost it is asked again, if the method, a key or `again` makes that safe.
        """
        headers = {"Content-Type": JSON} if body is not None else {}
        if key is not None:
            headers[KEY_HEADER] = key
        content = None if body is None else _encode(body)
        safe = again or method in _SAFE or key is not None

        async def ask() -> T:
            async with self._http.request(
                method, path, params=params, content=content, headers=headers
            ) as response:
                said = await response.read()
            raise_for(response.status, said)
            return None if answer is type(None) else msgspec.json.decode(said, type=answer)

        try:
            async with asyncio.timeout(timeout):
                return await (self.again(ask) if safe else self._once(ask))
        except TimeoutError as error:
            raise RequestTimeoutError(f"no answer within {timeout:g} s") from error

    async def again(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Do `ask`, and do it again while the edge is away. Raises EdgeUnreachableError."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await self._once(ask)
            except EdgeUnreachableError:
                if loop.time() + pause > give_up:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _once(self, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await ask()
        except OSError as error:
            raise self.unreachable(error) from error

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        content: Content | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
    ) -> AsyncIterator[Response]:
        """An answer to be read piece by piece; one that is silent for `silence_s` is cut off.

        Raises SandboxError, EdgeUnreachableError.
        """
        try:
            async with self._http.request(
                method, path, params=params, content=content, headers=headers, silence_s=silence_s
            ) as response:
                if response.status >= 400:
                    raise_for(response.status, await response.read())
                yield response
        except BrokenError as error:
            raise self.unreachable(error) from error

    def client_below(self, path: str, timeout: float | None) -> httpx.AsyncClient:
        """A client of its own for what the edge serves below a path."""
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=self.address.socket,
                verify=self._tls or False,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            ),
            base_url=self.address.base + path,
            headers=self._headers,
            timeout=timeout,
        )

    async def open_socket(
        self,
        path: str,
        *,
        params: Params | None = None,
        most_bytes: int = wire.MAX_PAYLOAD_BYTES + (1 << 20),
    ) -> ClientConnection:
        """A WebSocket, whose messages have at most so many bytes. Raises EdgeUnreachableError."""
        uri = self.address.base.replace("http", "ws", 1) + path + query(params)
        options: dict[str, Any] = {
            "additional_headers": self._headers,
            "compression": None,
            "max_size": most_bytes,
            "max_queue": 8,
            "ping_interval": 20,
            "ping_timeout": 20,
            "user_agent_header": None,
        }
        try:
            if self.address.socket:
                return await unix_connect(self.address.socket, uri, **options)
            return await connect(uri, ssl=self._tls, **options)
        except (OSError, websockets.WebSocketException) as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> EdgeUnreachableError:
        """The error for an edge that does not answer."""
        said = str(error) or type(error).__name__
        return EdgeUnreachableError(
            f"no edge answers at {self.address}: {said}",
            hint="`dsec edge` starts one; DSEC_EDGE names another",
        )


def raise_for(status: int, body: bytes) -> None:
    """Raise the error that an answer tells, if it does."""
    if status < 400:
        return
    try:
        raise problem(msgspec.json.decode(body, type=Problem))
    except msgspec.DecodeError as error:
        raise InfrastructureError(f"the edge answered {status}") from error


def data_of(message: str | bytes) -> bytes:
    """A message of a WebSocket; a text is the problem for which there is none, and raised."""
    if isinstance(message, str):
        raise problem(msgspec.json.decode(message, type=Problem))
    return message


def problem(told: Problem) -> SandboxError:
    """The error behind a problem."""
    return from_code(told.code, told.message, told.hint, told.detail)
