"""Blobs as files: `packs/<hh>/<64 hex>` for packs and `blobs/<hh>/<64 hex>` for all others."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.registry import checked, files, marker
from dsec_layers.registry.handles import Handle, HandleCache
from dsec_layers.registry.naming import GENERIC_TYPE, blob_name

RENEW_AFTER_S: Final = 3600


class BlobFiles:
    """The blobs of a directory store. Implements `BlobReader` and `BlobWriter`.

    With the `dir` scheme a file that the caller gives away is moved into the store; on a cluster
    file system it is copied, so that it gets the striping of its folder.
    """

    def __init__(self, root: Path, scheme: str) -> None:
        self.root = root
        self.url = f"{scheme}://{quote(str(root))}"
        self._may_move = scheme == "dir"
        self._handles = HandleCache()

    def close(self) -> None:
        """Close the files that are kept open for reading. The store stays usable."""
        self._handles.close()

    def has(self, blob: Descriptor) -> bool:
        """See `BlobReader.has`. A file of another size does not count. Renews the blob's lease."""
        path = Path(self._path(blob))
        with files.explained(f"cannot look at {path}"):
            try:
                found = path.stat()
            except FileNotFoundError:
                marker.check(self.root, self.url)
                return False
        if found.st_size != blob.size:
            return False
        if time.time() - found.st_mtime > RENEW_AFTER_S:
            with contextlib.suppress(OSError):  # who may not write here does not collect here
                os.utime(path)
        return True

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """See `BlobReader.read`."""
        wanted = checked.wanted_length(blob, offset, length)
        path = self._path(blob)
        try:
            with self._open(blob, path) as handle:
                data = handle.read(offset, wanted)
        except OSError as error:
            self._handles.drop(path)
            raise files.explain(error, f"cannot read {path}") from error
        if len(data) != wanted:
            self._handles.drop(path)
            raise CorruptError(f"blob {blob.digest} ends early in {path}")
        if wanted == blob.size:
            checked.check_digest(blob, hashlib.sha256(data).hexdigest(), path)
        return data

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """See `BlobReader.stream`."""
        return checked.CheckedPieces(blob, self._pieces(blob), self._path(blob))

    def put(
        self, blob: Descriptor, source: Path | bytes | Iterator[bytes], *, consume: bool = False
    ) -> bool:
        """See `BlobWriter.put`. Any number of writers may put the same blob at once."""
        target = Path(self._path(blob))
        given = source if consume and isinstance(source, Path) else None
        with files.explained(f"cannot write {target}"):
            if self.has(blob):
                written = False
            elif given and self._can_move(blob, given, target):
                written = self._move(blob, given, target)
            else:
                written = self._copy(blob, source, target)
            if given:
                given.unlink(missing_ok=True)
        return written

    def delete(self, blob: Descriptor) -> None:
        """See `Store.delete`."""
        path = self._path(blob)
        self._handles.drop(path)
        with files.explained(f"cannot delete {path}"):
            Path(path).unlink(missing_ok=True)

    def blobs(self) -> Iterator[Descriptor]:
        """All blobs, packs first; the media type is that of a pack or the generic one."""
        for media_type, folder in ((PACK_TYPE, "packs"), (GENERIC_TYPE, "blobs")):
            for path in _scan(self.root / folder):
                with contextlib.suppress(FileNotFoundError):
                    yield Descriptor(media_type, f"sha256:{path.name}", path.stat().st_size)

    def renewed(self, blob: Descriptor) -> float:
        """See `Collectable.renewed`."""
        return self._stat(blob).st_mtime

    def renew(self, blob: Descriptor) -> None:
        """See `Collectable.renew`."""
        path = self._path(blob)
        with files.explained(f"cannot renew {path}"):
            try:
                os.utime(path)
            except FileNotFoundError:
                raise self._missing(blob) from None

    def _pieces(self, blob: Descriptor) -> Iterator[bytes]:
        path = self._path(blob)
        with files.explained(f"cannot read {path}"), self._open(blob, path) as handle:
            for offset in range(0, blob.size, files.PIECE_BYTES):
                yield handle.read(offset, min(files.PIECE_BYTES, blob.size - offset))

    def _stat(self, blob: Descriptor) -> os.stat_result:
        path = Path(self._path(blob))
        with files.explained(f"cannot look at {path}"):
            try:
                return path.stat()
            except FileNotFoundError:
                raise self._missing(blob) from None

    def _path(self, blob: Descriptor) -> str:
        return f"{self.root}/{blob_name(blob)}"

    def _missing(self, blob: Descriptor) -> NotFoundError:
        marker.check(self.root, self.url)
        return NotFoundError(f"no blob {blob.digest} in {self.url}")

    @contextlib.contextmanager
    def _open(self, blob: Descriptor, path: str) -> Iterator[Handle]:
        try:
            handle = self._handles.take(path)
        except FileNotFoundError:
            raise self._missing(blob) from None
        try:
            if handle.size != blob.size:
                self._handles.drop(path)
                sizes = f"{handle.size} instead of {blob.size} bytes"
                raise CorruptError(f"blob {blob.digest} has {sizes} in {path}")
            yield handle
        finally:
            self._handles.give_back(handle)

    def _can_move(self, blob: Descriptor, source: Path, target: Path) -> bool:
        if not self._may_move or source.is_symlink() or source.stat().st_size != blob.size:
            return False
        files.make_directory(target.parent, self.root)
        return source.stat().st_dev == target.parent.stat().st_dev

    def _move(self, blob: Descriptor, source: Path, target: Path) -> bool:
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(fd, 0o444)
            os.fsync(fd)
        finally:
            os.close(fd)
        return self._publish(blob, source, target)

    def _copy(self, blob: Descriptor, source: Path | bytes | Iterator[bytes], target: Path) -> bool:
        with files.aside(target.parent, self.root) as (fd, temporary):
            write = files.EarlyWriter(fd).write if self._may_move else partial(files.write_all, fd)
            _write_checked(write, blob, source)
            os.fsync(fd)
            return self._publish(blob, temporary, target)

    def _publish(self, blob: Descriptor, path: Path, target: Path) -> bool:
        if not files.link_if_absent(path, target):
            if self.has(blob):  # another writer was first
                return False
            path.replace(target)  # what stands there has been cut short
            self._handles.drop(str(target))
        files.sync_directory(target.parent)
        return True


def _write_checked(
    write: Callable[[bytes | bytearray], None], blob: Descriptor, source: checked.Source
) -> None:
    """Write `source`. Raises CorruptError when its size or digest is not the blob's.

    A cluster file system wants few large writes, one after the other: small pieces are gathered.
    """
    gathered = bytearray()
    for piece in checked.pieces(blob, source):
        if not gathered and len(piece) >= files.PIECE_BYTES:
            write(piece)
            continue
        gathered += piece
        if len(gathered) >= files.PIECE_BYTES:
            write(gathered)
            gathered.clear()
    write(gathered)


def _scan(folder: Path) -> Iterator[Path]:
    with files.explained(f"cannot list {folder}"):
        for shard in sorted(folder.iterdir()) if folder.exists() else ():
            for path in sorted(shard.iterdir()):
                if not path.name.startswith(files.TEMPORARY_PREFIX):
                    yield path
