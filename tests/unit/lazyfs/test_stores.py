from __future__ import annotations

from collections.abc import Iterator

import pytest

from dsec_layers.errors import CorruptError, NotFoundError, StoreError
from dsec_layers.lazyfs.counters import Counters, total
from dsec_layers.lazyfs.lanes import Lanes, OpenStore
from dsec_layers.lazyfs.memory import MemoryChunks
from dsec_layers.lazyfs.protocol import Counts
from dsec_layers.lazyfs.readahead import ReadAhead
from dsec_layers.lazyfs.retries import Retries
from dsec_layers.lazyfs.stores import StoreChain
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from tests.support.faulty_store import FaultyStore
from tests.support.lazy import NO_WAIT
from tests.support.memory_store import MemoryStore

DATA = b"0123456789"
BLOB = Descriptor.of(DATA, PACK_TYPE)


def store(*, holds: bool = True, error: Exception | None = None) -> FaultyStore:
    def fault(blob: Descriptor, offset: int, length: int | None, data: bytes) -> bytes:
        if error:
            raise error
        return data

    return FaultyStore(MemoryStore({BLOB.digest: DATA} if holds else {}), fault)


LANES: list[Lanes] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while LANES:
        LANES.pop().close()


def lanes(open_store: OpenStore) -> Lanes:
    LANES.append(Lanes(open_store, NO_WAIT))
    return LANES[-1]


def chain(*stores: FaultyStore) -> StoreChain:
    urls = [f"s:{number}" for number in range(len(stores))]
    return StoreChain(urls, lanes(lambda url: stores[int(url[2:])]), Counters())


def test_ranges_and_wholes() -> None:
    stores = chain(store())
    assert stores.read(BLOB) == DATA
    assert stores.read(BLOB, 3) == DATA[3:]
    assert stores.read(BLOB, 3, 4) == DATA[3:7]
    assert b"".join(stores.stream(BLOB)) == DATA
    assert stores.has(BLOB)
    assert stores.counters.counts().store_bytes == 10 + 7 + 4 + 10


def test_what_is_missing_or_cannot_be_asked_goes_on_to_the_next_store() -> None:
    last = store()
    assert chain(store(holds=False), last).read(BLOB) == DATA
    assert chain(store(error=StoreError("down")), last).read(BLOB) == DATA
    last.requests.clear()
    with pytest.raises(CorruptError):
        chain(store(error=CorruptError("wrong")), last).read(BLOB)
    assert last.requests == []


def test_a_store_in_trouble_may_have_what_the_others_lack() -> None:
    with pytest.raises(StoreError, match="down"):
        chain(store(error=StoreError("down")), store(holds=False)).read(BLOB)


def test_in_no_store() -> None:
    with pytest.raises(NotFoundError, match="s:0, s:1"):
        chain(store(holds=False), store(holds=False)).read(BLOB)
    with pytest.raises(NotFoundError, match="none given"):
        chain().read(BLOB)
    assert not chain(store(holds=False)).has(BLOB)


@pytest.mark.parametrize("error", [StoreError("down"), ConnectionResetError("gone")])
def test_failures_are_retried_with_a_bound(error: Exception) -> None:
    failing = store(error=error)
    stores = chain(failing)
    with pytest.raises(StoreError, match="keeps failing"):
        stores.read(BLOB)
    assert len(failing.requests) == NO_WAIT.retries.attempts
    assert stores.counters.counts().retries == NO_WAIT.retries.attempts - 1


@pytest.mark.parametrize("error", [CorruptError("wrong"), NotFoundError("gone")])
def test_finals_are_not_retried(error: Exception) -> None:
    failing = store(error=error)
    with pytest.raises(type(error)):
        chain(failing).read(BLOB)
    assert len(failing.requests) == 1


def test_a_store_that_cannot_be_opened_is_tried_again() -> None:
    attempts = iter([StoreError("not mounted yet")])

    def open_store(url: str) -> FaultyStore:
        for error in attempts:
            raise error
        return store()

    stores = StoreChain(["s:0"], lanes(open_store), Counters())
    assert stores.read(BLOB) == DATA


def test_a_store_is_opened_once() -> None:
    opened: list[str] = []

    def open_store(url: str) -> FaultyStore:
        opened.append(url)
        return store()

    stores = StoreChain(["s:0"], lanes(open_store), Counters())
    more = stores.over(["s:0", "s:1"])
    for _ in range(2):
        assert stores.read(BLOB) == more.read(BLOB) == DATA
    assert opened == ["s:0"]


def test_waits_grow_are_scattered_and_have_a_ceiling() -> None:
    delays = list(Retries(attempts=6, first_s=1, most_s=5).delays())
    assert len(delays) == 5
    for delay, middle in zip(delays, (1, 2, 4, 5, 5), strict=True):
        assert middle * 0.5 <= delay <= middle * 1.5


def test_memory_forgets_the_least_recently_used() -> None:
    memory = MemoryChunks(10)
    memory.put(b"a", b"aaaa")
    memory.put(b"b", b"bbbb")
    assert memory.get(b"a") == b"aaaa"
    memory.put(b"c", b"cccc")
    assert memory.get(b"b") is None
    assert memory.get(b"a") == b"aaaa"
    assert memory.held_bytes == 8
    memory.put(b"a", b"aaaa")
    assert memory.held_bytes == 8
    memory.put(b"d", b"d" * 11)  # larger than all of it
    assert memory.get(b"d") is None
    assert memory.held_bytes == 0


def test_read_ahead_remembers_the_last_streams_only() -> None:
    ahead = ReadAhead(10, 40)
    assert ahead.window(0) == 10
    ahead.ended(5, 10)
    assert ahead.window(5) == 20
    ahead.ended(9, 20)
    assert ahead.window(8) == 10
    assert ahead.window(9) == 40
    ahead.ended(20, 40)
    assert ahead.window(20) == 40
    ahead.ended(1, 10)
    for number in range(100, 164):
        ahead.ended(number, 10)
    assert ahead.window(1) == 10


def test_counters_add_up() -> None:
    counters = Counters()
    counters.add(errors=1, retries=2)
    counters.add(errors=1)
    assert counters.counts() == Counts(errors=2, retries=2)
    assert total([counters.counts(), counters.counts(), Counts(cache_hits=1)]) == Counts(
        errors=4, retries=4, cache_hits=1
    )
    with pytest.raises(KeyError):
        counters.add(surprises=1)
