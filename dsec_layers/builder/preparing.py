"""All that is known of a build before its first step: what it would do, and advice about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from dsec_layers.builder.layerfile import Layerfile, parse
from dsec_layers.builder.layers import LayerProvider
from dsec_layers.builder.lint import Advice, lint
from dsec_layers.builder.plan import Plan, make_plan
from dsec_layers.builder.request import BuildRequest, find_epoch, read_ignore_rules
from dsec_layers.builder.scope import EPOCH_VARIABLE
from dsec_layers.builder.selection import Origin
from dsec_layers.builder.stepmaking import Options
from dsec_layers.errors import NotFoundError


class Prepared(msgspec.Struct, frozen=True):
    """A build that can begin. `epoch` is SOURCE_DATE_EPOCH; the context has no name (None)."""

    epoch: int | None
    layerfile: Layerfile
    plan: Plan
    contexts: Mapping[str | None, Origin]
    advice: Advice


def prepare(request: BuildRequest, layers: LayerProvider) -> Prepared:
    """Read and plan; nothing is made. Raises InvalidInputError (`file:line`) and NotFoundError."""
    epoch = find_epoch(request)
    layerfile = _read(request.layerfile)
    args = dict(request.args) if epoch is None else {**request.args, EPOCH_VARIABLE: str(epoch)}
    names = frozenset(request.contexts)
    options = Options(
        args, epoch, request.kind, request.name, request.target, names, request.layers
    )
    plan = make_plan(layerfile, options, layers.resolve, layers.image, name=str(request.layerfile))
    contexts = _contexts(request)
    advice = lint(layerfile, plan, contexts[None].rules)
    return Prepared(epoch, layerfile, plan, contexts, advice)


def _contexts(request: BuildRequest) -> dict[str | None, Origin]:
    """The context and those with a name."""
    rules = read_ignore_rules(request.context, request.layerfile)
    contexts: dict[str | None, Origin] = {}
    contexts[None] = Origin(request.context.absolute(), "the context", rules)
    for name, path in request.contexts.items():
        contexts[name] = Origin(path.absolute(), f"the context {name}", read_ignore_rules(path))
    return contexts


def _read(path: Path) -> Layerfile:
    try:
        return parse(path.read_bytes(), name=str(path))
    except FileNotFoundError as error:
        raise NotFoundError(f"no Layerfile at {path}") from error
