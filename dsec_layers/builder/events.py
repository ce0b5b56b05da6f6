"""What a build tells while it runs.

Steps are numbered from 1 to `total` in the order of the Layerfile, over all stages. Several may run
at once, so events of different steps can follow one another in any order.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dsec_layers.builder.lints.subject import Finding


class StepStarted(msgspec.Struct, frozen=True):
    """A step begins; `where` is `file:line`."""

    number: int
    total: int
    title: str
    where: str


class StepCached(msgspec.Struct, frozen=True):
    """The step that began was carried out before, on the same inputs.

    `store` is the URL of the cache store that gave the result, empty when it was here.
    """

    number: int
    store: str = ""


class StepOutput(msgspec.Struct, frozen=True):
    """Some output of a RUN, standard output and error together."""

    number: int
    data: bytes


class StepDone(msgspec.Struct, frozen=True):
    """The step was carried out in `seconds`."""

    number: int
    seconds: float


class Note(msgspec.Struct, frozen=True):
    """Something that the build goes on without, such as a cache store that does not answer."""

    message: str


class Warned(msgspec.Struct, frozen=True):
    """Advice about the Layerfile, told before the first step."""

    finding: Finding


BuildEvent = StepStarted | StepCached | StepOutput | StepDone | Note | Warned
Progress = Callable[[BuildEvent], None]
