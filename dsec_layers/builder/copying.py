"""Carrying out a COPY: what is selected goes to its destination in the root of the stage."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dsec_layers.builder.placing import Attributes, place_file, place_tree
from dsec_layers.builder.selection import Selected
from dsec_layers.builder.steps import CopyStep, InlineFile, is_outside
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import inroot
from dsec_layers.linux.users import find_user
from dsec_layers.model.content import Source
from dsec_layers.sources.archive import read_tar
from dsec_layers.sources.scan import scan_file

_INLINE_MODE: Final = 0o644


def copy_into(
    root: Path, step: CopyStep, selected: Sequence[Selected], *, spool: Path, epoch: int | None
) -> None:
    """Copy into the mounted `root`. `spool` is an empty folder for the step's use.

    What comes from the context or a here-document belongs to 0:0 unless the step names an owner,
    and its times are `epoch` (seconds) when there is one: they are not inputs of a build. What
    comes from a stage or a layer keeps both, and so does what ADD unpacks, with its modes. Raises
    InvalidInputError, CorruptError, BusyError or OSError.
    """
    everything = [*(_spooled(spool, file) for file in step.inline), *selected]
    into_directory = step.destination.endswith("/") or step.parents
    into_directory = into_directory or inroot.locate(root, step.destination).is_dir()
    if len(everything) > 1 and not into_directory:
        raise InvalidInputError(
            f"several sources, and {step.destination} is not a directory",
            hint="end the destination with a slash",
        )
    attributes = _attributes(root, step, epoch)
    for number, one in enumerate(everything):
        if one.is_archive:
            source = _unpacked(one, spool / f"archive-{number}")
            owner = attributes.owner if step.chown is not None else None
            place_tree(root, step.destination, source, Attributes(owner))
        elif one.is_directory:
            place_tree(root, step.destination, one.source, attributes)
        elif into_directory:
            place_file(root, step.destination, None, one.source, attributes)
        else:
            folder, _, name = inroot.resolve(root, step.destination).rpartition("/")
            place_file(root, folder, name, one.source, attributes)


def _attributes(root: Path, step: CopyStep, epoch: int | None) -> Attributes:
    from_outside = is_outside(step.origin)
    owner = (0, 0) if from_outside else None
    if step.chown is not None:
        owner = _owner(root, step.chown)
    mtime_ns = epoch * 10**9 if epoch is not None and from_outside else None
    return Attributes(owner, step.chmod, mtime_ns)


def _unpacked(one: Selected, spool: Path) -> Source:
    (content,) = one.source.contents.values()
    with Path(os.fsdecode(content.path)).open("rb") as stream:
        return read_tar(stream, spool, name=os.fsdecode(one.source.tree.entries[-1].name))


def _owner(root: Path, text: str) -> tuple[int, int]:
    """A number alone is user and group, as in a Dockerfile."""
    wanted = f"{text}:{text}" if text.isdecimal() else text
    user = find_user(root, wanted)
    return user.uid, user.gid


def _spooled(spool: Path, file: InlineFile) -> Selected:
    place = spool / file.name
    place.write_bytes(file.content)
    place.chmod(_INLINE_MODE)
    return Selected(False, scan_file(bytes(place), file.name.encode()))
