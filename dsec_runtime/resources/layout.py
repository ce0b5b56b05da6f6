"""Which cgroups this node has."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsec_layers.linux import mount
from dsec_runtime.resources.cgroup1 import GroupsV1
from dsec_runtime.resources.cgroup2 import GroupsV2
from dsec_runtime.resources.groups import Groups


class Layout(msgspec.Struct, frozen=True):
    """Mount points: of v1 by controller, of its other hierarchies, and of v2."""

    v1: dict[str, Path]
    others: tuple[Path, ...]
    v2: Path | None

    @property
    def mixed(self) -> bool:
        """Whether both are there, which some OCI runtimes refuse to see."""
        return bool(self.v1) and self.v2 is not None


def find() -> Layout:
    """What is mounted in this mount namespace."""
    v1: dict[str, Path] = {}
    others: list[Path] = []
    v2 = None
    for point in mount.mount_points():
        if point.filesystem == "cgroup2":
            v2 = v2 or Path(point.target)
        elif point.filesystem == "cgroup":
            used = point.options & _V1
            v1 |= {option: Path(point.target) for option in used}
            others += [] if used else [Path(point.target)]
    return Layout(v1, tuple(others), v2)


def groups(layout: Layout) -> Groups:
    """The driver for it. Raises UnsupportedError, naming the controllers that are missing."""
    if layout.v2 is not None and not layout.v1:
        return GroupsV2(layout.v2)
    return GroupsV1(layout.v1, layout.v2, others=layout.others)


_V1 = frozenset(("memory", "cpu", "cpuacct", "cpuset", "pids", "freezer", "blkio"))
