"""Trees with contents for property tests, the content digest in plain words, and a tree on a disk.

`trees()` draws `(Tree, {path: bytes})`. Every file has its digest, and the mapping has each name of
every file, hard links included. All that is drawn can be put on ext4 by root (`materialise`): ids,
times, xattrs and names stay within what the kernel accepts there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import blake3
import msgspec
from hypothesis import strategies as st

from dsec_layers.model.tree import BLOCK_SIZE, Entry, EntryKind, Tree, sparse_content_hasher

Contents = dict[bytes, bytes]

_ZEROS = bytes(BLOCK_SIZE)
_NAME_BYTES = b"ab-!. \n\\'\"\xff\xc3"
# From what ext4 keeps (1901, its first second without nanoseconds) to what a tree keeps (2262).
_EARLIEST_NS, _LATEST_NS = -(2**31 - 1) * 10**9, 2**63 - 1
_LARGEST_ID = 2**32 - 2
_TYPE_BITS = {
    EntryKind.CHAR: stat.S_IFCHR,
    EntryKind.BLOCK: stat.S_IFBLK,
    EntryKind.FIFO: stat.S_IFIFO,
    EntryKind.SOCKET: stat.S_IFSOCK,
}


def data_runs(data: bytes) -> list[tuple[int, int]]:
    """The maximal runs (offset, length) of 4 KiB blocks that are not all zeros.

    The last run may end with the data.
    """
    runs: list[tuple[int, int]] = []
    for offset in range(0, len(data), BLOCK_SIZE):
        block = data[offset : offset + BLOCK_SIZE]
        if not any(block):
            continue
        if runs and sum(runs[-1]) == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + len(block))
        else:
            runs.append((offset, len(block)))
    return runs


def content_digest(data: bytes) -> bytes:
    """The 32-byte content digest that the tree model defines, computed the slow and obvious way."""
    runs = data_runs(data)
    if sum(length for _, length in runs) == len(data):
        return blake3.blake3(data).digest()
    hasher = sparse_content_hasher(len(data), runs)
    for offset, length in runs:
        hasher.update(data[offset : offset + length])
    return hasher.digest()


def names() -> st.SearchStrategy[bytes]:
    """File names with the bytes that break things, look-alikes of markers, and 255-byte names."""
    short = st.lists(st.sampled_from(list(_NAME_BYTES)), min_size=1, max_size=5).map(bytes)
    odd = st.sampled_from(
        [b".wh.a", b".wh..wh..opq", b"...", b"..a", b"-", b"a" * 254, b"\xfe" * 255, b"a b"]
    )
    return st.one_of(short, short, odd).filter(lambda name: name not in (b".", b".."))


def file_contents() -> st.SearchStrategy[bytes]:
    """Contents from empty to a few blocks, with zero blocks at the start, middle and end."""
    block = st.sampled_from([_ZEROS, _ZEROS, b"x" * BLOCK_SIZE, b"\0" * (BLOCK_SIZE - 1) + b"y"])
    tail = st.one_of(st.just(b""), st.just(bytes(77)), st.binary(max_size=64))
    return st.one_of(
        tail,
        st.builds(lambda blocks, end: b"".join(blocks) + end, st.lists(block, max_size=5), tail),
    )


_XATTR_PREFIXES = {True: [b"user.", b"trusted.", b"security."], False: [b"trusted.", b"security."]}
_XATTR_REST = [b"a", b"b.c", b"\xff\n"]
_OVERLAY_XATTRS = [
    b"trusted.overlay.opaque",
    b"trusted.overlay.whiteout",
    b"trusted.overlay.overlay.opaque",
]


@st.composite
def _xattrs(draw: st.DrawFn, *, user: bool) -> tuple[tuple[bytes, bytes], ...]:
    plain = st.builds(
        bytes.__add__, st.sampled_from(_XATTR_PREFIXES[user]), st.sampled_from(_XATTR_REST)
    )
    name = st.one_of(plain, plain, st.sampled_from(_OVERLAY_XATTRS))
    value = st.one_of(st.just(b"y"), st.binary(max_size=40))
    return tuple(sorted(draw(st.dictionaries(name, value, max_size=3)).items()))


@st.composite
def _metadata(draw: st.DrawFn, kind: EntryKind) -> Entry:
    """An entry of `kind` without path and content."""
    if kind is EntryKind.WHITEOUT:
        return Entry(path=b"", kind=kind)
    ids = st.one_of(st.just(0), st.integers(0, _LARGEST_ID))
    major, minor, target = 0, 0, b""
    if kind in (EntryKind.CHAR, EntryKind.BLOCK):
        # Device 0:0 is what overlay takes for a whiteout; here it is content.
        major, minor = draw(
            st.one_of(st.just((0, 0)), st.tuples(st.integers(0, 4095), st.integers(0, 2**20 - 1)))
        )
    if kind is EntryKind.SYMLINK:
        target = draw(
            st.one_of(
                st.just(b"../a"), st.just(b"t" * 4095), st.lists(names(), min_size=1).map(b"/".join)
            )
        )
    return Entry(
        path=b"",
        kind=kind,
        mode=0o777 if kind is EntryKind.SYMLINK else draw(st.integers(0, 0o7777)),
        uid=draw(ids),
        gid=draw(ids),
        mtime_ns=draw(
            st.one_of(
                st.sampled_from([0, -1, 2**32 * 10**9 + 1]), st.integers(_EARLIEST_NS, _LATEST_NS)
            )
        ),
        xattrs=draw(_xattrs(user=kind in (EntryKind.FILE, EntryKind.DIRECTORY))),
        target=target[:4095],
        major=major,
        minor=minor,
    )


@st.composite
def trees(draw: st.DrawFn, *, changes: bool = True, max_inodes: int = 12) -> tuple[Tree, Contents]:
    """A tree of up to `max_inodes` inodes besides the root, with the bytes of its files by path.

    With `changes` it may be what a layer changes, with whiteouts and opaque directories; without,
    it is a whole tree.
    """
    kinds = [kind for kind in EntryKind if changes or kind is not EntryKind.WHITEOUT]
    weighted = [EntryKind.DIRECTORY, EntryKind.DIRECTORY, EntryKind.FILE, EntryKind.FILE, *kinds]
    root = draw(_metadata(EntryKind.DIRECTORY))
    entries: dict[bytes, Entry] = {b"": root}
    contents: Contents = {}
    directories = [b""]
    for group in range(1, draw(st.integers(0, max_inodes)) + 1):
        entry = draw(_metadata(draw(st.sampled_from(weighted))))
        count = 1
        data = b""
        if entry.kind is EntryKind.FILE:
            data = draw(file_contents())
            entry = msgspec.structs.replace(entry, size=len(data), digest=content_digest(data))
        if entry.kind is EntryKind.DIRECTORY:
            entry = msgspec.structs.replace(entry, opaque=changes and draw(st.booleans()))
        elif entry.kind is not EntryKind.WHITEOUT:
            count = draw(st.sampled_from([1, 1, 1, 2, 3]))
        for _ in range(count):
            parent, name = draw(st.sampled_from(directories)), draw(names())
            path = parent + b"/" + name if parent else name
            if path in entries or len(path) > 3800:
                continue
            entries[path] = msgspec.structs.replace(
                entry, path=path, link_group=group if count > 1 else 0
            )
            if entry.kind is EntryKind.FILE:
                contents[path] = data
            elif entry.kind is EntryKind.DIRECTORY:
                directories.append(path)
    return Tree.of(entries.values()), contents


def materialise(tree: Tree, contents: Contents, root: Path) -> None:
    """Put a whole tree (no whiteouts, nothing opaque) below the existing directory `root`, as root.

    Zero blocks become holes. The result has every field of the tree: ids come before modes and
    xattrs, because a new owner takes away capabilities and set-id bits; times come last.
    """
    base = os.fsencode(root)
    first_names: dict[int, bytes] = {}
    for entry in tree:
        path = base + b"/" + entry.path if entry.path else base
        if entry.link_group in first_names:
            os.link(first_names[entry.link_group], path, follow_symlinks=False)
            continue
        if entry.link_group:
            first_names[entry.link_group] = path
        _create(entry, contents, path)
        _set_attributes(entry, path)
    for entry in reversed(tree.entries):
        path = base + b"/" + entry.path if entry.path else base
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)


def _create(entry: Entry, contents: Contents, path: bytes) -> None:
    match entry.kind:
        case EntryKind.DIRECTORY if not entry.opaque:
            if entry.path:
                os.mkdir(path)
        case EntryKind.FILE:
            write_sparse(path, contents[entry.path])
        case EntryKind.SYMLINK:
            os.symlink(entry.target, path)
        case EntryKind.CHAR | EntryKind.BLOCK | EntryKind.FIFO | EntryKind.SOCKET:
            os.mknod(path, _TYPE_BITS[entry.kind] | 0o600, os.makedev(entry.major, entry.minor))
        case _:
            raise ValueError(f"{entry.path!r} belongs to a change, not to a whole tree")


def write_sparse(path: bytes, data: bytes) -> None:
    """Write a file whose zero blocks are holes."""
    with open(path, "wb") as file:
        for offset, length in data_runs(data):
            file.seek(offset)
            file.write(data[offset : offset + length])
        file.truncate(len(data))


def _set_attributes(entry: Entry, path: bytes) -> None:
    os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    if entry.kind is not EntryKind.SYMLINK:
        os.chmod(path, entry.mode)
    for name, value in entry.xattrs:
        os.setxattr(path, name, value, follow_symlinks=False)
