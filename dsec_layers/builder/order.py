"""The steps of a plan by number, and which of them each has to wait for.

Numbers are in the order of the Layerfile, from 1: a step needs only such with smaller numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dsec_layers.builder.plan import Plan
from dsec_layers.builder.steps import BindMount, CacheMount, CopyStep, RunStep, Step


class NumberedStep(msgspec.Struct, frozen=True):
    """A step, the stage (by index) that it belongs to, and the numbers of those it needs."""

    number: int
    stage: int
    step: Step
    needs: frozenset[int]


def in_order(plan: Plan) -> tuple[NumberedStep, ...]:
    """All steps of a plan.

    A step needs the one before it, or what its stage begins with, and all of the stages from which
    it takes files.
    """
    found: list[NumberedStep] = []
    last: dict[int, int | None] = {}  # with which number a stage is done; None: it has no step
    for stage in plan.stages:
        before = last[stage.parent] if isinstance(stage.parent, int) else None
        for step in stage.steps:
            candidates = (before, *(last[origin] for origin in _stages_of(step)))
            needs = frozenset(number for number in candidates if number is not None)
            number = len(found) + 1
            found.append(NumberedStep(number, stage.index, step, needs))
            before = number
        last[stage.index] = before
    return tuple(found)


def _stages_of(step: Step) -> Iterator[int]:
    """The stages from which a step takes files."""
    if isinstance(step, CopyStep) and isinstance(step.origin, int):
        yield step.origin
    if isinstance(step, RunStep):
        for mount in step.mounts:
            if isinstance(mount, BindMount | CacheMount) and isinstance(mount.origin, int):
                yield mount.origin
