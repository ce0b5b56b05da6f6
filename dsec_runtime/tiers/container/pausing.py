"""Sandboxes that stand still: with their memory given back, or for a moment."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from dsec_runtime.errors import InfrastructureError
from dsec_runtime.resources import reclaim
from dsec_runtime.resources.groups import Groups

_log = logging.getLogger(__name__)


def pause(groups: Groups, name: str) -> int:
    """Freeze a sandbox and give its memory back; the bytes that gave.

    Raises InfrastructureError; it runs then as before.
    """
    before = groups.usage(name).memory_bytes
    try:
        groups.freeze(name)
        groups.swappable(name, allowed=True)
        reclaim.page_out(groups.processes(name))
        groups.reclaim(name)
    except (OSError, TimeoutError) as error:
        _go_on(groups, name)
        raise InfrastructureError(f"{name} cannot be paused: {error}") from error
    return max(0, before - groups.usage(name).memory_bytes)


def resume(groups: Groups, name: str) -> None:
    """Fetch its memory ahead and let it go on. Raises InfrastructureError."""
    try:
        reclaim.fetch_ahead(groups.processes(name))
    except OSError as error:  # it goes on all the same, and reads what it touches
        _log.warning("the memory of %s is not fetched ahead: %s", name, error)
    try:
        groups.thaw(name)
        groups.swappable(name, allowed=False)
    except (OSError, TimeoutError) as error:
        raise InfrastructureError(f"{name} cannot be resumed: {error}") from error


@contextlib.contextmanager
def still(groups: Groups, name: str) -> Iterator[None]:
    """Freeze a sandbox for the length of a block, and leave it as it was."""
    was = groups.frozen(name)
    if not was:
        groups.freeze(name)
    try:
        yield
    finally:
        if not was:
            groups.thaw(name)


def _go_on(groups: Groups, name: str) -> None:
    try:
        groups.thaw(name)
        groups.swappable(name, allowed=False)
    except (OSError, TimeoutError) as error:
        _log.error("%s does not go on: %s", name, error)
