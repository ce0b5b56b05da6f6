"""`mount`, `umount` and `run`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dsec_layers.api import mounting, running
from dsec_layers.cli.context import (
    Context,
    ReferenceType,
    assignments,
    json_option,
    pass_context,
)
from dsec_layers.cli.output import table
from dsec_layers.cli.rootless import (
    mount_rootless,
    refuse_what_needs_root,
    rootless_options,
)
from dsec_layers.cli.signing import signature_options
from dsec_layers.cli.tracing import prefetch_option
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux.ocispec import Bind
from dsec_layers.model.reference import Reference


@click.command(short_help="Mount a layer or environment lazily, or list the mounts.")
@click.argument("reference", type=ReferenceType(), required=False)
@click.argument("target", type=click.Path(path_type=Path, readable=False), required=False)
@click.option("--read-only", is_flag=True, help="Without a writable upper.")
@click.option(
    "--upper",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep changes in this directory.",
)
@rootless_options
@prefetch_option
@signature_options
@json_option
@pass_context
def mount(
    context: Context,
    reference: Reference | None,
    target: Path | None,
    read_only: bool,
    upper: Path | None,
    rootless: bool,
    foreground: bool,
    prefetch: int | None,
) -> None:
    """Mount REFERENCE lazily on the directory TARGET; without arguments list what is mounted.

    Data is fetched when it is read, from the local store or from the --store URLs. Changes go to a
    writable upper, which `umount` removes unless it is kept. TARGET is made when it is missing.

    With --rootless any user can do it who has fusermount3. Then nothing can be written, and only
    this user sees the files.
    """
    if foreground and not rootless:
        raise click.UsageError("--foreground goes with --rootless")
    if reference is None or target is None:
        if reference is not None:
            raise click.UsageError("name the directory to mount it on")
        rows = mounting.list_mounts(context.workbench)
        context.output.result(
            rows,
            lambda: table(
                ("REFERENCE", "TARGET", "MODE"),
                [(row.reference, row.target, _mode(row)) for row in rows],
            ),
        )
        return
    if rootless:
        refuse_what_needs_root(upper)
        mount_rootless(context, reference, target, foreground=foreground)
        return
    made = mounting.mount(
        context.workbench,
        reference,
        target,
        read_only=read_only,
        upper=upper,
        prefetch_bytes=prefetch,
    )
    context.output.result(made, lambda: made.target)


@click.command()
@click.argument("target", type=click.Path(path_type=Path, readable=False), required=False)
@click.option("--all", "everything", is_flag=True, help="All mounts of this home.")
@click.option("--keep-upper", is_flag=True, help="Leave what was written, and print where.")
@click.option("--lazy", is_flag=True, help="Take it out of sight now, even while it is in use.")
@json_option
@pass_context
def umount(
    context: Context, target: Path | None, everything: bool, keep_upper: bool, lazy: bool
) -> None:
    """Unmount TARGET.

    Prints the directory of what was written when that stays: with --keep-upper, or mounted with
    --upper.
    """
    if (target is None) != everything:
        raise click.UsageError("name one directory, or give --all")
    bench = context.workbench
    if target is None:
        done = mounting.umount_all(bench, keep_upper=keep_upper, lazy=lazy)
    else:
        done = (mounting.umount(bench, target, keep_upper=keep_upper, lazy=lazy),)
    uppers = [each.upper for each in done if each.upper]
    context.output.result(done, lambda: "\n".join(uppers))


def _mode(row: mounting.Mounted) -> str:
    mode = "ro" if row.read_only else "rw"
    if row.rootless:
        return f"{mode}, rootless" + ("" if row.process else ", its server was killed")
    return mode if row.process is None else f"{mode}, of process {row.process}"


class _RunCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Behind REFERENCE stands the command with its options; ours may, if `--` ends them."""
        ctx.allow_interspersed_args = "--" in args
        return super().parse_args(ctx, args)


@click.command(
    cls=_RunCommand, short_help="Run a command in a container on a layer or environment."
)
@click.argument("reference", type=ReferenceType())
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--env", "-e", multiple=True, metavar="NAME[=VALUE]", help="Set a variable, or hand ours on."
)
@click.option("--workdir", "-w", metavar="DIR", help="Start in this directory.")
@click.option("--user", "-u", metavar="USER[:GROUP]", help="Run as this user of the environment.")
@click.option(
    "--entrypoint", metavar="PROGRAM", help="Instead of the environment's own; '' for none."
)
@click.option(
    "--network",
    type=click.Choice(["host", "none"]),
    default="host",
    show_default=True,
    help="This machine's network, or none.",
)
@click.option("--read-only", is_flag=True, help="Without a writable upper.")
@click.option(
    "--upper",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep changes in this directory.",
)
@click.option(
    "--volume",
    "-v",
    "volumes",
    multiple=True,
    metavar="HOST:TARGET[:ro]",
    help="Show a file or directory of this machine at TARGET.",
)
@click.option("--interactive", "-i", is_flag=True, help="Give the command our standard input.")
@click.option("--tty", "-t", is_flag=True, help="Give the command a terminal.")
@prefetch_option
@signature_options
@json_option
@pass_context
def run(
    context: Context,
    reference: Reference,
    argv: tuple[str, ...],
    env: tuple[str, ...],
    workdir: str | None,
    user: str | None,
    entrypoint: str | None,
    network: str,
    read_only: bool,
    upper: Path | None,
    volumes: tuple[str, ...],
    interactive: bool,
    tty: bool,
    prefetch: int | None,
) -> None:
    """Run a command in a container on REFERENCE, and exit with its status.

    dsec-layers run env/demo:v1 -- python3 -m pytest -q
    """
    options = running.RunOptions(
        env=assignments(env, "--env"),
        workdir=workdir,
        user=user,
        entrypoint=None if entrypoint is None else [entrypoint] if entrypoint else [],
        network="none" if network == "none" else "host",
        read_only=read_only,
        upper=upper,
        binds=[_bind(volume) for volume in volumes],
        interactive=interactive,
        tty=tty,
        prefetch_bytes=prefetch,
    )
    sys.stdout.flush()
    # With --json standard output belongs to the result: the command's own goes to standard error.
    sink = _to_stderr if context.output.as_json else None
    complaints: list[str] = []
    status = running.run(
        context.workbench,
        reference,
        argv,
        options,
        on_output=sink,
        on_complaint=complaints.append,
    )
    for complaint in complaints:
        context.output.failure("CommandError", complaint, None, status)
    context.output.result({"status": status})
    click.get_current_context().exit(status)


def _bind(volume: str) -> Bind:
    source, _, rest = volume.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target.startswith("/") or mode not in ("", "ro", "rw"):
        raise InvalidInputError(
            f"not a volume: {volume!r}", hint="write --volume /host/path:/path or ...:ro"
        )
    if not Path(source).exists():
        raise InvalidInputError(f"{source} does not exist", hint="make it first")
    return Bind(Path(source).resolve(), target, read_only=mode == "ro")


def _to_stderr(data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()
