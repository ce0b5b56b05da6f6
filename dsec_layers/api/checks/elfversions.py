"""The versions of symbols that an ELF file needs of libraries, and that a library offers.

The format is that of the Linux Standard Base: lists at DT_VERNEED and DT_VERDEF whose members say
how far it is to the next one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from dsec_layers.api.checks.elf import Dynamic

_DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_FLAG_BASE, _FLAG_WEAK = 1, 2
_MAX_BYTES: Final = 64 << 10
_MAX_ROWS: Final = 1024


class Version(NamedTuple):
    """A version such as `GLIBC_2.34`, of a library by the name it is loaded by."""

    library: bytes
    name: bytes


def needed(file: Dynamic) -> frozenset[Version]:
    """Those without which the file is not started. What makes no sense is passed over."""
    data = _table(file, _DT_VERNEED)
    found: set[Version] = set()
    try:
        for at, row in _rows(file, data, "HHIII", file.value(_DT_VERNEEDNUM) or 0):
            _, count, library, aux, _ = row
            names = [
                name
                for _, (_, flags, _, name, _) in _rows(file, data, "IHHII", count, at + aux)
                if not flags & _FLAG_WEAK
            ]
            loaded, *texts = list(file.names([library, *names])) or [b""]
            found.update(Version(loaded, text) for text in texts)
    except struct.error:
        return frozenset()
    return frozenset(found)


def offered(file: Dynamic) -> frozenset[bytes]:
    """The names of the versions that a library has; empty for one that has no versions at all."""
    data = _table(file, _DT_VERDEF)
    names = []
    try:
        for at, row in _rows(file, data, "HHHHIII", file.value(_DT_VERDEFNUM) or 0):
            _, flags, _, _, _, aux, _ = row
            if not flags & _FLAG_BASE:
                names.append(struct.unpack_from(file.order + "I", data, at + aux)[0])
    except struct.error:
        return frozenset()
    return frozenset(filter(None, file.names(names)))


def _table(file: Dynamic, tag: int) -> bytes:
    offset = file.offset(tag)
    return b"" if offset is None else file.read(offset, _MAX_BYTES)


def _rows(
    file: Dynamic, data: bytes, layout: str, count: int, at: int = 0
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The rows of a list and where they are; the last field of each leads to the next.

    Raises struct.error where the data ends.
    """
    row = struct.Struct(file.order + layout)
    for _ in range(min(count, _MAX_ROWS) if data else 0):
        fields = row.unpack_from(data, at)
        yield at, fields
        if not fields[-1]:
            return
        at += fields[-1]
