"""A disk that is really full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import NoSpaceError
from dsec_layers.linux import mount
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry import transfer
from dsec_layers.registry.directory import DirectoryStore
from tests.support.stores import put_bytes, put_layer

pytestmark = pytest.mark.root
NAME = Reference.parse("base/debian:12")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    target = tmp_path / "disk"
    target.mkdir()
    mount.mount_tmpfs(target, options="size=1m,mode=0755")
    yield target
    mount.unmount(target)


def used_bytes(disk: Path) -> int:
    return sum(path.stat().st_size for path in disk.rglob("*") if path.is_file())


def test_a_put_that_does_not_fit(small_disk: Path) -> None:
    store = DirectoryStore.open(small_disk / "store", create=True)
    fits = put_bytes(store, b"x" * 500_000)
    before = used_bytes(small_disk)
    data = b"y" * 2_000_000
    with pytest.raises(NoSpaceError):
        store.put(Descriptor.of(data, PACK_TYPE), data)
    assert used_bytes(small_disk) == before
    assert store.read(fits) == b"x" * 500_000
    assert put_bytes(store, b"z" * 100_000), "there is room again"
    store.close()


def test_a_transfer_that_does_not_fit(small_disk: Path, tmp_path: Path) -> None:
    source = DirectoryStore.open(tmp_path / "source", create=True)
    put_layer(source, NAME, [bytes([number]) * 300_000 for number in range(6)])
    store = DirectoryStore.open(small_disk / "store", create=True)
    with pytest.raises(NoSpaceError):
        transfer.copy(NAME, source, store)
    assert list(store.tags()) == []
    store.close()


def test_a_file_given_away_from_another_disk_is_copied(small_disk: Path, tmp_path: Path) -> None:
    source = small_disk / "source"
    source.write_bytes(b"data")
    store = DirectoryStore.open(tmp_path / "store", create=True)
    blob = Descriptor.of(b"data", PACK_TYPE)
    assert store.put(blob, source, consume=True)
    assert not source.exists()
    assert store.read(blob) == b"data"
