"""Bringing a root file system in from elsewhere, as a base layer."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsec_layers.api import dictionary, images
from dsec_layers.api.images import Fetched, Found
from dsec_layers.api.publishing import check_name, publish
from dsec_layers.api.rows import LayerRow
from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.registry import leases
from dsec_layers.sources.archive import read_tar
from dsec_layers.sources.directory import walk
from dsec_layers.sources.times import clamp_times

if TYPE_CHECKING:
    from dsec_layers.sources.oci import OciImage


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`image` chooses one of several images of an archive; `epoch_s` clamps file times.

    Chunks of `chunk_dicts` are referred to instead of stored again.
    """

    image: str | None = None
    epoch_s: int | None = None
    workers: int | None = None
    chunk_dicts: Sequence[Reference] = ()


def import_(
    bench: Workbench,
    source: str,
    reference: Reference,
    options: ImportOptions = ImportOptions(),
    progress: Callable[[int], None] | None = None,
    fetched: Fetched = lambda _done, _total: None,
) -> LayerRow:
    """Make the base layer `reference` from `source`.

    That is `-` (an archive on standard input), a tar of a root file system, an archive that `docker
    save` or `skopeo copy` wrote (a fifo too), an OCI layout, a directory that holds a root file
    system, or `docker://` and the name of an image in a registry. `progress` is called with the
    bytes packed since its last call, `fetched` with those fetched and those of the whole.

    Raises InvalidInputError, NotFoundError, CorruptError, StoreError, NoSpaceError.
    """
    if reference.kind is not Kind.BASE:
        raise InvalidInputError(
            f"{reference} is not a base", hint="what is imported is a whole root file system"
        )
    check_name(reference)
    with (
        work_folder(bench.home.root, "import") as spool,
        leases.hold(bench.local, purpose="import") as held,
    ):
        chunks = dictionary.load(bench, options.chunk_dicts, held)
        found = _read(bench, source, spool, options, fetched)
        tree = found.source
        if options.epoch_s is not None:
            tree = clamp_times(tree, options.epoch_s)
        return publish(
            bench,
            tree,
            reference,
            run=found.run,
            provenance=Provenance(
                source="import",
                inputs={**found.inputs, **chunks.inputs},
                source_date_epoch=options.epoch_s,
            ),
            known=chunks.known(bench, tree),
            workers=options.workers,
            progress=progress,
        )


def _read(
    bench: Workbench, source: str, spool: Path, options: ImportOptions, fetched: Fetched
) -> Found:
    from dsec_layers.sources import oci

    if source.startswith(images.SCHEME):
        name = ImageName.parse(source.removeprefix(images.SCHEME))
        return images.read_remote(bench, name, spool, fetched)
    if source == "-":
        if sys.stdin is None:
            raise InvalidInputError("standard input is closed")
        return _read_once(sys.stdin.fileno(), spool, "standard input", options)
    path = Path(source)
    if not path.exists():
        raise NotFoundError(f"{source} does not exist", hint="give a tar, a directory or -")
    if path.is_fifo():
        with path.open("rb") as stream:
            return _read_once(stream.fileno(), spool, source, options)
    image = oci.find_image(path, spool, reference=options.image)
    if image is not None:
        return _of_image(image)
    if path.is_dir():
        return Found(walk(path), RunConfig(), {})
    with path.open("rb") as stream:
        return Found(read_tar(stream, spool, name=source), RunConfig(), {})


def _read_once(fd: int, spool: Path, name: str, options: ImportOptions) -> Found:
    """What comes through a pipe: whether it is an image is known at its end."""
    from dsec_layers.sources import oci

    source = read_tar(_Descriptor(fd), spool, name=name)
    image = oci.image_in(source, spool, reference=options.image)
    return Found(source, RunConfig(), {}) if image is None else _of_image(image)


def _of_image(image: OciImage) -> Found:
    return Found(image.source, image.run, images.image_inputs(image.digest, image.triggers))


class _Descriptor:
    """Bytes from a pipe that may be silent for long.

    Python looks after a signal when a read is interrupted, not when the signal comes just before
    it. So the wait ends now and then.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        while not select.select([self._fd], [], [], _LOOK_AROUND_S)[0]:
            pass
        return os.read(self._fd, size)


_LOOK_AROUND_S = 0.2
