"""What the drivers of both versions tell the kernel, in folders that take what is written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsec_runtime.errors import UnsupportedError
from dsec_runtime.resources.cgroup1 import GroupsV1
from dsec_runtime.resources.cgroup2 import GroupsV2
from dsec_runtime.resources.groups import GroupLimits
from dsec_runtime.spec import MIB, CpuClass

LIMITS = GroupLimits(
    memory_bytes=64 * MIB, pids=100, cpu_cores=1.5, cpu_class=CpuClass.LS, cpus=(1, 3)
)
_V1 = {
    "memory": ("memory.limit_in_bytes", "memory.swappiness", "memory.force_empty"),
    "pids": ("pids.max",),
    "cpu": ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.idle"),
    "cpuacct": ("cpuacct.usage",),
    "cpuset": ("cpuset.cpus", "cpuset.mems"),
    "freezer": ("freezer.state",),
}
_V2 = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cpu.weight", "cpu.idle")


def fill(folder: Path, names: tuple[str, ...]) -> None:
    """Make empty files, and one for processes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*names, "cgroup.procs"):
        (folder / name).touch()


@pytest.fixture
def v1(tmp_path: Path) -> dict[str, Path]:
    """Hierarchies with a group `box` in each."""
    for controller, files in _V1.items():
        for group in ("", "dsec", "dsec/box"):
            fill(tmp_path / controller / group, files)
    (tmp_path / "cpuset/cpuset.cpus").write_text("0-7\n")
    (tmp_path / "cpuset/cpuset.mems").write_text("0\n")
    return {name: tmp_path / name for name in _V1}


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """A hierarchy with a group `box`."""
    for group in ("", "dsec", "dsec/box"):
        fill(tmp_path / group, (*_V2, "cpuset.cpus", "cgroup.subtree_control", "memory.reclaim"))
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return tmp_path


def test_v1(v1: dict[str, Path]) -> None:
    groups = GroupsV1(v1, None)
    groups.make("box", LIMITS)
    assert (v1["cpu"] / "dsec/box/cpu.cfs_quota_us").read_text() == ""  # what boots does not wait
    groups.enter("box", 42)
    groups.limit_cpu("box", LIMITS)
    assert {
        file: (v1[controller] / "dsec/box" / file).read_text()
        for controller, files in _V1.items()
        for file in (*files, "cgroup.procs")
        if controller not in ("cpuacct", "freezer") and "force" not in file
    } == {
        "memory.limit_in_bytes": str(64 * MIB),
        "memory.swappiness": "0",
        "pids.max": "100",
        "cpu.shares": "1536",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "150000",
        "cpu.idle": "",
        "cpuset.cpus": "1,3",
        "cpuset.mems": "0",
        "cgroup.procs": "42",
    }
    for controller in _V1:
        assert (v1[controller] / "dsec/box/cgroup.procs").read_text() == "42"


def test_v1_best_effort_and_swap(v1: dict[str, Path]) -> None:
    groups = GroupsV1(v1, None)
    limits = msgspec.structs.replace(LIMITS, cpu_class=CpuClass.BE, cpu_cores=None)
    groups.make("box", limits)
    groups.limit_cpu("box", limits)
    assert (v1["cpu"] / "dsec/box/cpu.idle").read_text() == "1"
    assert (v1["cpu"] / "dsec/box/cpu.cfs_quota_us").read_text() == ""
    groups.swappable("box", allowed=True)
    assert (v1["memory"] / "dsec/box/memory.swappiness").read_text() == "100"


def test_v1_usage(v1: dict[str, Path]) -> None:
    memory = v1["memory"] / "dsec/box"
    (memory / "memory.stat").write_text("cache 5\ninactive_file 1000\nswap 7\n")
    (memory / "memory.usage_in_bytes").write_text("5000\n")
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (v1["cpuacct"] / "dsec/box/cpuacct.usage").write_text("2500000000\n")
    (v1["cpu"] / "dsec/box/cpu.stat").write_text("nr_periods 1\nthrottled_time 500000000\n")
    (v1["pids"] / "dsec/box/pids.current").write_text("9\n")
    used = GroupsV1(v1, None).usage("box")
    assert msgspec.structs.astuple(used) == (4000, 7, 2.5, 9, 3, 0.5)


