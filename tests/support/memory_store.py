"""A store of blobs in memory, as strict as a real one, which also notes the order of its puts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor


@dataclass
class MemoryStore:
    """Implements `BlobReader` and `BlobWriter`. `written` lists the blobs whose bytes were new."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    written: list[Descriptor] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def has(self, blob: Descriptor) -> bool:
        return blob.digest in self.blobs

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        try:
            data = self.blobs[blob.digest]
        except KeyError as error:
            raise NotFoundError(f"no blob {blob.digest}") from error
        end = len(data) if length is None else offset + length
        if end > len(data):
            raise CorruptError(f"blob {blob.digest} is too short")
        return data[offset:end]

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        data = self.read(blob)
        yield data
        if str(Digest.sha256(data)) != blob.digest:
            raise CorruptError(f"blob {blob.digest} does not match its digest")

    def put(
        self, blob: Descriptor, source: Path | bytes | Iterator[bytes], *, consume: bool = False
    ) -> bool:
        if isinstance(source, Path):
            data = source.read_bytes()
            if consume:
                source.unlink()
        else:
            data = source if isinstance(source, bytes) else b"".join(source)
        if len(data) != blob.size or str(Digest.sha256(data)) != blob.digest:
            raise CorruptError(f"what is put as {blob.digest} is something else")
        with self._lock:
            if blob.digest in self.blobs:
                return False
            self.blobs[blob.digest] = data
            self.written.append(blob)
        return True
