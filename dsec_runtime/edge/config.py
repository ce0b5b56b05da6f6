"""How an edge is set up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from dsec_runtime.errors import InvalidRequestError
from dsec_runtime.network.settings import Settings
from dsec_runtime.spec import MIB, Lifetime, Positive, Seconds
from dsec_runtime.tiers.container.settings import ContainerSettings
from dsec_runtime.tiers.fncall.settings import FncallSettings


class Tcp(msgspec.Struct, frozen=True, kw_only=True):
    """An address to listen on beside the Unix socket: always with TLS and tokens."""

    host: str
    port: int
    certificate: Path
    key: Path
    tokens: Path


class EdgeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings; below `home` are `edge/` (journal, logs) and `run/edge.sock`."""

    home: Path
    tcp: Tcp | None = None
    stores: tuple[str, ...] = ()
    container: ContainerSettings = ContainerSettings()
    network: Settings = Settings()
    fncall: FncallSettings = FncallSettings()
    lifetime: Lifetime = Lifetime()  # for what a specification leaves open
    max_sandboxes: Positive = 4000
    creations: Positive = max(2, 2 * (os.cpu_count() or 1))  # at a time
    waiting: Annotated[int, Meta(ge=0)] = 2048  # creations that may wait for their turn
    reserve_bytes: Annotated[int, Meta(ge=0)] = 256 * MIB  # memory that is not given away
    max_pressure: Annotated[float, Meta(gt=0, le=100)] = (
        40.0  # per cent of 10 s in which all waited for memory
    )
    evict_idle_s: Annotated[float, Meta(ge=0)] = 60.0  # unused ones are paused then; 0: never
    pauses: Positive = max(1, (os.cpu_count() or 1) // 2)  # at a time
    sweep_s: Seconds = 1.0
    keep_ended_s: Seconds = 24 * 3600.0  # how long an ended sandbox is remembered
    drain_s: Seconds = 20.0

    @property
    def state(self) -> Path:
        """The folder of the journal and the logs."""
        return self.home / "edge"

    @property
    def run(self) -> Path:
        """The folder of the socket."""
        return self.home / "run"


def parse_listen(text: str) -> tuple[str, int]:
    """`HOST:PORT`, an IPv6 address in brackets. Raises InvalidRequestError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidRequestError(f"{text!r} is no HOST:PORT", hint="as in 0.0.0.0:7443")
    return host.removeprefix("[").removesuffix("]"), int(port)
