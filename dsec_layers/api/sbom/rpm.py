"""Packages in rpm's SQLite database, whose rows are headers of rpm's own format.

A header is two big-endian numbers, how many entries and how many bytes of data, then the entries
(tag, type, offset in the data, count; 32 bits each), then the data.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.api.sbom.packages import Broken, Package, checked, plain
from dsec_layers.errors import CorruptError

_NAME, _VERSION, _RELEASE, _EPOCH, _LICENSE, _ARCH, _SOURCE = (
    1000,
    1001,
    1002,
    1003,
    1014,
    1022,
    1044,
)
_INT32, _STRING, _I18N = 4, 6, 9
_MAX_ENTRIES: Final = 4096
_MAX_HEADER_BYTES: Final = 64 << 20
_MAX_STEPS: Final = 2_000_000  # of SQLite's machine, for the whole file: a hostile schema ends
_ENTRY: Final = struct.Struct(">IIII")


def parse(path: Path) -> Iterator[Package | Broken]:
    """The packages in the database file. Raises CorruptError when it is none."""
    try:
        with contextlib.closing(_open(path)) as database:
            for (blob,) in database.execute("SELECT blob FROM Packages ORDER BY hnum"):
                found = _package(blob) if isinstance(blob, bytes) else Broken("a row is no header")
                if found is not None:
                    yield found
    except (sqlite3.Error, OverflowError) as error:
        raise CorruptError(f"the database of rpm is malformed: {error}") from error


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_HEADER_BYTES)
    database.execute("PRAGMA trusted_schema=OFF")
    steps = iter(range(_MAX_STEPS // 1000))
    database.set_progress_handler(lambda: next(steps, None) is None, 1000)
    return database


def _package(blob: bytes) -> Package | Broken | None:
    try:
        texts = _texts(blob)
    except struct.error:
        return Broken("a header of rpm is cut short")
    name = texts.get(_NAME, "")
    if name == "gpg-pubkey":  # a key, kept as if it were a package
        return None
    epoch = f"{texts[_EPOCH]}:" if texts.get(_EPOCH, "0") != "0" else ""
    version = "-".join(filter(None, (texts.get(_VERSION, ""), texts.get(_RELEASE, ""))))
    arch, source, license_ = (texts.get(tag, "") for tag in (_ARCH, _SOURCE, _LICENSE))
    return checked(Package("rpm", name, version and epoch + version, arch, source, license_))


def _texts(blob: bytes) -> dict[int, str]:
    """The first value of each tag that matters, as text. Raises struct.error."""
    entries, size = struct.unpack_from(">II", blob)
    if entries > _MAX_ENTRIES or 8 + 16 * entries + size > len(blob):
        raise struct.error
    start = 8 + 16 * entries
    wanted = (_NAME, _VERSION, _RELEASE, _EPOCH, _LICENSE, _ARCH, _SOURCE)
    found: dict[int, str] = {}
    for number in range(entries):
        tag, kind, offset, _ = _ENTRY.unpack_from(blob, 8 + 16 * number)
        if tag not in wanted or offset >= size:
            continue
        if kind in (_STRING, _I18N):
            end = blob.find(b"\0", start + offset, start + size)
            found[tag] = plain(blob[start + offset : end if end >= 0 else start + size])
        elif kind == _INT32:
            found[tag] = str(struct.unpack_from(">I", blob, start + offset)[0])
    return found
