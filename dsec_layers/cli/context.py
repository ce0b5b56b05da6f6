"""What every command gets.

The workbench and the output, and the options that all commands share.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import click

from dsec_layers.api.workbench import Workbench, default_home
from dsec_layers.cli.output import Output
from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.directory import DirectoryStore

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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
        is_eager=True,  # also for what is wrong with the rest of the line
        expose_value=False,
        callback=switch_on,
        help="Print the result as JSON.",
    )(command)


def assignments(given: tuple[str, ...], option: str) -> dict[str, str]:
    """The NAME=VALUE words of an option.

    Without `=` the value is that of our own environment, if it has one, as Docker does it. Raises
    InvalidInputError.
    """
    found = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not name:
            raise InvalidInputError(f"no name in {each!r}", hint=f"write {option} NAME=VALUE")
        if separator:
            found[name] = value
        elif name in os.environ:
            found[name] = os.environ[name]
    return found


class ReferenceType(click.ParamType[Reference]):
    """A `kind/name:tag` argument, completed from the local store; optionally of some kinds only."""

    name = "reference"

    def __init__(self, *kinds: Kind, hint: str | None = None) -> None:
        self.kinds = kinds
        self.hint = hint

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> Reference:
        """Parse; a reference of another kind is InvalidInputError."""
        if isinstance(value, Reference):
            return value
        reference = Reference.parse(str(value))
        if self.kinds and reference.kind not in self.kinds:
            wanted = " or ".join(kind.value for kind in self.kinds)
            raise InvalidInputError(f"{reference} is not of kind {wanted}", hint=self.hint)
        return reference

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The tags of the local store that start with what was typed; nothing is made there."""
        from click.shell_completion import CompletionItem

        home = context.find_root().params.get("home") or default_home()
        try:
            tags = [reference for reference, _ in DirectoryStore.open(home / "store").tags()]
        except (DsecError, OSError):
            return []
        fitting = [tag for tag in tags if not self.kinds or tag.kind in self.kinds]
        return [CompletionItem(name) for name in map(str, fitting) if name.startswith(incomplete)]
