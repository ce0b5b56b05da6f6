"""Reads the contents of a tree once, in path order, and lays them out on the device of a layer."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NoReturn

import msgspec

from dsec_layers.chunks.chunker import Chunker
from dsec_layers.chunks.constants import LARGE_FILE_BYTES, MIB
from dsec_layers.chunks.content import (
    READ_WHOLE_BYTES,
    ContentReader,
    Run,
    Scan,
    changed,
    read_whole,
    scan_bytes,
)
from dsec_layers.chunks.device import DeviceLayout
from dsec_layers.chunks.memory import Files
from dsec_layers.chunks.packs import Held
from dsec_layers.chunks.table import Chunk
from dsec_layers.erofs.planning import Extent, erofs_runs
from dsec_layers.errors import CapabilityMissingError, CorruptError, InvalidInputError
from dsec_layers.model.content import Content, Source
from dsec_layers.model.tree import Entry, EntryKind, Tree

Progress = Callable[[int], None]

# Looking a member up in its enumeration takes ten times as long, and this is done for each entry.
_FILE: Final = EntryKind.FILE
_PROGRESS_BYTES: Final = 4 * MIB
# The larger a file, the coarser are the holes that EROFS can keep, and what remains is stored.
_MAX_ZERO_BYTES: Final = 1 << 36
# What opening a path says when the file is gone or something else stands there.
_GONE: Final = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ESTALE}


class ContentPacker:
    """Gives every content of a source to a chunker, each distinct one once.

    After `run`, `extents` tells by path where each file's data lies on the device (hard links: the
    first path), and `device_bytes` how long the device is. Only files in `borrowed` have no place
    yet: their contents were found among those that layers below hold.
    """

    def __init__(
        self,
        source: Source,
        chunker: Chunker,
        progress: Progress | None = None,
        held: Mapping[bytes, Held] | None = None,
        files: Files | None = None,
    ) -> None:
        """`held` are the contents of layers below; see `borrowed`.

        What `files` knows is not read where its chunks are stored somewhere.
        """
        self.extents: dict[bytes, tuple[Extent, ...]] = {}
        self.borrowed: list[tuple[Entry, Held]] = []
        self._held = held or {}
        self._files = files
        self._source = source
        self._chunker = chunker
        self._progress = progress
        self._unreported = 0
        self._device = DeviceLayout(Extent)

    @property
    def device_bytes(self) -> int:
        """The bytes of device given out so far."""
        return self._device.size_bytes

    def run(self) -> Tree:
        """Read everything; returns the tree with all content digests.

        Raises CorruptError for a file that changed or has another digest than its entry says,
        CapabilityMissingError for one that may not be read, and OSError.
        """
        tree = Tree(tuple(self._entries()))
        self._chunker.flush()
        self._report(0, at_least=0)
        return tree

    def store_again(self, borrowed: Iterable[Entry]) -> None:
        """Read these files once more and give them places of their own."""
        self._held = {}
        for entry in borrowed:
            self._pack(entry)
        self._chunker.flush()

    def refer(self, chunk: Chunk, borrowed: Iterable[tuple[Entry, Held]]) -> None:
        """Append a chunk of another layer to the device, and place files that it holds."""
        base = self._device.append(chunk.length)
        for entry, held in borrowed:
            self.extents[entry.path] = tuple(
                Extent(at, base + offset, length) for at, offset, length in held.runs
            )

    def _entries(self) -> Iterator[Entry]:
        groups: dict[int, bytes] = {}
        for entry in self._source.tree.entries:
            if entry.kind is not _FILE:
                yield entry
                continue
            digest = groups.get(entry.link_group) if entry.link_group else None
            if digest is None:
                digest = self._pack(entry)
                if entry.link_group:
                    groups[entry.link_group] = digest
            yield msgspec.structs.replace(entry, digest=digest)

    def _pack(self, entry: Entry) -> bytes:
        content = self._source.contents[entry.path]
        try:
            scan = self._add(content, entry)
        except OSError as error:
            _explain(error, content)
        if entry.digest not in (b"", scan.digest):
            raise CorruptError(f"the content of {entry.path!r} does not match its digest")
        self._report(entry.size)
        return scan.digest

    def _add(self, content: Content, entry: Entry) -> Scan:
        known = self._files.find(content) if self._files else None
        if known is not None:
            self._add_known(content, entry, known)
            return known
        state = self._files.state(content) if self._files else None
        read = self._read_small if entry.size <= READ_WHOLE_BYTES else self._read_large
        scan = read(content, entry)
        if self._files:
            self._files.note(content, state, scan)
        return scan

    def _add_known(self, content: Content, entry: Entry, scan: Scan) -> None:
        """Add a content that is read only if nothing else has its chunks."""
        runs = self._place(scan, entry)
        size = _bytes_of(runs)
        if size >= LARGE_FILE_BYTES:
            if not self._chunker.add_remembered(scan.digest):
                with ContentReader(content, entry.size) as reader:
                    _check(content, reader.scan(), scan)
                    self._chunker.add_stream(scan.digest, reader.stream(runs))
        elif runs:
            read = partial(_read_known, content, entry.size, scan, runs)
            self._chunker.add_later(scan.digest, size, read)

    def _read_small(self, content: Content, entry: Entry) -> Scan:
        data = read_whole(content, entry.size)
        scan = scan_bytes(data)
        runs = self._place(scan, entry)
        if runs:
            self._chunker.add(scan.digest, _joined(data, runs))
        return scan

    def _read_large(self, content: Content, entry: Entry) -> Scan:
        with ContentReader(content, entry.size) as reader:
            scan = reader.scan()
            runs = self._place(scan, entry)
            if _bytes_of(runs) >= LARGE_FILE_BYTES:
                self._chunker.add_stream(scan.digest, reader.stream(runs))
            elif runs:
                self._chunker.add(scan.digest, b"".join(reader.stream(runs)))
        return scan

    def _place(self, scan: Scan, entry: Entry) -> Sequence[Run]:
        """Give the content its extents; returns the runs to store, none when it lies somewhere."""
        placed = self._device.find(scan.digest)
        runs: Sequence[Run] = ()
        if placed is None:
            held = self._held.get(scan.digest)
            if held is not None:
                self.borrowed.append((entry, held))
                return ()
            runs = scan.runs if scan.dense else _stored_runs(entry, scan.runs)
            placed = self._device.place(scan.digest, runs)
        self.extents[entry.path] = placed
        return runs

    def _report(self, size: int, *, at_least: int = _PROGRESS_BYTES) -> None:
        self._unreported += size
        if self._progress is not None and self._unreported >= at_least:
            self._progress(self._unreported)
            self._unreported = 0


def _bytes_of(runs: Sequence[Run]) -> int:
    return runs[0][1] if len(runs) == 1 else sum(length for _, length in runs)


def _explain(error: OSError, content: Content) -> NoReturn:
    if error.errno in _GONE:
        raise changed(content) from error
    if isinstance(error, PermissionError):
        raise CapabilityMissingError(
            f"cannot read {os.fsdecode(content.path)}: {error.strerror}",
            hint="run as root, or as the owner of the tree",
        ) from error
    raise error


def _read_known(content: Content, size: int, scan: Scan, runs: Sequence[Run]) -> bytes:
    """The stored bytes of a content of which `scan` was remembered."""
    try:
        with ContentReader(content, size) as reader:
            _check(content, reader.scan(), scan)
            return b"".join(reader.stream(runs))
    except OSError as error:
        _explain(error, content)


def _check(content: Content, found: Scan, remembered: Scan) -> None:
    if found.digest != remembered.digest:
        raise changed(content)


def _joined(data: bytes, runs: Sequence[Run]) -> bytes:
    whole = runs[0][1] == len(data)
    return data if whole else b"".join(data[at : at + length] for at, length in runs)


def _stored_runs(entry: Entry, runs: Sequence[Run]) -> Sequence[Run]:
    """The runs that are stored of a file with holes. Raises InvalidInputError for absurd ones."""
    stored = erofs_runs(entry.size, runs)
    zeros = sum(length for _, length in stored) - sum(length for _, length in runs)
    if zeros > _MAX_ZERO_BYTES:
        raise InvalidInputError(
            f"{entry.path!r} has {entry.size} bytes, and holes that a layer cannot keep",
            hint="make the file smaller, or leave it out",
        )
    return stored
