"""Advice about a Layerfile, without building it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsec_layers.api.building import BuildOptions
from dsec_layers.api.parentimages import ParentImages
from dsec_layers.api.parents import Parents
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder.lint import Advice
from dsec_layers.builder.lints.subject import Finding
from dsec_layers.builder.preparing import prepare
from dsec_layers.builder.request import BuildRequest, locate
from dsec_layers.errors import NotFoundError
from dsec_layers.model.reference import Reference
from dsec_layers.registry import leases


class CheckRow(msgspec.Struct, frozen=True, kw_only=True):
    """What would be built, in how many steps, and what the rules found."""

    reference: str
    steps: int
    findings: tuple[Finding, ...]


def check(
    bench: Workbench,
    path: Path,
    reference: Reference | None,
    options: BuildOptions,
) -> tuple[CheckRow, Advice]:
    """Plan the build of the Layerfile at `path` and look at it; nothing is carried out.

    Needs no root. The advice knows whether the Layerfile wants findings to be errors. Raises
    InvalidInputError (`file:line`) and NotFoundError, as `build` does before its first step.
    """
    layerfile, context = (options.layerfile, path) if options.layerfile else locate(path)
    if not context.is_dir():
        raise NotFoundError(f"the context {context} is no directory")
    request = BuildRequest(
        layerfile=layerfile,
        context=context,
        home=bench.home.builder,
        args=options.args,
        kind=options.kind or (reference.kind.value if reference else None),
        name=options.name or (reference.name if reference else None),
        target=options.target,
        epoch=options.epoch_s,
        contexts={name.lower(): folder for name, folder in options.contexts.items()},
        layers={name.lower(): layer for name, layer in options.layers.items()},
    )
    with leases.hold(bench.local, purpose="check") as held:
        prepared = prepare(request, Parents(bench, held, ParentImages(bench, may_import=False)))
    plan = prepared.plan
    row = CheckRow(
        reference=str(reference or plan.reference),
        steps=sum(len(stage.steps) for stage in plan.stages),
        findings=prepared.advice.findings,
    )
    return row, prepared.advice
