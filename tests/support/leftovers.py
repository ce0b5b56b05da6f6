"""What a rootfs manager leaves behind: mounts, folders, served layers."""

from __future__ import annotations

import time
from pathlib import Path

from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.linux import mount

_PATIENCE_S = 100  # a container that runs meanwhile may have copied all mounts


def mounts_below(folder: Path) -> list[str]:
    """The mount points below `folder`, in mount order."""
    points = mount.mount_points()
    return [point.target for point in points if Path(point.target).is_relative_to(folder)]


def leftovers(home: Path) -> list[str]:
    """What there is in `home`, besides the lock, the usual folders and traces of layers."""
    run = home / "run"
    usual = {run / name for name in ("mounts.lock", "journal", "layers", "rootfs", "empty")}
    found = (path for path in run.rglob("*") if path not in usual)
    return sorted(str(path.relative_to(run)) for path in found if path.parent != run / "layers")


def settle(manager: RootfsManager, home: Path) -> None:
    """Wait until no unmounted layer lives on.

    Any container that starts somewhere on this machine copies all mounts for a moment.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while any((home / "run/layers").glob("*")):
        assert time.monotonic() < deadline, "a layer is still in use"
        time.sleep(0.01)
        manager.reconcile()
