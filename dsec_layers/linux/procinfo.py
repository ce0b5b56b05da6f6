"""What /proc tells about processes: their start, their mount namespace, the files they hold."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_STAT_BYTES = 4096


class User(msgspec.Struct, frozen=True):
    """A process that keeps a directory busy, and by what, e.g. `cwd /mnt/demo/tmp`."""

    pid: int
    name: str
    holds: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}, {self.holds})"


@functools.cache
def boot_id() -> str:
    """The random name of this boot of the kernel."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone or only a zombie.

    A process id and its start name a process for good: ids are used again, but not with the
    same start.
    """
    try:
        # The program name, in parentheses, may hold anything; fields are counted from its end.
        with open(f"{_PROC}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - asked often
            fields = file.read(_STAT_BYTES).rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def mount_namespace(pid: int | str = "self") -> int | None:
    """The inode number of a process's mount namespace; None when it is gone or may not be seen."""
    try:
        return os.stat(f"{_PROC}/{pid}/ns/mnt").st_ino  # noqa: PTH116 - asked often
    except OSError:
        return None


def mount_namespaces() -> set[int]:
    """The mount namespaces in which some process lives."""
    return {namespace for pid in _pids() if (namespace := mount_namespace(pid)) is not None}


def users_below(directory: Path) -> Iterator[User]:
    """The processes with a root, working directory, program or open file in `directory`.

    Each is named once. Paths are seen as this process's namespace names them: a container that
    has pivoted away is not found.
    """
    top = os.fspath(directory)
    for pid in _pids():
        if (held := _first_held(_PROC / str(pid), top)) is not None:
            yield User(pid, _name(pid), held)


def _pids() -> Iterator[int]:
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            yield int(entry.name)


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return "?"


def _first_held(process: Path, top: str) -> str | None:
    for link in _links(process):
        try:
            path = link.readlink()
        except OSError:  # the process or the file is gone, or belongs to somebody else
            continue
        if str(path) == top or str(path).startswith(top.rstrip("/") + "/"):
            return f"{link.name if link.parent == process else 'file'} {path}"
    return None


def _links(process: Path) -> Iterator[Path]:
    yield from (process / name for name in ("cwd", "root", "exe"))
    try:
        yield from (process / "fd").iterdir()
    except OSError:
        return
