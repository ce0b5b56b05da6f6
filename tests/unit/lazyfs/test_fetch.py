from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, NotFoundError, StoreError
from dsec_layers.lazyfs import landing
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.flight import Flight, Plain
from dsec_layers.lazyfs.gathering import FetchLimits
from dsec_layers.model.manifest import Descriptor
from tests.support.faulty_store import FaultyStore, Gate
from tests.support.lazy import BLOCK, NO_WAIT, SMALL, Rig, counted, device_bytes, read

MakeRig = Callable[..., Rig]
ONE_THREAD = replace(NO_WAIT, threads=1)


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make(**options: object) -> Rig:
        rigs.append(Rig(tmp_path / str(len(rigs)), **options))  # type: ignore[arg-type]
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.fetcher.close()


def start(device: LayerDevice, offset: int, length: int) -> Future[bytes]:
    """Begin a read in the background."""
    result: Future[bytes] = Future()

    def finished(parts: object, error: BaseException | None) -> None:
        if error:
            result.set_exception(error)
        else:
            result.set_result(b"".join(parts))  # type: ignore[arg-type]

    device.start_read(offset, length, finished)
    return result


def test_two_readers_of_a_chunk_are_one_fetch(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(4)
    device = rig.device(data, [4 * BLOCK])
    rig.store.fault = gate = Gate()
    first = start(device, 0, BLOCK)
    gate.await_arrivals()
    others = [start(device, number * BLOCK, BLOCK) for number in range(4)]
    assert not any(other.done() for other in others)
    gate.open()
    assert first.result(60) == data[:BLOCK]
    assert b"".join(other.result(60) for other in others) == data
    assert len(rig.store.requests) == 1


def test_a_chunk_that_has_come_is_not_fetched_again_although_nothing_holds_it(
    make_rig: MakeRig,
) -> None:
    rig, data = make_rig(memory_bytes=0), device_bytes(4)
    device = rig.device(data, [BLOCK] * 4)
    assert read(device, 0, 4 * BLOCK) == data  # perhaps still on its way into the cache
    assert read(device, 0, 4 * BLOCK) == data
    rig.fetcher.drain()
    assert read(device, 0, 4 * BLOCK) == data
    assert counted(device)["fetched_chunks"] == 4


def test_layers_share_the_chunks_they_have_in_common(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(4)
    one, two = rig.device(data, [BLOCK] * 4), rig.device(data[BLOCK:], [BLOCK] * 3)
    assert read(one, 0, 4 * BLOCK) == data
    rig.store.requests.clear()
    assert read(two, 0, 3 * BLOCK) == data[BLOCK:]
    assert rig.store.requests == []
    assert counted(two)["cache_hits"] == 3


def test_neighbours_come_in_one_request(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(8)
    device = rig.device(data, [BLOCK] * 8)
    assert read(device, 0, 8 * BLOCK) == data
    assert len(rig.store.requests) == 1
    assert counted(device)["store_requests"] == 1
    assert counted(device)["fetched_chunks"] == 8


def test_a_request_is_bounded(make_rig: MakeRig) -> None:
    rig = make_rig(lanes=ONE_THREAD, limits=replace(SMALL, most_bytes=3 * BLOCK))
    data = device_bytes(8)
    device = rig.device(data, [BLOCK] * 8)
    assert read(device, 0, 8 * BLOCK) == data
    assert len(rig.store.requests) == 3


def test_packs_are_separate_requests(make_rig: MakeRig) -> None:
    rig, data = make_rig(lanes=ONE_THREAD), device_bytes(8)
    device = rig.device(data, [BLOCK] * 8, chunks_per_pack=4)
    assert read(device, 0, 8 * BLOCK) == data
    assert len({digest for digest, _, _ in rig.store.requests}) == 2
    assert len(rig.store.requests) == 2


def test_waiting_neighbours_on_both_sides_are_taken_along(make_rig: MakeRig) -> None:
    rig, data = make_rig(lanes=ONE_THREAD), device_bytes(8)
    device = rig.device(data, [BLOCK] * 8)
    rig.store.fault = gate = Gate()
    blocker = start(device, 7 * BLOCK, BLOCK)
    gate.await_arrivals()  # the only worker is busy; these queue up
    reads = {number: start(device, number * BLOCK, BLOCK) for number in (3, 1, 2, 5, 4)}
    gate.open()
    assert blocker.result(60) == data[7 * BLOCK :]
    for number, queued in reads.items():
        assert queued.result(60) == data[number * BLOCK : (number + 1) * BLOCK]
    assert len(rig.store.requests) == 2


def test_a_small_gap_is_read_over(make_rig: MakeRig) -> None:
    rig, data = (
        make_rig(lanes=ONE_THREAD, limits=replace(SMALL, gap_bytes=2 * BLOCK)),
        device_bytes(6),
    )
    device = rig.device(data, [BLOCK] * 6)
    table, chunks = device.layer.table, list(device.layer.table)
    # The same device over the same pack, without the chunks 2 and 3.
    shorter = [
        *chunks[:2],
        *(chunk._replace(device_offset=chunk.device_offset - 2 * BLOCK) for chunk in chunks[4:]),
    ]
    device.layer.table = type(table)(table.packs, shorter)
    assert read(device, 0, 4 * BLOCK) == data[: 2 * BLOCK] + data[4 * BLOCK :]
    assert len(rig.store.requests) == 1


def test_read_ahead_grows_along_a_stream(make_rig: MakeRig) -> None:
    limits = FetchLimits(least_bytes=2 * BLOCK, most_bytes=8 * BLOCK, gap_bytes=0)
    rig, data = make_rig(lanes=ONE_THREAD, limits=limits), device_bytes(32)
    device = rig.device(data, [BLOCK] * 32)
    for number in range(32):
        assert read(device, number * BLOCK, BLOCK) == data[number * BLOCK : (number + 1) * BLOCK]
    rig.fetcher.drain()
    fetched = counted(device)
    assert fetched["fetched_chunks"] == 32
    assert fetched["store_requests"] == 6  # 2, 4, 8, 8, 8 and the last 2


def test_read_ahead_stops_at_what_is_there(make_rig: MakeRig) -> None:
    limits = FetchLimits(least_bytes=8 * BLOCK, most_bytes=8 * BLOCK, gap_bytes=0)
    rig, data = make_rig(lanes=ONE_THREAD, limits=limits), device_bytes(8)
    device = rig.device(data, [BLOCK] * 8)
    read(device, 4 * BLOCK, BLOCK)
    rig.fetcher.drain()
    read(device, 0, BLOCK)
    rig.fetcher.drain()
    assert counted(device)["fetched_chunks"] == 8
    assert read(device, 0, 8 * BLOCK) == data
    assert counted(device)["store_requests"] == 2


def flip(place: int, pack_offset: int) -> Callable[[Descriptor, int, int | None, bytes], bytes]:
    """A fault: one byte of the pack is wrong, in whatever request it comes."""

    def fault(blob: Descriptor, offset: int, length: int | None, data: bytes) -> bytes:
        at = pack_offset + place - offset
        if 0 <= at < len(data):
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        return data

    return fault


def test_a_lying_store_is_an_error_and_only_for_the_chunk_it_lies_about(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(4)
    device = rig.device(data, [BLOCK] * 4)
    rig.store.fault = flip(100, device.layer.table[2].pack_offset)
    with pytest.raises(CorruptError):
        read(device, 0, 4 * BLOCK)
    assert read(device, 0, 2 * BLOCK) == data[: 2 * BLOCK]
    with pytest.raises(CorruptError):
        read(device, 2 * BLOCK, 1)
    assert "retries" not in counted(device)
    rig.store.fault = None
    assert read(device, 0, 4 * BLOCK) == data  # no error is remembered


def test_a_store_that_falls_short_is_an_error(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(4)
    device = rig.device(data, [BLOCK] * 4)
    rig.store.fault = lambda blob, offset, length, found: found[:-1]
    with pytest.raises(CorruptError, match="asked for"):
        read(device, 0, 4 * BLOCK)
    rig.store.fault = lambda blob, offset, length, found: found + b"x"
    with pytest.raises(CorruptError, match="asked for"):
        read(device, 0, 4 * BLOCK)


def test_a_broken_end_of_a_pack_spoils_no_neighbours(make_rig: MakeRig) -> None:
    limits = replace(SMALL, least_bytes=4 * BLOCK)
    rig, data = make_rig(lanes=ONE_THREAD, limits=limits), device_bytes(4)
    device = rig.device(data, [BLOCK] * 4)
    end = device.layer.table[3].pack_offset

    def cut(blob: Descriptor, offset: int, length: int | None, found: bytes) -> bytes:
        if offset + len(found) > end:
            raise CorruptError("the pack ends early")
        return found

    rig.store.fault = cut
    assert read(device, 0, BLOCK) == data[:BLOCK]  # read ahead failed, the chunk itself did not
    assert read(device, 0, 3 * BLOCK) == data[: 3 * BLOCK]
    with pytest.raises(CorruptError):
        read(device, 0, 4 * BLOCK)


def test_a_store_that_recovers_in_time_is_only_slow(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(2)
    device = rig.device(data, [BLOCK] * 2)
    failures = iter([StoreError("busy"), StoreError("busy")])

    def fault(blob: Descriptor, offset: int, length: int | None, found: bytes) -> bytes:
        for failure in failures:
            raise failure
        return found

    rig.store.fault = fault
    assert read(device, 0, 2 * BLOCK) == data
    assert counted(device)["retries"] == 2


def test_a_store_that_keeps_failing_is_an_error_for_now(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(2)
    device = rig.device(data, [BLOCK] * 2)

    def fault(blob: Descriptor, offset: int, length: int | None, found: bytes) -> bytes:
        raise StoreError("down")

    rig.store.fault = fault
    with pytest.raises(StoreError, match="down"):
        read(device, 0, 2 * BLOCK)
    assert len(rig.store.requests) == 3  # the attempts, for both chunks together
    rig.store.fault = None
    assert read(device, 0, 2 * BLOCK) == data


def test_an_unforeseen_failure_reaches_the_reader(make_rig: MakeRig) -> None:
    rig = make_rig(lanes=ONE_THREAD)
    device = rig.device(data := device_bytes(2), [BLOCK] * 2)

    def fault(blob: Descriptor, offset: int, length: int | None, found: bytes) -> bytes:
        raise ZeroDivisionError

    rig.store.fault = fault
    with pytest.raises(StoreError, match="fetching failed"):
        read(device, 0, BLOCK)
    rig.store.fault = None
    assert read(device, 0, 2 * BLOCK) == data  # and the worker lives on


def test_missing_packs_are_looked_for_in_the_next_store(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(2)
    rig.stores["store:0"] = empty = FaultyStore(type(rig.blobs)())
    device = rig.device(data, [BLOCK] * 2, urls=("store:0", "store:1"))
    empty.requests.clear()
    assert read(device, 0, 2 * BLOCK) == data
    assert len(empty.requests) == 1
    device = rig.device(device_bytes(2, seed=1), [BLOCK] * 2)
    rig.blobs.blobs.clear()
    with pytest.raises(NotFoundError):
        read(device, 0, BLOCK)


def test_layers_of_other_stores_do_not_share_a_failure(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(2)
    rig.stores["store:2"] = other = FaultyStore(rig.blobs)
    one = rig.device(data, [BLOCK] * 2)
    two = rig.device(data, [BLOCK] * 2, urls=("store:2",))
    rig.store.fault = gate = Gate()
    waiting = start(one, 0, BLOCK)
    gate.await_arrivals()
    assert read(two, 0, BLOCK) == data[:BLOCK]
    assert len(other.requests) > 0
    gate.open()
    assert waiting.result(60) == data[:BLOCK]


def test_a_corrupt_cache_entry_is_fetched_again(make_rig: MakeRig) -> None:
    rig, data = make_rig(memory_bytes=0), device_bytes(4)
    device = rig.device(data, [2 * BLOCK] * 2)
    assert read(device, 0, 4 * BLOCK) == data
    rig.fetcher.drain()
    for path in (rig.folder / "chunks").glob("??/*"):
        damaged = bytearray(path.read_bytes())
        damaged[1000] ^= 4
        path.write_bytes(damaged)
    assert read(device, 0, 4 * BLOCK) == data
    assert counted(device)["corrupt_entries"] == 2
    assert counted(device)["fetched_chunks"] == 4


def test_a_cache_that_takes_nothing_serves_uncached(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, data = make_rig(memory_bytes=0), device_bytes(4)
    device = rig.device(data, [BLOCK] * 4)
    monkeypatch.setattr(rig.cache, "store", lambda digest, chunk: False)
    for _ in range(2):
        assert read(device, 0, 4 * BLOCK) == data
        rig.fetcher.drain()
    assert counted(device)["uncached_chunks"] == 8


def test_closing_answers_who_waits(make_rig: MakeRig) -> None:
    rig, data = make_rig(lanes=ONE_THREAD), device_bytes(4)
    device = rig.device(data, [BLOCK] * 4)
    rig.store.fault = gate = Gate()
    served = start(device, 0, BLOCK)
    gate.await_arrivals()
    queued = start(device, 3 * BLOCK, BLOCK)
    gate.open()
    rig.fetcher.close()
    assert served.result(60) == data[:BLOCK]
    assert isinstance(queued.exception(60), StoreError) or queued.result() == data[3 * BLOCK :]


def test_a_chunk_that_came_meanwhile_is_not_fetched_again(make_rig: MakeRig) -> None:
    rig, data = make_rig(), device_bytes(2)
    device = rig.device(data, [BLOCK] * 2)
    read(device, 0, 2 * BLOCK)
    rig.fetcher.drain()
    rig.store.requests.clear()
    futures: list[Future[Plain]] = rig.fetcher.want(
        device.layer, [(index, device.layer.table[index]) for index in range(2)]
    )
    assert b"".join(future.result(60) for future in futures) == data
    assert rig.store.requests == []  # whoever looked in vain before they came finds them here


def test_what_has_been_fetched_is_let_go_at_once(make_rig: MakeRig) -> None:
    """Neither a ring of flights nor a thread that rests keeps bytes that nobody needs."""
    rig = make_rig()
    device = rig.device(device_bytes(8), [BLOCK] * 8)
    before = len(flights())
    gc.disable()
    try:
        assert rig.fetcher.fetch_ahead(device.layer, range(8))
        rig.fetcher.drain()
        give_up = time.monotonic() + 60
        while len(flights()) > before and time.monotonic() < give_up:
            time.sleep(0.01)  # the thread that made the request comes to rest
        assert len(flights()) == before
    finally:
        gc.enable()


def flights() -> list[Flight]:
    return [each for each in gc.get_objects() if isinstance(each, Flight)]


@pytest.mark.parametrize("most", [1 << 30, -1])
def test_readers_wait_for_the_cache_only_when_much_is_still_to_be_written(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(landing, "_MOST_UNKEPT", most)
    rig, data = make_rig(), device_bytes(4)
    device = rig.device(data, [BLOCK] * 4)
    digest, kept = device.layer.table[0].digest, []

    def finished(parts: object, error: BaseException | None) -> None:
        kept.append(rig.cache.has(digest))

    device.start_read(0, BLOCK, finished)
    rig.fetcher.drain()
    assert kept == [most < 0]
    assert rig.cache.has(digest)
    assert read(device, 0, len(data)) == data
