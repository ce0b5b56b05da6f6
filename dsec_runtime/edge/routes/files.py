"""Files of sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.websockets import WebSocket

from dsec_runtime.edge.calls import Call, Operation, Query
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.sockets import SocketCall, SocketOperation
from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.messages import (
    FileChange,
    MakeRequest,
    ModeRequest,
    MoveRequest,
    RemoveRequest,
)
from dsec_runtime.spec import FileInfo

if TYPE_CHECKING:
    from dsec_runtime.channel import Channel
    from dsec_runtime.channel.changes import Change

OCTETS: Final = "application/octet-stream"
TAR: Final = "application/x-tar"
_PART: Final = 256 << 10


def _place(entry: Entry, path: str) -> str:
    """A path as the agent wants it. Raises InvalidRequestError."""
    if not path or "\0" in path:
        raise InvalidRequestError("a path is not empty and holds no zero byte")
    running = entry.row.running
    base = running.workdir if running else "/"
    return path if path.startswith("/") else f"{base.rstrip('/')}/{path}"


@contextlib.asynccontextmanager
async def _channel(call: Call, *, short: bool = True) -> AsyncIterator[Channel]:
    async with call.edge.life.using(call.entry(), short=short) as channel:
        yield channel


def _path(call: Call) -> str:
    return _place(call.entry(), call.text("path"))


async def stat(call: Call) -> object:
    """What is at a path."""
    path = _path(call)
    async with _channel(call) as channel:
        return await channel.stat(path)


async def list_(call: Call) -> object:
    """What is in a directory."""
    path = _path(call)
    async with _channel(call) as channel:
        return await channel.list_dir(path)


async def make(call: Call) -> None:
    """Make a directory."""
    wanted = call.body(MakeRequest)
    async with _channel(call) as channel:
        path = _place(call.entry(), wanted.path)
        await channel.make_dir(path, mode=wanted.mode, parents=wanted.parents)


async def move(call: Call) -> None:
    """Rename a path."""
    wanted, entry = call.body(MoveRequest), call.entry()
    async with _channel(call) as channel:
        await channel.move(_place(entry, wanted.source), _place(entry, wanted.target))


async def remove(call: Call) -> None:
    """Remove a path."""
    wanted = call.body(RemoveRequest)
    async with _channel(call) as channel:
        await channel.remove(_place(call.entry(), wanted.path), recursive=wanted.recursive)


async def set_mode(call: Call) -> None:
    """Change permissions."""
    wanted = call.body(ModeRequest)
    async with _channel(call) as channel:
        await channel.change(_place(call.entry(), wanted.path), mode=wanted.mode)


async def read(call: Call) -> None:
    """Send the bytes of a file."""
    path, length = _path(call), call.number("length")
    async with _channel(call, short=False) as channel:
        offset = call.whole("offset")
        pieces = channel.read_file(path, offset, None if length is None else int(length))
        await _send(call, pieces, OCTETS)


async def write(call: Call) -> object:
    """Make or replace a file with the body."""
    path, mode = _path(call), call.request.query_params.get("mode")
    async with _channel(call, short=False) as channel:
        return await channel.write_file(
            path,
            call.request.stream(),
            mode=None if mode is None else call.whole("mode"),
            aside=True,
            parents=True,
        )


async def read_tree(call: Call) -> None:
    """Send a directory as a tar."""
    path = _path(call)
    async with _channel(call, short=False) as channel:
        await _send(call, channel.download_tree(path), TAR)


async def write_tree(call: Call) -> None:
    """Unpack the body, a tar, into a directory."""
    path = _path(call)
    async with _channel(call, short=False) as channel:
        await channel.upload_tree(path, call.request.stream())


async def _send(call: Call, pieces: AsyncIterator[bytes], kind: str) -> None:
    """Send pieces as they come; an error before the first is still an answer of its own."""
    first = await anext(pieces, b"")
    headers = [(b"content-type", kind.encode())]
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    leaving = asyncio.create_task(call.gone())
    try:
        await call.send({"type": "http.response.body", "body": first, "more_body": True})
        async for piece in pieces:
            if leaving.done():
                return
            await call.send({"type": "http.response.body", "body": piece, "more_body": True})
        await call.send({"type": "http.response.body", "body": b""})
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


async def watch(call: SocketCall) -> None:
    """Tell what changes below a path, a JSON object a message; an empty one says that it begins."""
    path = _place(call.entry, call.socket.query_params.get("path", ""))
    async with (
        call.edge.life.using(call.entry) as channel,
        channel.watch(path, recursive=True) as changes,
    ):
        await call.socket.send_bytes(b"")
        tasks = [
            asyncio.create_task(_tell(call, changes)),
            asyncio.create_task(_until_closed(call.socket)),
            asyncio.create_task(call.edge.ending.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _tell(call: SocketCall, changes: AsyncIterator[Change]) -> None:
    async for change in changes:
        told = FileChange(kind=change.kind, path=change.path, folder=change.folder)
        await call.socket.send_bytes(msgspec.json.encode(told))


async def _until_closed(socket: WebSocket) -> None:
    while True:
        await socket.receive_bytes()


_AT = "/v1/sandboxes/{id}/files"
_PATH = Query("path", "string", "In the sandbox; relative ones begin at its directory", True)
OPERATIONS = (
    Operation("GET", _AT + "/stat", "Tell what is at a path", stat, None, FileInfo, query=(_PATH,)),
    Operation(
        "GET", _AT + "/list", "List a directory", list_, None, list[FileInfo], query=(_PATH,)
    ),
    Operation(
        "POST", _AT + "/make", "Make a directory", make, MakeRequest, status=204, audit="make-dir"
    ),
    Operation("POST", _AT + "/move", "Rename a path", move, MoveRequest, status=204, audit="move"),
    Operation(
        "POST", _AT + "/remove", "Remove a path", remove, RemoveRequest, status=204, audit="remove"
    ),
    Operation(
        "POST", _AT + "/mode", "Change permissions", set_mode, ModeRequest, status=204, audit="mode"
    ),
    Operation(
        "GET",
        _AT,
        "Read a file",
        read,
        sends=OCTETS,
        audit="read",
        query=(
            _PATH,
            Query("offset", "integer", "The first byte"),
            Query("length", "integer", "At most so many bytes"),
        ),
    ),
    Operation(
        "PUT",
        _AT,
        "Make or replace a file",
        write,
        None,
        FileInfo,
        takes=OCTETS,
        audit="write",
        query=(_PATH, Query("mode", "integer", "Its permissions, as a decimal number")),
    ),
    Operation(
        "GET",
        _AT + "/tree",
        "Read a directory as a tar",
        read_tree,
        sends=TAR,
        query=(_PATH,),
        audit="read-tree",
    ),
    Operation(
        "PUT",
        _AT + "/tree",
        "Unpack a tar into a directory",
        write_tree,
        status=204,
        query=(_PATH,),
        takes=TAR,
        audit="write-tree",
    ),
)
SOCKETS = (
    SocketOperation(_AT + "/watch", "Tell what changes below a path", watch, query=(_PATH,)),
)
