"""Where this machine keeps its state.

$DSEC_HOME (default /var/lib/dsec for root, else ~/.local/share/dsec)
  store/           the local store
  cache/chunks/    chunks fetched for lazy mounts
  traces/          what environments read first
  metadata/        unpacked EROFS images by layer digest
  builder/         the step cache
  making/          work that is under way
  run/             sockets, FUSE mounts and the journal
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.registry.directory import DirectoryStore

HOME_VARIABLE: Final = "DSEC_HOME"


class Home(msgspec.Struct, frozen=True):
    """The folders below one root. None of them need exist."""

    root: Path

    @classmethod
    def default(cls, environ: Mapping[str, str] = os.environ) -> Home:
        """The root that the environment names, or the usual one of this user."""
        if named := environ.get(HOME_VARIABLE):
            return cls(Path(named).absolute())
        if os.geteuid() == 0:
            return cls(Path("/var/lib/dsec"))
        return cls(Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "dsec")

    @property
    def chunks(self) -> Path:
        """Chunks fetched for lazy mounts."""
        return self.root / "cache" / "chunks"

    @property
    def metadata(self) -> Path:
        """Unpacked EROFS images by layer digest."""
        return self.root / "metadata"

    @property
    def builder(self) -> Path:
        """The step cache."""
        return self.root / "builder"

    @property
    def run(self) -> Path:
        """Sockets, FUSE mounts and the journal."""
        return self.root / "run"

    def open_store(self) -> DirectoryStore:
        """The local store, made when missing. Raises StoreError or NoSpaceError."""
        return DirectoryStore.open(self.root / "store", create=True)
