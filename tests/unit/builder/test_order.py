from __future__ import annotations

from dsec_layers.builder.order import in_order
from dsec_layers.builder.plan import Plan, StagePlan
from dsec_layers.builder.steps import BindMount, CacheMount, CopyStep, RunStep, Step, WorkdirStep
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig

WORKDIR = WorkdirStep("L:1", "WORKDIR /w", "/w", "0")


def copy(origin: int | str | None) -> CopyStep:
    return CopyStep("L:1", "COPY", origin, ("a",), (), "/b", None, None)


def run(*mounts: BindMount | CacheMount) -> RunStep:
    return RunStep("L:1", "RUN", ("true",), {}, {}, "/", "0", "host", mounts=mounts)


def bind(origin: int) -> BindMount:
    return BindMount("/m", "/", origin, writable=False)


def cache(origin: int) -> CacheMount:
    return CacheMount("/c", "c", "shared", 0o755, (0, 0), origin, "/", writable=True)


def needs(*stages: tuple[int | None, tuple[Step, ...]]) -> dict[int, set[int]]:
    """The needs of all steps; a stage is given by the one it continues, and its steps."""
    plans = [
        StagePlan(index, parent, None, steps, RunConfig())
        for index, (parent, steps) in enumerate(stages)
    ]
    plan = Plan(Reference(Kind.BASE, "x"), tuple(plans))
    return {step.number: set(step.needs) for step in in_order(plan)}


def test_steps_of_a_stage_follow_one_another_and_stages_do_not() -> None:
    assert needs((None, (WORKDIR, WORKDIR)), (None, (WORKDIR, copy(None), copy("named")))) == {
        1: set(),
        2: {1},
        3: set(),
        4: {3},
        5: {4},
    }


def test_a_stage_begins_where_the_one_that_it_continues_ends() -> None:
    assert needs((None, (WORKDIR, WORKDIR)), (0, (WORKDIR,)), (0, (WORKDIR,))) == {
        1: set(),
        2: {1},
        3: {2},
        4: {2},
    }


def test_files_are_taken_from_stages_that_are_done() -> None:
    steps = (copy(0), run(bind(1)), run(cache(0), bind(1)))
    assert needs((None, (WORKDIR,)), (None, (WORKDIR,)), (None, steps)) == {
        1: set(),
        2: set(),
        3: {1},
        4: {2, 3},
        5: {1, 2, 4},
    }


def test_a_stage_without_steps_is_what_it_continues() -> None:
    assert needs((None, (WORKDIR,)), (0, ()), (None, ()), (None, (copy(1), copy(2)))) == {
        1: set(),
        2: {1},
        3: {2},
    }
