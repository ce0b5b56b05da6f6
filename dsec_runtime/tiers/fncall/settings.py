"""What an operator may set of the FnCall tier, and what a task gets that asks for nothing."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
from msgspec import Meta

from dsec_runtime.spec import MIB, Limits
from dsec_runtime.tiers.container.settings import Filled

_CORES = os.cpu_count() or 1


class FncallSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pool has at most `total` containers, `most` of them for one environment and its limits.

    Of one that is in use `spare` are kept ready beyond what works; those beyond `least` go after
    `idle_s` seconds without a task, the last ones after `keep_s`. A container is given up after
    `tasks` tasks. So many calls wait for one as `waiting` says, each at most `patience_s`.
    """

    most: Annotated[int, Meta(ge=1)] = 2 * _CORES
    total: Annotated[int, Meta(ge=1)] = 4 * _CORES
    least: Annotated[int, Meta(ge=0)] = 1
    spare: Annotated[int, Meta(ge=0)] = 1
    idle_s: Annotated[float, Meta(gt=0)] = 30.0
    keep_s: Annotated[float, Meta(gt=0)] = 600.0
    tasks: Annotated[int, Meta(ge=1)] = 1000
    waiting: Annotated[int, Meta(ge=1)] = 4096
    patience_s: Annotated[float, Meta(gt=0)] = 120.0
    memory_bytes: int = 512 * MIB
    cpu_cores: float | None = 1.0
    pids: int = 256
    disk_bytes: int = 256 * MIB

    def filled(self, limits: Limits) -> Filled:
        """The limits of a task, each of them given."""
        return Filled(
            memory_bytes=limits.memory_bytes or self.memory_bytes,
            cpu_cores=limits.cpu_cores or self.cpu_cores,
            pids=limits.pids or self.pids,
            disk_bytes=limits.disk_bytes or self.disk_bytes,
            io_weight=limits.io_weight,
        )
