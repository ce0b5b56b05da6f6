"""A lock among nodes that needs only link(2) and rename(2), and survives crashed holders.

flock and fcntl locks cannot be relied on across the nodes of a cluster file system. Here the lock
is a file that holds its owner's random token; link(2) to a name that exists fails, so one writer
gets it. Clocks of different nodes are never compared: who finds the same token for a whole lease,
by its own monotonic clock, takes the holder for crashed and renames its own token over it. Two who
do so at once both wait a moment and look whose token stands there (Fischer's algorithm). A holder
must `check` right before it commits, and refuses itself after half a lease.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from dsec_layers.errors import BusyError
from dsec_layers.registry import files


class Timing(msgspec.Struct, frozen=True):
    """How long things take, and the clock that measures them (tests bring their own)."""

    lease_s: float = 10.0
    settle_s: float = 1.0
    patience_s: float = 60.0
    poll_s: float = 0.005
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Lease(msgspec.Struct, frozen=True):
    """A held lock."""

    path: Path
    token: bytes
    expires: float
    clock: Callable[[], float]

    def check(self) -> None:
        """Raise BusyError when the lock is lost or about to be: do not commit then."""
        if self.clock() >= self.expires or _token(self.path) != self.token:
            raise BusyError(f"lost the lock {self.path} while holding it", hint="try again")


@contextlib.contextmanager
def hold(path: Path, root: Path, timing: Timing | None = None) -> Iterator[Lease]:
    """Hold the lock `path`, below `root`, for a moment. Raises BusyError or OSError."""
    timing = timing or Timing()
    token = secrets.token_hex(16).encode()
    _acquire(path, root, token, timing)
    lease = Lease(path, token, timing.clock() + timing.lease_s / 2, timing.clock)
    try:
        yield lease
    finally:
        if _token(path) == token:
            path.unlink(missing_ok=True)


def _acquire(path: Path, root: Path, token: bytes, timing: Timing) -> None:
    seen, since = b"", 0.0
    deadline = timing.clock() + timing.patience_s
    with files.aside(path.parent, root) as (fd, temporary):
        files.write_all(fd, token)
        os.fsync(fd)
        while not files.link_if_absent(temporary, path):
            now, holder = timing.clock(), _token(path)
            if holder != seen:
                seen, since = holder, now
            elif now - since >= timing.lease_s and _take_over(path, temporary, token, timing):
                return
            if now >= deadline:
                raise BusyError(
                    f"the lock {path} is held by others",
                    hint="try again; a crashed holder expires by itself",
                )
            timing.sleep(timing.poll_s)


def _take_over(path: Path, temporary: Path, token: bytes, timing: Timing) -> bool:
    rival = temporary.with_name(temporary.name + "-takeover")
    os.link(temporary, rival)
    rival.replace(path)
    timing.sleep(timing.settle_s)
    return _token(path) == token


def _token(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
