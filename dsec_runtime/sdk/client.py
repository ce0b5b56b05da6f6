"""The client of an edge: makes sandboxes, finds them again, and says that their owner lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Final

from dsec_runtime.errors import InvalidRequestError, OverloadedError, SandboxError
from dsec_runtime.messages import Event, Health, LeaseAnswer, LeaseRequest
from dsec_runtime.sdk import fncalls
from dsec_runtime.sdk.address import parse
from dsec_runtime.sdk.args import DSecContainerRunArgs
from dsec_runtime.sdk.events import follow
from dsec_runtime.sdk.fncalls import FncallResult, Tasks
from dsec_runtime.sdk.sandbox import Sandbox
from dsec_runtime.sdk.transport import Transport
from dsec_runtime.spec import FncallTask, SandboxInfo, SandboxSpec, State

_RENEWALS: Final = 3  # in the time of a lease
_EVENTS: Final = list[Event]
_INFOS: Final = list[SandboxInfo]  # inside the class `list` is a method
_GRACE_S: Final = 10.0  # beyond its own timeout, for the edge to say so


class DSecClient:
    """`edge` is `unix:///PATH` or `https://HOST:PORT`; else $DSEC_EDGE, else this machine's own.

    `token` (or $DSEC_TOKEN) is for an edge behind TLS, `verify` a context that knows its
    certificate. Sandboxes belong to `owner`, a name made up unless given; while the client is open
    it renews the owner's lease, and when no client has done so for `lease_s` seconds the edge ends
    them. With `lease_s=None` they have no owner, and only their own limits end them.
    """

    def __init__(
        self,
        edge: str | None = None,
        *,
        token: str | None = None,
        owner: str | None = None,
        lease_s: float | None = 600.0,
        patience_s: float = 10.0,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self.address = parse(edge)
        self.owner = None if lease_s is None else owner or f"client-{secrets.token_hex(8)}"
        self._lease_s = lease_s
        self._token = token or os.environ.get("DSEC_TOKEN")
        self._patience_s = patience_s
        self._verify = verify
        self._opened: Transport | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> DSecClient:
        """Reach the edge. Raises EdgeUnreachableError, UnauthorizedError."""
        if self._opened is None:
            transport = Transport(
                self.address,
                token=self._token,
                owner=self.owner,
                patience_s=self._patience_s,
                verify=self._verify,
            )
            try:
                await transport.call("GET", "/v1/health", Health)
            except BaseException:
                await transport.close()
                raise
            self._opened = transport
        return self

    async def close(self) -> None:
        """Leave. Sandboxes go on until the lease of their owner has run out."""
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
            self._renewing = None
        if self._opened is not None:
            transport, self._opened = self._opened, None
            await transport.close()

    async def __aenter__(self) -> DSecClient:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def run_container(
        self, args: DSecContainerRunArgs, *, timeout: float = 120.0, key: str | None = None
    ) -> Sandbox:
        """Make a container and wait until it runs; nothing of it is left when that fails.

        An edge that is overloaded is asked again until `timeout` seconds are over. The same `key`
        gives the same sandbox, also from another process. Raises RequestTimeoutError,
        OverloadedError, CreationFailedError, UnsupportedError and their like.
        """
        return await self.create(args.spec(self.owner), timeout=timeout, key=key)

    async def create(
        self, spec: SandboxSpec, *, timeout: float = 120.0, key: str | None = None
    ) -> Sandbox:
        """The same for any tier."""
        key = key or secrets.token_hex(16)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + timeout
        if spec.owner is not None and spec.owner == self.owner:
            await self._keep_lease()
        while True:
            left = max(0.001, give_up - loop.time())
            try:
                info = await self._transport.call(
                    "POST",
                    "/v1/sandboxes",
                    SandboxInfo,
                    spec,
                    params={"timeout_s": left},
                    key=key,
                    timeout=left + _GRACE_S,
                )
            except OverloadedError as error:
                pause = _pause(error)
                if loop.time() + pause >= give_up:
                    raise
                await asyncio.sleep(pause)
                continue
            return Sandbox(self._transport, info)

    async def get(self, sandbox: str) -> Sandbox:
        """A sandbox by its id. Raises UnknownSandboxError."""
        info = await self._transport.call("GET", f"/v1/sandboxes/{sandbox}", SandboxInfo)
        return Sandbox(self._transport, info)

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        states: Sequence[State] = (),
        owner: str | None = None,
        ended: bool = False,
    ) -> list[SandboxInfo]:
        """Sandboxes, the oldest first; those that have ended only when they are asked for."""
        params = {
            "label": [f"{name}={value}" for name, value in (labels or {}).items()],
            "state": ",".join(states) or None,
            "owner": owner,
            "all": ended,
        }
        return await self._transport.call("GET", "/v1/sandboxes", _INFOS, params=params)

    async def run_fncall(self, task: FncallTask) -> FncallResult:
        """Run a stateless task in a warm container, of which nothing is kept.

        How it ended is told by the result, as with `Sandbox.exec`; what is not the task's own fault
        is raised: OverloadedError, UnsupportedError, InvalidRequestError and their like.
        """
        return await fncalls.run(self._transport, task)

    async def run_fncalls(self, tasks: Tasks) -> AsyncIterator[FncallResult]:
        """Run any number of stateless tasks, and give each result when it is there.

        The edge takes as many at a time as it has containers for; tasks are made no faster than it
        takes them. Whatever goes wrong with a task is the `error` of its result.
        """
        async for result in fncalls.run_many(self._transport, tasks):
            yield result

    async def fncall_log(self) -> Sequence[Event]:
        """What is kept of the log of our stateless tasks (an operator sees all), oldest first."""
        return await self._transport.call("GET", "/v1/fncall/log", _EVENTS)

    async def health(self) -> Health:
        """How the edge is."""
        return await self._transport.call("GET", "/v1/health", Health)

    async def metrics(self) -> str:
        """Its figures, as Prometheus reads them."""
        async with self._transport.stream("GET", "/metrics") as response:
            return (await response.read()).decode()

    async def events(self) -> AsyncIterator[Event]:
        """What happens to all sandboxes that are ours, from now on."""
        async for event in follow(self._transport, "/v1/events", {}):
            yield event

    @property
    def _transport(self) -> Transport:
        if self._opened is None:
            raise InvalidRequestError("the client is not open", hint="await client.open()")
        return self._opened

    async def _keep_lease(self) -> None:
        """Begin to renew the owner's lease, with the first sandbox that needs it."""
        if self._renewing is None:
            await self._renew()
            self._renewing = asyncio.create_task(self._renew_for_ever())

    async def _renew(self) -> None:
        assert self._lease_s is not None
        path = f"/v1/owners/{self.owner}/lease"
        await self._transport.call("PUT", path, LeaseAnswer, LeaseRequest(ttl_s=self._lease_s))

    async def _renew_for_ever(self) -> None:
        assert self._lease_s is not None
        while True:
            await asyncio.sleep(self._lease_s / _RENEWALS)
            with contextlib.suppress(SandboxError):  # the next renewal may still be in time
                await self._renew()


def _pause(error: OverloadedError) -> float:
    """How long to wait, as the edge says; not all at the same moment."""
    told = error.detail.get("retry_after_s")
    least = float(told) if isinstance(told, (int, float)) else 1.0
    return least * (1 + secrets.randbelow(256) / 512)
