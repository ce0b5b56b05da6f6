"""What a commit tells: the layer, what was left out of it, and what will not be seen of it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dsec_layers.api.opened import text
from dsec_layers.api.rows import LayerRow
from dsec_layers.api.shadowing import Shadowed
from dsec_layers.builder.residue import Dropped
from dsec_layers.model.residue import Residue


class DroppedPath(msgspec.Struct, frozen=True, kw_only=True):
    """A path that was left out as residue, by which rule, and the size of the file."""

    path: str
    rule: str
    bytes: int


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, or what it would be: then `layer` is None.

    `base` is the digest of the base. `changes` counts the paths of the sandbox that go in,
    `shadowed` are those of them that a toolkit hides.
    """

    reference: str
    base: str
    changes: int
    residue: Residue
    dropped: tuple[DroppedPath, ...]
    shadowed: tuple[Shadowed, ...]
    layer: LayerRow | None = None


def rows(dropped: Iterable[Dropped]) -> tuple[DroppedPath, ...]:
    """The dropped paths for people and programs."""
    return tuple(
        DroppedPath(path="/" + text(each.path), rule=each.rule, bytes=each.size_bytes)
        for each in dropped
    )
