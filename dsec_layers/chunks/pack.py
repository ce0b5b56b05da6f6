"""A pack: many stored chunks in one blob that describes itself (docs/formats/pack.md).

    header | stored chunk | stored chunk | ... | index | footer

The index names every chunk, so chunks can be found, checked and saved without a chunk table.

Which chunk is the last of a pack is said by its own digest, so that a change in one pack leaves the
packs behind it as they were: a rebuilt layer shares them with the one before.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import blake3

from dsec_layers.chunks import constants as c
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.errors import CorruptError
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import PACK_TYPE, Descriptor

PACK_MAGIC: Final = b"DSECPACK"
PACK_END: Final = b"DSECPEND"
PACK_VERSION: Final = 1

_HEADER: Final = struct.Struct("<8sI")  # magic, version
HEADER_BYTES: Final = _HEADER.size
_ENTRY: Final = struct.Struct("<II32s")  # stored length, plain length, digest
_FOOTER: Final = struct.Struct(
    "<32sQI8s"
)  # blake3 of the index, its offset, chunk count, end magic

# A chunk ends its pack when the first eight bytes of its digest, as a number, are below its stored
# length times this.
_END_RATE: Final = (1 << 64) // (c.PACK_TARGET_BYTES - c.PACK_MIN_BYTES)

ReadAt = Callable[[int, int], bytes]  # exactly `length` bytes at `offset` of the pack


class PackedChunk(NamedTuple):
    """One chunk of a pack: where its stored bytes lie, its plain length, its digest."""

    offset: int
    stored_length: int
    length: int
    digest: bytes


class PackWriter:
    """Writes one pack to the new file `path`; the pack is whole after `finish`.

    It is to be finished as soon as it is `full`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb", buffering=1 << 20)
        self._sha256 = hashlib.sha256()
        self._index: list[bytes] = []
        self.size = 0
        self.full = False
        self._write(_HEADER.pack(PACK_MAGIC, PACK_VERSION))

    def append(self, digest: bytes, length: int, stored: bytes) -> int:
        """Add a stored chunk of `length` plain bytes; returns its offset in the pack."""
        offset = self.size
        self._index.append(_ENTRY.pack(len(stored), length, digest))
        self._write(stored)
        self.full = is_full(self.size, digest, len(stored))
        return offset

    def finish(self) -> Descriptor:
        """Write index and footer, close the file and return the descriptor of the blob."""
        index, index_offset = b"".join(self._index), self.size
        self._write(index)
        self._write(
            _FOOTER.pack(blake3.blake3(index).digest(), index_offset, len(self._index), PACK_END)
        )
        self._file.close()
        return Descriptor(PACK_TYPE, str(Digest("sha256", self._sha256.hexdigest())), self.size)

    def abandon(self) -> None:
        """Close and remove a pack that will not be finished."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._sha256.update(data)
        self.size += len(data)


def is_full(size: int, digest: bytes, stored_length: int) -> bool:
    """Whether a pack ends that has `size` bytes with its last chunk, stored in `stored_length`."""
    ends = int.from_bytes(digest[:8], "little") < stored_length * _END_RATE
    return size >= (c.PACK_MIN_BYTES if ends else c.PACK_MAX_BYTES)


def read_index(read: ReadAt, size: int) -> list[PackedChunk]:
    """The chunks of a pack of `size` bytes, in order. Raises CorruptError when it is not sound."""
    if size < _HEADER.size + _FOOTER.size:
        raise CorruptError("pack is shorter than its header and footer")
    magic, version = _HEADER.unpack(read(0, _HEADER.size))
    index_digest, index_offset, count, end = _FOOTER.unpack(read(size - _FOOTER.size, _FOOTER.size))
    if magic != PACK_MAGIC or end != PACK_END or version != PACK_VERSION:
        raise CorruptError(f"not a pack of version {PACK_VERSION}, or cut short")
    if index_offset < _HEADER.size or index_offset + count * _ENTRY.size + _FOOTER.size != size:
        raise CorruptError("the index of the pack is not where its footer says")
    index = read(index_offset, count * _ENTRY.size)
    if blake3.blake3(index).digest() != index_digest:
        raise CorruptError("the index of the pack does not match its digest")
    return list(_entries(index, index_offset))


def read_chunk(read: ReadAt, chunk: PackedChunk) -> bytes:
    """The plain bytes of a chunk, checked. Raises CorruptError."""
    return decode_chunk(read(chunk.offset, chunk.stored_length), chunk.length, chunk.digest)


def _entries(index: bytes, index_offset: int) -> Iterator[PackedChunk]:
    offset = _HEADER.size
    for stored_length, length, digest in _ENTRY.iter_unpack(index):
        if not 0 < stored_length <= length <= c.MAX_CHUNK_BYTES:
            raise CorruptError(
                f"a chunk of the pack has impossible lengths: {length}, stored {stored_length}"
            )
        yield PackedChunk(offset, stored_length, length, digest)
        offset += stored_length
    if offset != index_offset:
        raise CorruptError("the chunks of the pack do not end where its index begins")
