"""Writes docs/dockerfile-differences.md from tests/conformance/differences.toml; --check compares.

Run from the root of the repository: python -m scripts.differences
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.written import write_or_check

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "tests/conformance/differences.toml"
PAGE: Final = ROOT / "docs/dockerfile-differences.md"
_RIGHT: Final = {
    "ours": "By the Dockerfile reference ours is right.",
    "buildah": "By the Dockerfile reference buildah is right.",
    "open": "The Dockerfile reference does not say.",
}
_HEAD: Final = """\
# Dockerfiles: what we refuse, and where images differ

Written by `python -m scripts.differences` from `tests/conformance/differences.toml`.

A Layerfile is a Dockerfile with one more line, and a Dockerfile builds as it is. Every case below
`tests/conformance` is built by us and by buildah 1.28 on the same base, and the two images are
compared: paths, types, modes, owners, times, links, extended attributes, contents and the whole
configuration. A test fails when they differ in anything that is not listed here, and when something
that is listed does not differ any more.

## Refused

What we do not build is refused by name, with its line, before anything is done.

"""
_DIFFERENCES: Final = """
## Differences from buildah

Each line is `<path> <what>: <ours> | <buildah>`; `now` is the time of the build.
"""


def render() -> str:
    """The page."""
    table = tomllib.loads(TABLE.read_text())
    refused = "".join(map(_refused, table["refused"]))
    return _HEAD + refused + _DIFFERENCES + "".join(map(_difference, table["difference"]))


def main(arguments: list[str]) -> int:
    """Write or check the page."""
    return write_or_check({PAGE: render()}, "differences", arguments)


def _refused(row: Mapping[str, Any]) -> str:
    return f"- **{row['what']}**: {_joined(row['reason'])} Instead: {_joined(row['instead'])}\n"


def _difference(row: Mapping[str, Any]) -> str:
    lines = "\n".join(_lines(row["cases"]))
    right = _RIGHT[row["right"]]
    return f"\n### {row['title']}\n\n{_joined(row['reason'])} {right}\n\n{lines}\n"


def _lines(cases: Mapping[str, list[str]]) -> Iterator[str]:
    """At most three lines of each case: a table shows what is meant, the file has all."""
    for case, lines in cases.items():
        shown = "; ".join(f"`{line}`" for line in lines[:3])
        more = f"; and {len(lines) - 3} more" if len(lines) > 3 else ""
        yield f"- {case}: {shown}{more}"


def _joined(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
