"""Changes of a sandbox that its toolkits would hide, were they put into the workspace below."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsec_layers.api.contents import Entries
from dsec_layers.api.opened import text
from dsec_layers.api.why import Saying, Says, said
from dsec_layers.model.tree import Entry, EntryKind, Tree


class Shadowed(msgspec.Struct, frozen=True, kw_only=True):
    """A changed path, which `toolkit` has above the workspace. `removed`: it was removed."""

    path: str
    toolkit: str
    removed: bool


def shadowed(diff: Tree, toolkits: Sequence[tuple[str, Entries]]) -> tuple[Shadowed, ...]:
    """What of `diff` is not seen below `toolkits` (names and entries, lowest first)."""
    found = []
    for entry in diff:
        for name, layer in reversed(toolkits):
            saying = said(layer, entry.path)
            if saying.says is Says.NOTHING or not entry.path:
                continue
            if not _agree(entry, saying):
                removed = entry.kind is EntryKind.WHITEOUT
                found.append(Shadowed(path="/" + text(entry.path), toolkit=name, removed=removed))
            break
    return tuple(found)


def _agree(entry: Entry, saying: Saying) -> bool:
    """Whether the toolkit above shows what the sandbox shows."""
    if entry.kind is EntryKind.WHITEOUT:
        return saying.says is not Says.GIVES
    above = saying.entry
    if saying.says is not Says.GIVES or above is None:
        return False
    if entry.opaque or entry.kind is not EntryKind.DIRECTORY or above.kind is not entry.kind:
        return False
    return (entry.mode, entry.uid, entry.gid, entry.xattrs) == (
        *(above.mode, above.uid, above.gid, above.xattrs),
    )
