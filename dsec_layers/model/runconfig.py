"""How to run a command in a layer or environment, and how the layers' wishes merge."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_PATH_LIKE = frozenset(
    {
        "CPATH",
        "GOPATH",
        "LD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "MANPATH",
        "NODE_PATH",
        "PATH",
        "PKG_CONFIG_PATH",
        "PYTHONPATH",
        "XDG_DATA_DIRS",
    }
)


class RunConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one layer asks for; `None` and empty mean 'no wish', and the layer below decides.

    `env` holds only the variables that the layer itself sets. `healthcheck` and the like come with
    the builder.
    """

    env: dict[str, str] = {}
    workdir: str | None = None
    user: str | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    shell: tuple[str, ...] | None = None
    labels: dict[str, str] = {}


def merge(configs: Iterable[RunConfig]) -> RunConfig:
    """Merge from lowest to highest.

    Higher wins, PATH-like variables prepend, a new entrypoint drops a lower command.
    """
    merged = RunConfig()
    for high in configs:
        cmd = high.cmd if high.cmd is not None or high.entrypoint is not None else merged.cmd
        merged = RunConfig(
            env=_merge_env(merged.env, high.env),
            workdir=high.workdir or merged.workdir,
            user=high.user or merged.user,
            entrypoint=high.entrypoint if high.entrypoint is not None else merged.entrypoint,
            cmd=cmd,
            shell=high.shell or merged.shell,
            labels={**merged.labels, **high.labels},
        )
    return merged


def _merge_env(low: dict[str, str], high: dict[str, str]) -> dict[str, str]:
    merged = dict(low)
    for name, value in high.items():
        if name in _PATH_LIKE and low.get(name):
            parts = [*value.split(":"), *low[name].split(":")]
            value = ":".join(dict.fromkeys(part for part in parts if part))
        merged[name] = value
    return merged
