"""Removes blobs of a directory store to which no reference leads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from dsec_layers.errors import DsecError, NotFoundError
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import layers
from dsec_layers.registry.directory import DirectoryStore

GRACE_S: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many blobs were removed, and their bytes."""

    blobs: int
    bytes: int


def prune(
    store: DirectoryStore, *, grace_s: float = GRACE_S, mounted: Collection[str] = ()
) -> Pruned:
    """Remove the blobs that no tag reaches and nobody put or asked for within `grace_s`.

    `mounted` are digests of layers (their manifests) that are in use though no tag may reach them.
    What cannot be read is taken to be in use: an unreadable manifest or reference ends the run with
    an error before anything is removed. Raises CorruptError, NotFoundError or StoreError.
    """
    used = _reachable(store) | _needed_by(store, mounted)
    limit = time.time() - grace_s
    removed = removed_bytes = 0
    for blob in store.blobs():
        if blob.digest in used:
            continue
        try:
            renewed = store.renewed(blob)
        except NotFoundError:  # somebody else removed it
            continue
        if renewed < limit:
            store.delete(blob)
            removed, removed_bytes = removed + 1, removed_bytes + blob.size
    store.remove_stale()
    return Pruned(removed, removed_bytes)


def _needed_by(store: DirectoryStore, mounted: Collection[str]) -> set[str]:
    """The blobs of mounted layers; what is not here is read from elsewhere."""
    needed = set(mounted)
    for digest in mounted:
        with contextlib.suppress(NotFoundError):
            manifest = layers.load_manifest(store, _by_digest(store, digest))
            needed.update(blob.digest for blob in manifest.blobs)
    return needed


def _reachable(store: DirectoryStore) -> set[str]:
    """The digests of all blobs that tags lead to."""
    used: set[str] = set()
    visited: set[str] = set()
    for reference, target in store.tags():
        used.add(target.digest)
        try:
            for layer in layers.layer_descriptors(store, target):
                _visit(store, layer, visited, used)
        except DsecError as error:
            error.hint = f"nothing was removed; copy {reference} again or remove it first"
            raise
    return used


def _visit(
    store: DirectoryStore, layer: Descriptor | None, visited: set[str], used: set[str]
) -> None:
    """Add the blobs of a layer to `used`, and those of the layers that it was built on.

    Without them nobody can use it but in an environment, and a tag moves on with every build.
    A base stands alone.
    """
    while layer is not None and layer.digest not in visited:
        visited.add(layer.digest)
        manifest = layers.load_manifest(store, layer)
        used.update((layer.digest, *(blob.digest for blob in manifest.blobs)))
        config = layers.load_config(store, manifest)
        layer = None
        if config.kind is not Kind.BASE and config.provenance.base:
            with contextlib.suppress(NotFoundError):
                layer = _by_digest(store, config.provenance.base)


def _by_digest(store: DirectoryStore, digest: str) -> Descriptor:
    return store.resolve(Reference(Kind.BASE, "by-digest", "", Digest.parse(digest)))
