"""A store behind a slow line: latency for each request, one bandwidth for all threads.

    shaped+dir:///path?latency_ms=5&mb_s=100&counters=/path/to/file

wraps the store `dir:///path` (any scheme of `open_store` may follow the plus). Other processes get
it by DSEC_STORE_PLUGINS=bench.shaper, with the root of the repository on PYTHONPATH. The optional
counters file is shared by all that open it: see `Counters`. 1 MB is 10**6 bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.urls import open_store, register

PREFIX = "shaped+"
_COUNTERS = struct.Struct("<QQ")


class Counters:
    """Requests made and bytes moved, kept in a file when several processes count together."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        if path is None:
            self._fd = os.memfd_create("counters")
        else:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with self._exclusive():
            if os.fstat(self._fd).st_size == 0:
                os.ftruncate(self._fd, _COUNTERS.size)
        self._memory = mmap.mmap(self._fd, _COUNTERS.size)

    @property
    def requests(self) -> int:
        """How many requests were made."""
        return int(_COUNTERS.unpack_from(self._memory)[0])

    @property
    def bytes(self) -> int:
        """How many bytes of blobs went over the line, both ways."""
        return int(_COUNTERS.unpack_from(self._memory)[1])

    def add(self, requests: int, amount_bytes: int) -> None:
        """Count."""
        with self._exclusive():
            _COUNTERS.pack_into(
                self._memory, 0, self.requests + requests, self.bytes + amount_bytes
            )

    def close(self) -> None:
        """Close the file."""
        self._memory.close()
        os.close(self._fd)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._lock:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)


class Line:
    """All threads share it: a request waits its latency, its bytes wait for those before them."""

    def __init__(
        self,
        latency_s: float,
        bytes_per_s: float,
        counters: Counters,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._latency_s = latency_s
        self._bytes_per_s = bytes_per_s
        self._counters = counters
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = 0.0

    def request(self) -> None:
        """Wait for one round trip."""
        self._counters.add(1, 0)
        self._sleep(self._latency_s)

    def carry(self, amount_bytes: int) -> None:
        """Wait until so many bytes have passed."""
        self._counters.add(0, amount_bytes)
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + amount_bytes / self._bytes_per_s
            wait = self._free_at - now
        self._sleep(wait)


@dataclass(frozen=True, slots=True)
class ShapedStore:
    """Implements `Store` by `store` at the far end of `line`."""

    url: str
    store: Store
    line: Line

    def has(self, blob: Descriptor) -> bool:
        """One request."""
        self.line.request()
        return self.store.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """One request and its bytes."""
        self.line.request()
        data = self.store.read(blob, offset, length)
        self.line.carry(len(data))
        return data

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """One request and its bytes."""
        self.line.request()
        yield from self._carried(self.store.stream(blob))

    def put(
        self, blob: Descriptor, source: Path | bytes | Iterator[bytes], *, consume: bool = False
    ) -> bool:
        """One request and its bytes."""
        self.line.request()
        if isinstance(source, Path | bytes):
            written = self.store.put(blob, source, consume=consume)
            self.line.carry(blob.size if written else 0)
            return written
        return self.store.put(blob, self._carried(source))

    def delete(self, blob: Descriptor) -> None:
        """One request."""
        self.line.request()
        self.store.delete(blob)

    def blobs(self) -> Iterator[Descriptor]:
        """One request."""
        self.line.request()
        yield from self.store.blobs()

    def resolve(self, reference: Reference) -> Descriptor:
        """One request."""
        self.line.request()
        return self.store.resolve(reference)

    def tagged(self, reference: Reference) -> Descriptor:
        """One request."""
        self.line.request()
        return self.store.tagged(reference)

    def tag(
        self,
        reference: Reference,
        target: Descriptor,
        *,
        expected: Descriptor | bool | None = False,
    ) -> None:
        """One request."""
        self.line.request()
        self.store.tag(reference, target, expected=expected)

    def untag(self, reference: Reference) -> None:
        """One request."""
        self.line.request()
        self.store.untag(reference)

    def tags(
        self, kind: Kind | None = None, name: str | None = None
    ) -> Iterator[tuple[Reference, Descriptor]]:
        """One request."""
        self.line.request()
        yield from self.store.tags(kind, name)

    def referrers(self, subject: Descriptor) -> Iterator[Descriptor]:
        """One request."""
        self.line.request()
        yield from self.store.referrers(subject)

    def attach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """One request."""
        self.line.request()
        self.store.attach(subject, referrer)

    def detach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """One request."""
        self.line.request()
        self.store.detach(subject, referrer)

    def _carried(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.line.carry(len(piece))
            yield piece


def open_shaped(url: str, create: bool = False) -> ShapedStore:
    """Open a `shaped+...` URL; see the top of this file. Raises InvalidInputError or StoreError."""
    query = parse_qs(urlsplit(url).query, strict_parsing=True)
    unknown = query.keys() - {"latency_ms", "mb_s", "counters"}
    if unknown:
        raise InvalidInputError(f"unknown parameters in {url}: {', '.join(sorted(unknown))}")
    latency_s = float(query.get("latency_ms", ["0"])[0]) / 1e3
    bytes_per_s = float(query.get("mb_s", ["inf"])[0]) * 1e6
    counters = Counters(Path(query["counters"][0]) if "counters" in query else None)
    inner = open_store(url.partition("?")[0].removeprefix(PREFIX), create=create)
    return ShapedStore(url, inner, Line(latency_s, bytes_per_s, counters))


for _scheme in ("dir", "threefs"):
    register(PREFIX + _scheme, open_shaped)
