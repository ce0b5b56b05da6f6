"""Layers by what they were packed from: a build in which nothing has changed packs nothing.

    <home>/builder/layers/<key>.json      which layer of the local store came of it
    <home>/builder/layers/<key>.memory    what its packing left behind (`chunks.memory`)

A key is the hash of all that packing depends on: the results of steps, which are never written
again and whose names are used once, the layer below, and what goes into the config. A record is
only believed when all blobs of its layer are in the store. Where something has changed, what the
last layer of the name has read and compressed is used again; that record and that memory have the
hash of the name as key.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from dsec_layers.chunks.frames import StoredFrames
    from dsec_layers.chunks.memory import Before, Memory

_KEPT: Final = {".json": 1000, ".memory": 50}


class _Inputs(msgspec.Struct, frozen=True):
    kind: str
    name: str
    run: RunConfig
    provenance: Provenance
    parent: str
    results: tuple[str, ...]


class _Record(msgspec.Struct, frozen=True):
    layer: Descriptor
    encoder: str


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


class PackedBefore(msgspec.Struct, frozen=True):
    """The records in `folder` of layers in `store`; `held` is a lease on it."""

    folder: Path
    store: DirectoryStore
    held: Held

    def find(self, key: str) -> MountLayer | None:
        """The layer of a key when it is whole; it counts among what is held. Raises StoreError."""
        record = self._place(key)
        try:
            descriptor = _read(record).layer
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

    def of(self, reference: Reference) -> Before:
        """What is known of the layer of this name that was packed last. Raises StoreError."""
        from dsec_layers.chunks.memory import Before, Memory  # `find` needs nothing of it

        place = self.folder / f"{_key_of_name(reference)}.memory"
        try:
            memory = Memory.decode(place.read_bytes())
        except FileNotFoundError:
            memory = Memory()
        return Before(self._frames(reference), memory, partial(self._remember_memory, place))

    def _frames(self, reference: Reference) -> StoredFrames | None:
        """Its frames, if they are made as now; they count among what is held."""
        from dsec_layers.chunks.frame import ENCODER
        from dsec_layers.chunks.frames import StoredFrames
        from dsec_layers.lazyfs.tables import decode_table

        try:
            record = _read(self._place(_key_of_name(reference)))
            if record.encoder != ENCODER:
                return None
            self.held.add([record.layer])
            layer = load_layer(self.store, record.layer)
            self.held.add(layer.manifest.blobs)
            table = decode_table(self.store.read(layer.manifest.table), layer.config.table)
        except (FileNotFoundError, NotFoundError, CorruptError, InvalidInputError):
            return None
        return StoredFrames(self.store, layer.manifest.packs, table)

    def remember(self, key: str, reference: Reference, layer: MountLayer) -> None:
        """Note which layer a key has; the records used longest ago are forgotten."""
        from dsec_layers.chunks.frame import ENCODER

        for each in (key, _key_of_name(reference)):
            self._write(self._place(each), canonical.encode(_Record(layer.descriptor, ENCODER)))
        for suffix, kept in _KEPT.items():
            files = sorted(self.folder.glob(f"*{suffix}"), key=_used_s)
            for file in files[:-kept]:
                file.unlink(missing_ok=True)

    def _remember_memory(self, place: Path, memory: Memory) -> None:
        self._write(place, memory.encode())

    def _write(self, place: Path, data: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f".{place.stem}-{secrets.token_hex(4)}"
        aside.write_bytes(data)
        aside.replace(place)

    def _place(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _key_of_name(reference: Reference) -> str:
    return Digest.sha256(reference.repository.encode()).hex


def _read(record: Path) -> _Record:
    return canonical.decode(record.read_bytes(), _Record, what="record of a layer")


def _used_s(record: Path) -> float:
    try:
        return record.stat().st_mtime
    except FileNotFoundError:  # another build has just forgotten it
        return 0
