"""Paths that are of another type in a lower layer."""

from __future__ import annotations

from collections.abc import Iterator

from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Case, Overlap
from dsec_layers.api.opened import text
from dsec_layers.model.tree import EntryKind

RULE = "type"


def check(case: Case) -> Iterator[Finding]:
    """An error where directories are concerned: all that is below, or behind a link, is hidden."""
    for overlap in case.overlaps:
        kinds = (overlap.entry.kind, overlap.below.kind)
        if kinds[0] is kinds[1] or EntryKind.WHITEOUT in kinds:
            continue
        upper, lower = (kind.name.lower() for kind in kinds)
        yield Finding(
            severity=_severity(case, overlap),
            rule=RULE,
            layer=overlap.upper.name,
            path="/" + text(overlap.entry.path),
            message=f"a {upper} in place of the {lower} of {overlap.lower.name}",
            other=overlap.lower.name,
        )


def _severity(case: Case, overlap: Overlap) -> Severity:
    if case.expected(overlap):
        return Severity.INFO
    concerned = EntryKind.DIRECTORY in (overlap.entry.kind, overlap.below.kind)
    return Severity.ERROR if concerned else Severity.WARNING
