"""The files that a COPY names: patterns resolved in the context, a stage or a layer.

Links are followed as they would be inside: none leads out. What is selected is a Source, so that
it can be hashed and placed like any tree.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from dsec_layers.builder.hashing import file_digests
from dsec_layers.builder.patterns import IgnoreRules, compile_pattern, has_wildcard
from dsec_layers.builder.steps import CopyStep
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import inroot
from dsec_layers.model.content import Source
from dsec_layers.model.digest import Digest
from dsec_layers.model.tree import Entry, Tree
from dsec_layers.sources.archive import is_tar
from dsec_layers.sources.scan import scan, scan_file


class Origin(msgspec.Struct, frozen=True):
    """A root that files are copied from. `what` names it in errors."""

    root: Path
    what: str
    rules: IgnoreRules = msgspec.field(default_factory=IgnoreRules)


class Selected(msgspec.Struct, frozen=True):
    """One match of a source pattern.

    For a directory `source` is what is in it, with the attributes of the directory at its root;
    else it holds the one file, under the name by which it was asked for.
    """

    is_directory: bool
    source: Source
    is_archive: bool = False  # which ADD unpacks


class Identified(msgspec.Struct, frozen=True):
    """A match with the digests of all contents, and without times."""

    what: str
    tree: Tree


def select(origin: Origin, patterns: Sequence[str]) -> list[Selected]:
    """What `patterns` match, in their order and sorted within one.

    A pattern with wildcards may match nothing as long as another source is there. Raises
    InvalidInputError for a source that is missing or ignored.
    """
    return _gather(
        origin,
        patterns,
        lambda pattern: (_select(origin, path) for path in _matches(origin, pattern)),
    )


def select_with_parents(origin: Origin, patterns: Sequence[str]) -> list[Selected]:
    """What `patterns` match with the directories above, or those after a `/./` in the pattern.

    Every match lies in a tree, at its own path; `**` stands for any number of directories. Errors
    are those of `select`.
    """

    def found(pattern: str) -> Iterator[Selected | None]:
        pivot, _, rest = pattern.rpartition("/./")
        return (_with_parents(origin, base, rest) for base in _matches(origin, pivot))

    return _gather(origin, patterns, found)


def _gather(
    origin: Origin,
    patterns: Sequence[str],
    find: Callable[[str], Iterable[Selected | None]],
) -> list[Selected]:
    """What `find` finds for all patterns; one without wildcards must match, and one of all must."""
    selected: list[Selected] = []
    for pattern in patterns:
        matches = [match for match in find(pattern) if match is not None]
        if not matches and not has_wildcard(os.fsencode(pattern)):
            raise _missing(origin, pattern)
        selected += matches
    if patterns and not selected:
        raise _missing(origin, patterns[0])
    return selected


def _with_parents(origin: Origin, base: str, pattern: str) -> Selected | None:
    below = _select(origin, base)
    if below is None or not below.is_directory:
        return None
    wanted = os.fsencode(posixpath.normpath(f"/{pattern}").lstrip("/"))
    try:
        matcher = compile_pattern(wanted)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    matched: set[bytes] = set()
    for entry in below.source.tree:
        if entry.path in matched or matcher.fullmatch(entry.path) or entry.parent in matched:
            matched.add(entry.path)
    kept = set(matched)
    for path in matched:
        while path:
            path = path.rpartition(b"/")[0]
            kept.add(path)
    return Selected(True, _only(below.source, kept)) if matched else None


def _only(source: Source, paths: set[bytes]) -> Source:
    entries = [entry for entry in source.tree if entry.path in paths]
    contents = {path: content for path, content in source.contents.items() if path in paths}
    return Source(Tree.of(entries), contents)


def select_for(step: CopyStep, origin: Origin) -> list[Selected]:
    """What a COPY or ADD takes from `origin`. Raises InvalidInputError."""
    choose = select_with_parents if step.parents else select
    selected = choose(origin, step.sources)
    if step.excludes:
        selected = leave_out(selected, step.excludes)
    return mark_archives(selected) if step.extracts else selected


def select_one(origin: Origin, path: str) -> Selected:
    """The file or directory that `path` leads to. Raises InvalidInputError."""
    found = _select(origin, path)
    if found is None:
        raise _missing(origin, path)
    return found


def identify(selected: Sequence[Selected]) -> list[Identified]:
    """Read what is copied: its contents and all attributes but times."""
    return [Identified(_form(one), Tree.of(_without_times(one.source))) for one in selected]


def _form(one: Selected) -> str:
    return "archive" if one.is_archive else str(one.is_directory)


def content_digest(identified: Sequence[Identified], *, with_owners: bool) -> str:
    """The identity of what is copied, maybe without owners."""
    parts = []
    for one in identified:
        tree = one.tree if with_owners else Tree(tuple(map(_without_owner, one.tree)))
        parts.append(f"{one.what} {tree.digest()}")
    return str(Digest.sha256("\n".join(parts).encode()))


def mark_archives(selected: Sequence[Selected]) -> list[Selected]:
    """Find what ADD has to unpack: files that are archives, whatever their names."""
    return [
        msgspec.structs.replace(one, is_archive=not one.is_directory and _is_archive(one))
        for one in selected
    ]


def _is_archive(one: Selected) -> bool:
    for content in one.source.contents.values():
        with open(content.path, "rb") as file:  # noqa: PTH123 # a path of bytes
            return is_tar(file)
    return False


def leave_out(selected: Sequence[Selected], patterns: Sequence[str]) -> list[Selected]:
    """Without what `--exclude` names: below a directory, or a file by its name.

    Raises InvalidInputError.
    """
    try:
        rules = IgnoreRules.parse(b"\n".join(map(os.fsencode, patterns)))
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    kept = [(one, _kept(one.source, b"", rules)) for one in selected]
    return [
        msgspec.structs.replace(one, source=source)
        for one, source in kept
        if source is not None and (one.is_directory or len(source.tree.entries) > 1)
    ]


def _without_owner(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, uid=0, gid=0)


def _without_times(source: Source) -> Iterator[Entry]:
    """The entries with the digests of their contents and without times."""
    digests = file_digests(source)
    for entry in source.tree:
        yield msgspec.structs.replace(entry, mtime_ns=0, digest=digests.get(entry.path, b""))


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
    return _only(source, kept)


def _missing(origin: Origin, pattern: str) -> InvalidInputError:
    hint = "a .dockerignore may leave it out" if origin.rules else None
    return InvalidInputError(f"{pattern} is not in {origin.what}", hint=hint)
