"""docs/cases.md: each case has a test on real containers, and all that it names are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
REAL = "integration/runtime/"
CASES = [
    line.split("|")[1:-1]
    for line in (TESTS.parent / "docs/cases.md").read_text().splitlines()
    if line.startswith("|") and "::" in line
]


def named(cell: str) -> list[tuple[str, str]]:
    """File below `tests/` and function of each test in a cell."""
    found = [name.partition("::") for name in re.findall(r"`([^`]+)`", cell)]
    return [
        (path if path.startswith(("unit/", "integration/")) else REAL + path, name)
        for path, _, name in found
    ]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        it.name
        for it in ast.walk(tree)
        if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef) and it.name.startswith("test_")
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].strip()[:48])
def test_a_case_is_held_by_tests_that_are_there(case: list[str]) -> None:
    tests = named(case[2])
    assert any(path.startswith(REAL) for path, _ in tests)
    missing = [
        f"{path}::{name}"
        for path, name in tests
        if not (TESTS / path).is_file() or name not in functions(TESTS / path)
    ]
    assert missing == []


def test_no_case_is_left_out() -> None:
    assert len(CASES) == 25
