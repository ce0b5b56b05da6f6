"""Stateless tasks: each gets a container of the pool, and is told whose fault its end was."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from typing import Final, Protocol

import msgspec

from dsec_runtime.edge.admission import Admission
from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.driving import Driving
from dsec_runtime.edge.metrics import Metrics
from dsec_runtime.edge.sandboxes import Sandboxes
from dsec_runtime.errors import OverloadedError, SandboxError
from dsec_runtime.messages import FncallAnswer
from dsec_runtime.spec import EndCause, Environment, FncallTask
from dsec_runtime.tiers.fncall import tasks
from dsec_runtime.tiers.fncall.kinds import FILE, Kind, Kinds
from dsec_runtime.tiers.fncall.members import Kindred, Made
from dsec_runtime.tiers.fncall.pool import Makers, Member, Pool
from dsec_runtime.tiers.tier import OomKill

_PINNED_S: Final = 1.0  # how long a name may mean what it meant
_MOST_PINNED: Final = 256
_KILLED: Final = (int(signal.SIGKILL), 128 + signal.SIGKILL)


class TaskMakers(Makers, Protocol):
    """What is needed of `members.Members`."""

    def pinned(self, environment: Environment) -> Environment:
        """See Members."""

    def oom_kill(self, made: Made) -> OomKill | None:
        """See Members."""


class Fncalls:
    """Runs tasks in the containers that `makers` makes."""

    def __init__(
        self,
        config: EdgeConfig,
        makers: TaskMakers,
        driving: Driving,
        admission: Admission,
        sandboxes: Sandboxes,
        metrics: Metrics,
    ) -> None:
        self._makers = makers
        self._driving = driving
        self._admission = admission
        self._metrics = metrics
        self._kinds = Kinds(config.state / FILE)
        self._pinned: dict[Environment, tuple[float, asyncio.Task[Environment]]] = {}
        self.pool = Pool(
            config.fncall,
            makers,
            driving.call,
            admit=lambda: admission.check(sandboxes.live + self.pool.live, 0),
            note_discard=metrics.pool_discards.inc,
        )
        metrics.watch_pool(self.pool.counts)

    @property
    def draining(self) -> bool:
        """Whether the edge is about to end, and takes no more."""
        return self._admission.draining

    async def run(self, task: FncallTask) -> FncallAnswer:
        """Run a task to its end; the answer tells how that came, also when the task is to blame.

        Raises CommandFailedError when there is no such program, InvalidRequestError,
        OverloadedError, InfrastructureError.
        """
        if self.draining:
            raise OverloadedError("the edge is about to end", detail={"retry_after_s": 5.0})
        began = time.monotonic()
        kind = self._kinds.find(task.kind)
        tasks.check(task, kind)
        limits = self.pool.settings.filled(task.limits)
        kindred = Kindred(await self._pin(task.environment), limits)
        outcome = "error"
        try:
            answer = await self._run(kindred, task, kind)
            outcome = answer.end.cause.value
        finally:
            self._metrics.fncalls.labels(outcome).inc()
            self._metrics.fncall_s.observe(time.monotonic() - began)
        return answer

    async def close(self) -> None:
        """Destroy the pool, once its tasks are over."""
        await self.pool.close()

    async def _run(self, kindred: Kindred, task: FncallTask, kind: Kind) -> FncallAnswer:
        command = "f" + secrets.token_hex(8)
        member = await self.pool.claim(kindred)
        try:
            running = member.made.running
            answer = await tasks.run(member.channel, running, task, kind, command)
            return await self._blamed(member, answer)
        finally:
            self.pool.give_back(member, command)

    async def _blamed(self, member: Member, answer: FncallAnswer) -> FncallAnswer:
        """OUT_OF_MEMORY, if the kernel has killed in the container; it is not used again then."""
        end = answer.end
        if end.cause not in (EndCause.EXITED, EndCause.SIGNALLED):
            return answer
        if end.signal not in _KILLED and end.status not in _KILLED:
            return answer
        try:
            victim = await self._driving.call(self._makers.oom_kill, member.made)
        except SandboxError:
            return answer
        if victim is None:
            return answer
        end = msgspec.structs.replace(
            end,
            cause=EndCause.OUT_OF_MEMORY,
            oom_process=victim.process or None,
            oom_limit_bytes=victim.limit_bytes,
        )
        return msgspec.structs.replace(answer, end=end)

    async def _pin(self, environment: Environment) -> Environment:
        """What it means now; asked for once by all that come in the same second."""
        now = time.monotonic()
        found = self._pinned.get(environment)
        if found is None or now - found[0] >= _PINNED_S:
            if len(self._pinned) >= _MOST_PINNED:
                self._pinned.clear()
            asking = self._driving.spawn(self._driving.call(self._makers.pinned, environment))
            found = self._pinned[environment] = (now, asking)
        try:
            return await asyncio.shield(found[1])
        except SandboxError:
            self._pinned.pop(environment, None)  # it may be there now
            raise
