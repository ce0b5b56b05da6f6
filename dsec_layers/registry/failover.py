"""Reads from several stores as if they were one; what one does not give is sought in the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from dsec_layers.errors import NotFoundError, StoreError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference

T = TypeVar("T")


class Failover:
    """Reads blobs and references from the first of `stores` that has them.

    A corrupt blob is an error even if a later store could help: falling through would hide the
    damage for ever. A store in trouble is passed over for blobs, which are checked whoever gives
    them; what a reference stands for is not guessed from later stores. Implements `BlobReader`.
    """

    def __init__(self, stores: Sequence[Store]) -> None:
        self._stores = tuple(stores)

    def has(self, blob: Descriptor) -> bool:
        """Whether any store has the whole blob. StoreError when one that cannot tell might."""
        troubles: list[StoreError] = []
        for store in self._stores:
            try:
                if store.has(blob):
                    return True
            except StoreError as error:
                troubles.append(error)
        if troubles:
            raise _joined(troubles)
        return False

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """See `BlobReader.read`."""
        return self._blob(lambda store: store.read(blob, offset, length))

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """See `BlobReader.stream`. The store is chosen at the first piece and kept to the end."""
        first, rest = self._blob(lambda store: _begin(store.stream(blob)))
        yield first
        yield from rest

    def resolve(self, reference: Reference) -> Descriptor:
        """See `References.resolve`."""
        return self._first(lambda store: store.resolve(reference))

    def referrers(self, subject: Descriptor) -> Iterator[Descriptor]:
        """See `Referrers.referrers`. Those of all stores, each once, store by store."""
        seen: set[str] = set()
        for store in self._stores:
            for referrer in store.referrers(subject):
                if referrer.digest not in seen:
                    seen.add(referrer.digest)
                    yield referrer

    def _blob(self, ask: Callable[[Store], T]) -> T:
        """Past stores in trouble; when no other has it, one of these may: that is StoreError."""
        troubles: list[StoreError] = []

        def patiently(store: Store) -> T:
            try:
                return ask(store)
            except StoreError as error:
                troubles.append(error)
                raise NotFoundError(error.message, hint=error.hint) from error

        try:
            return self._first(patiently)
        except NotFoundError:
            if troubles:
                raise _joined(troubles) from None
            raise

    def _first(self, ask: Callable[[Store], T]) -> T:
        answers = []
        for store in self._stores:
            try:
                return ask(store)
            except NotFoundError as error:
                answers.append(error)
        raise NotFoundError(
            "; ".join(error.message for error in answers) or "there is no store to read from",
            hint=next((error.hint for error in answers if error.hint), None),
        )


def _joined(troubles: Sequence[StoreError]) -> StoreError:
    hint = next((error.hint for error in troubles if error.hint), None)
    return StoreError("; ".join(error.message for error in troubles), hint=hint)


def _begin(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first piece (empty for an empty blob) and the others."""
    return next(pieces, b""), pieces
