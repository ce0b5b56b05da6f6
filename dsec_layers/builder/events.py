"""What a build tells while it runs. Steps are numbered from 1 to `total` over all stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step begins; `where` is `file:line`."""

    number: int
    total: int
    title: str
    where: str


@dataclass(frozen=True, slots=True)
class StepCached:
    """The step that began was carried out before, on the same inputs."""

    number: int


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Some output of a RUN, standard output and error together."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step was carried out in `seconds`."""

    number: int
    seconds: float


BuildEvent = StepStarted | StepCached | StepOutput | StepDone
Progress = Callable[[BuildEvent], None]
