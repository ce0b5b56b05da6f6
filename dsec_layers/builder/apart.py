"""Building apart from all that was built before: in a folder of its own that is gone at the end.

<home>/apart/<id>/ is locked (flock) by the process that builds in it; inside it is like <home>.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dsec_layers.builder.stepcache import StepCache
from dsec_layers.linux import claim


@contextlib.contextmanager
def apart(home: Path) -> Iterator[Path]:
    """An empty folder that takes the place of `home` in a request. Raises OSError."""
    with claim.new_folder(home / "apart", discard=_discard) as folder:
        yield folder


def sweep(home: Path) -> None:
    """Unmount and remove what killed processes left. Raises OSError."""
    claim.sweep(home / "apart", discard=_discard)


def _discard(folder: Path) -> None:
    StepCache(folder).sweep()
    claim.remove(folder)
