"""A Source from the upper directory of an overlay mount: what was changed, as a diff."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from dsec_layers.model.content import Source
from dsec_layers.sources.overlay import from_upper
from dsec_layers.sources.scan import scan


def walk_upper(upper: Path, *, exclude: Collection[bytes] = ()) -> Source:
    """The diff in `upper`: whiteouts, opaque directories, and content without overlayfs marks.

    The overlay must have been mounted without redirects and metacopy, as
    `linux.mount.mount_overlay` does. Errors are those of `directory.walk`, and InvalidInputError
    for an upper that refers to its lower layers.
    """
    return scan(os.fsencode(upper), exclude=exclude, translate=from_upper)
