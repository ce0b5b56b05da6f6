"""Checks of mounted trees: every field of every entry, and every byte of every file."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec.structs import replace

from dsec_layers.chunks.content import hash_content
from dsec_layers.chunks.frame import decode_chunk
from dsec_layers.chunks.table import ChunkTable
from dsec_layers.erofs.planning import Extent
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import BusyError, CorruptError, DsecError
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.report import Findings
from dsec_layers.model import escaping, merge
from dsec_layers.model.content import Content, Source
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.sources.scan import scan

Progress = Callable[[int], None]

_READERS = 8  # each holds one file of up to 8 MiB, or a piece of a larger one
_FILES_A_TASK = 64

_Job = tuple[Entry, Content]


def check_layer_tree(
    layer: MountLayer,
    folder: Path,
    image: ErofsImage,
    table: ChunkTable | None,
    findings: Findings,
    progress: Progress,
) -> Tree:
    """Compare the EROFS mount at `folder` with the packed tree; the tree that the kernel shows.

    The fields are compared with what our own reader finds in the image, fields and contents
    together by the tree digest in the config. Digests of files that cannot be read are empty.
    """
    with _short_path(folder) as root:
        source = _scan(root, escaping.from_stored)
        difference = first_difference(Tree.of(image.walk()), source.tree)
        if difference:
            findings.problem(difference)
        tree = _read_contents(source, findings, progress)
        if not _is_complete(tree) or str(tree.digest()) == layer.config.tree_digest:
            return tree
        wrong = _first_wrong_content(layer, source, image, table) if table else None
        findings.problem(
            wrong or f"the tree digest is {tree.digest()}, not {layer.config.tree_digest}"
        )
        return tree


def check_composed_tree(
    target: Path, layers: Sequence[Tree], findings: Findings, progress: Progress
) -> None:
    """Compare the overlay at `target` with the trees of its layers, lowest first, laid together."""
    expected = functools.reduce(merge.apply, layers, Tree.of(()))
    with _short_path(target) as root:
        source = _scan(root, escaping.from_overlay)
        tree = _read_contents(source, findings, progress)
    if not (_is_complete(tree) and _is_complete(expected)):
        findings.problem("some contents cannot be read, so only the other fields are compared")
        tree, expected = _without_digests(tree), _without_digests(expected)
    if difference := first_difference(expected, tree):
        findings.problem(difference)


def first_difference(expected: Tree, found: Tree) -> str | None:
    """The first path and field in which two trees differ, in words; None when they are equal."""
    others = found.by_path()
    for entry in expected:
        other = others.pop(entry.path, None)
        if other is None:
            return f"{entry.path!r} is missing"
        for field in Entry.__struct_fields__:
            right, wrong = getattr(entry, field), getattr(other, field)
            if right != wrong:
                return f"{entry.path!r} has the {field} {wrong!r}, not {right!r}"
    return next((f"{path!r} should not be there" for path in others), None)


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[bytes]:
    """Another name of `folder` that leaves room for the longest paths below it."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield b"/proc/self/fd/%d/." % fd
    finally:
        os.close(fd)


def _scan(root: bytes, translate: Callable[[Entry], Entry]) -> Source:
    try:
        return scan(root, host_bound=True, translate=translate)
    except BusyError as error:  # nobody writes here, so nothing can have vanished
        raise CorruptError(f"a folder lists what is not there: {error.message}") from error


def _read_contents(source: Source, findings: Findings, progress: Progress) -> Tree:
    """The tree of `source` with the digests of what can be read; each inode is read once."""
    jobs: dict[object, _Job] = {}
    for entry in source.tree:
        if entry.kind is EntryKind.FILE:
            jobs.setdefault(_inode(entry), (entry, source.contents[entry.path]))
    listed = list(jobs.values())
    tasks = [listed[at : at + _FILES_A_TASK] for at in range(0, len(listed), _FILES_A_TASK)]
    digests: dict[object, bytes] = {}
    with ThreadPoolExecutor(_READERS) as pool:
        for results in pool.map(_hash_files, tasks):
            for entry, result in results:
                if isinstance(result, bytes):
                    digests[_inode(entry)] = result
                    findings.size_bytes += entry.size
                    progress(entry.size)
                else:
                    findings.problem(f"{entry.path!r} cannot be read: {result}")
    return Tree.of(_with_digest(entry, digests) for entry in source.tree)


def _inode(entry: Entry) -> object:
    return entry.link_group or entry.path


def _with_digest(entry: Entry, digests: Mapping[object, bytes]) -> Entry:
    if entry.kind is not EntryKind.FILE:
        return entry
    return replace(entry, digest=digests.get(_inode(entry), b""))


def _hash_files(jobs: Sequence[_Job]) -> list[tuple[Entry, bytes | Exception]]:
    results: list[tuple[Entry, bytes | Exception]] = []
    for entry, content in jobs:
        try:
            results.append((entry, hash_content(content, entry.size)))
        except (OSError, DsecError) as error:
            results.append((entry, error))
    return results


def _is_complete(tree: Tree) -> bool:
    return all(entry.digest for entry in tree if entry.kind is EntryKind.FILE)


def _without_digests(tree: Tree) -> Tree:
    return Tree.of(replace(entry, digest=b"") for entry in tree)


def _first_wrong_content(
    layer: MountLayer, source: Source, image: ErofsImage, table: ChunkTable
) -> str | None:
    """The first file that differs from what the packs hold, and where."""

    @functools.lru_cache(maxsize=4)
    def chunk(index: int) -> bytes:
        wanted = table[index]
        pack = layer.manifest.packs[wanted.pack]
        stored = layer.blobs.read(pack, wanted.pack_offset, wanted.stored_length)
        return decode_chunk(stored, wanted.length, wanted.digest)

    for entry in source.tree:
        if entry.kind is EntryKind.FILE:
            place, extents = source.contents[entry.path].path, image.extents(entry.path)
            at = _first_wrong_byte(place, extents, table, chunk)
            if at is not None:
                return f"{entry.path!r} differs from its chunks at byte {at}"
    return None


def _first_wrong_byte(
    place: bytes, extents: Sequence[Extent], table: ChunkTable, chunk: Callable[[int], bytes]
) -> int | None:
    fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for extent in extents:
            for index in table.covering(extent.device_offset, extent.length):
                begin = table[index].device_offset
                low = max(begin, extent.device_offset)
                high = min(table[index].device_end, extent.device_offset + extent.length)
                right = chunk(index)[low - begin : high - begin]
                offset = extent.file_offset + low - extent.device_offset
                wrong = os.pread(fd, len(right), offset)
                if wrong != right[: len(wrong)]:
                    pairs = enumerate(zip(right, wrong, strict=False))
                    return offset + next(at for at, (a, b) in pairs if a != b)
    finally:
        os.close(fd)
    return None
