"""The lazy file system without a kernel: a layer in memory, a faulty store, a cache, a fetcher."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsec_layers.lazyfs.breaker import BreakerLimits
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.counters import Counters
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.fetch import Fetcher
from dsec_layers.lazyfs.gathering import FetchLimits
from dsec_layers.lazyfs.lane import LaneLimits
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.lazyfs.loading import load_served_layer
from dsec_layers.lazyfs.memory import MemoryChunks
from dsec_layers.lazyfs.retries import Retries
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.model.blobs import BlobReader
from tests.support.devices import put_device
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore

BLOCK = 4096
NO_WAIT = LaneLimits(
    threads=4,
    retries=Retries(attempts=3, first_s=0, most_s=0),
    breaker=BreakerLimits(failures=1000),
)
# Chunks of tests are small; no read-ahead unless a test is about it.
SMALL = FetchLimits(least_bytes=0, most_bytes=16 * BLOCK, gap_bytes=0)


def device_bytes(blocks: int, seed: int = 0) -> bytes:
    """`blocks` blocks of 4 KiB, no two alike, half of each compressible."""
    source = random.Random(seed)
    return b"".join(source.randbytes(BLOCK // 2).ljust(BLOCK, b"x") for _ in range(blocks))


@dataclass
class Rig:
    """`store` is the first store of every layer; `limits` and the cache are small."""

    folder: Path
    limits: FetchLimits = SMALL
    lanes: LaneLimits = NO_WAIT
    memory_bytes: int = 1 << 20
    cache_bytes: int = 1 << 30
    blobs: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.store = FaultyStore(self.blobs)
        self.stores: dict[str, BlobReader] = {"store:1": self.store}
        self.cache = ChunkCache(self.folder / "chunks", self.cache_bytes, touch_after_s=0)
        self.memory = MemoryChunks(self.memory_bytes)
        opened = Lanes(lambda url: self.stores[url], self.lanes)
        self.opened = opened
        self.fetcher = Fetcher(self.cache, self.memory, opened, self.limits)

    def device(
        self,
        data: bytes,
        lengths: Iterable[int],
        *,
        urls: Sequence[str] = ("store:1",),
        chunks_per_pack: int = 1 << 30,
    ) -> LayerDevice:
        """Put a layer whose device is `data`, in chunks of `lengths`, and open it."""
        manifest = put_device(self.blobs, data, lengths, chunks_per_pack=chunks_per_pack)
        chain = StoreChain(urls, self.opened, Counters())
        layer, _ = load_served_layer(manifest, chain)
        self.store.requests.clear()
        layer.stores = StoreChain(urls, self.opened, Counters())
        return LayerDevice(layer, self.fetcher)


def read(device: LayerDevice, offset: int, length: int) -> bytes:
    """What `device.read` gives, joined."""
    return b"".join(device.read(offset, length))


def counted(device: LayerDevice) -> Mapping[str, int]:
    """The counters of the device's layer that are not zero."""
    counts = device.layer.counters.counts()
    values = {name: getattr(counts, name) for name in counts.__struct_fields__}
    return {name: value for name, value in values.items() if value}
