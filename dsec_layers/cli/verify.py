"""`verify`."""

from __future__ import annotations

import re

import click

from dsec_layers.api import verifying
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import size, table
from dsec_layers.cli.progress import meter
from dsec_layers.lazyfs.report import Check
from dsec_layers.model.reference import Reference


@click.command(short_help="Prove that a layer or environment is as it was packed.")
@click.argument("reference", type=ReferenceType())
@click.option("--stored-only", is_flag=True, help="Only the blobs in the stores; needs no root.")
@json_option
@pass_context
def verify(context: Context, reference: Reference, stored_only: bool) -> None:
    """Prove that REFERENCE mounts as it was packed, in every field and byte.

    Exit status 5 when anything is damaged; each damaged part is named. A damaged copy of what can
    be fetched again is put right.
    """
    with meter(context.output, f"verify {reference}") as shown:
        report = verifying.verify(
            context.workbench, reference, stored_only=stored_only, progress=shown.add
        )
    rows = [
        (_short(check.part), size(check.size_bytes), f"{check.seconds:.2f}", _verdict(check))
        for check in report.checks
    ]
    columns = ("PART", "BYTES", "SECONDS", "RESULT")
    context.output.result(report, lambda: table(columns, rows, right=columns[1:3]))
    report.raise_for_problems()


def _short(part: str) -> str:
    """Digests as `ls` shows them and no folders, for lines that fit; --json has all of them."""
    return _LONG_NAME.sub(r" \1", part)


_LONG_NAME = re.compile(r" (?:/.*/|sha256:)([0-9a-f]{12})[0-9a-f]{52}")


def _verdict(check: Check) -> str:
    if check.ok:
        return "ok"
    return ("repaired: " if check.repaired else "DAMAGED: ") + "; ".join(check.problems)
