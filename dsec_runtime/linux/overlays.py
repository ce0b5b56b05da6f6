"""Overlays of mounts that are in nobody's way: detached, or seen by one thread for a moment.

Since Linux 6.15 overlayfs takes layers that are mounted nowhere; before that it wants them in the
mount namespace of whoever mounts it, and keeps copies of its own.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterable, Sequence

from dsec_layers.linux.syscalls import detached_mount
from dsec_runtime.linux.launcher import Launcher

Options = Iterable[tuple[str, str | None]]


def over_mounts(
    lowers: Sequence[int], disk: int, options: Options, attributes: int, launcher: Launcher
) -> int:
    """A detached overlay of detached mounts: `lowers`, the highest first, and a disk.

    The disk has the folders `upper` and `work`. Raises OSError.
    """
    options = list(options)

    def made(paths: Sequence[str]) -> int:
        *below, above = paths
        layers: list[tuple[str, str | None]] = [("lowerdir+", lower) for lower in below]
        own = [("upperdir", f"{above}/upper"), ("workdir", f"{above}/work")]
        return detached_mount("overlay", [*layers, *own, *options], attributes)

    if _takes_detached():
        return made([f"/proc/self/fd/{fd}" for fd in (*lowers, disk)])
    return launcher.attached((*lowers, disk), made)


@functools.cache
def _takes_detached() -> bool:
    fds = [detached_mount("tmpfs", ()) for _ in range(2)]
    try:
        lowers = [("lowerdir+", f"/proc/self/fd/{fd}") for fd in fds]
        os.close(detached_mount("overlay", lowers))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    finally:
        for fd in fds:
            os.close(fd)
    return True
