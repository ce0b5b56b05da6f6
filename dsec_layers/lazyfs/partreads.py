"""Which reads of a part of a chunk are followed by the rest of it, as far as one can foresee."""

from __future__ import annotations

from typing import Final

from dsec_layers.chunks.table import Chunk

_REMEMBERED: Final = 1024


class PartReads:
    """Remembers where reads of parts of chunks ended. Safe for many threads: it only guesses."""

    def __init__(self) -> None:
        self._ends: dict[bytes, int] = {}

    def goes_on(self, chunk: Chunk, start: int, end: int) -> bool:
        """Whether a read of these bytes goes on where one ended, and more is to come.

        Lone reads, at random, do not; those of a program that reads on and on do.
        """
        if end - start == chunk.length:
            return False
        if len(self._ends) > _REMEMBERED:
            self._ends.clear()
        before = self._ends.pop(chunk.digest, None)
        if end < chunk.length:
            self._ends[chunk.digest] = end
        return before == start and end < chunk.length
