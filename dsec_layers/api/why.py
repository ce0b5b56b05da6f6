"""Why a path of a composition is what it is: what each layer says about it, and which one wins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.contents import Entries
from dsec_layers.api.opened import raw, text
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import Entry, EntryKind


class Says(StrEnum):
    """What a layer alone says about a path."""

    GIVES = "gives"
    REMOVES = "removes"  # a whiteout at the path or at a directory above it
    EMPTIES = "empties"  # a directory above it is opaque: what lower layers have in it is hidden
    REPLACES = "replaces"  # a directory above it is something else here
    NOTHING = "nothing"


class Saying(NamedTuple):
    """What a layer says, the path where it says so, and the entry there, unless it says nothing.

    `closed` says that for this path nothing of lower layers is seen.
    """

    says: Says
    at: bytes = b""
    entry: Entry | None = None
    closed: bool = False


class Judged(NamedTuple):
    """A saying in its composition. The numbers are those of layers, 0 being the lowest.

    `wins` for the layer whose entry is seen; `merges` for directories below it that are one with
    it. `hidden_by` is the layer that hides what this one gives; `hides` are those that it hides.
    """

    saying: Saying
    wins: bool = False
    merges: bool = False
    hidden_by: int | None = None
    hides: tuple[int, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer says about the path. `hidden_by` and `hides` name layers; sizes are bytes."""

    layer: str
    digest: str
    says: Says
    at: str | None
    type: str | None
    mode: str | None
    uid: int | None
    gid: int | None
    size_bytes: int | None
    target: str | None
    wins: bool
    merges: bool
    hidden_by: str | None
    hides: tuple[str, ...]


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The layers from top to bottom. `path` is where links in the directories of it lead.

    `present` says whether the composition has it.
    """

    path: str
    present: bool
    layers: tuple[Row, ...]


def why(bench: Workbench, reference: Reference, path: str) -> Explained:
    """Explain a path of a layer or environment, which need not exist.

    Links in its directories are followed, one at its end is explained itself. Raises NotFoundError
    (the reference), CorruptError or StoreError.
    """
    layers = bench.stack(reference).layers
    with contents.opened(bench, layers) as images:
        place = _real(images, raw(path))
        judged = explain(images, place)
    names = [str(layer) for layer in layers]
    rows = [
        _row(names, layer.descriptor.digest, number, each)
        for number, (layer, each) in enumerate(zip(layers, judged, strict=True))
    ]
    return Explained(
        path="/" + text(place),
        present=any(each.wins for each in judged),
        layers=tuple(reversed(rows)),
    )


def explain(layers: Sequence[Entries], path: bytes) -> list[Judged]:
    """What each layer, lowest first, says about `path`, no links followed, and what comes of it."""
    judged: list[Judged] = []
    winner: int | None = None
    closed_by: int | None = None
    for number in reversed(range(len(layers))):
        saying = said(layers[number], path)
        gives = saying.says is Says.GIVES
        if gives and winner is not None and closed_by is None and not _is_directory(saying):
            closed_by = winner  # a directory above what is none hides all from here on
        wins = gives and winner is None and closed_by is None
        merges = gives and not wins and closed_by is None
        judged.append(Judged(saying, wins, merges, closed_by if gives else None))
        if wins:
            winner = number
        if saying.closed and closed_by is None:
            closed_by = number
    judged.reverse()
    return [each._replace(hides=tuple(_hidden(judged, by))) for by, each in enumerate(judged)]


def said(layer: Entries, path: bytes) -> Saying:
    """What one layer alone says about `path`."""
    emptied: Entry | None = None
    for above in _above(path):
        entry = _stat(layer, above)
        if entry is None:
            return Saying(Says.NOTHING)
        if entry.kind is EntryKind.WHITEOUT:
            return Saying(Says.REMOVES, above, entry, closed=True)
        if entry.kind is not EntryKind.DIRECTORY:
            return Saying(Says.REPLACES, above, entry, closed=True)
        emptied = entry if entry.opaque else emptied
    entry = _stat(layer, path)
    if entry is None and emptied is None:
        return Saying(Says.NOTHING)
    if entry is None or (entry.kind is EntryKind.WHITEOUT and emptied is not None):
        assert emptied is not None
        return Saying(Says.EMPTIES, emptied.path, emptied, closed=True)
    if entry.kind is EntryKind.WHITEOUT:
        return Saying(Says.REMOVES, path, entry, closed=True)
    merges = entry.kind is EntryKind.DIRECTORY and not entry.opaque and emptied is None
    return Saying(Says.GIVES, path, entry, closed=not merges)


def _hidden(judged: Sequence[Judged], by: int) -> Iterator[int]:
    return (number for number, each in enumerate(judged) if each.hidden_by == by)


def _is_directory(saying: Saying) -> bool:
    return saying.entry is not None and saying.entry.kind is EntryKind.DIRECTORY


def _above(path: bytes) -> list[bytes]:
    """The directories above `path`, the root first; none above the root."""
    names = path.split(b"/") if path else []
    return [b"/".join(names[:depth]) for depth in range(len(names))]


def _stat(layer: Entries, path: bytes) -> Entry | None:
    try:
        return layer.stat(path)
    except NotFoundError:
        return None


def _real(layers: Sequence[Entries], path: bytes) -> bytes:
    """`path` without links and dots in its directories, as far as these exist."""
    parent, _, name = path.rstrip(b"/").rpartition(b"/")
    if name in (b"", b".", b".."):
        parent, name = path, b""
    with contextlib.suppress(NotFoundError):
        parent = contents.find(layers, parent)[1].path
    return b"/".join(each for each in (*parent.split(b"/"), name) if each not in (b"", b"."))


def _row(names: Sequence[str], digest: str, number: int, judged: Judged) -> Row:
    entry = judged.saying.entry
    shown = entry if entry and entry.kind is not EntryKind.WHITEOUT else None
    is_file = shown is not None and shown.kind is EntryKind.FILE
    is_link = shown is not None and shown.kind is EntryKind.SYMLINK
    return Row(
        layer=names[number],
        digest=digest,
        says=judged.saying.says,
        at="/" + text(judged.saying.at) if entry else None,
        type=entry.kind.name.lower() if entry else None,
        mode=f"{shown.mode:04o}" if shown else None,
        uid=shown.uid if shown else None,
        gid=shown.gid if shown else None,
        size_bytes=shown.size if shown and is_file else None,
        target=text(shown.target) if shown and is_link else None,
        wins=judged.wins,
        merges=judged.merges,
        hidden_by=names[judged.hidden_by] if judged.hidden_by is not None else None,
        hides=tuple(names[each] for each in judged.hides),
    )
