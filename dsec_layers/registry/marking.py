"""Which blobs of a store are needed: everything that tags, leases and mounts lead to."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import msgspec

from dsec_layers.errors import CorruptError, DsecError, NotFoundError
from dsec_layers.model import canonical
from dsec_layers.model.blobs import Store
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    decode_config,
)
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.layers import MAX_DOCUMENT_BYTES

_WAVE: Final = 256  # documents in memory at once


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """What a manifest or index names, whatever it is about."""

    media_type: str = ""
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] = ()
    manifests: tuple[Descriptor, ...] = ()
    subject: Descriptor | None = None

    @property
    def named(self) -> Iterator[Descriptor]:
        """Everything that it needs; not what it is about."""
        if self.config is not None:
            yield self.config
        yield from self.layers
        yield from self.manifests


class _Item(NamedTuple):
    """A blob that is needed for the sake of `tag`; without one it may be missing."""

    blob: Descriptor
    tag: str = ""


class Marks:
    """The blobs of `store` that are needed, as far as its roots have been followed.

    A digest takes 32 bytes and the set's own; documents are read by the threads of `pool`.
    """

    def __init__(self, store: Store, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool
        self._marked: set[bytes] = set()
        self._followed: set[bytes] = set()

    def __contains__(self, digest: str) -> bool:
        return _key(digest) in self._marked

    def add(self, digests: Iterable[str]) -> None:
        """Mark blobs without looking into them."""
        self._marked.update(map(_key, digests))

    def follow_tags(self) -> None:
        """Mark what all tags lead to.

        What cannot be read is taken to be in use: NotFoundError, CorruptError or StoreError.
        """
        tags = iter(self._store.tags())
        while wave := list(itertools.islice(tags, _WAVE)):
            self._follow([_Item(target, str(reference)) for reference, target in wave])

    def follow(self, roots: Iterable[Descriptor]) -> None:
        """Mark what these manifests and indexes lead to, as far as it is there."""
        self._follow(list(map(_Item, roots)))

    def _follow(self, roots: list[_Item]) -> None:
        level = self._new(roots)
        while level:
            upcoming: list[_Item] = []
            for start in range(0, len(level), _WAVE):
                wave = level[start : start + _WAVE]
                for item, found in zip(wave, self._pool.map(self._look, wave), strict=True):
                    if found is not None:
                        self._followed.add(_key(item.blob.digest))
                        upcoming += self._new(found)
            level = upcoming

    def _new(self, items: Iterable[_Item]) -> list[_Item]:
        """Those that lead further and have not been followed; all are marked."""
        new: dict[bytes, _Item] = {}
        for item in items:
            key = _key(item.blob.digest)
            self._marked.add(key)
            if item.blob.media_type in _LEADING and key not in self._followed:
                new[key] = item
        return list(new.values())

    def _look(self, item: _Item) -> list[_Item] | None:
        """What a blob leads to; None when it is missing and may be."""
        try:
            if item.blob.media_type == CONFIG_TYPE:
                return [_Item(base, item.tag) for base in self._base(item.blob)]
            named = [_Item(blob, item.tag) for blob in load(self._store, item.blob).named]
        except DsecError as error:
            if isinstance(error, NotFoundError) and not item.tag:
                return None
            what = item.tag or item.blob.digest
            error.hint = f"nothing more was removed; copy {what} again or remove it first"
            raise
        return [*named, *map(_Item, self._store.referrers(item.blob))]

    def _base(self, config: Descriptor) -> Iterator[Descriptor]:
        """The layer that a layer was built on, if it is here: alone nobody can use it without.

        A base stands for itself.
        """
        decoded = decode_config(self._store.read(config))
        base = decoded.provenance.base
        if decoded.kind is not Kind.BASE and base:
            with contextlib.suppress(NotFoundError):
                yield self._store.resolve(Reference(Kind.BASE, "by-digest", "", Digest.parse(base)))


def load(store: Store, blob: Descriptor) -> Document:
    """A manifest or index. Raises NotFoundError, CorruptError or StoreError."""
    if blob.size > MAX_DOCUMENT_BYTES:
        raise CorruptError(f"{blob.digest} claims {blob.size} bytes, too many for a document")
    return canonical.decode(store.read(blob), Document, what=f"document {blob.digest}")


_LEADING: Final = frozenset({OCI_MANIFEST, OCI_INDEX, CONFIG_TYPE})


def _key(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))
