"""Whether a build gives the same again, and if it does not, where the two first differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsec_layers.api.differing import Change, compared
from dsec_layers.api.filedata import FileData, Place, Verdict
from dsec_layers.api.opened import Given, OpenedLayer, opened
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import BuildError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import EntryKind

_SHOWN_BYTES: Final = 16


def check_same(
    bench: Workbench, reference: Reference, first: MountLayer, second: MountLayer, *, epoch: bool
) -> None:
    """Raises BuildError when two builds of `reference` are not the same layer.

    Its message names the first path that differs, with both values, and how many paths do. `epoch`
    says that the builds had one.
    """
    if first.digest == second.digest:
        return
    with opened(bench, (first, second)) as (one, two):
        changes, first_offset = _compare(one, two)
        total = len({entry.path for each in (one, two) for entry in each.tree})
    lines = [f"{reference} cannot be built twice the same: {first.digest} and {second.digest}"]
    if changes:
        lines += [f"    {line}" for line in _described(changes[0], first_offset)]
        lines.append(f"    {len(changes)} of {total} paths differ")
    else:
        lines.append(
            "    no path differs, but names of one file, or what the layers say of themselves"
        )
    raise BuildError("\n".join(lines), hint=None if epoch else _NO_EPOCH)


_NO_EPOCH: Final = "files keep the time at which they were made: set SOURCE_DATE_EPOCH, or --epoch"


def _compare(one: OpenedLayer, two: OpenedLayer) -> tuple[list[Change], str]:
    """All changes from one layer to the other, and how the contents of the first differ."""
    data = FileData()
    left, right = ({entry.path: Given(0, entry) for entry in each.tree} for each in (one, two))

    def places(path: bytes) -> tuple[Place, Place]:
        return Place(one, left[path].entry), Place(two, right[path].entry)

    def compare(path: bytes) -> Verdict:
        return data.compare(*places(path), read=True)

    changes = list(compared(left, right, compare, times=True))
    path = next((path for path in left if changes and _is_at(changes[0], path)), None)
    if path is None or path not in right:
        return changes, ""
    both = left[path].entry, right[path].entry
    are_files = all(entry.kind is EntryKind.FILE for entry in both)
    return changes, _content(data, *places(path)) if are_files else ""


def _is_at(change: Change, path: bytes) -> bool:
    return change.path == "/" + path.decode("utf-8", "backslashreplace")


def _content(data: FileData, one: Place, two: Place) -> str:
    """From which byte on two files differ, and some bytes of both; empty when they do not."""
    offset = 0
    for mine, theirs in _pairs(data.stream(one), data.stream(two)):
        if mine != theirs:
            common = min(len(mine), len(theirs))
            equal = (index for index in range(common) if mine[index] != theirs[index])
            offset += next(equal, common)
            values = (data.read(place, offset, _SHOWN_BYTES) for place in (one, two))
            return f"differ from byte {offset}: {' and '.join(map(repr, values))}"
        offset += len(mine)
    return ""


def _pairs(one: Iterator[bytes], two: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Pieces of two streams of which each is as long as the other, until one of them ends."""
    mine = theirs = b""
    while True:
        mine = mine or next(filter(None, one), b"")
        theirs = theirs or next(filter(None, two), b"")
        common = min(len(mine), len(theirs))
        if not common:
            yield mine, theirs
            return
        yield mine[:common], theirs[:common]
        mine, theirs = mine[common:], theirs[common:]


def _described(change: Change, content: str) -> Iterator[str]:
    if change.status == "A":
        yield f"{change.path}: a {change.type_after} of the second build only"
    elif change.status == "D":
        yield f"{change.path}: a {change.type_before} of the first build only"
    elif change.status == "T":
        yield f"{change.path}: a {change.type_before}, and a {change.type_after}"
    else:
        for detail in change.details:
            if detail.field != "content":
                yield f"{change.path}: {detail.field} {detail.before} and {detail.after}"
        if content:
            yield f"{change.path}: contents {content}"
