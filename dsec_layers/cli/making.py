"""`import` and `compose`: layers from elsewhere, and environments from layers."""

from __future__ import annotations

import contextlib

import click

from dsec_layers.api import composing, importing
from dsec_layers.api.checking import Report
from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.dictionary import chunk_dict_option
from dsec_layers.cli.output import layer_text, printable, table
from dsec_layers.cli.progress import meter
from dsec_layers.cli.signing import signature_options
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Kind, Reference

_ONLY_BASES = "a base is imported; workspaces and toolkits are built on one with a Layerfile"


@click.command("import", short_help="Make a base layer from a root file system.")
@click.argument("source")
@click.argument("reference", type=ReferenceType(Kind.BASE, hint=_ONLY_BASES))
@click.option("--image", metavar="NAME", help="Which image of an archive that holds several.")
@click.option(
    "--epoch",
    "epoch_s",
    type=int,
    envvar="SOURCE_DATE_EPOCH",
    metavar="SECONDS",
    help="Let no file be newer than this  [env: SOURCE_DATE_EPOCH]",
)
@chunk_dict_option
@json_option
@pass_context
def import_(
    context: Context,
    source: str,
    reference: Reference,
    image: str | None,
    epoch_s: int | None,
    chunk_dicts: tuple[Reference, ...],
) -> None:
    """Make the base layer REFERENCE from a root file system.

    SOURCE is a tar (plain, gzip, zstd, xz), an archive of docker save, - for either of them on
    standard input, a directory, an OCI layout, or docker://NAME for an image in a registry.

    \b
    mmdebstrap --variant=minbase bookworm - | dsec-layers import - base/debian:12
    dsec-layers import docker://python:3.11-slim base/python:3.11
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    options = importing.ImportOptions(image=image, epoch_s=epoch_s, chunk_dicts=chunk_dicts)
    with meter(context.output, f"import {reference}") as shown, contextlib.ExitStack() as stack:
        fetching = stack.enter_context(meter(context.output, f"fetch {source}"))

        def packed(count: int) -> None:
            stack.close()  # one bar after the other
            shown.add(count)

        row = importing.import_(
            context.workbench, source, reference, options, packed, fetching.fetch
        )
    context.output.result(row, lambda: layer_text(row))


_ENVIRONMENT = ReferenceType(Kind.ENV, hint="write -t env/name:tag")
_MAX_NOTES = 20


@click.command(short_help="Make an environment of a base, a workspace and toolkits.")
@click.argument("parts", nargs=-1, required=True, type=ReferenceType())
@click.option("--tag", "-t", "reference", type=_ENVIRONMENT, help="Its name.")
@click.option("--check", is_flag=True, help="Only report what may be wrong; make nothing.")
@click.option("--deep", is_flag=True, help="With --check: read what metadata does not tell.")
@click.option("--strict", is_flag=True, help="Fail when the report has errors.")
@signature_options
@json_option
@pass_context
def compose(
    context: Context,
    parts: tuple[Reference, ...],
    reference: Reference | None,
    check: bool,
    deep: bool,
    strict: bool,
) -> None:
    """Put one base, at most one workspace and any number of toolkits together.

    Toolkits stack in the order given, the last one on top. Reads metadata only.

    \b
    What may be wrong is told in notes, and with --check as the result:
    base         a layer was built on another base
    type         a layer has a path of another type than a lower one
    outdated     a layer hides what the base has changed since the layer was built
    overwritten  two layers have the same file
    hidden       a layer removes what a lower one has
    link         a link leads nowhere
    libc         a layer was made for another C library, or built over a newer one
    python       a layer has modules of a Python that no layer has
    interpreter  a script or program cannot be started           (--deep)
    library      a library that a program needs is in no layer   (--deep)
    symbols      a program needs a newer library than there is   (--deep)
    owner        a file belongs to a number without a name       (--deep)
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    if check:
        report = composing.check(context.workbench, parts, deep=deep)
        context.output.result(report, lambda: _report_text(report))
        _judge(report, strict)
        return
    if deep:
        raise click.UsageError("--deep needs --check")
    if reference is None:
        raise click.UsageError("Missing option '--tag' / '-t'.")

    def tell(report: Report) -> None:
        for line in _notes(report):
            context.output.note(line)
        _judge(report, strict)

    row = composing.compose(context.workbench, parts, reference, on_report=tell)
    context.output.result(row, lambda: layer_text(row))


def _judge(report: Report, strict: bool) -> None:
    if strict and report.errors:
        first = report.findings[0]  # the worst come first
        raise InvalidInputError(
            f"{_count(report.errors, 'error')} in this composition: {_finding(first)}",
            hint="`dsec-layers compose --check` lists what was found",
        )


def _report_text(report: Report) -> str:
    rows = [(each.severity.value, each.rule, _finding(each)) for each in report.findings]
    counts = ((report.errors, "error"), (report.warnings, "warning"), (report.infos, "info"))
    total = ", ".join(_count(number, word) for number, word in counts)
    return "\n".join([*(table(("SEVERITY", "RULE", "FINDING"), rows),) * bool(rows), total])


def _notes(report: Report) -> list[str]:
    told = [each for each in report.findings if each.severity is not Severity.INFO]
    lines = [f"note: {each.severity.value}: {_finding(each)}" for each in told]
    if len(lines) > _MAX_NOTES:
        more = len(lines) - _MAX_NOTES
        lines[_MAX_NOTES:] = [f"note: {more} more: `dsec-layers compose --check` lists them"]
    return lines


def _finding(finding: Finding) -> str:
    where = f"{finding.layer}: {finding.path}" if finding.path else finding.layer
    return printable(f"{where} {finding.message}")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
