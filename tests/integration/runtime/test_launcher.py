"""Programs are started where nothing is kept alive that is unmounted on the node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.linux import mount
from dsec_runtime.linux.launcher import Launcher
from tests.support.leftovers import mounts_below

pytestmark = pytest.mark.root

HEX = "0123456789abcdef" * 4


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[list[Path]]:
    """Of two homes a layer and a disk each, and something that is of no home."""
    names = (f"layers/{HEX}", "sandboxes/one/disk")
    points = [tmp_path / home / "run" / name for home in ("ours", "theirs") for name in names]
    points.append(tmp_path / "elsewhere")
    for point in points:
        point.mkdir(parents=True)
        mount.mount_tmpfs(point)
    yield points
    for point in points:
        mount.unmount(point)


def test_layers_and_disks_are_left_out(mounted: list[Path], tmp_path: Path) -> None:
    launcher = Launcher(1, tmp_path / "ours/run")
    try:
        assert launcher.call(lambda: mounts_below(tmp_path)) == [str(mounted[-1])]
        assert mounts_below(tmp_path) == [str(point) for point in mounted]
    finally:
        launcher.close()


def test_what_its_own_folder_lies_on_stays(tmp_path: Path) -> None:
    outer = tmp_path / "home/run/sandboxes/one/root"
    (outer / "our/run").mkdir(parents=True)
    mount.mount_tmpfs(outer)
    try:
        (outer / "our/run").mkdir(parents=True)
        launcher = Launcher(1, outer / "our/run")
        try:
            assert launcher.call((outer / "our/run").is_dir)
        finally:
            launcher.close()
    finally:
        mount.unmount(outer)
