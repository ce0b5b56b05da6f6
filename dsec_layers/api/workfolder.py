"""Folders for work that is under way, gone when it ends, however it ends.

DSEC_HOME/making/<what>-XXXXXXXX/   locked (flock) by the process that works in it
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dsec_layers.linux import claim


@contextlib.contextmanager
def work_folder(home: Path, what: str) -> Iterator[Path]:
    """A new empty folder below `home`, which is made when missing. Raises OSError."""
    claim.sweep(home / "making")
    with claim.new_folder(home / "making", f"{what}-") as folder:
        yield folder
