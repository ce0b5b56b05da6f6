"""Events as JSON lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from dsec_runtime import alive
from dsec_runtime.messages import Event
from dsec_runtime.sdk.http1 import Params
from dsec_runtime.sdk.transport import Transport

_decode: Final = msgspec.json.Decoder(Event).decode


async def follow(transport: Transport, path: str, params: Params) -> AsyncIterator[Event]:
    """The events that the edge sends, until it has no more. Raises SandboxError."""
    rest = b""
    async with transport.stream("GET", path, params=params, silence_s=alive.SILENCE_S) as response:
        async for data in response.parts():
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):  # an empty one says that there is nothing to say
                yield _decode(line)
