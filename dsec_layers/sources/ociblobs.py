"""Documents and blobs of an OCI image, their sizes and digests checked."""

from __future__ import annotations

import hashlib
import io
import re
from typing import Final

import msgspec

from dsec_layers.errors import CorruptError, InvalidInputError
from dsec_layers.sources.compression import Readable
from dsec_layers.sources.ocifiles import Files

MAX_DOCUMENT_BYTES: Final = 1 << 22
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")


class Platform(msgspec.Struct, frozen=True, omit_defaults=True):
    """For which machines an image is."""

    architecture: str = ""
    os: str = ""


class Pointer(msgspec.Struct, frozen=True, rename="camel"):
    """A descriptor as images have it: more fields than our own layers use."""

    digest: str
    size: int
    media_type: str = ""
    platform: Platform | None = None
    annotations: dict[str, str] | None = None
    urls: tuple[str, ...] | None = None


class Hashed:
    """A stream that hashes what passes through it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._hasher = hashlib.sha256()
        self._size = 0

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        piece = self._stream.read(size)
        self._hasher.update(piece)
        self._size += len(piece)
        return piece

    def check(self, digest: str, size: int | None, *, name: str) -> None:
        """Read to the end, then raise CorruptError unless digest and size are as expected."""
        while self.read(1 << 18):
            pass
        found = f"sha256:{self._hasher.hexdigest()}"
        if size is not None and size != self._size:
            raise CorruptError(f"{name} has {self._size} bytes instead of {size}")
        if digest != found:
            raise CorruptError(f"{name} has the digest {found} instead of {digest}")


def blob_name(digest: str) -> str:
    """The name of a blob in a layout. Raises InvalidInputError for digests other than sha256."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise InvalidInputError(f"not a sha256 digest: {digest!r}")
    return f"blobs/sha256/{match[1]}"


def read_document(files: Files, name: str) -> bytes:
    """A whole small file. Raises NotFoundError, or InvalidInputError beyond 4 MiB."""
    with files.open(name) as file:
        data = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidInputError(f"{name} is too large for a document")
    return data


def read_blob(files: Files, pointer: Pointer) -> bytes:
    """A whole small blob, size and digest checked (CorruptError)."""
    data = read_document(files, blob_name(pointer.digest))
    Hashed(io.BytesIO(data)).check(pointer.digest, pointer.size, name=f"blob {pointer.digest}")
    return data
