"""A directory store keeps blobs whole, whatever goes wrong."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsec_layers.errors import (
    CorruptError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
    StoreError,
)
from dsec_layers.model.manifest import CONFIG_TYPE, PACK_TYPE, Descriptor
from dsec_layers.registry import files, marker
from dsec_layers.registry.directory import DirectoryStore
from tests.support.stores import put_bytes

DATA = bytes(range(256)) * 5000  # more than one piece
BLOB = Descriptor.of(DATA, PACK_TYPE)


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore.open(tmp_path / "store", create=True)


def file_of(store: DirectoryStore, blob: Descriptor) -> Path:
    folder = "packs" if blob.media_type == PACK_TYPE else "blobs"
    digest = blob.parsed_digest.hex
    return store.root / folder / digest[:2] / digest


def rewrite(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def all_files(store: DirectoryStore) -> list[str]:
    found = (path for path in store.root.rglob("*") if path.is_file())
    return sorted(path.name for path in found if path.name != marker.MARKER)


def pieces_then(error: BaseException) -> Iterator[bytes]:
    yield DATA[:1000]
    raise error


def test_a_blob_comes_back_from_any_kind_of_source(store: DirectoryStore, tmp_path: Path) -> None:
    path = tmp_path / "source"
    for number in range(3):
        data = DATA + bytes([number])
        path.write_bytes(data)
        blob = Descriptor.of(data, PACK_TYPE)

        def sources(data: bytes = data) -> tuple[bytes | Path | Iterator[bytes], ...]:
            return data, path, iter([data[:7], b"", data[7:]])

        assert not store.has(blob)
        assert store.put(blob, sources()[number]) is True
        assert store.put(blob, sources()[number]) is False
        assert store.has(blob)
        assert store.read(blob) == b"".join(store.stream(blob)) == data
        assert path.exists(), "the source was not given away"


def test_ranges(store: DirectoryStore) -> None:
    store.put(BLOB, DATA)
    size = len(DATA)
    for offset, length in ((0, 0), (0, 1), (size - 1, 1), (size, 0), (4097, 8191)):
        assert store.read(BLOB, offset, length) == DATA[offset : offset + length]
    assert store.read(BLOB, 1000) == DATA[1000:]
    for offset, length in ((-1, 2), (0, size + 1), (size + 1, 0), (size, 1), (5, -1)):
        with pytest.raises(CorruptError):
            store.read(BLOB, offset, length)


def test_the_empty_blob(store: DirectoryStore) -> None:
    blob = put_bytes(store, b"", CONFIG_TYPE)
    assert store.has(blob)
    assert store.read(blob) == b""
    assert list(store.stream(blob)) == []


def test_packs_and_other_blobs_lie_in_folders_of_their_own(store: DirectoryStore) -> None:
    pack, other = put_bytes(store, b"1"), put_bytes(store, b"2", CONFIG_TYPE)
    assert file_of(store, pack).read_bytes() == b"1"
    assert file_of(store, other).read_bytes() == b"2"
    listed = list(store.blobs())
    assert [blob.digest for blob in listed] == [pack.digest, other.digest]
    assert listed[0] == pack, "a pack is known by its folder"


def test_a_file_given_away_is_moved(store: DirectoryStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(DATA)
    inode = source.stat().st_ino
    assert store.put(BLOB, source, consume=True) is True
    assert not source.exists()
    assert file_of(store, BLOB).stat().st_ino == inode
    assert file_of(store, BLOB).stat().st_mode & 0o222 == 0
    source.write_bytes(DATA)
    assert store.put(BLOB, source, consume=True) is False
    assert not source.exists()


def test_on_3fs_a_file_given_away_is_copied_to_get_the_striping_of_its_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "3fs").mkdir()
    store = DirectoryStore.open(tmp_path / "3fs", scheme="threefs", create=True)
    source = tmp_path / "source"
    source.write_bytes(DATA)
    kept = source.open("rb")
    with kept:
        assert store.put(BLOB, source, consume=True)
        assert file_of(store, BLOB).stat().st_ino != os.fstat(kept.fileno()).st_ino
    assert not source.exists()
    assert store.read(BLOB) == DATA


@pytest.mark.parametrize("other", [DATA[:-1], DATA + b"x", DATA[:-1] + b"x", b""])
def test_a_source_that_is_something_else_is_refused(store: DirectoryStore, other: bytes) -> None:
    with pytest.raises(CorruptError):
        store.put(BLOB, iter([other]))
    with pytest.raises(NotFoundError):
        store.read(BLOB)
    assert all_files(store) == []


@pytest.mark.parametrize("error", [StoreError("line cut"), KeyboardInterrupt(), OSError(5, "EIO")])
def test_a_source_that_fails_leaves_nothing(store: DirectoryStore, error: BaseException) -> None:
    with pytest.raises((StoreError, KeyboardInterrupt)):
        store.put(BLOB, pieces_then(error))
    assert not store.has(BLOB)
    assert all_files(store) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "link", "open"])
def test_a_full_disk_leaves_nothing(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    put_bytes(store, b"warm up the folders", CONFIG_TYPE)
    before = all_files(store)

    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(NoSpaceError) as caught:
        store.put(BLOB, DATA)
    monkeypatch.undo()
    assert caught.value.hint
    assert all_files(store) == before


def test_short_writes_are_continued(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:1000])))
    assert store.put(BLOB, DATA[:-1] + DATA[-1:])
    assert store.read(BLOB) == DATA


def test_short_reads_are_continued(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(BLOB, DATA)
    pread = os.pread
    monkeypatch.setattr(
        os, "pread", lambda fd, length, offset: pread(fd, min(length, 9000), offset)
    )
    assert store.read(BLOB) == DATA
    assert store.read(BLOB, 5, 20000) == DATA[5:20005]


def test_missing_is_not_found(store: DirectoryStore) -> None:
    assert not store.has(BLOB)
    with pytest.raises(NotFoundError):
        store.read(BLOB)
    with pytest.raises(NotFoundError):
        next(store.stream(BLOB))
    store.delete(BLOB)


@pytest.mark.parametrize("cached", [False, True])
def test_a_blob_cut_short_is_corrupt_and_the_next_put_heals_it(
    store: DirectoryStore, cached: bool
) -> None:
    store.put(BLOB, DATA)
    if cached:
        store.read(BLOB, 0, 10)
        os.truncate(file_of(store, BLOB), 100)
    else:
        rewrite(file_of(store, BLOB), DATA[:100])
    with pytest.raises(CorruptError):
        store.read(BLOB, 90, 20)
    with pytest.raises(CorruptError):
        store.read(BLOB)
    with pytest.raises(CorruptError):
        list(store.stream(BLOB))
    assert not store.has(BLOB)
    assert store.put(BLOB, DATA) is True
    assert store.read(BLOB) == DATA


def test_a_flipped_bit_is_corrupt(store: DirectoryStore) -> None:
    store.put(BLOB, DATA)
    rewrite(file_of(store, BLOB), DATA[:-1] + bytes([DATA[-1] ^ 1]))
    with pytest.raises(CorruptError, match=BLOB.digest):
        store.read(BLOB)
    with pytest.raises(CorruptError, match=BLOB.digest):
        list(store.stream(BLOB))


def test_a_failing_disk_is_neither_missing_nor_corrupt(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(BLOB, DATA)

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(StoreError):
        store.read(BLOB)
    with pytest.raises(StoreError):
        list(store.stream(BLOB))


def test_a_store_that_lost_its_mount_does_not_say_that_blobs_are_missing(
    store: DirectoryStore,
) -> None:
    store.root.rename(store.root.with_name("elsewhere"))
    store.root.mkdir()
    for ask in (store.has, store.read, lambda blob: list(store.stream(blob))):
        with pytest.raises(StoreError, match="there is no store"):
            ask(BLOB)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_store_that_may_only_be_read_says_so(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="cannot write") as caught:
        store.put(BLOB, DATA)
    assert "may not" in (caught.value.hint or "")


def test_digests_of_other_algorithms_are_refused(store: DirectoryStore) -> None:
    with pytest.raises(InvalidInputError):
        store.read(Descriptor(PACK_TYPE, f"blake3:{'0' * 64}", 1))
    with pytest.raises(InvalidInputError):
        store.has(Descriptor(PACK_TYPE, "sha256:../../etc/passwd", 1))


def test_many_writers_of_one_blob(store: DirectoryStore) -> None:
    writers = 8
    barrier = threading.Barrier(writers)

    def pieces() -> Iterator[bytes]:
        yield DATA[:1000]
        barrier.wait()  # all are in the middle of their copies
        yield DATA[1000:]

    with ThreadPoolExecutor(writers) as pool:
        written = [pool.submit(store.put, BLOB, pieces()) for _ in range(writers)]
    assert sum(each.result() for each in written) == 1
    assert all_files(store) == [BLOB.parsed_digest.hex]
    assert store.read(BLOB) == DATA


def test_who_comes_second_does_not_replace_the_file_that_others_read(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = files.link_if_absent
    inodes: list[int] = []

    def rival_first(path: Path, target: Path) -> bool:
        monkeypatch.setattr(files, "link_if_absent", link)
        assert DirectoryStore(store.root).put(BLOB, DATA)
        inodes.append(target.stat().st_ino)
        return link(path, target)

    monkeypatch.setattr(files, "link_if_absent", rival_first)
    assert store.put(BLOB, DATA) is False
    assert inodes == [file_of(store, BLOB).stat().st_ino]
    assert all_files(store) == [BLOB.parsed_digest.hex]


def test_asking_for_a_blob_renews_its_lease(store: DirectoryStore) -> None:
    store.put(BLOB, DATA)
    os.utime(file_of(store, BLOB), (1000, 1000))
    assert store.renewed(BLOB) == 1000
    assert store.has(BLOB)
    assert store.renewed(BLOB) > 1_700_000_000


def test_handles_are_few_shared_and_closed(store: DirectoryStore) -> None:
    limit = 128
    blobs = [put_bytes(store, b"%d" % number) for number in range(limit + 20)]

    def is_open() -> int:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return sum(
            os.readlink(link).startswith(str(store.root)) for link in links if os.path.islink(link)
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.read, blobs * 3))
    assert is_open() == limit
    store.close()
    assert is_open() == 0
    assert store.read(blobs[0]) == b"0"
