"""The build itself: every stage step by step, cached or carried out, then folded into one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from dsec_layers.builder import apart
from dsec_layers.builder.ahead import Ahead
from dsec_layers.builder.events import Progress, Warned
from dsec_layers.builder.folding import (
    has_whiteouts,
    one_diff,
    whole_tree,
    without_idle_whiteouts,
)
from dsec_layers.builder.layers import LayerProvider
from dsec_layers.builder.order import in_order
from dsec_layers.builder.origins import OpenLayers, Origins, Stages, StageState
from dsec_layers.builder.performing import carry_out
from dsec_layers.builder.plan import Plan
from dsec_layers.builder.preparing import prepare
from dsec_layers.builder.request import BuildRequest, BuildResult
from dsec_layers.builder.scope import AMBIENT_ARGUMENTS, EPOCH_VARIABLE
from dsec_layers.builder.stepcache import Result, StepCache
from dsec_layers.model.content import Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.reference import Kind
from dsec_layers.model.runconfig import RunConfig, merge
from dsec_layers.sources.times import clamp_times


@contextlib.contextmanager
def build(
    request: BuildRequest,
    layers: LayerProvider,
    progress: Progress = lambda event: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[BuildResult]:
    """Build a Layerfile. The contents of the result can be read until the context ends.

    `meanwhile` is called by another thread while the first command runs, and has ended before there
    is a result. When no command is run it is not called.

    Nothing stays running or mounted, whatever happens. Raises InvalidInputError (a mistake in the
    Layerfile, with `file:line`), NotFoundError, BuildError (a command failed), NoSpaceError and
    CapabilityMissingError.
    """
    prepared = prepare(request, layers)
    epoch, layerfile, plan = prepared.epoch, prepared.layerfile, prepared.plan
    for finding in prepared.advice.findings:
        progress(Warned(finding))
    prepared.advice.raise_if_error()
    with contextlib.ExitStack() as stack:
        opened = OpenLayers(layers, stack)
        cache = StepCache(request.home)
        cache.sweep()
        apart.sweep(request.home)
        stack.enter_context(cache.in_use())
        stages = Stages(plan.stages)
        origins = Origins(prepared.contexts, opened, stages, cache)
        ahead = stack.enter_context(Ahead(meanwhile))

        def on_command(stage: int) -> None:
            if stage == plan.target.index:
                ahead.begin(stages.state(stage).results)

        steps = in_order(plan)
        done = carry_out(request, epoch, steps, origins, stages, cache, progress, on_command)
        ahead.wait()
        cache.mark_used([step.key for step in done.steps])
        yield BuildResult(
            read_source=partial(
                _source, plan, stages.state(plan.target.index), opened, epoch, ahead.diffs
            ),
            run=_run_config(plan),
            kind=plan.reference.kind,
            name=plan.reference.name,
            base_digest=_base_digest(plan),
            parent_digest=str(plan.target.layer.digest) if plan.target.layer else "",
            layerfile_digest=str(layerfile.digest),
            inputs=_inputs(request, plan, done.copied),
            epoch=epoch,
            steps=done.steps,
            results=[each.upper.name for each in stages.state(plan.target.index).results],
        )


def _source(
    plan: Plan,
    stage: StageState,
    opened: OpenLayers,
    epoch: int | None,
    read: Callable[[Sequence[Result]], list[Source]],
) -> Source:
    diffs = read(stage.results)
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


def _inputs(request: BuildRequest, plan: Plan, copied: Sequence[str]) -> dict[str, str]:
    """What the layer was made from, for its provenance; nothing that differs between machines."""
    given = set(request.args) - AMBIENT_ARGUMENTS - {EPOCH_VARIABLE}
    inputs = {f"arg:{name}": request.args[name] for name in given}
    layers = [stage.layer for stage in plan.stages if stage.layer]
    inputs |= {f"layer:{layer.reference}": str(layer.digest) for layer in layers}
    inputs |= dict(f"image:{layer.image}".split("@") for layer in layers if layer.image)
    if copied:
        inputs["files"] = str(Digest.sha256("\n".join(copied).encode()))
    return inputs
