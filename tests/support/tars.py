"""Tar archives in memory, written by Python's tarfile or block by block, and contents read back."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from dsec_layers.model.content import Content, LocalFile, Source
from dsec_layers.sources.archive import read_tar

Member = tuple[tarfile.TarInfo, bytes]


def member(
    name: str,
    kind: bytes = tarfile.REGTYPE,
    *,
    data: bytes = b"",
    link: str = "",
    mode: int = 0o644,
    pax: Mapping[str, str] | None = None,
    device: tuple[int, int] = (0, 0),
    mtime: float = 0,
    owner: tuple[int, int] = (0, 0),
) -> Member:
    """One member with its data."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = kind, link, mode, mtime
    info.size = len(data)
    info.uid, info.gid = owner
    info.devmajor, info.devminor = device
    info.pax_headers = dict(pax or {})
    return info, data


def directory(name: str, mode: int = 0o755) -> Member:
    """A directory."""
    return member(name, tarfile.DIRTYPE, mode=mode)


def symlink(name: str, target: str) -> Member:
    """A symlink."""
    return member(name, tarfile.SYMTYPE, link=target, mode=0o777)


def hard_link(name: str, target: str) -> Member:
    """One more name of `target`."""
    return member(name, tarfile.LNKTYPE, link=target)


def archive(members: Iterable[Member], format: int = tarfile.PAX_FORMAT) -> bytes:  # noqa: A002
    """The members as a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, errors="surrogateescape") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def raw_header(name: bytes, kind: bytes = b"0", size: int = 0, **fields: bytes) -> bytes:
    """A ustar header block; `mode`, `uid`, `gid`, `mtime`, `link`, `magic` and `rest` may be given.

    `rest` begins at offset 257 and replaces `magic` and all behind it.
    """
    rest = fields.get("rest", fields.get("magic", b"ustar\x0000"))
    block = b"".join(
        (
            name.ljust(100, b"\0"),
            fields.get("mode", b"0000644\0"),
            fields.get("uid", b"0000000\0"),
            fields.get("gid", b"0000000\0"),
            b"%011o\0" % size,
            fields.get("mtime", b"00000000000\0"),
            b" " * 8,
            kind,
            fields.get("link", b"").ljust(100, b"\0"),
            rest,
        )
    ).ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padded(data: bytes) -> bytes:
    """Data filled up to whole blocks."""
    return data + bytes(-len(data) % 512)


def pax_record(keyword: bytes, value: bytes) -> bytes:
    """One record of a pax header."""
    body = b" " + keyword + b"=" + value + b"\n"
    length = len(body)
    while length != len(body) + len(str(length)):
        length = len(body) + len(str(length))
    return str(length).encode() + body


def pax_member(records: list[tuple[bytes, bytes]], header: bytes, data: bytes = b"") -> bytes:
    """A member with a pax header of these records before its own `header`."""
    extended = b"".join(pax_record(*record) for record in records)
    return raw_header(b"x", b"x", len(extended)) + padded(extended) + header + padded(data)


END = bytes(1024)


def read(data: bytes, folder: Path, *, oci: bool = False, lower: Source | None = None) -> Source:
    """`read_tar` of bytes."""
    return read_tar(io.BytesIO(data), folder, oci=oci, lower=lower)


def content_bytes(content: Content, size: int) -> bytes:
    """All bytes of a (small) content."""
    if isinstance(content, LocalFile):
        with open(content.path, "rb") as file:
            return file.read()
    data = bytearray(size)
    with open(content.path, "rb") as file:
        for offset, length, place in content.runs:
            data[offset : offset + length] = os.pread(file.fileno(), length, place)
    return bytes(data)


def contents(source: Source) -> dict[bytes, bytes]:
    """The bytes of every file of a source."""
    sizes = {entry.path: entry.size for entry in source.tree}
    return {path: content_bytes(place, sizes[path]) for path, place in source.contents.items()}
