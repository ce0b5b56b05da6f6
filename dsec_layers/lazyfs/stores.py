"""The stores of a layer as one: in order, missing falls through, failure is retried with bounds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dsec_layers.errors import CorruptError, NotFoundError, StoreError
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.model.blobs import BlobReader
from dsec_layers.model.manifest import Descriptor

OpenStore = Callable[[str], BlobReader]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how patiently: `attempts` in all, about `first_s` apart, then twice that..."""

    attempts: int = 5
    first_s: float = 0.1
    most_s: float = 2.0

    def delays(self) -> Iterator[float]:
        """The waits between the attempts, each scattered by half."""
        for number in range(self.attempts - 1):
            yield min(self.first_s * 2**number, self.most_s) * random.uniform(0.5, 1.5)  # noqa: S311


class OpenStores:
    """Opens each store once, when it is first needed. Safe for many threads."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open = open_store
        self._lock = threading.Lock()
        self._stores: dict[str, BlobReader] = {}

    def get(self, url: str) -> BlobReader:
        """The store at `url`. Raises what opening it raises."""
        with self._lock:
            store = self._stores.get(url)
        if store is None:
            opened = self._open(url)
            with self._lock:
                store = self._stores.setdefault(url, opened)
        return store


class StoreChain:
    """A BlobReader over stores in order. Only NotFoundError goes on to the next one."""

    def __init__(
        self,
        urls: Sequence[str],
        stores: OpenStores,
        counters: Counters,
        retries: Retries = Retries(),
    ) -> None:
        self.urls = tuple(urls)
        self._stores = stores
        self.counters = counters
        self._retries = retries
        self._pause = threading.Event()  # never set: a wait that no signal handler cuts short

    def over(self, urls: Sequence[str]) -> StoreChain:
        """The same, counting on, over other stores."""
        return StoreChain(urls, self._stores, self.counters, self._retries)

    def has(self, blob: Descriptor) -> bool:
        """Whether any store has the blob. Raises StoreError."""
        return any(self._patiently(url, lambda store: store.has(blob)) for url in self.urls)

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """As BlobReader.read; an answer of another length than asked for is CorruptError."""
        expected = blob.size - offset if length is None else length
        data = self._first(blob, lambda store: store.read(blob, offset, length))
        self.counters.add(store_bytes=len(data))
        if len(data) != expected:
            raise CorruptError(
                f"blob {blob.digest} gave {len(data)} bytes where {expected} were asked for"
            )
        return data

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """As BlobReader.stream, but read whole, so that a failure in the middle is retried too."""
        yield self.read(blob)

    def _first(self, blob: Descriptor, call: Callable[[BlobReader], T]) -> T:
        for url in self.urls:
            try:
                return self._patiently(url, call)
            except NotFoundError:
                continue
        raise NotFoundError(
            f"blob {blob.digest} is in none of the stores: {', '.join(self.urls) or 'none given'}"
        )

    def _patiently(self, url: str, call: Callable[[BlobReader], T]) -> T:
        delays = self._retries.delays()
        while True:
            self.counters.add(store_requests=1)
            try:
                return call(self._stores.get(url))
            except (StoreError, OSError) as error:
                delay = next(delays, None)
                if delay is None:
                    raise StoreError(f"store {url} keeps failing: {error}") from error
            self.counters.add(retries=1)
            self._pause.wait(delay)
