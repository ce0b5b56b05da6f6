"""Programs and libraries that need a library that no layer has."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from dsec_layers.api.checks.deep import DeepCase, names
from dsec_layers.api.checks.finding import Finding, by_origin
from dsec_layers.api.checks.part import Part
from dsec_layers.api.opened import text

RULE = "library"


def check(deep: DeepCase) -> Iterator[Finding]:
    """An error for a library that was there when the layer was built, and is not any more.

    Libraries are looked for by name in all directories, so a wrong search path is not noticed.
    """
    origins: dict[str, frozenset[bytes] | None] = {}
    for program in deep.programs:
        for library in program.binary.libraries if program.binary else ():
            name = posixpath.basename(library)
            if name in deep.libraries:
                continue
            part = program.part
            if part.digest not in origins:
                origins[part.digest] = _origin(part)
            there = origins[part.digest]
            yield Finding(
                severity=by_origin(None if there is None else name in there),
                rule=RULE,
                layer=part.name,
                path="/" + text(program.entry.path),
                message=f"needs the library {text(library)}, which no layer has",
            )


def _origin(part: Part) -> frozenset[bytes] | None:
    return None if part.built_on is None else names((*part.built_on, part))
