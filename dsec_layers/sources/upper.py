"""A Source from the upper directory of an overlay mount: what was changed, as a diff."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from dsec_layers.errors import InvalidInputError
from dsec_layers.model.content import Source
from dsec_layers.model.escaping import from_stored
from dsec_layers.model.tree import Entry
from dsec_layers.sources.scan import scan

_DATA_ELSEWHERE: Final = frozenset({b"trusted.overlay.redirect", b"trusted.overlay.metacopy"})


def walk_upper(upper: Path, *, exclude: Collection[bytes] = ()) -> Source:
    """The diff in `upper`: whiteouts, opaque directories, and content without overlayfs marks.

    The overlay must have been mounted without redirects and metacopy, as
    `linux.mount.mount_overlay` does. Errors are those of `directory.walk`, and InvalidInputError
    for an upper that refers to its lower layers.
    """
    return scan(os.fsencode(upper), exclude=exclude, states=True, translate=_meaning)


def _meaning(entry: Entry) -> Entry:
    if not _DATA_ELSEWHERE.isdisjoint(name for name, _ in entry.xattrs):
        raise InvalidInputError(
            f"{entry.path!r} of the overlay upper refers to another layer",
            hint="mount the overlay with redirect_dir=off and metacopy=off",
        )
    return from_stored(entry)
