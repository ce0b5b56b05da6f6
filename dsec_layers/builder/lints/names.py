"""Rules about names and keywords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dsec_layers.builder.lints.subject import Remark, Subject
from dsec_layers.builder.words import take_flags

_RESERVED = frozenset({"scratch", "context"})


def stage_name_casing(subject: Subject) -> Iterator[Remark]:
    """Names of stages are in lower case: they are compared so."""
    for stage in subject.outline.stages:
        written = _head_words(stage.instruction.text)[2:]
        if written and written[0] != written[0].lower():
            yield stage.instruction, f"the name of the stage {written[0]} is not in lower case"


def from_as_casing(subject: Subject) -> Iterator[Remark]:
    """FROM and AS are written alike."""
    for stage in subject.outline.stages:
        written = _head_words(stage.instruction.text)[1:2]
        keyword = stage.instruction.written
        if written and written[0].isupper() != keyword.isupper():
            yield stage.instruction, f"{keyword} and {written[0]} are written in different cases"


def consistent_instruction_casing(subject: Subject) -> Iterator[Remark]:
    """All keywords are in upper case, or all in lower case."""
    written = [instruction.written for instruction in subject.layerfile.instructions]
    lower = sum(map(str.islower, written))
    wanted = str.lower if lower > sum(map(str.isupper, written)) else str.upper
    for instruction in subject.layerfile.instructions:
        if instruction.written != wanted(instruction.written):
            yield (
                instruction,
                f"{instruction.written} is not written as most others: "
                f"{wanted(instruction.written)}",
            )


def duplicate_stage_name(subject: Subject) -> Iterator[Remark]:
    """A name that is given again hides the stage that had it."""
    names = [stage.head.name for stage in subject.outline.stages]
    counts = Counter(name for name in names if name)
    for number, stage in enumerate(subject.outline.stages):
        name = stage.head.name
        if name and counts[name] > 1 and name in names[:number]:
            yield stage.instruction, f"a stage above has the name {name} too"


def reserved_stage_name(subject: Subject) -> Iterator[Remark]:
    """Names that mean something else."""
    for stage in subject.outline.stages:
        if stage.head.name in _RESERVED:
            yield stage.instruction, f"{stage.head.name} has a meaning of its own"


def _head_words(text: str) -> list[str]:
    return take_flags(text)[1].split()
