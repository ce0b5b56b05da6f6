"""Files of one layer over files of another."""

from __future__ import annotations

from collections.abc import Iterator

from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Case, Overlap
from dsec_layers.api.opened import text
from dsec_layers.model.tree import EntryKind

RULE = "overwritten"


def check(case: Case) -> Iterator[Finding]:
    """Every path that is no directory and of one type in two layers.

    Info when they are equal, or the upper layer was built over what it hides. What a changed base
    makes of it is told by another rule.
    """
    for overlap in case.overlaps:
        if overlap.entry.kind is not overlap.below.kind or overlap.entry.kind in _OTHERS:
            continue
        found = _judge(case, overlap)
        if found:
            severity, message = found
            yield Finding(
                severity=severity,
                rule=RULE,
                layer=overlap.upper.name,
                path="/" + text(overlap.entry.path),
                message=message,
                other=overlap.lower.name,
            )


_OTHERS = (EntryKind.DIRECTORY, EntryKind.WHITEOUT)


def _judge(case: Case, overlap: Overlap) -> tuple[Severity, str] | None:
    lower = overlap.lower.name
    equal = case.equal(overlap.upper, overlap.entry, overlap.lower, overlap.below)
    if equal:
        return Severity.INFO, f"the same as in {lower}"
    expected = case.expected(overlap)
    if expected:
        return Severity.INFO, f"changes that of {lower}, over which it was built"
    if overlap.lower is case.base:
        return None
    if equal is None:
        return Severity.INFO, f"hides that of {lower}, which may be equal"
    return Severity.WARNING, f"hides that of {lower}, over which it was not built"
