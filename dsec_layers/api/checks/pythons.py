"""Layers with modules of a Python that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from dsec_layers.api.checks.finding import Finding, by_origin
from dsec_layers.api.checks.offers import Number, number, offers, written
from dsec_layers.api.checks.part import Case, Part
from dsec_layers.api.opened import text
from dsec_layers.model.tree import EntryKind

RULE = "python"

# A module in a folder of one version, which a virtual environment has as well; or one whose name
# says for which it was compiled.
_FOLDER: Final = re.compile(rb"((?:.*/)?lib(?:64)?/python(3\.\d+)/(?:site|dist)-packages)/.*")
_COMPILED: Final = re.compile(rb".*\.cpython-3(\d+)-[^/]*\.so")


class _Use(NamedTuple):
    path: bytes
    files: int


def check(case: Case) -> Iterator[Finding]:
    """For each Python that modules of a layer are for and no layer has.

    An error when it was there when the layer was built.
    """
    now = offers(case.parts).pythons
    for part in case.parts[1:]:
        missing = {python: use for python, use in _uses(part).items() if python not in now}
        if not missing:
            continue
        then = offers((*part.built_on, part)).pythons if part.built_on is not None else None
        for python, use in sorted(missing.items()):
            yield Finding(
                severity=by_origin(None if then is None else python in then),
                rule=RULE,
                layer=part.name,
                path="/" + text(use.path),
                message=f"is of Python {written([python])} ({use.files} files), and there is "
                + (f"only {written(now)}" if now else "none"),
                other=case.base.name,
            )


def _uses(part: Part) -> dict[Number, _Use]:
    """The Pythons whose modules a layer has: the first place, and the number of files."""
    found: dict[Number, _Use] = {}
    for entry in part.tree:
        if entry.kind is not EntryKind.FILE:
            continue
        if match := _FOLDER.fullmatch(entry.path):
            python, path = number(match[2]), match[1]
        elif match := _COMPILED.fullmatch(entry.name):
            python, path = (3, int(match[1])), entry.path
        else:
            continue
        first = found.get(python, _Use(path, 0))
        found[python] = _Use(first.path, first.files + 1)
    return found
