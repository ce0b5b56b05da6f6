"""Paths inside a root file system that is not ours: no link in it may lead us out of it.

For trees in which nothing runs at the time of the call.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from pathlib import Path

_MAX_LINKS = 40  # as in Linux
_MAX_BYTES = 1 << 20


def resolve(root: Path, path: str) -> str:
    """Where `path` leads inside `root`: an absolute path without links, `.` and `..`.

    What is missing is taken as it is written. Raises OSError (ELOOP).
    """
    resolved: list[str] = []
    todo = deque(path.split("/"))
    links = 0
    while todo:
        part = todo.popleft()
        if part == "..":
            del resolved[-1:]
        elif part not in ("", "."):
            target = _link_target(root.joinpath(*resolved, part))
            if target is None:
                resolved.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                resolved.clear()
            todo.extendleft(reversed(target.split("/")))
    return "/" + "/".join(resolved)


def locate(root: Path, path: str) -> Path:
    """`path` inside `root` as a path of this process, with no link below `root`."""
    return root / resolve(root, path).lstrip("/")


def read_file(root: Path, path: str) -> bytes | None:
    """The first MiB of the regular file `path` inside `root`, or None where there is none."""
    try:
        # O_NONBLOCK: a fifo of that name must not make us wait
        fd = os.open(locate(root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _read(fd, _MAX_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def _read(fd: int, limit: int) -> bytes:
    content = b""
    while len(content) < limit and (part := os.read(fd, limit - len(content))):
        content += part
    return content


def _link_target(path: Path) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 # the text as it is, not normalised
    except OSError:
        return None
