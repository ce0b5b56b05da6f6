from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.errors import CorruptError
from tests.support.lazy import BLOCK, Rig, counted, device_bytes, read


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.fetcher.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("device"), memory_bytes=8 * BLOCK, cache_bytes=20 * BLOCK)
    made.cache.scan()
    yield made
    made.fetcher.close()


@given(
    size=st.integers(1, 30 * BLOCK),
    lengths=st.lists(st.integers(1, 5 * BLOCK), min_size=1, max_size=8),
    reads=st.lists(st.tuples(st.integers(0, 31 * BLOCK), st.integers(0, 31 * BLOCK)), max_size=6),
)
def test_any_range_of_any_cut(
    size: int, lengths: list[int], reads: list[tuple[int, int]], shared: Rig
) -> None:
    data = device_bytes(30)[:size]
    device = shared.device(data, cycle(lengths))
    assert device.size_bytes % BLOCK == 0
    assert 0 <= device.size_bytes - size < BLOCK
    whole = data.ljust(device.size_bytes, b"\0")
    for offset, length in reads:
        assert read(device, offset, length) == whole[offset : offset + length]


def test_an_empty_device(rig: Rig) -> None:
    device = rig.device(b"", [])
    assert device.size_bytes == 0
    assert read(device, 0, 100) == b""


def test_nothing_is_given_when_a_part_is_bad(rig: Rig) -> None:
    data = device_bytes(4)
    device = rig.device(data, [BLOCK] * 4)
    read(device, 0, 3 * BLOCK)
    rig.store.fault = lambda blob, offset, length, found: bytes(len(found))
    with pytest.raises(CorruptError):
        device.read(0, 4 * BLOCK)
    assert read(device, 0, 3 * BLOCK) == data[: 3 * BLOCK]


def test_what_is_counted(rig: Rig) -> None:
    data = device_bytes(4)
    device = rig.device(data, [2 * BLOCK] * 2)
    read(device, 0, 3 * BLOCK)
    rig.fetcher.drain()
    read(device, 0, 3 * BLOCK)
    counts = counted(device)
    stored = sum(chunk.stored_length for chunk in device.layer.table)
    assert counts == {
        "kernel_reads": 2,
        "kernel_bytes": 6 * BLOCK,
        "store_requests": 1,
        "store_bytes": stored,
        "fetched_chunks": 2,
        "fetched_bytes": 4 * BLOCK,
        "cache_hits": 2,
        "cache_misses": 2,
        "cache_bytes": 3 * BLOCK,
    }


def test_sixteen_readers_see_every_byte(tmp_path: Path) -> None:
    # Memory and cache hold a part only, so that chunks come and go all the time.
    rig = Rig(tmp_path, memory_bytes=20 * BLOCK, cache_bytes=60 * BLOCK)
    rig.cache.scan()
    data = device_bytes(150)
    source = random.Random(3)
    device = rig.device(data, (source.randrange(1, 6 * BLOCK) for _ in range(10_000)))
    wrong: list[tuple[int, int]] = []

    def reader(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(60):
            offset = choose.randrange(len(data))
            length = choose.randrange(1, 20 * BLOCK)
            if read(device, offset, length) != data[offset : offset + length]:
                wrong.append((offset, length))

    threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rig.fetcher.close()
    assert wrong == []
    assert rig.memory.held_bytes <= rig.memory.limit_bytes
