"""Where the agent's binary lies."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

from dsec_layers.errors import CapabilityMissingError
from dsec_runtime.guest import build

_HINT: Final = "install gcc and libc6-dev, then run: python -m dsec_runtime.guest.build"


@functools.cache
def path() -> Path:
    """The static binary, made of the sources beside it.

    Raises CapabilityMissingError when it is absent or was made of other sources.
    """
    try:
        content = build.BINARY.read_bytes()
    except FileNotFoundError as error:
        raise CapabilityMissingError("the guest agent is not built", hint=_HINT) from error
    if build.mark() not in content:
        raise CapabilityMissingError(
            "the guest agent was built of other sources than those installed", hint=_HINT
        )
    return build.BINARY
