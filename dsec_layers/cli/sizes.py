"""Sizes as people type them."""

from __future__ import annotations

import re

import click

from dsec_layers.errors import InvalidInputError

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class SizeType(click.ParamType[int]):
    """Bytes, written as `500M` or `20G`; a bad one is InvalidInputError."""

    name = "size"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> int:
        """The number of bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]{1,15})([kmgt]?)(i?b)?", str(value).lower())
        if match is None:
            raise InvalidInputError(f"{value!r} is no size", hint="write 500M or 20G")
        return int(match[1]) * _UNITS[match[2]]
