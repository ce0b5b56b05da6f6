"""Everything that a daemon counts, gathered for whoever asks."""

from __future__ import annotations

from dataclasses import dataclass

from dsec_layers.lazyfs import counters, protocol
from dsec_layers.lazyfs.attached import AttachedLayers
from dsec_layers.lazyfs.blobfs import File
from dsec_layers.lazyfs.cache import ChunkCache
from dsec_layers.lazyfs.fetch import Fetcher
from dsec_layers.lazyfs.figures import Histogram
from dsec_layers.lazyfs.lane import Lane
from dsec_layers.lazyfs.lanes import Lanes
from dsec_layers.lazyfs.memory import MemoryChunks
from dsec_layers.lazyfs.readtimes import ReadTimes


@dataclass(frozen=True, slots=True)
class Statistics:
    """The parts of a daemon that count. Safe for many threads."""

    layers: AttachedLayers
    fetcher: Fetcher
    lanes: Lanes
    cache: ChunkCache
    memory: MemoryChunks
    times: ReadTimes

    def stats(self) -> protocol.Stats:
        """The counters at about one moment."""
        in_flight = self.fetcher.in_flight()
        layers = tuple(
            _layer_stats(file, in_flight[file.device.layer]) for file in self.layers.listed()
        )
        with self.lanes.lock:
            stores = tuple(map(_store_stats, self.lanes.listed()))
        return protocol.Stats(
            layers=layers,
            totals=counters.total([*(layer.counts for layer in layers), self.layers.past]),
            cache=protocol.CacheStats(
                disk_bytes=self.cache.used_bytes,
                disk_limit_bytes=self.cache.limit_bytes,
                memory_bytes=self.memory.held_bytes,
                memory_limit_bytes=self.memory.limit_bytes,
                evicted_chunks=self.cache.evicted_chunks,
            ),
            stores=stores,
            read_errors=dict(self.times.errors),
        )

    def store_seconds(self) -> dict[str, Histogram]:
        """How long requests to each store take, by URL."""
        with self.lanes.lock:
            return {lane.url: lane.figures.seconds for lane in self.lanes.listed()}


def _store_stats(lane: Lane) -> protocol.StoreStats:
    figures = lane.figures
    return protocol.StoreStats(
        url=lane.url,
        state=str(lane.breaker.state),
        openings=lane.breaker.openings,
        requests=figures.requests,
        answered_bytes=figures.answered_bytes,
        refused=figures.refused,
        in_flight=lane.in_flight,
        stuck=lane.stuck,
        errors=dict(figures.errors),
    )


def _layer_stats(file: File, in_flight: int) -> protocol.LayerStats:
    layer = file.device.layer
    return protocol.LayerStats(
        digest=str(layer.digest),
        device_bytes=layer.table.device_bytes,
        chunks=len(layer.table),
        counts=layer.counters.counts(),
        in_flight=in_flight,
    )
