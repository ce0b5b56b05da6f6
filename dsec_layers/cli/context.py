"""What every command gets.

The workbench and the output, and the options that all commands share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from dsec_layers.api.workbench import Workbench
from dsec_layers.cli.output import Output
from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.model.reference import Kind, Reference

F = TypeVar("F", bound=Callable[..., object])


@dataclass(slots=True)
class Context:
    """The object behind `pass_context`."""

    workbench: Workbench
    output: Output = field(default_factory=Output)


pass_context = click.make_pass_decorator(Context)


def json_option(command: F) -> F:
    """`--json` after the command's name too, where people type it."""

    def switch_on(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            context.ensure_object(Context).output.as_json = True

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=switch_on,
        help="Print the result as JSON.",
    )(command)


class ReferenceType(click.ParamType[Reference]):
    """A `kind/name:tag` argument, completed from the local store; optionally of some kinds only."""

    name = "reference"

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> Reference:
        """Parse; a reference of another kind is InvalidInputError."""
        if isinstance(value, Reference):
            return value
        reference = Reference.parse(str(value))
        if self.kinds and reference.kind not in self.kinds:
            wanted = " or ".join(kind.value for kind in self.kinds)
            raise InvalidInputError(f"{reference} is not of kind {wanted}")
        return reference

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The tags of the local store that start with what was typed."""
        root = context.find_root()
        home = root.params.get("home")
        try:
            bench = Workbench(home) if home else Workbench.default()
            names = [str(reference) for reference, _ in bench.local.tags()]
        except (DsecError, OSError):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
