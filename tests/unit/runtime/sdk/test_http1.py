"""Requests over connections that are kept, cut off, answered early or not understood."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.sdk.address import Address
from dsec_runtime.sdk.http1 import BrokenError, Http

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[object, object, None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """A Unix socket; `talk` is called for each connection, and they are counted."""

    def __init__(self, folder: Path, talk: Talk) -> None:
        self._path, self._talk = str(folder / "s"), talk
        self.connections = 0

    @contextlib.asynccontextmanager
    async def client(self, **headers: str) -> AsyncIterator[Http]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._talk(reader, writer)
            writer.close()

        server = await asyncio.start_unix_server(serve, self._path)
        http = Http(Address(self._path, "http://edge"), headers, None)
        try:
            yield http
        finally:
            http.close()
            server.close()


async def head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def get(http: Http, path: str = "/") -> tuple[int, bytes]:
    async with http.request("GET", path) as response:
        return response.status, await response.read()


async def always(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await head(reader)
        writer.write(OK)


async def test_an_answer_that_stops_is_broken_off(tmp_path: Path) -> None:
    async def stops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await reader.read()

    async with Server(tmp_path, stops).client() as http:
        with pytest.raises(BrokenError, match=r"nothing came for 0\.05 s"):
            async with http.request("GET", "/", silence_s=0.05) as response:
                assert [part async for part in response.parts()] == [b"a"]


async def test_a_connection_is_kept_for_the_next_request(tmp_path: Path) -> None:
    server = Server(tmp_path, always)
    async with server.client() as http:
        assert [await get(http) for _ in range(3)] == [(200, b"ok")] * 3
        assert server.connections == 1
        await asyncio.gather(get(http), get(http))
        assert server.connections == 2


async def test_what_is_asked(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head(reader))
        writer.write(OK)

    async with Server(tmp_path, talk).client(Authorization="Bearer x") as http:
        params = {"a": [1, "b c"], "yes": True, "no": None, "n": 1.5}
        request = http.request("GET", "/a b", params=params, headers={"X": "y"})  # type: ignore[arg-type]
        async with request as response:
            assert await response.read() == b"ok"
    first, *lines = heads[0].decode().split("\r\n")
    assert first == "GET /a%20b?a=1&a=b+c&yes=true&n=1.5 HTTP/1.1"
    assert lines == ["Host: edge", "Authorization: Bearer x", "X: y", "", ""]


async def test_bodies_of_both_kinds_and_a_chunked_answer(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int((await head(reader)).lower().partition(b"content-length: ")[2].split()[0])
        body = await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (body[:5], body[5:]):
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n")
        assert b"chunked" in await head(reader)
        assert await reader.readuntil(b"0\r\n\r\n") == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        writer.write(OK)

    async def parts() -> AsyncIterator[bytes]:
        for part in (b"abc", b"", b"de"):
            yield part

    large = bytes(range(256)) * 8192
    async with Server(tmp_path, talk).client() as http:
        async with http.request("POST", "/", content=large) as response:
            assert await response.read() == large
        async with http.request("PUT", "/", content=parts()) as response:
            assert await response.read() == b"ok"


async def test_an_answer_before_the_end_of_the_request_ends_it(tmp_path: Path) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(refusal)
        await reader.read(-1)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 16)
            await asyncio.sleep(0)

    server = Server(tmp_path, talk)
    async with server.client() as http:
        for _ in range(2):
            async with http.request("PUT", "/", content=endless()) as response:
                assert (response.status, await response.read()) == (413, b"no")
    assert server.connections == 2  # what was left of the request would be taken for another


@pytest.mark.parametrize("said", [b"", OK[:-1], b"SSH-2.0 hello\r\n"])
async def test_what_is_no_answer(tmp_path: Path, said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(said)

    async with Server(tmp_path, talk).client() as http:
        with pytest.raises(BrokenError):
            await get(http)


async def test_a_connection_that_the_other_side_has_closed_is_not_used(tmp_path: Path) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(OK)

    server = Server(tmp_path, once)
    async with server.client() as http:
        for count in (1, 2):
            assert await get(http) == (200, b"ok")
            assert server.connections == count
            while any(it.is_free for it in http._idle):
                await asyncio.sleep(0)


async def test_a_body_that_is_not_read_to_its_end_costs_the_connection(tmp_path: Path) -> None:
    server = Server(tmp_path, always)
    async with server.client() as http:
        async with http.request("GET", "/"):
            pass
        assert await get(http) == (200, b"ok")
        assert server.connections == 2


async def test_nobody_there(tmp_path: Path) -> None:
    http = Http(Address(str(tmp_path / "none"), "http://edge"), {}, None)
    with pytest.raises(BrokenError):
        await get(http)


async def test_a_header_cannot_end_its_line() -> None:
    with pytest.raises(InvalidRequestError, match="Authorization"):
        Http(Address(None, "https://edge"), {"Authorization": "x\r\nY: z"}, None)
