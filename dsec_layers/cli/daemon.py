"""`daemon status`, `stop` and `restart`."""

from __future__ import annotations

import click

from dsec_layers.api.mounting import client, stop_daemon
from dsec_layers.cli.context import Context, json_option, pass_context
from dsec_layers.cli.output import size, table
from dsec_layers.errors import NotFoundError


@click.group("daemon", no_args_is_help=False)
def daemon() -> None:
    """Look after the lazy file system daemon, which `mount` and `run` start on demand."""


@daemon.command()
@json_option
@pass_context
def status(context: Context) -> None:
    """Tell whether the daemon runs and what it serves; exit status 4 when it does not."""
    found = client(context.workbench)
    if not found.running():
        raise NotFoundError(
            "the lazy file system daemon does not run", hint="`mount` and `run` start it"
        )
    told = found.status()
    context.output.result(
        told,
        lambda: table(
            ("PID", "VERSION", "UP", "LAYERS", "DEVICES"),
            [
                (
                    str(told.pid),
                    told.version,
                    f"{told.uptime_s:.0f} s",
                    str(len(told.layers)),
                    size(sum(layer.size_bytes for layer in told.layers)),
                )
            ],
        ),
    )


@daemon.command()
@click.option("--force", is_flag=True, help="Even while layers are mounted; reads then fail.")
@json_option
@pass_context
def stop(context: Context, force: bool) -> None:
    """End the daemon. Refused while anything is mounted, unless forced."""
    stopped = stop_daemon(context.workbench, force=force)
    context.output.result({"stopped": stopped}, lambda: None if stopped else "it did not run")


@daemon.command()
@json_option
@pass_context
def restart(context: Context) -> None:
    """Replace the daemon under live mounts: reads wait meanwhile, none fails."""
    told = client(context.workbench).restart().status()
    context.output.result(told, lambda: f"process {told.pid}, generation {told.generation}")
