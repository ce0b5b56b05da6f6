"""Groups by cgroup v2; see the kernel's admin-guide/cgroup-v2."""

from __future__ import annotations

import contextlib
import errno
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsec_runtime.errors import UnsupportedError
from dsec_runtime.resources import controlfiles
from dsec_runtime.resources.groups import PARENT, PERIOD_US, GroupLimits, GroupUsage, weight
from dsec_runtime.spec import CpuClass

_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids", "io")
_REQUIRED: Final = frozenset(("cpu", "cpuset", "memory", "pids"))
_PATIENCE_S: Final = 10.0
_MAX: Final = "max"


class Tracker:
    """The v2 group of each sandbox, without controllers: finds, freezes, kills, counts CPU time."""

    def __init__(self, point: Path) -> None:
        self.parent = point / PARENT
        self.parent.mkdir(exist_ok=True)

    def path(self, name: str) -> Path:
        """The folder of a group."""
        return self.parent / name

    def make(self, name: str) -> None:
        """Make the group."""
        with contextlib.suppress(FileExistsError):
            self.path(name).mkdir()

    def enter(self, name: str, pid: int) -> None:
        """Put a process into it."""
        controlfiles.write(self.path(name) / "cgroup.procs", pid)

    def freeze(self, name: str) -> None:
        """Stop all in it, and wait until they stand. Raises TimeoutError."""
        controlfiles.write(self.path(name) / "cgroup.freeze", 1)
        self._wait(name, "stand still", lambda events: events.get("frozen") == 1)

    def thaw(self, name: str) -> None:
        """Let them go on."""
        controlfiles.write(self.path(name) / "cgroup.freeze", 0)

    def frozen(self, name: str) -> bool:
        """Whether it is to stand."""
        return controlfiles.number(self.path(name) / "cgroup.freeze") == 1

    def processes(self, name: str) -> list[int]:
        """Those in it."""
        try:
            return [
                int(word) for word in controlfiles.read(self.path(name) / "cgroup.procs").split()
            ]
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # threaded
                return []
            raise

    def kill(self, name: str) -> None:
        """Kill all in it and in groups below, and wait for their end. Raises TimeoutError."""
        with contextlib.suppress(FileNotFoundError):
            controlfiles.write(self.path(name) / "cgroup.kill", 1)
            self._wait(name, "end", lambda events: events.get("populated", 0) == 0)

    def cpu_s(self, name: str) -> float:
        """The CPU time that it has used."""
        return controlfiles.fields(self.path(name) / "cpu.stat").get("usage_usec", 0) / 1e6

    def remove(self, name: str) -> None:
        """Remove it."""
        controlfiles.remove_group(self.path(name))

    def names(self) -> list[str]:
        """The groups that there are."""
        return [path.name for path in self.parent.iterdir() if path.is_dir()]

    def _wait(self, name: str, what: str, done: Callable[[dict[str, int]], bool]) -> None:
        """The kernel tells of a change of the file by POLLPRI."""
        give_up = time.monotonic() + _PATIENCE_S
        with (self.path(name) / "cgroup.events").open("rb", buffering=0) as events:
            poll = select.poll()
            poll.register(events, select.POLLPRI)
            while True:
                events.seek(0)
                pairs = (line.split() for line in events.read().decode().splitlines())
                if done({key: int(value) for key, value in pairs}):
                    return
                left = give_up - time.monotonic()
                if left < 0:
                    raise TimeoutError(f"the processes of {name} do not {what}")
                poll.poll(left * 1000)


class GroupsV2:
    """See Groups. `point` is where cgroup2 is mounted."""

    def __init__(self, point: Path) -> None:
        there = frozenset(controlfiles.read(point / "cgroup.controllers").split())
        if missing := sorted(_REQUIRED - there):
            raise UnsupportedError(f"this node has no cgroup controller {', '.join(missing)}")
        self._tracker = Tracker(point)
        enabled = " ".join(f"+{name}" for name in _CONTROLLERS if name in there)
        for folder in (point, self._tracker.parent):
            _hand_down(folder, enabled)

    def make(self, name: str, limits: GroupLimits) -> None:
        """See Groups."""
        self._tracker.make(name)
        group = self._tracker.path(name)
        if limits.io_weight is not None and not (
            controlfiles.write_if_there(group / "io.bfq.weight", limits.io_weight)
            or controlfiles.write_if_there(group / "io.weight", limits.io_weight)
        ):
            raise UnsupportedError("this node cannot weigh I/O", hint="leave it out")
        controlfiles.write(group / "memory.max", limits.memory_bytes)
        controlfiles.write_if_there(group / "memory.swap.max", 0)
        controlfiles.write(group / "pids.max", limits.pids)

    def enter(self, name: str, pid: int) -> None:
        """See Groups."""
        self._tracker.enter(name, pid)

    def limit_cpu(self, name: str, limits: GroupLimits) -> None:
        """See Groups."""
        group = self._tracker.path(name)
        if limits.cpu_class is CpuClass.BE:
            controlfiles.write_if_there(group / "cpu.idle", 1)
        else:
            share = weight(limits.cpu_cores, of_one=100, least=1, most=10000)
            controlfiles.write(group / "cpu.weight", share)
        if limits.quota_us is not None:
            controlfiles.write(group / "cpu.max", f"{limits.quota_us} {PERIOD_US}")
        if limits.cpu_list is not None:
            controlfiles.write(group / "cpuset.cpus", limits.cpu_list)

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
        path = self._tracker.path(name) / "memory.swap.max"
        controlfiles.write_if_there(path, _MAX if allowed else 0)

    def reclaim(self, name: str) -> None:
        """See Groups. The kernel says EAGAIN when it got less than was asked for."""
        group = self._tracker.path(name)
        with contextlib.suppress(OSError):
            controlfiles.write(
                group / "memory.reclaim", controlfiles.read(group / "memory.current")
            )

    def processes(self, name: str) -> list[int]:
        """See Groups."""
        return self._tracker.processes(name)

    def kill(self, name: str) -> None:
        """See Groups."""
        self._tracker.kill(name)

    def remove(self, name: str) -> None:
        """See Groups."""
        self._tracker.remove(name)

    def usage(self, name: str) -> GroupUsage:
        """See Groups."""
        group = self._tracker.path(name)
        cpu = controlfiles.fields(group / "cpu.stat")
        used = controlfiles.number(group / "memory.current")
        idle = controlfiles.fields(group / "memory.stat").get("inactive_file", 0)
        return GroupUsage(
            memory_bytes=max(0, used - idle),
            swap_bytes=controlfiles.number(group / "memory.swap.current"),
            cpu_s=cpu.get("usage_usec", 0) / 1e6,
            pids=controlfiles.number(group / "pids.current"),
            oom_kills=controlfiles.fields(group / "memory.events").get("oom_kill", 0),
            throttled_s=cpu.get("throttled_usec", 0) / 1e6,
        )

    def names(self) -> list[str]:
        """See Groups."""
        return self._tracker.names()


def _hand_down(folder: Path, controllers: str) -> None:
    """Let the groups in this one have the controllers."""
    try:
        controlfiles.write(folder / "cgroup.subtree_control", controllers)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise UnsupportedError(
            f"the cgroup at {folder} has processes of its own, so none in it can be limited",
            hint="move them into a group below it, or start the edge where it sees the node's root",
        ) from None
