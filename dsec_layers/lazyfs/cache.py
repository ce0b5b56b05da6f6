"""The chunk cache on disk, shared by all layers of a node.

    <folder>/<2 hex>/<62 hex>   a plain chunk named by its blake3, then its check values
    <folder>/aside/             chunks being written

The files are the whole state. A chunk is used recently when its mtime says so, whoever asks next
and after whatever crash; memory holds no list of them. Nothing is synced: what a crash cuts short
fails its check values, which are seeded by the name (checksums.py), and is fetched again.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.errors import DISK_FULL, CorruptError
from dsec_layers.lazyfs.checksums import PIECE_BYTES, pieces, sums_bytes, sums_of
from dsec_layers.linux import procinfo

_ASIDE: Final = "aside"
_SHARDS: Final = 256
_LOW_WATER: Final = (
    0.95  # an eviction goes down to this part of the limit, so that the next one is far
)
_NO_SPACE_STEP_BYTES: Final = 16 << 20
_log = logging.getLogger(__name__)


class ChunkCache:
    """Plain chunks by 32-byte digest, at most about `limit_bytes`. Safe for many threads.

    A chunk that is read counts as used again when its last use is older than `touch_after_s`.
    """

    def __init__(self, folder: Path, limit_bytes: int, *, touch_after_s: float = 60.0) -> None:
        self.limit_bytes = limit_bytes
        self.evicted_chunks = 0
        self._folder = str(folder)
        self._touch_after_ns = int(touch_after_s * 1e9)
        self._counter = itertools.count()
        self._lock = threading.Lock()
        self._evicting = threading.Lock()
        self._scanned = False
        self._used = 0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _ASIDE).mkdir(exist_ok=True)

    @property
    def used_bytes(self) -> int | None:
        """What the chunks take; None before `scan`."""
        return self._used if self._scanned else None

    def scan(self) -> None:
        """Find out what is there and evict what is too much. Called once, beside the work.

        The folders are made first: in a new home each would hold up a fetch, on ext4 by several
        reads of the disk.
        """
        for shard in range(_SHARDS):
            Path(f"{self._folder}/{shard:02x}").mkdir(exist_ok=True)
        found = sum(size for _, size, _ in self._entries())
        with self._lock:
            self._used = found
            self._scanned = True
        self._keep_limit()

    def sweep(self) -> None:
        """Remove what killed processes left half-written. Called before this one writes."""
        for path in (Path(self._folder) / _ASIDE).iterdir():
            pid = int(path.name.partition("-")[0])
            if pid == os.getpid() or procinfo.start_ticks(pid) is None:
                path.unlink(missing_ok=True)

    def has(self, digest: bytes) -> bool:
        """Whether there is an entry; it may still prove corrupt."""
        return os.access(self._path(digest), os.F_OK)

    def load(
        self, digest: bytes, length: int, start: int = 0, end: int | None = None
    ) -> memoryview | None:
        """The checked bytes `start` to `end` of the chunk of `length` bytes, or None.

        Raises CorruptError for an entry that is damaged or cannot be read; it has been removed.
        """
        end = length if end is None else end
        path = self._path(digest)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        size = 0
        try:
            size = self._touched(fd)
            found = _checked(fd, digest, length, start, end) if size == _size(length) else None
        except OSError as error:
            _log.warning("cannot read %s: %s", path, error)
            found = None
        finally:
            os.close(fd)
        if found is None:
            self._remove(path, size)
            raise CorruptError(f"cached chunk {path} is damaged")
        return found

    def store(self, digest: bytes, chunk: bytes | memoryview) -> bool:
        """Keep a chunk; False when that is impossible. A full disk loses older chunks first."""
        try:
            self._write(digest, chunk)
        except OSError as error:
            if error.errno not in DISK_FULL or not self._evict(len(chunk) + _NO_SPACE_STEP_BYTES):
                _log.warning("chunk stays uncached: %s", error)
                return False
            try:
                self._write(digest, chunk)
            except OSError as again:
                _log.warning("chunk stays uncached, after an eviction too: %s", again)
                return False
        with self._lock:
            self._used += _size(len(chunk))
        self._keep_limit()
        return True

    def discard(self, digest: bytes) -> None:
        """Remove a chunk, if it is there."""
        path = self._path(digest)
        with contextlib.suppress(FileNotFoundError):
            self._remove(path, os.stat(path).st_size)  # noqa: PTH116

    def clear(self) -> None:
        """Remove every chunk."""
        for _, size, path in self._entries():
            self._remove(path, size)

    def _path(self, digest: bytes) -> str:
        name = digest.hex()
        return f"{self._folder}/{name[:2]}/{name[2:]}"

    def _touched(self, fd: int) -> int:
        """The size of an entry that is being used."""
        now, status = time.time_ns(), os.fstat(fd)
        if now - status.st_mtime_ns > self._touch_after_ns:
            os.utime(fd, ns=(now, now))
        return status.st_size

    def _write(self, digest: bytes, chunk: bytes | memoryview) -> None:
        path = self._path(digest)
        aside = f"{self._folder}/{_ASIDE}/{os.getpid()}-{next(self._counter)}"
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                written = os.writev(fd, (chunk, sums_of(digest, chunk)))
            finally:
                os.close(fd)
            if written != _size(len(chunk)):
                raise OSError(errno.ENOSPC, "no space for the whole chunk", path)
            try:
                os.rename(aside, path)  # noqa: PTH104 - measured: half of the cost of a Path
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
                os.rename(aside, path)  # noqa: PTH104
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)  # noqa: PTH108
            raise

    def _remove(self, path: str, size: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
            with self._lock:
                self._used -= size

    def _keep_limit(self) -> None:
        """Again after each eviction: others have stored meanwhile, and left it to this thread."""
        while self._scanned and self._used > self.limit_bytes:
            if not self._evict(self._used - int(self.limit_bytes * _LOW_WATER)):
                return

    def _evict(self, need_bytes: int) -> bool:
        """Remove the least recently used chunks, `need_bytes` of them; whether any went.

        One thread at a time; the others go on without.
        """
        if not self._evicting.acquire(blocking=False):
            return False
        try:
            before = self._used
            total, oldest = self._oldest(need_bytes)
            with self._lock:  # what was stored meanwhile may count twice until the next time
                self._used += total - before
            for _, size, path in oldest:
                self._remove(path, size)
        finally:
            self._evicting.release()
        self.evicted_chunks += len(oldest)
        if oldest:
            _log.info("evicted %d chunks", len(oldest))
        return bool(oldest)

    def _oldest(self, need_bytes: int) -> tuple[int, list[tuple[int, int, str]]]:
        """The size of all entries, and the oldest ones that together reach `need_bytes`.

        Memory is bounded by the latter.
        """
        newest_first: list[tuple[int, int, str]] = []
        total = held = 0
        for mtime_ns, size, path in self._entries():
            total += size
            heapq.heappush(newest_first, (-mtime_ns, size, path))
            held += size
            while held - newest_first[0][1] >= need_bytes:
                held -= heapq.heappop(newest_first)[1]
        return total, newest_first

    def _entries(self) -> Iterator[tuple[int, int, str]]:
        """(mtime in ns, size, path) of every chunk."""
        for shard in range(_SHARDS):
            try:
                entries = os.scandir(f"{self._folder}/{shard:02x}")
            except FileNotFoundError:
                continue
            with entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat()
                        yield status.st_mtime_ns, status.st_size, entry.path


def default_limit_bytes(folder: Path) -> int:
    """A quarter of the disk that holds `folder`, at most 64 GiB."""
    return min(64 << 30, shutil.disk_usage(folder).total // 4)


def _size(length: int) -> int:
    return length + sums_bytes(length)


def _checked(fd: int, digest: bytes, length: int, start: int, end: int) -> memoryview | None:
    """These bytes of an entry; None when they, or their check values, are damaged."""
    first, last = pieces(length, start, end)
    low, high = length + sums_bytes(first), length + sums_bytes(last)  # of their check values
    if last == length:
        data = memoryview(os.pread(fd, high - first, first))
        plain, sums = data[: last - first], data[low - first :]
    else:
        plain = memoryview(os.pread(fd, last - first, first))
        sums = memoryview(os.pread(fd, high - low, low))
    if sums_of(digest, plain, first // PIECE_BYTES) != sums or len(plain) != last - first:
        return None
    return plain[start - first : end - first]
