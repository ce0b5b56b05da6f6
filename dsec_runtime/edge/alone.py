"""One edge for a home."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Final

from dsec_layers.errors import BusyError
from dsec_runtime.edge.config import EdgeConfig

# What a killed edge was just starting holds the lock a moment longer (see linux/userns.py).
_PATIENCE_S: Final = 5.0
_POLL_S: Final = 0.05


@contextlib.contextmanager
def only_one(config: EdgeConfig) -> Iterator[None]:
    """Hold the home. Raises BusyError when another process does."""
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (config.state / "lock").open("ab") as lock:
        end_s = time.monotonic() + _PATIENCE_S
        while not _locked(lock.fileno()):
            if time.monotonic() > end_s:
                raise BusyError(
                    f"another edge has {config.home}", hint="name another home with --home"
                )
            time.sleep(_POLL_S)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
        lock.flush()
        yield


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
