"""The files of an image on their way into a registry, each sent when it is whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.model.imagename import ImageName

if TYPE_CHECKING:
    from dsec_layers.registry.oci.images import NewImage

_BLOBS: Final = "blobs/sha256/"


class Sending:
    """Implements `Files`. A blob is on disk until it is known whether the registry has it."""

    def __init__(self, image: NewImage, folder: Path) -> None:
        self.image = image
        self._path = folder / "blob"
        self._file = self._path.open("wb")

    def write(self, data: bytes, /) -> object:
        """See `Files`."""
        return self._file.write(data)

    def name(self, name: str) -> None:
        """See `Files`: it is sent now."""
        self._file.close()
        self.image.add(f"sha256:{name.removeprefix(_BLOBS)}", self._path)
        self._file = self._path.open("wb")

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()


@contextlib.contextmanager
def sending(bench: Workbench, name: ImageName) -> Iterator[Sending]:
    """Send an image; it is there when its manifest has been published."""
    from dsec_layers.registry.oci.images import new_image
    from dsec_layers.registry.oci.settings import Settings

    with (
        new_image(name, Settings.load(bench.home.root)) as image,
        work_folder(bench.home.root, "export") as folder,
        contextlib.closing(Sending(image, folder)) as files,
    ):
        yield files
