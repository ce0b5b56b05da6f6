"""`edge`, `edge token` and `edge status`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsec_layers.cli.context import json_option
from dsec_layers.cli.output import size, table
from dsec_layers.cli.sizes import SizeType
from dsec_layers.cli.spans import SpanType
from dsec_runtime.cli.context import EdgeContext, pass_edge, wait_for

if TYPE_CHECKING:
    from dsec_runtime.edge.config import Tcp

_TOKENS = "edge/tokens"


@click.group(
    invoke_without_command=True, no_args_is_help=False, short_help="Be the edge of this machine."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Listen on TCP too; --certificate and --key, and a token, are needed.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The certificate chain for --listen (PEM).",
)
@click.option(
    "--key", type=click.Path(path_type=Path, dir_okay=False), help="Its private key (PEM)."
)
@click.option(
    "--tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file that `dsec edge token` writes.  [default: edge/tokens in the home]",
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    envvar="DSEC_STORES",
    metavar="URL",
    help="A further store of layers; may be repeated.",
)
@click.option("--max-sandboxes", type=click.IntRange(1), help="No more than this.")
@click.option(
    "--pool", type=click.IntRange(1), help="The most containers for tasks (`dsec fncall`)."
)
@click.option("--reserve", type=SizeType(), help="Memory of the node that is not given away.")
@click.option("--idle", type=SpanType(), help="End sandboxes that idle so long, unless they say.")
@click.option("--age", type=SpanType(), help="End sandboxes that are so old, unless they say.")
@click.option("--paused", type=SpanType(), help="End those paused so long, unless they say.")
@click.option("--drain", type=SpanType(), help="How long requests may take at the end.")
@click.option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    default="json",
    envvar="DSEC_LOG_FORMAT",
    help="An object a line, or text for people, on standard error.",
)
@click.pass_context
def edge(
    click_context: click.Context,
    listen: str | None,
    certificate: Path | None,
    key: Path | None,
    tokens: Path | None,
    stores: tuple[str, ...],
    max_sandboxes: int | None,
    pool: int | None,
    reserve: int | None,
    idle: float | None,
    age: float | None,
    paused: float | None,
    drain: float | None,
    log_format: str,
) -> None:
    """Serve sandboxes until SIGTERM, on a Unix socket in the home and, if asked, on TCP.

    Sandboxes outlive the edge: the next one finds them. Needs root. What else can be set is in
    edge/settings.toml of the home (docs/edge.md); options go before it.
    """
    if click_context.invoked_subcommand is not None:
        return
    from dsec_layers.linux.capabilities import Capability, require
    from dsec_runtime.edge.building import built
    from dsec_runtime.edge.logs import configure
    from dsec_runtime.edge.serving import run
    from dsec_runtime.edge.settings import configured

    require(Capability.ROOT, Capability.OVERLAY, Capability.EROFS, Capability.FUSE, Capability.OCI)
    context = click_context.find_object(EdgeContext)
    assert context is not None
    home = context.workbench.home.root
    given: dict[str, dict[str, object]] = {
        "edge": {"max_sandboxes": max_sandboxes, "reserve_bytes": reserve, "drain_s": drain},
        "fncall": {"total": pool},
        "lifetime": {"idle_s": idle, "age_s": age, "paused_s": paused},
    }
    tcp = _tcp(listen, certificate, key, tokens or home / _TOKENS)
    config = configured(home, given, tcp=tcp, stores=stores)
    configure("json" if log_format == "json" else "text")
    run(config, built)


@edge.command(short_help="Make a token for an edge that listens on TCP.")
@click.argument("name")
@click.option("--operator", is_flag=True, help="It may see and end the sandboxes of all.")
@click.option(
    "--tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write its hash to.  [default: edge/tokens in the home]",
)
@json_option
@pass_edge
def token(context: EdgeContext, name: str, operator: bool, tokens: Path | None) -> None:
    """Make a token for NAME and print it; only its hash is kept.

    A running edge knows it at once. To take it back, remove its line from the file.
    """
    from dsec_runtime.edge.auth import add

    path = tokens or context.workbench.home.root / _TOKENS
    made = add(path, name, operator=operator)
    context.output.result({"name": name, "token": made, "file": str(path)}, lambda: made)


@edge.command(short_help="Tell how the edge is.")
@json_option
@pass_edge
def status(context: EdgeContext) -> None:
    """Tell how the edge is; exit status 22 when none answers."""
    from dsec_runtime.messages import Health

    async def ask() -> Health:
        async with context.client() as client:
            return await client.health()

    told = wait_for(ask())
    columns = ("PID", "VERSION", "STATUS", "SANDBOXES", "CREATING", "MEMORY FREE", "PRESSURE")
    cells = (
        str(told.pid),
        told.version,
        told.status,
        ", ".join(f"{count} {state}" for state, count in told.sandboxes.items()) or "none",
        str(told.creating),
        size(told.memory_available_bytes),
        f"{told.memory_pressure:.1f} %",
    )
    context.output.result(told, lambda: table(columns, [cells]))


def _tcp(
    listen: str | None, certificate: Path | None, key: Path | None, tokens: Path
) -> Tcp | None:
    from dsec_runtime.edge.config import Tcp, parse_listen

    if listen is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--listen needs --certificate and --key")
    host, port = parse_listen(listen)
    return Tcp(host=host, port=port, certificate=certificate, key=key, tokens=tokens)
