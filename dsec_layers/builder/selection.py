"""The files that a COPY names: patterns resolved in the context, a stage or a layer.

Links are followed as they would be inside: none leads out. What is selected is a Source, so that
it can be hashed and placed like any tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.builder.patterns import IgnoreRules, compile_pattern, has_wildcard
from dsec_layers.chunks.content import hash_content
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import inroot
from dsec_layers.model.content import Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.scan import scan, scan_file

# The first bytes of what ADD would unpack: gzip, bzip2, xz, zstd.
_COMPRESSED: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
_TAR_MAGIC: Final = slice(257, 262)


@dataclass(frozen=True, slots=True)
class Origin:
    """A root that files are copied from. `what` names it in errors."""

    root: Path
    what: str
    rules: IgnoreRules = field(default_factory=IgnoreRules)


@dataclass(frozen=True, slots=True)
class Selected:
    """One match of a source pattern.

    For a directory `source` is what is in it, with the attributes of the directory at its root;
    else it holds the one file, under the name by which it was asked for.
    """

    is_directory: bool
    source: Source


@dataclass(frozen=True, slots=True)
class Identified:
    """A match with the digests of all contents, and without times."""

    is_directory: bool
    tree: Tree


def select(origin: Origin, patterns: Sequence[str]) -> list[Selected]:
    """What `patterns` match, in their order and sorted within one.

    A pattern with wildcards may match nothing as long as another source is there. Raises
    InvalidInputError for a source that is missing or ignored.
    """
    selected: list[Selected] = []
    for pattern in patterns:
        found = [_select(origin, path) for path in _matches(origin, pattern)]
        matches = [match for match in found if match is not None]
        if not matches and not has_wildcard(os.fsencode(pattern)):
            raise _missing(origin, pattern)
        selected += matches
    if patterns and not selected:
        raise _missing(origin, patterns[0])
    return selected


def select_one(origin: Origin, path: str) -> Selected:
    """The file or directory that `path` leads to. Raises InvalidInputError."""
    found = _select(origin, path)
    if found is None:
        raise _missing(origin, path)
    return found


def identify(selected: Sequence[Selected]) -> list[Identified]:
    """Read what is copied: its contents and all attributes but times."""
    return [Identified(one.is_directory, Tree.of(_without_times(one.source))) for one in selected]


def content_digest(identified: Sequence[Identified], *, with_owners: bool) -> str:
    """The identity of what is copied, maybe without owners."""
    parts = []
    for one in identified:
        tree = one.tree if with_owners else Tree(tuple(map(_without_owner, one.tree)))
        parts.append(f"{one.is_directory} {tree.digest()}")
    return str(Digest.sha256("\n".join(parts).encode()))


def refuse_archives(selected: Sequence[Selected]) -> None:
    """Raises InvalidInputError when ADD would have to unpack something."""
    for one in selected:
        for name, content in one.source.contents.items():
            if one.is_directory:
                break
            with open(content.path, "rb") as file:  # noqa: PTH123 # a path of bytes
                head = file.read(512)
            if head.startswith(_COMPRESSED) or head[_TAR_MAGIC] == b"ustar":
                raise InvalidInputError(
                    f"{os.fsdecode(name)} is an archive, and unpacking it is not supported",
                    hint="COPY it and unpack it in a RUN step",
                )


def _without_owner(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, uid=0, gid=0)


def _without_times(source: Source) -> Iterator[Entry]:
    """The entries with the digests of their contents and without times."""
    known: dict[int, bytes] = {}
    for entry in source.tree:
        digest = b""
        if entry.kind is EntryKind.FILE:
            digest = known.get(entry.link_group) or hash_content(
                source.contents[entry.path], entry.size
            )
            if entry.link_group:
                known[entry.link_group] = digest
        yield msgspec.structs.replace(entry, mtime_ns=0, digest=digest)


def _matches(origin: Origin, pattern: str) -> Iterator[str]:
    """The paths that a pattern means, as written and without leading slash; some may not exist."""
    parts = [part for part in re.split("/+", pattern) if part not in ("", ".")]
    paths = [""]
    for part in parts:
        if part == "..":
            paths = [path.rpartition("/")[0] for path in paths]
        elif has_wildcard(os.fsencode(part)):
            paths = [found for path in paths for found in _matches_in(origin, path, part)]
        else:
            paths = [f"{path}/{part}".lstrip("/") for path in paths]
    yield from paths


def _matches_in(origin: Origin, folder: str, part: str) -> list[str]:
    try:
        pattern = compile_pattern(os.fsencode(part))
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    place = inroot.locate(origin.root, folder)
    names = sorted(found.name for found in place.iterdir()) if place.is_dir() else []
    matched = [name for name in names if pattern.fullmatch(os.fsencode(name))]
    return [f"{folder}/{name}".lstrip("/") for name in matched]


def _select(origin: Origin, path: str) -> Selected | None:
    """The file or directory that `path` leads to, or None when it is missing or ignored."""
    inside = os.fsencode(inroot.resolve(origin.root, path).lstrip("/"))
    place = os.path.join(os.fsencode(origin.root), inside) if inside else os.fsencode(origin.root)  # noqa: PTH118
    if not os.path.lexists(place):
        return None
    if os.path.isdir(place):  # noqa: PTH112 # a path of bytes
        source = _kept(scan(place), inside, origin.rules)
        return None if source is None else Selected(True, source)
    if origin.rules.ignores(inside):
        return None
    return Selected(False, scan_file(place, os.fsencode(path).rpartition(b"/")[2]))


def _kept(source: Source, inside: bytes, rules: IgnoreRules) -> Source | None:
    """What is not ignored, and the directories that lead there; None when that is nothing."""
    prefix = inside + b"/" if inside else b""
    kept: set[bytes] = set()
    for entry in reversed(source.tree.entries):
        path = prefix + entry.path if entry.path else inside
        if entry.path in kept or not path or not rules.ignores(path):
            kept.add(entry.path)
            if entry.path:
                kept.add(entry.parent)
    if b"" not in kept:
        return None
    entries = [entry for entry in source.tree if entry.path in kept]
    return Source(Tree.of(entries), {p: c for p, c in source.contents.items() if p in kept})


def _missing(origin: Origin, pattern: str) -> InvalidInputError:
    hint = "a .dockerignore may leave it out" if origin.rules else None
    return InvalidInputError(f"{pattern} is not in {origin.what}", hint=hint)
