"""The stores of a layer as one: the first that answers and has it gives it.

A store that lacks a blob, fails or does not answer is passed over for the next one. That hides
nothing: bytes are checked whoever they come from, and the trouble of a store is counted and logged.
Bytes of the wrong length or digest are an error at once, even if a later store could help.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from dsec_layers.errors import CorruptError, DsecError, NotFoundError, StoreError
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.lazyfs.job import Job
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.manifest import Descriptor

T = TypeVar("T")
_log = logging.getLogger(__name__)


class StoreChain:
    """A BlobReader over stores in order, each by its lane."""

    def __init__(self, urls: Sequence[str], lanes: Lanes, counters: Counters) -> None:
        self.urls = tuple(urls)
        self.lanes = lanes
        self.counters = counters

    def over(self, urls: Sequence[str]) -> StoreChain:
        """The same, counting on, over other stores."""
        return StoreChain(urls, self.lanes, self.counters)

    def has(self, blob: Descriptor) -> bool:
        """Whether any store has the blob. Raises StoreError when one cannot be asked."""
        return any(self._ask(url, lambda store: store.has(blob), 0) for url in self.urls)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """As BlobReader.read; an answer of another length than asked for is CorruptError."""
        expected = blob.size - offset if length is None else length
        search = Search(self, blob)
        for url in self.urls:
            try:
                data = self._ask(url, lambda store: store.read(blob, offset, length), expected)
                return checked_length(data, expected, blob, self.counters)
            except (NotFoundError, StoreError) as error:
                search.in_vain(error)
        raise search.error()

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """As BlobReader.stream, but read whole, so that a failure in the middle is retried too."""
        yield self.read(blob)

    def _ask(self, url: str, ask: Callable[[BlobReader], T], length: int) -> T:
        result: Future[T] = Future()
        job = Job(
            ask=ask,
            probe=ask,
            length=length,
            counters=self.counters,
            answered=result.set_result,
            failed=result.set_exception,
        )
        with self.lanes.lock:
            refused = self.lanes.lane(url).push(self, job, job)
        if refused is not None:
            raise refused
        return result.result()


class Search:
    """Why the stores of a chain did not give a blob."""

    def __init__(self, chain: StoreChain, blob: Descriptor) -> None:
        self._chain = chain
        self._blob = blob
        self._troubles: list[StoreError] = []

    def in_vain(self, error: DsecError) -> None:
        """One more store has been asked."""
        if isinstance(error, StoreError):
            self._troubles.append(error)

    def error(self) -> DsecError:
        """NotFoundError when all stores have said so, else StoreError: one of them may have it."""
        if self._troubles:
            return StoreError("; ".join(error.message for error in self._troubles))
        urls = ", ".join(self._chain.urls) or "none given"
        return NotFoundError(f"blob {self._blob.digest} is in none of the stores: {urls}")


def checked_length(data: bytes, expected: int, blob: Descriptor, counters: Counters) -> bytes:
    """`data` if it is as long as `expected`; it is counted. Raises CorruptError."""
    counters.add(store_bytes=len(data))
    if len(data) != expected:
        raise CorruptError(
            f"blob {blob.digest} gave {len(data)} bytes where {expected} were asked for"
        )
    return data
