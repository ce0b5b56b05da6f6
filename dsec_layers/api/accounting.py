"""What a store holds: for whom, how often shared, and how much of it nobody reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import msgspec

from dsec_layers.chunks.table import ChunkTable
from dsec_layers.lazyfs.tables import decode_table
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry import layers as stored
from dsec_layers.registry.layers import StoredLayer

_WORKERS: Final = 8
_PACK_FRAME_BYTES: Final = 12 + 52  # header and footer, see docs/formats/pack.md
_INDEX_ENTRY_BYTES: Final = 40


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer, all versions of a name, or a kind take.

    `logical_bytes` sums the sizes of files, each layer once; `stored_bytes` the blobs that they
    lead to, `unique_bytes` those of them that nothing else of the same table leads to.
    """

    name: str
    logical_bytes: int
    stored_bytes: int
    unique_bytes: int


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A whole store.

    `stored_bytes` are all blobs, `unreachable_bytes` those that no tag leads to. Of the packs that
    tags lead to (`pack_bytes`), `dead_bytes` hold chunks that no layer with a tag refers to. Of the
    `chunks` in use, `shared_chunks` are in several layers, which saves `saved_bytes`.
    """

    url: str
    stored_bytes: int
    unreachable_bytes: int
    logical_bytes: int
    pack_bytes: int
    dead_bytes: int
    chunks: int
    shared_chunks: int
    saved_bytes: int
    layers: tuple[Share, ...]
    names: tuple[Share, ...]
    kinds: tuple[Share, ...]


class _Part(NamedTuple):
    """A layer, or the index of an environment, which has no files of its own."""

    title: str
    logical_bytes: int
    blobs: tuple[str, ...]


def space(store: Store) -> Space:
    """Count everything; reads tags, manifests, configs and chunk tables, and lists all blobs.

    Raises NotFoundError, CorruptError or StoreError.
    """
    present = {blob.digest: blob.size for blob in store.blobs()}
    parts: dict[str, _Part] = {}
    names: dict[str, set[str]] = defaultdict(set)
    kinds: dict[str, set[str]] = defaultdict(set)
    chunks = _Chunks()
    with ThreadPoolExecutor(_WORKERS, "df") as pool:
        for reference, target in store.tags():
            layers = stored.layer_descriptors(store, target)
            new = [layer for layer in layers if layer.digest not in parts]
            for layer, table in pool.map(lambda layer: _load(store, layer), new):
                parts[layer.descriptor.digest] = _part(layer)
                chunks.add(layer, table)
            if target.digest not in parts:
                parts[target.digest] = _Part(str(reference), 0, (target.digest,))
            members = {target.digest, *(layer.digest for layer in layers)}
            names[reference.repository] |= members
            kinds[reference.kind.value] |= members
    reached = {digest for part in parts.values() for digest in part.blobs}
    stored_bytes = sum(present.values())
    each = {f"{part.title} ({_short(digest)})": {digest} for digest, part in parts.items()}
    return Space(
        url=store.url,
        stored_bytes=stored_bytes,
        unreachable_bytes=stored_bytes - sum(present.get(digest, 0) for digest in reached),
        logical_bytes=sum(part.logical_bytes for part in parts.values()),
        pack_bytes=chunks.pack_bytes,
        dead_bytes=chunks.dead_bytes,
        chunks=len(chunks.uses),
        shared_chunks=sum(count > 1 for count in chunks.uses.values()),
        saved_bytes=sum((count - 1) * chunk[2] for chunk, count in chunks.uses.items()),
        layers=_shares(each, parts, present),
        names=_shares(names, parts, present),
        kinds=_shares(kinds, parts, present),
    )


def used_shares(store: Store) -> dict[str, float]:
    """Of each pack that a layer with a tag refers to, the share that such layers use.

    Raises NotFoundError, CorruptError or StoreError.
    """
    chunks = _Chunks()
    seen: set[str] = set()
    for _, target in store.tags():
        for layer in stored.layer_descriptors(store, target):
            if layer.digest not in seen:
                seen.add(layer.digest)
                chunks.add(*_load(store, layer))
    return chunks.used_shares()


class _Chunks:
    """Which chunks of which packs are in use, and by how many layers."""

    def __init__(self) -> None:
        self.uses: dict[tuple[str, int, int], int] = defaultdict(int)
        self._packs: dict[str, int] = {}

    def add(self, layer: StoredLayer, table: ChunkTable) -> None:
        packs = layer.manifest.packs
        self._packs.update((pack.digest, pack.size) for pack in packs)
        for place in {(c.pack, c.pack_offset, c.stored_length) for c in table}:
            self.uses[packs[place[0]].digest, place[1], place[2]] += 1

    def used_shares(self) -> dict[str, float]:
        used: Counter[str] = Counter()
        for pack, _, stored_length in self.uses:
            used[pack] += stored_length + _INDEX_ENTRY_BYTES
        return {pack: (used[pack] + _PACK_FRAME_BYTES) / size for pack, size in self._packs.items()}

    @property
    def pack_bytes(self) -> int:
        """Of all packs that layers refer to."""
        return sum(self._packs.values())

    @property
    def dead_bytes(self) -> int:
        """Of chunks in them that no layer uses, with their entries in the index."""
        used = sum(chunk[2] + _INDEX_ENTRY_BYTES for chunk in self.uses)
        return self.pack_bytes - used - _PACK_FRAME_BYTES * len(self._packs)


def _load(store: Store, layer: Descriptor) -> tuple[StoredLayer, ChunkTable]:
    loaded = stored.load_layer(store, layer)
    return loaded, decode_table(store.read(loaded.manifest.table), loaded.config.table)


def _part(layer: StoredLayer) -> _Part:
    blobs = (layer.descriptor, *layer.manifest.blobs)
    return _Part(
        f"{layer.config.kind.value}/{layer.config.name}",
        layer.config.sizes.content_bytes,
        tuple(blob.digest for blob in blobs),
    )


def _shares(
    groups: Mapping[str, Set[str]], parts: Mapping[str, _Part], present: Mapping[str, int]
) -> tuple[Share, ...]:
    """What each group of parts takes, the largest first."""
    blobs = {
        name: {blob for member in members for blob in parts[member].blobs}
        for name, members in groups.items()
    }
    owners = Counter(blob for each in blobs.values() for blob in each)
    shares = [
        Share(
            name=name,
            logical_bytes=sum(parts[member].logical_bytes for member in members),
            stored_bytes=sum(present.get(blob, 0) for blob in blobs[name]),
            unique_bytes=sum(present.get(blob, 0) for blob in blobs[name] if owners[blob] == 1),
        )
        for name, members in groups.items()
    ]
    return tuple(sorted(shares, key=lambda share: (-share.stored_bytes, share.name)))


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
