"""References kept as small files: one a tag, replaced atomically, changed under a lease.

    refs/<kind>/<name>/@<tag>.json    the descriptor in canonical JSON
    refs/<kind>/<name>/@<tag>.lock    held while the tag changes

A name may have several components, each a directory. No component starts with `@`, so the tags of
`a/b` and the directory of `a/b/c` never meet.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsec_layers.errors import ConflictError, CorruptError, InvalidInputError, NotFoundError
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import files, lease
from dsec_layers.registry.naming import reference_name


class ReferenceFiles:
    """The references below `folder`; `root` is the store, which is never made."""

    def __init__(self, folder: Path, root: Path, timing: lease.Timing | None = None) -> None:
        self._folder = folder
        self._root = root
        self._timing = timing

    def read(self, reference: Reference) -> Descriptor | None:
        """The descriptor of a tag, or None. One file is read. Raises CorruptError or StoreError."""
        path = self._path(reference)
        with files.explained(f"cannot read {path}"):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        return decode_target(data, str(path))

    def write(
        self, reference: Reference, target: Descriptor, expected: Descriptor | bool | None
    ) -> None:
        """Point a tag to `target`.

        Raises ConflictError when `expected` does not hold, BusyError, NoSpaceError or StoreError.
        """
        path = self._path(reference)
        with (
            files.explained(f"cannot tag {reference}"),
            files.aside(path.parent, self._root) as (fd, temporary),
        ):
            files.write_all(fd, canonical.encode(target))
            os.fsync(fd)
            with lease.hold(path.with_suffix(".lock"), self._root, self._timing) as held:
                if not isinstance(expected, bool):
                    check_guard(reference, expected, self.read(reference))
                held.check()
                temporary.replace(path)
                files.sync_directory(path.parent)

    def remove(self, reference: Reference) -> None:
        """Remove a tag. Raises NotFoundError, BusyError or StoreError."""
        path = self._path(reference)
        with files.explained(f"cannot remove {reference}"):
            try:
                path.stat()
                with lease.hold(path.with_suffix(".lock"), self._root, self._timing) as held:
                    held.check()
                    path.unlink()
                    files.sync_directory(path.parent)
            except FileNotFoundError:
                raise NotFoundError(f"no such tag: {reference}") from None

    def list(
        self, kind: Kind | None = None, name: str | None = None
    ) -> Iterator[tuple[Reference, Descriptor]]:
        """All tags in reference order. Raises CorruptError or StoreError."""
        kinds = (kind,) if kind else tuple(Kind)
        with files.explained(f"cannot list {self._folder}"):
            if name is None:
                found = sorted(reference for each in kinds for reference in self._walk(each))
            else:
                found = sorted(ref for each in kinds for ref in self._of_name(each, name))
        for reference in found:
            if target := self.read(reference):  # None: removed since
                yield reference, target

    def _walk(self, kind: Kind) -> Iterator[Reference]:
        top = self._folder / kind.value
        for directory, _, names in os.walk(top, onerror=_raise_unless_missing):
            yield from _tags_among(kind, os.path.relpath(directory, top), names)

    def _of_name(self, kind: Kind, name: str) -> Iterator[Reference]:
        try:
            names = [path.name for path in self._path(Reference(kind, name)).parent.iterdir()]
        except FileNotFoundError:
            return
        yield from _tags_among(kind, name, names)

    def _path(self, reference: Reference) -> Path:
        return self._folder / reference_name(reference)


def _tags_among(kind: Kind, name: str, entries: Iterable[str]) -> Iterator[Reference]:
    for entry in entries:
        if entry.startswith("@") and entry.endswith(".json"):
            yield Reference(kind, name, entry[1 : -len(".json")])


def check_guard(
    reference: Reference, expected: Descriptor | None, found: Descriptor | None
) -> None:
    """Raise ConflictError unless `found` stands in a tag as `expected`; None is no tag."""
    wanted = expected.digest if expected else None
    stands = found.digest if found else None
    if wanted != stands:
        raise ConflictError(
            f"{reference} is {stands or 'not there'}, not {wanted or 'absent'} as expected",
            hint="somebody else changed it: look at it again and repeat",
        )


def check_found(reference: Reference, found: Descriptor | None, url: str) -> Descriptor:
    """What stands in a tag of the store at `url`, as it was asked for.

    Raises NotFoundError if there is none, or if it moved on from the digest that is asked for.
    """
    if found is None:
        raise NotFoundError(f"no such reference in {url}: {reference}")
    if reference.digest and found.digest != str(reference.digest):
        hint = "leave out the tag to use the digest as it is"
        raise NotFoundError(f"{reference} is now {found.digest} in {url}", hint=hint)
    return found


def decode_target(data: bytes, where: str) -> Descriptor:
    """The descriptor in the file of a tag. Raises CorruptError, which says `where` it is."""
    descriptor = canonical.decode(data, Descriptor, what=f"reference {where}")
    try:
        Digest.parse(descriptor.digest)
    except InvalidInputError as error:
        raise CorruptError(f"reference {where} is malformed: {error}") from error
    return descriptor


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
