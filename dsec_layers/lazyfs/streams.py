"""Fetching ahead of whoever reads a layer from front to back, by several requests at a time.

A read that goes on where an earlier one ended belongs to a stream. What follows it is fetched,
behind all that somebody waits for, and the first chunk of each such request is a mark. When the
reader comes to a mark the window doubles and is filled again. So a stream that lasts has a window's
worth here or on its way whatever the latency of the store, and a short one has cost little.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dsec_layers.lazyfs.grouping import grouped
from dsec_layers.lazyfs.layer import ServedLayer

_STREAMS: Final = 64  # of one layer
_ACTIVE_S: Final = 1.0
_MOST_CHUNKS: Final = 256  # of a window: a chunk on its way takes memory too, however small it is

# Fetch these chunks of a layer, which lie together in a pack, for nobody; returns at once.
FetchAhead = Callable[[ServedLayer, list[int]], object]


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The window of a stream grows from `first_bytes` to `most_bytes` of plain data.

    It is filled by requests of `request_bytes`.

    It begins when `begin_bytes` have been read: the kernel itself reads large files far ahead, and
    a start of programs that read many such would fetch twice of what they need.
    All streams that go on share `all_bytes`: what is fetched and not yet read should still be in
    memory when it is.
    """

    begin_bytes: int = 8 << 20
    first_bytes: int = 2 << 20
    request_bytes: int = 4 << 20
    most_bytes: int = 32 << 20
    all_bytes: int = 32 << 20


@dataclass(slots=True, eq=False)
class _Stream:
    """It began at byte `start`. Chunks before number `ahead` are fetched or on their way."""

    start: int
    ahead: int = 0
    window: int = 0


class Share:
    """How much all streams of a daemon may be ahead. Safe for many threads."""

    def __init__(self, limits: StreamLimits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._active: OrderedDict[_Stream, float] = OrderedDict()

    def window(self, stream: _Stream) -> int:
        """The next window of a stream that goes on."""
        limits, now = self.limits, time.monotonic()
        with self._lock:
            self._active[stream] = now
            self._active.move_to_end(stream)
            while next(iter(self._active.values())) < now - _ACTIVE_S:
                self._active.popitem(last=False)
            most = min(limits.most_bytes, limits.all_bytes // len(self._active))
        return max(limits.first_bytes, min(2 * stream.window, most))


class Streams:
    """Those of one layer. Safe for many threads."""

    def __init__(self, layer: ServedLayer, fetch: FetchAhead, share: Share) -> None:
        self._layer = layer
        self._fetch = fetch
        self._share = share
        self._lock = threading.Lock()
        self._ends: OrderedDict[int, _Stream] = OrderedDict()  # by the last chunk of a read
        self._marks: dict[int, _Stream] = {}

    def read(self, chunks: range, *, missed: bool) -> None:
        """Chunks with these numbers are read, and whether any of them was `missed`."""
        marks = self._marks
        if marks and any(index in marks for index in chunks):
            self._go_on(chunks)
        if missed:
            self._follow(chunks)

    def _go_on(self, chunks: range) -> None:
        with self._lock:
            reached = [self._marks.pop(index) for index in chunks if index in self._marks]
            groups = [group for stream in reached for group in self._fill(stream, chunks[-1])]
        self._start(groups)

    def _follow(self, chunks: range) -> None:
        """Where two reads meet in the middle of a chunk, both have it."""
        if len(chunks) == 1 and chunks[0] in self._ends:  # nothing new: most reads are like that
            return
        groups: list[list[int]] = []
        with self._lock:
            table = self._layer.table
            found = self._ends.pop(chunks[0], None) or self._ends.pop(chunks[0] - 1, None)
            stream = found or _Stream(table[chunks[0]].device_offset)
            self._ends[chunks[-1]] = stream
            if len(self._ends) > _STREAMS:
                self._ends.popitem(last=False)
            read = table[chunks[-1]].device_end - stream.start
            ahead = stream.ahead > chunks[-1] + 1
            if found is not None and read >= self._share.limits.begin_bytes and not ahead:
                groups = self._fill(stream, chunks[-1])
        self._start(groups)

    def _fill(self, stream: _Stream, position: int) -> list[list[int]]:
        """What is to be fetched now that the reader of a stream is at chunk `position`."""
        table = self._layer.table
        stream.window = self._share.window(stream)
        stream.ahead = max(stream.ahead, position + 1)
        reach = table[position].device_end + stream.window
        end = table.index_at(reach) if reach < table.device_bytes else len(table)
        end = min(end, position + _MOST_CHUNKS)
        following = ((index, table[index]) for index in range(stream.ahead, end))
        groups = grouped(following, self._share.limits.request_bytes)
        stream.ahead = max(stream.ahead, end)
        for group in groups:
            self._marks[min(group)] = stream
        if len(self._marks) > _STREAMS:  # readers that went away left them
            self._marks = dict(list(self._marks.items())[-_STREAMS // 2 :])
        return groups

    def _start(self, groups: list[list[int]]) -> None:
        for group in groups:
            self._fetch(self._layer, group)
