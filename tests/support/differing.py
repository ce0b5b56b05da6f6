"""What is declared of other builders: tests/conformance/differences.toml.

`[[difference]]` is one way in which images of buildah differ from ours, with the lines that it
explains of each case; `[[refused]]` one thing that we refuse.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any, Final

from tests.support.conformance import CASES

TABLE: Final = CASES / "differences.toml"
RIGHT: Final = {
    "ours": "ours",
    "buildah": "buildah",
    "open": "either: the reference does not say",
}

Row = dict[str, Any]


@cache
def table() -> dict[str, list[Row]]:
    """All rows, by the name of their array."""
    read: dict[str, list[Row]] = tomllib.loads(TABLE.read_text())
    return read


def declared(case: str) -> list[str]:
    """The lines that a case may, and must, give, sorted."""
    return sorted(line for row in table()["difference"] for line in row["cases"].get(case, ()))
