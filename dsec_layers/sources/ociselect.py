"""Which image of a layout or archive is meant, and the files of its layers.

An OCI layout has an index of manifests, per platform and per name; indexes may lie in indexes, and
attestations lie beside images. What `docker save` wrote has a `manifest.json`, whose layers are
checked against the digests of their plain bytes in the config.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.linux.machine import oci_architecture
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.sources.ociblobs import Platform, Pointer, blob_name, read_blob, read_document
from dsec_layers.sources.ocifiles import Files

_INDEX_TYPES: Final = frozenset(
    {
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    }
)
_CONFIG_TYPES: Final = frozenset(
    {
        "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.container.image.v1+json",
    }
)
_LAYER_TYPES: Final = frozenset(
    f"application/vnd.{name}{compression}"
    for name, compressions in (
        ("oci.image.layer.v1.tar", ("", "+gzip", "+zstd")),
        ("docker.image.rootfs.diff.tar", ("", ".gzip", ".zstd")),
    )
    for compression in compressions
)
_REFERENCE_KEY: Final = "org.opencontainers.image.ref.name"
_NAME_KEYS: Final = (_REFERENCE_KEY, "io.containerd.image.name")
_ATTESTATION_KEY: Final = "vnd.docker.reference.type"
_MAX_DEPTH: Final = 4


class _Index(msgspec.Struct, frozen=True, rename="camel"):
    manifests: tuple[Pointer, ...]


class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    config: Pointer
    layers: tuple[Pointer, ...]


class _DockerManifest(msgspec.Struct, frozen=True, rename="pascal"):
    config: str
    layers: tuple[str, ...]
    repo_tags: tuple[str, ...] | None = None


class _RootFs(msgspec.Struct, frozen=True):
    diff_ids: tuple[str, ...]


class _Config(msgspec.Struct, frozen=True):
    rootfs: _RootFs


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: the file that holds it, and the digest of its bytes, or of its plain bytes."""

    file: str
    digest: str
    size: int | None
    is_plain_digest: bool


@dataclass(frozen=True, slots=True)
class Image:
    """An image: the bytes and digest of its config, and its layers, lowest first."""

    config: bytes
    digest: str
    layers: tuple[Layer, ...]


def select_image(files: Files, reference: str | None) -> Image | None:
    """The one image for this machine, or the one that `reference` names; None when it is no image.

    Raises InvalidInputError, CorruptError or NotFoundError.
    """
    if files.has("oci-layout") and files.has("index.json"):
        return _from_layout(files, reference)
    if files.has("manifest.json"):
        manifest = read_document(files, "manifest.json")
        # A root file system may hold a file of this name too: that of a web application, say.
        if manifest.lstrip().startswith(b"["):
            return _from_docker_archive(files, manifest, reference)
    return None


def fits_machine(platform: Platform) -> bool:
    """Whether an image for `platform` runs here."""
    return (platform.os, platform.architecture) == ("linux", oci_architecture())


def _from_layout(files: Files, reference: str | None) -> Image:
    index = canonical.decode(read_document(files, "index.json"), _Index, what="index.json")
    manifests = index.manifests
    if reference is not None:
        manifests = tuple(pointer for pointer in manifests if _is_named(pointer, reference))
    found = {pointer.digest: pointer for pointer in _images(files, manifests, _MAX_DEPTH)}
    if len(found) != 1:
        named = [each for each in index.manifests if _label(each) != each.digest]
        leaves = _leaves(files, index.manifests, _MAX_DEPTH)
        known = {_label(pointer) for pointer in (*named, *leaves)}
        raise _not_one(len(found), reference, sorted(known))
    (pointer,) = found.values()
    manifest = canonical.decode(read_blob(files, pointer), _Manifest, what="image manifest")
    if manifest.config.media_type not in _CONFIG_TYPES:
        raise InvalidInputError(f"not an image but {manifest.config.media_type!r}")
    layers = tuple(_layer(pointer) for pointer in manifest.layers)
    return Image(read_blob(files, manifest.config), manifest.config.digest, layers)


def _images(files: Files, pointers: tuple[Pointer, ...], depth: int) -> Iterator[Pointer]:
    """The image manifests for this machine."""
    for pointer in _leaves(files, pointers, depth):
        if pointer.platform is None or fits_machine(pointer.platform):
            yield pointer


def _leaves(files: Files, pointers: tuple[Pointer, ...], depth: int) -> Iterator[Pointer]:
    """All image manifests, also those of indexes inside of indexes."""
    for pointer in pointers:
        if _ATTESTATION_KEY in (pointer.annotations or {}):
            continue
        if pointer.media_type in _INDEX_TYPES and depth:
            index = canonical.decode(read_blob(files, pointer), _Index, what="image index")
            yield from _leaves(files, index.manifests, depth - 1)
        else:
            yield pointer


def _not_one(count_found: int, reference: str | None, known: list[str]) -> InvalidInputError:
    wanted = f" named {reference!r}" if reference else ""
    count = "several images" if count_found else "no image"
    return InvalidInputError(
        f"{count}{wanted} for linux/{oci_architecture()}", hint=f"there are: {', '.join(known)}"
    )


def _label(pointer: Pointer) -> str:
    annotations = pointer.annotations or {}
    name = next((annotations[key] for key in _NAME_KEYS if key in annotations), pointer.digest)
    platform = pointer.platform
    return f"{name} ({platform.os}/{platform.architecture})" if platform else name


def _is_named(pointer: Pointer, reference: str) -> bool:
    names = [(pointer.annotations or {}).get(key, "") for key in _NAME_KEYS]
    return any(name == reference or name.endswith(f":{reference}") for name in names)


def _layer(pointer: Pointer) -> Layer:
    media_type = pointer.media_type
    if pointer.urls or "nondistributable" in media_type or "foreign" in media_type:
        raise InvalidInputError(
            f"layer {pointer.digest} is foreign: the image does not hold its data"
        )
    if media_type not in _LAYER_TYPES:
        raise InvalidInputError(f"layer {pointer.digest} is of the unknown type {media_type!r}")
    return Layer(blob_name(pointer.digest), pointer.digest, pointer.size, is_plain_digest=False)


def _from_docker_archive(files: Files, manifest: bytes, reference: str | None) -> Image:
    images = canonical.decode(manifest, tuple[_DockerManifest, ...], what="manifest.json")
    tags = sorted(tag for image in images for tag in image.repo_tags or ())
    wanted = [
        image
        for image in images
        if reference is None
        or any(tag == reference or tag.endswith(f":{reference}") for tag in image.repo_tags or ())
    ]
    if len(wanted) != 1:
        count = "no image" if not wanted else "several images"
        raise InvalidInputError(f"{count} to read", hint=f"there are: {', '.join(tags)}")
    config = read_document(files, wanted[0].config)
    diff_ids = canonical.decode(config, _Config, what="image config").rootfs.diff_ids
    if len(diff_ids) != len(wanted[0].layers):
        raise InvalidInputError("the image config and manifest.json list different layers")
    layers = tuple(
        Layer(file, diff_id, None, is_plain_digest=True)
        for file, diff_id in zip(wanted[0].layers, diff_ids, strict=True)
    )
    return Image(config, str(Digest.sha256(config)), layers)
