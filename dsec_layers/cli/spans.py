"""Spans of time as people write them."""

from __future__ import annotations

import re
from typing import Final

import click

from dsec_layers.errors import InvalidInputError

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_FORM: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")


class SpanType(click.ParamType[float]):
    """`90s`, `10m`, `24h`, `7d` or `2w`, in seconds; a bare number is seconds."""

    name = "span"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> float:
        """Parse. Raises InvalidInputError."""
        if isinstance(value, float):
            return value
        found = _FORM.fullmatch(str(value))
        if found is None:
            raise InvalidInputError(f"{value!r} is no span of time", hint="write 90s, 24h or 7d")
        return float(found[1]) * _UNITS[found[2]]
