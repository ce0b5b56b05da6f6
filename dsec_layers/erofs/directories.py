"""Directory contents: blocks of 4 KiB, each an array of records of 12 bytes and then their names.

The rows of a directory are sorted by the bytes of their names, across all its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from dsec_layers.erofs.layout import BLOCK_SIZE, DIRENT
from dsec_layers.errors import CorruptError

Row = tuple[bytes, int, int]  # name, inode number, file type


def cut(names: Sequence[bytes]) -> tuple[list[tuple[int, int]], int]:
    """Fill blocks with the rows of these names in order, each as full as it gets.

    Returns (first row, row behind the last) of each block, and the bytes used in the last.
    """
    starts, used = [0], 0
    for number, length in enumerate(map(len, names)):
        used += DIRENT.size + length
        if used > BLOCK_SIZE:
            starts.append(number)
            used = DIRENT.size + length
    return list(pairwise([*starts, len(names)])), used


def encode_block(rows: Sequence[Row]) -> bytes:
    """One block, without padding."""
    offset = len(rows) * DIRENT.size
    records = []
    for name, nid, file_type in rows:
        records.append(DIRENT.pack(nid, offset, file_type, 0))
        offset += len(name)
    return b"".join(records) + b"".join([row[0] for row in rows])


def decode_block(block: bytes) -> Iterator[Row]:
    """The rows of one block, which may be padded with zeros. Raises CorruptError."""
    if len(block) < DIRENT.size:
        raise CorruptError("a directory block is too short")
    first = DIRENT.unpack_from(block)[1]
    count, rest = divmod(first, DIRENT.size)
    if rest or not count or first > len(block):
        raise CorruptError("a directory block has a bad name offset")
    records = list(DIRENT.iter_unpack(block[:first]))
    ends = [record[1] for record in records[1:]] + [len(block.rstrip(b"\0"))]
    for (nid, start, file_type, _), end in zip(records, ends, strict=True):
        name = block[start:end]
        if (
            start < first
            or not 0 < len(name) == end - start <= 255
            or b"\0" in name
            or b"/" in name
        ):
            raise CorruptError("a directory has a bad name")
        yield name, nid, file_type
