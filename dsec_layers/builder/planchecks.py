"""What a plan must fulfil: of what platform it is, and which kinds of layers stand on which."""

from __future__ import annotations

from typing import Final

from dsec_layers.builder.layers import ParentLayer
from dsec_layers.builder.scope import Scope
from dsec_layers.builder.stages import Stage
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux.machine import oci_architecture
from dsec_layers.model.reference import Kind

# What other names for architectures mean, as containerd reads them.
_ARCHITECTURES: Final = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64", "i386": "386"}


def check_platform(wanted: str | None, scope: Scope) -> None:
    """Only layers of this machine can be built on. Raises ValueError or InvalidInputError."""
    if wanted is None:
        return
    platform = scope.expand(wanted)
    parts = [_ARCHITECTURES.get(part, part) for part in platform.lower().split("/")]
    if parts[0] != "linux":
        parts.insert(0, "linux")  # the system may be left out
    if len(parts) not in (2, 3) or parts[1] != oci_architecture():
        raise InvalidInputError(
            f"--platform={platform} is not this machine's",
            hint=f"this is linux/{oci_architecture()}, and what is for another cannot run here",
        )


def check_kinds(kind: Kind, parent: ParentLayer | None, stage: Stage) -> None:
    """A layer holds a whole tree, or what it adds to a base or to a layer of its own kind."""
    if kind is Kind.BASE and (parent is None or parent.kind is Kind.BASE):
        return
    if kind is not Kind.BASE and parent is not None and parent.kind in (Kind.BASE, kind):
        return
    below = "scratch" if parent is None else f"{parent.kind.value} layer {parent.reference}"
    takes = "scratch or a base layer" if kind is Kind.BASE else f"a base or a {kind.value} layer"
    raise InvalidInputError(
        f"a {kind.value} cannot be built on {below}",
        where=stage.instruction.where,
        hint=f"build it FROM {takes}",
    )
