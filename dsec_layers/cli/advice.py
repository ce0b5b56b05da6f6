"""What the rules found in a Layerfile, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from dsec_layers.builder.lints.subject import Finding
from dsec_layers.cli.output import printable


def as_lines(found: Sequence[Finding]) -> str:
    """Their number, and two lines for each."""
    lines = [f"{len(found) or 'no'} warning{'s' * (len(found) != 1)}"]
    for it in found:
        lines.append(f"{printable(it.where)}: {it.rule}: {printable(it.message)}")
        lines.append(f"    {printable(it.line)}")
    return "\n".join(lines)
