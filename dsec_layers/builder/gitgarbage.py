"""Loose git objects that nothing in their repository leads to.

Such are files that were added and replaced, and amended commits that have left the reflog.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dsec_layers.builder import gitshadow
from dsec_layers.errors import DsecError, InvalidInputError
from dsec_layers.linux import git
from dsec_layers.model.tree import Entry, EntryKind, Tree

_LOOSE: Final = re.compile(rb"(.*/|)\.git/objects/([0-9a-f]{2})/([0-9a-f]{38,62})", re.DOTALL)


def loose_objects(diff: Tree) -> dict[bytes, dict[bytes, bytes]]:
    """By path of a `.git` directory: the loose objects that `diff` adds, path by id."""
    found: dict[bytes, dict[bytes, bytes]] = {}
    for entry in diff:
        match = _match(entry)
        if match is not None:
            objects = found.setdefault(match[1] + b".git", {})
            objects[match[2] + match[3]] = entry.path
    return found


def removes_objects(diff: Tree, path: bytes) -> bool:
    """Whether `diff` takes objects away from the repository in the `.git` directory `path`."""
    inside = path + b"/objects"
    return any(
        (entry.kind is EntryKind.WHITEOUT or entry.opaque)
        and (entry.path + b"/").startswith((inside + b"/", path + b"/"))
        for entry in diff
    )


def unreachable(
    folder: Path, work: Path, objects: dict[bytes, bytes], below: Sequence[Path] = ()
) -> set[bytes]:
    """The paths of those of `objects` to which no reference, reflog or index leads.

    None while a merge or the like is under way, and of a repository that is refused: then all stay.
    `folder` is the `.git` directory, `work` a new folder. `below` are the same directory in lower
    layers, with all objects that their references lead to: from there on nothing is walked.
    """
    try:
        gitshadow.check(folder)
        if gitshadow.under_way(folder):
            return set()
        shadow = gitshadow.shadow(folder, work / "shadow")
        known = {tip for lower in below for tip in _tips(lower, work, shadow)}
        # Old objects name no new ones, so what is new is only found among what is new.
        limits = b"".join(b"^" + tip + b"\n" for tip in sorted(known))
        words = ("rev-list", "--objects", "--no-object-names", "--all", "--reflog")
        listed = shadow.run(*words, "--indexed-objects", "--stdin", stdin=limits)
    except (InvalidInputError, DsecError):
        return set()
    reached = set(listed.split())
    return {path for digest, path in objects.items() if digest not in reached}


def _tips(lower: Path, work: Path, shadow: git.Shadow) -> Iterator[bytes]:
    """What the references of a lower `.git` directory name; no link is followed to find them."""
    references = lower / "refs"
    if references.resolve() != references or not references.is_dir():
        return
    with tempfile.TemporaryDirectory(dir=work) as name:
        copy = gitshadow.shadow(lower, Path(name, "lower"), objects=shadow.folder / "objects")
        yield from copy.lines("for-each-ref", "--format=%(objectname)")


def _match(entry: Entry) -> re.Match[bytes] | None:
    return _LOOSE.fullmatch(entry.path) if entry.kind is EntryKind.FILE else None
