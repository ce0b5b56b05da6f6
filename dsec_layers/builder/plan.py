"""From statements to a plan: the stages that the target needs, each with its steps, fully expanded.

Scopes are those of a Dockerfile. Arguments before the first FROM are seen by LAYER and FROM lines,
and by a stage that declares them again. Within an instruction variables are as they were before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from dsec_layers.builder.instructions import Statement, interpret
from dsec_layers.builder.layerfile import Instruction, Layerfile
from dsec_layers.builder.layers import Image, ParentLayer, no_image, parse_parent
from dsec_layers.builder.meanings import Arg, Copy, Run, Workdir
from dsec_layers.builder.planchecks import check_kinds, check_platform
from dsec_layers.builder.runmounts import make_mount
from dsec_layers.builder.scope import (
    AMBIENT_ARGUMENTS,
    EPOCH_VARIABLE,
    Arguments,
    Scope,
    platform_arguments,
)
from dsec_layers.builder.stages import Outline, Stage, needed, outline
from dsec_layers.builder.stepmaking import Options, make_copy_step, make_run_step, make_title
from dsec_layers.builder.steps import Step, Where, WorkdirStep
from dsec_layers.builder.triggers import triggered
from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig

# Each step is a layer of the overlay for the next one. The kernel stacks 500; this leaves room for
# the layers that the first stage stands on.
MAX_STEPS: Final = 390


class StagePlan(msgspec.Struct, frozen=True):
    """A stage ready to run. `parent` is an earlier stage, a layer or nothing (scratch).

    `layer` is the layer at the bottom of the stage, through all its parents. `run` is what the
    Layerfile sets over it.
    """

    index: int
    parent: int | ParentLayer | None
    layer: ParentLayer | None
    steps: tuple[Step, ...]
    run: RunConfig


class Plan(msgspec.Struct, frozen=True):
    """The stages in the order to run them; the last one is the target."""

    reference: Reference
    stages: tuple[StagePlan, ...]

    @property
    def target(self) -> StagePlan:
        """The stage that becomes the layer."""
        return self.stages[-1]


def make_plan(
    layerfile: Layerfile,
    options: Options,
    resolve: Callable[[Reference], ParentLayer],
    image: Callable[[Image], ParentLayer] = no_image,
    *,
    name: str = "Layerfile",
) -> Plan:
    """Plan a build. `name` stands in errors that have no line.

    Raises InvalidInputError, and what `resolve` raises (NotFoundError), with `file:line` in front.
    """
    names = options.contexts | set(options.layers)
    parts = msgspec.structs.replace(outline(interpret(layerfile), name), contexts=names)
    return _Planner(parts, layerfile.escape, options, resolve, image, name).plan()


class _Planner:
    def __init__(
        self,
        parts: Outline,
        escape: str,
        options: Options,
        resolve: Callable[[Reference], ParentLayer],
        image: Callable[[Image], ParentLayer],
        name: str,
    ) -> None:
        self.parts = parts
        self.options = options
        self.resolve = resolve
        self.image = image
        self.name = name
        self.escape = escape
        self.resolved: dict[str, ParentLayer] = {}
        self.scopes: dict[int, Scope] = {}
        self.heights: dict[int, int] = {}  # steps of a stage and of those it continues
        self.plans: dict[int, StagePlan] = {}
        _check_arguments(parts, options.args)
        self.globals = self._global_scope()
        self.arguments = Arguments(options.args, self.globals.variables)

    def plan(self) -> Plan:
        target = self.parts.target(self.options.target)
        reference = self._reference()
        parents = [self._parent_name(stage) for stage in self.parts.stages[: target + 1]]
        found = [self.parts.find(parent, before=i) for i, parent in enumerate(parents)]
        for index in needed(self.parts, target, found):
            self._plan_stage(self.parts.stages[index], parents[index], found[index])
        check_kinds(reference.kind, self.plans[target].layer, self.parts.stages[target])
        return Plan(reference, tuple(self.plans.values()))

    def _global_scope(self) -> Scope:
        """What LAYER and FROM lines see."""
        scope = Scope(RunConfig(), variables=platform_arguments(), escape=self.escape)
        for instruction, meaning in self.parts.arguments:
            arguments = Arguments(self.options.args, scope.variables)
            with _located(instruction):
                scope = scope.after(meaning, arguments)
        return scope

    def _reference(self) -> Reference:
        """The name of the result: the LAYER line, unless the caller overrides it."""
        kind, name, where = self.options.kind, self.options.name, None
        if self.parts.declaration is not None:
            instruction, meaning = self.parts.declaration
            where = instruction.where
            with _located(instruction):
                kind = kind or self.globals.expand(meaning.kind)
                name = name or self.globals.expand(meaning.name)
        if not kind or not name:
            raise InvalidInputError(
                "the Layerfile does not say what it makes",
                where=self.name,
                hint="add a line LAYER <kind> <name>, or give --kind and --name",
            )
        if kind not in (Kind.BASE, Kind.WORKSPACE, Kind.TOOLKIT):
            raise InvalidInputError(
                f"{kind!r} is not a kind of layer",
                where=where,
                hint="the kinds are base, workspace and toolkit",
            )
        try:
            reference = Reference.parse(f"{kind}/{name}")
        except InvalidInputError as error:
            raise InvalidInputError(error.message, where=where, hint=error.hint) from error
        if reference.repository != f"{kind}/{name}":
            raise InvalidInputError(
                f"{name!r} is not a name of a layer", where=where, hint="tags are given with -t"
            )
        return reference

    def _parent_name(self, stage: Stage) -> str:
        with _located(stage.instruction):
            parent = self.globals.expand(stage.head.parent)
            if not parent:
                raise ValueError(f"{stage.head.parent!r} is empty here")
        return parent

    def _plan_stage(self, stage: Stage, parent: str, found: int | None) -> None:
        with _located(stage.instruction):
            check_platform(stage.head.platform, self.globals)
        origin: int | ParentLayer | None
        layer: ParentLayer | None
        if found is not None:
            origin, layer = found, self.plans[found].layer
            scope = self.scopes[found].child()
        elif parent == "scratch":
            origin = layer = None
            scope = Scope.over(RunConfig(), self.escape)
        else:
            origin = layer = self._layer(parent, stage.instruction)
            scope = Scope.over(layer.effective_run, self.escape)
        triggers = triggered(origin) if isinstance(origin, ParentLayer) else ()
        steps: list[Step] = []
        height = 0 if found is None else self.heights[found]
        for statement in (*triggers, *stage.body):
            with _located(statement.instruction):
                steps += self._steps(statement, scope, stage)
                _check_height(height + len(steps))
                scope = scope.after(statement.meaning, self.arguments)
        self.heights[stage.index] = height + len(steps)
        self.scopes[stage.index] = scope
        self.plans[stage.index] = StagePlan(stage.index, origin, layer, tuple(steps), scope.own)

    def _layer(self, text: str, instruction: Instruction) -> ParentLayer:
        """Resolve a layer once in a build, so that all stages see the same one."""
        if text.lower() in self.options.contexts:
            raise InvalidInputError(
                f"{text!r} is a build context, not a layer to build on",
                where=instruction.where,
                hint="start FROM scratch and COPY --from the context",
            )
        if text not in self.resolved:
            try:
                parent = self.options.layers.get(text.lower()) or parse_parent(text)
                if isinstance(parent, Reference):
                    self.resolved[text] = self.resolve(parent)
                else:
                    self.resolved[text] = self.image(parent)
            except InvalidInputError as error:
                raise InvalidInputError(
                    error.message, where=instruction.where, hint=error.hint
                ) from error
            except DsecError as error:
                message = f"{instruction.where}: {error.message}"
                raise type(error)(message, hint=error.hint) from error
        return self.resolved[text]

    def _origin(self, name: str | None, instruction: Instruction, stage: Stage) -> Where:
        """What a `from` means."""
        if not name:
            return None
        if name.lower() in self.options.contexts:
            return name.lower()
        found = self.parts.find(name, before=stage.index)
        return self._layer(name, instruction) if found is None else found

    def _steps(self, statement: Statement, scope: Scope, stage: Stage) -> Iterator[Step]:
        instruction, meaning = statement.instruction, statement.meaning
        if isinstance(meaning, Run):
            mounts = tuple(
                make_mount(mount, scope, self._origin(mount.origin, instruction, stage))
                for mount in meaning.mounts
            )
            yield make_run_step(instruction, meaning, scope, self.options, mounts)
        elif isinstance(meaning, Copy):
            yield make_copy_step(
                instruction, meaning, scope, self._origin(meaning.origin, instruction, stage)
            )
        elif isinstance(meaning, Workdir):
            path = scope.absolute(scope.expand(meaning.path))
            yield WorkdirStep(instruction.where, make_title(instruction), path, scope.user)


def _check_arguments(parts: Outline, given: Mapping[str, str]) -> None:
    statements = [statement.meaning for stage in parts.stages for statement in stage.body]
    lines = [meaning for _, meaning in parts.arguments]
    lines += [meaning for meaning in statements if isinstance(meaning, Arg)]
    declared = {name for line in lines for name, _ in line.pairs}
    unknown = sorted(set(given) - declared - AMBIENT_ARGUMENTS - {EPOCH_VARIABLE})
    if unknown:
        raise InvalidInputError(
            f"no ARG line declares {', '.join(unknown)}",
            hint="add ARG <name> to the Layerfile, or leave the build argument out",
        )


def _check_height(steps: int) -> None:
    if steps > MAX_STEPS:
        raise InvalidInputError(
            f"more than {MAX_STEPS} steps follow one another",
            hint="put several commands into one RUN, or make a layer of a part and build on it",
        )


@contextmanager
def _located(instruction: Instruction) -> Iterator[None]:
    """Put the line of the instruction in front of what goes wrong with it."""
    try:
        yield
    except ValueError as error:
        message = f"{instruction.keyword}: {error}"
        raise InvalidInputError(message, where=instruction.where) from error
    except InvalidInputError as error:
        if error.where:
            raise
        message = f"{instruction.keyword}: {error.message}"
        raise InvalidInputError(message, where=instruction.where, hint=error.hint) from error
