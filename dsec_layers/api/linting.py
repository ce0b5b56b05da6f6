"""Advice about a Layerfile, without building it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsec_layers.api.buildrequests import BuildOptions, request_of
from dsec_layers.api.parentimages import ParentImages
from dsec_layers.api.parents import Parents
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder.lint import Advice
from dsec_layers.builder.lints.subject import Finding
from dsec_layers.builder.preparing import prepare
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
    request = request_of(bench, path, reference, options)
    with leases.hold(bench.local, purpose="check") as held:
        prepared = prepare(request, Parents(bench, held, ParentImages(bench, may_import=False)))
    plan = prepared.plan
    row = CheckRow(
        reference=str(reference or plan.reference),
        steps=sum(len(stage.steps) for stage in plan.stages),
        findings=prepared.advice.findings,
    )
    return row, prepared.advice
