"""Writes docs/errors.md from the classes of errors; --check only says whether it is current.

Run from the root of the repository: python -m scripts.errorlist
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from dsec_layers import errors
from dsec_runtime import errors as sandboxes
from scripts.written import write_or_check

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
HEAD = """\
# Errors and exit codes

Written by `python -m scripts.errorlist` from `dsec_layers/errors.py` and `dsec_runtime/errors.py`.

Every error is one line on standard error, and a second one with a hint where we know how to mend
it. With `--json` it is one object with `error`, `message` and `hint`. Scripts may rely on the exit
codes.

| code | error | meaning |
|---|---|---|
| 0 | | success |
"""
SANDBOXES = """
## Errors of sandboxes

Three families that must never be mixed up: the agent's fault (`AgentError`), an observation for
the model; infrastructure's fault (`InfrastructureError`), which says nothing about the agent; and
what policy refuses (`PolicyError`). In the HTTP API an error has the status of its line and the
`code` by which the SDK raises the same class again; the command line exits with `exit`.

| code | status | exit | error | is a | meaning |
|---|---|---|---|---|---|
"""
USAGE = "| 2 | | the command line is wrong; see `--help` |"


def render() -> str:
    """The page."""
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    rows = {
        error.exit_code: f"| {error.exit_code} | `{error.__name__}` | {_meaning(error)} |"
        for error in classes
        if issubclass(error, errors.DsecError)
    }
    layers = "\n".join(row for _, row in sorted({**rows, 2: USAGE}.items())) + "\n"
    return HEAD + layers + SANDBOXES + "".join(map(_row, sandboxes.BY_CODE.values()))


def _row(error: type[sandboxes.SandboxError]) -> str:
    parent = error.__base__
    assert parent is not None
    cells = (
        f"`{error.code}`",
        str(error.status),
        str(error.exit_code),
        f"`{error.__name__}`",
        f"`{parent.__name__}`",
        _meaning(error),
    )
    return f"| {' | '.join(cells)} |\n"


def main(arguments: list[str]) -> int:
    """Write or check the page."""
    return write_or_check({PAGE: render()}, "errorlist", arguments)


def _meaning(error: type[errors.DsecError]) -> str:
    return " ".join((error.__doc__ or "").split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
