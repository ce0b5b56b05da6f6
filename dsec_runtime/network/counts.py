"""What a sandbox's network did, and what it was refused."""

from __future__ import annotations

import msgspec


class RefusedDestination(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sandbox wanted to go and may not."""

    address: str
    protocol: str
    port: int


class RefusedName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that was not answered, and why."""

    name: str
    reason: str
    count: int


class NetworkCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Since the sandbox was made. Destinations are those of the last ten minutes, bounded."""

    allowed_packets: int
    allowed_bytes: int
    refused_packets: int
    refused_bytes: int
    refused: tuple[RefusedDestination, ...]
    refused_names: tuple[RefusedName, ...]
