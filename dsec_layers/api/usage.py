"""What directories take: the sizes of the files in them, and their share of what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.filedata import Place, pieces
from dsec_layers.api.opened import Given, OpenedLayer, composition, opened, raw, text
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import EntryKind


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """A directory with all below it.

    `size_bytes` sums file sizes, a file with several names once. `stored_bytes` is what the chunks
    of the files take in packs, each by its share; files of a layer with the same content share a
    place, which counts for the first of them. `files` counts names.
    """

    path: str
    files: int
    size_bytes: int
    stored_bytes: int


class Share(NamedTuple):
    """What one name of a file adds to the directories above it."""

    path: bytes
    size_bytes: int
    stored_bytes: float


def usage(
    bench: Workbench, reference: Reference, path: str = "/", depth: int | None = None
) -> list[Usage]:
    """The directories at and below `path`, at most `depth` names below it, the largest first.

    Links in `path` are followed; a file stands for itself. Reads metadata only. Raises
    NotFoundError, CorruptError or StoreError.
    """
    with opened(bench, bench.stack(reference).layers) as layers:
        top = contents.find([layer.image for layer in layers], raw(path))[1].path
        prefix = top + b"/" if top else b""
        shown = composition([layer.tree for layer in layers]).values()
        given = [
            each for each in shown if each.entry.path == top or each.entry.path.startswith(prefix)
        ]
        shares = list(_shares(layers, given))
    folders = [each.entry.path for each in given if each.entry.kind is EntryKind.DIRECTORY]
    return summed(top, folders, shares, depth)


def summed(
    top: bytes, folders: Iterable[bytes], shares: Iterable[Share], depth: int | None = None
) -> list[Usage]:
    """The sums of `shares` at `top` and the `folders` below it, largest first, then by path."""
    names = {top: 0, **{path: _depth(path) - _depth(top) for path in folders}}
    sums = {path: [0, 0, 0.0] for path, below in names.items() if depth is None or below <= depth}
    for share in shares:
        for path in _up(share.path, top):
            if path in sums:
                row = sums[path]
                row[0] += 1
                row[1] += share.size_bytes
                row[2] += share.stored_bytes
    rows = [
        Usage(
            path="/" + text(path),
            files=int(files),
            size_bytes=int(size),
            stored_bytes=round(stored),
        )
        for path, (files, size, stored) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.size_bytes, row.path))


def _shares(layers: Sequence[OpenedLayer], given: Iterable[Given]) -> Iterator[Share]:
    groups: set[int] = set()
    places: set[tuple[int, int]] = set()  # layer, device offset
    for number, entry in given:
        if entry.kind is not EntryKind.FILE:
            continue
        if entry.link_group in groups:
            yield Share(entry.path, 0, 0)
            continue
        if entry.link_group:
            groups.add(entry.link_group)
        stored = 0.0
        for piece in pieces(Place(layers[number], entry)):
            place = (number, piece.chunk.device_offset + piece.start)
            if place not in places:
                places.add(place)
                stored += piece.length * piece.chunk.stored_length / piece.chunk.length
        yield Share(entry.path, entry.size, stored)


def _depth(path: bytes) -> int:
    return path.count(b"/") + 1 if path else 0


def _up(path: bytes, top: bytes) -> Iterator[bytes]:
    """`path` and the directories above it, up to `top`."""
    while path != top:
        yield path
        path = path.rpartition(b"/")[0]
    yield top
