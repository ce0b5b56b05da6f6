"""Damage to files, in place, as a bad disk does it."""

from __future__ import annotations

import os
from pathlib import Path

from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry.directory import DirectoryStore


def flip_bit(path: Path, offset: int) -> None:
    """Flip a bit of the byte at `offset`, from the end when negative. Size and times stay."""
    status = path.stat()
    position = offset % status.st_size
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def blob_path(store: DirectoryStore, blob: Descriptor) -> Path:
    """The file of a blob."""
    (path,) = store.root.rglob(blob.parsed_digest.hex)
    return path
