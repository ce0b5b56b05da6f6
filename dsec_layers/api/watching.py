"""What the lazy file system does just now: the difference of its counters, interval by interval."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from dsec_layers.api.managing import running_client
from dsec_layers.api.stats import layer_name
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import DaemonError
from dsec_layers.lazyfs.journal import Journal, Phase
from dsec_layers.lazyfs.protocol import Counts, Stats


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """One layer, or all, during one interval.

    `hit_rate` is the part of the chunks that was at hand, None when none was asked for. `in_flight`
    are the chunks that are being fetched now, `errors` the reads that failed in the interval.
    `mounts` are the directories where the layer is to be seen.
    """

    layer: str
    mounts: tuple[str, ...]
    reads_per_s: float
    read_bytes_per_s: float
    hit_rate: float | None
    fetched_bytes_per_s: float
    in_flight: int
    errors: int


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """`time` is its end in seconds since 1970; `troubled` are stores that are not asked now."""

    time: float
    seconds: float
    layers: tuple[Rate, ...]
    total: Rate
    troubled: tuple[str, ...]


def watch(bench: Workbench, every_s: float) -> Iterator[Interval]:
    """An interval every `every_s` seconds, without end; none while a daemon is being replaced.

    Raises NotFoundError when none runs at the start.
    """
    client = running_client(bench)
    names = Names(bench)
    before, began = client.stats(), time.monotonic()
    while True:
        time.sleep(every_s)
        try:
            after, ended = client.stats(), time.monotonic()
        except DaemonError:
            continue
        yield interval(before, after, ended - began, names)
        before, began = after, ended


class Names:
    """Names and mounts of layers; a name is looked up once."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._journal = Journal(bench.home.root / "run")
        self._known: dict[str, str] = {}

    def name(self, digest: str) -> str:
        """`kind/name` and the digest in short, if they are known here."""
        if digest not in self._known:
            self._known[digest] = layer_name(self._bench, digest)
        return self._known[digest]

    def mounts(self) -> dict[str, tuple[str, ...]]:
        """Mount points by the digests of the layers below them."""
        found: dict[str, tuple[str, ...]] = {}
        for record in self._journal.records():
            for use in record.layers if record.phase is Phase.MOUNTED and record.target else ():
                digest = f"sha256:{use.hex}"
                found[digest] = (*found.get(digest, ()), record.target)
        return found


def interval(before: Stats, after: Stats, seconds: float, names: Names) -> Interval:
    """What happened between two looks that are `seconds` apart."""
    mounts = names.mounts()
    earlier = {layer.digest: layer.counts for layer in before.layers}
    layers = tuple(
        _rate(
            names.name(layer.digest),
            mounts.get(layer.digest, ()),
            since(earlier.get(layer.digest, Counts()), layer.counts),
            seconds,
            layer.in_flight,
        )
        for layer in after.layers
    )
    everywhere = tuple(sorted({target for targets in mounts.values() for target in targets}))
    in_flight = sum(layer.in_flight for layer in after.layers)
    total = _rate("total", everywhere, since(before.totals, after.totals), seconds, in_flight)
    return Interval(
        time=round(time.time(), 3),
        seconds=round(seconds, 3),
        layers=layers,
        total=total,
        troubled=tuple(store.url for store in after.stores if store.state != "closed"),
    )


def since(before: Counts, after: Counts) -> Counts:
    """The growth of all counters; those of a new daemon have begun at zero."""
    names = Counts.__struct_fields__
    grown = {name: getattr(after, name) - getattr(before, name) for name in names}
    return after if min(grown.values()) < 0 else Counts(**grown)


def _rate(
    name: str, mounts: tuple[str, ...], grown: Counts, seconds: float, in_flight: int
) -> Rate:
    looked_up = grown.cache_hits + grown.cache_misses
    return Rate(
        layer=name,
        mounts=mounts,
        reads_per_s=round(grown.kernel_reads / seconds, 1),
        read_bytes_per_s=round(grown.kernel_bytes / seconds, 1),
        hit_rate=round(grown.cache_hits / looked_up, 4) if looked_up else None,
        fetched_bytes_per_s=round(grown.fetched_bytes / seconds, 1),
        in_flight=in_flight,
        errors=grown.errors,
    )
