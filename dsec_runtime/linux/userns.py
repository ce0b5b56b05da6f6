"""User namespaces as descriptors, for mounts that show other ids than are on disk."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
_CLONE_VM: Final = 0x100
_CLONE_NEWUSER: Final = 0x10000000
_WALL: Final = 0x40000000  # waits for children that end without a signal too
_STACK_BYTES: Final = 65536
OUTLIVES_S: Final = 2  # how long a killed process's descriptors may stay open
_ALIGNED: Final = ~0xF

Lines = tuple[tuple[int, int, int], ...]


class UserNamespaces:
    """Makes them, and keeps the `most` that were used last for who wants the same. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Lines, int] = OrderedDict()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def of(self, lines: Lines) -> Iterator[int]:
        """As the function `userns`; one that is there already may serve again."""
        with self._lock:
            kept = self._kept.get(lines)
            found = None if kept is None else os.dup(kept)
        if found is None:
            with userns(lines) as made:
                found = os.dup(made)
        try:
            yield found
        finally:
            self._keep(lines, found)

    def close(self) -> None:
        """Keep none."""
        with self._lock:
            while self._kept:
                os.close(self._kept.popitem()[1])

    def _keep(self, lines: Lines, fd: int) -> None:
        with self._lock:
            replaced = self._kept.pop(lines, None)
            self._kept[lines] = fd
            if replaced is None and len(self._kept) > self._most:
                _, replaced = self._kept.popitem(last=False)
        if replaced is not None:
            os.close(replaced)


@contextlib.contextmanager
def userns(lines: Lines) -> Iterator[int]:
    """A descriptor of a new user namespace with these lines (inside, outside, count) of both maps.

    It ends with the block, but for mounts that were made with it. Raises OSError.
    """
    content = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in lines)
    with _dweller() as proc:
        for name in ("uid_map", "gid_map"):
            _write(f"{proc}/{name}", content.encode())
        fd = os.open(f"{proc}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _dweller() -> Iterator[str]:
    """/proc/PID of a process in a new user namespace.

    A namespace needs a process to be mapped. This one costs a fiftieth of a program's start: it
    shares our memory, runs the C library's sleep on a stack of its own, and is killed in it, so
    that it touches nothing. When we are killed first it holds our descriptors till it wakes.
    """
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    top = (ctypes.addressof(stack) + _STACK_BYTES) & _ALIGNED
    sleep = ctypes.cast(_libc.sleep, ctypes.c_void_p)
    pid = _libc.clone(sleep, top, _CLONE_NEWUSER | _CLONE_VM, OUTLIVES_S)
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"clone: {os.strerror(number)}")
    try:
        yield f"/proc/{pid}"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, _WALL)


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
