"""The driver of cgroup v2 on real controllers: limits are set, felt and told, and nothing stays."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from dsec_runtime.errors import UnsupportedError
from dsec_runtime.linux.kmsg import KernelLog, Victim
from dsec_runtime.resources import controlfiles, layout
from dsec_runtime.resources.cgroup2 import GroupsV2
from dsec_runtime.resources.groups import PARENT, GroupLimits
from dsec_runtime.spec import MIB, CpuClass
from dsec_runtime.tiers.container import pausing

pytestmark = pytest.mark.root

LIMITS = GroupLimits(memory_bytes=64 * MIB, pids=8, cpu_cores=0.5, cpu_class=CpuClass.LS, cpus=(0,))
NAMES = (f"t{number}" for number in itertools.count())
_HELD_BYTES = 24 * MIB
_PATIENCE_S = 60.0


class Group:
    """A group with these limits; what `start` started in it ends with the test."""

    def __init__(self, groups: GroupsV2, folder: Path, limits: GroupLimits) -> None:
        self.groups, self.folder, self.name = groups, folder, folder.name
        groups.make(self.name, limits)
        groups.limit_cpu(self.name, limits)

    @contextlib.contextmanager
    def running(self, *argv: str) -> Iterator[subprocess.Popen[str]]:
        """A program that is in the group before its first instruction."""
        words = ["sh", "-c", 'read go && exec "$@"', "sh", *argv]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                self.groups.enter(self.name, process.pid)
                self.tell(process, "go")
                yield process
            finally:
                self.groups.kill(self.name)

    @staticmethod
    def tell(process: subprocess.Popen[str], line: str) -> None:
        """Give the program a line of input."""
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()

    @staticmethod
    def line(process: subprocess.Popen[str]) -> str:
        """The next line that it writes."""
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def read(self, file: str) -> str:
        """The content of a file of the group's."""
        return (self.folder / file).read_text().strip()


Make = Callable[[GroupLimits], Group]


@pytest.fixture(scope="module")
def point() -> Path:
    found = layout.find()
    if found.v2 is None or found.v1:
        pytest.skip("this machine's controllers are not those of cgroup v2")
    return found.v2


@pytest.fixture(scope="module")
def groups(point: Path) -> GroupsV2:
    made = layout.groups(layout.find())
    assert isinstance(made, GroupsV2)
    return made


@pytest.fixture
def make(groups: GroupsV2, point: Path) -> Iterator[Make]:
    made: list[Group] = []

    def new(limits: GroupLimits = LIMITS) -> Group:
        made.append(Group(groups, point / PARENT / next(NAMES), limits))
        return made[-1]

    yield new
    for each in made:
        groups.kill(each.name)
        groups.remove(each.name)
        assert not each.folder.exists()
        assert each.name not in groups.names()


@pytest.fixture
def group(make: Make) -> Group:
    return make(LIMITS)


