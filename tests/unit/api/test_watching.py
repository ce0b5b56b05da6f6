from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from dsec_layers.api.watching import Interval, Names, interval, since
from dsec_layers.api.workbench import Workbench
from dsec_layers.cli.watching import as_table, in_a_line
from dsec_layers.lazyfs.protocol import CacheStats, Counts, LayerStats, Stats, StoreStats

DIGEST = "sha256:" + "ab" * 32
CACHE = CacheStats(0, 1, 0, 1, 0)


def stats(counts: Counts, *, in_flight: int = 0, state: str = "closed") -> Stats:
    layer = LayerStats(DIGEST, 100, 1, counts, in_flight)
    store = StoreStats("s3://bucket/p", state, 0, 0, 0, 0, 0, 0, {})
    return Stats((layer,), counts, CACHE, (store,))


def between(before: Stats, after: Stats, tmp_path: Path) -> Interval:
    return interval(before, after, 2.0, Names(Workbench(tmp_path)))


def test_rates_are_differences_by_time(tmp_path: Path) -> None:
    before = Counts(kernel_reads=5, kernel_bytes=1000, cache_hits=3, errors=1)
    after = Counts(
        kernel_reads=15,
        kernel_bytes=9000,
        cache_hits=6,
        cache_misses=1,
        fetched_bytes=4000,
        errors=3,
    )
    told = between(stats(before), stats(after, in_flight=2), tmp_path)
    (layer,) = told.layers
    assert layer.layer == DIGEST  # which nobody here knows by a name
    for rate in (layer, told.total):
        assert (rate.reads_per_s, rate.read_bytes_per_s) == (5.0, 4000.0)
        assert rate.hit_rate == 0.75
        assert rate.fetched_bytes_per_s == 2000.0
        assert (rate.in_flight, rate.errors) == (2, 2)
    assert told.troubled == ()


def test_the_counters_of_a_new_daemon_begin_at_zero() -> None:
    assert since(Counts(kernel_reads=7), Counts(kernel_reads=2)) == Counts(kernel_reads=2)
    assert since(Counts(), Counts()) == Counts()


def test_for_a_log_and_for_a_terminal(tmp_path: Path) -> None:
    idle = stats(Counts())
    told = between(
        idle, stats(Counts(kernel_reads=4, kernel_bytes=3_000_000), state="open"), tmp_path
    )
    assert in_a_line(told) == (
        "2 reads/s, 1.5 MB/s, - hits, 0 B/s fetched, 0 in flight, 0 errors, "
        "s3://bucket/p is in trouble"
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(as_table(told))
    text = console.export_text()
    assert text.splitlines()[0].split() == [
        *("LAYER", "MOUNTS", "READS/S", "READ/S", "HITS", "FETCHED/S", "IN", "FLIGHT", "ERRORS")
    ]
    assert DIGEST in text
    assert "s3://bucket/p is in trouble" in text
