"""What a task may leave in a container, looked at from outside when nothing runs in it any more.

Folders in memory are emptied. Everything else is compared with what it was before the first task:
one difference, and the container is not used again. Descriptors are opened before any task has run
and lead past whatever a task has made. docs/fncall.md lists what is looked at, and what is not.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dsec_runtime.linux import ipcs, scheduling

WORK: Final = "/task"
SCRATCH: Final = (WORK, "/tmp")  # noqa: S108 # of the container
_EMPTIED: Final = (*SCRATCH, "/dev/shm")  # noqa: S108 # of the container
_KEPT: Final = ("/dev", "/dev/mqueue", "/dev/pts")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST: Final = 4096  # files that are removed rather than the container
_DEEPEST: Final = 32
_LONG_AGO_NS: Final = 0

Print = Mapping[str, object]


class TooMuchError(Exception):
    """There is more to remove than making a container anew costs."""


class Traces:
    """Of the container whose agent is `pid` and whose overlay writes to `upper`.

    Made before its first task; `close` it. Raises OSError.
    """

    def __init__(self, pid: int, upper: Path) -> None:
        self._pid = pid
        self._upper = upper
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as undone:
            undone.callback(self._open.close)
            root = f"/proc/{pid}/root"
            self._emptied = {path: self._opened(root + path, _FOLDER) for path in _EMPTIED}
            self._kept = {path: self._opened(root + path, _FOLDER) for path in _KEPT}
            self._ipc = self._opened(f"/proc/{pid}/ns/ipc", os.O_RDONLY | os.O_CLOEXEC)
            self._empty()
            self._before = self._look()
            undone.pop_all()

    def close(self) -> None:
        """Let go of the container."""
        self._open.close()

    def remove(self) -> str | None:
        """Remove what can be removed; what is different from before, None for nothing."""
        try:
            self._empty()
            now = self._look()
        except TooMuchError:
            return "too many files"
        except OSError as error:
            return str(error)
        found = [
            name for name in {**self._before, **now} if self._before.get(name) != now.get(name)
        ]
        return ", ".join(sorted(found)) or None

    def _opened(self, path: str, flags: int) -> int:
        fd = os.open(path, flags)
        self._open.callback(os.close, fd)
        return fd

    def _empty(self) -> None:
        left = _MOST
        for folder in self._emptied.values():
            left = _remove_all(folder, left, 0)
            os.utime(folder, ns=(_LONG_AGO_NS, _LONG_AGO_NS))  # or it would tell of the last task

    def _look(self) -> Print:
        seen: dict[str, object] = {"upper": tuple(_files(self._upper))}
        for path, fd in self._emptied.items():
            seen[path] = (_shown(os.fstat(fd)), tuple(os.listxattr(fd)), tuple(_entries(fd)))
        for path, fd in self._kept.items():
            seen[path] = (_shown(os.fstat(fd), times=True), tuple(_entries(fd)))
        seen["System V IPC"] = ipcs.count(self._ipc)
        own = Path(f"/proc/{self._pid}")
        seen["sockets"] = _sockets((own / "net/sockstat").read_text())
        seen["limits"] = (own / "limits").read_text()
        seen["mounts"] = (own / "mountinfo").read_text()
        seen["scheduling"] = scheduling.inherited(self._pid)
        return seen


def _remove_all(folder: int, left: int, depth: int) -> int:
    """Empty a folder, of which nobody else has hold; how many more may be removed."""
    if depth > _DEEPEST:
        raise TooMuchError
    for name in os.listdir(folder):
        left -= 1
        if left < 0:
            raise TooMuchError
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=folder)
            continue
        inner = os.open(name, _FOLDER, dir_fd=folder)
        try:
            left = _remove_all(inner, left, depth + 1)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)
    return left


def _shown(status: os.stat_result, *, times: bool = False) -> tuple[int, ...]:
    """What can be changed of a file; with `times`, that it was changed at all."""
    changed = (status.st_mtime_ns, status.st_ctime_ns) if times else ()
    return (status.st_mode, status.st_uid, status.st_gid, status.st_rdev, *changed)


def _entries(folder: int) -> Iterator[tuple[object, ...]]:
    """Of a folder of devices, which change their times by being used."""
    for name in sorted(os.listdir(folder)):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        times = not (stat.S_ISCHR(status.st_mode) or stat.S_ISDIR(status.st_mode))
        yield (name, status.st_ino, *_shown(status, times=times))


def _files(upper: Path) -> Iterator[tuple[object, ...]]:
    """All below a folder. No change of a file leaves its time of change (ctime) as it was."""
    left = _MOST
    found = [str(upper)]
    while found:
        path = found.pop()
        status = os.lstat(path)
        yield (path, status.st_ino, status.st_size, *_shown(status, times=True))
        if not stat.S_ISDIR(status.st_mode):
            continue
        with os.scandir(path) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    raise TooMuchError
                found.append(entry.path)


def _sockets(sockstat: str) -> tuple[str, ...]:
    """All sockets of the network namespace, and connections that outlive theirs (TIME_WAIT)."""
    words = sockstat.split()
    return (words[words.index("used") + 1], words[words.index("tw") + 1])
