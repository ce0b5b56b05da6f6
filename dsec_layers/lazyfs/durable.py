"""Files that appear whole or not at all: written aside, synced if it matters, renamed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsec_layers.errors import DISK_FULL, NoSpaceError
from dsec_layers.linux import procinfo

_SUFFIX = ".aside"
_counter = itertools.count()


def write_whole(path: Path, pieces: Iterable[bytes], *, sync: bool = True) -> None:
    """Put the bytes of `pieces` at `path`, replacing what is there.

    Without `sync` a crash of the machine, though not of a process, may leave it cut short or empty:
    for what is checked when it is read and can be had again.

    When `pieces` raises, or on any failure, `path` keeps what it held. The file aside is named
    after its writer, so that `sweep` knows a file in the making from what a killed writer left.
    Raises NoSpaceError or OSError.
    """
    aside = path.with_name(f".{path.name}-{next(_counter)}-{_writer(os.getpid())}{_SUFFIX}")
    try:
        with _no_space_named(path), aside.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        aside.rename(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@functools.cache
def _writer(pid: int) -> str:
    return f"{pid}-{procinfo.start_ticks(pid)}"


def sweep(folder: Path) -> None:
    """Remove what killed writers left in `folder`."""
    for aside in folder.glob(f".*{_SUFFIX}"):
        pid, _, start = aside.name.removesuffix(_SUFFIX).rpartition("-")
        pid = pid.rpartition("-")[2]
        if not (pid.isdigit() and str(procinfo.start_ticks(int(pid))) == start):
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def _no_space_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise NoSpaceError(
                f"no space left to write {path}", hint=f"free some space below {path.parent}"
            ) from error
        raise
