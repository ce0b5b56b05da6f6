"""The documents of an image: config, manifest, index, and what names it.

Formats: OCI image specification 1.1 (layout, index, manifest, config), and the manifest.json of
archives that `docker save` writes. They hold no time of now and nothing of this machine but its
architecture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from dsec_layers.exporting.compression import Compression, compressor
from dsec_layers.exporting.files import Files
from dsec_layers.linux.machine import oci_architecture
from dsec_layers.model import canonical
from dsec_layers.model.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor
from dsec_layers.model.runconfig import Healthcheck, RunConfig

_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_LAYER_TYPES: Final = {
    Compression.GZIP: _LAYER + "+gzip",
    Compression.ZSTD: _LAYER + "+zstd",
    Compression.NONE: _LAYER,
}
_REFERENCE_KEY: Final = "org.opencontainers.image.ref.name"
_LAST_SECOND: Final = 253_402_300_799  # of the year 9999


class _Health(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A health check, as Docker writes it; times in ns."""

    test: tuple[str, ...] = ()
    interval: int = 0
    timeout: int = 0
    start_period: int = 0
    start_interval: int = 0
    retries: int = 0


class _Wishes(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    user: str = ""
    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str = ""
    labels: dict[str, str] = {}
    shell: tuple[str, ...] = ()
    exposed_ports: dict[str, dict[str, str]] = {}
    volumes: dict[str, dict[str, str]] = {}
    stop_signal: str = ""
    healthcheck: _Health | None = None


class _RootFs(msgspec.Struct, frozen=True):
    type: str
    diff_ids: tuple[str, ...]


class _History(msgspec.Struct, frozen=True):
    created: str
    created_by: str


class _Config(msgspec.Struct, frozen=True):
    architecture: str
    os: str
    created: str
    config: _Wishes
    rootfs: _RootFs
    history: tuple[_History, ...]


class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int
    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]


class _Index(msgspec.Struct, frozen=True, rename="camel"):
    schema_version: int
    media_type: str
    manifests: tuple[Descriptor, ...]


class _KnownIndex(msgspec.Struct, frozen=True):
    """Of an index that others wrote only the list is looked into."""

    manifests: tuple[dict[str, object], ...] = ()


class _DockerManifest(msgspec.Struct, frozen=True, rename="pascal"):
    config: str
    repo_tags: tuple[str, ...]
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in the image; `diff_id` is the digest of its plain bytes."""

    blob: Descriptor
    diff_id: str
    created_by: str
    epoch_s: int = 0


def add_layer(
    files: Files,
    fill: Callable[[Callable[[bytes], object]], object],
    compression: Compression,
    workers: int,
) -> tuple[Descriptor, str]:
    """Add the blob of one layer, whose plain bytes `fill` writes; returns it and its diff id."""
    plain, stored, size = hashlib.sha256(), hashlib.sha256(), 0

    def keep(data: bytes) -> None:
        nonlocal size
        stored.update(data)
        size += len(data)
        files.write(data)

    with compressor(compression, keep, workers) as packer:

        def take(data: bytes) -> None:
            plain.update(data)
            packer.write(data)

        fill(take)
        packer.finish()
    files.name(_blob_name(f"sha256:{stored.hexdigest()}"))
    blob = Descriptor(_LAYER_TYPES[compression], f"sha256:{stored.hexdigest()}", size)
    return blob, f"sha256:{plain.hexdigest()}"


def add_config(files: Files, layers: Sequence[Layer], run: RunConfig) -> Descriptor:
    """Add the config of an image of these layers, lowest first; its digest is the image's id."""
    history = tuple(_History(_time(layer.epoch_s), layer.created_by) for layer in layers)
    config = _Config(
        architecture=oci_architecture(),
        os="linux",
        created=_time(layers[-1].epoch_s),
        config=_wishes(run),
        rootfs=_RootFs("layers", tuple(layer.diff_id for layer in layers)),
        history=history,
    )
    return _document(files, config, _CONFIG)


def manifest_of(config: Descriptor, layers: Sequence[Layer]) -> bytes:
    """The manifest of an image."""
    blobs = tuple(layer.blob for layer in layers)
    return canonical.encode(_Manifest(2, OCI_MANIFEST, config, blobs))


def finish_layout(
    files: Files, config: Descriptor, layers: Sequence[Layer], name: str
) -> Descriptor:
    """Add manifest and index of a layout; `name` is the tag there. Returns the manifest."""
    data = manifest_of(config, layers)
    manifest = Descriptor.of(data, OCI_MANIFEST)
    _named(files, _blob_name(manifest.digest), data)
    named = msgspec.structs.replace(manifest, annotations={_REFERENCE_KEY: name})
    _named(files, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    _named(files, "index.json", canonical.encode(_Index(2, OCI_INDEX, (named,))))
    return manifest


def finish_docker(files: Files, config: Descriptor, layers: Sequence[Layer], name: str) -> None:
    """Add the list of the one image of a docker-archive; `name` is `repository:tag`."""
    blobs = tuple(_blob_name(layer.blob.digest) for layer in layers)
    images = (_DockerManifest(_blob_name(config.digest), (name,), blobs),)
    _named(files, "manifest.json", canonical.encode(images))


def merged_index(known: bytes, new: bytes) -> bytes:
    """An index with the images of both; one of `known` that has a name of `new` is left out.

    Raises CorruptError.
    """
    other = canonical.decode(known, dict[str, object], what="index.json")
    listed = canonical.decode(known, _KnownIndex, what="index.json").manifests
    added = canonical.decode(new, _KnownIndex, what="index.json").manifests
    names = [_name(each) for each in added]
    kept = [each for each in listed if _name(each) not in names]
    return canonical.encode({**other, "manifests": [*kept, *added]})


def _name(pointer: dict[str, object]) -> object:
    annotations = pointer.get("annotations")
    return annotations.get(_REFERENCE_KEY) if isinstance(annotations, dict) else None


def _wishes(run: RunConfig) -> _Wishes:
    return _Wishes(
        user=run.user or "",
        env=tuple(f"{name}={value}" for name, value in sorted(run.env.items())),
        entrypoint=run.entrypoint or (),
        cmd=run.cmd or (),
        working_dir=run.workdir or "",
        labels=run.labels,
        shell=run.shell or (),
        exposed_ports={port: {} for port in run.ports},
        volumes={volume: {} for volume in run.volumes},
        stop_signal=run.stop_signal or "",
        healthcheck=_health(run.healthcheck),
    )


def _health(check: Healthcheck | None) -> _Health | None:
    if check is None:
        return None
    return _Health(
        test=check.test,
        interval=check.interval_ns,
        timeout=check.timeout_ns,
        start_period=check.start_period_ns,
        start_interval=check.start_interval_ns,
        retries=check.retries,
    )


def _document(files: Files, value: object, media_type: str) -> Descriptor:
    data = canonical.encode(value)
    blob = Descriptor.of(data, media_type)
    _named(files, _blob_name(blob.digest), data)
    return blob


def _named(files: Files, name: str, data: bytes) -> None:
    files.write(data)
    files.name(name)


def _blob_name(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _time(epoch_s: int) -> str:
    moment = datetime.fromtimestamp(min(max(epoch_s, 0), _LAST_SECOND), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
