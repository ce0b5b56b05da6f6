"""What is mounted and what is left below a folder."""

from __future__ import annotations

from pathlib import Path

from dsec_layers.linux import mount


def mounts_below(folder: Path) -> list[str]:
    """The mount points below `folder`, in mount order."""
    points = mount.mount_points()
    return [point.target for point in points if Path(point.target).is_relative_to(folder)]


def leftovers(home: Path) -> list[str]:
    """What a rootfs manager has left in `home`, besides its lock and the folders it always has."""
    usual = {"mounts.lock", "journal", "layers", "rootfs", "empty"}
    run = home / "run"
    found = (path.relative_to(run) for path in run.rglob("*"))
    return sorted(str(path) for path in found if str(path) not in usual)
