"""What an operator may set of the container tier, and what a sandbox gets that asks for nothing."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from dsec_runtime.spec import Limits

GIB = 1 << 30


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`runtime` is a name or path, crun or else runc when it is None.

    `spare_disks` are made ahead, `launches` is how many containers are started at once.
    `cpu_cores` None is all of the node's.
    """

    runtime: str | None = None
    memory_bytes: int = 4 * GIB
    cpu_cores: float | None = None
    pids: int = 4096
    disk_bytes: int = 16 * GIB
    shm_part: Annotated[float, Meta(gt=0, le=1)] = 0.5  # of the memory limit, at most
    spare_disks: Annotated[int, Meta(ge=0)] = 4
    launches: Annotated[int, Meta(ge=1)] = 8
    warm_layers: Annotated[int, Meta(ge=0)] = 64  # environments that stay mounted without a user

    def filled(self, limits: Limits) -> Filled:
        """The limits of a sandbox, each of them given."""
        return Filled(
            memory_bytes=limits.memory_bytes or self.memory_bytes,
            cpu_cores=limits.cpu_cores or self.cpu_cores,
            pids=limits.pids or self.pids,
            disk_bytes=limits.disk_bytes or self.disk_bytes,
            io_weight=limits.io_weight,
        )


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a sandbox; no cores are all, and without a weight it is the kernel's."""

    memory_bytes: int
    cpu_cores: float | None
    pids: int
    disk_bytes: int
    io_weight: int | None
