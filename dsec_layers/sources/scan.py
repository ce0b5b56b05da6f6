"""Reading a directory tree of this machine into a Source.

One scandir a directory, one lstat and one llistxattr an entry: this is on the packing path. Paths
are bytes, and `os` is used for speed.
"""

# ruff: noqa: PTH115, PTH116 (pathlib has no paths of bytes)

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from dsec_layers.errors import BusyError, CapabilityMissingError, InvalidInputError, NotFoundError
from dsec_layers.linux import cancelling
from dsec_layers.model.content import LocalFile, Source
from dsec_layers.model.tree import Entry, EntryKind, Tree

Attributes = tuple[tuple[bytes, bytes], ...]
Found = tuple[bytes, bytes, os.stat_result]  # path in the tree, path on this machine, its lstat

_KINDS: Final = {
    stat.S_IFDIR: EntryKind.DIRECTORY,
    stat.S_IFREG: EntryKind.FILE,
    stat.S_IFLNK: EntryKind.SYMLINK,
    stat.S_IFCHR: EntryKind.CHAR,
    stat.S_IFBLK: EntryKind.BLOCK,
    stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFSOCK: EntryKind.SOCKET,
}

# Looking a member up in its enumeration takes ten times as long, and this is done for each entry.
_DIRECTORY: Final = EntryKind.DIRECTORY
_FILE: Final = EntryKind.FILE
_SYMLINK: Final = EntryKind.SYMLINK
_CHAR: Final = EntryKind.CHAR
_BLOCK: Final = EntryKind.BLOCK
# Attributes that bind a file to this host: labels and signatures of its policy, views of a network
# file system.
_HOST_BOUND: Final = frozenset({"security.selinux", "security.ima", "security.evm"})
_POSIX_ACL: Final = "system.posix_acl_"  # the only system.* attributes that are content


def scan(
    root: bytes,
    *,
    exclude: Collection[bytes] = (),
    one_file_system: bool = False,
    host_bound: bool = False,
    states: bool = False,
    translate: Callable[[Entry], Entry] | None = None,
) -> Source:
    """Everything below `root` and the root directory itself, file digests empty.

    `exclude` names paths of the tree to leave out with all below them. With `one_file_system` a
    mount point is kept as an empty directory. With `host_bound` the labels and signatures that bind
    a file to a host are kept: on a mounted image they are content. With `states` contents know
    theirs. `translate` gives the meaning of each entry that is a device or has extended attributes.
    Raises NotFoundError or
    InvalidInputError when `root` is not there or not a directory, BusyError when an entry vanishes
    meanwhile, CapabilityMissingError when one may not be read, and OSError when the disk fails.
    """
    groups: dict[tuple[int, int], int] = {}
    entries: list[Entry] = []
    contents: dict[bytes, LocalFile] = {}
    try:
        for path, place, status in _walk(root, frozenset(exclude), one_file_system):
            entry = _entry(path, place, status, groups, host_bound=host_bound)
            if translate is not None and (entry.xattrs or entry.kind is _CHAR):
                entry = translate(entry)
            if entry.kind is _FILE:
                contents[path] = LocalFile(place, _state(entry, status) if states else None)
            entries.append(entry)
    except OSError as error:
        raise _explain(error) from error
    return Source(Tree.of(entries), contents)


def scan_file(place: bytes, name: bytes) -> Source:
    """The file at `place`, not followed when it is a link, as `name` in an otherwise empty tree.

    Raises what `scan` raises.
    """
    try:
        entry = _entry(name, place, os.lstat(place), {})
    except OSError as error:
        raise _explain(error) from error
    entry = msgspec.structs.replace(entry, link_group=0)
    contents = {name: LocalFile(place)} if entry.kind is _FILE else {}
    return Source(Tree.of([entry]), contents)


def _walk(root: bytes, exclude: frozenset[bytes], one_file_system: bool) -> Iterator[Found]:
    try:
        status = os.stat(root)
    except FileNotFoundError as error:
        raise NotFoundError(f"no such directory: {os.fsdecode(root)}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidInputError(f"not a directory: {os.fsdecode(root)}")
    device = status.st_dev
    yield b"", root, status
    pending = [(b"", root)]
    while pending:
        parent, place = pending.pop()
        with os.scandir(place) as listing:
            cancelling.check()
            for item in listing:
                path = parent + item.name
                if path in exclude:
                    continue
                status = item.stat(follow_symlinks=False)
                yield path, item.path, status
                if stat.S_ISDIR(status.st_mode) and not (
                    one_file_system and status.st_dev != device
                ):
                    pending.append((path + b"/", item.path))


def _entry(
    path: bytes,
    place: bytes,
    status: os.stat_result,
    groups: dict[tuple[int, int], int],
    *,
    host_bound: bool = False,
) -> Entry:
    kind = _KINDS[stat.S_IFMT(status.st_mode)]
    target = os.readlink(place) if kind is _SYMLINK else b""
    is_device = kind is _CHAR or kind is _BLOCK
    group = 0
    if status.st_nlink > 1 and kind is not _DIRECTORY:
        group = groups.setdefault((status.st_dev, status.st_ino), len(groups) + 1)
    return Entry(
        path=path,
        kind=kind,
        mode=status.st_mode & 0o7777,
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        xattrs=_xattrs(place, host_bound=host_bound),
        size=status.st_size if kind is _FILE else 0,
        target=target,
        major=os.major(status.st_rdev) if is_device else 0,
        minor=os.minor(status.st_rdev) if is_device else 0,
        link_group=group,
    )


def _state(entry: Entry, status: os.stat_result) -> tuple[int, int, int, int]:
    return entry.size, entry.mtime_ns, status.st_ctime_ns, status.st_ino


def _xattrs(place: bytes, *, host_bound: bool) -> Attributes:
    try:
        names = os.listxattr(place, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return ()
        raise
    if not names:
        return ()
    kept = [name for name in names if _is_content(name, host_bound=host_bound)]
    return tuple(
        sorted(
            (os.fsencode(name), os.getxattr(place, name, follow_symlinks=False)) for name in kept
        )
    )


def _is_content(name: str, *, host_bound: bool) -> bool:
    if name.startswith("system."):
        return name.startswith(_POSIX_ACL)
    return host_bound or name not in _HOST_BOUND


def _explain(error: OSError) -> Exception:
    place = os.fsdecode(error.filename) if error.filename else "a directory"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODATA):
        return BusyError(
            f"{place} changed while its directory was read",
            hint="stop what writes there, then try again",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return CapabilityMissingError(f"{place} may not be read", hint="run as root")
    if error.errno == errno.ENAMETOOLONG:
        return InvalidInputError(
            f"the path is too long for the kernel: {place[:200]}...",
            hint="read it from a directory with a shorter path",
        )
    return error
