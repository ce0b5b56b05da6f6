"""The packages that a composition shows, each with the layer that brings it.

Read are the files of package managers that are seen, through the lazy reader. A package with a file
of its own comes from the layer that gives the file. A database lists all packages, and each layer
that installed something has a whole one: a package comes from the lowest layer from which on every
database, up to the one that is seen, lists it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.filedata import FileData, Place
from dsec_layers.api.opened import OpenedLayer, composition, opened, text
from dsec_layers.api.sbom import alpine, debian, npm, pypi, rpm
from dsec_layers.api.sbom.keepers import Keeper, keeper
from dsec_layers.api.sbom.packages import Broken, Package, Parse
from dsec_layers.api.why import Says, said
from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.model.tree import Entry, EntryKind

MAX_NOTES: Final = 200
_MAX_DATABASE_BYTES: Final = 32 << 20
_MAX_SQLITE_BYTES: Final = 1 << 30
_PARSERS: Final[dict[Keeper, tuple[Parse, int]]] = {
    Keeper.DPKG: (debian.parse, _MAX_DATABASE_BYTES),
    Keeper.DPKG_ONE: (debian.parse, 1 << 20),
    Keeper.APK: (alpine.parse, _MAX_DATABASE_BYTES),
    Keeper.PYPI: (pypi.parse, 64 << 20),
    Keeper.NPM: (npm.parse, 1 << 20),
}
_REFUSED: Final = "the database of rpm in this format (Berkeley DB or ndb) is not read"
_RELEASE: Final = re.compile(r"""^(ID|VERSION_ID)=["']?([A-Za-z0-9._-]+)["']?$""", re.MULTILINE)


class Note(msgspec.Struct, frozen=True, order=True):
    """Something that could not be read, or that a layer hides."""

    path: str
    layer: str
    message: str


class Found(msgspec.Struct, frozen=True, order=True):
    """A package, the number of the layer that brings it (0 is the lowest), and where it says so."""

    package: Package
    layer: int
    path: str


class Inventory(msgspec.Struct, frozen=True):
    """What was found, sorted. `release` are ID and VERSION_ID of os-release."""

    found: tuple[Found, ...]
    notes: tuple[Note, ...]
    release: tuple[str, str]


def collect(bench: Workbench, stack: Stack) -> Inventory:
    """Look for packages. Raises CorruptError (of layers), NotFoundError or StoreError."""
    with opened(bench, stack.layers) as layers, work_folder(bench.home.root, "sbom") as folder:
        collector = _Collector(layers, folder)
        shown = composition([layer.tree for layer in layers])
        for number, entry in shown.values():
            kind = keeper(entry.path) if entry.kind is EntryKind.FILE else None
            if kind is not None:
                collector.add(kind, number, entry)
        found = tuple(sorted(collector.found))
        return Inventory(found, collector.told(), collector.release())


class _Collector:
    """Reads files of package managers. `folder` takes a database while it is looked at."""

    def __init__(self, layers: Sequence[OpenedLayer], folder: Path) -> None:
        self.found: list[Found] = []
        self._layers = layers
        self._folder = folder
        self._data = FileData()
        self._notes: list[Note] = []
        self._left_out = 0

    def add(self, kind: Keeper, number: int, entry: Entry) -> None:
        """What the file says that layer `number` gives."""
        if kind is Keeper.RPM_REFUSED:
            self._note(number, entry, _REFUSED)
        elif kind is Keeper.RPM_JOURNAL:
            if entry.size:
                self._note(number, entry, "changes that rpm has not carried over are not read")
        elif kind.whole:
            self._add_database(kind, number, entry)
        else:
            path = text(entry.path)
            packages = self._packages(kind, number, entry)
            self.found += [Found(package, number, path) for package in packages]

    def told(self) -> tuple[Note, ...]:
        """The notes, sorted; of very many only some, and how many more there are."""
        last = (Note("", "", f"{self._left_out} more notes are left out"),)
        return (*sorted(self._notes), *last[: self._left_out])

    def release(self) -> tuple[str, str]:
        """ID and VERSION_ID of os-release(5), empty where it does not say."""
        images = [layer.image for layer in self._layers]
        for path in (b"etc/os-release", b"usr/lib/os-release"):
            try:
                number, entry = contents.find(images, path)
            except NotFoundError:
                continue
            if entry.kind is EntryKind.FILE:
                data = self._data.read(Place(self._layers[number], entry), 0, 64 << 10)
                fields = dict(_RELEASE.findall(data.decode("utf-8", "replace")))
                return fields.get("ID", ""), fields.get("VERSION_ID", "")
        return "", ""

    def _add_database(self, kind: Keeper, number: int, entry: Entry) -> None:
        seen = set(self._packages(kind, number, entry))
        bringers = dict.fromkeys(seen, number)
        still = seen
        for lower, older in self._below(number, entry):
            listed = set(self._packages(kind, lower, older))
            still = still & listed
            bringers |= dict.fromkeys(still, lower)
            self._tell_hidden(number, lower, entry, seen, listed)
        path = text(entry.path)
        self.found += [Found(package, layer, path) for package, layer in bringers.items()]

    def _below(self, number: int, entry: Entry) -> Iterator[tuple[int, Entry]]:
        """The files of the same path that the layer hides, the highest first."""
        for lower in reversed(range(number)):
            saying = said(self._layers[lower].image, entry.path)
            older = saying.entry
            if saying.says is Says.GIVES and older and older.kind is EntryKind.FILE:
                yield lower, older
            elif saying.closed:
                return

    def _tell_hidden(
        self, number: int, lower: int, entry: Entry, seen: set[Package], listed: set[Package]
    ) -> None:
        """A layer that was not built over the other knows nothing of what that one installed."""
        known = {(package.name, package.arch) for package in seen}
        hidden = sum((package.name, package.arch) not in known for package in listed)
        if hidden and self._layers[lower].digest not in self._lineage(number):
            other = self._layers[lower].layer
            self._note(number, entry, f"hides {hidden} packages that {other} lists there")

    def _lineage(self, number: int) -> set[str]:
        """The layers of the composition that a layer was built on."""
        bases = {layer.digest: layer.layer.config.provenance.base for layer in self._layers}
        found: set[str] = set()
        at = bases[self._layers[number].digest]
        while at and at not in found:
            found.add(at)
            at = bases.get(at, "")
        return found

    def _packages(self, kind: Keeper, number: int, entry: Entry) -> Iterator[Package]:
        """The packages of one file; what makes no sense in it becomes a note."""
        try:
            for each in self._parsed(kind, number, entry):
                if isinstance(each, Broken):
                    self._note(number, entry, each.problem)
                else:
                    yield each
        except _UnreadableError as error:
            self._note(number, entry, str(error))

    def _parsed(self, kind: Keeper, number: int, entry: Entry) -> Iterator[Package | Broken]:
        place = Place(self._layers[number], entry)
        parse, limit = _PARSERS.get(kind, (None, _MAX_SQLITE_BYTES))
        if entry.size > limit:
            raise _UnreadableError(f"{entry.size} bytes are more than such a file may have")
        if parse is None:
            path = self._folder / "database"
            with path.open("wb") as file:
                for piece in self._data.stream(place):
                    file.write(piece)
            source = rpm.parse(path)
        else:
            head = pypi.HEAD_BYTES if kind is Keeper.PYPI else entry.size
            source = parse(self._data.read(place, 0, head))
        try:
            yield from source
        except CorruptError as error:
            raise _UnreadableError(error.message) from error

    def _note(self, number: int, entry: Entry, message: str) -> None:
        if len(self._notes) == MAX_NOTES:
            self._left_out += 1
            return
        layer = str(self._layers[number].layer)
        self._notes.append(Note("/" + text(entry.path), layer, message))


class _UnreadableError(Exception):
    """A file of a package manager that is not what it should be; the layer itself is sound."""
