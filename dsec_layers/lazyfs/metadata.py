"""The unpacked EROFS images of layers on this node.

    DSEC_HOME/metadata/<layer hex>.erofs    checked before it appears and before it is mounted

The folder must lie on a disk file system: the kernel mounts no image from tmpfs or overlay.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import blake3
import zstandard

from dsec_layers.erofs.reader import ErofsImage, device_blocks
from dsec_layers.errors import CorruptError, DsecError
from dsec_layers.lazyfs import durable
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.model.digest import Digest
from dsec_layers.model.tree import BLOCK_SIZE

_PIECE_BYTES = 1 << 20
_SLICE_BYTES = 4096
_log = logging.getLogger(__name__)


class MetadataImages:
    """Fetches, keeps and checks the images. Safe to use from many threads and processes."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "metadata"

    def path(self, digest: Digest) -> Path:
        """Where the image of a layer is, or would be."""
        return self._folder / f"{digest.hex}.erofs"

    def has(self, layer: MountLayer) -> bool:
        """Whether there is an image of `layer`, which may be damaged."""
        return self.path(layer.digest).exists()

    def ensure(self, layer: MountLayer) -> Path:
        """The checked image of `layer`; fetched when it is missing or damaged.

        Raises CorruptError naming the local file when it is damaged and cannot be had again, else
        what fetching raises: CorruptError, NotFoundError, StoreError, NoSpaceError.
        """
        path = self.path(layer.digest)
        if not self.has(layer):
            self._fetch(layer, path)
            return path
        try:
            self.check(layer)
        except CorruptError as damage:
            try:
                self._fetch(layer, path)
            except DsecError as error:
                raise CorruptError(
                    f"{damage.message}, and it cannot be fetched again: {error.message}",
                    hint=error.hint,
                ) from damage
            _log.warning("%s; fetched again", damage.message)
        return path

    def check(self, layer: MountLayer) -> int:
        """Compare the local image with the digest in the layer's config; the bytes read.

        Raises CorruptError naming the file, FileNotFoundError when there is none.
        """
        path, plain = self.path(layer.digest), layer.config.metadata
        hasher = blake3.blake3()
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                hasher.update(piece)
            size = file.tell()
        if (size, f"blake3:{hasher.hexdigest()}") != (plain.size_bytes, plain.digest):
            raise CorruptError(f"metadata of layer {layer} is damaged on this node: {path}")
        return size

    def device_bytes(self, layer: MountLayer) -> int:
        """How large a device the local image of `layer`, which was checked, points into.

        Raises CorruptError.
        """
        with self.path(layer.digest).open("rb", buffering=0) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            return device_blocks(file.read(BLOCK_SIZE), size_bytes) * BLOCK_SIZE

    @contextlib.contextmanager
    def open(self, digest: Digest) -> Iterator[ErofsImage]:
        """The local image of a layer for reading. Raises CorruptError, FileNotFoundError."""
        with (
            self.path(digest).open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as buffer,
            ErofsImage(buffer) as image,
        ):
            yield image

    def remove(self, digest: Digest) -> None:
        """Forget the image of a layer; one that is mounted stays readable until it is unmounted."""
        self.path(digest).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what killed processes left."""
        durable.sweep(self._folder)

    def _fetch(self, layer: MountLayer, path: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Checked whenever it is used, and fetched again: not worth a wait for the disk.
        durable.write_whole(path, unpacked_metadata(layer), sync=False)


def _slices(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Small slices, so that no hostile blob unpacks to more than some MiB at once."""
    for piece in pieces:
        for start in range(0, len(piece), _SLICE_BYTES):
            yield piece[start : start + _SLICE_BYTES]


def unpacked_metadata(layer: MountLayer) -> Iterator[bytes]:
    """The EROFS image of `layer` from its blob, in pieces; CorruptError after a wrong last one."""
    plain = layer.config.metadata
    what = f"metadata blob {layer.manifest.metadata.digest} of layer {layer}"
    hasher, size = blake3.blake3(), 0
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    try:
        for packed in _slices(layer.blobs.stream(layer.manifest.metadata)):
            piece = unpacker.decompress(packed)
            hasher.update(piece)
            size += len(piece)
            if size > plain.size_bytes:
                break
            yield piece
    except zstandard.ZstdError as error:
        raise CorruptError(f"{what} does not unpack: {error}") from error
    if (size, f"blake3:{hasher.hexdigest()}") != (plain.size_bytes, plain.digest):
        raise CorruptError(f"{what} does not hold the image that the layer's config names")
