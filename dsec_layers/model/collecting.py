"""What a store must do beyond `Store` so that what nobody needs can be removed beside its users.

Notes are small documents with a time. Users of blobs and collectors tell each other by them what
they count on and what they are about to remove (`registry.leases`, `registry.condemned`). All
times are those of the store's own clock; clocks of different machines are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeGuard, runtime_checkable

from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor


class Note(NamedTuple):
    """A note by its name, `<folder>/<id>`, and when it was written, in seconds since the epoch."""

    name: str
    modified_s: float


@runtime_checkable
class Collectable(Store, Protocol):
    """A store that is collected by us. A registry is not: it collects by itself.

    Whoever reads or lists notes sees all that was written before. The folder of a note is a word
    of lower-case letters, its id has the form `[a-z0-9._-]{1,128}`.
    """

    def renewed(self, blob: Descriptor) -> float:
        """When the blob was last put or renewed. Raises NotFoundError or StoreError."""
        ...

    def renew(self, blob: Descriptor) -> None:
        """Make it as if the blob had been put now. Raises NotFoundError or StoreError."""
        ...

    def notes(self, folder: str) -> Iterator[Note]:
        """The notes of a folder, in any order. Raises StoreError."""
        ...

    def read_note(self, name: str) -> bytes:
        """A note. Raises NotFoundError or StoreError."""
        ...

    def write_note(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Write or replace a note as a whole; it need not outlive a power failure.

        Without `sync` it may be cut short after one. Raises NoSpaceError or StoreError.
        """
        ...

    def remove_note(self, name: str) -> None:
        """Remove a note; not an error when it is not there. Raises StoreError."""
        ...

    def remove_stale(self, older_than_s: float) -> int:
        """Remove what writers that died began so long ago; how many there were."""
        ...


def is_collectable(store: object) -> TypeGuard[Collectable]:
    """Whether it is a `Collectable`. Looked at once for each type, for that takes half a ms."""
    kind = type(store)
    if kind not in _kinds:
        _kinds[kind] = isinstance(store, Collectable)
    return _kinds[kind]


_kinds: dict[type, bool] = {}
