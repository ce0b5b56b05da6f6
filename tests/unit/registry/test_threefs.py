"""A `threefs` store does nothing that 3FS does badly.

Large writes in one go, one writer a file, nothing visible before it is synced, nothing listed where
it matters, nothing locked, nothing moved between directories.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsec_layers.errors import NotFoundError, StoreError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import files, transfer
from dsec_layers.registry.directory import DirectoryStore
from tests.support.blob_contract import in_pieces
from tests.support.closure import check_closures
from tests.support.stores import put_environment, put_layer
from tests.support.threefs import Ledger

DATA = bytes(range(256)) * 12_001
BLOB = Descriptor.of(DATA, PACK_TYPE)
BASE, ENV = Reference.parse("base/debian:12"), Reference.parse("env/demo:1")


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    (tmp_path / "3fs").mkdir()
    return tmp_path / "3fs"


@pytest.fixture
def store(mounted: Path) -> DirectoryStore:
    return DirectoryStore.open(mounted, scheme="threefs", create=True)


@pytest.fixture
def ledger(mounted: Path, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    ledger = Ledger(mounted)
    ledger.watch(monkeypatch)
    return ledger


def test_the_ledger_sees_what_is_done_badly(mounted: Path, ledger: Ledger) -> None:
    (mounted / "other").mkdir()
    path = str(mounted / "file")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    twice = os.open(path, os.O_WRONLY)
    os.write(fd, b"x")
    os.lseek(fd, 0, os.SEEK_SET)
    os.link(path, str(mounted / "other/file"))
    os.listdir(str(mounted))
    for each in (fd, twice):
        os.close(each)
    assert len(ledger.complaints) == 4
    assert ledger.listed == [str(mounted)]


@pytest.mark.parametrize("size", [1, 4096, 70_000, 1 << 20, 3 << 20])
def test_packs_are_written_in_large_pieces_in_one_go(
    store: DirectoryStore, ledger: Ledger, size: int
) -> None:
    store.put(BLOB, in_pieces(DATA, size))
    ((source, target),) = ledger.published
    assert target.endswith(BLOB.parsed_digest.hex)
    sizes = ledger.files[source].sizes
    assert sum(sizes) == len(DATA)
    assert all(each >= files.PIECE_BYTES for each in sizes[:-1])
    assert ledger.complaints == []
    assert store.read(BLOB) == DATA


def test_a_whole_push_and_pull(store: DirectoryStore, ledger: Ledger, tmp_path: Path) -> None:
    local = DirectoryStore.open(tmp_path / "local", create=True)
    layer = put_layer(local, BASE, [DATA, b"pack two"])
    put_environment(local, ENV, [(Kind.BASE, "debian", layer)])
    transfer.copy(ENV, local, store)
    transfer.copy(ENV, local, store)
    listed = {Path(path).name for path in ledger.listed}
    assert listed <= {"condemned", layer.parsed_digest.hex}, "collections, attachments: a few names"
    assert ledger.complaints == []
    back = DirectoryStore.open(tmp_path / "back", create=True)
    transfer.copy(ENV, store, back)
    assert check_closures(back) == [str(ENV)]


def test_readers_and_tags_list_nothing(store: DirectoryStore, ledger: Ledger) -> None:
    layer = put_layer(store, BASE, [DATA])
    for _ in range(2):
        assert store.has(BLOB)
        assert store.read(BLOB, 5, 10) == DATA[5:15]
        assert b"".join(store.stream(BLOB)) == DATA
        assert store.resolve(BASE) == layer
        store.tag(BASE, layer, expected=layer)
        store.resolve(Reference(Kind.BASE, "debian", "", layer.parsed_digest))
    store.untag(BASE)
    assert ledger.listed == []
    assert ledger.complaints == []


def test_many_nodes_write_at_once(mounted: Path, store: DirectoryStore, ledger: Ledger) -> None:
    nodes = [DirectoryStore.open(mounted, scheme="threefs") for _ in range(6)]
    barrier = threading.Barrier(len(nodes))

    def write(node: DirectoryStore) -> None:
        def pieces() -> Iterator[bytes]:
            barrier.wait(60)
            yield from in_pieces(DATA)

        node.put(BLOB, pieces())
        put_layer(node, BASE, [DATA])

    with ThreadPoolExecutor(len(nodes)) as pool:
        for each in [pool.submit(write, node) for node in nodes]:
            each.result()
    assert ledger.complaints == []
    assert check_closures(store) == [str(BASE)]
    assert list(mounted.rglob("tmp-*")) == []


def test_a_file_removed_under_its_readers_is_an_error_and_then_missing(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers are not tracked there: an open file of theirs is gone as well."""
    store.put(BLOB, DATA)
    store.read(BLOB, 0, 10)
    DirectoryStore(store.root, scheme="threefs").delete(BLOB)

    def stale(*_: object) -> bytes:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "pread", stale)
    with pytest.raises(StoreError, match="Stale"):
        store.read(BLOB, 0, 10)
    monkeypatch.undo()
    with pytest.raises(NotFoundError):
        store.read(BLOB, 0, 10)


def test_a_length_that_is_not_yet_right_is_no_blob(store: DirectoryStore) -> None:
    """What another node still writes may show any length; only the right one counts."""
    store.put(BLOB, DATA)
    (path,) = (store.root / "packs").rglob(BLOB.parsed_digest.hex)
    path.chmod(0o644)
    os.truncate(path, 4096)
    assert not store.has(BLOB)
    assert store.put(BLOB, DATA) is True
    assert store.read(BLOB) == DATA
