"""Signals that end a program, heard whatever its main thread waits for.

Python's handlers run in the main thread, between two of its instructions. A signal that comes right
before that thread begins to wait for another, or that the kernel gives to another, interrupts no
wait: the handler would run when the wait is over, and that may be never.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Collection, Iterator
from typing import Final

_AGAIN_S: Final = 0.1
_hearing: set[int] = set()  # the ends of pipes in use


@contextlib.contextmanager
def heard(numbers: Collection[int], event: threading.Event) -> Iterator[None]:
    """Send each of these signals to the main thread until its handler has set `event`.

    For the main thread, which has set handlers for them.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _hearing.add(writer)
    threading.Thread(target=_follow, args=(reader, numbers, event), daemon=True).start()
    try:
        yield
    finally:
        _hearing.discard(writer)
        signal.set_wakeup_fd(before)
        os.close(writer)


def _follow(reader: int, numbers: Collection[int], event: threading.Event) -> None:
    main = threading.main_thread().ident
    assert main is not None
    with contextlib.closing(os.fdopen(reader, "rb", buffering=0)) as pipe:
        while told := pipe.read(1):
            while told[0] in numbers and not event.wait(_AGAIN_S):
                signal.pthread_kill(main, told[0])


def _leave_to_parent() -> None:
    """A child has the same pipe: its signals would be ours."""
    if _hearing:
        _hearing.clear()
        signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_leave_to_parent)
