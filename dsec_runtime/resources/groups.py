"""The processes of a sandbox as the kernel groups and limits them, by either version of cgroups.

A group is named after its sandbox. It is made before anything runs in it, and what runs in it is
found, frozen and killed by it, whatever it does.
"""

from __future__ import annotations

import math
from typing import Protocol

import msgspec

from dsec_runtime.spec import CpuClass

PARENT = "dsec"  # of the groups of all sandboxes


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a group may use; `cpus` are the processors that it sees, None is all."""

    memory_bytes: int
    pids: int
    cpu_cores: float | None
    cpu_class: CpuClass
    cpus: tuple[int, ...] | None = None
    io_weight: int | None = None

    @property
    def quota_us(self) -> int | None:
        """Microseconds of CPU time in each PERIOD_US."""
        return None if self.cpu_cores is None else max(1000, int(self.cpu_cores * PERIOD_US))

    @property
    def cpu_list(self) -> str | None:
        """The processors as the kernel writes them."""
        return None if self.cpus is None else ",".join(map(str, self.cpus))


PERIOD_US = 100_000


def weight(cores: float | None, *, of_one: int, least: int, most: int) -> int:
    """A share of the CPU in proportion to the cores, `of_one` for one."""
    return min(most, max(least, math.floor(of_one * (cores or 1.0))))


class GroupUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a group uses. `memory_bytes` leaves out file pages that nobody has used lately."""

    memory_bytes: int
    swap_bytes: int
    cpu_s: float
    pids: int
    oom_kills: int
    throttled_s: float


class Groups(Protocol):
    """The groups of this node's sandboxes. All methods may be repeated; they raise OSError."""

    def make(self, name: str, limits: GroupLimits) -> None:
        """Make the group of a sandbox, with no limit yet of its CPU time.

        Whatever boots the sandbox shall not wait for that. Raises UnsupportedError.
        """

    def enter(self, name: str, pid: int) -> None:
        """Put a process that is about to boot the sandbox into the group."""

    def limit_cpu(self, name: str, limits: GroupLimits) -> None:
        """Limit the CPU time of the group, which has booted."""

    def freeze(self, name: str) -> None:
        """Stop all processes of the group, and wait until they stand. Raises TimeoutError."""

    def thaw(self, name: str) -> None:
        """Let them go on."""

    def frozen(self, name: str) -> bool:
        """Whether it is frozen."""

    def swappable(self, name: str, *, allowed: bool) -> None:
        """Whether memory of the group may go to swap."""

    def reclaim(self, name: str) -> None:
        """Take as much memory from the group as can be had."""

    def processes(self, name: str) -> list[int]:
        """Those that live in the group."""

    def kill(self, name: str) -> None:
        """Kill all processes of the group, frozen or not, and wait for their end.

        Raises TimeoutError.
        """

    def remove(self, name: str) -> None:
        """Remove the group, in which nothing lives."""

    def usage(self, name: str) -> GroupUsage:
        """What it uses."""

    def names(self) -> list[str]:
        """The groups that there are."""
