"""Folders for work that is under way, gone when it ends, however it ends.

DSEC_HOME/making/<what>-XXXXXXXX/       locked (flock) by the process that works in it
DSEC_HOME/making/<what>-XXXXXXXX/view/  where it may mount something, which goes with the folder
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.linux import claim, mount

VIEW: Final = "view"


@contextlib.contextmanager
def work_folder(home: Path, what: str) -> Iterator[Path]:
    """A new empty folder below `home`, which is made when missing. Raises OSError."""
    claim.sweep(home / "making", discard=_discard)
    with claim.new_folder(home / "making", f"{what}-", _discard) as folder:
        yield folder


def _discard(folder: Path) -> None:
    if (folder / VIEW).is_dir():
        with contextlib.suppress(OSError):  # nothing is mounted there
            mount.unmount(folder / VIEW, lazy=True)
    claim.remove(folder)
