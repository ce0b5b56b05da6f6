"""Layers are attached although daemons die."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from dsec_layers.errors import DaemonError
from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.devices import DaemonDevices, Device
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.protocol import Attached, Start, Wanted
from dsec_layers.registry.directory import DirectoryStore
from tests.support.layers import file_tree, pack_tree


class Mortal:
    """A client whose daemon dies `deaths` times in the middle of attaching."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths

    def ensure(self) -> "Mortal":
        return self

    def attach_all(self, layers: Sequence[Wanted], start: Start | None) -> list[Attached]:
        if self.deaths:
            self.deaths -= 1
            raise DaemonError("the daemon ended in the middle of a request")
        return [Attached(each.layer.digest, "/x", 4096) for each in layers]


@pytest.fixture
def layer(tmp_path: Path) -> MountLayer:
    store = DirectoryStore.open(tmp_path / "store", create=True)
    return pack_tree(*file_tree({b"f": b"x"}), store, tmp_path)


def test_a_dead_daemon_is_asked_again(layer: MountLayer) -> None:
    devices = DaemonDevices(cast(DaemonClient, Mortal(2)))
    assert devices.attach([layer]) == [Device(Path("/x"), 4096)]


def test_there_is_an_end_to_it(layer: MountLayer) -> None:
    with pytest.raises(DaemonError, match="in the middle"):
        DaemonDevices(cast(DaemonClient, Mortal(100))).attach([layer])
