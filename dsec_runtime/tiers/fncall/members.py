"""The containers of the pool, as the node makes, checks and destroys them."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from dsec_layers.linux import procinfo
from dsec_runtime.spec import Environment, Limits, SandboxSpec
from dsec_runtime.tiers.container import failures
from dsec_runtime.tiers.container.driver import ContainerTier
from dsec_runtime.tiers.container.node import Node
from dsec_runtime.tiers.container.settings import Filled
from dsec_runtime.tiers.fncall.traces import SCRATCH, Traces
from dsec_runtime.tiers.tier import OomKill, Running

PREFIX: Final = "fn"  # of their ids; like any sandbox that no journal knows they go at a start
_HELPERS_S: Final = 0.2  # how long helpers of the agent may still be about to end
_POLL_S: Final = 0.002


class Kindred(msgspec.Struct, frozen=True):
    """What containers have in common that may stand in for each other.

    The environment is pinned: its names are bound to digests.
    """

    environment: Environment
    limits: Filled


class Made(msgspec.Struct, frozen=True):
    """A container, and what it was like before its first task."""

    running: Running
    traces: Traces


class Members:
    """All methods block and may be called from any thread; errors are SandboxErrors."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tier = ContainerTier(node, scratch=SCRATCH)

    def pinned(self, environment: Environment) -> Environment:
        """What `environment` means now."""
        with failures.told("the environment cannot be found"):
            return self._node.environments.pinned(environment)

    def make(self, member: str, kindred: Kindred) -> Running:
        """Boot a container without a network; on an error nothing of it is left."""
        limits = Limits(
            **{name: getattr(kindred.limits, name) for name in Limits.__struct_fields__}
        )
        spec = SandboxSpec(environment=kindred.environment, limits=limits, hostname="task")
        return self._tier.create(member, spec)

    def observed(self, running: Running) -> Made:
        """The container as it is before its first task, when its agent has answered."""
        upper = self._node.places.sandbox(running.id).disk / "upper"
        with failures.creating(running.id):
            return Made(running, Traces(running.pid, upper))

    def difference(self, made: Made) -> str | None:
        """Clean it; what is different from before its first task, None for nothing.

        No process of a task may be left: nobody can then change what was looked at already.
        """
        running = made.running
        give_up = time.monotonic() + _HELPERS_S
        with failures.told(f"{running.id} cannot be looked at"):
            if self._node.groups.usage(running.id).oom_kills:
                return "it ran out of memory"
            while self._node.groups.processes(running.id) != [running.pid]:
                if time.monotonic() > give_up:
                    return "processes"
                time.sleep(_POLL_S)
            return made.traces.remove()

    def lives(self, made: Made) -> bool:
        """Whether its first process is still there."""
        return procinfo.start_ticks(made.running.pid) == made.running.pid_start

    def oom_kill(self, made: Made) -> OomKill | None:
        """The process that the kernel killed in it for want of memory, if it did."""
        running = made.running
        with failures.told(f"{running.id} cannot be measured"):
            if not self._node.groups.usage(running.id).oom_kills:
                return None
        limit = int(running.own["memory_bytes"])
        return self._tier.last_oom(running) or OomKill(process="", pid=0, limit_bytes=limit)

    def destroy(self, member: str) -> None:
        """End it; nothing of it is left."""
        self._tier.destroy(member)
