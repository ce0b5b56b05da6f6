"""What the lazy file system has done for the environments of this machine."""

from __future__ import annotations

import msgspec

from dsec_layers.api.managing import running_client
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import DsecError
from dsec_layers.lazyfs.protocol import CacheStats, Counts


class LayerUse(msgspec.Struct, frozen=True, kw_only=True):
    """One mounted layer.

    `environment_bytes` is what its device holds; `fetched_bytes` of them came from a store, as
    `stored_bytes` on the wire; `cached_bytes` came from the chunk cache; `read_bytes` is what the
    kernel asked for. What the page cache answers is counted nowhere.
    """

    layer: str
    environment_bytes: int
    fetched_bytes: int
    stored_bytes: int
    cached_bytes: int
    read_bytes: int
    requests: int
    errors: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All mounted layers, everything since the daemon started, and the cache."""

    layers: tuple[LayerUse, ...]
    total: LayerUse
    cache: CacheStats
    counts: Counts


def stats(bench: Workbench) -> Report:
    """Ask the daemon. Raises NotFoundError when none runs, or DaemonError."""
    found = running_client(bench).stats()
    layers = tuple(
        _use(layer_name(bench, each.digest), each.device_bytes, each.counts)
        for each in found.layers
    )
    mounted_bytes = sum(layer.environment_bytes for layer in layers)
    total = _use("total", mounted_bytes, found.totals)
    return Report(layers=layers, total=total, cache=found.cache, counts=found.totals)


def _use(name: str, environment_bytes: int, counts: Counts) -> LayerUse:
    return LayerUse(
        layer=name,
        environment_bytes=environment_bytes,
        fetched_bytes=counts.fetched_bytes,
        stored_bytes=counts.store_bytes,
        cached_bytes=counts.cache_bytes,
        read_bytes=counts.kernel_bytes,
        requests=counts.store_requests,
        errors=counts.errors,
    )


def layer_name(bench: Workbench, digest: str) -> str:
    """`kind/name` and the digest in short, or the digest alone when its documents are gone."""
    try:
        return str(bench.layer(bench.by_digest(digest)))
    except DsecError:
        return digest
