"""Watching files: the least of inotify(7) that a test needs."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path
from typing import Final

MODIFY: Final = 0x2
CREATE: Final = 0x100
_HEAD: Final = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """A watch of one path for the events of `mask`."""

    def __init__(self, path: Path, mask: int) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert _libc.inotify_add_watch(self._fd, os.fsencode(path), mask) > 0

    def seen(self) -> list[str]:
        """The names in the events since the last call; "" for the watched path itself."""
        names = []
        while select.select([self._fd], [], [], 0)[0]:
            data = os.read(self._fd, 65536)
            while data:
                length = _HEAD.unpack_from(data)[3]
                names.append(os.fsdecode(data[_HEAD.size : _HEAD.size + length].rstrip(b"\0")))
                data = data[_HEAD.size + length :]
        return names

    def close(self) -> None:
        os.close(self._fd)
