"""Files, and removals, over a base that has changed there since the layer was built."""

from __future__ import annotations

from collections.abc import Iterator

from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Case, Overlap
from dsec_layers.api.opened import text
from dsec_layers.model.tree import EntryKind

RULE = "outdated"


def check(case: Case) -> Iterator[Finding]:
    """A warning where a layer hides what its own base did not have, or had differently."""
    for overlap in case.overlaps:
        if not _concerned(case, overlap):
            continue
        expected = case.expected(overlap)
        if expected:
            continue
        if expected is None:
            severity, message = Severity.INFO, "hides a path that the base may have changed since"
        elif _had(overlap):
            severity, message = Severity.WARNING, "hides what the base has changed since"
        else:
            severity, message = Severity.WARNING, "hides what the base has got since"
        yield Finding(
            severity=severity,
            rule=RULE,
            layer=overlap.upper.name,
            path="/" + text(overlap.entry.path),
            message=f"{message} the layer was built",
            other=overlap.lower.name,
        )


def _concerned(case: Case, overlap: Overlap) -> bool:
    """Over the base, and neither one directory with it, nor of another type, nor equal to it."""
    entry, below = overlap.entry, overlap.below
    if overlap.lower is not case.base or EntryKind.DIRECTORY in (entry.kind, below.kind):
        return False
    if entry.kind is EntryKind.WHITEOUT:
        return True
    if entry.kind is not below.kind:
        return False
    return not case.equal(overlap.upper, entry, overlap.lower, below)


def _had(overlap: Overlap) -> bool:
    stack = overlap.upper.built_on
    return stack is not None and overlap.below.path in stack[0].by_path
