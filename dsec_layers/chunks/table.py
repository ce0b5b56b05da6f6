"""The chunk table: which bytes of which pack hold each chunk of a device.

The format is described to the byte in docs/formats/chunk-table.md.

In memory a table is the packed records themselves and one array of device offsets: 68 bytes a
chunk, some 250 KiB for a layer of a gigabyte.
"""

from __future__ import annotations

import bisect
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dsec_layers.chunks.constants import MAX_CHUNK_BYTES
from dsec_layers.errors import CorruptError

TABLE_MAGIC: Final = b"DSECTBL\n"
TABLE_VERSION: Final = 1

_HEADER: Final = struct.Struct("<8sIIQQ")  # magic, version, pack count, chunk count, device size
_PACK: Final = struct.Struct("<32sQ")  # sha256, size
_RECORD: Final = struct.Struct(
    "<QQIII32s"
)  # device offset, pack offset, length, stored length, pack index, digest


class PackRef(NamedTuple):
    """A pack as the table names it: the 32 bytes of its sha256 and its size in bytes."""

    sha256: bytes
    size: int


class Chunk(NamedTuple):
    """One chunk. Lengths and offsets are bytes; `pack` counts the packs of the manifest from 0.

    `stored_length` equals `length` when the chunk is stored plain, else it is the smaller length of
    its zstd frame.
    """

    device_offset: int
    pack_offset: int
    length: int
    stored_length: int
    pack: int
    digest: bytes

    @property
    def device_end(self) -> int:
        """The device offset after the chunk."""
        return self.device_offset + self.length


class ChunkTable(Sequence[Chunk]):
    """The chunks of a device in order, without gaps; `packs` are the manifest's, in order."""

    __slots__ = ("_offsets", "_records", "device_bytes", "packs")

    def __init__(self, packs: Sequence[PackRef], chunks: Iterable[Chunk]) -> None:
        """Build a table. Raises CorruptError when chunks leave gaps, overlap or lie in no pack."""
        self.packs = tuple(packs)
        self._records = b"".join(_RECORD.pack(*chunk) for chunk in chunks)
        self._offsets, self.device_bytes = _check(self._records, self.packs)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> ChunkTable:
        """Parse a table. Raises CorruptError for anything that `encode` would not have written."""
        view = memoryview(data)
        if len(view) < _HEADER.size:
            raise CorruptError("chunk table is shorter than its header")
        magic, version, pack_count, chunk_count, device_bytes = _HEADER.unpack_from(view)
        if magic != TABLE_MAGIC or version != TABLE_VERSION:
            raise CorruptError(
                f"not a chunk table of version {TABLE_VERSION}: {magic!r} version {version}"
            )
        records_at = _HEADER.size + pack_count * _PACK.size
        if len(view) != records_at + chunk_count * _RECORD.size:
            raise CorruptError("chunk table is longer or shorter than its counts say")
        table = cls.__new__(cls)
        table.packs = tuple(map(PackRef._make, _PACK.iter_unpack(view[_HEADER.size : records_at])))
        table._records = bytes(view[records_at:])
        table._offsets, table.device_bytes = _check(table._records, table.packs)
        if table.device_bytes != device_bytes:
            raise CorruptError("the chunks of the table do not fill the device")
        return table

    def encode(self) -> bytes:
        """The bytes of the table, to be compressed into its blob."""
        header = _HEADER.pack(
            TABLE_MAGIC, TABLE_VERSION, len(self.packs), len(self), self.device_bytes
        )
        return header + b"".join(_PACK.pack(*pack) for pack in self.packs) + self._records

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> Chunk:  # type: ignore[override]  # single chunks only, slices are not needed
        """The chunk with this number. Raises IndexError."""
        count = len(self._offsets)
        if not -count <= index < count:
            raise IndexError(index)
        return Chunk._make(_RECORD.unpack_from(self._records, index % count * _RECORD.size))

    def __iter__(self) -> Iterator[Chunk]:
        return map(Chunk._make, _RECORD.iter_unpack(self._records))

    def index_at(self, device_offset: int) -> int:
        """The number of the chunk that holds this byte. Raises IndexError beyond the device."""
        if not 0 <= device_offset < self.device_bytes:
            raise IndexError(
                f"offset {device_offset} is not on a device of {self.device_bytes} bytes"
            )
        return bisect.bisect_right(self._offsets, device_offset) - 1

    def covering(self, device_offset: int, length: int) -> range:
        """The numbers of the chunks that hold `length` > 0 bytes. Raises IndexError."""
        return range(self.index_at(device_offset), self.index_at(device_offset + length - 1) + 1)


def _check(records: bytes, packs: tuple[PackRef, ...]) -> tuple[array[int], int]:
    """The device offsets of all records and the end of the last. Raises CorruptError."""
    offsets = array("Q")
    expected = 0
    for number, record in enumerate(_RECORD.iter_unpack(records)):
        offset, pack_offset, length, stored_length, pack, _ = record
        if offset != expected:
            raise CorruptError(
                f"chunk {number} begins at {offset} of the device, not at {expected}"
            )
        if not 0 < length <= MAX_CHUNK_BYTES or not 0 < stored_length <= length:
            raise CorruptError(
                f"chunk {number} has an impossible length: {length} plain, {stored_length} stored"
            )
        if pack >= len(packs) or pack_offset + stored_length > packs[pack].size:
            raise CorruptError(f"chunk {number} lies outside its pack")
        offsets.append(offset)
        expected += length
    return offsets, expected
