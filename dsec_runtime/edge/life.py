"""What changes the state of a sandbox that exists: pause, resume, stop, and its sudden end.

One change at a time, under the lock of its entry. A change that fails leaves it running or ended,
never in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from dsec_layers.linux.procinfo import start_ticks
from dsec_runtime.edge.driving import Driving
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.sandboxes import Sandboxes, not_possible
from dsec_runtime.edge.transitions import FINAL, LIVE
from dsec_runtime.edge.watching import Watching
from dsec_runtime.errors import EdgeUnreachableError, InfrastructureError, LostError, SandboxError
from dsec_runtime.spec import SnapshotOptions, State
from dsec_runtime.tiers.tier import Running, TierDriver, Usage

if TYPE_CHECKING:
    from dsec_runtime.channel import Channel

Connect = Callable[[str], Awaitable["Channel"]]

_log = structlog.get_logger("dsec.edge.life")
_ENDING_POLL_S, _ENDING_POLLS = 0.02, 250
_FIRST_PROCESS = "its first process ended"


class Life:
    """`connect` opens the channel to the agent that listens at a path."""

    def __init__(self, sandboxes: Sandboxes, driving: Driving, connect: Connect) -> None:
        self.sandboxes = sandboxes
        self.driving = driving
        self._connect = connect
        self.watching = Watching(self._first_process_ended)
        self._pausing = asyncio.Semaphore(sandboxes.config.pauses)
        self.unclean: set[str] = set()  # LOST ones of which something may be left

    @contextlib.asynccontextmanager
    async def using(self, entry: Entry, *, short: bool = False) -> AsyncIterator[Channel]:
        """The channel into a sandbox, resumed when it is paused; meanwhile it does not idle.

        A pause waits for what is `short`. Raises StateConflictError, LostError and
        InfrastructureError.
        """
        while entry.state is not State.RUNNING or entry.channel is None:
            await self.wake(entry)
        channel = entry.channel
        entry.begin(short=short)
        try:
            yield channel
        except LostError as error:
            if entry.channel is channel:  # of no use any more; the next request opens another
                entry.channel = None
            raise await self.explain(entry, error) from error
        finally:
            entry.finish(self.sandboxes.clock(), short=short)

    async def explain(self, entry: Entry, error: SandboxError) -> SandboxError:
        """What an error of the channel means: a sandbox is lost with its first process only.

        A process that is killed closes its connections some moments before it has ended, and the
        first of a sandbox ends after all others: on a busy node that may take seconds.
        """
        if not isinstance(error, LostError):
            return error
        running = entry.row.running
        for _ in range(_ENDING_POLLS):
            if running is None or start_ticks(running.pid) != running.pid_start:
                return error
            await asyncio.sleep(_ENDING_POLL_S)
        return InfrastructureError(
            f"the connection to the agent of sandbox {entry.row.id} broke",
            hint="the sandbox goes on; try again",
        )

    async def wake(self, entry: Entry) -> None:
        """A step towards a sandbox that runs and answers. Raises as `using`."""
        if entry.state is State.CREATING:
            await entry.ready.wait()
        if entry.state in (State.PAUSED, State.PAUSING, State.RESUMING):
            await self.driving.finish(self.resume(entry))
        elif entry.state is not State.RUNNING:
            raise not_possible(entry, "be used")
        else:
            await self.driving.finish(self._reopen(entry))

    async def enter(self, entry: Entry, running: Running) -> None:
        """Watch a sandbox that has begun to run, and open its channel. Raises LostError."""
        if not self.watching.add(running):
            raise LostError(f"sandbox {running.id}: {_FIRST_PROCESS}")
        entry.channel = await self._open(running)

    async def pause(self, entry: Entry) -> int:
        """Freeze it; how many bytes of memory that gave back. Nothing to do when it is paused.

        Of many at once few are paused at a time: to write memory to swap keeps a disk busy, and
        those that wait run on and can be used.
        """
        async with self._pausing, entry.lock:
            if entry.state is State.PAUSED:
                return 0
            if entry.state is not State.RUNNING:
                raise not_possible(entry, "be paused")
            driver, running = self._of(entry)
            self.sandboxes.move(entry, State.PAUSING)
            await entry.quiet()
            try:
                freed = await self.driving.call(driver.pause, running)
            except SandboxError as error:
                await self._unpause(entry, error)
                raise
            self._arrive(entry, State.PAUSED)
            return freed

    async def resume(self, entry: Entry) -> None:
        """Let it go on. Nothing to do when it runs."""
        async with entry.lock:
            if entry.state is State.RUNNING:
                return
            if entry.state is not State.PAUSED:
                raise not_possible(entry, "be resumed")
            driver, running = self._of(entry)
            self.sandboxes.move(entry, State.RESUMING)
            try:
                await self.driving.call(driver.resume, running)
            except SandboxError as error:
                await self._give_up(entry, f"it could not be resumed: {error.message}")
                raise LostError(f"sandbox {running.id} could not be resumed") from error
            entry.row.used_s = self.sandboxes.clock()
            self._arrive(entry, State.RUNNING)

    async def stop(self, entry: Entry, reason: str) -> None:
        """End it; nothing to do when it has ended. Raises InfrastructureError; then try again."""
        async with entry.lock:
            if entry.state in FINAL:
                return
            if entry.state is not State.STOPPING:
                self.sandboxes.move(entry, State.STOPPING, reason=reason)
            await self._destroy(entry)
            self.sandboxes.move(entry, State.STOPPED)

    async def lose(self, entry: Entry, reason: str) -> None:
        """Mark it LOST, and remove what is left of it."""
        async with entry.lock:
            if entry.state in LIVE and entry.state is not State.CREATING:
                await self._give_up(entry, reason)

    async def snapshot(self, entry: Entry, reference: str, options: SnapshotOptions) -> str:
        """Make a layer of what it wrote; its digest."""
        async with entry.lock:
            if entry.state not in (State.RUNNING, State.PAUSED):
                raise not_possible(entry, "be made a layer of")
            driver, running = self._of(entry)
            await entry.quiet()
            return await self.driving.call(driver.snapshot, running, reference, options)

    async def usage(self, entry: Entry) -> Usage:
        """What it uses now, whether it runs or is paused."""
        if entry.state in FINAL or entry.row.running is None:
            raise not_possible(entry, "be measured")
        driver, running = self._of(entry)
        return await self.driving.call(driver.usage, running)

    async def clean(self) -> None:
        """Try again to remove what could not be removed of lost sandboxes."""
        for sandbox in list(self.unclean):
            entry = self.sandboxes.entries.get(sandbox)
            with contextlib.suppress(SandboxError):
                if entry is not None:
                    await self._destroy(entry)
                self.unclean.discard(sandbox)

    def close(self) -> None:
        """Let go of all sandboxes; they go on."""
        self.watching.close()
        for entry in self.sandboxes.entries.values():
            self._leave(entry)

    async def _give_up(self, entry: Entry, reason: str) -> None:
        """LOST, from whatever state it is in; the lock is held."""
        self.sandboxes.move(entry, State.LOST, reason=reason)
        try:
            await self._destroy(entry)
        except SandboxError:
            self.unclean.add(entry.row.id)

    async def _unpause(self, entry: Entry, error: SandboxError) -> None:
        """After a failed pause: running again, or ended."""
        driver, running = self._of(entry)
        try:
            await self.driving.call(driver.resume, running)
        except SandboxError as worse:
            await self._give_up(
                entry, f"pausing failed ({error.message}), resuming too ({worse.message})"
            )
            return
        self._arrive(entry, State.RUNNING)

    def _arrive(self, entry: Entry, state: State) -> None:
        """The end of a change. It may have lost its first process meanwhile."""
        self.sandboxes.move(entry, state)
        running = entry.row.running
        if running is not None and not self.watching.add(running):
            self._first_process_ended(running.id)

    async def _destroy(self, entry: Entry) -> None:
        self._leave(entry)
        driver = self.driving.tier(entry.row.spec.tier)
        try:
            await self.driving.call(driver.destroy, entry.row.id)
        except SandboxError as error:
            _log.error("destroy-failed", sandbox=entry.row.id, error=error.message)
            raise

    def _leave(self, entry: Entry) -> None:
        self.watching.remove(entry.row.id)
        if entry.channel is not None:
            entry.channel.close()
            entry.channel = None

    def _first_process_ended(self, sandbox: str) -> None:
        entry = self.sandboxes.entries.get(sandbox)
        if entry is not None and entry.state in LIVE:
            _log.warning("lost", sandbox=sandbox, reason=_FIRST_PROCESS)
            self.driving.spawn(self.lose(entry, _FIRST_PROCESS))

    async def _reopen(self, entry: Entry) -> None:
        """Open the channel anew, once for all that wait for it."""
        async with entry.lock:
            if entry.state is State.RUNNING and entry.channel is None:
                entry.channel = await self._open(self._of(entry)[1])

    async def _open(self, running: Running) -> Channel:
        try:
            return await self._connect(running.socket)
        except EdgeUnreachableError as error:  # an agent is no edge, to a client
            raise InfrastructureError(error.message) from error

    def _of(self, entry: Entry) -> tuple[TierDriver, Running]:
        assert entry.row.running is not None
        return self.driving.tier(entry.row.spec.tier), entry.row.running
