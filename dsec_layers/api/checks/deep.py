"""What rules that read data share: the programs of layers, and what is there to run them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dsec_layers.api.checks import elf, elfversions, shebang
from dsec_layers.api.checks.part import Case, Part, has
from dsec_layers.api.opened import composition
from dsec_layers.model.tree import Entry, EntryKind

Read = Callable[[Part, Entry, int, int], bytes]  # of a file of a part: offset, length


@dataclass(frozen=True)
class Program:
    """A file that can be run, or loaded, and that is seen; what it is, is in one of the two.

    `versions` are those that a binary needs of its libraries.
    """

    part: Part
    entry: Entry
    script: shebang.Shebang | None
    binary: elf.Needs | None
    versions: frozenset[elfversions.Version] = frozenset()


@dataclass(frozen=True)
class DeepCase:
    """`search` are the directories of PATH in the composition."""

    case: Case
    read: Read
    search: Sequence[bytes]

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """Those of the layers above the base. Raises CorruptError, NotFoundError, StoreError."""
        return tuple(self._programs())

    @cached_property
    def libraries(self) -> frozenset[bytes]:
        """The names of all files and links that are seen."""
        return names(self.case.parts)

    def _programs(self) -> Iterator[Program]:
        for number, part in enumerate(self.case.parts[1:], 1):
            for entry in part.tree:
                if not _may_run(entry) or not self.case.shows(number, entry.path):
                    continue
                script = shebang.parse(self.read(part, entry, 0, shebang.HEAD_BYTES))
                if script:
                    yield Program(part, entry, script, None)
                elif binary := elf.dynamic(self.reader(part, entry)):
                    versions = elfversions.needed(binary)
                    yield Program(part, entry, None, binary.needs(), versions)

    def reader(self, part: Part, entry: Entry) -> elf.Read:
        """Reads one file."""
        return lambda offset, length: self.read(part, entry, offset, length)


def names(parts: Sequence[Part]) -> frozenset[bytes]:
    """The last names of all that a composition shows, but directories."""
    shown = composition([part.tree for part in parts]).values()
    return frozenset(
        each.entry.name for each in shown if each.entry.kind is not EntryKind.DIRECTORY
    )


def runs(parts: Sequence[Part], search: Sequence[bytes], program: bytes) -> bool:
    """Whether `program` is in a directory of `search`."""
    return any(has(parts, posixpath.join(folder, program)) for folder in search)


def _may_run(entry: Entry) -> bool:
    if entry.kind is not EntryKind.FILE or entry.size == 0:
        return False
    return bool(entry.mode & 0o111) or entry.name.endswith(b".so") or b".so." in entry.name
