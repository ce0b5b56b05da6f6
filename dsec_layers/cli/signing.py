"""`key`, `sign` and `signatures`, and the option of commands that ask for signatures."""

from __future__ import annotations

import datetime
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from dsec_layers.cli.context import Context, ReferenceType, assignments, json_option, pass_context
from dsec_layers.cli.output import printable, table
from dsec_layers.errors import InvalidInputError
from dsec_layers.model.reference import Reference

if TYPE_CHECKING:
    from dsec_layers.api.signatures import Row

F = TypeVar("F", bound=Callable[..., object])

_VARIABLE: Final = "DSEC_KEY_PASSPHRASE"
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


def signature_options(command: F) -> F:
    """`--require-signature` and `--require-all`: they give the workbench its `trust`."""
    keys = click.option(
        "--require-signature",
        "keys",
        multiple=True,
        type=click.Path(path_type=Path),
        envvar="DSEC_REQUIRE_SIGNATURE",
        metavar="KEY",
        expose_value=False,
        callback=_require,
        help="Refuse what this public key has not signed; of several, one suffices"
        "  [env: DSEC_REQUIRE_SIGNATURE]",
    )
    everything = click.option(
        "--require-all",
        is_flag=True,
        is_eager=True,  # known when the keys are looked at
        envvar="DSEC_REQUIRE_ALL",
        expose_value=False,
        callback=_remember,
        help="Every key must have signed  [env: DSEC_REQUIRE_ALL]",
    )
    return keys(everything(command))


def _remember(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[__name__] = value


def _require(context: click.Context, _parameter: click.Parameter, paths: tuple[Path, ...]) -> None:
    require_all = bool(context.meta.get(__name__))
    if paths:
        from dsec_layers.api.trust import Trust

        bench = context.ensure_object(Context).workbench
        bench.trust = Trust.of(paths, require_all=require_all)
    elif require_all:
        raise click.UsageError("--require-all needs --require-signature")


@click.group(short_help="Make keys for signatures.")
def key() -> None:
    """Make the keys that `sign` and `--require-signature` take."""


@key.command(short_help="Make a key pair.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--passphrase", "ask", is_flag=True, help="Ask for a passphrase and encrypt the key.")
@json_option
@pass_context
def generate(context: Context, path: Path, ask: bool) -> None:
    """Make the Ed25519 key pair PATH.key (keep it secret) and PATH.pub (give it away).

    The private key is encrypted when a passphrase is asked for or in $DSEC_KEY_PASSPHRASE.
    """
    from dsec_layers.api import keys

    passphrase = os.environ.get(_VARIABLE, "")
    if ask and not passphrase:
        passphrase = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
    made = keys.generate(path, passphrase.encode() or None)
    context.output.result(made, lambda: f"{made.private}\n{made.public}\n{made.key_id}")


@click.command(short_help="Sign a layer or environment.")
@click.argument("reference", type=ReferenceType())
@click.option(
    "--key", "path", required=True, type=click.Path(path_type=Path), help="The private key."
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    metavar="URL",
    help="Put the signature in this store too; may be repeated.",
)
@click.option("--bind-name", is_flag=True, help="Let it count only for this name and tag.")
@click.option("--expires", metavar="DATE", help="Until when it counts: YYYY-MM-DD, or seconds.")
@click.option(
    "--annotation", "-a", multiple=True, metavar="NAME=VALUE", help="Say this in the signature too."
)
@json_option
@pass_context
def sign(
    context: Context,
    reference: Reference,
    path: Path,
    stores: tuple[str, ...],
    bind_name: bool,
    expires: str | None,
    annotation: tuple[str, ...],
) -> None:
    """Sign the digest of REFERENCE, and thereby all that it names: layers, data, settings.

    The signature is kept beside it, here and in the --store URLs, and goes where it is copied.
    """
    from dsec_layers.api import keys, signatures

    options = signatures.SignOptions(
        bound=bind_name,
        expires=None if expires is None else _seconds(expires),
        annotations=assignments(annotation, "--annotation"),
    )
    private = keys.load_private(path, _passphrase)
    made = signatures.sign(context.workbench, reference, private, options, stores)
    context.output.result(made, lambda: f"{reference} {made.digest}\n  signed by {made.key_id}")


@click.command(short_help="List the signatures of a layer or environment, or check them.")
@click.argument("reference", type=ReferenceType())
@signature_options
@json_option
@pass_context
def signatures(context: Context, reference: Reference) -> None:
    """List the signatures of REFERENCE; they are checked only against --require-signature keys.

    With such keys it fails as `mount` would.
    """
    from dsec_layers.api.signatures import list_signatures

    bench = context.workbench
    bench.trusted(reference)
    rows = list_signatures(bench, reference)
    context.output.result(rows, lambda: _text(rows))


def _text(rows: list[Row]) -> str:
    lines = [
        (
            row.key_id or row.signature,
            row.reference or "any",
            "never" if row.expires is None else _date(row.expires),
            row.problem or " ".join(f"{name}={text}" for name, text in row.annotations.items()),
        )
        for row in rows
    ]
    printed = [tuple(map(printable, line)) for line in lines]
    return table(("KEY", "FOR", "EXPIRES", "SAYS"), printed) if rows else ""


def _passphrase() -> bytes | None:
    given = os.environ.get(_VARIABLE)
    if given is None and sys.stdin.isatty():
        given = click.prompt("Passphrase", hide_input=True, err=True)
    return given.encode() if given else None


def _seconds(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    try:
        if not _DAY.fullmatch(text):
            raise ValueError
        day = datetime.date.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(f"not a date: {text!r}", hint="write it as 2030-12-31") from error
    midnight = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    return int(midnight.timestamp())


def _date(seconds: int) -> str:
    try:
        when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(seconds)
    return when.strftime("%Y-%m-%d %H:%M UTC")
