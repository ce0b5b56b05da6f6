"""The device of a layer: where each distinct file content lies on one virtual disk of 4 KiB blocks.

Contents follow one another in the order in which they are placed, each at a block boundary, each
once. Of a content only its data runs are stored, one after the other; since runs begin at block
boundaries and all but the last are whole blocks, only the end of a content needs padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dsec_layers.chunks.constants import BLOCK_SIZE
from dsec_layers.chunks.content import Run

# How EROFS wants the data runs of a file of a size: equal, or wider where its chunk index would
# grow too long.
Widen = Callable[[int, Sequence[Run]], Sequence[Run]]


class Placement(NamedTuple):
    """One run of a content on the device; all three are bytes and multiples of 4 KiB."""

    file_offset: int
    device_offset: int
    length: int


def padded(length: int) -> int:
    """`length` rounded up to whole blocks."""
    return -(-length // BLOCK_SIZE) * BLOCK_SIZE


class DeviceLayout:
    """Gives out device space. `size_bytes` is what has been given out so far."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._placed: dict[bytes, tuple[Placement, ...]] = {}

    def find(self, digest: bytes) -> tuple[Placement, ...] | None:
        """Where the content with this digest lies, or None when it has no place yet."""
        return self._placed.get(digest)

    def place(self, digest: bytes, runs: Sequence[Run]) -> tuple[Placement, ...]:
        """Append a content that has no place yet; each of its `runs` begins at a block boundary."""
        placements = []
        for offset, length in runs:
            space = padded(length)
            placements.append(Placement(offset, self.size_bytes, space))
            self.size_bytes += space
        placed = tuple(placements)
        self._placed[digest] = placed
        return placed
