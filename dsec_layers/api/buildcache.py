"""What builds have left on this machine to be faster next time: steps, and the caches of RUN."""

from __future__ import annotations

import time

import msgspec

from dsec_layers.api.workbench import Workbench
from dsec_layers.builder import housekeeping
from dsec_layers.builder.kept import Kept


class BuildCacheRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step (its title, empty when no build can use it any more) or a cache (its id).

    `used_s` is the time of the last use, in seconds since 1970.
    """

    kind: str
    name: str
    title: str
    size_bytes: int
    used_s: int


def usage(bench: Workbench) -> list[BuildCacheRow]:
    """Everything, what was used last first. Raises OSError."""
    return [_row(one) for one in housekeeping.kept(bench.home.builder)]


def prune(
    bench: Workbench,
    *,
    unused_s: float | None = None,
    keep_bytes: int = 0,
    dry_run: bool = False,
) -> list[BuildCacheRow]:
    """Remove what was not used for `unused_s` seconds and goes beyond `keep_bytes`.

    What a running build uses stays. Returns what was removed, or with `dry_run` what would be.
    Raises OSError.
    """
    home = bench.home.builder
    before_s = None if unused_s is None else time.time() - unused_s
    found = housekeeping.kept(home)
    chosen = housekeeping.superfluous(found, before_s=before_s, keep_bytes=keep_bytes)
    return [_row(one) for one in (chosen if dry_run else housekeeping.remove(home, chosen))]


def _row(one: Kept) -> BuildCacheRow:
    return BuildCacheRow(
        kind=one.kind,
        name=one.name,
        title=one.title,
        size_bytes=one.size_bytes,
        used_s=int(one.used_s),
    )
