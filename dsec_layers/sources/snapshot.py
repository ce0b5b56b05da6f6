"""Whether a directory that others write to stayed as it was while it was read.

What is compared cannot be set back by who writes: the kernel sets the change time of an inode on
every write, rename and change of its attributes. It counts in ticks, so a file is only taken for
unchanged when its last change lies some ticks before the first look.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_TICKS_NS: Final = 20_000_000  # a tick of the kernel's clock takes at most 10 ms

Mark = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Marks of all paths below a directory, and when they began to be taken (ns since 1970)."""

    marks: dict[bytes, Mark]
    started_ns: int


def take(root: bytes) -> Snapshot:
    """Look at everything below `root`; what vanishes meanwhile is not in it. Raises OSError."""
    started = time.time_ns()
    marks = {b"": _mark(os.lstat(root))}
    pending = [(b"", root)]
    while pending:
        parent, place = pending.pop()
        try:
            with os.scandir(place) as listing:
                found = [(item.name, item.path) for item in listing]
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name, path in found:
            try:
                status = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            marks[parent + name] = _mark(status)
            if stat.S_ISDIR(status.st_mode):
                pending.append((parent + name + b"/", path))
    return Snapshot(marks, started)


def unsettled(snapshot: Snapshot, paths: Iterable[bytes]) -> list[bytes]:
    """Those of `paths` that are not in it, or changed just before it: another look may differ."""
    limit = snapshot.started_ns - _TICKS_NS
    marks = snapshot.marks
    return [path for path in paths if path not in marks or marks[path][-1] > limit]


def changed(before: Snapshot, after: Snapshot, paths: Iterable[bytes]) -> list[bytes]:
    """Those of `paths` that are not the same in both."""
    return [path for path in paths if before.marks.get(path) != after.marks.get(path)]


def _mark(status: os.stat_result) -> Mark:
    return (
        *(status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_gid),
        *(status.st_size, status.st_rdev, status.st_mtime_ns, status.st_ctime_ns),
    )
