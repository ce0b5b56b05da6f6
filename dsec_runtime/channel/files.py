"""Files, trees and ports of a sandbox."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final, Literal

from dsec_runtime.channel import frames
from dsec_runtime.channel.changes import Change, parse_changes
from dsec_runtime.channel.connection import Connection
from dsec_runtime.channel.exchange import Exchange
from dsec_runtime.channel.frames import Fields, Tag, Type, Value
from dsec_runtime.spec import FileInfo

Content = bytes | AsyncIterable[bytes]
_Request = list[tuple[int, Value]]

_FOLLOW: Final = 1
_KEEP_EXISTING: Final = 1
_RECURSIVE: Final = 1
_MISSING_OK: Final = 2
_PARENTS: Final = 1
_ASIDE: Final = 2
_SYNC: Final = 4
_EXCLUSIVE: Final = 8
_APPEND: Final = 16
_OWNERS: Final = 1


class FileAccess(Connection):
    """Operations on files, as root of the sandbox.

    Errors of a file are FileError (its `errno` in the detail) and DiskQuotaError.
    """

    async def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        """What is at a path; of a link the link itself, unless it is to be followed."""
        fields: _Request = [(Tag.PATH, path), (Tag.FLAGS, _FOLLOW * follow)]
        answer = await self.ask(Type.STAT, fields, path=path)
        return _info(path, frames.fields_of(answer))

    async def list_dir(self, path: str) -> list[FileInfo]:
        """What a folder holds, sorted by path."""
        async with await self.exchange(Type.LIST, [(Tag.PATH, path)], path=path) as listing:
            data = b"".join([piece async for piece in listing])
        entries: list[Fields] = []
        for tag, value in frames.each_field(data):
            if tag == Tag.PATH:
                entries.append({})
            entries[-1][tag] = value
        prefix = path.rstrip("/") + "/"
        found = (_info(prefix + frames.text(entry, Tag.PATH), entry) for entry in entries)
        return sorted(found, key=lambda info: info.path)

    async def make_dir(
        self,
        path: str,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        parents: bool = False,
    ) -> None:
        """Make a folder; with `parents` those above it too, and it may exist already."""
        fields: _Request = [(Tag.PATH, path), (Tag.FLAGS, _PARENTS * parents)]
        fields += _owner(mode, uid, gid)
        await self.ask(Type.MKDIR, fields, path=path, again=parents)

    async def make_link(self, path: str, target: str) -> None:
        """Make a symbolic link."""
        fields: _Request = [(Tag.PATH, path), (Tag.TARGET, target)]
        await self.ask(Type.LINK, fields, path=path, again=False)

    async def move(self, path: str, target: str, *, replace: bool = True) -> None:
        """rename(2), or a copy where the file system cannot rename (folders of lower layers)."""
        fields: _Request = [(Tag.PATH, path), (Tag.TARGET, target)]
        fields.append((Tag.FLAGS, 0 if replace else _KEEP_EXISTING))
        await self.ask(Type.MOVE, fields, path=path, again=False, timeout_s=3600)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file, an empty folder or, `recursive`, a tree."""
        flags = _RECURSIVE * recursive | _MISSING_OK * missing_ok
        fields: _Request = [(Tag.PATH, path), (Tag.FLAGS, flags)]
        await self.ask(Type.REMOVE, fields, path=path, again=missing_ok, timeout_s=3600)

    async def change(
        self,
        path: str,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        modified_ns: int | None = None,
    ) -> None:
        """Change mode, owner or time of a file or folder; of a link, those of its target."""
        fields: _Request = [(Tag.PATH, path), (Tag.FLAGS, _FOLLOW), *_owner(mode, uid, gid)]
        if modified_ns is not None:
            fields.append((Tag.MTIME_NS, modified_ns))
        await self.ask(Type.CHANGE, fields, path=path)

    # contents

    async def read_file(
        self, path: str, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes of a regular file from an offset, to its end or at most `length`."""
        fields: _Request = [(Tag.PATH, path), (Tag.OFFSET, offset)]
        if length is not None:
            fields.append((Tag.LENGTH, length))
        async with await self.exchange(Type.READ, fields, path=path) as reading:
            async for data in reading:
                yield data

    async def write_file(
        self,
        path: str,
        content: Content,
        *,
        where: int | Literal["whole", "end"] = "whole",
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        parents: bool = False,
        aside: bool = False,
        sync: bool = False,
        exclusive: bool = False,
    ) -> FileInfo:
        """Write a file: all of it, at an offset (`where`), or at its end.

        `aside` writes a new file that takes the place of the old one when it is whole; readers see
        one or the other. `sync` returns when it is on disk. `exclusive` demands that there was
        none. A new file has mode 0644 and belongs to root unless told otherwise.
        """
        flags = _PARENTS * parents | _ASIDE * aside | _SYNC * sync | _EXCLUSIVE * exclusive
        flags |= _APPEND * (where == "end")
        fields: _Request = [(Tag.PATH, path), (Tag.FLAGS, flags), *_owner(mode, uid, gid)]
        if isinstance(where, int):
            fields.append((Tag.OFFSET, where))
        async with await self.exchange(Type.WRITE, fields, path=path) as writing:
            return _info(path, await _send(writing, content))

    # trees

    async def download_tree(self, path: str) -> AsyncIterator[bytes]:
        """A tree as a tar stream (POSIX.1-2001): files, folders, links.

        Names are relative to the folder; of a single file its name.
        """
        async with await self.exchange(Type.TREE_READ, [(Tag.PATH, path)], path=path) as reading:
            async for data in reading:
                yield data

    async def upload_tree(
        self,
        path: str,
        content: Content,
        *,
        owners: bool = False,
        uid: int | None = None,
        gid: int | None = None,
    ) -> int:
        """Unpack a tar stream (pax, ustar, GNU) into a folder, which is made; how many members.

        Files belong to root, to `uid` and `gid`, or with `owners` to whom the stream names.
        Devices and pipes are left out. What was unpacked before an error stays.
        """
        fields: _Request = [(Tag.PATH, path), (Tag.FLAGS, _OWNERS * owners)]
        fields += _owner(None, uid, gid)
        async with await self.exchange(Type.TREE_WRITE, fields, path=path) as writing:
            return frames.number(await _send(writing, content), Tag.LENGTH)

    # what happens

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, *, recursive: bool = False
    ) -> AsyncIterator[AsyncIterator[Change]]:
        """Changes of a file, a folder or a tree; within the context they are being recorded.

        A reader that is too slow is told `overflow`: it should look for itself.
        """
        fields: _Request = [(Tag.PATH, path), (Tag.FLAGS, _RECURSIVE * recursive)]
        async with await self.exchange(Type.WATCH, fields, path=path) as watching:
            await watching.accepted()
            yield parse_changes(watching)

    async def dial(self, port: int) -> Exchange:
        """A connection to a TCP port on the sandbox's loopback: `read`, `write`, `write_end`.

        Close it. Raises FileError (ECONNREFUSED in its detail) when nobody listens.
        """
        name = f"port {port}"
        connection = await self.exchange(Type.DIAL, [(Tag.PORT, port)], path=name)
        try:
            await connection.accepted()
        except BaseException:
            connection.close()
            raise
        return connection


async def _send(writing: Exchange, content: Content) -> Fields:
    await writing.accepted()
    if isinstance(content, bytes):
        await writing.write(content)
    else:
        async for data in content:
            await writing.write(data)
    writing.write_end()
    return await writing.ended()


def _owner(mode: int | None, uid: int | None, gid: int | None) -> _Request:
    given = ((Tag.MODE, mode), (Tag.UID, uid), (Tag.GID, gid))
    return [(tag, value) for tag, value in given if value is not None]


def _info(path: str, fields: Fields) -> FileInfo:
    mode = frames.number(fields, Tag.MODE)
    kinds: dict[int, Literal["file", "directory", "symlink"]] = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "directory",
        stat.S_IFLNK: "symlink",
    }
    modified = frames.number(fields, Tag.MTIME_NS)
    return FileInfo(
        path=path,
        kind=kinds.get(stat.S_IFMT(mode), "other"),
        mode=stat.S_IMODE(mode),
        uid=frames.number(fields, Tag.UID),
        gid=frames.number(fields, Tag.GID),
        size_bytes=frames.number(fields, Tag.SIZE),
        modified_ns=modified - (1 << 64) if modified >> 63 else modified,
        target=frames.text(fields, Tag.TARGET) if Tag.TARGET in fields else None,
    )
