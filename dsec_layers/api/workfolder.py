"""Folders for work that is under way, gone when it ends, however it ends.

    DSEC_HOME/making/<what>-XXXXXXXX/   locked (flock) by the process that works in it

A folder whose lock is free was left by a process that was killed; who starts work removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB


@contextlib.contextmanager
def work_folder(home: Path, what: str) -> Iterator[Path]:
    """A new empty folder below `home`, which is made when missing. Raises OSError."""
    parent = home / "making"
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    folder = parent / f"{what}-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        with _locked(parent, fcntl.LOCK_SH):  # no sweep sees the folder before it is locked
            folder.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.enter_context(_locked(folder, fcntl.LOCK_EX))
        yield folder


def _sweep(parent: Path) -> None:
    with contextlib.suppress(BlockingIOError), _locked(parent, _TRY):
        for folder in parent.iterdir():
            with contextlib.suppress(BlockingIOError), _locked(folder, _TRY):
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)
