"""One member of a tar archive, put together from its header and the extended headers before it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from dsec_layers.sources.tarheader import Header, MalformedError, parse_count, parse_time_ns
from dsec_layers.sources.tarsparse import Runs, old_gnu_map, pax_map

_SPARSE: Final = b"S"
_SCHILY_XATTR: Final = b"SCHILY.xattr."
_LIBARCHIVE_XATTR: Final = b"LIBARCHIVE.xattr."
_ESCAPES: Final = re.compile(rb"%3D|%25")


class MemberKind(Enum):
    """What a member is, whichever of the letters for it the archive uses."""

    FILE = "file"
    LINK = "hard link"
    SYMLINK = "symlink"
    CHAR = "character device"
    BLOCK = "block device"
    DIRECTORY = "directory"
    FIFO = "fifo"
    LABEL = "volume label"


_KINDS: Final = {
    b"0": MemberKind.FILE,
    b"\0": MemberKind.FILE,
    b"7": MemberKind.FILE,
    _SPARSE: MemberKind.FILE,
    b"1": MemberKind.LINK,
    b"2": MemberKind.SYMLINK,
    b"3": MemberKind.CHAR,
    b"4": MemberKind.BLOCK,
    b"5": MemberKind.DIRECTORY,
    b"D": MemberKind.DIRECTORY,  # GNU incremental: its data is a list of names
    b"6": MemberKind.FIFO,
    b"V": MemberKind.LABEL,
}
_WITH_DATA: Final = frozenset({b"0", b"\0", b"7", _SPARSE, b"D", b"V"})


class Member(msgspec.Struct, frozen=True):
    """`name` and `link` are as the archive has them; ids and times are not yet checked for range.

    `size` is the length of a file's content in bytes, `runs` are the (offset, length) of what the
    archive stores of it, in this order; between them are zeros.
    """

    name: bytes
    kind: MemberKind
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int
    link: bytes
    major: int
    minor: int
    xattrs: tuple[tuple[bytes, bytes], ...]
    runs: Runs


class Extras(msgspec.Struct):
    """Extended headers of one member: GNU long names, and pax records in their order."""

    long_name: bytes = b""
    long_link: bytes = b""
    records: list[tuple[bytes, bytes]] = []

    def value(self, keyword: bytes) -> bytes:
        """The last value of a pax keyword; empty when it is not there or taken back."""
        return next((value for key, value in reversed(self.records) if key == keyword), b"")


def member_kind(header: Header, extras: Extras) -> MemberKind | None:
    """The kind, None when it is unknown. In v7 archives a slash ends the name of a directory."""
    kind = _KINDS.get(header.kind)
    if kind is MemberKind.FILE and member_name(header, extras).endswith(b"/"):
        return MemberKind.DIRECTORY
    return kind


def member_name(header: Header, extras: Extras) -> bytes:
    """The name that wins: a sparse file's real one, pax, GNU long name, header."""
    sparse_name = extras.value(b"GNU.sparse.name")
    return sparse_name or extras.value(b"path") or extras.long_name or header.name


def stored_size(header: Header, extras: Extras) -> int:
    """The bytes of data after the header: links and devices have none, whatever it says."""
    if header.kind not in _WITH_DATA:
        return 0
    size = extras.value(b"size")
    stored = parse_count(size) if size else header.size
    if stored < 0:
        raise MalformedError("the size is negative")
    return stored


def assemble(
    header: Header,
    kind: MemberKind,
    extras: Extras,
    read_header_block: Callable[[], bytes],
    read_data_block: Callable[[], bytes],
) -> Member:
    """Put a member together. Raises MalformedError.

    Maps of sparse files go on in header blocks (old GNU format) or begin the data (pax 1.0).
    """
    size = 0
    runs: Runs = ()
    if kind is MemberKind.FILE:
        size, runs = _layout(header, extras, read_header_block, read_data_block)
    mtime = extras.value(b"mtime")
    uid, gid = extras.value(b"uid"), extras.value(b"gid")
    return Member(
        name=member_name(header, extras),
        kind=kind,
        mode=header.mode & 0o7777,
        uid=parse_count(uid) if uid else header.uid,
        gid=parse_count(gid) if gid else header.gid,
        mtime_ns=parse_time_ns(mtime) if mtime else header.mtime_ns,
        size=size,
        link=extras.value(b"linkpath") or extras.long_link or header.link,
        major=header.major,
        minor=header.minor,
        xattrs=tuple(sorted(dict(_xattrs(extras)).items())),
        runs=runs,
    )


def _layout(
    header: Header,
    extras: Extras,
    read_header_block: Callable[[], bytes],
    read_data_block: Callable[[], bytes],
) -> tuple[int, Runs]:
    if header.kind == _SPARSE:
        return old_gnu_map(header.block, read_header_block)
    sparse = pax_map(extras.records, read_data_block)
    if sparse is not None:
        return sparse
    size = stored_size(header, extras)
    return size, ((0, size),) if size else ()


def _xattrs(extras: Extras) -> Iterator[tuple[bytes, bytes]]:
    for keyword, value in extras.records:
        if keyword.startswith(_SCHILY_XATTR):
            # GNU tar escapes what a pax keyword cannot hold.
            name = keyword[len(_SCHILY_XATTR) :]
            yield _ESCAPES.sub(lambda match: unquote_to_bytes(match[0]), name), value
        elif keyword.startswith(_LIBARCHIVE_XATTR):
            yield unquote_to_bytes(keyword[len(_LIBARCHIVE_XATTR) :]), _base64(value)


def _base64(text: bytes) -> bytes:
    # libarchive leaves the padding out
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise MalformedError(f"an extended attribute is not base64: {error}") from error
