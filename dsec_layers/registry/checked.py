"""The bytes of a blob on their way, compared with its descriptor once, wherever they pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

from dsec_layers.errors import CorruptError
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry import files

Source = Path | bytes | Iterator[bytes]


class CheckedPieces(Iterator[bytes]):
    """All bytes of a blob in pieces; CorruptError at the end, or before, when they are others.

    What one store streams another stores: between them the bytes are not hashed a second time.
    """

    def __init__(self, blob: Descriptor, given: Iterable[bytes], where: str = "its source") -> None:
        """`where` says in errors whose bytes they are."""
        self.blob = blob
        self._pieces = _compared(blob, given, where)
        self._look: Callable[[bytes], None] | None = None

    def shown(self, look: Callable[[bytes], None]) -> Self:
        """The same, `look` being called with each piece before it goes on. What it raises ends."""
        self._look = look
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        if self._look is not None:
            self._look(piece)
        return piece


def pieces(blob: Descriptor, source: Source) -> CheckedPieces:
    """The bytes of `source`, which may be checked on their way already.

    The iterator raises OSError for a file.
    """
    if isinstance(source, CheckedPieces) and source.blob == blob:
        return source
    if isinstance(source, Path):
        return CheckedPieces(blob, files.read_pieces(source))
    return CheckedPieces(blob, (source,) if isinstance(source, bytes) else source)


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


def _compared(blob: Descriptor, given: Iterable[bytes], where: str) -> Iterator[bytes]:
    hasher, size = hashlib.sha256(), 0
    for piece in given:
        size += len(piece)
        if size > blob.size:
            break
        hasher.update(piece)
        yield piece
    if size != blob.size:
        raise CorruptError(f"blob {blob.digest} has {blob.size} bytes, {where} at least {size}")
    check_digest(blob, hasher.hexdigest(), where)
