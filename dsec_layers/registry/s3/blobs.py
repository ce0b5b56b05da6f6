"""Blobs as objects, `packs/<hh>/<64 hex>` and `blobs/<hh>/<64 hex>`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.errors import NotFoundError, StoreError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.registry import checked, files
from dsec_layers.registry.naming import GENERIC_TYPE, blob_name
from dsec_layers.registry.s3.bucket import Bucket, Found, Refused
from dsec_layers.registry.s3.reading import read_range
from dsec_layers.registry.s3.uploading import Uploads

SMALL_BYTES: Final = 1 << 20  # what needs no turn among the large ones
_NAME: Final = re.compile(r"(?:packs|blobs)/[0-9a-f]{2}/([0-9a-f]{64})")


class S3Blobs:
    """The blobs of a store in a bucket. Implements `BlobReader` and `BlobWriter`."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.url = bucket.url
        self.uploads = Uploads(bucket)
        self._absent: set[str] = set()

    def close(self) -> None:
        """End the threads that send."""
        self.uploads.close()

    def has(self, blob: Descriptor) -> bool:
        """See `BlobReader.has`. An object of another size does not count."""
        found = self.bucket.head(blob_name(blob))
        if found is None:
            self._absent.add(blob.digest)
        return found is not None and found.size == blob.size

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """See `BlobReader.read`."""
        wanted = checked.wanted_length(blob, offset, length)
        if not wanted and blob.size:
            self._stat(blob)
            return b""
        data = b"".join(read_range(self.bucket, blob_name(blob), blob, offset, wanted))
        if wanted == blob.size:
            checked.check_digest(blob, hashlib.sha256(data).hexdigest(), self.url)
        return data

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """See `BlobReader.stream`."""
        sent = read_range(self.bucket, blob_name(blob), blob, 0, blob.size)
        return checked.CheckedPieces(blob, sent, self.url)

    def put(self, blob: Descriptor, source: checked.Source, *, consume: bool = False) -> bool:
        """See `BlobWriter.put`. Any number of writers may put the same blob at once."""
        name = blob_name(blob)
        found, written = self._before(blob), False
        with files.explained(f"cannot write {name} in {self.url}"):
            if found is None or found.size != blob.size:
                written = self._write(name, blob, source, absent=found is None)
            if consume and isinstance(source, Path):
                source.unlink(missing_ok=True)
        return written

    def delete(self, blob: Descriptor) -> None:
        """See `Store.delete`."""
        self.bucket.delete(blob_name(blob))

    def blobs(self) -> Iterator[Descriptor]:
        """All blobs, packs first; the media type is that of a pack or the generic one."""
        for media_type, folder in ((PACK_TYPE, "packs/"), (GENERIC_TYPE, "blobs/")):
            for found in self.bucket.list(folder):
                if match := _NAME.fullmatch(found.name):
                    yield Descriptor(media_type, f"sha256:{match[1]}", found.size)

    def renewed(self, blob: Descriptor) -> float:
        """When the blob was last put or renewed, by the server's clock, in seconds since the epoch.

        Raises NotFoundError or StoreError.
        """
        return self._stat(blob)[1]

    def renew(self, blob: Descriptor) -> None:
        """Make that now. Raises NotFoundError or StoreError."""
        if not self.bucket.touch(blob_name(blob)):
            raise self._missing(blob)

    def _before(self, blob: Descriptor) -> Found | None:
        """What stands where a blob shall be.

        What `has` did not find is not looked for again: that it is still so is a condition of the
        write.
        """
        if blob.digest in self._absent:
            self._absent.discard(blob.digest)
            return None
        return self.bucket.head(blob_name(blob))

    def _stat(self, blob: Descriptor) -> tuple[int, float]:
        """Size and time."""
        found = self.bucket.head(blob_name(blob))
        if found is None:
            raise self._missing(blob)
        return found.size, found.modified_s

    def _missing(self, blob: Descriptor) -> NotFoundError:
        return NotFoundError(f"no blob {blob.digest} in {self.url}")

    def _write(self, name: str, blob: Descriptor, source: checked.Source, *, absent: bool) -> bool:
        """Whether we wrote it: another writer of the same blob may have been first."""
        pieces = checked.pieces(blob, source)
        try:
            if blob.size <= SMALL_BYTES:
                self.bucket.put(name, b"".join(pieces), absent=absent)
            else:
                self.uploads.send(name, blob.size, pieces, absent=absent)
        except Refused:
            if self.has(blob):
                return False
            text = f"{self.url}: something else has been written to {name} meanwhile"
            raise StoreError(text, hint="try again") from None
        return True
