"""The log of slow reads: which environment waited, for which files, and how long.

A read is an offset on the device of a layer. Which files lie there is looked up in the layer's
metadata only when there is something to log, for all reads of some seconds together, and in a
thread of its own: one walk through the tree of a layer takes some 10 us an entry.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import DsecError
from dsec_layers.lazyfs.journal import Journal, Phase
from dsec_layers.lazyfs.layer import ServedLayer
from dsec_layers.lazyfs.logs import fields
from dsec_layers.lazyfs.metadata import MetadataImages
from dsec_layers.lazyfs.readtimes import SlowRead
from dsec_layers.model.digest import Digest
from dsec_layers.model.tree import EntryKind

MOST_LINES: Final = 20  # of one batch
EVERY_S: Final = 10.0
_SHOWN_PATHS: Final = 3
_log = logging.getLogger(__name__)
Range = tuple[int, int]


class SlowReads:
    """Logs at most MOST_LINES reads every EVERY_S, the first ones; the others are counted."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._reads: deque[SlowRead] = deque()
        self._left_out = 0
        self._some = threading.Event()
        self._pause = threading.Event()  # never set

    def start(self) -> None:
        """Begin to log what `note` is told."""
        threading.Thread(target=self._work, name="slow-reads", daemon=True).start()

    def note(self, read: SlowRead) -> None:
        """Have a read logged soon. Safe for many threads, and quick."""
        if len(self._reads) < MOST_LINES:
            self._reads.append(read)
        else:
            self._left_out += 1
        self._some.set()

    def flush(self) -> None:
        """Log what has been noted."""
        reads, left_out = [self._reads.popleft() for _ in range(len(self._reads))], self._left_out
        self._left_out -= left_out
        for layer in dict.fromkeys(read.layer for read in reads):
            self._log_layer(layer, [read for read in reads if read.layer is layer])
        if left_out:
            _log.warning("%d more reads were slow", left_out)

    def _work(self) -> None:
        while self._some.wait():
            self._pause.wait(EVERY_S / 10)  # the first of many comes with some of them
            self._some.clear()
            try:
                self.flush()
            except Exception:  # the log is worth no read
                _log.exception("slow reads cannot be logged")
            self._pause.wait(EVERY_S)

    def _log_layer(self, layer: ServedLayer, reads: Sequence[SlowRead]) -> None:
        environments = sorted(self._environments(layer.digest))
        files = self._files(layer.digest, [(read.offset, read.length) for read in reads])
        for read, paths in zip(reads, files, strict=True):
            chunks = layer.table.covering(read.offset, read.length)
            _log.warning(
                "a read waited for %.1f s: %s of %s",
                read.seconds,
                _named(paths),
                ", ".join(environments) or layer.digest.short,
                extra=fields(
                    event="slow-read",
                    environments=environments,
                    layer=str(layer.digest),
                    paths=paths,
                    chunks=[chunks[0], chunks[-1]] if len(chunks) else [],
                    offset=read.offset,
                    length=read.length,
                    seconds=round(read.seconds, 3),
                    error=read.error,
                ),
            )

    def _environments(self, digest: Digest) -> Iterator[str]:
        """The names of what is mounted with this layer in it."""
        for record in Journal(self._home / "run").records():
            used = any(use.hex == digest.hex for use in record.layers)
            if used and record.phase is Phase.MOUNTED:
                yield record.name or record.target

    def _files(self, digest: Digest, ranges: Sequence[Range]) -> list[list[str]]:
        try:
            with MetadataImages(self._home).open(digest) as image:
                return files_at(image, ranges)
        except (DsecError, OSError) as error:
            _log.info("the files of layer %s are unknown: %s", digest.short, error)
            return [[] for _ in ranges]


def files_at(image: ErofsImage, ranges: Sequence[Range]) -> list[list[str]]:
    """For each (offset, length) of the device the paths of the files there, by place. CorruptError.

    A file of several names is given by its first.
    """
    found: list[list[tuple[int, str]]] = [[] for _ in ranges]
    seen: set[int] = set()
    for entry, inode in image.walk_inodes():
        if entry.kind is not EntryKind.FILE or inode.nid in seen:
            continue
        seen.add(inode.nid)
        for extent in image.inode_extents(inode):
            for rows, (offset, length) in zip(found, ranges, strict=True):
                end = extent.device_offset + extent.length
                if extent.device_offset < offset + length and offset < end:
                    path = "/" + entry.path.decode("utf-8", "backslashreplace")
                    rows.append((extent.device_offset, path))
    return [list(dict.fromkeys(path for _, path in sorted(rows))) for rows in found]


def _named(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_SHOWN_PATHS]) or "unknown files"
    more = len(paths) - _SHOWN_PATHS
    return f"{shown} and {more} more files" if more > 0 else shown
