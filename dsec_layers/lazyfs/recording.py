"""Recording which chunks of a mounted layer the kernel asks for first, and when."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterable

from dsec_layers.lazyfs.traces import Live
from dsec_layers.model.trace import MAX_TOUCHES, LayerTrace, Touch


class Recording:
    """One run of a layer of `chunks` chunks. Safe for many threads; at most 14 bytes a chunk.

    What the kernel has in its page cache it does not ask for again, so each chunk counts once, and
    a run begins when the layer is mounted anew.
    """

    def __init__(self, environment: str, layer: str, chunks: int) -> None:
        self.environment = environment
        self._layer = layer
        self._began_ms = time.time_ns() // 1_000_000
        self._seen = bytearray(chunks)
        self._chunks = array("I")
        self._ms = array("Q")
        self._closed = False
        self._saved = 0
        self._lock = threading.Lock()

    @classmethod
    def resumed(cls, live: Live, chunks: int) -> Recording:
        """Go on with a run that an earlier daemon began."""
        made = cls(live.environment, live.trace.layer, chunks)
        made._began_ms = live.began_ms
        made._closed = live.closed
        for touch in live.trace.touches:
            if touch.chunk < chunks:
                made._add(touch.chunk, touch.ms)
        made._saved = len(made._chunks)
        return made

    def touch(self, indexes: Iterable[int]) -> None:
        """The kernel asks for chunks with these numbers."""
        seen = self._seen
        fresh = [index for index in indexes if not seen[index]]
        if not fresh or self._closed:
            return
        ms = max(0, time.time_ns() // 1_000_000 - self._began_ms)
        with self._lock:
            for index in fresh:
                if not seen[index] and len(self._chunks) < MAX_TOUCHES:
                    self._add(index, ms)

    def close(self) -> None:
        """Record no more: another environment reads the layer too."""
        self._closed = True
        self._saved = -1

    def unsaved(self) -> Live | None:
        """How far the run has come, if it has come further since this was last asked."""
        with self._lock:
            if self._saved == len(self._chunks):
                return None
            self._saved = len(self._chunks)
            return Live(self.environment, self._began_ms, self._closed, self._trace())

    def trace(self) -> LayerTrace:
        """What was touched."""
        with self._lock:
            return self._trace()

    def _trace(self) -> LayerTrace:
        rows = zip(self._chunks, self._ms, strict=True)
        return LayerTrace(self._layer, 1, tuple(Touch(chunk, ms, 1) for chunk, ms in rows))

    def _add(self, index: int, ms: int) -> None:
        self._seen[index] = 1
        self._chunks.append(index)
        self._ms.append(ms)
