"""The stages of a Layerfile, and which of them a target needs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsec_layers.builder.instructions import Statement
from dsec_layers.builder.layerfile import Instruction
from dsec_layers.builder.meanings import Arg, Copy, From, Layer, Meaning, Run
from dsec_layers.errors import InvalidInputError


class Stage(msgspec.Struct, frozen=True):
    """A FROM and what follows it. `name` is in lower case."""

    index: int
    instruction: Instruction
    head: From
    body: tuple[Statement, ...]


class Outline(msgspec.Struct, frozen=True):
    """A Layerfile by its parts; `declaration` is its LAYER line.

    `contexts` are names that the caller gave to contexts: no stage is found by them.
    """

    declaration: tuple[Instruction, Layer] | None
    arguments: tuple[tuple[Instruction, Arg], ...]
    stages: tuple[Stage, ...]
    contexts: frozenset[str] = frozenset()

    def find(self, name: str, *, before: int) -> int | None:
        """The index of the stage with this name or number among those before `before`.

        When a name was given twice, the later stage has it.
        """
        if name.lower() in self.contexts:
            return None
        if name.isdecimal():
            return int(name) if int(name) < before else None
        for stage in reversed(self.stages[:before]):
            if stage.head.name == name.lower():
                return stage.index
        return None

    def target(self, name: str | None) -> int:
        """The index of the stage to build, the last without a name. Raises InvalidInputError."""
        if name is None:
            return len(self.stages) - 1
        index = self.find(name, before=len(self.stages))
        if index is None:
            names = ", ".join(stage.head.name or str(stage.index) for stage in self.stages)
            raise InvalidInputError(f"no stage {name!r}", hint=f"the stages are {names}")
        return index


def outline(statements: Sequence[Statement], name: str) -> Outline:
    """Split a Layerfile into its parts. Raises InvalidInputError for what is out of place."""
    declarations: list[tuple[Instruction, Layer]] = []
    arguments: list[tuple[Instruction, Arg]] = []
    stages: list[Stage] = []
    for statement in statements:
        instruction, meaning = statement.instruction, statement.meaning
        if isinstance(meaning, Layer):
            if declarations or stages:
                raise InvalidInputError(
                    "LAYER is out of place",
                    where=instruction.where,
                    hint="one LAYER line stands before the first FROM",
                )
            declarations.append((instruction, meaning))
        elif isinstance(meaning, From):
            stages.append(Stage(len(stages), instruction, meaning, ()))
        elif stages:
            last = stages[-1]
            stages[-1] = Stage(last.index, last.instruction, last.head, (*last.body, statement))
        elif isinstance(meaning, Arg):
            arguments.append((instruction, meaning))
        else:
            raise InvalidInputError(
                f"{instruction.keyword} stands before the first FROM",
                where=instruction.where,
                hint="only LAYER and ARG may",
            )
    if not stages:
        raise InvalidInputError("no FROM", where=name, hint="start a stage with FROM <layer>")
    return Outline(declarations[0] if declarations else None, tuple(arguments), tuple(stages))


def needed(outline: Outline, target: int, parents: Sequence[int | None]) -> list[int]:
    """The stages `target` needs, itself included, in order. `parents`: the FROMs as indices."""
    wanted: set[int] = set()
    pending = [target]
    while pending:
        index = pending.pop()
        if index in wanted:
            continue
        wanted.add(index)
        parent = parents[index]
        sources = [
            outline.find(origin, before=index)
            for statement in outline.stages[index].body
            for origin in _origins(statement.meaning)
        ]
        pending += [stage for stage in (parent, *sources) if stage is not None]
    return sorted(wanted)


def _origins(meaning: Meaning) -> list[str]:
    """The stages and layers that an instruction takes files from."""
    if isinstance(meaning, Copy):
        return [meaning.origin] if meaning.origin else []
    if isinstance(meaning, Run):
        return [mount.origin for mount in meaning.mounts if mount.origin]
    return []
