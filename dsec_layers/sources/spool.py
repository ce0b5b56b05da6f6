"""Contents of an archive, written one after another into one local file."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from dsec_layers.errors import DISK_FULL, NoSpaceError
from dsec_layers.model.content import Spooled

_PIECE: Final = 1 << 17
_BUFFER: Final = 1 << 20
_FULL: Final = (*DISK_FULL, errno.EFBIG)


class Spool:
    """Appends contents to a new file in `directory`, which its owner removes when all is packed.

    A context manager: what was added may be read when it is closed. Pieces of zeros are not stored.
    Raises NoSpaceError when the disk is full.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(prefix="contents-", dir=directory)
        self._file = os.fdopen(descriptor, "wb", buffering=_BUFFER)
        self._directory = directory
        self._path = os.fsencode(path)
        self._end = 0

    def add(self, read: Callable[[int], bytes], runs: Sequence[tuple[int, int]]) -> Spooled:
        """Store one content: `read` gives the bytes of `runs` (offset in the content, length)."""
        stored: list[tuple[int, int, int]] = []
        for offset, length in runs:
            end = offset + length
            while offset < end:
                piece = read(min(_PIECE, end - offset))
                if piece[0] or piece != bytes(len(piece)):
                    self._append(stored, offset, piece)
                offset += len(piece)
        return Spooled(self._path, tuple(stored))

    def close(self) -> None:
        """Write out what is buffered."""
        try:
            self._file.close()
        except OSError as error:
            raise self._explain(error) from error

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, stored: list[tuple[int, int, int]], offset: int, piece: bytes) -> None:
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._explain(error) from error
        if stored and sum(stored[-1][:2]) == offset and sum(stored[-1][1:]) == self._end:
            stored[-1] = (stored[-1][0], stored[-1][1] + len(piece), stored[-1][2])
        else:
            stored.append((offset, len(piece), self._end))
        self._end += len(piece)

    def _explain(self, error: OSError) -> Exception:
        if error.errno in _FULL:
            return NoSpaceError(
                f"no space for the contents of an archive in {self._directory}: {error.strerror}",
                hint="free some space there, or name another directory",
            )
        return error
