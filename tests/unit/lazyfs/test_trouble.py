"""Stores that hang, are slow, fail, flap or lie; and readers that want too much."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError, StoreError
from dsec_layers.lazyfs.breaker import BreakerLimits, State
from dsec_layers.lazyfs.device import LayerDevice
from dsec_layers.lazyfs.lane import Lane, LaneLimits
from dsec_layers.lazyfs.retries import Retries
from dsec_layers.model.manifest import Descriptor
from tests.support.faulty_store import FaultyStore, Gate
from tests.support.lazy import BLOCK, NO_WAIT, Rig, counted, device_bytes, read

SHORT = LaneLimits(
    threads=2,
    deadline_s=0.6,  # what answers at once must not be overdue on a busy machine
    least_bytes_per_s=1 << 30,
    retries=Retries(attempts=2, first_s=0.001),
    breaker=BreakerLimits(failures=2, first_pause_s=0.02, most_pause_s=0.04),
)
# For stores that fail and do not hang: on a busy machine nothing is overdue by chance.
PATIENT = replace(SHORT, deadline_s=60)
# A breaker that stays open for as long as the test lasts.
STUBBORN = replace(PATIENT, breaker=BreakerLimits(failures=2, first_pause_s=600, most_pause_s=600))
MakeRig = Callable[..., Rig]
DATA = device_bytes(8)


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make(lanes: LaneLimits) -> Rig:
        rig = Rig(tmp_path / str(len(rigs)), lanes=lanes)
        rig.stores["store:2"] = FaultyStore(rig.blobs)
        rigs.append(rig)
        return rig

    yield make
    for rig in rigs:
        if isinstance(rig.store.fault, Gate):
            rig.store.fault.open()
        rig.fetcher.close()


def device(rig: Rig, *urls: str, seed: int = 0) -> LayerDevice:
    """A layer of eight chunks, each in a pack of its own, so that none is another's neighbour."""
    data = device_bytes(8, seed=seed)
    return rig.device(data, [BLOCK] * 8, urls=urls, chunks_per_pack=1)


def second(rig: Rig) -> FaultyStore:
    store = rig.stores["store:2"]
    assert isinstance(store, FaultyStore)
    store.requests.clear()
    return store


def start(layer: LayerDevice, number: int) -> Future[bytes]:
    result: Future[bytes] = Future()

    def finished(parts: object, error: BaseException | None) -> None:
        if error:
            result.set_exception(error)
        else:
            result.set_result(b"".join(parts))  # type: ignore[arg-type]

    layer.start_read(number * BLOCK, BLOCK, finished)
    return result


def block(number: int, data: bytes = DATA) -> bytes:
    return data[number * BLOCK : (number + 1) * BLOCK]


def lane(rig: Rig, url: str = "store:1") -> Lane:
    with rig.opened.lock:
        return rig.opened.lane(url)


def await_state(rig: Rig, state: State, url: str = "store:1") -> None:
    while lane(rig, url).breaker.state is not state:
        time.sleep(0.005)


def failing(blob: Descriptor, offset: int, length: int | None, data: bytes) -> bytes:
    raise StoreError("down")


