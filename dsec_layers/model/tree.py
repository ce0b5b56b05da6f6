"""The canonical file tree of a layer, and its digest.

A `Tree` is a sorted tuple of `Entry`. It describes either a whole root file system or what one
layer changes: then deletions are entries of kind WHITEOUT and replaced directories are `opaque`.
The root directory is the entry with the empty path; every other path is relative, without leading,
trailing or double slashes, and its parents are in the tree.

The content digest of a file is the blake3 of its bytes when no 4 KiB block of it is all zeros.
Otherwise the zero blocks are holes, and the digest covers the data runs and their offsets
(`content_hasher` states the encoding), so that a sparse file of a terabyte costs what its data
costs, however the file system of the source reported its holes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

import blake3
import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.digest import Digest

BLOCK_SIZE: Final = 4096
MAX_NAME_BYTES: Final = 255
TREE_MAGIC: Final = b"DSECTREE\x01"
SPARSE_CONTEXT: Final = "dsec 2026-11 sparse file content v1"


class EntryKind(IntEnum):
    """File types as the tree encoding numbers them."""

    DIRECTORY = 1
    FILE = 2
    SYMLINK = 3
    CHAR = 4
    BLOCK = 5
    FIFO = 6
    SOCKET = 7
    WHITEOUT = 8


# Looking a member up in its enumeration takes ten times as long, and this is done for each entry.
_DIRECTORY: Final = EntryKind.DIRECTORY
_FILE: Final = EntryKind.FILE
_SYMLINK: Final = EntryKind.SYMLINK
_CHAR: Final = EntryKind.CHAR
_BLOCK: Final = EntryKind.BLOCK


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One path of a tree.

    `mode` holds the permission bits only (0o7777). `mtime_ns` is nanoseconds since the epoch.
    `xattrs` is sorted by name. `size` is the length of a file in bytes, `digest` its 32-byte
    content digest, or empty while not yet known. `target` belongs to symlinks, `major`/`minor` to
    devices. `link_group` is 0 for a path that is its inode's only name, else the number that all
    names of the inode share; all fields but the path are equal within a group. A whiteout has a
    path and nothing else.
    """

    path: bytes
    kind: EntryKind
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    size: int = 0
    digest: bytes = b""
    target: bytes = b""
    major: int = 0
    minor: int = 0
    link_group: int = 0
    opaque: bool = False

    @property
    def name(self) -> bytes:
        """The last component of the path; empty for the root."""
        return self.path.rpartition(b"/")[2]

    @property
    def parent(self) -> bytes:
        """The path of the directory that holds this entry; empty for a child of the root."""
        return self.path.rpartition(b"/")[0]


ROOT: Final = Entry(path=b"", kind=EntryKind.DIRECTORY, mode=0o755)


class Tree(msgspec.Struct, frozen=True):
    """Entries sorted by path bytes, root first.

    Make one with `Tree.of`, which checks and canonicalises.
    """

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Tree:
        """Sort, renumber link groups by first appearance, add a missing root, and check.

        Raises InvalidInputError for a duplicate or unsafe path, or a parent that is missing or not
        a directory.
        """
        ordered = sorted(entries, key=lambda entry: entry.path)
        if not ordered or ordered[0].path != b"":
            ordered.insert(0, ROOT)
        _check_paths(ordered)
        return cls(tuple(_renumber(ordered)))

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def by_path(self) -> dict[bytes, Entry]:
        """A new dictionary from path to entry, in path order."""
        return {entry.path: entry for entry in self.entries}

    def digest(self) -> Digest:
        """The blake3 over the canonical encoding.

        Raises ValueError when a file's content digest is not yet known.
        """
        hasher = blake3.blake3(TREE_MAGIC)
        buffer = bytearray()
        for entry in self.entries:
            buffer += encode_entry(entry)
            if len(buffer) > 1 << 20:
                hasher.update(bytes(buffer))
                buffer.clear()
        hasher.update(bytes(buffer))
        return Digest("blake3", hasher.hexdigest())


