"""Notes of a directory store: small files with a time, `<root>/<folder>/<id>`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.collecting import Note
from dsec_layers.registry import files

_NAME: Final = re.compile(r"[a-z]+/[a-z0-9._-]{1,128}")


class NoteFiles:
    """The notes below `root`, which is never made; `across_nodes`: on a cluster file system."""

    def __init__(self, root: Path, *, across_nodes: bool = False) -> None:
        self._root = root
        self._across_nodes = across_nodes

    def list(self, folder: str) -> Iterator[Note]:
        """See `Collectable.notes`."""
        with files.explained(f"cannot list {self._root / folder}"):
            try:
                entries = list(os.scandir(self._root / folder))
            except FileNotFoundError:
                return
        for entry in entries:
            if entry.name.startswith(files.TEMPORARY_PREFIX):
                continue
            try:
                yield Note(f"{folder}/{entry.name}", entry.stat().st_mtime)
            except FileNotFoundError:
                continue

    def read(self, name: str) -> bytes:
        """See `Collectable.read_note`."""
        path = self._path(name)
        with files.explained(f"cannot read {path}"):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                raise NotFoundError(f"no note {name} in {self._root}") from None

    def write(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """See `Collectable.write_note`."""
        path = self._path(name)
        with (
            files.explained(f"cannot write {path}"),
            files.aside(path.parent, self._root) as (fd, temporary),
        ):
            files.write_all(fd, data)
            if sync or self._across_nodes:  # until then other nodes may see it shorter
                os.fsync(fd)
            temporary.replace(path)

    def remove(self, name: str) -> None:
        """See `Collectable.remove_note`."""
        path = self._path(name)
        with files.explained(f"cannot remove {path}"):
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InvalidInputError(f"not the name of a note: {name!r}")
        return self._root / name
