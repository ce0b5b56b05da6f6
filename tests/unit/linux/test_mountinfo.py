from pathlib import Path

import pytest

from dsec_layers.linux import mount


def test_the_root_and_proc_are_mounted() -> None:
    points = {point.target: point for point in mount.mount_points()}
    assert points["/proc"].filesystem == "proc"
    assert mount.mounted_at(Path("/proc")) is not None
    assert mount.mounted_at(Path("/proc/self")) is None


@pytest.mark.root
@pytest.mark.parametrize("name", ["a b", "a#b", "a\nb\tc", "a\\b\\040", "\udcff", "ä"])
def test_any_name_is_read_back(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    target.mkdir()
    mount.mount_tmpfs(target)
    try:
        found = mount.mounted_at(target)
    finally:
        mount.unmount(target)
    assert found is not None
    assert found.filesystem == "tmpfs"
    assert mount.mounted_at(target) is None
