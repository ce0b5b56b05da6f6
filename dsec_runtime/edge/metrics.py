"""What the edge counts, for Prometheus. No label names a sandbox, so their number is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_FAST: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06, 0.12, 0.25, 0.5, 1, 2, 5, 15, 60)


class Metrics:
    """One edge's metrics, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "dsec_edge_requests",
            "Requests by route and status",
            ["route", "status"],
            registry=registry,
        )
        self.creations = Counter(
            "dsec_edge_creations",
            "Creations by how they went",
            ["tier", "result"],
            registry=registry,
        )
        self.create_s = Histogram(
            "dsec_edge_create_seconds",
            "Time that a creation takes, waiting included",
            ["tier"],
            registry=registry,
            buckets=_FAST,
        )
        self.changes = Counter(
            "dsec_edge_state_changes",
            "States that sandboxes came into",
            ["state"],
            registry=registry,
        )
        self.execs = Counter("dsec_edge_execs", "Commands started", registry=registry)
        self.exec_ends = Counter(
            "dsec_edge_exec_ends", "Ended commands by cause", ["cause"], registry=registry
        )
        self.refused = Counter(
            "dsec_edge_refused", "Creations that were refused", ["why"], registry=registry
        )
        self.fncalls = Counter(
            "dsec_edge_fncalls", "Stateless tasks by how they ended", ["end"], registry=registry
        )
        self.fncall_s = Histogram(
            "dsec_edge_fncall_seconds",
            "Time that a stateless task takes, waiting included",
            registry=registry,
            buckets=_FAST,
        )
        self.pool_discards = Counter(
            "dsec_edge_pool_discards", "Containers that a task left unclean", registry=registry
        )
        self.recovered = Counter(
            "dsec_edge_recovered", "Sandboxes found at a start", ["outcome"], registry=registry
        )

    def watch_sandboxes(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Have `count` (sandboxes by state) asked at each scrape."""
        self.registry.register(_States("dsec_edge_sandboxes", "Sandboxes by state", count))

    def watch_pool(self, count: Callable[[], Mapping[str, int]]) -> None:
        """The same of the containers for stateless tasks, and of the calls that wait for one."""
        self.registry.register(_States("dsec_edge_pool", "Containers for tasks by state", count))

    def text(self) -> bytes:
        """All in the text format."""
        return generate_latest(self.registry)


class _States(Collector):
    def __init__(self, name: str, about: str, count: Callable[[], Mapping[str, int]]) -> None:
        self._name, self._about, self._count = name, about, count

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._about, labels=["state"])
        for state, number in self._count().items():
            family.add_metric([state], number)
        yield family
