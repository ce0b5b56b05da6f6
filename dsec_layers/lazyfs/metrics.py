"""The daemon's counters in the text format of Prometheus, made when somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import dsec_layers
from dsec_layers.errors import InvalidInputError
from dsec_layers.lazyfs.breaker import State
from dsec_layers.lazyfs.figures import BOUNDS_S, Histogram
from dsec_layers.lazyfs.journal import Journal, Phase
from dsec_layers.lazyfs.protocol import Counts, Stats, StoreStats
from dsec_layers.lazyfs.statistics import Statistics

if TYPE_CHECKING:  # it loads a web server: only who is asked for metrics needs it
    from prometheus_client.core import Metric

_STORE = ("scheme", "store")
_COUNTED = {
    "kernel_reads": ("dsec_kernel_reads", "Reads that the kernel asked for."),
    "kernel_bytes": ("dsec_kernel_read_bytes", "Bytes that the kernel asked for."),
    "errors": ("dsec_kernel_read_failures", "Reads that were answered with EIO."),
    "cache_hits": ("dsec_cache_hits", "Chunks found in memory or in the cache on disk."),
    "cache_misses": ("dsec_cache_misses", "Chunks that had to be fetched."),
    "cache_bytes": ("dsec_cache_read_bytes", "Bytes of reads answered from memory or cache."),
    "corrupt_entries": ("dsec_cache_corrupt_entries", "Cache entries found damaged."),
    "uncached_chunks": ("dsec_cache_refused_chunks", "Chunks that the cache could not take."),
    "fetched_chunks": ("dsec_fetched_chunks", "Chunks fetched from stores, and checked."),
    "fetched_bytes": ("dsec_fetched_bytes", "Their bytes, unpacked."),
    "retries": ("dsec_store_retries", "Attempts after a failed one."),
}


class Metrics:
    """A collector for prometheus_client, of the daemon of the home `home`."""

    def __init__(self, statistics: Statistics, home: Path) -> None:
        self._statistics = statistics
        self._journal = Journal(home / "run")

    def text(self) -> str:
        """All of them."""
        from prometheus_client import generate_latest

        return generate_latest(self).decode()

    def listen(self, address: str) -> int:
        """Serve them by HTTP at `HOST:PORT`, in threads; the port.

        Raises InvalidInputError for what is no address, OSError when it cannot be had.
        """
        from prometheus_client import CollectorRegistry, start_http_server

        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise InvalidInputError(f"not an address: {address!r}", hint="write 127.0.0.1:9464")
        registry = CollectorRegistry()
        registry.register(self)
        server, _ = start_http_server(int(port), host.strip("[]"), registry)
        return int(server.server_port)

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client's Collector."""
        from prometheus_client.core import HistogramMetricFamily

        stats = self._statistics.stats()
        yield from _totals(stats.totals)
        yield from _node(stats, sum(r.phase is Phase.MOUNTED for r in self._journal.records()))
        yield from _stores(stats.stores)
        reads = HistogramMetricFamily("dsec_kernel_read_seconds", "How long the kernel waits.")
        _add(reads, (), self._statistics.times.seconds)
        yield reads
        requests = HistogramMetricFamily(
            "dsec_store_request_seconds", "How long requests take, retries included.", labels=_STORE
        )
        for url, seconds in self._statistics.store_seconds().items():
            _add(requests, _labels(url), seconds)
        yield requests


def _totals(counts: Counts) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for field, (name, meaning) in _COUNTED.items():
        yield CounterMetricFamily(name, meaning, value=getattr(counts, field))


def _node(stats: Stats, mounts: int) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily("dsec", "The daemon.", value={"version": dsec_layers.__version__})
    errors = CounterMetricFamily("dsec_kernel_read_errors", "Failed reads by why.", labels=["kind"])
    for kind, count in sorted(stats.read_errors.items()):
        errors.add_metric([kind], count)
    yield errors
    cache = stats.cache
    yield CounterMetricFamily(
        "dsec_cache_evicted_chunks", "Chunks that made way for others.", value=cache.evicted_chunks
    )
    for name, meaning, value in (
        ("dsec_layers", "Layers that are served.", len(stats.layers)),
        ("dsec_mounts", "Environments that are mounted.", mounts),
        (
            "dsec_chunks_in_flight",
            "Chunks that are being fetched or kept.",
            sum(layer.in_flight for layer in stats.layers),
        ),
        ("dsec_cache_size_bytes", "The cache on disk; 0 until it is counted.", cache.disk_bytes),
        ("dsec_cache_limit_bytes", "What the cache may take.", cache.disk_limit_bytes),
        ("dsec_memory_size_bytes", "Chunks in memory.", cache.memory_bytes),
        ("dsec_memory_limit_bytes", "What they may take.", cache.memory_limit_bytes),
    ):
        yield GaugeMetricFamily(name, meaning, value=value or 0)


def _stores(stores: tuple[StoreStats, ...]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for family, name, meaning, field in (
        (CounterMetricFamily, "requests", "Requests that have ended.", "requests"),
        (CounterMetricFamily, "bytes", "Bytes that they brought.", "answered_bytes"),
        (CounterMetricFamily, "refused", "Requests not made, the breaker being open.", "refused"),
        (CounterMetricFamily, "breaker_openings", "How often the breaker opened.", "openings"),
        (GaugeMetricFamily, "in_flight", "Requests under way.", "in_flight"),
        (GaugeMetricFamily, "stuck", "Of these, overdue ones that hold a thread.", "stuck"),
    ):
        metric: Any = family(f"dsec_store_{name}", meaning, labels=_STORE)
        for store in stores:
            metric.add_metric(_labels(store.url), getattr(store, field))
        yield metric
    errors = CounterMetricFamily(
        "dsec_store_errors", "Requests without an answer.", labels=[*_STORE, "kind"]
    )
    states = GaugeMetricFamily(
        "dsec_store_breaker", "1 for the state it is in.", labels=[*_STORE, "state"]
    )
    for store in stores:
        for kind, count in sorted(store.errors.items()):
            errors.add_metric([*_labels(store.url), kind], count)
        for state in State:
            states.add_metric([*_labels(store.url), str(state)], float(store.state == state))
    yield errors
    yield states


def _labels(url: str) -> tuple[str, str]:
    """Scheme and name of a store; who it is asked as, and how, is nobody's business."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts.scheme or "dir", f"{parts.scheme}://{host}{parts.path}" if parts.scheme else url


def _add(family: Any, labels: tuple[str, ...], seconds: Histogram) -> None:
    counts, sum_s = seconds.cumulated()
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    family.add_metric(labels, list(zip(bounds, counts, strict=True)), sum_s)
