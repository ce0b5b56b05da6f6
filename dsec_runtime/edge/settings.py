"""What an operator sets of an edge: a file of the home, and above it the command line.

<home>/edge/settings.toml

[edge]
max_sandboxes = 1000
[fncall]
total = 32
spare = 4
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsec_runtime.edge.config import EdgeConfig, Tcp
from dsec_runtime.errors import InvalidRequestError

FILE: Final = "edge/settings.toml"
PARTS: Final = ("container", "network", "fncall", "lifetime")
_NOT_HERE: Final = ("home", "tcp", "stores", *PARTS)

Given = Mapping[str, Mapping[str, object]]


def configured(home: Path, given: Given, *, tcp: Tcp | None, stores: Sequence[str]) -> EdgeConfig:
    """The settings of the file below `home`, and over them what is `given`; None is not given.

    Both have the names of `PARTS` and `edge`, and in them those of the fields. Raises
    InvalidRequestError naming what is wrong.
    """
    path = home / FILE
    read = _read(path)
    for name, part in given.items():
        read[name] = {**read.get(name, {}), **_without_none(part)}
    edge = read.pop("edge", {})
    if wrong := sorted({*edge} & {*_NOT_HERE} | {*read} - {*PARTS}):
        raise InvalidRequestError(f"{path}: {wrong[0]} is not set here", hint="see docs/edge.md")
    try:
        found = msgspec.convert({"home": str(home), **edge, **read}, EdgeConfig, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"{path}: {error}", hint="see docs/edge.md") from error
    return msgspec.structs.replace(found, tcp=tcp, stores=tuple(stores))


def _read(path: Path) -> dict[str, dict[str, object]]:
    try:
        read = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:  # also what is no text
        raise InvalidRequestError(f"{path}: {error}") from error
    if loose := [name for name, part in read.items() if not isinstance(part, dict)]:
        raise InvalidRequestError(f"{path}: {loose[0]} stands in no table", hint="as in [edge]")
    return read


def _without_none(part: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in part.items() if value is not None}


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError
