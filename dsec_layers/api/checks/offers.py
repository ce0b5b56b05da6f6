"""What layers offer to programs, told by paths: the C library, and Pythons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dsec_layers.api.checks.part import Part, shown
from dsec_layers.model.tree import EntryKind

GLIBC: Final = "glibc"
MUSL: Final = "musl"

Number = tuple[int, ...]

_GLIBC: Final = re.compile(
    rb"(?:usr/)?lib(?:32|64|x32)?/(?:[^/]+-linux-gnu[^/]*/)?libc(?:\.so\.6|-(2\.\d+)\.so)"
)
_MUSL: Final = re.compile(rb"(?:usr/)?lib/ld-musl-[^/]+\.so\.1")
_PYTHON: Final = re.compile(rb"(?:.*/)?lib(?:64)?/python(3\.\d+)/os\.pyc?")
_NAMES: Final = re.compile(rb"libc\.so\.6|libc-2\..*\.so|ld-musl-.*|os\.pyc?")


class Offers(NamedTuple):
    """`libcs` are glibc, musl or both; `glibc` is its version where a file is named after it."""

    libcs: frozenset[str]
    glibc: Number | None
    pythons: frozenset[Number]


def offers(parts: Sequence[Part]) -> Offers:
    """What the composition of `parts`, lowest first, offers."""
    libcs: set[str] = set()
    glibcs: set[Number] = set()
    pythons: set[Number] = set()
    for path in _telling(parts):
        if found := _GLIBC.fullmatch(path):
            libcs.add(GLIBC)
            if found[1]:
                glibcs.add(number(found[1]))
        elif _MUSL.fullmatch(path):
            libcs.add(MUSL)
        elif found := _PYTHON.fullmatch(path):
            pythons.add(number(found[1]))
    return Offers(frozenset(libcs), max(glibcs, default=None), frozenset(pythons))


def number(text: bytes) -> Number:
    """A version of digits and dots, to be compared."""
    return tuple(map(int, text.split(b".")))


def written(numbers: Iterable[Number]) -> str:
    """Versions for people, the least first."""
    return ", ".join(".".join(map(str, each)) for each in sorted(numbers))


def _telling(parts: Sequence[Part]) -> Iterator[bytes]:
    for at, part in enumerate(parts):
        for entry in part.tree:
            is_file = entry.kind in (EntryKind.FILE, EntryKind.SYMLINK)
            if is_file and _NAMES.fullmatch(entry.name) and shown(parts, at, entry.path):
                yield entry.path
