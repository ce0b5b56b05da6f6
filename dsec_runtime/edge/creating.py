"""Sandboxes come to be: by a specification, or as forks of another."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from dsec_runtime.edge.admission import Admission
from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.life import Life
from dsec_runtime.edge.network import Networks
from dsec_runtime.edge.principal import Principal
from dsec_runtime.edge.sandboxes import Sandboxes, not_possible
from dsec_runtime.errors import (
    CreationFailedError,
    InvalidRequestError,
    RequestTimeoutError,
    SandboxError,
    StateConflictError,
)
from dsec_runtime.messages import ForkRequest
from dsec_runtime.spec import SandboxSpec, State
from dsec_runtime.tiers.tier import Running

LEASE_S: Final = 600.0  # of an owner who has none when the first sandbox is made

_log = structlog.get_logger("dsec.edge.creating")
_encode = msgspec.json.Encoder(order="deterministic").encode


class Creating:
    """Makes entries that run, or none."""

    def __init__(
        self, sandboxes: Sandboxes, life: Life, admission: Admission, networks: Networks
    ) -> None:
        self._sandboxes = sandboxes
        self._life = life
        self._admission = admission
        self._networks = networks

    async def create(
        self,
        principal: Principal,
        spec: SandboxSpec,
        key: str | None,
        timeout_s: float | None = None,
    ) -> Entry:
        """Make a sandbox, or find the one that the same request has made before.

        What is not there after `timeout_s` is removed again. Raises InvalidRequestError,
        UnsupportedError, OverloadedError, StateConflictError for a key of another request,
        RequestTimeoutError and what the tier raises.
        """
        body = hashlib.sha256(_encode(spec)).digest()
        entry = self._made_before(principal, key, body)
        if entry is None:
            self._check(spec)
            if spec.network:
                await self._networks.check(spec.network)
                entry = self._made_before(principal, key, body)  # by another, in the meantime
        if entry is None:
            self._admission.check(self._sandboxes.live)
            entry = self._sandboxes.add(principal, spec, key, body)
            self.lease(principal, spec.owner)
            self._life.driving.spawn(self._boot(entry))
        await self._arrival(entry, timeout_s)
        return entry

    async def fork(
        self, principal: Principal, parent: Entry, request: ForkRequest, key: str | None
    ) -> list[Entry]:
        """Sandboxes with the files of `parent` as they are now; as `create` with a key again."""
        spec, count = parent.row.spec, request.count
        child = msgspec.structs.replace(spec, labels={**spec.labels, **request.labels})
        body = hashlib.sha256(parent.row.id.encode() + _encode(request)).digest()
        keys = [key and f"{key}/{number}" for number in range(count)]
        if before := [
            found for each in keys if (found := self._made_before(principal, each, body))
        ]:
            return before
        self._admission.check(self._sandboxes.live, count)
        async with self._admission.turn(count), parent.lock:
            if parent.state not in (State.RUNNING, State.PAUSED) or parent.row.running is None:
                raise not_possible(parent, "be forked")
            await parent.quiet()
            entries = [self._sandboxes.add(principal, child, each, body) for each in keys]
            driving = self._life.driving
            driver = driving.tier(spec.tier)
            wanted = {entry.row.id: child for entry in entries}
            try:
                made = await driving.call(driver.fork, parent.row.running, wanted)
                for entry, running in zip(entries, _in_order(made, wanted), strict=True):
                    await self._started(entry, running)
            except BaseException as error:
                await self._undo(entries, error)
                raise
        return entries

    def lease(self, principal: Principal, owner: str | None) -> None:
        """See that an owner has a lease, before it has renewed one itself."""
        journal = self._sandboxes.journal
        if owner is not None and journal.lease(principal.name, owner) is None:
            journal.hold(principal.name, owner, LEASE_S, self._sandboxes.clock())

    def _made_before(self, principal: Principal, key: str | None, body: bytes) -> Entry | None:
        row = self._sandboxes.journal.by_key(principal.name, key) if key else None
        if row is None:
            return None
        if row.body_hash != body:
            raise StateConflictError(
                "this idempotency key belongs to another request", hint="make a new key"
            )
        return self._sandboxes.entries[row.id]

    def _check(self, spec: SandboxSpec) -> None:
        self._life.driving.tier(spec.tier)
        wishes = spec.environment
        given = [wishes.reference is not None, bool(wishes.layers), wishes.image is not None]
        if sum(given) != 1:
            raise InvalidRequestError("an environment is one of reference, layers and image")

    async def _arrival(self, entry: Entry, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await entry.ready.wait()
        except TimeoutError:
            reason = f"the creation took more than {timeout_s:g} s"
            entry.error = RequestTimeoutError(f"{reason}; nothing is left", hint="allow more time")
            self._life.driving.spawn(self._life.stop(entry, reason))
        if entry.error is not None:
            raise entry.error

    async def _boot(self, entry: Entry) -> None:
        """From CREATING to RUNNING, or to nothing."""
        spec, metrics = entry.row.spec, self._sandboxes.metrics
        driving = self._life.driving
        result = "failed"
        try:
            with metrics.create_s.labels(spec.tier.value).time():
                async with entry.lock, self._admission.turn():
                    if entry.error is not None:
                        raise entry.error  # nobody waits for it any more
                    driver = driving.tier(spec.tier)
                    running = await driving.call(driver.create, entry.row.id, spec)
                    await self._started(entry, running)
            result = "made"
        except SandboxError as error:
            await self._undo([entry], error)
        except Exception as error:  # a bug of ours or of the tier: nothing may stay half-made
            _log.exception("creation-failed", sandbox=entry.row.id)
            await self._undo([entry], CreationFailedError(f"the sandbox cannot be made: {error}"))
        finally:
            metrics.creations.labels(spec.tier.value, result).inc()
            entry.ready.set()

    async def _started(self, entry: Entry, running: Running) -> None:
        await self._life.enter(entry, running)
        self._sandboxes.move(entry, State.RUNNING, running=running)
        entry.ready.set()

    async def _undo(self, entries: list[Entry], error: BaseException) -> None:
        """Leave nothing of them; what cannot be removed now is removed at the next start."""
        for entry in entries:
            entry.error = entry.error or error
            self._life.watching.remove(entry.row.id)
            driver = self._life.driving.tier(entry.row.spec.tier)
            with contextlib.suppress(SandboxError):
                await self._life.driving.call(driver.destroy, entry.row.id)
            self._sandboxes.record(entry, "creation-failed", None, {"error": str(error)})
            self._sandboxes.drop(entry)
            entry.ready.set()


def _in_order(made: list[Running], wanted: Mapping[str, object]) -> list[Running]:
    by_id = {running.id: running for running in made}
    return [by_id[sandbox] for sandbox in wanted]
