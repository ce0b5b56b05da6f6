"""Taking an environment or layer elsewhere, as an ordinary OCI image."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import msgspec

from dsec_layers.api import contents
from dsec_layers.api.filedata import FileData, Place, pieces
from dsec_layers.api.opened import OpenedLayer
from dsec_layers.api.sending import Sending, sending
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import InvalidInputError
from dsec_layers.exporting import layertar
from dsec_layers.exporting.compression import Compression
from dsec_layers.exporting.destination import Destination, Format
from dsec_layers.exporting.files import Files, new_archive, new_layout
from dsec_layers.exporting.image import (
    Layer,
    add_config,
    add_layer,
    finish_docker,
    finish_layout,
    manifest_of,
    merged_index,
)
from dsec_layers.exporting.layertar import write_layer
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import DEFAULT_TAG, Reference
from dsec_layers.model.tree import Entry

Progress = Callable[[int, int], object]

_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOCKER_NAME: Final = re.compile(
    rf"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*:[A-Za-z0-9_][\w.-]{{0,127}}",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """`compression` is by default gzip, and none in a docker-archive, as `docker save` has it."""

    compression: Compression | None = None
    workers: int | None = None


class ExportedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of ours and what it became."""

    reference: str
    digest: str
    diff_id: str
    size_bytes: int


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export.

    `image_id` is the digest of the image's config, the same in every form of the image; `digest` is
    that of its manifest, which a docker-archive has not. `sockets` are the paths that were left
    out. `sent_bytes` is what a registry lacked, None for files.
    """

    reference: str
    destination: str
    format: str
    name: str
    image_id: str
    digest: str | None
    layers: tuple[ExportedLayer, ...]
    sockets: tuple[str, ...]
    sent_bytes: int | None = None


def export(
    bench: Workbench,
    reference: Reference,
    destination: Destination,
    options: ExportOptions = ExportOptions(),
    progress: Progress = lambda _done, _total: None,
) -> Exported:
    """Write `reference`, with what it stands on, as an image of one layer for each of ours.

    Equal references give equal bytes. `progress` is called with the bytes of contents since its
    last call and those of the whole. What fails leaves nothing at the destination. Raises
    NotFoundError, CorruptError, StoreError, ConflictError, InvalidInputError or OSError.
    """
    stack = bench.stack(reference)
    bench.check_packs(stack.layers)
    name = _name(reference, destination)
    is_docker = destination.format is Format.DOCKER_ARCHIVE
    compression = options.compression or (Compression.NONE if is_docker else Compression.GZIP)
    workers = options.workers or len(os.sched_getaffinity(0))
    total = sum(layer.config.sizes.content_bytes for layer in stack.layers)
    layers: list[Layer] = []
    sockets: set[bytes] = set()
    with contents.opened(bench, stack.layers) as images, _files(bench, destination) as files:
        for layer, image in zip(stack.layers, images, strict=True):
            source = OpenedLayer(layer, image)
            archive = _LayerArchive(source, lambda done: progress(done, total))
            blob, diff_id = add_layer(files, archive.write, compression, workers)
            layers.append(_described(layer, blob, diff_id))
            sockets.update(archive.sockets)
        config = add_config(files, layers, stack.run)
        digest = _finish(files, config, layers, name, destination.format)
    return Exported(
        reference=str(reference),
        destination=destination.place,
        format=destination.format.value,
        name=name,
        image_id=config.digest,
        digest=digest,
        layers=tuple(
            ExportedLayer(
                reference=layer.reference or f"{layer.config.kind.value}/{layer.config.name}",
                digest=layer.descriptor.digest,
                diff_id=made.diff_id,
                size_bytes=made.blob.size,
            )
            for layer, made in zip(stack.layers, layers, strict=True)
        ),
        sockets=tuple(path.decode(errors="backslashreplace") for path in sorted(sockets)),
        sent_bytes=files.image.sent_bytes if isinstance(files, Sending) else None,
    )


def _finish(
    files: Files, config: Descriptor, layers: list[Layer], name: str, format_: Format
) -> str | None:
    """What makes an image of blobs; returns the digest of its manifest, if it has one."""
    if format_ is Format.DOCKER_ARCHIVE:
        finish_docker(files, config, layers, name)
        return None
    if isinstance(files, Sending):
        data = manifest_of(config, layers)
        files.image.publish(data)
        return str(Digest.sha256(data))
    return finish_layout(files, config, layers, name).digest


class _LayerArchive:
    """The tar of one layer, its data read chunk by chunk."""

    def __init__(self, layer: OpenedLayer, progress: Callable[[int], object]) -> None:
        self.sockets: list[bytes] = []
        self._layer = layer
        self._data = FileData()
        self._progress = progress

    def write(self, write: Callable[[bytes], object]) -> None:
        self.sockets = write_layer(self._layer.tree, self._data_of, write, self._progress)

    def _data_of(self, entry: Entry) -> layertar.FileData:
        place = Place(self._layer, entry)
        runs: list[tuple[int, int]] = []
        for piece in pieces(place):
            if runs and sum(runs[-1]) == piece.file_offset:
                runs[-1] = (runs[-1][0], runs[-1][1] + piece.length)
            else:
                runs.append((piece.file_offset, piece.length))
        data = (self._data.piece(place, piece) for piece in pieces(place))
        return layertar.FileData(tuple(runs), data)


def _files(bench: Workbench, destination: Destination) -> AbstractContextManager[Files]:
    if destination.image is not None:
        return sending(bench, destination.image)
    if destination.format is Format.OCI:
        return new_layout(destination.path, merged_index)
    return new_archive(destination.path)


def _described(layer: MountLayer, blob: Descriptor, diff_id: str) -> Layer:
    config = layer.config
    made_of = f"{config.kind.value}/{config.name}@{layer.descriptor.digest}"
    epoch_s = config.provenance.source_date_epoch or 0
    return Layer(blob, diff_id, f"dsec-layers export {made_of}", epoch_s)


def _name(reference: Reference, destination: Destination) -> str:
    """The image's name at the destination: the tag, and for Docker the whole name."""
    if destination.image is not None:
        return destination.image.tag
    tag = reference.tag or DEFAULT_TAG
    if destination.format is not Format.DOCKER_ARCHIVE:
        return destination.name or tag
    name = destination.name or f"{reference.repository}:{tag}"
    if ":" not in name.rpartition("/")[2]:
        name = f"{name}:{DEFAULT_TAG}"
    if not _DOCKER_NAME.fullmatch(name):
        raise InvalidInputError(
            f"Docker takes no image named {name!r}", hint="write docker-archive:FILE:NAME:TAG"
        )
    return name
