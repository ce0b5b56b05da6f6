"""Writes docs/residue.md from the rules of a commit; --check only says whether it is current.

Run from the root of the repository: python -m scripts.rulelist
"""

from __future__ import annotations

import sys
from pathlib import Path

from dsec_layers.builder.residuerules import GIT_UNREACHABLE, RULES, Rule
from scripts.written import write_or_check

PAGE = Path(__file__).resolve().parent.parent / "docs" / "residue.md"
HEAD = """\
# What a commit leaves out

Written by `python -m scripts.rulelist` from `dsec_layers/builder/residuerules.py`.

`dsec-layers commit` leaves out what a session writes that is no part of the work. What was removed
at these paths stays removed; of a changed file the one of the layer below is seen again. The config
of the layer says which rules were on and how much each left out (`formats/layer.md`). `--dry-run`
lists every path with its rule. `--keep RULE` switches a rule off, `--drop GLOB` adds a pattern.

In a pattern `*` stands for a part of a name, `**` for any number of directories. What matches goes
with all that is below it.

| rule | version | what it is | patterns |
|---|---|---|---|
"""
TAIL = """
`core-dumps` looks at the head of the file, `sockets` at the type. Of git repositories more goes
with `--scrub-git` (`decisions/0007-git-in-a-commit.md`).

## Rules of your own

A TOML file, given by `--rules`; all in it can be absent.

    keep = ["logs"]                 # rules that are off
    drop = ["workspace/scratch"]    # further patterns, counted as the rule "task"

    [[rule]]
    name = "answers"
    reason = "the harness wrote them"
    paths = ["**/answers.json"]
    version = 1
"""


def render() -> str:
    """The page."""
    return HEAD + "".join(map(_row, (*RULES, GIT_UNREACHABLE))) + TAIL


def main(arguments: list[str]) -> int:
    """Write or check the page."""
    return write_or_check({PAGE: render()}, "rulelist", arguments)


def _row(rule: Rule) -> str:
    patterns = ", ".join(f"`{pattern}`" for pattern in rule.patterns)
    return f"| `{rule.name}` | {rule.version} | {rule.reason} | {patterns} |\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
