from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dsec_layers.chunks.table import Chunk
from dsec_layers.errors import StoreError
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.flight import Plain
from dsec_layers.lazyfs.grouping import GAP_BYTES, PLAIN_BYTES, SPAN_BYTES, grouped
from dsec_layers.lazyfs.prefetch import Prefetcher
from dsec_layers.lazyfs.protocol import Start
from dsec_layers.lazyfs.traces import TraceFiles
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.trace import LayerTrace, Touch, of_layers
from tests.support.faulty_store import Gate
from tests.support.lazy import BLOCK, NO_WAIT, Rig, counted, device_bytes, read

ENVIRONMENT = "sha256:" + "e" * 64
START = Start("1", ENVIRONMENT)


def chunk(pack_offset: int, stored: int = 1000, *, plain: int = 1000, pack: int = 0) -> Chunk:
    return Chunk(0, pack_offset, plain, stored, pack, bytes(32))


def groups(*chunks: Chunk) -> list[list[int]]:
    return grouped(list(enumerate(chunks)))


def test_what_lies_together_is_one_group_in_pack_order() -> None:
    assert groups(chunk(5000), chunk(0), chunk(GAP_BYTES)) == [[1, 0, 2]]
    assert groups(chunk(0), chunk(1000 + GAP_BYTES)) == [[0, 1]]
    assert groups(chunk(0), chunk(1001 + GAP_BYTES)) == [[0], [1]]
    assert groups(chunk(0), chunk(1000, pack=1)) == [[0], [1]]
    assert groups(chunk(0), chunk(0)) == [[0, 1]]  # twice on the device
    assert groups() == []


def test_groups_are_bounded() -> None:
    half = SPAN_BYTES // 2
    assert groups(chunk(0, half), chunk(half, half), chunk(2 * half, half)) == [[0, 1], [2]]
    big = PLAIN_BYTES // 2
    packed = [chunk(number * 1000, plain=big) for number in range(3)]
    assert groups(*packed) == [[0, 1], [2]]
    assert groups(chunk(0, 2 * SPAN_BYTES, plain=2 * PLAIN_BYTES)) == [[0]]


class Bench:
    """A layer of 16 chunks, its trace, and a prefetcher."""

    def __init__(self, folder: Path, *, threads: int = 4, cache_bytes: int = 1 << 30) -> None:
        self.files = TraceFiles(folder / "home")
        lanes = replace(NO_WAIT, threads=threads)
        self.rig = Rig(folder, lanes=lanes, cache_bytes=cache_bytes)
        self.data = device_bytes(16)
        self.device = self.rig.device(self.data, [BLOCK] * 16, chunks_per_pack=4)
        self.prefetcher = Prefetcher(self.rig.fetcher, self.files, cache_bytes)

    def know(self, chunks: Sequence[int], device: LayerDevice | None = None) -> None:
        digest = str((device or self.device).layer.digest)
        touches = tuple(Touch(chunk, ms, 1) for ms, chunk in enumerate(chunks))
        self.files.add(of_layers(ENVIRONMENT, [LayerTrace(digest, 1, touches)]))

    def start(self, start: Start = START) -> None:
        self.prefetcher.attached([self.device.layer], start)
        self.prefetcher.drain()
        self.rig.fetcher.drain()

    def here(self) -> list[int]:
        table = self.device.layer.table
        return [number for number in range(16) if self.rig.cache.has(table[number].digest)]

    def block(self, number: int) -> bytes:
        return self.data[number * BLOCK : (number + 1) * BLOCK]

    def begin_read(self, number: int) -> list[bytes]:
        """What is read will be in the list."""
        done: list[bytes] = []

        def finished(parts: Sequence[Plain], error: BaseException | None) -> None:
            done.append(b"".join(parts))

        self.device.start_read(number * BLOCK, BLOCK, finished)
        return done

    def queued(self) -> int:
        with self.rig.opened.lock:
            return len(self.rig.opened.lane("store:1").queue)

    def close(self) -> None:
        self.prefetcher.close()
        self.rig.fetcher.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_trace_is_fetched_by_few_requests(bench: Bench) -> None:
    bench.know([9, 2, 8, 0, 3])
    bench.start()
    assert bench.here() == [0, 2, 3, 8, 9]
    assert len(bench.rig.store.requests) == 2  # a pack each
    bench.rig.store.requests.clear()
    assert read(bench.device, 8 * BLOCK, 2 * BLOCK) == bench.data[8 * BLOCK : 10 * BLOCK]
    assert bench.rig.store.requests == []


