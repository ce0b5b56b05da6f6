"""Who gives the kernel the data of a layer as a file."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dsec_layers.errors import DaemonError
from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.protocol import Start, Wanted
from dsec_layers.model.digest import Digest

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Device:
    """The data of a layer as a file: where it is, and how many bytes it serves."""

    path: Path
    size_bytes: int


class Devices(Protocol):
    """Serves the device files of layers. Safe for many threads; all calls may be repeated."""

    def attach(self, layers: Sequence[MountLayer]) -> Sequence[Device]:
        """Serve the devices of `layers`, in their order, until they are detached.

        Raises DaemonError, NotFoundError, CorruptError or StoreError; some may be served then.
        """
        ...

    def detach(self, digests: Collection[Digest]) -> None:
        """Stop serving, at once; not an error for what is not served. Raises DaemonError."""
        ...

    def served(self) -> Collection[str]:
        """The layers (hex) that are served, also for somebody who ended while he attached them."""
        ...


class DaemonDevices:
    """Devices served by the daemon, which is started when it is needed.

    With `start` they are those of one environment, whose accesses are recorded and foreseen.
    """

    def __init__(self, client: DaemonClient, start: Start | None = None) -> None:
        self._client = client
        self._start = start

    def attach(self, layers: Sequence[MountLayer]) -> Sequence[Device]:
        """See Devices. A daemon that is killed meanwhile is succeeded and asked again.

        Whether there is one is seen by asking it: its status is long when it serves many layers.
        """
        with contextlib.suppress(DaemonError):
            return self._attach(layers)
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(DaemonError):
                self._client.ensure()
                return self._attach(layers)
        self._client.ensure()
        return self._attach(layers)

    def _attach(self, layers: Sequence[MountLayer]) -> Sequence[Device]:
        wanted = [Wanted(layer.descriptor, layer.stores) for layer in layers]
        attached = self._client.attach_all(wanted, self._start)
        return [Device(Path(each.path), each.size_bytes) for each in attached]

    def detach(self, digests: Collection[Digest]) -> None:
        """See Devices."""
        self._client.detach(digests)

    def served(self) -> Collection[str]:
        """See Devices."""
        return self._client.recorded_layers()
