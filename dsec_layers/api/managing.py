"""What mounts the layers of a workbench, and the daemon behind the mounts."""

from __future__ import annotations

from pathlib import Path

from dsec_layers.api.workbench import Stack, Workbench
from dsec_layers.errors import NotFoundError
from dsec_layers.lazyfs.client import DaemonClient
from dsec_layers.lazyfs.devices import DaemonDevices
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.linux.capabilities import Capability, require

_able: set[Path] = set()  # homes where this process can mount, as it has found out before


def client(bench: Workbench) -> DaemonClient:
    """The lazy file system daemon of this workbench; it is not started by this."""
    return DaemonClient(bench.home.root)


def running_client(bench: Workbench) -> DaemonClient:
    """The daemon, which must run. Raises NotFoundError."""
    found = client(bench)
    if not found.running():
        raise NotFoundError(
            "the lazy file system daemon does not run",
            hint="`mount`, `run` and `daemon restart` start it",
        )
    return found


def manager(
    bench: Workbench, stack: Stack | None = None, prefetch_bytes: int | None = None
) -> RootfsManager:
    """Mounts and unmounts; starts the daemon when a layer is first mounted.

    With `stack` it is for mounts of that: what they touch is recorded, and what is known of it is
    fetched ahead, up to `prefetch_bytes`; None leaves the amount to the daemon, 0 is nothing.
    Raises CapabilityMissingError when this machine cannot mount layers. That is tried only while no
    daemon runs: one that does has tried it.
    """
    require(Capability.ROOT)
    daemon = client(bench)
    if bench.home.root not in _able and not daemon.running():
        require(Capability.FUSE, Capability.EROFS)
    _able.add(bench.home.root)
    start = None
    if stack:
        from dsec_layers.api import traces  # what a build mounts is not recorded

        start = traces.start(bench, stack.descriptor, prefetch_bytes)
    return RootfsManager(bench.home.root, DaemonDevices(daemon, start))
