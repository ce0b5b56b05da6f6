from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.chunks.frame import chunk_digest
from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.cache import ChunkCache, default_limit_bytes
from dsec_layers.lazyfs.checksums import sums_bytes

BLOCK = 4096
SUMS = sums_bytes(BLOCK)
ENTRY = BLOCK + SUMS


def chunk(number: int) -> tuple[bytes, bytes]:
    data = number.to_bytes(4, "little") * (BLOCK // 4)
    return chunk_digest(data), data


def entry_path(folder: Path, digest: bytes) -> Path:
    return folder / digest.hex()[:2] / digest.hex()[2:]


def present(cache: ChunkCache, numbers: range) -> list[int]:
    return [number for number in numbers if cache.has(chunk(number)[0])]


def set_age(folder: Path, number: int, mtime_ns: int) -> None:
    os.utime(entry_path(folder, chunk(number)[0]), ns=(mtime_ns, mtime_ns))


@pytest.fixture
def cache(tmp_path: Path) -> ChunkCache:
    made = ChunkCache(tmp_path / "chunks", 1 << 30, touch_after_s=0)
    made.scan()
    return made


def test_what_is_stored_is_loaded(cache: ChunkCache) -> None:
    digest, data = chunk(1)
    assert cache.load(digest, BLOCK) is None
    assert not cache.has(digest)
    assert cache.store(digest, data)
    assert cache.has(digest)
    loaded = cache.load(digest, BLOCK)
    assert loaded is not None
    assert bytes(loaded) == data
    assert cache.used_bytes == ENTRY


def test_entries_outlive_the_process(cache: ChunkCache, tmp_path: Path) -> None:
    digest, data = chunk(1)
    cache.store(digest, data)
    successor = ChunkCache(tmp_path / "chunks", 1 << 30)
    assert successor.used_bytes is None
    assert bytes(successor.load(digest, BLOCK) or b"") == data
    successor.scan()
    assert successor.used_bytes == ENTRY


@given(position=st.integers(0, ENTRY - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_and_the_entry_goes(
    position: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("chunks")
    cache, (digest, data) = ChunkCache(folder, 1 << 30), chunk(1)
    cache.store(digest, data)
    path = entry_path(folder, digest)
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 1 << bit
    path.write_bytes(damaged)
    with pytest.raises(CorruptError, match="damaged"):
        cache.load(digest, BLOCK)
    assert cache.load(digest, BLOCK) is None


@pytest.mark.parametrize("size", [0, 1, SUMS, BLOCK, ENTRY - 1, ENTRY + 1])
def test_an_entry_of_another_size_is_corrupt(size: int, cache: ChunkCache, tmp_path: Path) -> None:
    digest, data = chunk(1)
    cache.store(digest, data)
    os.truncate(entry_path(tmp_path / "chunks", digest), size)
    with pytest.raises(CorruptError):
        cache.load(digest, BLOCK)


def test_an_entry_under_the_name_of_another_is_corrupt(cache: ChunkCache, tmp_path: Path) -> None:
    (one, data), (two, more) = chunk(1), chunk(2)
    cache.store(one, data)
    cache.store(two, more)
    entry_path(tmp_path / "chunks", one).rename(entry_path(tmp_path / "chunks", two))
    with pytest.raises(CorruptError):
        cache.load(two, BLOCK)


def test_an_unreadable_entry_is_corrupt(cache: ChunkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, data = chunk(1)
    cache.store(digest, data)

    def broken(fd: int, length: int, offset: int) -> bytes:
        raise OSError(errno.EIO, "bad sector")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        with pytest.raises(CorruptError):
            cache.load(digest, BLOCK)
    assert not cache.has(digest)


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 20 * ENTRY, touch_after_s=0)
    cache.scan()
    for number in range(20):
        cache.store(*chunk(number))
        set_age(tmp_path, number, 1_000 + number)
    for number in (0, 3):
        assert cache.load(chunk(number)[0], BLOCK) is not None  # used again, so newest now
    cache.store(*chunk(20))
    assert present(cache, range(21)) == [0, *range(3, 21)]
    assert cache.evicted_chunks == 2  # down to 95 %, 19 entries
    assert cache.used_bytes == 19 * ENTRY


def test_a_recent_use_is_not_written_down_again(cache: ChunkCache, tmp_path: Path) -> None:
    lazy = ChunkCache(tmp_path / "chunks", 1 << 30, touch_after_s=3600)
    digest, data = chunk(1)
    cache.store(digest, data)
    before = entry_path(tmp_path / "chunks", digest).stat().st_mtime_ns
    lazy.load(digest, BLOCK)
    assert entry_path(tmp_path / "chunks", digest).stat().st_mtime_ns == before


def test_too_much_found_at_the_start_is_evicted(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 1 << 30)
    for number in range(20):
        cache.store(*chunk(number))
        set_age(tmp_path, number, 1_000 + number)
    smaller = ChunkCache(tmp_path, 10 * ENTRY)
    smaller.scan()
    assert present(smaller, range(20)) == list(range(11, 20))


def test_clear_and_sweep(cache: ChunkCache, tmp_path: Path) -> None:
    for number in range(5):
        cache.store(*chunk(number))
    cache.clear()
    assert present(cache, range(5)) == []
    assert cache.used_bytes == 0
    half = tmp_path / "chunks" / "aside" / "4711-0"
    half.write_bytes(b"half")
    cache.sweep()
    assert not half.exists()


class FullDisk:
    """Stands for os.writev: `free` writes succeed after evictions have made room, or none ever."""

    def __init__(self, cache_folder: Path, room: int) -> None:
        self.real = os.writev
        self.folder = cache_folder
        self.room = room

    def __call__(self, fd: int, parts: Sequence[bytes]) -> int:
        held = sum(1 for path in self.folder.glob("??/*"))
        if held < self.room:
            return self.real(fd, parts)
        return self.real(fd, [parts[0][:100]])  # the kernel writes what fits


def test_a_full_disk_evicts_and_tries_again(
    cache: ChunkCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        cache.store(*chunk(number))
    monkeypatch.setattr(os, "writev", FullDisk(tmp_path / "chunks", 4))
    assert cache.store(*chunk(4))
    assert bytes(cache.load(chunk(4)[0], BLOCK) or b"") == chunk(4)[1]
    assert list((tmp_path / "chunks" / "aside").iterdir()) == []


def test_a_disk_that_stays_full_leaves_the_chunk_uncached(
    cache: ChunkCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(*chunk(0))
    monkeypatch.setattr(os, "writev", FullDisk(tmp_path / "chunks", 0))
    assert not cache.store(*chunk(1))
    assert not cache.store(*chunk(2))  # nothing left to evict
    assert list((tmp_path / "chunks" / "aside").iterdir()) == []
    assert present(cache, range(3)) == []


def test_a_disk_that_fails_leaves_the_chunk_uncached(
    cache: ChunkCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int, parts: Sequence[bytes]) -> int:
        raise OSError(errno.EIO, "bad sector")

    cache.store(*chunk(0))
    monkeypatch.setattr(os, "writev", broken)
    assert not cache.store(*chunk(1))
    assert cache.has(chunk(0)[0])  # only a full disk is helped by evicting


def test_many_threads(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, 40 * ENTRY, touch_after_s=0)
    cache.scan()
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(200):
            number = (seed * 31 + step * 7) % 60
            digest, data = chunk(number)
            loaded = cache.load(digest, BLOCK)
            if loaded is None:
                cache.store(digest, data)
            elif bytes(loaded) != data:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    held = sum(path.stat().st_size for path in tmp_path.glob("??/*"))
    assert held <= 48 * ENTRY  # the limit and one entry of each thread


def test_the_default_limit_is_a_part_of_the_disk(tmp_path: Path) -> None:
    assert 0 < default_limit_bytes(tmp_path) <= 64 << 30
