"""What is attached to manifests, kept as small files.

    referrers/<hh>/<subject hex>/<referrer hex>.json    the descriptor in canonical JSON

`<hh>` are the first two digits of the subject's sha256. Files are only ever added or removed, so
that any number of writers need no lock.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsec_layers.errors import CorruptError
from dsec_layers.model import canonical
from dsec_layers.model.manifest import Descriptor
from dsec_layers.registry import files

_SUFFIX: Final = ".json"


class ReferrerFiles:
    """The attachments below `folder`; `root` is the store, which is never made."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root

    def list(self, subject: Descriptor) -> Iterator[Descriptor]:
        """See `Referrers.referrers`."""
        folder = self._of(subject)
        with files.explained(f"cannot list {folder}"):
            try:
                paths = sorted(folder.iterdir())
            except FileNotFoundError:
                return
        for path in paths:
            if path.suffix == _SUFFIX and not path.name.startswith(files.TEMPORARY_PREFIX):
                with contextlib.suppress(FileNotFoundError):  # removed since
                    yield _read(path)

    def add(self, subject: Descriptor, referrer: Descriptor) -> None:
        """See `Referrers.attach`; the caller knows that `referrer` is in the store."""
        path = self._path(subject, referrer)
        with (
            files.explained(f"cannot attach to {subject.digest}"),
            files.aside(path.parent, self._root) as (fd, temporary),
        ):
            files.write_all(fd, canonical.encode(referrer))
            os.fsync(fd)
            temporary.replace(path)
            files.sync_directory(path.parent)

    def remove(self, subject: Descriptor, referrer: Descriptor) -> None:
        """See `Referrers.detach`."""
        path = self._path(subject, referrer)
        with files.explained(f"cannot detach from {subject.digest}"):
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # others are still attached, or it was never made
                path.parent.rmdir()

    def _of(self, subject: Descriptor) -> Path:
        digest = subject.parsed_digest
        return self._folder / digest.hex[:2] / digest.hex

    def _path(self, subject: Descriptor, referrer: Descriptor) -> Path:
        return self._of(subject) / f"{referrer.parsed_digest.hex}{_SUFFIX}"


def _read(path: Path) -> Descriptor:
    """The descriptor in a file. Raises FileNotFoundError, CorruptError or StoreError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise files.explain(error, f"cannot read {path}") from error
    descriptor = canonical.decode(data, Descriptor, what=f"referrer {path}")
    if descriptor.digest != f"sha256:{path.name.removesuffix(_SUFFIX)}":
        raise CorruptError(f"referrer {path} is of {descriptor.digest}")
    return descriptor
