"""Ports of sandboxes: byte streams, and an HTTP proxy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import httpcore
from starlette.websockets import WebSocket

from dsec_runtime.edge.calls import Call, Operation
from dsec_runtime.edge.sockets import SocketCall, SocketOperation
from dsec_runtime.edge.tunnel import Tunnel
from dsec_runtime.errors import AgentError, InvalidRequestError

if TYPE_CHECKING:
    from dsec_runtime.channel.exchange import Exchange

# Of the connection between two, and none of a third's business (RFC 9110, 7.6.1).
_OF_A_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
_OF_THE_EDGE: Final = frozenset({b"authorization", b"host", b"dsec-owner"})


async def tunnel(call: SocketCall) -> None:
    """Bytes both ways; an empty message is the end of one direction."""
    port = _port(call.socket.path_params["port"])
    async with call.edge.life.using(call.entry) as channel:
        connection = await channel.dial(port)
        outwards = asyncio.create_task(_outwards(call.socket, connection))
        inwards = asyncio.create_task(_inwards(call.socket, connection))
        ending = asyncio.create_task(call.edge.ending.wait())
        tasks = [outwards, inwards, ending]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if inwards in done and not inwards.exception():
                # The client has sent all; what the service still says is for it.
                await asyncio.wait([outwards, ending], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            connection.close()


async def _outwards(socket: WebSocket, connection: Exchange) -> None:
    async for data in connection:
        await socket.send_bytes(data)
    await socket.send_bytes(b"")


async def _inwards(socket: WebSocket, connection: Exchange) -> None:
    while data := await socket.receive_bytes():
        await connection.write(data)
    connection.write_end()


async def proxy(call: Call) -> None:
    """Hand a request on to an HTTP service in the sandbox, and its answer back."""
    port = _port(call.request.path_params["port"])
    async with call.edge.life.using(call.entry()) as channel:
        tunnel_ = Tunnel(await channel.dial(port))
        origin = httpcore.Origin(b"http", b"localhost", port)
        async with httpcore.AsyncHTTP11Connection(origin=origin, stream=tunnel_) as connection:
            try:
                response = await connection.handle_async_request(_inner(call, port))
                await _answer(call, response)
            except httpcore.ProtocolError as error:
                raise AgentError(f"port {port} does not speak HTTP: {error}") from error
            except httpcore.NetworkError as error:
                raise AgentError(f"port {port} broke off: {error}") from error


def _inner(call: Call, port: int) -> httpcore.Request:
    asked = call.request
    # As it was written: what is decoded may not be what the service was asked for.
    written: bytes = asked.scope["raw_path"].partition(b"/http/")[2].partition(b"/")[2]
    query: bytes = asked.scope["query_string"]
    headers = [
        (name, value) for name, value in asked.headers.raw if name not in _OF_A_HOP | _OF_THE_EDGE
    ]
    has_length = any(name == b"content-length" for name, _ in headers)
    if not has_length and asked.headers.get("transfer-encoding"):
        headers.append((b"transfer-encoding", b"chunked"))
    headers.append((b"host", f"localhost:{port}".encode()))
    url = httpcore.URL(
        scheme=b"http",
        host=b"localhost",
        port=port,
        target=b"/" + written.partition(b"?")[0] + (b"?" + query if query else b""),
    )
    return httpcore.Request(asked.method, url, headers=headers, content=asked.stream())


async def _answer(call: Call, response: httpcore.Response) -> None:
    headers = [
        (name.lower(), value) for name, value in response.headers if name.lower() not in _OF_A_HOP
    ]
    await call.send({"type": "http.response.start", "status": response.status, "headers": headers})
    async for data in response.aiter_stream():
        await call.send({"type": "http.response.body", "body": data, "more_body": True})
    await call.send({"type": "http.response.body", "body": b""})


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise InvalidRequestError(f"{text!r} is no port")
    return int(text)


_HTTP = "/v1/sandboxes/{id}/http/{port}/{path:path}"
OPERATIONS = tuple(
    Operation(method, _HTTP, "Ask an HTTP service in the sandbox", proxy, sends="*/*", takes="*/*")
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
)
SOCKETS = (
    SocketOperation("/v1/sandboxes/{id}/ports/{port}", "A connection to a port inside", tunnel),
)
