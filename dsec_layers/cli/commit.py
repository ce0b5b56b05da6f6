"""`commit`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from dsec_layers.api.committed import Committed
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.dictionary import chunk_dict_option
from dsec_layers.cli.output import layer_text, printable, size, table
from dsec_layers.cli.progress import meter
from dsec_layers.cli.signing import signature_options
from dsec_layers.model.reference import Reference

_MAX_NOTES = 20


@click.command(short_help="Make a layer of what a sandbox changed.")
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--tag", "-t", "reference", type=ReferenceType(), required=True, help="Its name.")
@click.option(
    "--base",
    type=ReferenceType(),
    help="What an upper lies on that is not mounted, or whose signature is asked for.",
)
@click.option("--keep", multiple=True, metavar="RULE", help="Do not leave out what RULE names.")
@click.option("--drop", multiple=True, metavar="GLOB", help="Leave these paths out too.")
@click.option(
    "--rules",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A TOML file with keep, drop, and rules of its own.",
)
@click.option("--scrub-git", is_flag=True, help="Keep of git repositories only what HEAD needs.")
@click.option("--shallow", is_flag=True, help="Scrub, and keep no commit but HEAD itself.")
@click.option(
    "--repository",
    "repositories",
    multiple=True,
    metavar="PATH",
    help="Scrub this one in the sandbox only; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="List what would be left out; make nothing.")
@chunk_dict_option
@signature_options
@json_option
@pass_context
def commit(
    context: Context,
    path: Path,
    reference: Reference,
    base: Reference | None,
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    rules: Path | None,
    scrub_git: bool,
    shallow: bool,
    repositories: tuple[str, ...],
    dry_run: bool,
    chunk_dicts: tuple[Reference, ...],
) -> None:
    """Make the workspace or toolkit of --tag from what was changed in the sandbox at PATH.

    PATH is a mount point, or the upper directory of an overlay. The sandbox may run on: when what
    is read changes meanwhile it is read again, or refused in the end.

    A workspace takes in the workspace that the sandbox lies on; with the same base and toolkits it
    shows what the sandbox shows. A toolkit holds the changes alone and goes above all others. A
    base would be a whole tree: build one FROM the workspace.

    Left out, unless kept by name: shell-history, caches, package-caches, bytecode, logs, temporary,
    editors, core-dumps, ssh, sockets, language-servers, git-unreachable (docs/residue.md). What was
    removed in these places stays removed. The config of the layer tells what was left out.

    \b
    dsec-layers commit /mnt/demo -t workspace/my/project:v2 --scrub-git
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    from dsec_layers.api import committing
    from dsec_layers.builder.gitscrub import ScrubOptions
    from dsec_layers.builder.residuerules import choose

    scrub = ScrubOptions(shallow, repositories) if scrub_git or shallow or repositories else None
    options = committing.CommitOptions(
        base=base,
        rules=choose(keep, drop, rules),
        scrub=scrub,
        dry_run=dry_run,
        chunk_dicts=chunk_dicts,
    )
    with meter(context.output, f"commit {reference}") as shown:
        done = committing.commit(context.workbench, path, reference, options, on_bytes=shown.add)
    for number, each in enumerate(done.shadowed):
        if number == _MAX_NOTES:
            context.output.note(f"note: {len(done.shadowed) - number} more are hidden by toolkits")
            break
        verb = "was removed, but stays:" if each.removed else "will not be seen:"
        context.output.note(f"note: {printable(each.path)} {verb} {each.toolkit} has it")
    context.output.result(done, lambda: "\n".join(_text(done)))


def _text(done: Committed) -> Iterator[str]:
    """The layer, or the list of residue when there is none; then the counts by rule."""
    if done.layer is not None:
        yield layer_text(done.layer)
    else:
        rows = [(printable(each.path), each.rule, size(each.bytes)) for each in done.dropped]
        if rows:
            yield table(("PATH", "RULE", "SIZE"), rows, right=("SIZE",))
        yield f"{done.changes} changed paths would go into {done.reference}"
    for rule in done.residue.dropped:
        if rule.paths:
            yield f"  left out by {rule.rule}: {rule.paths} paths, {size(rule.bytes)}"
    for git in done.residue.git:
        yield (
            f"  scrubbed {printable(git.path)}: {git.objects_removed} objects and "
            f"{git.references_removed} references are gone"
        )
