"""The ONBUILD instructions of an image, as the first ones of a stage that is built on it."""

from __future__ import annotations

from dsec_layers.builder.instructions import Statement, interpret
from dsec_layers.builder.layerfile import parse
from dsec_layers.builder.layers import ParentLayer
from dsec_layers.builder.meanings import Copy, From, Layer, Run
from dsec_layers.errors import InvalidInputError


def triggered(parent: ParentLayer) -> tuple[Statement, ...]:
    """What the image behind `parent` wants done first in each build on it.

    Raises InvalidInputError for what cannot be understood or looks into other stages.
    """
    if not parent.triggers:
        return ()
    name = f"ONBUILD of {parent.image or parent.reference}"
    statements = tuple(interpret(parse("\n".join(parent.triggers).encode(), name=name)))
    for statement in statements:
        meaning = statement.meaning
        looks = isinstance(meaning, Copy) and bool(meaning.origin)
        mounts = meaning.mounts if isinstance(meaning, Run) else ()
        if looks or any(mount.origin for mount in mounts) or isinstance(meaning, From | Layer):
            raise InvalidInputError(
                f"{statement.instruction.keyword} cannot be a trigger here",
                where=statement.instruction.where,
                hint="build FROM the image that this one was made of, with the lines written out",
            )
    return statements
