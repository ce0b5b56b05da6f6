"""A store that can be told to fail, to lie, to fall short, to be missing things, or to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.manifest import Descriptor

# Blob, offset, length and what the store would say; returns what it says instead, or raises.
Fault = Callable[[Descriptor, int, int | None, bytes], bytes]


@dataclass
class FaultyStore:
    """A BlobReader over another one. `requests` notes (digest, offset, length) of every read."""

    source: BlobReader
    fault: Fault | None = None
    requests: list[tuple[str, int, int | None]] = field(default_factory=list)

    def has(self, blob: Descriptor) -> bool:
        return self.source.has(blob)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        self.requests.append((blob.digest, offset, length))
        data = self.source.read(blob, offset, length)
        return self.fault(blob, offset, length, data) if self.fault else data

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        yield self.read(blob)


class Gate:
    """A fault that makes every read wait, after announcing itself, until the gate opens."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._arrived = threading.Semaphore(0)

    def __call__(self, blob: Descriptor, offset: int, length: int | None, data: bytes) -> bytes:
        self._arrived.release()
        assert self._open.wait(60), "the gate was never opened"
        return data

    def await_arrivals(self, count: int = 1) -> None:
        """Wait until `count` more reads stand at the gate."""
        for _ in range(count):
            assert self._arrived.acquire(timeout=60), "no read came to the gate"

    def open(self) -> None:
        """Let everybody through from now on."""
        self._open.set()
