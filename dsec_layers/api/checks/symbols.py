"""Programs and libraries that need newer libraries than there are, such as of glibc."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dsec_layers.api import contents
from dsec_layers.api.checks import elf, elfversions
from dsec_layers.api.checks.deep import DeepCase
from dsec_layers.api.checks.elfversions import Version
from dsec_layers.api.checks.finding import Finding, Severity
from dsec_layers.api.checks.part import Part, shown
from dsec_layers.api.opened import text
from dsec_layers.errors import NotFoundError
from dsec_layers.model.tree import EntryKind

RULE = "symbols"

_DIGITS = re.compile(rb"\d+")


def check(deep: DeepCase) -> Iterator[Finding]:
    """An error for versions of symbols that no library of that name has, as the loader would say.

    But info when the layer lacked them where it was built as well. A library that is not there at
    all is the business of another rule, and so is a wrong search path.
    """
    now = _Libraries(deep, deep.case.parts)
    origins: dict[str, _Libraries] = {}
    for program in deep.programs:
        missing = program.versions - now.offered(program.versions)
        if not missing:
            continue
        part = program.part
        lacked = False
        if part.built_on is not None:
            then = origins.setdefault(part.digest, _Libraries(deep, (*part.built_on, part)))
            lacked = not missing <= then.offered(missing)
        newest = max(missing, key=_order)
        yield Finding(
            severity=Severity.INFO if lacked else Severity.ERROR,
            rule=RULE,
            layer=part.name,
            path="/" + text(program.entry.path),
            message=f"needs {text(newest.name)} of {text(newest.library)}, which it does not have",
        )


class _Libraries:
    """The versions that libraries of a composition offer, each read when it is first needed."""

    def __init__(self, deep: DeepCase, parts: Sequence[Part]) -> None:
        self._deep = deep
        self._parts = parts
        self._offered: dict[bytes, frozenset[bytes] | None] = {}
        self._places = _places(parts)

    def offered(self, versions: Iterable[Version]) -> frozenset[Version]:
        """Those of `versions` that are there, or of which the loader would not complain."""
        return frozenset(each for each in versions if self._has(each))

    def _has(self, version: Version) -> bool:
        name = posixpath.basename(version.library)
        if name not in self._offered:
            self._offered[name] = self._of(name)
        offered = self._offered[name]
        return offered is None or version.name in offered

    def _of(self, name: bytes) -> frozenset[bytes] | None:
        """The versions of all libraries of this name; None when one has none, or there is none."""
        found: set[bytes] = set()
        for file in self._files(name):
            versions = elfversions.offered(file)
            if not versions:
                return None
            found |= versions
        return frozenset(found) or None

    def _files(self, name: bytes) -> Iterator[elf.Dynamic]:
        """What is seen under this name, links followed."""
        for at, path in self._places.get(name, ()):
            if not shown(self._parts, at, path):
                continue
            with contextlib.suppress(NotFoundError):
                index, entry = contents.find(self._parts, path)
                if file := elf.dynamic(self._deep.reader(self._parts[index], entry)):
                    yield file


def _places(parts: Sequence[Part]) -> Mapping[bytes, Sequence[tuple[int, bytes]]]:
    """Where shared libraries may be, by the names they are loaded by: part and path."""
    found = defaultdict(list)
    for at, part in enumerate(parts):
        for entry in part.tree:
            if b".so" in entry.name and entry.kind in (EntryKind.FILE, EntryKind.SYMLINK):
                found[entry.name].append((at, entry.path))
    return found


def _order(version: Version) -> tuple[bytes, Sequence[int], bytes]:
    return version.library, tuple(map(int, _DIGITS.findall(version.name))), version.name
