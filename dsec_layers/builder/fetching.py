"""What ADD takes from web servers: files like those of the context, of mode 0600.

A file of which the checksum is known is an input by that, and is fetched only when the step is not
cached. Of the others the content is the input, so they are fetched each time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dsec_layers.builder.selection import Selected, mark_archives
from dsec_layers.builder.steps import CopyStep
from dsec_layers.sources.remotefile import file_name
from dsec_layers.sources.scan import scan_file

_MODE: Final = 0o600
_NAMELESS: Final = "download"


def expected(step: CopyStep) -> str:
    """The identity of what is fetched with a checksum; empty when nothing is."""
    return " ".join(
        f"{remote.checksum} {file_name(remote.url)} {step.extracts_remote}"
        for remote in step.remote
        if remote.checksum is not None
    )


def fetched(step: CopyStep, folder: Path, *, with_checksum: bool) -> list[Selected]:
    """Fetch into the empty `folder` what has a checksum, or what has none.

    Raises what `sources.remote.fetch` raises.
    """
    if not step.remote:
        return []
    from dsec_layers.sources.remote import fetch  # most builds fetch nothing and load no client

    found: list[Selected] = []

    for number, remote in enumerate(step.remote):
        if (remote.checksum is not None) is with_checksum:
            place = folder / f"remote-{number}"
            modified = fetch(remote.url, place, remote.checksum)
            place.chmod(_MODE)
            os.utime(place, (modified, modified))
            name = file_name(remote.url) or _NAMELESS
            found.append(Selected(False, scan_file(bytes(place), os.fsencode(name))))
    return mark_archives(found) if step.extracts_remote else found
