"""Databases of rpm, as small as they can be."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path


def header(tags: Mapping[int, str | int]) -> bytes:
    """A header of rpm with these values: texts, and numbers of 32 bits."""
    rows, data = b"", b""
    for tag, value in tags.items():
        if isinstance(value, int):
            data += bytes(-len(data) % 4)
            rows += struct.pack(">IIII", tag, 4, len(data), 1)
            data += struct.pack(">I", value)
        else:
            rows += struct.pack(">IIII", tag, 6, len(data), 1)
            data += value.encode() + b"\0"
    return struct.pack(">II", len(tags), len(data)) + rows + data


def package(name: str, version: str, release: str = "1", epoch: int | None = None) -> bytes:
    """The header of a package for x86_64 under the MIT license."""
    tags: dict[int, str | int] = {1000: name, 1001: version, 1002: release, 1022: "x86_64"}
    tags |= {1014: "MIT"} | ({} if epoch is None else {1003: epoch})
    return header(tags)


def database(folder: Path, headers: Sequence[bytes]) -> bytes:
    """The bytes of rpmdb.sqlite with these headers."""
    path = folder / "rpmdb.sqlite"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
        made.executemany("INSERT INTO Packages (blob) VALUES (?)", [(each,) for each in headers])
    return path.read_bytes()
