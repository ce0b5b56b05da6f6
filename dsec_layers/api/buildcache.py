"""What builds have left on this machine to be faster next time: steps, and the caches of RUN."""

from __future__ import annotations

import time

import msgspec

from dsec_layers.api import storedsteps
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


def usage(bench: Workbench, url: str | None = None) -> list[BuildCacheRow]:
    """Everything here, or the steps in the store at `url`; what was used last first.

    Raises OSError, InvalidInputError, StoreError.
    """
    return [_row(one) for one in _kept(bench, url)]


def prune(
    bench: Workbench,
    url: str | None = None,
    *,
    unused_s: float | None = None,
    keep_bytes: int = 0,
    dry_run: bool = False,
) -> list[BuildCacheRow]:
    """Remove what was not used for `unused_s` seconds and goes beyond `keep_bytes`.

    What a running build uses stays. In the store at `url` only names are removed: `gc` does the
    rest. Returns what was removed, or with `dry_run` what would be. Raises as `usage`.
    """
    before_s = None if unused_s is None else time.time() - unused_s
    chosen = housekeeping.superfluous(_kept(bench, url), before_s=before_s, keep_bytes=keep_bytes)
    if dry_run:
        gone = chosen
    elif url is None:
        gone = housekeeping.remove(bench.home.builder, chosen)
    else:
        gone = storedsteps.remove(url, chosen)
    return [_row(one) for one in gone]


def _kept(bench: Workbench, url: str | None) -> list[Kept]:
    return housekeeping.kept(bench.home.builder) if url is None else storedsteps.kept(url)


def _row(one: Kept) -> BuildCacheRow:
    return BuildCacheRow(
        kind=one.kind,
        name=one.name,
        title=one.title,
        size_bytes=one.size_bytes,
        used_s=int(one.used_s),
    )
