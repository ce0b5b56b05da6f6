"""Files that scripts of this folder write, and which `--check` compares with what is there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def write_or_check(wanted: Mapping[Path, str], script: str, arguments: list[str]) -> int:
    """Write each text to its path, or with `--check` name those that differ; an exit status."""
    old = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    check = arguments == ["--check"]
    for path in old:
        if check:
            print(f"{path} is out of date: run python -m scripts.{script}", file=sys.stderr)
        else:
            path.write_text(wanted[path])
    return int(check and bool(old))
