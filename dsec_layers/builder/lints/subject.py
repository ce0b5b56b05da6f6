"""What the rules look at, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from dsec_layers.builder.instructions import Statement
from dsec_layers.builder.layerfile import Instruction, Layerfile
from dsec_layers.builder.meanings import Meaning
from dsec_layers.builder.patterns import IgnoreRules
from dsec_layers.builder.stages import Outline, Stage
from dsec_layers.model.runconfig import RunConfig


class Finding(msgspec.Struct, frozen=True):
    """What a rule found: `where` is `file:line`, `line` the instruction there, on one line."""

    rule: str
    message: str
    where: str
    line: str


class Subject(msgspec.Struct, frozen=True):
    """A Layerfile that can be planned.

    `layers` has what the layer at the bottom of a stage sets, by the index of the stage, for those
    that the target needs.
    """

    layerfile: Layerfile
    statements: tuple[Statement, ...]
    outline: Outline
    layers: Mapping[int, RunConfig]
    ignored: IgnoreRules

    def lineage(self, stage: Stage) -> list[Stage]:
        """The stage and those that it continues, the first one first."""
        found = [stage]
        while (below := self._below(found[0])) is not None:
            found.insert(0, below)
        return found

    def _below(self, stage: Stage) -> Stage | None:
        index = self.outline.find(stage.head.parent, before=stage.index)
        return None if index is None else self.outline.stages[index]

    def meanings_before(self, stage: Stage) -> Iterator[Meaning]:
        """What the stages that this one continues say."""
        for each in self.lineage(stage)[:-1]:
            for statement in each.body:
                yield statement.meaning


# What a rule says of an instruction.
Remark = tuple[Instruction, str]
Rule = Callable[[Subject], Iterator[Remark]]
