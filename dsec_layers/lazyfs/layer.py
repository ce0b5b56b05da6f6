"""A layer as the daemon holds it: its chunks, where they are stored, what happened to them."""

from __future__ import annotations

from dataclasses import dataclass

from dsec_layers.chunks.table import ChunkTable
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.lazyfs.recording import Recording
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor


@dataclass(slots=True, eq=False, weakref_slot=True)
class ServedLayer:
    """`packs` are in the order in which the table counts them.

    `stores` may be replaced; `recording` is while one goes on.
    """

    digest: Digest
    table: ChunkTable
    packs: tuple[Descriptor, ...]
    stores: StoreChain
    recording: Recording | None = None

    @property
    def counters(self) -> Counters:
        """What happened to the layer since the daemon started."""
        return self.stores.counters
