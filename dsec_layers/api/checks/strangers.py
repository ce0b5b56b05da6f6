"""Layers that were built on another base than that of the composition."""

from __future__ import annotations

from collections.abc import Iterator

from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Case

RULE = "base"


def check(case: Case) -> Iterator[Finding]:
    """A warning for each layer whose own base is neither that of the composition nor below it."""
    base = case.base
    for part in case.parts[1:]:
        if not part.built_on:
            yield Finding(
                severity=Severity.INFO,
                rule=RULE,
                layer=part.name,
                message="what it was built on is not here, so it cannot be compared",
            )
        elif part.built_on[0].digest not in {base.digest, *base.lineage}:
            yield Finding(
                severity=Severity.WARNING,
                rule=RULE,
                layer=part.name,
                message=f"was built on {part.built_on[0].name}, not on {base.name}",
                other=base.name,
            )
