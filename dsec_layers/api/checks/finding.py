"""What a rule finds."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """`error` for what worked where it was built and does not here, or hides much of the base.

    `warning` for what may be wrong, `info` for what is only told.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `layer` is the layer that it is about, `other` one that matters for it.

    `path` begins with a slash; it is None where a layer as a whole is meant.
    """

    severity: Severity
    rule: str
    layer: str
    message: str
    path: str | None = None
    other: str | None = None


def by_origin(worked: bool | None) -> Severity:
    """How bad it is that something is missing, from whether it was there where it was built."""
    if worked is None:
        return Severity.WARNING
    return Severity.ERROR if worked else Severity.INFO
