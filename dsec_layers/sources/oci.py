"""A Source from an OCI image on this machine: a layout directory, or an archive of one.

Formats: OCI image specification 1.1 (layout, index, manifest, config), and the archive that `docker
save` writes. Layers may be plain or compressed, of OCI or Docker media types.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from dsec_layers.errors import InvalidInputError
from dsec_layers.linux.machine import oci_architecture
from dsec_layers.model import canonical
from dsec_layers.model.content import Source
from dsec_layers.model.merge import apply_sources
from dsec_layers.model.runconfig import Healthcheck, RunConfig
from dsec_layers.model.tree import Tree
from dsec_layers.sources.archive import read_tar
from dsec_layers.sources.compression import plain
from dsec_layers.sources.ociblobs import Hashed, Platform
from dsec_layers.sources.ocifetch import FetchedFiles
from dsec_layers.sources.ocifiles import Files, SourceFiles, open_files
from dsec_layers.sources.ociselect import Layer, fits_machine, select_image


@dataclass(frozen=True, slots=True)
class OciImage:
    """An image as one base: its layers folded, their whiteouts consumed.

    `digest` (`sha256:...`) is that of the image's config, which names its platform and layers and
    is the same in every form of the image. `triggers` are its ONBUILD instructions.
    """

    source: Source
    run: RunConfig
    digest: str
    triggers: tuple[str, ...] = ()


def read_image(path: Path, spool_dir: Path, *, reference: str | None = None) -> OciImage:
    """Read the image for this machine from a layout directory, an oci-archive or a docker-archive.

    With several images, `reference` names one, by its full name or its tag. Contents go to
    `spool_dir`, which is the caller's to remove. Digests of all blobs are checked. Raises
    NotFoundError, InvalidInputError (not an image, none or several for this machine, foreign or
    encrypted layers), CorruptError or NoSpaceError.
    """
    image = find_image(path, spool_dir, reference=reference)
    if image is None:
        raise InvalidInputError(
            f"{path} is not an OCI image: it has no oci-layout and no manifest.json",
            hint="a root file system in a tar archive is imported as one",
        )
    return image


def find_image(path: Path, spool_dir: Path, *, reference: str | None = None) -> OciImage | None:
    """As `read_image`, but None when there is no image at `path`."""
    return _read(open_files(path, spool_dir), spool_dir, reference)


def image_in(source: Source, spool_dir: Path, *, reference: str | None = None) -> OciImage | None:
    """As `find_image`, for an archive that came through a pipe and was read as a tree."""
    return _read(SourceFiles(source), spool_dir, reference)


def fetch_image(files: FetchedFiles, spool_dir: Path) -> OciImage:
    """As `read_image`, for an image in a registry."""
    image = _read(files, spool_dir, None)
    assert image is not None
    return image


def _read(files: Files, spool_dir: Path, reference: str | None) -> OciImage | None:
    image = select_image(files, reference)
    if image is None:
        return None
    config = canonical.decode(image.config, _Config, what="image config")
    _check_platform(config)
    return OciImage(
        source=_folded(files, image.layers, spool_dir),
        run=_run(config.config),
        digest=image.digest,
        triggers=tuple((config.config or _Wishes()).on_build or ()),
    )


class _Health(msgspec.Struct, frozen=True, rename="pascal"):
    """A health check, as Docker writes it; times in ns."""

    test: tuple[str, ...] | None = None
    interval: int = 0
    timeout: int = 0
    start_period: int = 0
    start_interval: int = 0
    retries: int = 0


class _Wishes(msgspec.Struct, frozen=True, rename="pascal"):
    """What the config says about running; Docker writes null for what is not set."""

    env: tuple[str, ...] | None = None
    working_dir: str | None = None
    user: str | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    shell: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    exposed_ports: dict[str, object] | None = None
    volumes: dict[str, object] | None = None
    stop_signal: str | None = None
    healthcheck: _Health | None = None
    on_build: tuple[str, ...] | None = None


class _Config(msgspec.Struct, frozen=True):
    architecture: str = ""
    os: str = ""
    config: _Wishes | None = None


def _folded(files: Files, layers: tuple[Layer, ...], spool_dir: Path) -> Source:
    whole = Source(Tree.of(()))
    for layer in layers:
        whole = apply_sources(whole, _read_layer(files, layer, spool_dir, whole))
    return whole


def _read_layer(files: Files, layer: Layer, spool_dir: Path, lower: Source) -> Source:
    name = f"layer {layer.digest}"
    with files.open(layer.file) as file:
        hashed = Hashed(plain(file, name=name) if layer.is_plain_digest else file)
        source = read_tar(hashed, spool_dir, name=name, oci=True, lower=lower)
        hashed.check(layer.digest, layer.size, name=name)
    return source


def _check_platform(config: _Config) -> None:
    if not fits_machine(Platform(config.architecture, config.os)):
        raise InvalidInputError(
            f"the image is for {config.os}/{config.architecture}, "
            f"this machine is linux/{oci_architecture()}"
        )


def _run(wishes: _Wishes | None) -> RunConfig:
    wishes = wishes or _Wishes()
    pairs = (variable.partition("=") for variable in wishes.env or ())
    return RunConfig(
        env={name: value for name, _, value in pairs},
        workdir=wishes.working_dir or None,
        user=wishes.user or None,
        entrypoint=wishes.entrypoint or None,
        cmd=wishes.cmd or None,
        shell=wishes.shell or None,
        labels=wishes.labels or {},
        ports=tuple(sorted(wishes.exposed_ports or ())),
        volumes=tuple(sorted(wishes.volumes or ())),
        stop_signal=wishes.stop_signal or None,
        healthcheck=_healthcheck(wishes.healthcheck),
    )


def _healthcheck(health: _Health | None) -> Healthcheck | None:
    if health is None or not health.test:  # without a test it says nothing
        return None
    return Healthcheck(
        test=health.test,
        interval_ns=health.interval,
        timeout_ns=health.timeout,
        start_period_ns=health.start_period,
        start_interval_ns=health.start_interval,
        retries=health.retries,
    )