# path length, kind, mode, uid, gid, mtime_ns, link group, opaque, xattr count
_HEAD = struct.Struct("<IBHIIqIBI")
_U32 = struct.Struct("<I")
_CONTENT = struct.Struct("<Q32s")
_DEVICE = struct.Struct("<II")


def encode_entry(entry: Entry) -> bytes:
    """The canonical encoding of one entry (docs/formats/tree.md).

    Little-endian: head, path, the fields of its kind, xattrs. Raises ValueError when a file's
    content digest is not yet known, InvalidInputError for a number that has no place in it.
    """
    kind = entry.kind
    parts = [_encode_head(entry), entry.path]
    if kind is _FILE:
        if len(entry.digest) != 32:
            raise ValueError(f"content digest of {entry.path!r} is not known")
        parts.append(_CONTENT.pack(entry.size, entry.digest))
    elif kind is _SYMLINK:
        parts += (_U32.pack(len(entry.target)), entry.target)
    elif kind is _CHAR or kind is _BLOCK:
        parts.append(_DEVICE.pack(entry.major, entry.minor))
    for name, value in entry.xattrs:
        parts += (_U32.pack(len(name)), name, _U32.pack(len(value)), value)
    return b"".join(parts)


def _encode_head(entry: Entry) -> bytes:
    try:
        return _HEAD.pack(
            len(entry.path),
            entry.kind,
            entry.mode,
            entry.uid,
            entry.gid,
            entry.mtime_ns,
            entry.link_group,
            entry.opaque,
            len(entry.xattrs),
        )
    except struct.error as error:
        raise InvalidInputError(
            f"{entry.path!r} has a mode, owner or time that a layer cannot hold: {error}",
            hint="times end in the year 2262",
        ) from error


def sparse_content_hasher(size: int, runs: Iterable[tuple[int, int]]) -> blake3.blake3:
    """A hasher for the content digest of a file with zero blocks.

    Feed it the bytes of the data runs in order.

    `runs` are the maximal runs of blocks that are not all zeros, as (offset, length) in bytes; the
    last may end with the file. The hasher is blake3 in key derivation mode under SPARSE_CONTEXT and
    starts with the size, the number of runs and each offset and length, all as 64-bit little-endian
    integers.
    """
    listed = list(runs)
    header = struct.pack("<QQ", size, len(listed)) + b"".join(
        struct.pack("<QQ", *run) for run in listed
    )
    return blake3.blake3(header, derive_key_context=SPARSE_CONTEXT)


def _check_paths(ordered: list[Entry]) -> None:
    directories: set[bytes] = set()
    previous: bytes | None = None
    for entry in ordered:
        path = entry.path
        if path == previous:
            raise InvalidInputError(f"path appears twice in a tree: {path!r}")
        previous = path
        if path == b"":
            if entry.kind is not _DIRECTORY:
                raise InvalidInputError("the root of a tree is not a directory")
        else:
            parent, _, name = path.rpartition(b"/")
            unsafe = name in (b"", b".", b"..") or path.startswith(b"/") or b"\0" in path
            if unsafe or len(name) > MAX_NAME_BYTES:
                raise InvalidInputError(f"unsafe path in a tree: {path!r}")
            if parent not in directories:
                raise InvalidInputError(f"the parent of {path!r} is missing or not a directory")
        if entry.kind is _DIRECTORY:
            directories.add(path)


def _renumber(ordered: list[Entry]) -> Iterator[Entry]:
    counts: dict[int, int] = {}
    for entry in ordered:
        if entry.link_group:
            counts[entry.link_group] = counts.get(entry.link_group, 0) + 1
    if not counts:
        yield from ordered
        return
    numbers: dict[int, int] = {}
    for entry in ordered:
        if not entry.link_group:
            yield entry
            continue
        group = 0
        if counts[entry.link_group] > 1:
            group = numbers.setdefault(entry.link_group, len(numbers) + 1)
        yield (
            entry if group == entry.link_group else msgspec.structs.replace(entry, link_group=group)
        )
