"""The life of a sandbox as a table: which state may follow which, and when it is to be ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dsec_runtime.spec import Lifetime, State

LIVE: Final = frozenset(
    {State.CREATING, State.RUNNING, State.PAUSING, State.PAUSED, State.RESUMING}
)
FINAL: Final = frozenset({State.STOPPED, State.LOST})

ALLOWED: Final[Mapping[State, frozenset[State]]] = {
    State.CREATING: frozenset({State.RUNNING, State.STOPPING, State.LOST}),
    State.RUNNING: frozenset({State.PAUSING, State.STOPPING, State.LOST}),
    State.PAUSING: frozenset({State.PAUSED, State.RUNNING, State.STOPPING, State.LOST}),
    State.PAUSED: frozenset({State.RESUMING, State.STOPPING, State.LOST}),
    State.RESUMING: frozenset({State.RUNNING, State.STOPPING, State.LOST}),
    State.STOPPING: frozenset({State.STOPPED, State.LOST}),
    State.STOPPED: frozenset(),
    State.LOST: frozenset(),
}


def sources(target: State) -> frozenset[State]:
    """The states from which `target` may be reached."""
    return frozenset(state for state, following in ALLOWED.items() if target in following)


def end_of_life(
    lifetime: Lifetime, state: State, *, created_s: float, changed_s: float, used_s: float
) -> tuple[float, str] | None:
    """When a sandbox is to be ended, and why; None for never.

    Idling counts only while it runs, `paused_s` only while it is paused, its age always.
    """
    ends: list[tuple[float, str]] = []
    if lifetime.age_s is not None:
        ends.append((created_s + lifetime.age_s, f"it is {lifetime.age_s:g} s old"))
    if state is State.RUNNING and lifetime.idle_s is not None:
        ends.append((used_s + lifetime.idle_s, f"it was idle for {lifetime.idle_s:g} s"))
    if state is State.PAUSED and lifetime.paused_s is not None:
        ends.append((changed_s + lifetime.paused_s, f"it was paused for {lifetime.paused_s:g} s"))
    return min(ends, default=None)