def test_a_hung_store_is_an_error_when_it_is_overdue_and_takes_up_no_more_than_its_share(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(SHORT)
    dead, alive = device(rig, "store:1"), device(rig, "store:2", seed=1)
    rig.store.fault = gate = Gate()
    reads = [start(dead, number) for number in range(8)]
    gate.await_arrivals(2)
    assert read(alive, 0, 8 * BLOCK) == device_bytes(8, seed=1)  # meanwhile
    for each in reads:
        assert isinstance(each.exception(60), StoreError)
    assert len(rig.store.requests) == 2  # the others were told without being asked
    with rig.opened.lock:
        assert lane_counts(rig) == (2, 2)
    with pytest.raises(StoreError, match="unavailable"):
        read(dead, 0, BLOCK)
    gate.open()
    await_state(rig, State.CLOSED)  # by itself
    assert read(dead, 0, 8 * BLOCK) == DATA
    with rig.opened.lock:
        assert lane_counts(rig) == (0, 0)


def lane_counts(rig: Rig) -> tuple[int, int]:
    (first, *_) = rig.opened.listed()
    return first.in_flight, first.stuck


def test_requests_wait_while_many_bytes_are_under_way(make_rig: MakeRig) -> None:
    rig = make_rig(replace(NO_WAIT, most_bytes=1))
    layer = device(rig, "store:1")
    rig.store.fault = gate = Gate()
    reads = [start(layer, number) for number in range(4)]
    gate.await_arrivals()
    while not at_rest(rig):
        time.sleep(0.005)
    with rig.opened.lock:
        assert lane_counts(rig) == (1, 0)
    gate.open()
    assert [each.result(60) for each in reads] == [block(number) for number in range(4)]


def at_rest(rig: Rig) -> bool:
    """Whether every thread of the store waits, for it or for work."""
    store = lane(rig)
    with rig.opened.lock:
        return store._idle + store.in_flight == len(store._threads)


def test_an_overdue_request_makes_room_for_others(make_rig: MakeRig) -> None:
    rig = make_rig(replace(SHORT, most_bytes=1, breaker=BreakerLimits(failures=1000)))
    layer, gate = device(rig, "store:1"), Gate()
    hung = layer.layer.packs[0].digest

    def fault(blob: Descriptor, offset: int, length: int | None, data: bytes) -> bytes:
        return gate(blob, offset, length, data) if blob.digest == hung else data

    rig.store.fault = fault
    overdue = start(layer, 0)
    gate.await_arrivals()
    while (other := start(layer, 1)).exception(60):
        """A busy machine may be too late for this one too."""
    assert other.result() == block(1)
    with rig.opened.lock:
        assert lane_counts(rig)[1] > 0  # it is stuck still
    assert isinstance(overdue.exception(60), StoreError)
    gate.open()


def test_a_store_that_hangs_while_it_is_opened(make_rig: MakeRig) -> None:
    rig = make_rig(SHORT)
    gate = threading.Event()
    layer = device(rig, "store:1", "store:2")
    source = rig.stores.pop("store:1")

    class Waits(dict[str, object]):
        def __missing__(self, url: str) -> object:
            assert gate.wait(60)
            return source

    fresh = Waits(rig.stores)
    rig.stores = fresh  # type: ignore[assignment]
    lane(rig)._store = None
    assert read(layer, 0, 8 * BLOCK) == DATA
    gate.set()
    await_state(rig, State.CLOSED)


def test_behind_a_hung_store_the_next_one_serves(make_rig: MakeRig) -> None:
    rig = make_rig(SHORT)
    layer = device(rig, "store:1", "store:2")
    rig.store.fault = Gate()
    assert read(layer, 0, 8 * BLOCK) == DATA
    await_state(rig, State.OPEN)
    before = len(rig.store.requests)
    other = device(rig, "store:1", "store:2", seed=2)
    rig.store.requests.clear()
    assert read(other, 0, 8 * BLOCK) == device_bytes(8, seed=2)
    assert before == 2
    assert rig.store.requests == []  # which costs nothing any more


def test_a_late_answer_is_dropped_and_no_read_is_answered_twice(make_rig: MakeRig) -> None:
    rig = make_rig(SHORT)
    layer = device(rig, "store:1", "store:2")
    rig.store.fault = gate = Gate()
    assert read(layer, 0, BLOCK) == block(0)
    gate.open()
    rig.fetcher.drain()
    await_state(rig, State.CLOSED)
    assert read(layer, 0, 8 * BLOCK) == DATA
    assert counted(layer)["fetched_chunks"] == 8


def test_a_failing_store_is_passed_over_and_left_alone(make_rig: MakeRig) -> None:
    rig = make_rig(STUBBORN)
    layer = device(rig, "store:1", "store:2")
    rig.store.fault = failing
    for number in range(8):
        assert read(layer, number * BLOCK, BLOCK) == block(number)
    assert len(rig.store.requests) == 2 * 2  # two requests of two attempts opened the breaker
    assert counted(layer)["retries"] == 2


def test_when_all_stores_fail_the_error_names_their_troubles(make_rig: MakeRig) -> None:
    rig = make_rig(STUBBORN)
    layer = device(rig, "store:1", "store:2")
    rig.store.fault = second(rig).fault = failing
    with pytest.raises(StoreError, match=r"store:1 keeps failing.*store:2 keeps failing"):
        read(layer, 0, BLOCK)
    with pytest.raises(StoreError):
        read(layer, BLOCK, BLOCK)
    asked = len(rig.store.requests)
    with pytest.raises(StoreError, match=r"store:1 is unavailable.*store:2 is unavailable"):
        read(layer, BLOCK, BLOCK)
    assert len(rig.store.requests) == asked


def test_a_store_comes_back_without_being_read(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dsec_layers.lazyfs.lane")
    rig = make_rig(PATIENT)
    layer = device(rig, "store:1")
    rig.store.fault = failing
    for number in range(2):
        with pytest.raises(StoreError):
            read(layer, number * BLOCK, BLOCK)
    assert not lane(rig).breaker.passes
    rig.store.fault = None
    await_state(rig, State.CLOSED)
    assert read(layer, 0, 8 * BLOCK) == DATA
    said: list[str] = []
    while len(said) < 2:  # the log is written a moment later
        time.sleep(0.005)
        said = [each.getMessage() for each in caplog.records if each.name.endswith(".lane")]
    assert said == ["store store:1 is in trouble and left alone", "store store:1 answers again"]


def test_a_flapping_store_with_a_good_one_behind_it(make_rig: MakeRig) -> None:
    rig = make_rig(PATIENT)
    layer = device(rig, "store:1", "store:2")
    turns = iter(range(1 << 30))

    def flaps(blob: Descriptor, offset: int, length: int | None, data: bytes) -> bytes:
        if next(turns) % 5 < 4:
            raise StoreError("down for a moment")
        return data

    rig.store.fault = flaps
    for _ in range(10):
        assert read(layer, 0, 8 * BLOCK) == DATA
        rig.fetcher.drain()
        rig.cache.clear()
        rig.memory.clear()


def test_a_slow_store_is_waited_for(make_rig: MakeRig) -> None:
    rig = make_rig(PATIENT)
    layer = device(rig, "store:1", "store:2")
    other = second(rig)

    def slowly(blob: Descriptor, offset: int, length: int | None, data: bytes) -> bytes:
        time.sleep(0.02)
        return data

    rig.store.fault = slowly
    assert read(layer, 0, 8 * BLOCK) == DATA
    assert other.requests == []


def test_a_lying_store_is_an_error_and_answers(make_rig: MakeRig) -> None:
    rig = make_rig(STUBBORN)
    layer = device(rig, "store:1", "store:2")
    rig.store.fault = lambda blob, offset, length, data: bytes([data[0] ^ 1]) + data[1:]
    for _ in range(5):
        with pytest.raises(CorruptError):
            read(layer, 0, BLOCK)
    assert lane(rig).breaker.passes  # damage is not absence: nothing hides it


def test_a_pack_that_a_store_lacks_is_not_sought_there_by_every_read(make_rig: MakeRig) -> None:
    rig = make_rig(PATIENT)
    rig.stores["store:0"] = empty = FaultyStore(type(rig.blobs)())
    layer = rig.device(DATA, [BLOCK] * 8, urls=("store:0", "store:1"))
    empty.requests.clear()
    for number in range(8):
        assert read(layer, number * BLOCK, BLOCK) == block(number)
    assert len(empty.requests) == 1


def test_layers_take_turns_however_much_one_of_them_wants(make_rig: MakeRig) -> None:
    rig = make_rig(replace(NO_WAIT, threads=1))
    greedy, modest = device(rig, "store:1"), device(rig, "store:1", seed=1)
    rig.store.fault = gate = Gate()
    wanted = [start(greedy, number) for number in range(8)]
    gate.await_arrivals()
    lone = start(modest, 5)
    rig.store.requests.clear()
    gate.open()
    assert lone.result(60) == block(5, device_bytes(8, seed=1))
    assert [each.result(60) for each in wanted] == [block(number) for number in range(8)]
    pack = modest.layer.packs[modest.layer.table[5].pack].digest
    assert [digest for digest, _, _ in rig.store.requests].index(pack) <= 1


def test_what_is_fetched_ahead_waits_behind_what_is_asked_for(make_rig: MakeRig) -> None:
    rig = make_rig(replace(NO_WAIT, threads=1))
    layer, other = device(rig, "store:1"), device(rig, "store:1", seed=1)
    rig.store.fault = gate = Gate()
    blocker = start(other, 0)
    gate.await_arrivals()
    rig.store.requests.clear()
    with ThreadPoolExecutor(2) as pool:
        ahead = [pool.submit(rig.fetcher.fetch_ahead, layer.layer, [number]) for number in (1, 2)]
        while len(lane(rig).queue) < 2:
            time.sleep(0.005)
        asked = [start(layer, number) for number in (6, 2)]  # the latter is on its way
        gate.open()
        assert all(each.result(60) for each in ahead)
    assert blocker.result(60) == block(0, device_bytes(8, seed=1))
    assert [each.result(60) for each in asked] == [block(6), block(2)]
    packs = {pack.digest: number for number, pack in enumerate(layer.layer.packs)}
    assert [packs[digest] for digest, _, _ in rig.store.requests] == [6, 2, 1]


def test_fetching_ahead_goes_on_to_the_next_store_and_gives_up_with_the_last(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(STUBBORN)
    layer = device(rig, "store:1", "store:2")
    rig.store.fault = failing
    assert rig.fetcher.fetch_ahead(layer.layer, range(8))
    rig.fetcher.drain()
    rig.cache.clear()
    rig.memory.clear()
    second(rig).fault = failing
    assert not rig.fetcher.fetch_ahead(layer.layer, range(8))
