"""The memory that parts are gathered in: a few buffers, used again and again.

Fresh memory for each part would cost about as much as sending it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator


class Buffers:
    """At most `count` parts at once, for all threads together; who wants one more waits.

    Nobody waits for one while holding another that is not on its way, so all go on in the end.
    """

    def __init__(self, count: int) -> None:
        self._room = threading.BoundedSemaphore(count)
        self._unused: list[bytearray] = []

    def parts(self, pieces: Iterator[bytes], part_bytes: int) -> Iterator[bytearray]:
        """The same bytes in parts of that size; the last may be smaller.

        Each part is to be given back when it is not read any more, whatever happens.
        """
        part, filled = bytearray(), 0
        try:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    part = part or self._take(part_bytes)
                    count = min(part_bytes - filled, len(rest))
                    with memoryview(part) as room:
                        room[filled : filled + count] = rest[:count]
                    filled, rest = filled + count, rest[count:]
                    if filled == part_bytes:
                        full, part, filled = part, bytearray(), 0
                        yield full
            if part:
                full, part = part, bytearray()
                del full[filled:]
                yield full
        finally:
            if part:
                self.give_back(part)

    def give_back(self, part: bytearray) -> None:
        """Take it for another part."""
        self._unused.append(part)
        self._room.release()

    def _take(self, size: int) -> bytearray:
        self._room.acquire()
        try:
            part = self._unused.pop()
        except IndexError:
            return bytearray(size)
        part.extend(bytes(max(0, size - len(part))))
        del part[size:]
        return part
