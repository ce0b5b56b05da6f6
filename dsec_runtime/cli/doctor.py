"""`doctor`."""

from __future__ import annotations

import click

from dsec_layers.cli.context import json_option
from dsec_layers.cli.output import printable, table
from dsec_layers.errors import CapabilityMissingError
from dsec_runtime.cli.context import EdgeContext, pass_edge


@click.command(short_help="Tell what this machine can do, and how to get what it lacks.")
@json_option
@pass_edge
def doctor(context: EdgeContext) -> None:
    """Try what sandboxes need, and what they can make use of; exit status 7 if one cannot be had.

    Each thing is found by doing it; nothing is left of that.
    """
    from dsec_runtime.edge.checks import all_checks

    found = list(all_checks(context.workbench.home.root))
    rows = [
        (
            check.name,
            "yes" if check.works else "NO" if check.needed else "no",
            printable(check.detail),
        )
        for check in found
    ]
    hints = [f"  {check.name}: {printable(check.hint)}" for check in found if check.hint]
    text = table(("WHAT", "WORKS", "HOW"), rows) + ("\n\n" + "\n".join(hints) if hints else "")
    context.output.result(found, lambda: text)
    lacking = [check.name for check in found if check.needed and not check.works]
    if lacking:
        raise CapabilityMissingError(f"no edge starts here without {', '.join(lacking)}")
