"""What a start finds: sandboxes that run on, half-made ones, and what is left of others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

import structlog

from dsec_runtime.edge.entry import Entry
from dsec_runtime.edge.life import Life
from dsec_runtime.edge.network import Networks
from dsec_runtime.edge.sandboxes import Sandboxes
from dsec_runtime.edge.transitions import FINAL
from dsec_runtime.errors import SandboxError
from dsec_runtime.spec import State

_log = structlog.get_logger("dsec.edge.recovery")
_RESTARTED = "the edge was restarted"


async def recover(sandboxes: Sandboxes, life: Life, networks: Networks) -> Mapping[str, int]:
    """Make journal and node agree, before anyone is served; how many went which way.

    The time in which no edge was there counts neither as idling nor against the leases of owners.
    """
    outcomes: Counter[str] = Counter()
    entries = [entry for entry in sandboxes.load() if entry.state not in FINAL]
    await networks.reconcile({entry.row.id: entry.row.spec.network for entry in entries})
    done = await asyncio.gather(*(_settle(sandboxes, life, entry) for entry in entries))
    outcomes.update(done)
    outcomes["leftover"] = await _remove_leftovers(sandboxes, life)
    sandboxes.journal.extend_leases(sandboxes.clock())
    for outcome, number in outcomes.items():
        sandboxes.metrics.recovered.labels(outcome).inc(number)
    _log.info("recovered", **outcomes)
    return outcomes


async def _settle(sandboxes: Sandboxes, life: Life, entry: Entry) -> str:
    """Bring one to RUNNING, PAUSED or an end."""
    row = entry.row
    if row.state is State.STOPPING:
        return await _end(life, entry, row.reason or _RESTARTED)
    if row.state is State.CREATING or row.running is None:
        outcome = await _end(life, entry, f"half-made when {_RESTARTED}")
        if outcome == "ended":
            sandboxes.drop(entry)  # so that the same request may make it now
        return outcome
    if not await _is_there(life, entry):
        await life.lose(entry, "it had ended while no edge was there")
        return "lost"
    row.used_s = sandboxes.clock()
    if row.state in (State.PAUSING, State.RESUMING):
        return await _thaw(sandboxes, life, entry)
    if not life.watching.add(row.running):
        await life.lose(entry, "it had ended while no edge was there")
        return "lost"
    sandboxes.set_deadline(entry)
    return "paused" if row.state is State.PAUSED else "running"


async def _is_there(life: Life, entry: Entry) -> bool:
    driver = life.driving.tier(entry.row.spec.tier)
    assert entry.row.running is not None
    try:
        return await life.driving.call(driver.reattach, entry.row.running)
    except SandboxError as error:
        _log.error("reattach-failed", sandbox=entry.row.id, error=error.message)
        return False


async def _thaw(sandboxes: Sandboxes, life: Life, entry: Entry) -> str:
    """One that was killed between two states: it runs, or is lost."""
    driver = life.driving.tier(entry.row.spec.tier)
    running = entry.row.running
    assert running is not None
    try:
        await life.driving.call(driver.resume, running)
    except SandboxError as error:
        await life.lose(entry, f"it could not be resumed: {error.message}")
        return "lost"
    sandboxes.move(entry, State.RUNNING)
    return "running" if life.watching.add(running) else "lost"


async def _end(life: Life, entry: Entry, reason: str) -> str:
    try:
        await life.stop(entry, reason)
    except SandboxError:
        return "stuck"  # the sweep tries again
    return "ended"


async def _remove_leftovers(sandboxes: Sandboxes, life: Life) -> int:
    known = frozenset(id_ for id_, each in sandboxes.entries.items() if each.state not in FINAL)
    removed = 0
    for driver in life.driving.tiers.values():
        for sandbox in await life.driving.call(driver.leftovers, known):
            try:
                await life.driving.call(driver.destroy, sandbox)
                removed += 1
            except SandboxError as error:
                _log.error("leftover-stays", sandbox=sandbox, error=error.message)
    return removed