def until(done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _PATIENCE_S
    while not done():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_controllers_are_handed_down(groups: GroupsV2, point: Path) -> None:
    for folder in (point, point / PARENT):
        handed = set((folder / "cgroup.subtree_control").read_text().split())
        assert handed >= {"cpu", "cpuset", "memory", "pids", "io"}
    GroupsV2(point)  # again, as a daemon that was restarted


def test_a_group_that_holds_processes_itself_hands_nothing_down(group: Group) -> None:
    with group.running("cat"), pytest.raises(UnsupportedError, match="processes of its own"):
        GroupsV2(group.folder)


def test_limits_are_the_kernels(group: Group) -> None:
    names = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cpu.weight", "cpu.idle")
    assert [group.read(name) for name in (*names, "cpuset.cpus.effective")] == [
        str(LIMITS.memory_bytes), "0", "8", "50000 100000", "50", "0", "0",
    ]  # fmt: skip
    assert group.name in group.groups.names()


def test_what_is_not_limited(make: Make) -> None:
    limits = msgspec.structs.replace(LIMITS, cpu_cores=None, cpus=None, cpu_class=CpuClass.BE)
    group = make(limits)
    names = ("cpu.idle", "cpu.max", "cpuset.cpus")
    assert [group.read(name) for name in names] == ["1", "max 100000", ""]
    group.groups.limit_cpu(group.name, limits)


def test_weight_of_io(make: Make) -> None:
    group = make(msgspec.structs.replace(LIMITS, io_weight=1000))
    weights = [path.read_text() for path in group.folder.glob("io*.weight")]
    assert any(text.split()[:2] == ["default", "1000"] for text in weights), weights


def test_memory(group: Group) -> None:
    log = KernelLog()
    with group.running("tail", "/dev/zero") as process:
        assert process.wait(_PATIENCE_S) == -9
    assert list(log.victims()) == [Victim("tail", process.pid, f"/{PARENT}/{group.name}")]
    log.close()
    used = group.groups.usage(group.name)
    assert (used.oom_kills, used.pids) == (1, 0)
    assert used.memory_bytes < LIMITS.memory_bytes / 2


def test_processes(group: Group) -> None:
    with group.running("sh", "-c", "while :; do sleep 1000 & done") as process:
        assert process.wait(_PATIENCE_S) > 0  # it cannot fork
        left = group.groups.processes(group.name)
        assert len(left) == group.groups.usage(group.name).pids == LIMITS.pids - 1
        assert controlfiles.fields(group.folder / "pids.events")["max"] >= 1
    assert group.groups.processes(group.name) == []


def test_processors(make: Make) -> None:
    group = make(msgspec.structs.replace(LIMITS, cpu_cores=0.02))
    with group.running("sh", "-c", "while :; do :; done"):
        until(lambda: group.groups.usage(group.name).throttled_s > 0)
    used = group.groups.usage(group.name)
    assert used.cpu_s > 0
    assert controlfiles.fields(group.folder / "cpu.stat")["nr_throttled"] > 0


def test_standing_still(group: Group) -> None:
    def cpu_s() -> float:
        subprocess.run(["true"], check=True)
        return group.groups.usage(group.name).cpu_s

    groups, name = group.groups, group.name
    groups.freeze(name)  # an empty one
    groups.thaw(name)
    with group.running("sh", "-c", "while :; do :; done"):
        until(lambda: cpu_s() > 0)
        for _ in range(2):  # which may be repeated
            groups.freeze(name)
        assert groups.frozen(name)
        used = cpu_s()
        assert cpu_s() == used
        groups.thaw(name)
        assert not groups.frozen(name)
        until(lambda: cpu_s() > used)


@contextlib.contextmanager
def holder(group: Group) -> Iterator[subprocess.Popen[str]]:
    """A process with memory that is its own, which tells how much there is when it is asked."""
    script = f'$| = 1; $x = "a" x {_HELD_BYTES}; print "1\\n"; <STDIN>; print $x =~ tr/a//, "\\n"'
    with group.running("perl", "-e", script) as process:
        assert group.line(process) == "1"
        yield process
        group.tell(process, "how much?")
        assert group.line(process) == str(_HELD_BYTES)


def test_memory_is_given_back_as_far_as_may_be(group: Group) -> None:
    groups, name = group.groups, group.name
    with holder(group):
        groups.freeze(name)
        groups.reclaim(name)
        used = groups.usage(name)
        assert used.memory_bytes > _HELD_BYTES
        assert used.swap_bytes == 0
        groups.swappable(name, allowed=True)
        groups.reclaim(name)
        given = groups.usage(name)
        assert given.memory_bytes < used.memory_bytes * 0.1
        assert given.swap_bytes > _HELD_BYTES * 0.9
        groups.thaw(name)


def test_a_pause_gives_memory_back_and_what_goes_on_has_it(group: Group) -> None:
    with holder(group):
        before = group.groups.usage(group.name).memory_bytes
        gave = pausing.pause(group.groups, group.name)
        assert group.groups.frozen(group.name)
        assert gave > before * 0.9
        pausing.resume(group.groups, group.name)
    assert group.read("memory.swap.max") == "0"


def test_all_of_a_group_are_killed_frozen_and_below_too(group: Group) -> None:
    inner = group.folder / "inner"
    inner.mkdir()
    with group.running("sh", "-c", "sleep 1000 & wait") as first, group.running("cat") as second:
        until(lambda: len(group.groups.processes(group.name)) == 3)
        controlfiles.write(inner / "cgroup.procs", second.pid)
        group.groups.freeze(group.name)
        group.groups.kill(group.name)
        assert (first.wait(_PATIENCE_S), second.wait(_PATIENCE_S)) == (-9, -9)
        assert controlfiles.fields(group.folder / "cgroup.events")["populated"] == 0
    group.groups.remove(group.name)  # with the group in it
    assert not group.folder.exists()


def test_what_is_gone_is_nothing(groups: GroupsV2) -> None:
    for _ in range(2):
        groups.kill("gone")
        groups.remove("gone")
    assert groups.processes("gone") == []
    assert groups.usage("gone").memory_bytes == 0
