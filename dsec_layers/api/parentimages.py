"""Images that a build stands on, as base layers: found here, or made on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dsec_layers.api import images
from dsec_layers.api.workbench import Workbench
from dsec_layers.api.workfolder import work_folder
from dsec_layers.builder.layers import Image, ImageFile, ImageForm
from dsec_layers.errors import InvalidInputError, NotFoundError, StoreError
from dsec_layers.model.digest import Digest
from dsec_layers.model.imagename import ImageName
from dsec_layers.model.reference import Kind, Reference

_FROM_FILES: Final = "imported"


class ParentImages(msgspec.Struct, frozen=True):
    """Finds or makes bases of images.

    With `pull` the registry is asked what an image is now, without it only for what is not here.
    `may_import` is False where nothing shall be made.
    """

    bench: Workbench
    pull: bool = False
    may_import: bool = True
    tell: Callable[[str], object] = lambda _text: None

    def base(self, image: Image) -> Reference:
        """The base layer made of `image`, which is there afterwards.

        Raises NotFoundError, StoreError, InvalidInputError, CorruptError or NoSpaceError.
        """
        if isinstance(image, ImageFile):
            return self._of_file(image)
        if self._is_here(image):
            return image.base
        hint = (
            f"`dsec-layers import SOURCE {image.base}` makes it of an archive, a layout or another "
            f"registry, and `--build-context {image.repository}=...` puts something in its place"
        )
        if not self.may_import:
            raise NotFoundError(f"the image {image} is not here", hint=hint)
        from dsec_layers.api.importing import import_

        self.tell(f"importing {image} as {image.base}")
        try:
            import_(self.bench, f"{images.SCHEME}{image}", image.base)
        except (NotFoundError, StoreError) as error:
            message = f"the image {image} is not here and cannot be fetched: {error.message}"
            raise type(error)(message, hint=hint) from error
        return image.base

    def _is_here(self, image: ImageName) -> bool:
        """Whether there is a base of the image, which is the current one if that is asked for."""
        try:
            descriptor = self.bench.resolve(image.base)
        except NotFoundError:
            return False
        if not self.pull or image.digest or not self.may_import:
            return True
        made_of = images.image_of(self.bench.layer(descriptor).config.provenance)
        return made_of.endswith(f"@{images.current_digest(self.bench, image)}")

    def _of_file(self, image: ImageFile) -> Reference:
        from dsec_layers.api.importing import ImportOptions, import_
        from dsec_layers.sources.ocifiles import open_files
        from dsec_layers.sources.ociselect import select_image

        with work_folder(self.bench.home.root, "import") as spool:
            found = select_image(open_files(image.path, spool), image.name or None)
        if found is None or image.path.is_dir() is not (image.form is ImageForm.LAYOUT):
            raise InvalidInputError(f"{image.path} is no {image.form}")
        tag = f"sha256.{Digest.parse(found.digest).hex}"
        reference = Reference(Kind.BASE, _FROM_FILES, tag)
        try:
            self.bench.resolve(reference)
        except NotFoundError:
            self.tell(f"importing {image.path} as {reference}")
            options = ImportOptions(image=image.name or None)
            import_(self.bench, str(image.path), reference, options)
        return reference
