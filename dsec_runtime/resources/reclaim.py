"""Memory of stopped processes to swap, and back before they go on.

Source: process_madvise(2), /proc/PID/maps in proc(5).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsec_runtime.linux import syscalls

_CHUNK = syscalls.MOST_RANGES


def page_out(pids: Iterable[int]) -> None:
    """Write the memory of these processes to swap, as far as there is room, and drop file pages."""
    _advise(pids, syscalls.MADV_PAGEOUT)


def fetch_ahead(pids: Iterable[int]) -> None:
    """Read it back."""
    _advise(pids, syscalls.MADV_WILLNEED)


def _advise(pids: Iterable[int], advice: int) -> None:
    """A process may end meanwhile, and a range that cannot be advised ends the call with it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            handle = os.pidfd_open(pid)
            try:
                _advise_all(handle, list(ranges(pid)), advice)
            finally:
                os.close(handle)


def _advise_all(handle: int, found: list[tuple[int, int]], advice: int) -> None:
    while found:
        part = found[:_CHUNK]
        try:
            left = syscalls.process_madvise(handle, part, advice)
        except ProcessLookupError:
            return
        except OSError:  # the first range is one that cannot be advised, as one that is locked
            left = 0
        done = 0
        while done < len(part) and left >= part[done][1]:
            left -= part[done][1]
            done += 1
        found = found[max(done, 1) :]


def ranges(pid: int) -> Iterator[tuple[int, int]]:
    """Start and length of the memory that a process may write and shares with no file."""
    for line in Path(f"/proc/{pid}/maps").read_bytes().splitlines():
        span, mode, rest = line.split(b" ", 2)
        if mode.startswith(b"rw") and not rest.endswith((b"[vvar]", b"[vsyscall]")):
            start, end = (int(word, 16) for word in span.split(b"-"))
            yield start, end - start
