"""The bytes of a blob on their way, compared with its descriptor."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from dsec_layers.errors import CorruptError
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry import files

Source = Path | bytes | Iterator[bytes]


def pieces(blob: Descriptor, source: Source) -> Iterator[bytes]:
    """The bytes of `source`; CorruptError at the end, or before, when they are not the blob's.

    Raises OSError for a file.
    """
    given = files.read_pieces(source) if isinstance(source, Path) else source
    hasher, size = hashlib.sha256(), 0
    for piece in (given,) if isinstance(given, bytes) else given:
        size += len(piece)
        if size > blob.size:
            break
        hasher.update(piece)
        yield piece
    if size != blob.size:
        raise CorruptError(f"blob {blob.digest} has {blob.size} bytes, its source at least {size}")
    check_digest(blob, hasher.hexdigest(), "its source")


def check_digest(blob: Descriptor, hexdigest: str, where: str) -> None:
    """Raise CorruptError unless the sha256 of what is `where` is the blob's."""
    if blob.digest != f"sha256:{hexdigest}":
        raise CorruptError(f"blob {blob.digest} is corrupt: {where} has sha256:{hexdigest}")


def wanted_length(blob: Descriptor, offset: int, length: int | None) -> int:
    """How many bytes a range of a blob has. Raises CorruptError when it is not within the blob."""
    wanted = blob.size - offset if length is None else length
    if offset < 0 or wanted < 0 or offset + wanted > blob.size:
        raise CorruptError(f"{blob.digest} has {blob.size} bytes, asked: {offset}+{wanted}")
    return wanted
