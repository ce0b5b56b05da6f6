"""Stopping work that other threads do: what takes long asks here whether it is still wanted.

A signal interrupts the main thread only. A thread of ours that works for a build is told by an
event, which its loops look at between two files, pieces or attempts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar

_event: ContextVar[threading.Event | None] = ContextVar("cancelling", default=None)


def event() -> threading.Event | None:
    """What stops the work of this thread when it is set; None when nothing does."""
    return _event.get()


@contextlib.contextmanager
def by(stop: threading.Event) -> Iterator[None]:
    """Let `stop` end what this thread does in the block."""
    token = _event.set(stop)
    try:
        yield
    finally:
        _event.reset(token)


def check() -> None:
    """Raise InterruptedError when the work of this thread is no longer wanted."""
    stop = _event.get()
    if stop is not None and stop.is_set():
        raise InterruptedError("this work was stopped")
