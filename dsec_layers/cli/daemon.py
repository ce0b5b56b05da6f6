"""`daemon status`, `metrics`, `stop` and `restart`; `hold` and `serve` for a supervisor."""

from __future__ import annotations

import os
import sys

import click

from dsec_layers.api.managing import client, running_client
from dsec_layers.api.mounting import stop_daemon
from dsec_layers.cli.context import Context, json_option, pass_context
from dsec_layers.cli.output import size, table


@click.group(
    "daemon", no_args_is_help=False, short_help="Look after the daemon behind lazy mounts."
)
def daemon() -> None:
    """Look after the lazy file system daemon, which `mount` and `run` start on demand."""


@daemon.command(short_help="Tell whether the daemon runs and what it serves.")
@json_option
@pass_context
def status(context: Context) -> None:
    """Tell whether the daemon runs and what it serves; exit status 4 when it does not."""
    told = running_client(context.workbench).status()
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


@daemon.command(short_help="Print the counters for Prometheus.")
@json_option
@pass_context
def metrics(context: Context) -> None:
    """Print all counters of the daemon in the text format of Prometheus.

    For a scraper, DSEC_METRICS_LISTEN=127.0.0.1:9464 in the environment of what starts the daemon
    has it serve the same by HTTP.
    """
    text = running_client(context.workbench).metrics()
    context.output.result({"metrics": text}, lambda: text)


@daemon.command()
@click.option("--force", is_flag=True, help="Even while layers are mounted; reads then fail.")
@json_option
@pass_context
def stop(context: Context, force: bool) -> None:
    """End the daemon. Refused while anything is mounted, unless forced."""
    stopped = stop_daemon(context.workbench, force=force)
    context.output.result({"stopped": stopped}, lambda: None if stopped else "it did not run")


@daemon.command(short_help="Replace the daemon under live mounts.")
@json_option
@pass_context
def restart(context: Context) -> None:
    """Replace the daemon under live mounts: reads wait meanwhile, none fails."""
    told = client(context.workbench).restart().status()
    context.output.result(told, lambda: f"process {told.pid}, generation {told.generation}")


@daemon.command(short_help="Start only the holder of the mounts, for a supervisor.")
@json_option
@pass_context
def hold(context: Context) -> None:
    """Start only the holder of the mounts, unless it runs; the daemon is left to a supervisor.

    Mounts live as long as the holder, whatever happens to daemons. See docs/operating.md.
    """
    client(context.workbench).hold()
    context.output.result({"held": True})


@daemon.command(short_help="Be the daemon, in the foreground, for a supervisor.")
@pass_context
def serve(context: Context) -> None:
    """Be the daemon, in the foreground; the holder must run.

    While another daemon serves this home, it stands by until that ends. It is tuned by variables of
    the environment, see docs/operating.md.
    """
    if context.output.as_json:
        raise click.UsageError("serve has no result; its log is DSEC_HOME/run/daemon.log")
    home = str(context.workbench.home.root)
    words = ["-P", "-m", "dsec_layers.daemon", "--home", home, "--stand-by"]
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - without a shell is what is meant
