"""What the step cache and the caches of RUN take on disk, and making room beside running builds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dsec_layers.builder.caches import Caches
from dsec_layers.builder.kept import Kept
from dsec_layers.builder.stepcache import StepCache

_SHARE: Final = 10


def kept(home: Path) -> list[Kept]:
    """Everything below the folder of the builder, what was used last first."""
    found = [*StepCache(home).kept(), *Caches(home / "caches").kept()]
    return sorted(found, key=lambda one: (-one.used_s, one.kind, one.name))


def superfluous(found: Sequence[Kept], *, before_s: float | None, keep_bytes: int) -> list[Kept]:
    """What to remove of `found`, which is sorted as `kept` does it.

    That is what was not used since `before_s` (a time, None: whenever), but of it only what goes
    beyond the `keep_bytes` that were used last.
    """
    chosen: list[Kept] = []
    total = 0
    for one in found:
        total += one.size_bytes
        if total > keep_bytes and (before_s is None or one.used_s < before_s):
            chosen.append(one)
    return chosen


def limit(home: Path, max_bytes: int | None) -> list[Kept]:
    """Remove the steps that were used longest ago beyond `max_bytes`; returns what is gone.

    None stands for a tenth of the disk. Raises OSError.
    """
    if max_bytes is None:
        max_bytes = shutil.disk_usage(home).total // _SHARE
    found = sorted(StepCache(home).kept(), key=lambda one: -one.used_s)
    chosen = superfluous(found, before_s=None, keep_bytes=max_bytes)
    return remove(home, chosen) if chosen else []


def remove(home: Path, chosen: Sequence[Kept]) -> list[Kept]:
    """Remove what no build is using; returns what is gone.

    Steps of which a running build may use one are forgotten, so that no later build finds them, and
    their files go with the next build or call after it.
    """
    return list(_removed(home, chosen))


def _removed(home: Path, chosen: Sequence[Kept]) -> Iterator[Kept]:
    steps = [one for one in chosen if one.kind == "step"]
    if StepCache(home).forget([one.name for one in steps]):
        yield from steps
    caches = Caches(home / "caches")
    yield from (one for one in chosen if one.kind == "cache" and caches.remove(one.name))
