"""Getting layers ready for the kernel: metadata here and checked, device served and long enough.

This is the slow part of mounting, for it may ask a store, so it is done without any lock.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """A layer that can be mounted now. `device_identity` tells a device file from its successor."""

    hex: str
    metadata: Path
    device: Path
    device_identity: str


def prepare(
    layers: Sequence[MountLayer], images: MetadataImages, devices: Devices
) -> tuple[PreparedLayer, ...]:
    """Prepare layers: what has to be fetched is fetched side by side.

    Raises CorruptError, NotFoundError, StoreError, NoSpaceError or DaemonError.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        attaching = pool.submit(devices.attach, layers)
        here = [images.has(layer) for layer in layers]
        away = [layer for layer, there in zip(layers, here, strict=True) if not there]
        fetching = [pool.submit(images.ensure, layer) for layer in away]
        for layer, there in zip(layers, here, strict=True):
            if there:
                images.ensure(layer)
        for each in fetching:
            each.result()
        served = attaching.result()
    pairs = zip(layers, served, strict=True)
    return tuple(_prepared(layer, device, images) for layer, device in pairs)


def _prepared(layer: MountLayer, device: Device, images: MetadataImages) -> PreparedLayer:
    try:
        status = device.path.stat()
    except OSError as error:
        raise DaemonError(
            f"the data of layer {layer} is not served: {error}",
            hint="`dsec-layers daemon restart` mounts it anew",
        ) from error
    _check_size(layer, device, status.st_size, images.device_bytes(layer))
    identity = f"{status.st_dev}:{status.st_ino}"
    return PreparedLayer(layer.digest.hex, images.path(layer.digest), device.path, identity)


def _check_size(layer: MountLayer, device: Device, file_bytes: int, wanted: int) -> None:
    """The kernel mounts over a short device without complaint, and fails when it is read."""
    served = min(device.size_bytes, file_bytes)
    if served < wanted:
        raise CorruptError(
            f"the device of layer {layer} serves {served} bytes "
            f"of the {wanted} that its metadata points into"
        )
