"""Layers by what they were packed from: a build in which nothing has changed packs nothing.

    <home>/builder/layers/<key>.json    which layer of the local store came of it

A key is the hash of all that packing depends on: the results of steps, which are never written
again and whose names are used once, the layer below, and what goes into the config. A record is
only believed when all blobs of its layer are in the store.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.builder.request import BuildResult
from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor, Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.layers import load_layer
from dsec_layers.registry.leases import Held

_KEPT: Final = 1000


class _Inputs(msgspec.Struct, frozen=True):
    kind: str
    name: str
    run: RunConfig
    provenance: Provenance
    parent: str
    results: tuple[str, ...]


def key_of(result: BuildResult, reference: Reference, provenance: Provenance) -> str:
    """The identity of all that the layer of a build is packed from."""
    inputs = _Inputs(
        kind=reference.kind.value,
        name=reference.name,
        run=result.run,
        provenance=provenance,
        parent=result.parent_digest,
        results=tuple(result.results),
    )
    return Digest.sha256(canonical.encode(inputs)).hex


@dataclass(frozen=True, slots=True)
class PackedBefore:
    """The records in `folder` of layers in `store`; `held` is a lease on it."""

    folder: Path
    store: DirectoryStore
    held: Held

    def find(self, key: str) -> MountLayer | None:
        """The layer of a key when it is whole; it counts among what is held. Raises StoreError."""
        record = self._place(key)
        try:
            descriptor = canonical.decode(record.read_bytes(), Descriptor, what="record of a layer")
            self.held.add([descriptor])
            layer = load_layer(self.store, descriptor)
        except (FileNotFoundError, NotFoundError, CorruptError, InvalidInputError):
            return None
        self.held.add(layer.manifest.blobs)
        if not all(map(self.store.has, layer.manifest.blobs)):
            return None
        with contextlib.suppress(FileNotFoundError):
            os.utime(record)
        return MountLayer(descriptor, layer.manifest, layer.config, self.store)

    def remember(self, key: str, layer: MountLayer) -> None:
        """Note which layer a key has; the records used longest ago are forgotten."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f".{key}-{secrets.token_hex(4)}"
        aside.write_bytes(canonical.encode(layer.descriptor))
        aside.replace(self._place(key))
        records = sorted(self.folder.iterdir(), key=_used_s)
        for record in records[:-_KEPT]:
            record.unlink(missing_ok=True)

    def _place(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _used_s(record: Path) -> float:
    try:
        return record.stat().st_mtime
    except FileNotFoundError:  # another build has just forgotten it
        return 0
