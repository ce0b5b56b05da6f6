"""A store, a home on a disk file system, and a manager of rootfs mounts that is cleaned up."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.linux import mount
from dsec_layers.registry.directory import DirectoryStore
from tests.support.layers import LocalDevices
from tests.support.leftovers import mounts_below


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk file system, which EROFS needs; a mount left in it fails the test."""
    folder = Path(tempfile.mkdtemp(prefix="dsec-test-", dir="/var/tmp")).resolve()
    try:
        yield folder
    finally:
        left = mounts_below(folder)
        for target in reversed(left):
            mount.unmount(Path(target), lazy=True)
        shutil.rmtree(folder)
        assert left == []


@pytest.fixture
def store(disk: Path) -> DirectoryStore:
    return DirectoryStore.open(disk / "store", create=True)


@pytest.fixture
def devices(disk: Path) -> LocalDevices:
    return LocalDevices(disk / "devices")


@pytest.fixture
def manager(disk: Path, devices: LocalDevices) -> RootfsManager:
    return RootfsManager(disk / "home", devices)
