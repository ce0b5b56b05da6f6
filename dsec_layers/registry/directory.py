"""A store in a directory, on a local disk (`dir://`) or a mounted 3FS (`threefs://`).

    <root>/
      dsec-store.json            {"layout":1}: this directory is a store
      packs/<hh>/<64 hex>        packs of layers: few, large, read in ranges
      blobs/<hh>/<64 hex>        manifests, configs, EROFS metadata, chunk tables
      refs/<kind>/<name>/@<tag>.json
                                 references (see `references`)
      .../tmp-<pid>-<random>     being written; stale ones are removed by `remove_stale`

Blobs are named by their sha256, `<hh>` being its first two digits. Packs, blobs and references have
folders of their own, because a cluster file system lays out its stripes per folder. A blob is
written beside its final name, checked, synced and then linked to that name if it is still free: a
blob that others read is never replaced, since the readers of a removed file are not tracked there.
Only a file that a fault has cut short is replaced by a whole one.

The modification time of a blob is its lease: `put` and `has` renew it, so that collection can spare
what a push that is still under way counts on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError, StoreError
from dsec_layers.model import canonical
from dsec_layers.model.environment import ENVIRONMENT_ARTIFACT
from dsec_layers.model.manifest import (
    LAYER_ARTIFACT,
    OCI_INDEX,
    OCI_MANIFEST,
    PACK_TYPE,
    Descriptor,
)
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import files, lease
from dsec_layers.registry.references import ReferenceFiles

MARKER: Final = "dsec-store.json"
LAYOUT: Final = 1
GENERIC_TYPE: Final = "application/octet-stream"
RENEW_AFTER_S: Final = 3600
STALE_AFTER_S: Final = 24 * 3600


class _Marker(msgspec.Struct, frozen=True):
    layout: int


class DirectoryStore:
    """Implements `Store`, safe for many threads, processes and nodes at once.

    Make one with `open`. `may_move` says whether a file of the caller may be renamed into the
    store, or must be copied so that it gets the striping of its folder.
    """

    def __init__(
        self, root: Path, *, scheme: str = "dir", timing: lease.Timing | None = None
    ) -> None:
        self.root = root
        self._scheme = scheme
        self._may_move = scheme == "dir"
        self._prefix = {True: f"{root}/packs/", False: f"{root}/blobs/"}
        self._handles = files.HandleCache()
        self._references = ReferenceFiles(root / "refs", root, timing)

    @classmethod
    def open(cls, root: Path, *, scheme: str = "dir", create: bool = False) -> DirectoryStore:
        """Open the store in `root`; with `create` an absent one is made first.

        A `threefs` root itself is never made, since its absence means that nothing is mounted
        there. Raises StoreError when there is no store, it cannot be reached, or a newer version of
        this program has laid it out.
        """
        store = cls(root, scheme=scheme)
        with files.explained(f"cannot open the store {store.url}"):
            if create and not (root / MARKER).exists():
                store._create()
            store._check_marker()
        return store

    @property
    def url(self) -> str:
        """`dir:///path` or `threefs:///path`."""
        return f"{self._scheme}://{quote(str(self.root))}"

    def close(self) -> None:
        """Close the files that are kept open for reading. The store stays usable."""
        self._handles.close()

    # Blobs

    def has(self, blob: Descriptor) -> bool:
        """See `BlobReader.has`. A file of another size does not count. Renews the blob's lease."""
        path = self._path(blob)
        with files.explained(f"cannot look at {path}"):
            try:
                found = Path(path).stat()
            except FileNotFoundError:
                self._check_marker()
                return False
        if found.st_size != blob.size:
            return False
        if time.time() - found.st_mtime > RENEW_AFTER_S:
            with contextlib.suppress(
                OSError
            ):  # a store that may only be read is not ours to collect either
                os.utime(path)
        return True

    def read(self, blob: Descriptor, offset: int = 0, length: int | None = None) -> bytes:
        """See `BlobReader.read`."""
        wanted = blob.size - offset if length is None else length
        if offset < 0 or wanted < 0 or offset + wanted > blob.size:
            raise CorruptError(
                f"bytes {offset}+{wanted} lie outside blob {blob.digest} of {blob.size} bytes"
            )
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
            _check_digest(blob, hashlib.sha256(data).hexdigest(), path)
        return data

    def stream(self, blob: Descriptor) -> Iterator[bytes]:
        """See `BlobReader.stream`."""
        path = self._path(blob)
        hasher = hashlib.sha256()
        with files.explained(f"cannot read {path}"), self._open(blob, path) as handle:
            for offset in range(0, blob.size, files.PIECE_BYTES):
                piece = handle.read(offset, min(files.PIECE_BYTES, blob.size - offset))
                hasher.update(piece)
                yield piece
        _check_digest(blob, hasher.hexdigest(), path)

    def put(
        self, blob: Descriptor, source: Path | bytes | Iterator[bytes], *, consume: bool = False
    ) -> bool:
        """See `BlobWriter.put`. Any number of writers may put the same blob at once."""
        target = Path(self._path(blob))
        owned = source if consume and isinstance(source, Path) else None
        with files.explained(f"cannot write {target}"):
            written = not self.has(blob) and (
                self._move(blob, owned, target) or self._copy(blob, source, target)
            )
            if owned:
                owned.unlink(missing_ok=True)
        return written

    def delete(self, blob: Descriptor) -> None:
        """See `Store.delete`."""
        path = self._path(blob)
        self._handles.drop(path)
        with files.explained(f"cannot delete {path}"), contextlib.suppress(FileNotFoundError):
            Path(path).unlink()

    def blobs(self) -> Iterator[Descriptor]:
        """All blobs, packs first; the media type is that of a pack or the generic one."""
        for media_type, folder in ((PACK_TYPE, "packs"), (GENERIC_TYPE, "blobs")):
            for entry in self._scan(folder):
                if not entry.name.startswith(files.TEMPORARY_PREFIX):
                    with contextlib.suppress(FileNotFoundError):
                        yield Descriptor(media_type, f"sha256:{entry.name}", entry.stat().st_size)

    # References

    def resolve(self, reference: Reference) -> Descriptor:
        """See `References.resolve`. A digest without a tag is looked up as a manifest or index."""
        if not reference.tag and reference.digest:
            return self._find_manifest(reference)
        target = self._references.read(reference)
        if target is None:
            self._check_marker()
            raise NotFoundError(f"no such reference in {self.url}: {reference}")
        if reference.digest and target.digest != str(reference.digest):
            raise NotFoundError(
                f"{reference} is now {target.digest} in {self.url}",
                hint="leave out the tag to use the digest as it is",
            )
        return target

    def tag(
        self,
        reference: Reference,
        target: Descriptor,
        *,
        expected: Descriptor | bool | None = False,
    ) -> None:
        """See `References.tag`. Raises NotFoundError when the store lacks `target`."""
        if not self.has(target):
            raise NotFoundError(f"cannot tag {reference}: {target.digest} is not in {self.url}")
        self._references.write(reference, target, expected)

    def untag(self, reference: Reference) -> None:
        """See `References.untag`."""
        self._references.remove(reference)

    def tags(self, kind: Kind | None = None) -> Iterator[tuple[Reference, Descriptor]]:
        """See `References.tags`."""
        return self._references.list(kind)

    # Care

    def renewed(self, blob: Descriptor) -> float:
        """Seconds since the epoch when the blob was last put or asked for.

        Raises NotFoundError or StoreError.
        """
        path = self._path(blob)
        with files.explained(f"cannot look at {path}"):
            try:
                return Path(path).stat().st_mtime
            except FileNotFoundError:
                raise NotFoundError(f"no blob {blob.digest} in {self.url}") from None

    def remove_stale(self, older_than_s: float = STALE_AFTER_S) -> int:
        """Remove what writers that died left behind, and return how many files that were."""
        removed = 0
        limit = time.time() - older_than_s
        with files.explained(f"cannot clean {self.url}"):
            for directory, _, names in os.walk(self.root):
                for name in names:
                    path = Path(directory, name)
                    if name.startswith(files.TEMPORARY_PREFIX) and _is_older(path, limit):
                        path.unlink(missing_ok=True)
                        removed += 1
        return removed

    def _path(self, blob: Descriptor) -> str:
        digest = blob.parsed_digest
        if digest.algorithm != "sha256":
            raise InvalidInputError(f"blobs are named by sha256, not {blob.digest}")
        return f"{self._prefix[blob.media_type == PACK_TYPE]}{digest.hex[:2]}/{digest.hex}"

    @contextlib.contextmanager
    def _open(self, blob: Descriptor, path: str) -> Iterator[files.Handle]:
        with contextlib.ExitStack() as stack:
            try:
                handle = stack.enter_context(self._handles.open(path))
            except FileNotFoundError:
                self._check_marker()
                raise NotFoundError(f"no blob {blob.digest} in {self.url}") from None
            if handle.size != blob.size:
                self._handles.drop(path)
                raise CorruptError(
                    f"blob {blob.digest} has {handle.size} instead of {blob.size} bytes in {path}"
                )
            yield handle

    def _move(self, blob: Descriptor, source: Path | None, target: Path) -> bool:
        """Link a file that the caller has hashed into place; False when it must be copied."""
        if (
            source is None
            or not self._may_move
            or source.is_symlink()
            or source.stat().st_size != blob.size
        ):
            return False
        files.make_directory(target.parent, self.root)
        if source.stat().st_dev != target.parent.stat().st_dev:
            return False
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(fd, 0o444)
            os.fsync(fd)
        finally:
            os.close(fd)
        return self._publish(blob, source, target)

    def _copy(self, blob: Descriptor, source: Path | bytes | Iterator[bytes], target: Path) -> bool:
        with files.aside(target.parent, self.root) as (fd, temporary):
            _write_checked(fd, blob, source)
            return self._publish(blob, temporary, target)

    def _publish(self, blob: Descriptor, path: Path, target: Path) -> bool:
        if not files.link_if_absent(path, target):
            if self.has(blob):  # another writer was first
                return False
            path.replace(target)  # what stands there has been cut short
            self._handles.drop(str(target))
        files.sync_directory(target.parent)
        return True

    def _find_manifest(self, reference: Reference) -> Descriptor:
        is_environment = reference.kind is Kind.ENV
        media_type, artifact = (
            (OCI_INDEX, ENVIRONMENT_ARTIFACT) if is_environment else (OCI_MANIFEST, LAYER_ARTIFACT)
        )
        unsized = Descriptor(media_type, str(reference.digest), 0, artifact_type=artifact)
        path = self._path(unsized)
        with files.explained(f"cannot look at {path}"):
            try:
                return msgspec.structs.replace(unsized, size=Path(path).stat().st_size)
            except FileNotFoundError:
                self._check_marker()
                raise NotFoundError(f"no such reference in {self.url}: {reference}") from None

    def _scan(self, folder: str) -> Iterator[os.DirEntry[str]]:
        top = self.root / folder
        with files.explained(f"cannot list {top}"):
            for shard in sorted(top.iterdir()) if top.exists() else ():
                with os.scandir(shard) as entries:
                    yield from sorted(entries, key=lambda entry: entry.name)

    def _create(self) -> None:
        if self._scheme == "dir":
            self.root.mkdir(parents=True, exist_ok=True)
        with files.aside(self.root, self.root) as (fd, temporary):
            files.write_all(fd, canonical.encode(_Marker(LAYOUT)))
            os.fsync(fd)
            files.link_if_absent(temporary, self.root / MARKER)
        files.sync_directory(self.root)

    def _check_marker(self) -> None:
        try:
            data = (self.root / MARKER).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            hint = "check the spelling and the mount; a push makes a new store"
            raise StoreError(f"there is no store at {self.url}", hint=hint) from None
        layout = canonical.decode(data, _Marker, what=str(self.root / MARKER)).layout
        if layout != LAYOUT:
            raise StoreError(
                f"{self.url} has layout {layout}, this version knows {LAYOUT}",
                hint="use a newer version",
            )


def _write_checked(fd: int, blob: Descriptor, source: Path | bytes | Iterator[bytes]) -> None:
    """Write and sync `source`. Raises CorruptError when its size or digest is not the blob's."""
    pieces = iter([source]) if isinstance(source, bytes) else source
    if isinstance(pieces, Path):
        pieces = files.read_pieces(pieces)
    hasher, size = hashlib.sha256(), 0
    for piece in pieces:
        size += len(piece)
        if size > blob.size:
            break
        hasher.update(piece)
        files.write_all(fd, piece)
    if size != blob.size:
        raise CorruptError(
            f"blob {blob.digest} should have {blob.size} bytes, its source has {size} or more"
        )
    _check_digest(blob, hasher.hexdigest(), "its source")
    os.fsync(fd)


def _check_digest(blob: Descriptor, hexdigest: str, where: str) -> None:
    if blob.digest != f"sha256:{hexdigest}":
        raise CorruptError(f"blob {blob.digest} is corrupt: {where} has sha256:{hexdigest}")


def _is_older(path: Path, limit: float) -> bool:
    try:
        return path.stat().st_mtime < limit
    except FileNotFoundError:
        return False
