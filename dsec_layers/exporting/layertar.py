"""One layer of ours as the tar archive of one layer of an OCI image.

Formats: the OCI image specification 1.1 ("Image Layer Filesystem Changeset"), and the GNU tar
manual for sparse files in the pax format 1.0. The archive depends on the tree and the contents
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.exporting.tarheader import BLOCK, member_header, padding
from dsec_layers.model.tree import Entry, EntryKind

# Below this the zeros are written: some readers of layers know no sparse files.
SPARSE_FROM_BYTES: Final = 1 << 20
_WHITEOUT_PREFIX: Final = b".wh."
_OPAQUE_MARKER: Final = b".wh..wh..opq"
_SPARSE_FOLDER: Final = b"GNUSparseFile.0"
_END: Final = bytes(2 * BLOCK)
_ZEROS: Final = bytes(SPARSE_FROM_BYTES)
_LETTERS: Final = {
    EntryKind.SYMLINK: b"2",
    EntryKind.CHAR: b"3",
    EntryKind.BLOCK: b"4",
    EntryKind.FIFO: b"6",
}

Runs = tuple[tuple[int, int], ...]
Write = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class FileData:
    """The content of a file: runs of (offset, length) in order, and their bytes in pieces."""

    runs: Runs
    pieces: Iterator[bytes]


def write_layer(
    entries: Iterable[Entry],
    data_of: Callable[[Entry], FileData],
    write: Write,
    progress: Callable[[int], object] = lambda _count: None,
) -> list[bytes]:
    """Write the archive of a tree, in its order; returns the paths of sockets.

    Tar has no sockets: one stands there as a whiteout, so that it hides what it hid. `progress` is
    told bytes of contents, holes and further names included, which in the end make up the sizes of
    all files. Raises InvalidInputError for a name that other engines take for a whiteout, and what
    reading the data raises.
    """
    writer = _Writer(data_of, write, progress)
    for entry in entries:
        writer.add(entry)
    write(_END)
    return writer.sockets


class _Writer:
    def __init__(
        self,
        data_of: Callable[[Entry], FileData],
        write: Write,
        progress: Callable[[int], object],
    ) -> None:
        self.sockets: list[bytes] = []
        self._data_of = data_of
        self._write = write
        self._progress = progress
        self._first_names: dict[int, bytes] = {}

    def add(self, entry: Entry) -> None:
        if entry.name.startswith(_WHITEOUT_PREFIX):
            raise InvalidInputError(
                f"/{entry.path.decode(errors='backslashreplace')} cannot be in an OCI image, "
                "where names that start with .wh. mean deletions",
                hint="build the layer without this file",
            )
        if entry.kind is EntryKind.SOCKET:
            self.sockets.append(entry.path)
            self._whiteout(entry)
        elif entry.kind is EntryKind.WHITEOUT:
            self._whiteout(entry)
        elif entry.link_group in self._first_names:
            first = self._first_names[entry.link_group]
            self._write(member_header(entry.path, b"1", entry, link=first))
            self._progress(entry.size)
        else:
            if entry.link_group:
                self._first_names[entry.link_group] = entry.path
            self._inode(entry)

    def _inode(self, entry: Entry) -> None:
        if entry.kind is EntryKind.DIRECTORY:
            self._write(member_header((entry.path or b".") + b"/", b"5", entry))
            if entry.opaque:
                self._marker(_join(entry.path, _OPAQUE_MARKER))
        elif entry.kind is EntryKind.FILE:
            self._file(entry)
        else:
            letter = _LETTERS[entry.kind]
            self._write(member_header(entry.path, letter, entry, link=entry.target))

    def _whiteout(self, entry: Entry) -> None:
        self._marker(_join(entry.parent, _WHITEOUT_PREFIX + entry.name))

    def _marker(self, path: bytes) -> None:
        self._write(member_header(path, b"0", Entry(path=path, kind=EntryKind.FILE)))

    def _file(self, entry: Entry) -> None:
        data = self._data_of(entry)
        stored = sum(length for _, length in data.runs)
        if entry.size - stored < SPARSE_FROM_BYTES:
            self._write(member_header(entry.path, b"0", entry, size=entry.size))
            self._pieces(_filled(data, entry.size))
            self._write(padding(entry.size))
            return
        text = _sparse_map(data.runs, entry.size)
        size = len(text) + stored
        records = {
            b"GNU.sparse.major": b"1",
            b"GNU.sparse.minor": b"0",
            b"GNU.sparse.name": entry.path,
            b"GNU.sparse.realsize": b"%d" % entry.size,
        }
        # A reader that does not know the records makes a file beside, not a wrong one in its place.
        aside = _join(_join(entry.parent, _SPARSE_FOLDER), entry.name)
        header = msgspec.structs.replace(entry, size=0)
        self._write(member_header(aside, b"0", header, size=size, records=records) + text)
        self._pieces(data.pieces)
        self._progress(entry.size - stored)
        self._write(padding(size))

    def _pieces(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self._write(piece)
            self._progress(len(piece))


def _filled(data: FileData, size: int) -> Iterator[bytes]:
    """The whole content of a file with few holes."""
    position = 0
    left = 0
    runs = iter((*data.runs, (size, 0)))
    for piece in data.pieces:
        while not left:
            start, left = next(runs)
            yield _ZEROS[: start - position]
            position = start
        yield piece
        position += len(piece)
        left -= len(piece)
    yield _ZEROS[: size - position]


def _sparse_map(runs: Runs, size: int) -> bytes:
    """The count and the pairs as decimal lines, filled up to whole blocks.

    The last pair is an empty run at the end of the file, as GNU tar writes it.
    """
    pairs = (*runs, (size, 0))
    text = b"%d\n" % len(pairs) + b"".join(b"%d\n%d\n" % pair for pair in pairs)
    return text + padding(len(text))


def _join(parent: bytes, name: bytes) -> bytes:
    return parent + b"/" + name if parent else name
