"""How much more than asked to fetch: little for a lone read, more and more for a stream."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_STREAMS: Final = 64


class ReadAhead:
    """Knows where earlier fetches of one layer ended. Not thread-safe.

    A fetch that begins where an earlier one ended goes on with its stream and doubles its window,
    from `least_bytes` up to `most_bytes` of plain data.
    """

    def __init__(self, least_bytes: int, most_bytes: int) -> None:
        self._least = least_bytes
        self._most = most_bytes
        self._windows: OrderedDict[int, int] = OrderedDict()

    def window(self, first: int) -> int:
        """How many bytes a fetch that begins with chunk number `first` is worth."""
        window = self._windows.pop(first, 0)
        return min(2 * window, self._most) if window else self._least

    def ended(self, after: int, window: int) -> None:
        """A fetch with this window ended before chunk number `after`."""
        self._windows[after] = window
        self._windows.move_to_end(after)
        if len(self._windows) > _STREAMS:
            self._windows.popitem(last=False)
