"""The device of a layer: where each distinct file content lies on one virtual disk of 4 KiB blocks.

Contents follow one another in the order in which they are placed, each at a block boundary, each
once. Of a content only its data runs are stored, one after the other; since runs begin at block
boundaries and all but the last are whole blocks, only the end of a content needs padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dsec_layers.chunks.content import Run
from dsec_layers.model.tree import BLOCK_SIZE

E = TypeVar("E")


def padded(length: int) -> int:
    """`length` rounded up to whole blocks."""
    return (length + BLOCK_SIZE - 1) & -BLOCK_SIZE


class DeviceLayout(Generic[E]):
    """Gives out device space. `size_bytes` is what has been given out so far."""

    def __init__(self, extent: Callable[[int, int, int], E]) -> None:
        """`extent` makes the caller's value for one run from three numbers of bytes.

        They are the offset in the content, the offset on the device and the length, all multiples
        of 4 KiB.
        """
        self.size_bytes = 0
        self._extent = extent
        self._placed: dict[bytes, tuple[E, ...]] = {}

    def find(self, digest: bytes) -> tuple[E, ...] | None:
        """Where the content with this digest lies, or None when it has no place yet."""
        return self._placed.get(digest)

    def append(self, length: int) -> int:
        """Give out whole blocks that no content of this device owns; returns where they begin."""
        start = self.size_bytes
        self.size_bytes += length
        return start

    def place(self, digest: bytes, runs: Sequence[Run]) -> tuple[E, ...]:
        """Append a content that has no place yet; each of its `runs` begins at a block boundary."""
        extents = []
        for offset, length in runs:
            space = padded(length)
            extents.append(self._extent(offset, self.size_bytes, space))
            self.size_bytes += space
        placed = self._placed[digest] = tuple(extents)
        return placed
