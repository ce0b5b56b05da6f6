"""Getting layers ready for the kernel: metadata here and checked, device served and long enough.

This is the slow part of mounting, for it may ask a store, so it is done without any lock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dsec_layers.errors import CorruptError, DaemonError
from dsec_layers.lazyfs.devices import Device, Devices
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.metadata import MetadataImages

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class PreparedLayer:
    """A layer that can be mounted now, once its image is `checked`.

    `device_identity` tells a device file from its successor.
    """

    layer: MountLayer
    hex: str
    metadata: Path
    device: Path
    device_identity: str
    checked: bool


def prepare(
    layers: Sequence[MountLayer],
    images: MetadataImages,
    devices: Devices,
    mounted: Collection[str] = (),
) -> tuple[PreparedLayer, ...]:
    """Prepare layers: what has to be fetched is fetched side by side.

    Images of those that are `mounted` (hex) already are not checked again.

    Raises CorruptError, NotFoundError, StoreError, NoSpaceError or DaemonError.
    """
    away = [layer for layer in layers if not images.has(layer)]
    if away:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            attaching = pool.submit(devices.attach, layers)
            list(pool.map(images.ensure, away))
            served = attaching.result()
    else:
        served = devices.attach(layers)
    fetched = {layer.digest for layer in away}
    return tuple(
        _prepared(
            layer, device, images, here=layer.digest.hex in mounted, fetched=layer.digest in fetched
        )
        for layer, device in zip(layers, served, strict=True)
    )


def _prepared(
    layer: MountLayer, device: Device, images: MetadataImages, *, here: bool, fetched: bool
) -> PreparedLayer:
    if not (here or fetched):
        images.ensure(layer)
    try:
        status = device.path.stat()
    except OSError as error:
        raise DaemonError(
            f"the data of layer {layer} is not served: {error}",
            hint="`dsec-layers daemon restart` mounts it anew",
        ) from error
    _check_size(layer, device, status.st_size, images.device_bytes(layer))
    identity = f"{status.st_dev}:{status.st_ino}"
    return PreparedLayer(
        layer, layer.digest.hex, images.path(layer.digest), device.path, identity, not here
    )


def _check_size(layer: MountLayer, device: Device, file_bytes: int, wanted: int) -> None:
    """The kernel mounts over a short device without complaint, and fails when it is read."""
    served = min(device.size_bytes, file_bytes)
    if served < wanted:
        raise CorruptError(
            f"the device of layer {layer} serves {served} bytes "
            f"of the {wanted} that its metadata points into"
        )
