"""A Source from a directory of this machine: a root file system, or a mounted rootfs of layers."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from dsec_layers.model.content import Source
from dsec_layers.model.escaping import from_overlay
from dsec_layers.sources.scan import scan


def walk(
    root: Path,
    *,
    mounted: bool = False,
    exclude: Collection[bytes] = (),
    one_file_system: bool = False,
) -> Source:
    """The tree at `root`; all in it is content, `trusted.overlay.*` attributes too.

    `mounted` says that `root` is an overlay mount of layers: escaped 0:0 devices become devices
    again. `exclude` lists paths of the tree to leave out, with all below them; with
    `one_file_system` a mount point is an empty directory. File digests stay empty. Raises
    NotFoundError, InvalidInputError, BusyError (an entry vanished meanwhile),
    CapabilityMissingError (no right to read) or OSError.
    """
    translate = from_overlay if mounted else None
    return scan(
        os.fsencode(root), exclude=exclude, one_file_system=one_file_system, translate=translate
    )
