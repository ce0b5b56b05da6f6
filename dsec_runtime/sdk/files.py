"""Files of a sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec
import websockets
from websockets.asyncio.client import ClientConnection

from dsec_runtime.errors import FileError, InfrastructureError
from dsec_runtime.messages import (
    FileChange,
    MakeRequest,
    ModeRequest,
    MoveRequest,
    RemoveRequest,
)
from dsec_runtime.sdk import trees
from dsec_runtime.sdk.transport import Transport, data_of
from dsec_runtime.spec import FileInfo

OnProgress = Callable[[int], None]  # told how many bytes have been moved so far
_OCTETS: Final = {"Content-Type": "application/octet-stream"}
_TAR: Final = {"Content-Type": "application/x-tar"}
_ENOENT: Final = 2


class Files:
    """Paths are those of the sandbox; relative ones begin at its working directory.

    What fails there is FileError, with `path` and `errno` in its detail, or DiskQuotaError.
    """

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = f"{path}/files"

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or so many of them from `offset`."""
        parts = [part async for part in self.stream(path, offset=offset, length=length)]
        return b"".join(parts)

    async def read_text(self, path: str) -> str:
        """A file of UTF-8."""
        return (await self.read(path)).decode()

    async def stream(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """The same in pieces."""
        params: dict[str, str | int | None] = {"path": path, "offset": offset, "length": length}
        async with self._transport.stream("GET", self._path, params=params) as response:
            async for part in response.parts():
                yield part

    async def write(
        self, path: str, data: bytes | str | AsyncIterable[bytes], *, mode: int | None = None
    ) -> FileInfo:
        """Make or replace a file; others see it when it is whole. `mode` is its permissions."""
        params = {"path": path, "mode": mode}
        raw = data.encode() if isinstance(data, str) else data
        content = raw if isinstance(raw, bytes) else aiter(raw)

        async def put() -> FileInfo:
            async with self._transport.stream(
                "PUT", self._path, params=params, content=content, headers=_OCTETS
            ) as response:
                return msgspec.json.decode(await response.read(), type=FileInfo)

        return await (self._transport.again(put) if isinstance(raw, bytes) else put())

    async def stat(self, path: str) -> FileInfo:
        """What lstat(2) tells of a path."""
        return await self._transport.call(
            "GET", f"{self._path}/stat", FileInfo, params={"path": path}
        )

    async def exists(self, path: str) -> bool:
        """Whether there is something at a path, if only a broken link."""
        try:
            await self.stat(path)
        except FileError as error:
            if error.detail.get("errno") == _ENOENT:
                return False
            raise
        return True

    async def list_dir(self, path: str) -> list[FileInfo]:
        """What is in a directory, by name."""
        return await self._transport.call(
            "GET", f"{self._path}/list", list[FileInfo], params={"path": path}
        )

    async def make_dir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None:
        """Make a directory; with `parents` those above it too, and one that is there is fine."""
        await self._post("make", MakeRequest(path=path, mode=mode, parents=parents))

    async def move(self, source: str, target: str) -> None:
        """Rename a path, on top of a file if there is one."""
        await self._post("move", MoveRequest(source=source, target=target))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a path, with all below it if so asked."""
        await self._post("remove", RemoveRequest(path=path, recursive=recursive))

    async def chmod(self, path: str, mode: int) -> None:
        """Change permissions."""
        await self._post("mode", ModeRequest(path=path, mode=mode))

    async def upload(
        self, local: Path | str, remote: str, *, on_progress: OnProgress | None = None
    ) -> None:
        """Put a local file at `remote`, or what is in a local directory into that directory."""
        source = Path(local)
        if source.is_dir():
            method, content, headers = f"{self._path}/tree", trees.packed(source), _TAR
            params: dict[str, str | int | None] = {"path": remote}
        else:
            mode = source.stat().st_mode & 0o7777
            method, content, headers = self._path, trees.pieces(source), _OCTETS
            params = {"path": remote, "mode": mode}
        counted = trees.counted(content, on_progress)
        async with self._transport.stream(
            "PUT", method, params=params, content=counted, headers=headers
        ) as response:
            await response.read()

    async def download(
        self, remote: str, local: Path | str, *, on_progress: OnProgress | None = None
    ) -> list[str]:
        """Get a file, or what is in a directory into a local one.

        What must not be made here (devices, links that lead out of it) is left out; its names.
        """
        target = Path(local)
        if (await self.stat(remote)).kind != "directory":
            await trees.write_pieces(trees.counted(self.stream(remote), on_progress), target)
            return []
        async with self._transport.stream(
            "GET", f"{self._path}/tree", params={"path": remote}
        ) as response:
            return await trees.unpack(trees.counted(response.parts(), on_progress), target)

    @contextlib.asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[FileChange]]:
        """What changes in a directory and below; within the context all changes are recorded."""
        socket = await self._transport.open_socket(f"{self._path}/watch", params={"path": path})
        async with socket:
            data_of(await socket.recv())  # it has begun
            yield _changes(socket)

    async def _post(self, what: str, body: object) -> None:
        await self._transport.call("POST", f"{self._path}/{what}", type(None), body)


async def _changes(socket: ClientConnection) -> AsyncIterator[FileChange]:
    while True:
        try:
            message = await socket.recv()
        except websockets.ConnectionClosed as error:
            raise InfrastructureError("the edge watches no more") from error
        yield msgspec.json.decode(data_of(message), type=FileChange)
