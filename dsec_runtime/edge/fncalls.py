"""Stateless tasks: each gets a container of the pool, and is told whose fault its end was."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import time
from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

import msgspec

from dsec_runtime.edge.admission import Admission
from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.driving import Driving
from dsec_runtime.edge.execs import with_victim
from dsec_runtime.edge.metrics import Metrics
from dsec_runtime.edge.principal import Principal
from dsec_runtime.edge.sandboxes import Detail, Sandboxes
from dsec_runtime.edge.turns import Turns
from dsec_runtime.errors import OverloadedError, SandboxError
from dsec_runtime.messages import Event, FncallAnswer
from dsec_runtime.spec import EndCause, Environment, FncallTask
from dsec_runtime.tiers.fncall import tasks
from dsec_runtime.tiers.fncall.kinds import FILE, Kind, Kinds
from dsec_runtime.tiers.fncall.members import Kindred, Made
from dsec_runtime.tiers.fncall.pool import Makers, Member, Pool, overloaded
from dsec_runtime.tiers.tier import OomKill

_PINNED_S: Final = 1.0  # how long a name may mean what it meant
_MOST_PINNED: Final = 256
LOG: Final = "fncall"  # where `events` keeps tasks, beside the sandboxes
_LOGGED: Final = 128  # characters of code


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
        self._sandboxes = sandboxes
        self._turns = Turns(config.fncall.total)
        metrics.watch_pool(self._counts)

    @property
    def draining(self) -> bool:
        """Whether the edge is about to end, and takes no more."""
        return self._admission.draining

    async def run(self, task: FncallTask, principal: Principal) -> FncallAnswer:
        """Run a task to its end; the answer tells how that came, also when the task is to blame.

        Whoever has the fewest under way is served first. Raises CommandFailedError when there is no
        such program, InvalidRequestError, OverloadedError, InfrastructureError.
        """
        if self.draining:
            raise OverloadedError("the edge is about to end", detail={"retry_after_s": 5.0})
        began = time.monotonic()
        end, status = "left", None  # as a caller does who waits no more
        try:
            answer = await self._turned(task, principal)
            end, status = answer.end.cause.value, answer.end.status
        except SandboxError as error:
            end = error.code
            raise
        finally:
            took_s = time.monotonic() - began
            self._metrics.fncalls.labels("error" if status is None else end).inc()
            self._metrics.fncall_s.observe(took_s)
            self._record(task, principal, {"end": end, "status": status, "seconds": took_s})
        return answer

    async def _turned(self, task: FncallTask, principal: Principal) -> FncallAnswer:
        kind = self._kinds.find(task.kind)
        tasks.check(task, kind)
        limits = self.pool.settings.filled(task.limits)
        kindred = Kindred(await self._pin(task.environment), limits)
        async with self._turn(principal):
            return await self._run(kindred, task, kind)

    def _record(self, task: FncallTask, principal: Principal, how: Mapping[str, Detail]) -> None:
        """A line of the log of tasks: what was asked, by whom, and what came of it."""
        asked = task.code or shlex.join(task.argv)
        detail = {
            "kind": task.kind,
            "environment": _name(task.environment),
            "code": asked[:_LOGGED] + ("..." if len(asked) > _LOGGED else ""),
            "files": len(task.files),
            **how,
        }
        event = Event(
            time_s=self._sandboxes.clock(),
            sandbox=LOG,
            kind="task",
            principal=principal.name,
            detail=detail,
        )
        self._sandboxes.events.add(event)

    def log(self, principal: Principal) -> list[Event]:
        """What is kept of the tasks of a principal; of all, for an operator."""
        kept = self._sandboxes.events.kept(LOG)
        return [it for it in kept if principal.is_operator or it.principal == principal.name]

    @contextlib.asynccontextmanager
    async def _turn(self, principal: Principal) -> AsyncIterator[None]:
        settings = self.pool.settings
        if self._turns.waiting >= settings.waiting:
            raise overloaded(f"{self._turns.waiting} tasks wait already")
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(
                    self._turns.turn(principal.name, settings.patience_s)
                )
            except TimeoutError:
                raise overloaded(f"no turn came in {settings.patience_s:g} s") from None
            yield

    def _counts(self) -> dict[str, int]:
        counts = self.pool.counts()
        return {**counts, "waiting": counts["waiting"] + self._turns.waiting}

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
        """With the victim, if the kernel has killed in the container; it is not used again then."""
        end = answer.end
        if not end.status or end.cause not in (EndCause.EXITED, EndCause.SIGNALLED):
            return answer
        try:
            victim = await self._driving.call(self._makers.oom_kill, member.made)
        except SandboxError:
            return answer
        if victim is None:
            return answer
        end = with_victim(end, victim.process or None, victim.limit_bytes)
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


def _name(environment: Environment) -> str:
    return environment.reference or environment.image or " + ".join(environment.layers)
