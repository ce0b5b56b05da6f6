"""`inspect`, `tree`, `cat` and `stats`."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable

import click

from dsec_layers.api import looking, usage
from dsec_layers.api import stats as api_stats
from dsec_layers.cli.context import Context, ReferenceType, json_option, pass_context
from dsec_layers.cli.output import printable, size, table
from dsec_layers.model.reference import Reference
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


@click.command(short_help="Show all about a layer or environment, as JSON.")
@click.argument("reference", type=ReferenceType())
@json_option
@pass_context
def inspect(context: Context, reference: Reference) -> None:
    """Show everything about a layer or environment but its files, as JSON."""
    found = looking.inspect(context.workbench, reference)
    context.output.as_json = True
    context.output.result(found)


@click.command(short_help="List the files of a layer or environment.")
@click.argument("reference", type=ReferenceType())
@click.argument("path", default="/")
@click.option("--depth", "-L", type=click.IntRange(0), help="At most so many names deep.")
@click.option("--size", "sizes", is_flag=True, help="Show what directories take, largest first.")
@json_option
@pass_context
def tree(context: Context, reference: Reference, path: str, depth: int | None, sizes: bool) -> None:
    """List the files that a mount of REFERENCE shows at and below PATH, without mounting it.

    \b
    With --size directories, with all below them however deep:
    SIZE    of their files, those with several names once
    STORED  their share of the packs; equal contents of a layer count once
    FILES   their number
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    if sizes:
        rows = usage.usage(context.workbench, reference, path, depth)
        context.output.result(rows, lambda: _usage(rows))
        return
    entries = looking.files(context.workbench, reference, path, depth)
    context.output.result(
        [_entry_json(entry) for entry in entries], lambda: "\n".join(map(_entry_text, entries))
    )


@click.command(short_help="Print one file of a layer or environment.")
@click.argument("reference", type=ReferenceType())
@click.argument("path")
@pass_context
def cat(context: Context, reference: Reference, path: str) -> None:
    """Print one file of REFERENCE as it is, without mounting it."""
    if context.output.as_json:
        raise click.UsageError("cat prints the bytes of a file, which have no JSON form")
    for piece in looking.cat(context.workbench, reference, path):
        sys.stdout.buffer.write(piece)


@click.command(short_help="Show how many bytes the mounts have fetched and read.")
@click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Show what happens now, every 2 seconds or as often as given, until it is interrupted.",
)
@click.option("--count", type=click.IntRange(min=1), help="With --watch, end after so many times.")
@json_option
@pass_context
def stats(context: Context, watch: float | None, count: int | None) -> None:
    """Show how many bytes of the mounted environments were fetched, cached and read.

    \b
    BYTES     data of the layer, unpacked
    FETCHED   of it, read from a store by now
    ON WIRE   what that was there, compressed
    CACHED    answered from the chunk cache
    READ      asked for by the kernel, beyond what it keeps itself
    REQUESTS  reads from a store

    A line counts for as long as the layer is mounted, the total since the daemon started. With
    --watch a terminal shows reads, hits and what is fetched of each layer as a table that changes;
    elsewhere each interval is a line, or with --json an object.
    """  # noqa: D301 - for click, which keeps the lines of a paragraph below it
    if watch is not None:
        from dsec_layers.cli import watching  # rich is for those who watch

        watching.show(context, watch, count)
        return
    if count is not None:
        raise click.UsageError("--count goes with --watch")
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


def _usage(rows: Iterable[usage.Usage]) -> str:
    columns = ("SIZE", "STORED", "FILES", "PATH")
    cells = [
        (size(row.size_bytes), size(row.stored_bytes), str(row.files), printable(row.path))
        for row in rows
    ]
    return table(columns, cells, right=columns[:3])


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
    """Names are bytes; what is no UTF-8, or would break the line, is shown by escapes."""
    return printable(path.decode("utf-8", "backslashreplace"))
