"""Scripts and programs whose interpreter is not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsec_layers.api.checks.deep import DeepCase, Program, runs
from dsec_layers.api.checks.finding import Finding, by_origin
from dsec_layers.api.checks.part import Part, has
from dsec_layers.api.opened import text

RULE = "interpreter"


def check(deep: DeepCase) -> Iterator[Finding]:
    """An error for an interpreter that was there when the layer was built, and is not any more."""
    for program in deep.programs:
        wanted = _missing(program, deep.case.parts, deep.search)
        if wanted is None:
            continue
        below = program.part.built_on
        worked = None
        if below is not None:
            worked = _missing(program, (*below, program.part), deep.search) is None
        yield Finding(
            severity=by_origin(worked),
            rule=RULE,
            layer=program.part.name,
            path="/" + text(program.entry.path),
            message=f"needs {text(wanted)}, which is not there",
        )


def _missing(program: Program, parts: Sequence[Part], search: Sequence[bytes]) -> bytes | None:
    interpreter = program.binary.interpreter if program.binary else None
    if program.script:
        interpreter = program.script.interpreter
        name = program.script.program
        if name and not runs(parts, search, name):
            return name
    return interpreter if interpreter and not has(parts, interpreter) else None
