"""The secrets a caller hands to a build: `id=ID[,src=FILE|env=NAME]`, as Docker writes them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dsec_layers.errors import InvalidInputError, NotFoundError

_MAX_BYTES: Final = 500 << 10
_KINDS: Final = (None, "file", "env")
_NAMES: Final = {"source": "src", "id": "id", "src": "src", "env": "env", "type": "type"}


def read_secrets(given: Iterable[str]) -> dict[str, bytes]:
    """The contents by id. Without src and env the variable of the name of the id counts.

    Raises InvalidInputError (also for more than 500 KiB) or NotFoundError.
    """
    secrets: dict[str, bytes] = {}
    for text in given:
        fields = _fields(text)
        if fields["id"] in secrets:
            raise InvalidInputError(f"the secret {fields['id']!r} is given twice")
        secrets[fields["id"]] = _content(fields)
    return secrets


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for field in text.split(","):
        name, equals, value = field.partition("=")
        known = _NAMES.get(name)
        if known is None or known in fields or not equals or not value:
            raise _malformed(text)
        fields[known] = value
    kind = fields.pop("type", None)
    if kind == "env" and "src" in fields:  # Docker reads it so
        fields["env"] = fields.pop("src")
    if "id" not in fields or ("src" in fields and "env" in fields) or kind not in _KINDS:
        raise _malformed(text)
    return fields


def _malformed(text: str) -> InvalidInputError:
    name = text.partition("=")[0]  # the rest may be a secret that was pasted here
    return InvalidInputError(
        f"malformed secret that begins with {name!r}",
        hint="write --secret id=ID,src=FILE or --secret id=ID,env=NAME",
    )


def _content(fields: dict[str, str]) -> bytes:
    name = fields["id"]
    if "src" not in fields:
        variable = fields.get("env", name)
        if variable not in os.environ:
            raise NotFoundError(f"there is no variable {variable} for the secret {name!r}")
        return os.environb[os.fsencode(variable)]
    try:
        with Path(fields["src"]).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise NotFoundError(f"the secret {name!r} cannot be read: {error}") from error
    if len(content) > _MAX_BYTES:
        raise InvalidInputError(f"the secret {name!r} has more than {_MAX_BYTES >> 10} KiB")
    return content
