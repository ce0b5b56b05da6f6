"""The git repositories of a sandbox: their garbage, and what scrubbing puts in their place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from dsec_layers.builder import gitgarbage, gitscrub
from dsec_layers.builder.gitscrub import ScrubOptions
from dsec_layers.errors import NotFoundError
from dsec_layers.linux import inroot
from dsec_layers.model.content import Content, LocalFile, Source
from dsec_layers.model.residue import GitScrubbed
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.directory import walk
from dsec_layers.sources.scan import scan_file

_GIT = b".git"


@dataclass(frozen=True, slots=True)
class Repositories:
    """Repositories as the sandbox sees them, at `view`; `work` is a folder for what is made.

    `lowers` are the folders of the layers below it.
    """

    view: Path
    work: Path
    lowers: Sequence[Path]

    def garbage(self, diff: Tree) -> frozenset[bytes]:
        """The loose objects that `diff` adds and nothing leads to, by path."""
        found: set[bytes] = set()
        for number, (path, objects) in enumerate(gitgarbage.loose_objects(diff).items()):
            name, work = os.fsdecode(path), self.work / f"garbage{number}"
            whole = not gitgarbage.removes_objects(diff, path)
            below = [lower / name for lower in self.lowers] if whole else []
            found |= gitgarbage.unreachable(self.view / name, work, objects, below)
        return frozenset(found)

    def scrubbed(
        self, source: Source, options: ScrubOptions
    ) -> tuple[Source, tuple[GitScrubbed, ...]]:
        """The diff `source` with scrubbed repositories, and what was removed of each.

        Raises InvalidInputError for a repository that is refused, NotFoundError for a named one.
        """
        attested = []
        for number, path in enumerate(self._chosen(source.tree, options)):
            folder = self.view / os.fsdecode(path)
            work = self.work / f"scrub{number}"
            name = os.fsdecode(path.removesuffix(b"/" + _GIT)) or "/"
            done = gitscrub.scrub(folder, work, name, shallow=options.shallow)
            attested.append(done.attested)
            source = self._replaced(source, path, _scrubbed(folder, done.folder))
        return source, tuple(attested)

    def _chosen(self, tree: Tree, options: ScrubOptions) -> list[bytes]:
        """The `.git` directories, each followed by those of its submodules inside of it."""
        found = {self._named(name) for name in options.repositories}
        if not options.repositories:
            touched = {path for entry in tree if (path := _repository(entry)) is not None}
            # The work tree of a submodule has a file that points into the repository around it.
            found = {path for path in touched if not (self.view / os.fsdecode(path)).is_file()}
        return [each for path in sorted(found) for each in (path, *self._modules(path))]

    def _modules(self, path: bytes) -> list[bytes]:
        found = []
        for top, folders, _ in os.walk(self.view / os.fsdecode(path) / "modules"):
            if (Path(top) / "HEAD").is_file() and "objects" in folders:
                folders[:] = [name for name in folders if name == "modules"]
                found.append(os.fsencode(Path(top).relative_to(self.view)))
        return sorted(found)

    def _named(self, name: str) -> bytes:
        at = os.fsencode(inroot.resolve(self.view, name)).lstrip(b"/")
        for path in (at + b"/" + _GIT, at):
            if (self.view / os.fsdecode(path) / "HEAD").exists():
                return path.lstrip(b"/")
        raise NotFoundError(f"there is no git repository in {name}")

    def _replaced(self, source: Source, path: bytes, repository: Source) -> Source:
        """`source` with `repository` in the place of all at `path`; it hides what lies below."""
        inside = path + b"/"
        entries = {
            entry.path: entry
            for entry in source.tree
            if entry.path != path and not entry.path.startswith(inside)
        }
        for above in _above(path):
            if above not in entries:
                entries[above] = self._entry(above)
        contents: dict[bytes, Content] = {
            place: content for place, content in source.contents.items() if place in entries
        }
        for entry in repository.tree:
            at = inside + entry.path if entry.path else path
            entries[at] = replace(entry, path=at, link_group=0, opaque=entry.path == b"")
            if entry.kind is EntryKind.FILE:
                contents[at] = repository.contents[entry.path]
        return Source(Tree.of(entries.values()), contents)

    def _entry(self, path: bytes) -> Entry:
        """A directory of the view."""
        found = scan_file(os.fsencode(self.view) + b"/" + path, b"x").tree.entries[-1]
        return replace(found, path=path)


def _scrubbed(folder: Path, result: Path) -> Source:
    """What a `.git` directory becomes: what stays of `folder`, and what was made in `result`."""
    old = walk(folder, mounted=True)
    model = old.tree.entries[0]
    entries = {
        entry.path: entry
        for entry in old.tree
        if entry.path == b"" or gitscrub.is_kept(entry.path) or entry.path == b"info"
    }
    contents = {path: content for path, content in old.contents.items() if path in entries}
    made = walk(result).tree
    for entry in made:
        top = entry.path.partition(b"/")[0]
        if top not in (b"objects", b"packed-refs", b"shallow", b"refs"):
            continue
        if entry.path == b"objects/info/alternates":
            continue
        owned = replace(entry, uid=model.uid, gid=model.gid, mtime_ns=model.mtime_ns, xattrs=())
        entries[entry.path] = owned
        if entry.kind is EntryKind.FILE:
            contents[entry.path] = LocalFile(os.fsencode(result) + b"/" + entry.path)
    return Source(Tree.of(entries.values()), contents)


def _repository(entry: Entry) -> bytes | None:
    """The `.git` directory at or around a path."""
    if entry.kind is EntryKind.WHITEOUT:
        return None
    parts = entry.path.split(b"/")
    return b"/".join(parts[: parts.index(_GIT) + 1]) if _GIT in parts else None


def _above(path: bytes) -> Iterable[bytes]:
    while path:
        path = path.rpartition(b"/")[0]
        yield path
