"""A composition as the rules see it: its layers with their trees, and what each was built on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dsec_layers.api import contents
from dsec_layers.api.why import said
from dsec_layers.errors import NotFoundError
from dsec_layers.model.tree import Entry, EntryKind, Tree


class Part:
    """A layer of a composition.

    `built_on` is the stack of layers that lay below it when it was built, lowest first; None when
    that is not known. A base has an empty one. `lineage` are digests of the bases that a base was
    made of. The tree is read when it is first needed.
    """

    def __init__(
        self,
        name: str,
        digest: str,
        read: Callable[[], Tree],
        built_on: tuple[Part, ...] | None = (),
        lineage: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self.digest = digest
        self.built_on = built_on
        self.lineage = lineage
        self._read = read

    @cached_property
    def tree(self) -> Tree:
        """What this layer alone holds."""
        return self._read()

    @cached_property
    def by_path(self) -> Mapping[bytes, Entry]:
        """The entries by path."""
        return self.tree.by_path()

    def stat(self, path: bytes) -> Entry:
        """The entry at `path` (see `contents.Entries`). Raises NotFoundError."""
        entry = self.by_path.get(path)
        if entry is None:
            raise NotFoundError(f"no such path in {self.name}: {path!r}")
        return entry

    def saw(self, other: Part) -> bool:
        """Whether the layer was built over `other`."""
        return any(each.digest == other.digest for each in self.built_on or ())


class Overlap(NamedTuple):
    """An entry of `upper`, and what would be seen at its path without `upper` and those above."""

    upper: Part
    entry: Entry
    lower: Part
    below: Entry


Same = Callable[[Part, Part, bytes], bool | None]


@dataclass(frozen=True)
class Case:
    """`parts` are lowest first, the base among them first.

    `same` says whether a path, a file of equal size in two parts, has equal contents; None when
    metadata does not tell.
    """

    parts: Sequence[Part]
    same: Same

    @property
    def base(self) -> Part:
        """The lowest."""
        return self.parts[0]

    @cached_property
    def overlaps(self) -> tuple[Overlap, ...]:
        """Every path that a layer has above another one, but the root, in the order of layers."""
        numbers = range(1, len(self.parts))
        return tuple(overlap for number in numbers for overlap in self._overlaps(number))

    def equal(self, one: Part, mine: Entry, other: Part, theirs: Entry) -> bool | None:
        """Whether two entries at one path are the same but for their times."""
        if _fields(mine) != _fields(theirs):
            return False
        return mine.kind is not EntryKind.FILE or self.same(one, other, mine.path)

    def expected(self, overlap: Overlap) -> bool | None:
        """Whether the upper layer was built over just what it lies on now; None when unknown."""
        upper, lower = overlap.upper, overlap.lower
        if upper.saw(lower):
            return True
        if lower is not self.base:
            return False
        if not upper.built_on:
            return None
        then = upper.built_on[0]
        entry = then.by_path.get(overlap.below.path)
        return False if entry is None else self.equal(then, entry, lower, overlap.below)

    def shows(self, number: int, path: bytes) -> bool:
        """Whether nothing above layer `number` hides its entry at `path`."""
        return shown(self.parts, number, path)

    def _overlaps(self, number: int) -> Iterator[Overlap]:
        # The layers below whose directories at a path are one; children are looked for in these.
        merged = {b"": contents.merged(self.parts, range(number), b"")}
        for entry in self.parts[number].tree:
            layers = merged.get(entry.parent)
            if entry.path == b"" or layers is None:
                continue
            place = contents.topmost(self.parts, layers, entry.path)
            if place is None:
                continue
            yield Overlap(self.parts[number], entry, self.parts[place.index], place.entry)
            if entry.kind is place.entry.kind is EntryKind.DIRECTORY:
                merged[entry.path] = place.merged


def shown(parts: Sequence[Part], number: int, path: bytes) -> bool:
    """Whether no layer above `parts[number]` hides its entry at `path`."""
    return not any(said(upper, path).closed for upper in parts[number + 1 :])


def has(parts: Sequence[Part], path: bytes) -> bool:
    """Whether `path`, links followed, leads to something."""
    try:
        contents.find(parts, path)
    except NotFoundError:
        return False
    return True


def had(part: Part, path: bytes) -> bool | None:
    """The same where the layer was built; None when that is not known."""
    return None if part.built_on is None else has((*part.built_on, part), path)


def _fields(entry: Entry) -> tuple[object, ...]:
    owner = (entry.kind, entry.mode, entry.uid, entry.gid, entry.xattrs)
    return (*owner, entry.size, entry.target, entry.major, entry.minor)
