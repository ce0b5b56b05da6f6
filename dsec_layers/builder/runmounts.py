"""`RUN --mount`: what its options say, first as written and then with their variables replaced.

Source: the Dockerfile reference, "RUN --mount". Errors are ValueError or InvalidInputError without
a place: only the caller knows the line.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dsec_layers.builder.meanings import Mount
from dsec_layers.builder.scope import Scope
from dsec_layers.builder.steps import (
    BindMount,
    CacheMount,
    SecretMount,
    StepMount,
    TmpfsMount,
    Where,
)
from dsec_layers.errors import InvalidInputError

_ALIASES: Final[Mapping[str, str]] = {
    "dst": "target",
    "destination": "target",
    "src": "source",
    "ro": "readonly",
    "rw": "readwrite",
}
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "bind": frozenset({"target", "source", "from", "readwrite", "readonly"}),
    "cache": frozenset(
        {"id", "target", "readonly", "readwrite", "sharing", "from", "source", "mode", "uid", "gid"}
    ),
    "tmpfs": frozenset({"target", "size"}),
    "secret": frozenset({"id", "target", "required", "mode", "uid", "gid", "env"}),
}
_NEEDS_TARGET: Final = frozenset({"bind", "cache", "tmpfs"})
_SWITCHES: Final = frozenset({"readwrite", "readonly", "required"})
_SHARING: Final = frozenset({"shared", "private", "locked"})
_SIZE: Final = re.compile(r"([0-9]{1,15})([kmgt]?)b?", re.IGNORECASE)
_MODE: Final = re.compile(r"0?[0-7]{1,4}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_ID: Final = (1 << 32) - 2


def parse_mount(text: str) -> Mount:
    """The value of a `--mount`: fields separated by commas, `key=value` or a switch alone."""
    options: dict[str, str] = {}
    for field in _fields(text):
        key, equals, value = field.strip().partition("=")
        name = _ALIASES.get(key.lower(), key.lower())
        if name in options:
            raise ValueError(f"--mount has {name} twice")
        if not equals and name not in _SWITCHES:
            raise ValueError(f"--mount: {field!r} is not of the form key=value")
        options[name] = value if equals else "true"
    kind = options.pop("type", "bind").lower()
    _check(kind, options)
    return Mount(kind, options.pop("from", None), options)


def _fields(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error as error:
        raise ValueError(f"--mount: {text!r} is no list of options: {error}") from error


def _check(kind: str, options: Mapping[str, str]) -> None:
    if kind == "ssh":
        raise InvalidInputError(
            "--mount=type=ssh is not supported: no agent is lent to a build",
            hint="fetch into the context beforehand, or hand over one key with --mount=type=secret",
        )
    if kind not in _OPTIONS:
        raise InvalidInputError(
            f"--mount=type={kind} is not supported", hint=f"the types are {_names(_OPTIONS)}"
        )
    if unknown := sorted(set(options) - _OPTIONS[kind]):
        raise InvalidInputError(
            f"--mount=type={kind} has no option {unknown[0]!r}",
            hint=f"its options are {_names(_OPTIONS[kind])}",
        )
    if kind in _NEEDS_TARGET and not options.get("target"):
        raise ValueError(f"--mount=type={kind} needs a target")
    if kind == "secret" and not (options.get("id") or options.get("target")):
        raise ValueError("--mount=type=secret needs an id or a target")
    if "$" in options.get("from", ""):
        raise InvalidInputError(
            "--mount: variables in from are not replaced",
            hint="name a stage: FROM ${variable} AS name, then from=name",
        )


def make_mount(mount: Mount, scope: Scope, origin: Where) -> StepMount:
    """The mount of a step; `origin` is what its `from` means. Raises ValueError."""
    options = {name: scope.expand(value) for name, value in mount.options.items()}
    return _MAKERS[mount.kind](options, scope, origin)


def _bind(options: Mapping[str, str], scope: Scope, origin: Where) -> BindMount:
    target = _target(options, scope)
    return BindMount(target, options.get("source", ""), origin, _writable(options, default=False))


def _cache(options: Mapping[str, str], scope: Scope, origin: Where) -> CacheMount:
    target = _target(options, scope)
    sharing = options.get("sharing", "shared")
    if sharing not in _SHARING:
        raise ValueError(f"--mount: sharing is {sharing!r}, not {_names(_SHARING)}")
    if isinstance(origin, str) or (origin is None and options.get("source")):
        raise ValueError("--mount=type=cache takes a source of a stage or layer only: from=...")
    return CacheMount(
        target=target,
        id=options.get("id") or target,
        sharing=sharing,
        mode=_mode(options, 0o755),
        owner=_owner(options),
        origin=origin,
        source=options.get("source", ""),
        writable=_writable(options, default=True),
    )


def _tmpfs(options: Mapping[str, str], scope: Scope, _: Where) -> TmpfsMount:
    size = options.get("size")
    return TmpfsMount(_target(options, scope), None if size is None else _bytes(size))


def _secret(options: Mapping[str, str], scope: Scope, _: Where) -> SecretMount:
    identifier = options.get("id") or posixpath.basename(options["target"])
    variable = options.get("env")
    if variable is not None and not _VARIABLE.fullmatch(variable):
        raise ValueError(f"--mount: {variable!r} is no name of a variable")
    target: str | None = None
    if options.get("target"):
        target = _target(options, scope)
    elif variable is None:
        target = f"/run/secrets/{posixpath.basename(identifier)}"
    required = _switch(options, "required")
    mode = _mode(options, 0o400)
    return SecretMount(identifier, target, variable, required, mode, _owner(options))


_MAKERS: Final[Mapping[str, Callable[[Mapping[str, str], Scope, Where], StepMount]]] = {
    "bind": _bind,
    "cache": _cache,
    "tmpfs": _tmpfs,
    "secret": _secret,
}


def _target(options: Mapping[str, str], scope: Scope) -> str:
    target = scope.absolute(options["target"]) if options["target"] else "/"
    if target == "/":
        raise ValueError("--mount: nothing can be mounted over the root")
    return target


def _writable(options: Mapping[str, str], *, default: bool) -> bool:
    if "readwrite" in options and "readonly" in options:
        raise ValueError("--mount: readwrite and readonly exclude each other")
    if "readwrite" in options:
        return _switch(options, "readwrite")
    return not _switch(options, "readonly") if "readonly" in options else default


def _switch(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false", "1", "0"):
        raise ValueError(f"--mount: {name} is {value!r}, not true or false")
    return value in ("true", "1")


def _mode(options: Mapping[str, str], default: int) -> int:
    text = options.get("mode")
    if text is not None and not _MODE.fullmatch(text):
        raise ValueError(f"--mount: the mode {text!r} is no octal number, such as 0700")
    return default if text is None else int(text, 8)


def _owner(options: Mapping[str, str]) -> tuple[int, int]:
    uid, gid = (_number(options, name) for name in ("uid", "gid"))
    return uid, gid


def _number(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "0")
    if not (text.isascii() and text.isdecimal()) or int(text[:12]) > _MAX_ID:
        raise ValueError(f"--mount: {name} is {text!r}, not a number")
    return int(text)


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"--mount: the size {text!r} is no number of bytes, such as 64m")
    return int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")


def _names(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
