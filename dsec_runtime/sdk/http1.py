"""HTTP/1.1 to one edge: a request at a time on each connection, which is then kept for the next.

Answers are parsed by httptools, as requests are on the other side. Whatever goes wrong with a
connection is a BrokenError, and nothing else is. See docs/decisions/0016.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, cast
from urllib.parse import quote, urlencode, urlsplit

import httptools

from dsec_runtime.alive import watch_peer
from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.sdk.address import Address

Params = Mapping[str, str | int | float | bool | Sequence[str] | None]
Content = AsyncIterator[bytes] | bytes

_CONNECT_S: Final = 5.0
_MOST_IDLE: Final = 64
_PART: Final = 256 << 10
_MOST_UNREAD: Final = 1 << 20
_PATH: Final = "/!$&'()*+,;=:@~"
_SAID: Final = re.compile(r"[\t -~\x80-\xff]*")  # what a header may say; no end of a line


class BrokenError(ConnectionError):
    """There is no connection, or none any more, or nothing on it that we understand."""


class Http:
    """Requests to `address`, each with `headers`. Belongs to one event loop."""

    def __init__(
        self, address: Address, headers: Mapping[str, str], tls: ssl.SSLContext | None
    ) -> None:
        parts = urlsplit(address.base)
        self._socket, self._tls = address.socket, tls
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._prefix = parts.path
        self._always = _lines({"Host": parts.netloc, **headers})
        self._idle: list[_Connection] = []
        self._closed = False

    def close(self) -> None:
        """Close connections that nobody uses, and keep none any more."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        content: Content | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
    ) -> AsyncIterator[Response]:
        """The answer, whose body is read within the block.

        One that says nothing for `silence_s` is broken off. Raises BrokenError,
        InvalidRequestError and what `content` raises.
        """
        target = f"{self._prefix}{quote(path, safe=_PATH)}{query(params)}"
        said = f"{method} {target} HTTP/1.1\r\n{self._always}{_lines(headers or {})}"
        if content is None:
            head, content = f"{said}\r\n", b""
        elif isinstance(content, bytes):
            head = f"{said}Content-Length: {len(content)}\r\n\r\n"
        else:
            head = f"{said}Transfer-Encoding: chunked\r\n\r\n"
        connection = await self._connection()
        connection.silence_s = silence_s
        try:
            await connection.send(head.encode("latin-1"), content)
            yield Response(await connection.answered(), connection)
        finally:
            if connection.is_free and not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
            else:
                connection.close()

    async def _connection(self) -> _Connection:
        while self._idle:
            found = self._idle.pop()
            if found.is_free:
                return found
            found.close()
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await self._connected()
        except OSError as error:
            raise BrokenError(str(error) or "it takes too long to connect") from error

    async def _connected(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if self._socket is not None:
            return (await loop.create_unix_connection(_Connection, self._socket))[1]
        made = loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return (await made)[1]


class Response:
    """An answer of which `status` is known; the body is read once, in either way."""

    def __init__(self, status: int, connection: _Connection) -> None:
        self.status = status
        self._connection = connection

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        while part := await self._connection.part():
            yield part

    async def read(self) -> bytes:
        """All of the body."""
        return b"".join([part async for part in self.parts()])


class _Connection(asyncio.Protocol):
    """What is said on a connection, and what is read of the answer."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._parts: deque[bytes] = deque()
        self._unread = 0
        self._status = 0
        self._is_whole = True
        self._keeps = True  # it may be used for another request
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.silence_s: float | None = None

    @property
    def is_free(self) -> bool:
        """Whether nothing of a request is under way and the other side stays."""
        is_done = self._is_whole and not self._parts
        return is_done and self._keeps and self._error is None

    def close(self) -> None:
        """Close it, whatever is under way."""
        self._transport.abort()

    async def send(self, head: bytes, content: Content) -> None:
        """Say a request; no more of it when the answer is there before its end."""
        self._status = 0
        self._is_whole = False
        if not isinstance(content, bytes):
            self._transport.write(head)
            async for part in content:
                if part and not await self._write(b"%x\r\n%b\r\n" % (len(part), part)):
                    return
            self._transport.write(b"0\r\n\r\n")
            return
        self._transport.write(head + content[:_PART])
        rest = memoryview(content)[_PART:]
        for at in range(0, len(rest), _PART):
            if not await self._write(rest[at : at + _PART]):
                return

    async def _write(self, data: bytes | memoryview) -> bool:
        await self._may_write.wait()
        if self._status or self._error is not None:
            self._keeps = False
            return False
        self._transport.write(data)
        return True

    async def answered(self) -> int:
        """The status of the answer. Raises BrokenError."""
        while not self._status:
            await self._more()
        return self._status

    async def part(self) -> bytes:
        """The next bytes of the body, none at its end. Raises BrokenError."""
        while not self._parts:
            if self._is_whole:
                return b""
            await self._more()
        found = self._parts.popleft()
        self._unread -= len(found)
        if not self._parts:
            self._transport.resume_reading()
        return found

    async def _more(self) -> None:
        if self._error is not None:
            raise BrokenError(str(self._error)) from self._error
        self._changed.clear()
        try:
            async with asyncio.timeout(self.silence_s):
                await self._changed.wait()
        except TimeoutError as error:
            self._error = BrokenError(f"nothing came for {self.silence_s:g} s")
            raise self._error from error

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)
        if (connection := transport.get_extra_info("socket")) is not None:
            watch_peer(connection)

    def data_received(self, data: bytes) -> None:
        """Something of the answer."""
        if self._is_whole:
            self._keeps = False  # nothing was asked
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = error
        self._changed.set()
        if self._unread > _MOST_UNREAD:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed."""
        self._error = self._error or error or BrokenError("the connection was closed")
        self._changed.set()
        self._may_write.set()

    def pause_writing(self) -> None:
        """The other side is slow."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._may_write.set()

    # what httptools calls

    def on_headers_complete(self) -> None:
        """The status is known, and nothing more need be said."""
        self._status = self._parser.get_status_code()
        self._may_write.set()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._parts.append(data)
        self._unread += len(data)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self._is_whole = True
        self._keeps = self._keeps and self._parser.should_keep_alive()


def query(params: Params | None) -> str:
    """Parameters as they stand behind a path, with their question mark; None is left out."""
    given = {name: _told(value) for name, value in (params or {}).items() if value is not None}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _told(value: str | float | bool | Sequence[str]) -> str | Sequence[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def _lines(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if not _SAID.fullmatch(value):
            raise InvalidRequestError(f"{name} has characters that no header may have")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
