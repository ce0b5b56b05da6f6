"""A store in a directory, on a local disk (`dir://`) or a mounted 3FS (`threefs://`).

    <root>/
      dsec-store.json            {"layout":1}: this directory is a store
      packs/<hh>/<64 hex>        packs of layers: few, large, read in ranges
      blobs/<hh>/<64 hex>        manifests, configs, EROFS metadata, chunk tables
      refs/<kind>/<name>/@<tag>.json
                                 references (see `references`)
      referrers/<hh>/<64 hex>/<64 hex>.json
                                 what is attached to a manifest (see `referrers`)
      leases/<id>, condemned/<id>, clock/<id>
                                 notes of users and collectors (see `condemned`)
      .../tmp-<pid>-<random>     being written; stale ones are removed by `remove_stale`

Blobs are named by their sha256, `<hh>` being its first two digits. Packs, blobs and references have
folders of their own, because a cluster file system lays out its stripes per folder. A blob is
written beside its final name, checked, synced and then linked to that name if it is still free: a
blob that others read is never replaced, since the readers of a removed file are not tracked there.
Only a file that a fault has cut short is replaced by a whole one.

The modification time of a blob tells a collector when it was last put or asked for: `put` and `has`
renew it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dsec_layers.errors import NotFoundError
from dsec_layers.model.collecting import Note
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import files, lease, marker
from dsec_layers.registry.blobfiles import BlobFiles
from dsec_layers.registry.naming import manifest_at
from dsec_layers.registry.notes import NoteFiles
from dsec_layers.registry.references import ReferenceFiles, check_found
from dsec_layers.registry.referrers import ReferrerFiles

STALE_AFTER_S: Final = 24 * 3600


class DirectoryStore(BlobFiles):
    """Implements `Collectable`, safe for many threads, processes and nodes at once. See `open`."""

    def __init__(
        self, root: Path, *, scheme: str = "dir", timing: lease.Timing | None = None
    ) -> None:
        super().__init__(root, scheme)
        self._references = ReferenceFiles(root / "refs", root, timing)
        self._referrers = ReferrerFiles(root / "referrers", root)
        self._notes = NoteFiles(root, across_nodes=scheme != "dir")

    @classmethod
    def open(cls, root: Path, *, scheme: str = "dir", create: bool = False) -> DirectoryStore:
        """Open the store in `root`; with `create` an absent one is made first.

        A `threefs` root itself is never made: its absence means that nothing is mounted there.
        Raises StoreError when there is no store, it cannot be reached, or a newer version of this
        program has laid it out; InvalidInputError when one is to be made among other files.
        """
        store = cls(root, scheme=scheme)
        with files.explained(f"cannot make the store {store.url}"):
            if create and not (root / marker.MARKER).exists():
                if scheme == "dir":
                    root.mkdir(parents=True, exist_ok=True)
                marker.create(root, store.url)
        marker.check(root, store.url)
        return store

    def resolve(self, reference: Reference) -> Descriptor:
        """See `References.resolve`. A digest without a tag is looked up as manifest or index."""
        found = self.tagged(reference)
        return msgspec.structs.replace(found, annotations={}) if found.annotations else found

    def tagged(self, reference: Reference) -> Descriptor:
        """See `References.tagged`."""
        if reference.digest and not reference.tag:
            return self._find_manifest(reference)
        target = self._references.read(reference)
        if target is None:
            marker.check(self.root, self.url)
        return check_found(reference, target, self.url)

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

    def tags(
        self, kind: Kind | None = None, name: str | None = None
    ) -> Iterator[tuple[Reference, Descriptor]]:
        """See `References.tags`."""
        return self._references.list(kind, name)

    def referrers(self, subject: Descriptor) -> Iterator[Descriptor]:
        """See `Referrers.referrers`."""
        return self._referrers.list(subject)

    def attach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """See `Referrers.attach`."""
        if not self.has(referrer):
            raise NotFoundError(f"cannot attach {referrer.digest}: it is not in {self.url}")
        self._referrers.add(subject, referrer)

    def detach(self, subject: Descriptor, referrer: Descriptor) -> None:
        """See `Referrers.detach`."""
        self._referrers.remove(subject, referrer)

    def notes(self, folder: str) -> Iterator[Note]:
        """See `Collectable.notes`."""
        return self._notes.list(folder)

    def read_note(self, name: str) -> bytes:
        """See `Collectable.read_note`."""
        return self._notes.read(name)

    def write_note(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """See `Collectable.write_note`."""
        self._notes.write(name, data, sync=sync)

    def remove_note(self, name: str) -> None:
        """See `Collectable.remove_note`."""
        self._notes.remove(name)

    def remove_stale(self, older_than_s: float = STALE_AFTER_S) -> int:
        """Remove the files of writers that died, and return how many there were."""
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

    def _find_manifest(self, reference: Reference) -> Descriptor:
        manifest = manifest_at(reference, 0)
        return manifest_at(reference, self._stat(manifest).st_size)


def _is_older(path: Path, limit: float) -> bool:
    try:
        return path.stat().st_mtime < limit
    except FileNotFoundError:
        return False
