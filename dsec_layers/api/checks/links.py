"""Symbolic links that lead nowhere."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from dsec_layers.api.checks.finding import Finding, by_origin
from dsec_layers.api.checks.part import Case, had, has
from dsec_layers.api.opened import text
from dsec_layers.model.tree import Entry, EntryKind

RULE = "link"

# What only a running container has.
_LATER = (b"dev", b"proc", b"run", b"sys", b"tmp")


def check(case: Case) -> Iterator[Finding]:
    """The links that layers above the base bring: an error when they led somewhere when built."""
    for number, part in enumerate(case.parts[1:], 1):
        for entry in part.tree:
            if entry.kind is not EntryKind.SYMLINK or _is_for_later(entry):
                continue
            if case.shows(number, entry.path) and not has(case.parts, entry.path):
                yield Finding(
                    severity=by_origin(had(part, entry.path)),
                    rule=RULE,
                    layer=part.name,
                    path="/" + text(entry.path),
                    message=f"leads nowhere: {text(entry.target)}",
                )


def _is_for_later(entry: Entry) -> bool:
    target = posixpath.normpath(posixpath.join(b"/", entry.parent, entry.target))
    return target.lstrip(b"/").partition(b"/")[0] in _LATER