def test_without_a_trace_or_when_it_is_off_nothing_is_fetched(bench: Bench) -> None:
    bench.start()
    bench.know([1])
    bench.start(Start("2", ENVIRONMENT, 0))
    assert bench.rig.store.requests == []


def test_the_budget_holds_for_all_layers_of_a_start(bench: Bench) -> None:
    other = bench.rig.device(data := device_bytes(4, seed=1), [BLOCK] * 4)
    bench.know([5, 6, 7])
    bench.know([0, 1, 2], other)
    start = Start("1", ENVIRONMENT, 4 * BLOCK)
    bench.start(start)
    bench.prefetcher.attached([other.layer], start)
    bench.prefetcher.drain()
    bench.rig.fetcher.drain()
    assert bench.here() == [5, 6, 7]
    assert counted(other)["fetched_chunks"] == 1
    bench.start(start)  # said again, as after a daemon was killed
    bench.start(Start("2", ENVIRONMENT, 4 * BLOCK))
    assert read(other, 0, 4 * BLOCK) == data


def test_the_cache_is_not_filled_by_what_is_only_foreseen(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cache_bytes=12 * BLOCK)
    bench.know(range(16))
    bench.start(Start("1", ENVIRONMENT, 1 << 40))
    assert counted(bench.device)["fetched_bytes"] == 3 * BLOCK
    bench.close()


def test_a_stale_or_damaged_trace_does_no_harm(bench: Bench, tmp_path: Path) -> None:
    bench.know([1, 400, 2])
    bench.start()
    assert bench.here() == [1, 2]
    (path,) = (tmp_path / "home/traces").glob("*.zst")
    path.write_bytes(b"nonsense")
    bench.start(Start("2", ENVIRONMENT))
    assert bench.here() == [1, 2]
    assert read(bench.device, 0, 16 * BLOCK) == bench.data


def test_a_read_goes_before_what_is_foreseen(tmp_path: Path) -> None:
    bench = Bench(tmp_path, threads=1)
    bench.know(range(4, 16))
    bench.rig.store.fault = gate = Gate()
    first = bench.begin_read(0)
    gate.await_arrivals()  # the only thread of the store is busy now
    bench.prefetcher.attached([bench.device.layer], START)
    while bench.queued() < 12:
        time.sleep(0.005)
    second = bench.begin_read(2)
    gate.open()
    bench.prefetcher.drain()
    bench.rig.fetcher.drain()
    assert (first, second) == ([bench.block(0)], [bench.block(2)])
    asked = [digest for digest, _, _ in bench.rig.store.requests]
    packs = [pack.digest for pack in bench.device.layer.packs]
    assert asked[:2] == [packs[0]] * 2  # then what was queued before the second read
    assert sorted(asked[2:]) == sorted(packs[1:])
    bench.close()


def test_a_read_joins_what_is_on_its_way(bench: Bench) -> None:
    bench.know([4])
    bench.rig.store.fault = gate = Gate()
    bench.prefetcher.attached([bench.device.layer], START)
    gate.await_arrivals()
    done = bench.begin_read(4)
    gate.open()
    bench.prefetcher.drain()
    bench.rig.fetcher.drain()
    assert done == [bench.block(4)]
    assert len(bench.rig.store.requests) == 1


def test_a_layer_that_is_gone_is_wanted_no_more(bench: Bench) -> None:
    bench.know([4])
    bench.prefetcher._new.append((START, bench.device.layer))
    bench.prefetcher.detached(bench.device.layer.digest)
    bench.prefetcher.drain()
    assert bench.rig.store.requests == []


def test_a_failing_store_ends_it_and_reads_go_on(bench: Bench) -> None:
    bench.know(range(16))

    def fault(blob: Descriptor, offset: int, length: int | None, found: bytes) -> bytes:
        raise StoreError("down")

    bench.rig.store.fault = fault
    bench.start()
    assert bench.here() == []
    bench.rig.store.fault = None
    assert read(bench.device, 0, 16 * BLOCK) == bench.data
