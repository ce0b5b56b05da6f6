"""A cache of open files, since opening one costs a round trip on a cluster file system."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict


class Handle:
    """An open file: its descriptor and its size in bytes when it was opened."""

    __slots__ = ("dropped", "fd", "size", "users")

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.fd).st_size
        self.users = 1
        self.dropped = False

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`, fewer only at the end of the file. Raises OSError."""
        data = os.pread(self.fd, length, offset)
        if len(data) in (0, length):
            return data
        # one call moves at most 2 GiB
        return data + self.read(offset + len(data), length - len(data))


class HandleCache:
    """Keeps the `limit` most recently used files open. Thread-safe."""

    def __init__(self, limit: int = 128) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._handles: OrderedDict[str, Handle] = OrderedDict()

    def take(self, path: str) -> Handle:
        """Open `path`, or take it from the cache. Give it back afterwards. Raises OSError."""
        with self._lock:
            if known := self._handles.get(path):
                self._handles.move_to_end(path)
                known.users += 1
                return known
        handle = Handle(path)
        with self._lock:
            if other := self._handles.get(path):  # another thread opened it meanwhile
                os.close(handle.fd)
                other.users += 1
                return other
            self._handles[path] = handle
            while len(self._handles) > self._limit:
                self._release(self._handles.popitem(last=False)[1])
        return handle

    def give_back(self, handle: Handle) -> None:
        """End the use of a handle; a dropped one is closed by its last user."""
        with self._lock:
            handle.users -= 1
            self._close_if_unused(handle)

    def drop(self, path: str) -> None:
        """Forget `path`, so that its next reader opens it anew."""
        with self._lock:
            if handle := self._handles.pop(path, None):
                self._release(handle)

    def close(self) -> None:
        """Forget all."""
        with self._lock:
            while self._handles:
                self._release(self._handles.popitem()[1])

    def __del__(self) -> None:
        self.close()

    def _release(self, handle: Handle) -> None:
        handle.dropped = True
        self._close_if_unused(handle)

    @staticmethod
    def _close_if_unused(handle: Handle) -> None:
        if handle.dropped and not handle.users:
            os.close(handle.fd)
