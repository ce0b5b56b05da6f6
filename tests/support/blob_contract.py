"""What every store must do with blobs; see `store_contract`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError, StoreError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import CONFIG_TYPE, PACK_TYPE, Descriptor
from tests.support.stores import put_bytes

DATA = bytes(range(256)) * 9000  # more than two pieces
BLOB = Descriptor.of(DATA, PACK_TYPE)
LARGE_BYTES = (17 << 20) + 5  # more than two parts of an upload


def large() -> tuple[bytes, Descriptor]:
    """A blob that is sent in parts where that is done."""
    line = bytes(range(251))
    data = (line * (LARGE_BYTES // len(line) + 1))[:LARGE_BYTES]
    return data, Descriptor.of(data, PACK_TYPE)


def in_pieces(data: bytes, size: int = 70_000) -> Iterator[bytes]:
    """An iterator as another store gives it."""
    return (data[start : start + size] for start in range(0, len(data), size))


def cut(data: bytes, error: BaseException) -> Iterator[bytes]:
    """A source that fails in the middle."""
    yield data[: len(data) // 2]
    raise error


class BlobContract:
    """The part of `StoreContract` that is about blobs."""

    collected = True

    def test_a_blob_comes_back_from_any_source(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "source"
        for number in range(3):
            data = DATA + bytes([number])
            path.write_bytes(data)
            blob = Descriptor.of(data, PACK_TYPE)
            assert not store.has(blob)
            for expected in (True, False):
                sources: tuple[bytes | Path | Iterator[bytes], ...]
                sources = (data, path, in_pieces(data))
                assert store.put(blob, sources[number]) is expected
            assert store.has(blob)
            assert store.read(blob) == b"".join(store.stream(blob)) == data
            assert path.exists(), "it was not given away"

    def test_a_file_given_away_is_gone(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "source"
        for expected in (True, False):
            path.write_bytes(DATA)
            assert store.put(BLOB, path, consume=True) is expected
            assert not path.exists()
        assert store.read(BLOB) == DATA

    def test_a_large_blob(self, store: Store) -> None:
        data, blob = large()
        assert store.put(blob, in_pieces(data)) is True
        assert store.has(blob)
        assert b"".join(store.stream(blob)) == data
        assert store.read(blob, 8 << 20, 100) == data[8 << 20 :][:100]
        assert store.put(blob, in_pieces(data)) is False

    def test_ranges(self, store: Store) -> None:
        store.put(BLOB, DATA)
        size = len(DATA)
        for offset, length in ((0, 0), (0, 1), (size - 1, 1), (size, 0), (4097, 1_500_000)):
            assert store.read(BLOB, offset, length) == DATA[offset : offset + length]
        assert store.read(BLOB, 1000) == DATA[1000:]
        for offset, length in ((-1, 2), (0, size + 1), (size + 1, 0), (size, 1), (5, -1)):
            with pytest.raises(CorruptError):
                store.read(BLOB, offset, length)

    def test_the_empty_blob(self, store: Store) -> None:
        blob = put_bytes(store, b"", CONFIG_TYPE)
        assert store.has(blob)
        assert store.read(blob) == b""
        assert list(store.stream(blob)) == []

    def test_missing_is_not_found(self, store: Store) -> None:
        assert not store.has(BLOB)
        for offset, length in ((0, None), (5, 10), (5, 0)):
            with pytest.raises(NotFoundError):
                store.read(BLOB, offset, length)
        with pytest.raises(NotFoundError):
            next(store.stream(BLOB))
        with pytest.raises(NotFoundError):
            store.read(Descriptor.of(b"", CONFIG_TYPE))
        store.delete(BLOB)

    def test_digests_of_other_algorithms_are_refused(self, store: Store) -> None:
        with pytest.raises(InvalidInputError):
            store.has(Descriptor(PACK_TYPE, f"blake3:{'0' * 64}", 1))
        with pytest.raises(InvalidInputError):
            store.read(Descriptor(PACK_TYPE, "sha256:../../etc/passwd", 1))

    @pytest.mark.parametrize("size", [len(DATA), LARGE_BYTES])
    def test_a_source_that_is_something_else_is_refused(self, store: Store, size: int) -> None:
        data, blob = (DATA, BLOB) if size == len(DATA) else large()
        for other in (data[:-1], data + b"x", data[:-1] + bytes([data[-1] ^ 1]), b""):
            with pytest.raises(CorruptError):
                store.put(blob, in_pieces(other))
            assert not store.has(blob)
        lie = msgspec.structs.replace(blob, size=blob.size + 1)
        with pytest.raises(CorruptError):
            store.put(lie, in_pieces(data))
        assert not store.has(lie)
        self.nothing_is_left(store)

    @pytest.mark.parametrize("size", [len(DATA), LARGE_BYTES])
    def test_a_source_that_fails_leaves_nothing(self, store: Store, size: int) -> None:
        data, blob = (DATA, BLOB) if size == len(DATA) else large()
        for error in (StoreError("line cut"), KeyboardInterrupt(), OSError(5, "EIO")):
            with pytest.raises((StoreError, KeyboardInterrupt)):
                store.put(blob, cut(data, error))
            assert not store.has(blob)
        self.nothing_is_left(store)

    def nothing_is_left(self, store: Store) -> None:
        """For stores that can look further."""
        if self.collected:
            assert list(store.blobs()) == []

    @pytest.mark.parametrize("size", [len(DATA), LARGE_BYTES])
    def test_many_writers_of_one_blob(self, store: Store, size: int) -> None:
        data, blob = (DATA, BLOB) if size == len(DATA) else large()
        writers = 6
        barrier = threading.Barrier(writers)

        def pieces() -> Iterator[bytes]:
            barrier.wait(60)  # all have found that it is not there
            yield from in_pieces(data, 1 << 20)

        with ThreadPoolExecutor(writers) as pool:
            written = [pool.submit(store.put, blob, pieces()) for _ in range(writers)]
        assert any(each.result() for each in written)
        assert store.read(blob) == data

    def test_many_threads(self, store: Store) -> None:
        contents = [b"%d" % number * 500 for number in range(40)]
        with ThreadPoolExecutor(16) as pool:
            blobs = list(pool.map(lambda data: put_bytes(store, data), contents))
            found = list(pool.map(store.read, blobs * 3))
            parts = list(pool.map(lambda blob: store.read(blob, 1, 2), blobs))
        assert found == contents * 3
        assert parts == [data[1:3] for data in contents]

    def test_blobs_and_their_removal(self, store: Store) -> None:
        if not self.collected:
            pytest.skip("this store collects by itself")
        pack, other = put_bytes(store, b"1"), put_bytes(store, b"2", CONFIG_TYPE)
        listed = list(store.blobs())
        assert listed[0] == pack
        assert [blob.digest for blob in listed] == [pack.digest, other.digest]
        assert listed[1].size == 1
        store.delete(pack)
        store.delete(pack)
        assert not store.has(pack)
        assert store.has(other)
        assert [blob.digest for blob in store.blobs()] == [other.digest]
