"""A question to a store, and what waits to become one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dsec_layers.errors import DsecError, StoreError
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.model.blobs import BlobReader

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """`ask` may block; one of `answered` and `failed` is called, once, by whichever thread.

    `probe` is a smaller question with which one learns whether the store is back. An answer of
    `length` bytes is expected.
    """

    ask: Callable[[BlobReader], T]
    probe: Callable[[BlobReader], object]
    length: int
    counters: Counters
    answered: Callable[[T], None]
    failed: Callable[[DsecError], None]

    def board(self) -> Job[T]:
        """See Waiting."""
        return self

    def refuse(self, error: StoreError) -> None:
        """See Waiting."""
        self.failed(error)


class Waiting(Protocol):
    """What waits in the queue of a store."""

    def board(self) -> Job[Any]:
        """The job, made when it is this one's turn; the lock of the lanes is held."""
        ...

    def refuse(self, error: StoreError) -> None:
        """The store will not be asked."""
        ...


def probing(sample: Callable[[BlobReader], object]) -> Job[object]:
    """A job of which only counts that there is an answer."""

    def ignore(_: object) -> None:
        """Nobody waits for it."""

    return Job(sample, sample, 0, Counters(), ignore, ignore)
