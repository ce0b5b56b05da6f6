"""Local files and directories as streams of bytes, made and read by threads."""

from __future__ import annotations

import asyncio
import io
import tarfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

_PART: Final = 256 << 10
_AHEAD: Final = 8  # parts


async def pieces(path: Path) -> AsyncIterator[bytes]:
    """A file, read by a thread."""
    with path.open("rb") as file:
        while part := await asyncio.to_thread(file.read, _PART):
            yield part


async def write_pieces(parts: AsyncIterator[bytes], path: Path) -> None:
    """Write a file, by a thread."""
    with path.open("wb") as file:
        async for part in parts:
            await asyncio.to_thread(file.write, part)


async def counted(
    parts: AsyncIterator[bytes], on_progress: Callable[[int], None] | None
) -> AsyncIterator[bytes]:
    """The same parts; how many bytes there were is told after each."""
    total = 0
    async for part in parts:
        yield part
        total += len(part)
        if on_progress is not None:
            on_progress(total)


async def packed(folder: Path) -> AsyncIterator[bytes]:
    """A tar of what is in a folder, named from there. Owners are left to whoever unpacks it."""
    pipe = _Pipe()

    def pack() -> None:
        with pipe, tarfile.open(fileobj=pipe, mode="w|", bufsize=_PART) as tar:
            for entry in sorted(folder.iterdir()):
                tar.add(entry, entry.name, filter=_nobodys)

    packing = asyncio.create_task(asyncio.to_thread(pack))
    try:
        while part := await pipe.get():
            yield part
        await packing
    finally:
        pipe.abandon()


async def unpack(parts: AsyncIterator[bytes], folder: Path) -> list[str]:
    """Unpack a tar into a folder, which is made when missing; the names that were left out.

    The tar is made by a sandbox: nothing of it may come to lie, or lead, outside of the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pipe, left_out = _Pipe(), []

    def take(member: tarfile.TarInfo, where: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(member, where)
        except tarfile.FilterError:
            left_out.append(member.name.removeprefix("./"))
            return None

    def extract() -> None:
        try:
            with tarfile.open(fileobj=pipe, mode="r|", bufsize=_PART) as tar:
                tar.extractall(folder, filter=take)  # noqa: S202 # `take` lets nothing lead out
        finally:
            pipe.abandon()

    extracting = asyncio.create_task(asyncio.to_thread(extract))
    try:
        async for part in parts:
            await pipe.put(part)
        await pipe.put(b"")
        await extracting
    finally:
        pipe.abandon()
    return left_out


class _Pipe(io.RawIOBase):
    """Between a coroutine and a thread, with a bound; an empty part is the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD)
        self._rest = b""
        self._is_over = threading.Event()

    async def get(self) -> bytes:
        """For the coroutine: what the thread writes."""
        return await self._parts.get()

    async def put(self, part: bytes) -> None:
        """For the coroutine: what the thread reads. Dropped when it reads no more."""
        if not self._is_over.is_set():
            await self._parts.put(part)

    def abandon(self) -> None:
        """The other side waits no more."""
        self._is_over.set()
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        while not self._parts.empty():
            self._parts.get_nowait()
        self._parts.put_nowait(b"")

    def write(self, data: object) -> int:
        """For the thread."""
        part = bytes(memoryview(data))  # type: ignore[arg-type] # as tarfile gives it
        if self._is_over.is_set():
            raise BrokenPipeError("nobody reads it any more")
        asyncio.run_coroutine_threadsafe(self._parts.put(part), self._loop).result()
        return len(part)

    def read(self, size: int = -1) -> bytes:
        """For the thread: at most `size` bytes."""
        while not self._rest:
            part = asyncio.run_coroutine_threadsafe(self._parts.get(), self._loop).result()
            if not part:
                return b""
            self._rest = part
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def close(self) -> None:
        """For the thread: the end of what it writes."""
        if not self.closed and not self._is_over.is_set():
            asyncio.run_coroutine_threadsafe(self._parts.put(b""), self._loop).result()
        super().close()


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
