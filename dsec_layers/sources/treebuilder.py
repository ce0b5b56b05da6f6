"""The tree that the members of an archive make, one after another, as extraction would.

Paths never leave the tree: `..` in a name is refused, and symlinks on the way to a member are
followed inside the tree, as after chroot. In a layer of an OCI image the whiteout markers become
whiteouts and opaque directories, whatever their place among their siblings, and what the layer
takes for granted (parent directories, targets of hard links) comes from the layers below it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.content import Content, Source
from dsec_layers.model.tree import MAX_NAME_BYTES, ROOT, Entry, EntryKind, Tree
from dsec_layers.sources.attributes import kept
from dsec_layers.sources.tarmember import Member, MemberKind

_MAX_SYMLINKS: Final = 40  # as the kernel
_MAX_PATH_BYTES: Final = 4095
_MAX_ID: Final = 2**32 - 2  # the last one means "no change" to chown(2)
_MAX_TIME_NS: Final = 2**63 - 1
_MAX_FILE_BYTES: Final = 2**63 - 1
# Each takes some 500 bytes of memory, and of an archive next to nothing.
_MAX_ENTRIES: Final = 1 << 22
# Of all paths together: one short member may lie below two thousand directories.
_MAX_PATHS_BYTES: Final = 1 << 30
_WHITEOUT_PREFIX: Final = b".wh."
_META_PREFIX: Final = b".wh..wh."
_OPAQUE_MARKER: Final = b".wh..wh..opq"

_KINDS: Final = {
    MemberKind.FILE: EntryKind.FILE,
    MemberKind.SYMLINK: EntryKind.SYMLINK,
    MemberKind.CHAR: EntryKind.CHAR,
    MemberKind.BLOCK: EntryKind.BLOCK,
    MemberKind.DIRECTORY: EntryKind.DIRECTORY,
    MemberKind.FIFO: EntryKind.FIFO,
}


class TreeBuilder:
    """Takes members in archive order; `finish` gives the Source.

    Raises InvalidInputError for what no tree can hold; the message starts with `name` and names
    the member.
    """

    def __init__(self, *, name: str, lower: Source | None = None) -> None:
        self._name = name
        self._lower = lower.tree.by_path() if lower else {}
        self._lower_contents = lower.contents if lower else {}
        self._entries = {b"": self._lower.get(b"", ROOT)}
        self._contents: dict[bytes, Content] = {}
        self._whiteouts: set[bytes] = set()
        self._opaques: set[bytes] = set()
        self._lifted: dict[bytes, Entry] = {}
        self._groups = 0
        self._paths_bytes = 0
        self._children: dict[bytes, list[bytes]] | None = None  # known when first asked for

    def add(self, member: Member, content: Content | None) -> None:
        """Add one member; `content` belongs to files. The last member of a path wins."""
        path = self._located(member.name)
        if member.kind is MemberKind.LINK:
            self._link(path, member)
        else:
            self._put(self._entry(path, member), content)

    def add_marker(self, name: bytes) -> bool:
        """Take `name` for a whiteout marker of an OCI layer; False when it is not one."""
        parts = self._parts(name, MAX_NAME_BYTES + len(_WHITEOUT_PREFIX))
        if any(part.startswith(_META_PREFIX) and part != _OPAQUE_MARKER for part in parts):
            return True  # bookkeeping of aufs
        last = parts[-1] if parts else b""
        if not last.startswith(_WHITEOUT_PREFIX):
            return False
        parent = self._directory(parts[:-1], name)
        hidden = last.removeprefix(_WHITEOUT_PREFIX)
        if last == _OPAQUE_MARKER:
            self._opaques.add(parent)
        elif hidden in (b"", b".", b".."):
            raise self._refused(name, "is a whiteout of nothing")
        else:
            self._whiteouts.add(_join(parent, hidden))
        return True

    def finish(self) -> Source:
        """The tree of all members, and the places of its contents."""
        for path, entry in self._lifted.items():
            if path not in self._entries and not self._is_hidden(path):
                self._directory(path.split(b"/")[:-1], path)
                self._put(entry, self._lower_contents.get(path))
        for path in self._whiteouts:
            self._entries.setdefault(path, Entry(path=path, kind=EntryKind.WHITEOUT))
        # What this layer has at a path that it also whites out hides all that is below.
        for path in self._whiteouts | self._opaques:
            hiding = self._entries.get(path)
            if hiding is not None and hiding.kind is EntryKind.DIRECTORY:
                self._entries[path] = msgspec.structs.replace(hiding, opaque=True)
        return Source(Tree.of(self._entries.values()), self._contents)

    def _put(self, entry: Entry, content: Content | None) -> None:
        path = entry.path
        known = self._entries.get(path)
        if known is not None and known.kind is EntryKind.DIRECTORY is not entry.kind:
            self._remove_below(path)
        self._admit(path)
        self._entries[path] = entry
        self._contents.pop(path, None)
        if content is not None:
            self._contents[path] = content

    def _admit(self, path: bytes) -> None:
        """Count a path that may be new. Raises InvalidInputError for one too many."""
        if path in self._entries:
            return
        self._paths_bytes += len(path)
        if self._paths_bytes > _MAX_PATHS_BYTES:
            raise self._refused(path, f"is one of paths of more than {_MAX_PATHS_BYTES} bytes")
        if len(self._entries) >= _MAX_ENTRIES:
            raise self._refused(path, f"is one of more than {_MAX_ENTRIES} entries")
        if self._children is not None:
            self._children.setdefault(path.rpartition(b"/")[0], []).append(path)

    def _remove_below(self, path: bytes) -> None:
        if self._children is None:
            self._children = {}
            for known in self._entries:
                self._children.setdefault(known.rpartition(b"/")[0], []).append(known)
        pending = self._children.pop(path, [])
        while pending:
            below = pending.pop()
            pending += self._children.pop(below, [])
            if self._entries.pop(below, None) is not None:
                self._contents.pop(below, None)
                self._paths_bytes -= len(below)

    def _link(self, path: bytes, member: Member) -> None:
        """Give the inode of the member's target one more name."""
        target_path = self._located(member.link)
        if target_path == path:
            return
        is_own = target_path in self._entries
        inodes = self._entries if is_own else self._lifted
        target = inodes.get(target_path)
        if target is None and (below := self._below(target_path)) is not None:
            target = msgspec.structs.replace(below, link_group=0)
        if target is None or target.kind is EntryKind.DIRECTORY:
            raise self._refused(member.name, f"is a hard link to {member.link!r}, which is no file")
        if not target.link_group:
            self._groups += 1
            target = msgspec.structs.replace(target, link_group=self._groups)
            inodes[target_path] = target
        contents = self._contents if is_own else self._lower_contents
        self._put(msgspec.structs.replace(target, path=path), contents.get(target_path))

    def _located(self, name: bytes) -> bytes:
        """The path of a member in the tree, its parents made."""
        parts = self._parts(name)
        if not parts:
            return b""
        path = _join(self._directory(parts[:-1], name), parts[-1])
        if len(path) > _MAX_PATH_BYTES:
            raise self._refused(name, "has a path longer than 4095 bytes")
        return path

    def _parts(self, name: bytes, longest: int = MAX_NAME_BYTES) -> list[bytes]:
        parts = [part for part in name.split(b"/") if part not in (b"", b".")]
        if b".." in parts:
            raise self._refused(name, "has '..' in its path")
        if any(len(part) > longest for part in parts):
            raise self._refused(name, "has a name longer than 255 bytes")
        if sum(map(len, parts)) + len(parts) > _MAX_PATH_BYTES + 1:
            raise self._refused(name, "has a path longer than 4095 bytes")
        return parts

    def _directory(self, parts: list[bytes], name: bytes) -> bytes:
        """The real path of a directory on the way to the member `name`; missing ones are made."""
        path = b"/".join(parts)
        known = self._entries.get(path)
        if known is not None and known.kind is EntryKind.DIRECTORY:
            return path  # and so are its parents
        done = b""
        followed = 0
        todo = parts[::-1]
        while todo:
            part = todo.pop()
            if part == b"..":  # in the target of a symlink
                done = done.rpartition(b"/")[0]
                continue
            if part in (b"", b"."):
                continue
            here = _join(done, part)
            if len(here) > _MAX_PATH_BYTES:
                raise self._refused(name, "has a path longer than 4095 bytes")
            entry = self._entries.get(here) or self._below(here) or _made(here)
            if entry.kind is EntryKind.SYMLINK:
                followed += 1
                todo += entry.target.split(b"/")[::-1]
                done = b"" if entry.target.startswith(b"/") else done
            elif entry.kind is EntryKind.DIRECTORY:
                self._admit(here)
                self._entries.setdefault(here, entry)
                done = here
            else:
                raise self._refused(name, f"lies below {here!r}, which is no directory")
            if followed > _MAX_SYMLINKS:
                raise self._refused(name, "lies behind a loop of symlinks")
        return done

    def _below(self, path: bytes) -> Entry | None:
        """What the lower layers show at `path`."""
        entry = self._lower.get(path)
        return None if entry is None or self._is_hidden(path) else entry

    def _is_hidden(self, path: bytes) -> bool:
        """Whether a marker of this layer hides what the lower layers have at `path`."""
        if path in self._whiteouts:
            return True
        while path:
            path = path.rpartition(b"/")[0]
            if path in self._opaques or path in self._whiteouts:
                return True
        return False

    def _entry(self, path: bytes, member: Member) -> Entry:
        kind = _KINDS[member.kind]
        if path == b"" and kind is not EntryKind.DIRECTORY:
            raise self._refused(member.name, "takes the place of the root directory")
        if kind is EntryKind.SYMLINK and not 0 < len(member.link) <= _MAX_PATH_BYTES:
            raise self._refused(
                member.name, "is a symlink without a target, or with a too long one"
            )
        numbers = (member.uid, member.gid, member.major, member.minor)
        if not all(0 <= number <= _MAX_ID for number in numbers):
            raise self._refused(member.name, "has an owner or device number out of range")
        if abs(member.mtime_ns) > _MAX_TIME_NS:
            raise self._refused(member.name, "has a time before 1677 or after 2262")
        if member.size > _MAX_FILE_BYTES:
            raise self._refused(member.name, "is larger than a file can be")
        try:
            xattrs = tuple(kept(kind, member.xattrs))
        except ValueError as error:
            raise self._refused(member.name, str(error)) from error
        return Entry(
            path=path,
            kind=kind,
            mode=0o777 if kind is EntryKind.SYMLINK else member.mode,
            uid=member.uid,
            gid=member.gid,
            mtime_ns=member.mtime_ns,
            xattrs=xattrs,
            size=member.size,
            target=member.link if kind is EntryKind.SYMLINK else b"",
            major=member.major,
            minor=member.minor,
        )

    def _refused(self, name: bytes, reason: str) -> InvalidInputError:
        shown = name if len(name) <= _MAX_PATH_BYTES else name[:100] + b"..."
        return InvalidInputError(f"{self._name}: {shown!r} {reason}")


def _join(parent: bytes, name: bytes) -> bytes:
    return parent + b"/" + name if parent else name


def _made(path: bytes) -> Entry:
    return msgspec.structs.replace(ROOT, path=path)
