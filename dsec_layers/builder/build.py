"""The build itself: every stage step by step, cached or carried out, then folded into one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dsec_layers.builder import execution, keys
from dsec_layers.builder.caches import Caches
from dsec_layers.builder.events import Progress, StepCached, StepDone, StepOutput, StepStarted
from dsec_layers.builder.failures import command_failed, explained
from dsec_layers.builder.fetching import expected, fetched
from dsec_layers.builder.folding import (
    has_whiteouts,
    one_diff,
    whole_tree,
    without_idle_whiteouts,
)
from dsec_layers.builder.layerfile import Layerfile, parse
from dsec_layers.builder.layers import LayerProvider
from dsec_layers.builder.mounting import Inputs, Mounter, find_inputs
from dsec_layers.builder.origins import OpenLayers, Origins, StageState
from dsec_layers.builder.plan import Plan, StagePlan, make_plan
from dsec_layers.builder.request import BuildRequest, BuildResult, find_epoch, read_ignore_rules
from dsec_layers.builder.scope import AMBIENT_ARGUMENTS, EPOCH_VARIABLE
from dsec_layers.builder.selection import (
    Origin,
    Selected,
    content_digest,
    identify,
    select_for,
)
from dsec_layers.builder.stepcache import Result, StepCache, WorkFolder
from dsec_layers.builder.stepmaking import Options
from dsec_layers.builder.steps import CopyStep, RunStep, Step, is_outside
from dsec_layers.errors import NotFoundError
from dsec_layers.model.content import Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind
from dsec_layers.model.runconfig import RunConfig, merge
from dsec_layers.sources.times import clamp_times
from dsec_layers.sources.upper import walk_upper

_NOTHING = "scratch"


@contextlib.contextmanager
def build(
    request: BuildRequest, layers: LayerProvider, progress: Progress = lambda event: None
) -> Iterator[BuildResult]:
    """Build a Layerfile. The contents of the result can be read until the context ends.

    Nothing stays running or mounted, whatever happens. Raises InvalidInputError (a mistake in the
    Layerfile, with `file:line`), NotFoundError, BuildError (a command failed), NoSpaceError and
    CapabilityMissingError.
    """
    epoch = find_epoch(request)
    layerfile = _read(request.layerfile)
    args = dict(request.args) if epoch is None else {**request.args, EPOCH_VARIABLE: str(epoch)}
    names = frozenset(request.contexts)
    options = Options(args, epoch, request.kind, request.name, request.target, names)
    plan = make_plan(layerfile, options, layers.resolve, name=str(request.layerfile))
    contexts = _contexts(request)
    with contextlib.ExitStack() as stack:
        opened = OpenLayers(layers, stack)
        cache = StepCache(request.home)
        cache.sweep()
        stack.enter_context(cache.in_use())
        origins = Origins(contexts, opened, cache)
        steps = _Steps(request, epoch, origins, progress, plan, cache)
        for stage in plan.stages:
            steps.carry_out(stage)
        yield BuildResult(
            source=_source(plan, steps.done[plan.target.index], opened, epoch),
            run=_run_config(plan),
            kind=plan.reference.kind,
            name=plan.reference.name,
            base_digest=_base_digest(plan),
            parent_digest=str(plan.target.layer.digest) if plan.target.layer else "",
            layerfile_digest=str(layerfile.digest),
            inputs=_inputs(request, plan, steps.copied),
            epoch=epoch,
        )


def _contexts(request: BuildRequest) -> dict[str | None, Origin]:
    """The context and those with a name."""
    rules = read_ignore_rules(request.context, request.layerfile)
    contexts: dict[str | None, Origin] = {}
    contexts[None] = Origin(request.context.absolute(), "the context", rules)
    for name, path in request.contexts.items():
        contexts[name] = Origin(path.absolute(), f"the context {name}", read_ignore_rules(path))
    return contexts


def _read(path: Path) -> Layerfile:
    try:
        return parse(path.read_bytes(), name=str(path))
    except FileNotFoundError as error:
        raise NotFoundError(f"no Layerfile at {path}") from error


class _Steps:
    """Carries out stages in order; `done` holds them, `copied` digests of what they copied."""

    def __init__(
        self,
        request: BuildRequest,
        epoch: int | None,
        origins: Origins,
        progress: Progress,
        plan: Plan,
        cache: StepCache,
    ) -> None:
        self.copied: list[str] = []
        self.done = origins.done
        self._request = request
        self._epoch = epoch
        self._origins = origins
        caches = Caches(request.home / "caches")
        self._mounter = Mounter(origins, caches, request.secrets, epoch)
        self._progress = progress
        self._cache = cache
        self._number = 0
        self._total = sum(len(stage.steps) for stage in plan.stages)

    def carry_out(self, plan: StagePlan) -> None:
        if isinstance(plan.parent, int):
            below = self.done[plan.parent]
            stage = StageState(below.layer, below.identity, list(below.results))
        else:
            identity = str(plan.parent.digest) if plan.parent else _NOTHING
            stage = StageState(plan.parent, identity)
        self.done[plan.index] = stage
        for step in plan.steps:
            self._number += 1
            self._progress(StepStarted(self._number, self._total, step.title, step.where))
            with explained(step, self._label):
                result = self._step(step, stage)
            stage.results.append(result)
            stage.identity = result.identity

    @property
    def _label(self) -> str:
        return f"step {self._number}/{self._total}"

    def _step(self, step: Step, stage: StageState) -> Result:
        with contextlib.ExitStack() as stack:
            selected = self._select(step, stack) if isinstance(step, CopyStep) else []
            shown = find_inputs(step, self._origins) if isinstance(step, RunStep) else Inputs()
            key = self._key(step, stage.identity, selected, shown)
            if not self._request.no_cache and (found := self._cache.find(key)):
                self._progress(StepCached(self._number))
                return found
            started = time.monotonic()
            folder = stack.enter_context(self._cache.working())
            self._perform(step, folder, self._origins.lowers(stage), selected, shown)
            result = self._cache.publish(
                key,
                folder,
                title=step.title,
                reproducible=not isinstance(step, RunStep),
                replace=self._request.no_cache,
            )
        self._progress(StepDone(self._number, time.monotonic() - started))
        return result

    def _key(self, step: Step, parent: str, selected: list[Selected], shown: Inputs) -> str:
        if isinstance(step, RunStep):
            self.copied += shown.digests
            return keys.run_key(step, parent, shown.digests)
        if isinstance(step, CopyStep):
            found = identify(selected)
            # Who cloned a repository is no input of what is built from it, and must not show in it.
            self.copied.append(content_digest(found, with_owners=not is_outside(step.origin)))
            content = content_digest(found, with_owners=True)
            if known := expected(step):
                self.copied.append(known)
                content = f"{content} {known}"
            return keys.copy_key(step, parent, content, self._epoch)
        return keys.workdir_key(step, parent)

    def _perform(
        self,
        step: Step,
        folder: WorkFolder,
        lowers: list[Path],
        selected: list[Selected],
        shown: Inputs,
    ) -> None:
        if isinstance(step, CopyStep):
            selected = [*selected, *fetched(step, folder.spool, with_checksum=True)]
            execution.copy(step, folder, lowers, selected, self._epoch)
        elif isinstance(step, RunStep):
            self._run(step, folder, lowers, shown)
        else:
            execution.make_workdir(step, folder, lowers)

    def _run(self, step: RunStep, folder: WorkFolder, lowers: list[Path], shown: Inputs) -> None:
        number = self._number

        def tell(data: bytes) -> None:
            self._progress(StepOutput(number, data))

        with contextlib.ExitStack() as stack:
            mounts = self._mounter.show(step, shown, folder.spool, stack)
            lend = self._request.lend
            finished = execution.run(step, folder, lowers, lend, tell, mounts)
        if finished.status != 0:
            raise command_failed(step, self._label, finished, self._request.home)

    def _select(self, step: CopyStep, stack: contextlib.ExitStack) -> list[Selected]:
        selected = select_for(step, self._origins.view(step.origin, stack))
        if step.remote:
            spool = stack.enter_context(self._cache.working()).spool
            selected += fetched(step, spool, with_checksum=False)
        return selected


def _source(plan: Plan, stage: StageState, opened: OpenLayers, epoch: int | None) -> Source:
    diffs = [walk_upper(result.upper) for result in stage.results]
    if stage.layer is None:
        source = whole_tree(diffs)
    else:
        # The layer below is only mounted when something of it is needed.
        is_own_kind = stage.layer.kind is plan.reference.kind
        if is_own_kind:
            diffs.insert(0, opened.open(stage.layer).source())
        if plan.reference.kind is Kind.BASE:
            source = whole_tree(diffs)
        else:
            source = one_diff(diffs)
            if has_whiteouts(source):
                lowers = opened.open(stage.layer).lowers
                source = without_idle_whiteouts(source, lowers[1:] if is_own_kind else lowers)
    return source if epoch is None else clamp_times(source, epoch)


def _run_config(plan: Plan) -> RunConfig:
    """What the layer asks for itself. A layer that stands for its parent too repeats its wishes."""
    own, parent = plan.target.run, plan.target.layer
    if parent is None or parent.kind is not plan.reference.kind:
        return own
    env = {**parent.run.env, **own.env}
    return msgspec.structs.replace(merge([parent.run, own]), env=env)


def _base_digest(plan: Plan) -> str:
    parent = plan.target.layer
    if parent is None:
        return ""
    stands_for_it = parent.kind is plan.reference.kind and parent.kind is not Kind.BASE
    return parent.base if stands_for_it else str(parent.digest)


def _inputs(request: BuildRequest, plan: Plan, copied: list[str]) -> dict[str, str]:
    """What the layer was made from, for its provenance; nothing that differs between machines."""
    given = set(request.args) - AMBIENT_ARGUMENTS - {EPOCH_VARIABLE}
    inputs = {f"arg:{name}": request.args[name] for name in given}
    layers = [stage.layer for stage in plan.stages if stage.layer]
    inputs |= {f"layer:{layer.reference}": str(layer.digest) for layer in layers}
    if copied:
        inputs["files"] = str(Digest.sha256("\n".join(copied).encode()))
    return inputs
