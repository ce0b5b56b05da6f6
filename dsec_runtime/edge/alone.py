"""One edge for a home."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from dsec_layers.errors import BusyError
from dsec_runtime.edge.config import EdgeConfig


@contextlib.contextmanager
def only_one(config: EdgeConfig) -> Iterator[None]:
    """Hold the home. Raises BusyError when another process does."""
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (config.state / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another edge has {config.home}", hint="name another home with --home"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
        lock.flush()
        yield
