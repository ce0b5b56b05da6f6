"""What the lazy file system keeps below DSEC_HOME.

cache/chunks/       plain chunks by digest (cache.py)
traces/             what environments read first (traces.py)
run/                mode 0700
    blobs/          the mount of blobfs: one file per attached layer, named by the hex of its digest
    daemon.sock     control socket         daemon.lock   held by the running daemon
    daemon.log      JSON lines             start.lock    held by whoever starts or stops it
    holder.sock     lends the FUSE descriptor
    attached.json   whose connection it is  attached/, known/   the layers (attachedfiles.py)
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """The places below one home."""

    home: Path

    @property
    def chunks(self) -> Path:
        """The chunk cache."""
        return self.home / "cache" / "chunks"

    @property
    def run(self) -> Path:
        """Sockets, locks, log, state and the mount."""
        return self.home / "run"

    @property
    def blobs(self) -> Path:
        """The mount point of blobfs."""
        return self.run / "blobs"

    @property
    def log(self) -> Path:
        """The daemon's log."""
        return self.run / "daemon.log"

    def create(self) -> None:
        """Make the folders, without touching the mount."""
        for folder in (self.run, self.chunks):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.blobs)  # noqa: PTH102 - Path.mkdir would look into the mount, which may have no server now
