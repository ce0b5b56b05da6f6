"""One thing that the builder keeps on disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, Literal

import msgspec

_BLOCK: Final = 512  # the unit of st_blocks


class Kept(msgspec.Struct, frozen=True):
    """A step or a cache. `used_s` is the time of its last use, `size_bytes` what it takes."""

    kind: Literal["step", "cache"]
    name: str
    title: str
    size_bytes: int
    used_s: float


def disk_bytes(folder: Path) -> int:
    """What a folder takes on disk; files that go away meanwhile do not count."""
    seen: set[tuple[int, int]] = set()
    total = 0
    pending = [os.fsencode(folder)]
    while pending:
        place = pending.pop()
        try:
            status = os.lstat(place)
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * _BLOCK
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(place) as entries:
                    pending += [entry.path for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            continue
    return total
