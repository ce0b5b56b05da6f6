"""Whiteouts and opaque directories that hide something."""

from __future__ import annotations

from collections.abc import Iterator

from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Case, Overlap
from dsec_layers.api.opened import text
from dsec_layers.model.tree import EntryKind

RULE = "hidden"


def check(case: Case) -> Iterator[Finding]:
    """Info when the layer was built over what it hides, or that is not known; else a warning."""
    for overlap in case.overlaps:
        verb = _verb(overlap)
        if not verb:
            continue
        unexpected = case.expected(overlap) is False
        yield Finding(
            severity=Severity.WARNING if unexpected else Severity.INFO,
            rule=RULE,
            layer=overlap.upper.name,
            path="/" + text(overlap.entry.path),
            message=f"{verb} {overlap.lower.name}"
            + (", over which it was not built" if unexpected else ""),
            other=overlap.lower.name,
        )


def _verb(overlap: Overlap) -> str:
    if overlap.entry.kind is EntryKind.WHITEOUT:
        return f"removes the {overlap.below.kind.name.lower()} of"
    if overlap.entry.opaque and overlap.below.kind is EntryKind.DIRECTORY:
        return "hides the content of the directory of"
    return ""
