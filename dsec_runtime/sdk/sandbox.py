"""A sandbox as its user holds it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Final

from dsec_runtime.messages import (
    ClaimRequest,
    Event,
    ForkRequest,
    LabelsRequest,
    NetworkRequest,
    PauseAnswer,
    SnapshotAnswer,
    SnapshotRequest,
    UsageAnswer,
)
from dsec_runtime.sdk.args import network_rules
from dsec_runtime.sdk.commands import Commands
from dsec_runtime.sdk.events import follow
from dsec_runtime.sdk.files import Files
from dsec_runtime.sdk.ports import Ports
from dsec_runtime.sdk.running import new_exec_id
from dsec_runtime.sdk.transport import Transport
from dsec_runtime.spec import (
    Lifetime,
    NetworkCounts,
    NetworkRule,
    SandboxInfo,
    SnapshotOptions,
)

_COPY_S: Final = 3600.0  # all that a sandbox wrote is read


class Sandbox(Commands):
    """Made by `DSecClient.run_container` and `DSecClient.get`.

    `info` is what was known when the edge was asked last. All methods raise SandboxErrors; which
    family they are of says whose fault it was (`dsec_runtime.errors`). Any request to a paused
    sandbox resumes it first. At the end of an `async with` it is stopped.
    """

    def __init__(self, transport: Transport, info: SandboxInfo) -> None:
        super().__init__(transport, info)
        self.files = Files(transport, self._path)
        self.ports = Ports(transport, self._path)

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def id(self) -> str:
        """Its name, by which any client finds it again."""
        return self.info.id

    async def refresh(self) -> SandboxInfo:
        """Ask the edge what it knows."""
        return self._note(await self._transport.call("GET", self._path, SandboxInfo))

    async def stop(self) -> SandboxInfo:
        """End it with all that it has; one that has ended stays so."""
        return self._note(await self._transport.call("DELETE", self._path, SandboxInfo))

    async def pause(self) -> int:
        """Freeze it; how many bytes of memory it gave back."""
        answer = await self._transport.call("POST", f"{self._path}/pause", PauseAnswer, again=True)
        return answer.freed_bytes

    async def resume(self) -> SandboxInfo:
        """Let it go on."""
        path = f"{self._path}/resume"
        return self._note(await self._transport.call("POST", path, SandboxInfo, again=True))

    async def snapshot(
        self,
        reference: str,
        *,
        scrub_git: bool = False,
        shallow: bool = False,
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
    ) -> str:
        """Make a layer of what it wrote, named `reference`; the layer's digest.

        Residue is left out (docs/residue.md) but for the rules in `keep`, and so is what the
        patterns of `drop` match. With `scrub_git` only what HEAD needs is left of git repositories,
        with `shallow` not even its history. The config of the layer attests all of that.
        """
        options = SnapshotOptions(
            scrub_git=scrub_git, shallow=shallow, keep=tuple(keep), drop=tuple(drop)
        )
        body = SnapshotRequest(reference=reference, options=options)
        answer = await self._transport.call(
            "POST", f"{self._path}/snapshot", SnapshotAnswer, body, timeout=_COPY_S
        )
        return answer.digest

    async def fork(
        self, count: int = 1, *, labels: Mapping[str, str] | None = None
    ) -> list[Sandbox]:
        """So many new sandboxes that begin with its files as they are now."""
        body = ForkRequest(count=count, labels=dict(labels or {}))
        made = await self._transport.call(
            "POST",
            f"{self._path}/fork",
            list[SandboxInfo],
            body,
            key=new_exec_id(),
            timeout=_COPY_S,
        )
        return [Sandbox(self._transport, info) for info in made]

    async def set_network(self, rules: Mapping[str, bool] | Sequence[NetworkRule]) -> SandboxInfo:
        """Rules that take the place of those it has."""
        body = NetworkRequest(rules=network_rules(rules))
        return self._note(
            await self._transport.call("PUT", f"{self._path}/network", SandboxInfo, body)
        )

    async def network_counts(self) -> NetworkCounts:
        """What its network did, and what it was refused."""
        return await self._transport.call("GET", f"{self._path}/network", NetworkCounts)

    async def set_ttl(
        self,
        *,
        running_stop: float | None = None,
        paused_stop: float | None = None,
        age_stop: float | None = None,
    ) -> SandboxInfo:
        """After how many seconds of idling, of being paused and in all it is ended; anew."""
        body = Lifetime(idle_s=running_stop, paused_s=paused_stop, age_s=age_stop)
        return self._note(
            await self._transport.call("PUT", f"{self._path}/lifetime", SandboxInfo, body)
        )

    async def set_labels(self, labels: Mapping[str, str | None]) -> SandboxInfo:
        """Set labels; None removes one."""
        body = LabelsRequest(labels=dict(labels))
        return self._note(
            await self._transport.call("PATCH", f"{self._path}/labels", SandboxInfo, body)
        )

    async def claim(self, owner: str) -> SandboxInfo:
        """Make it `owner`'s, if nobody else's since `info`. Raises StateConflictError."""
        body = ClaimRequest(owner=owner, expected=self.info.spec.owner)
        return self._note(
            await self._transport.call("POST", f"{self._path}/claim", SandboxInfo, body, again=True)
        )

    async def usage(self) -> UsageAnswer:
        """What it uses now, and what its limits have stopped so far."""
        return await self._transport.call("GET", f"{self._path}/usage", UsageAnswer)

    async def log(self) -> list[Event]:
        """What it was asked and did, as far as it is kept."""
        return [event async for event in follow(self._transport, f"{self._path}/events", {})]

    async def events(self) -> AsyncIterator[Event]:
        """What happens to it from now on, until it ends."""
        params = {"follow": True, "new": True}
        async for event in follow(self._transport, f"{self._path}/events", params):
            yield event

    def _note(self, info: SandboxInfo) -> SandboxInfo:
        self.info = info
        return info
