from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.linux import mount
from tests.support.builders import Builders, both
from tests.support.builds import FolderLayer, FolderLayers, Workshop
from tests.support.rootfs import make_rootfs


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small root file system with a shell; nothing may change it."""
    folder = tmp_path_factory.mktemp("layers") / "base"
    make_rootfs(folder)
    return folder


@pytest.fixture
def workshop(tmp_path: Path, base_folder: Path) -> Iterator[Workshop]:
    """A place to build in; afterwards nothing is mounted and nothing half done is left."""
    layers = FolderLayers({"base/small": FolderLayer(base_folder)})
    made = Workshop(tmp_path, layers)
    yield made
    mounts = [point.target for point in mount.mount_points()]
    assert not [target for target in mounts if target.startswith(str(tmp_path))]
    assert made.leftovers() == []


@pytest.fixture(scope="session")
def builders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builders]:
    """Our builder and buildah with the same bases."""
    with both(tmp_path_factory.mktemp("conformance")) as made:
        yield made