def test_v1_without_what_is_needed(v1: dict[str, Path]) -> None:
    with pytest.raises(UnsupportedError, match="pids"):
        GroupsV1({name: path for name, path in v1.items() if name != "pids"}, None)
    with pytest.raises(UnsupportedError, match="freezer"):
        GroupsV1({name: path for name, path in v1.items() if name != "freezer"}, None)
    with pytest.raises(UnsupportedError, match="weigh I/O"):
        GroupsV1(v1, None).make("box", msgspec.structs.replace(LIMITS, io_weight=10))


def test_v2(v2: Path) -> None:
    groups = GroupsV2(v2)
    assert (v2 / "cgroup.subtree_control").read_text() == "+cpu +cpuset +memory +pids +io"
    groups.make("box", LIMITS)
    groups.enter("box", 42)
    box = v2 / "dsec/box"
    assert (box / "cpu.max").read_text() == ""  # whatever boots it does not wait
    groups.limit_cpu("box", LIMITS)
    assert {name: (box / name).read_text() for name in (*_V2, "cpuset.cpus", "cgroup.procs")} == {
        "memory.max": str(64 * MIB),
        "memory.swap.max": "0",
        "pids.max": "100",
        "cpu.max": "150000 100000",
        "cpu.weight": "150",
        "cpu.idle": "",
        "cpuset.cpus": "1,3",
        "cgroup.procs": "42",
    }


def test_v2_best_effort_swap_and_reclaim(v2: Path) -> None:
    groups = GroupsV2(v2)
    groups.limit_cpu("box", msgspec.structs.replace(LIMITS, cpu_class=CpuClass.BE))
    groups.swappable("box", allowed=True)
    (v2 / "dsec/box/memory.current").write_text("12345")
    groups.reclaim("box")
    found = {name: (v2 / "dsec/box" / name).read_text() for name in ("cpu.idle", "cpu.weight")}
    assert found == {"cpu.idle": "1", "cpu.weight": ""}
    assert (v2 / "dsec/box/memory.swap.max").read_text() == "max"
    assert (v2 / "dsec/box/memory.reclaim").read_text() == "12345"


def test_v2_usage(v2: Path) -> None:
    box = v2 / "dsec/box"
    (box / "memory.current").write_text("5000\n")
    (box / "memory.stat").write_text("anon 3\ninactive_file 1000\n")
    (box / "memory.swap.current").write_text("7\n")
    (box / "memory.events").write_text("low 0\noom 4\noom_kill 3\n")
    (box / "cpu.stat").write_text("usage_usec 2500000\nthrottled_usec 500000\n")
    (box / "pids.current").write_text("9\n")
    assert msgspec.structs.astuple(GroupsV2(v2).usage("box")) == (4000, 7, 2.5, 9, 3, 0.5)


def test_v2_without_what_is_needed(v2: Path) -> None:
    (v2 / "cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(UnsupportedError, match="cpuset, memory"):
        GroupsV2(v2)


def test_v2_weighs_io_where_it_can(v2: Path) -> None:
    groups = GroupsV2(v2)
    wish = msgspec.structs.replace(LIMITS, io_weight=10)
    with pytest.raises(UnsupportedError, match="weigh I/O"):
        groups.make("box", wish)
    (v2 / "dsec/box/io.weight").touch()
    groups.make("box", wish)
    assert (v2 / "dsec/box/io.weight").read_text() == "10"


def test_what_a_dead_group_uses_is_nothing(v2: Path) -> None:
    assert msgspec.structs.astuple(GroupsV2(v2).usage("gone")) == (0, 0, 0.0, 0, 0, 0.0)
    assert GroupsV2(v2).processes("gone") == []


def test_v1_beside_v2_makes_only_the_groups_that_are_needed(
    v1: dict[str, Path], tmp_path: Path
) -> None:
    unified = tmp_path / "unified"
    fill(unified / "dsec/new", ("cpu.stat",))
    for controller in ("memory", "pids", "cpu"):
        fill(v1[controller] / "dsec/new", _V1[controller])
    groups = GroupsV1(v1, unified)
    groups.make("new", msgspec.structs.replace(LIMITS, cpus=None))
    groups.enter("new", 42)
    assert not (v1["cpuset"] / "dsec/new").exists()
    assert not (v1["cpuacct"] / "dsec/new").exists()
    assert (unified / "dsec/new/cgroup.procs").read_text() == "42"
    (unified / "dsec/new/cpu.stat").write_text("usage_usec 1500000\n")
    assert groups.usage("new").cpu_s == 1.5
