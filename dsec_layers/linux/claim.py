"""Folders for work that is under way: locked (flock) by the process that works in them.

One whose lock is free was left by a process that was killed; whoever starts work next sweeps it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dsec_layers.linux import cancelling

Discard = Callable[[Path], None]
_POLL_S = 0.02


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that can be."""
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked(folder: Path, how: int) -> Iterator[int]:
    """`opened`, with a lock as for flock(2). Raises OSError (BlockingIOError with LOCK_NB).

    Waiting for it ends with InterruptedError when the work of this thread is stopped.
    """
    with opened(folder) as fd:
        _lock(fd, how)
        yield fd


def _lock(fd: int, how: int) -> None:
    if how & fcntl.LOCK_NB or cancelling.event() is None:
        fcntl.flock(fd, how)
        return
    while True:  # no signal ends a wait of the kernel in a thread that is not the main one
        cancelling.check()
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            return
        time.sleep(_POLL_S)


@contextlib.contextmanager
def new_folder(parent: Path, prefix: str = "", discard: Discard = remove) -> Iterator[Path]:
    """A new empty folder below `parent`, which is made when missing; discarded at the end.

    Raises OSError.
    """
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / f"{prefix}{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        with locked(parent, fcntl.LOCK_SH):  # no sweep sees the folder before it is locked
            folder.mkdir(mode=0o700)
            stack.callback(discard, folder)
            stack.enter_context(locked(folder, fcntl.LOCK_EX))
        yield folder


def sweep(parent: Path, pattern: str = "*", discard: Discard = remove) -> None:
    """Discard the folders that killed processes left below `parent`. Raises OSError."""
    if not parent.is_dir():
        return
    with locked(parent, fcntl.LOCK_EX):
        for folder in parent.glob(pattern):
            with (
                contextlib.suppress(BlockingIOError),
                locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB),
            ):
                discard(folder)
