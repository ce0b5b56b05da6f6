"""`ls`, `inspect`, `tree`, `cat`, `verify`, `stats` and `rm`."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterable

import click
import msgspec
from rich.table import Table

from dsec_layers.api import looking
from dsec_layers.api import stats as api_stats
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import size, table
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.tree import Entry, EntryKind

_TYPES = {
    EntryKind.DIRECTORY: stat.S_IFDIR,
    EntryKind.FILE: stat.S_IFREG,
    EntryKind.SYMLINK: stat.S_IFLNK,
    EntryKind.CHAR: stat.S_IFCHR,
    EntryKind.BLOCK: stat.S_IFBLK,
    EntryKind.FIFO: stat.S_IFIFO,
    EntryKind.SOCKET: stat.S_IFSOCK,
    EntryKind.WHITEOUT: 0,
}


@click.command("ls")
@click.argument("kind", type=click.Choice([kind.value for kind in Kind]), required=False)
@json_option
@pass_context
def list_(context: Context, kind: str | None) -> None:
    """List the layers and environments in the local store."""
    rows = list(looking.list_references(context.workbench, Kind(kind) if kind else None))
    context.output.result(rows, lambda: _listing(rows))


@click.command()
@click.argument("reference", type=ReferenceType())
@pass_context
def inspect(context: Context, reference: Reference) -> None:
    """Show everything about a layer or environment but its files, as JSON."""
    found = looking.inspect(context.workbench, reference)
    context.output.result(
        found, lambda: json.dumps(msgspec.to_builtins(found), indent=2, sort_keys=True)
    )


@click.command()
@click.argument("reference", type=ReferenceType())
@click.argument("path", default="/")
@click.option("--depth", "-L", type=click.IntRange(0), help="At most so many names deep.")
@json_option
@pass_context
def tree(context: Context, reference: Reference, path: str, depth: int | None) -> None:
    """List the files that a mount of REFERENCE shows at and below PATH, without mounting it."""
    entries = list(looking.below(looking.tree(context.workbench, reference), path, depth))
    context.output.result(
        [_entry_json(entry) for entry in entries], lambda: "\n".join(map(_entry_text, entries))
    )


@click.command()
@click.argument("reference", type=ReferenceType())
@click.argument("path")
@pass_context
def cat(context: Context, reference: Reference, path: str) -> None:
    """Print one file of REFERENCE, without mounting it."""
    for piece in looking.cat(context.workbench, reference, path):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@click.command()
@json_option
@pass_context
def stats(context: Context) -> None:
    """Show how many bytes of the mounted environments were fetched, cached and read."""
    report = api_stats.stats(context.workbench)
    rows = [
        (
            use.layer,
            size(use.environment_bytes),
            size(use.fetched_bytes),
            size(use.stored_bytes),
            size(use.cached_bytes),
            size(use.read_bytes),
            str(use.requests),
            str(use.errors),
        )
        for use in (*report.layers, report.total)
    ]
    columns = ("LAYER", "BYTES", "FETCHED", "ON WIRE", "CACHED", "READ", "REQUESTS", "ERRORS")
    context.output.result(report, lambda: table(columns, rows, right=columns[1:]))


@click.command("rm")
@click.argument("references", nargs=-1, required=True, type=ReferenceType())
@click.option("--prune", is_flag=True, help="Also remove data that no tag has reached for a day.")
@json_option
@pass_context
def remove(context: Context, references: tuple[Reference, ...], prune: bool) -> None:
    """Remove tags from the local store; what other tags reach stays."""
    from dsec_layers.registry.prune import GRACE_S

    last = references[-1]
    freed = [
        looking.remove(context.workbench, each, grace_s=GRACE_S if prune and each == last else None)
        for each in references
    ]
    context.output.result(
        {
            "removed": [str(each) for each in references],
            "pruned_bytes": sum(each.bytes for each in freed),
        },
        lambda: None,
    )


def _listing(rows: Iterable[looking.Listed]) -> Table:
    columns = ("REFERENCE", "DIGEST", "ENTRIES", "SIZE", "STORED", "DATA")
    cells = [
        (
            row.reference,
            row.digest.removeprefix("sha256:")[:12],
            str(row.entries),
            size(row.content_bytes),
            size(row.stored_bytes),
            "here" if row.complete else "lazy",
        )
        for row in rows
    ]
    return table(columns, cells, right=columns[2:5])


def _entry_text(entry: Entry) -> str:
    mode = stat.filemode(_TYPES[entry.kind] | entry.mode)
    name = "/" + _text(entry.path)
    if entry.kind is EntryKind.SYMLINK:
        name += f" -> {_text(entry.target)}"
    return f"{mode} {entry.uid:>5} {entry.gid:>5} {entry.size:>12} {name}"


def _entry_json(entry: Entry) -> dict[str, object]:
    return {
        "path": "/" + _text(entry.path),
        "type": entry.kind.name.lower(),
        "mode": f"{entry.mode:04o}",
        "uid": entry.uid,
        "gid": entry.gid,
        "mtime_ns": entry.mtime_ns,
        "size_bytes": entry.size,
        **({"target": _text(entry.target)} if entry.kind is EntryKind.SYMLINK else {}),
    }


def _text(path: bytes) -> str:
    """Names are bytes; what is no UTF-8 is shown by escapes, as `ls -b` does for control bytes."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
