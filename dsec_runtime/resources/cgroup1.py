"""Groups by cgroup v1, one folder in each hierarchy; see the kernel's admin-guide/cgroup-v1.

Where v2 is mounted too, if only for what v1 lacks, it freezes and kills: what leaves the group of
one hierarchy cannot leave that. Else the freezer does, and killing takes a few rounds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dsec_runtime.errors import UnsupportedError
from dsec_runtime.resources import controlfiles
from dsec_runtime.resources.cgroup2 import Tracker
from dsec_runtime.resources.groups import PARENT, PERIOD_US, GroupLimits, GroupUsage, weight
from dsec_runtime.spec import CpuClass

_REQUIRED: Final = ("memory", "cpu", "cpuacct", "cpuset", "pids")
_USED: Final = (*_REQUIRED, "blkio")
_WEIGHTS: Final = ("blkio.bfq.weight", "blkio.weight")
_CALM: Final = 0  # memory.swappiness: nothing goes to swap
_EAGER: Final = 100
_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.001


class GroupsV1:
    """See Groups. `hierarchies` are mount points by controller; `unified` that of v2, if any.

    `others` are hierarchies that are not used here; some runtimes make groups in all.
    """

    def __init__(
        self, hierarchies: Mapping[str, Path], unified: Path | None, *, others: Sequence[Path] = ()
    ) -> None:
        if missing := [name for name in _REQUIRED if name not in hierarchies]:
            raise UnsupportedError(f"this node has no cgroup controller {', '.join(missing)}")
        if unified is None and "freezer" not in hierarchies:
            raise UnsupportedError("this node has neither cgroup v2 nor the freezer of v1")
        self._points = dict(hierarchies)
        # Strings, as joining paths is a tenth of the work of making a sandbox here.
        self._parents = {name: f"{path}/{PARENT}" for name, path in hierarchies.items()}
        self._all = [f"{path}/{PARENT}" for path in sorted({*hierarchies.values(), *others})]
        self._tracker = Tracker(unified) if unified else _Freezer(hierarchies["freezer"])
        self._weight = next(
            (name for name in _WEIGHTS if (self._points.get("blkio", Path()) / name).exists()), None
        )
        self._prepare()

    def make(self, name: str, limits: GroupLimits) -> None:
        """See Groups."""
        if limits.io_weight is not None and self._weight is None:
            raise UnsupportedError(
                "this node cannot weigh I/O", hint="the kernel's bfq scheduler can; leave it out"
            )
        self._tracker.make(name)
        for controller in self._needed(limits):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._of(controller, name))  # noqa: PTH102 # see __init__
        memory, pids = self._of("memory", name), self._of("pids", name)
        controlfiles.write(f"{memory}/memory.limit_in_bytes", limits.memory_bytes)
        controlfiles.write(f"{memory}/memory.swappiness", _CALM)
        controlfiles.write(f"{pids}/pids.max", limits.pids)
        share = weight(limits.cpu_cores, of_one=1024, least=2, most=262144)
        controlfiles.write(f"{self._of('cpu', name)}/cpu.shares", share)
        if limits.cpu_list is not None:
            _inherit_cpuset(self._of("cpuset", name), limits.cpu_list)
        if limits.io_weight is not None and self._weight is not None:
            controlfiles.write(f"{self._of('blkio', name)}/{self._weight}", limits.io_weight)

    def enter(self, name: str, pid: int) -> None:
        """See Groups."""
        self._tracker.enter(name, pid)
        for controller in _USED:
            if controller in self._points:
                controlfiles.write_if_there(f"{self._of(controller, name)}/cgroup.procs", pid)

    def limit_cpu(self, name: str, limits: GroupLimits) -> None:
        """See Groups."""
        cpu = self._of("cpu", name)
        if limits.quota_us is not None:
            controlfiles.write(f"{cpu}/cpu.cfs_period_us", PERIOD_US)
            controlfiles.write(f"{cpu}/cpu.cfs_quota_us", limits.quota_us)
        if limits.cpu_class is CpuClass.BE:
            controlfiles.write_if_there(f"{cpu}/cpu.idle", 1)

    def freeze(self, name: str) -> None:
        """See Groups."""
        self._tracker.freeze(name)

    def thaw(self, name: str) -> None:
        """See Groups."""
        self._tracker.thaw(name)

    def frozen(self, name: str) -> bool:
        """See Groups."""
        return self._tracker.frozen(name)

    def swappable(self, name: str, *, allowed: bool) -> None:
        """See Groups."""
        swappiness = _EAGER if allowed else _CALM
        controlfiles.write(f"{self._of('memory', name)}/memory.swappiness", swappiness)

    def reclaim(self, name: str) -> None:
        """See Groups. The kernel tries several times and gives up by EBUSY or EINTR."""
        with contextlib.suppress(OSError):
            controlfiles.write(f"{self._of('memory', name)}/memory.force_empty", 0)

    def processes(self, name: str) -> list[int]:
        """See Groups."""
        return self._tracker.processes(name)

    def kill(self, name: str) -> None:
        """See Groups."""
        self._tracker.kill(name)

    def remove(self, name: str) -> None:
        """See Groups."""
        for parent in self._all:
            controlfiles.remove_group(f"{parent}/{name}")
        self._tracker.remove(name)

    def usage(self, name: str) -> GroupUsage:
        """See Groups."""
        memory = self._of("memory", name)
        stat = controlfiles.fields(f"{memory}/memory.stat")
        used = controlfiles.number(f"{memory}/memory.usage_in_bytes")
        cpu = controlfiles.fields(f"{self._of('cpu', name)}/cpu.stat")
        return GroupUsage(
            memory_bytes=max(0, used - stat.get("inactive_file", 0)),
            swap_bytes=stat.get("swap", 0),
            cpu_s=self._cpu_s(name),
            pids=controlfiles.number(f"{self._of('pids', name)}/pids.current"),
            oom_kills=controlfiles.fields(f"{memory}/memory.oom_control").get("oom_kill", 0),
            throttled_s=cpu.get("throttled_time", 0) / 1e9,
        )

    def names(self) -> list[str]:
        """See Groups."""
        found = set(self._tracker.names())
        for controller in _USED:
            if controller in self._points:
                parent = Path(self._parents[controller])
                found.update(it.name for it in parent.iterdir() if it.is_dir())
        return sorted(found)

    def _prepare(self) -> None:
        """A new group of cpuset has neither processors nor memory until it is told."""
        for controller in _USED:
            if controller in self._points:
                Path(self._parents[controller]).mkdir(exist_ok=True)
        _inherit_cpuset(self._parents["cpuset"])
        controlfiles.write_if_there(f"{self._parents['memory']}/memory.use_hierarchy", 1)

    def _needed(self, limits: GroupLimits) -> list[str]:
        """The controllers for a group with these limits: each that is not makes it sooner."""
        wanted = {
            "cpuacct": isinstance(self._tracker, _Freezer),
            "cpuset": limits.cpu_list is not None,
            "blkio": limits.io_weight is not None,
        }
        return [controller for controller in _USED if wanted.get(controller, True)]

    def _cpu_s(self, name: str) -> float:
        if isinstance(self._tracker, Tracker):
            return self._tracker.cpu_s(name)
        return controlfiles.number(f"{self._of('cpuacct', name)}/cpuacct.usage") / 1e9

    def _of(self, controller: str, name: str) -> str:
        return f"{self._parents[controller]}/{name}"


def _inherit_cpuset(group: str, cpus: str | None = None) -> None:
    above = group.rpartition("/")[0]
    for file, value in (("cpuset.mems", None), ("cpuset.cpus", cpus)):
        content = value or controlfiles.read(f"{above}/{file}").strip()
        if controlfiles.read(f"{group}/{file}").strip() != content:
            controlfiles.write(f"{group}/{file}", content)


class _Freezer:
    """Finds, freezes and kills by the v1 freezer."""

    def __init__(self, point: Path) -> None:
        self._parent = point / PARENT
        self._parent.mkdir(exist_ok=True)

    def make(self, name: str) -> None:
        with contextlib.suppress(FileExistsError):
            (self._parent / name).mkdir()

    def enter(self, name: str, pid: int) -> None:
        controlfiles.write(self._parent / name / "cgroup.procs", pid)

    def freeze(self, name: str) -> None:
        self._change(name, "FROZEN")

    def thaw(self, name: str) -> None:
        self._change(name, "THAWED")

    def frozen(self, name: str) -> bool:
        return controlfiles.read(self._parent / name / "freezer.state").strip() != "THAWED"

    def processes(self, name: str) -> list[int]:
        return [int(word) for word in controlfiles.read(self._parent / name / _PROCS).split()]

    def kill(self, name: str) -> None:
        """A frozen group cannot fork away; the signals come through when it thaws."""
        give_up = time.monotonic() + _PATIENCE_S
        while found := self.processes(name):
            with contextlib.suppress(OSError, TimeoutError):
                self.freeze(name)
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.thaw(name)
            if time.monotonic() > give_up:
                raise TimeoutError(f"processes of {name} do not end: {found[:5]}")
            time.sleep(_POLL_S)

    def remove(self, name: str) -> None:
        controlfiles.remove_group(self._parent / name)

    def names(self) -> list[str]:
        return [path.name for path in self._parent.iterdir() if path.is_dir()]

    def _change(self, name: str, wanted: str) -> None:
        state = self._parent / name / "freezer.state"
        give_up = time.monotonic() + _PATIENCE_S
        controlfiles.write(state, wanted)
        while controlfiles.read(state).strip() != wanted:
            if time.monotonic() > give_up:
                raise TimeoutError(f"the group {name} does not become {wanted}")
            time.sleep(_POLL_S)
            controlfiles.write(state, wanted)


_PROCS = "cgroup.procs"
