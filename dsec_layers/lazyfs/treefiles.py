"""The data of files of a composed tree: ranges of files out of the devices of their layers.

All of a range or an error, as with devices: a short answer would be taken for the end of the file,
and zeros for data.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from dsec_layers.erofs.planning import Extent
from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.device import Finished, LayerDevice
from dsec_layers.lazyfs.treenodes import Node

_KEPT_FILES = 4096
Plain = bytes | memoryview
# Where the data of the file at a path of a layer lies on its device, sorted.
Locate = Callable[[int, bytes], Sequence[Extent]]
Piece = tuple[int | None, int]  # where it lies on the device, None for a hole; length in bytes


class TreeFiles:
    """Reads files; `devices` are those of the layers by number. Safe for many threads."""

    def __init__(self, devices: Sequence[LayerDevice], locate: Locate) -> None:
        self._devices = devices
        self._locate = lru_cache(_KEPT_FILES)(locate)

    def start_read(self, node: Node, offset: int, length: int, finished: Finished) -> None:
        """Read a range, less of it at the end of the file; `finished` is called as by a device.

        Raises CorruptError when the metadata does not tell where the data lies.
        """
        end = min(offset + length, node.entry.size)
        extents = self._locate(node.layer, node.entry.path) if offset < end else ()
        planned = list(pieces(extents, offset, end))
        reading = _Reading(planned, finished)
        device = self._devices[node.layer]
        for place, (start, count) in enumerate(planned):
            if start is not None:
                device.start_read(start, count, reading.arrival(place, count))
        reading.begun()


def pieces(extents: Sequence[Extent], offset: int, end: int) -> Iterator[Piece]:
    """What the bytes from `offset` up to `end` of a file with these extents are made of."""
    position = offset
    first = bisect_right(extents, offset, key=lambda extent: extent.file_offset) - 1
    for number in range(max(first, 0), len(extents)):
        extent = extents[number]
        low = max(position, extent.file_offset)
        high = min(end, extent.file_offset + extent.length)
        if extent.file_offset >= end:
            break
        if low >= high:
            continue
        if low > position:
            yield None, low - position
        yield extent.device_offset + low - extent.file_offset, high - low
        position = high
    if position < end:
        yield None, end - position


class _Reading:
    """A range on its way: its pieces, and for how many of them it waits."""

    def __init__(self, planned: Sequence[Piece], finished: Finished) -> None:
        self._parts: list[Sequence[Plain]] = [
            (bytes(count),) if start is None else () for start, count in planned
        ]
        self._missing = 1 + sum(start is not None for start, _ in planned)
        self._finished = finished
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def begun(self) -> None:
        """All pieces have been asked for."""
        self._arrived(None)

    def arrival(self, place: int, length: int) -> Finished:
        """What a device is to call with the `length` bytes of the piece at `place`."""

        def arrived(parts: Sequence[Plain], error: BaseException | None) -> None:
            if error is None and sum(map(len, parts)) != length:
                error = CorruptError("a file of the layer leaves its device")
            self._parts[place] = parts
            self._arrived(error)

        return arrived

    def _arrived(self, error: BaseException | None) -> None:
        with self._lock:
            self._error = self._error or error
            self._missing -= 1
            last = self._missing == 0
        if last and self._error:
            self._finished((), self._error)
        elif last:
            self._finished([part for parts in self._parts for part in parts], None)
