"""The store protocol.

Blobs by descriptor, references by name. Backends live in `registry`; readers only need this.

Missing (`NotFoundError`), corrupt (`CorruptError`) and unreachable (`StoreError`) are different
errors everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference


class BlobReader(Protocol):
    """Reads immutable blobs. Implementations are safe to call from many threads."""

    def has(self, blob: Descriptor) -> bool:
        """Whether the whole blob is there. Raises StoreError when that cannot be known."""
        ...

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """Exactly `length` bytes from `offset` (to the end without `length`); never short.

        A range is not checked against the digest, its reader must do that; a whole blob is. Raises
        NotFoundError, CorruptError (blob shorter than the descriptor or the range says) or
        StoreError.
        """
        ...

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """The whole blob in pieces of about 1 MiB.

        Raises CorruptError after the last when size or digest differ.
        """
        ...


class BlobWriter(Protocol):
    """Publishes blobs: a blob is visible only when it is whole and durable."""

    def put(
        self, blob: Descriptor, source: Path | bytes | Iterator[bytes], *, consume: bool = False
    ) -> bool:
        """Publish a blob unless it is there; True when bytes were written.

        Size and sha256 of `source` are checked (CorruptError) before it becomes visible. With
        `consume` the file at `source` was hashed by the caller and may be moved into place; it is
        gone afterwards. Raises NoSpaceError or StoreError.
        """
        ...


class References(Protocol):
    """Mutable names for immutable descriptors."""

    def resolve(self, reference: Reference) -> Descriptor:
        """The descriptor a tag points to, without annotations.

        A digest in the reference must match it. Raises NotFoundError.
        """
        ...

    def tagged(self, reference: Reference) -> Descriptor:
        """The same with the annotations of the tag, where the store keeps them."""
        ...

    def tag(
        self,
        reference: Reference,
        target: Descriptor,
        *,
        expected: Descriptor | bool | None = False,
    ) -> None:
        """Point a tag to `target` atomically, and keep the annotations of `target` with it.

        `expected` is the compare-and-swap guard: a descriptor that must stand there now, None for
        'must not exist', False for no guard; only digests are compared. Raises ConflictError when
        the guard fails.
        """
        ...

    def untag(self, reference: Reference) -> None:
        """Remove a tag. Raises NotFoundError."""
        ...

    def tags(
        self, kind: Kind | None = None, name: str | None = None
    ) -> Iterator[tuple[Reference, Descriptor]]:
        """All tags in reference order, with their annotations.

        Optionally those of one kind, or of one name of it, without a look at any other.
        """
        ...


class Referrers(Protocol):
    """What is attached to manifests and indexes, such as signatures; see `model.attachment`."""

    def referrers(self, subject: Descriptor) -> Iterator[Descriptor]:
        """The manifests attached to `subject`, by digest; only its digest counts.

        One that is listed may have been removed since. Raises CorruptError or StoreError.
        """
        ...

    def attach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """Let `referrer`, a manifest that is in the store, be found from `subject`, durably.

        Not an error when it is attached already, or when the store lacks `subject`. Raises
        NotFoundError when it lacks `referrer`, NoSpaceError or StoreError.
        """
        ...

    def detach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """Undo `attach`; no blob is removed. Not an error when it is not attached."""
        ...


class Store(BlobReader, BlobWriter, References, Referrers, Protocol):
    """A whole store. `url` names it, e.g. `dir:///path` or `threefs:///path`."""

    @property
    def url(self) -> str:
        """How a user would name this store again."""
        ...

    def delete(self, blob: Descriptor) -> None:
        """Remove a blob; not an error when it is not there."""
        ...

    def blobs(self) -> Iterator[Descriptor]:
        """All blobs (media type may be the generic `application/octet-stream`).

        Slow, for collection only.
        """
        ...
