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


class Healthcheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to see whether a container works. Times in ns; 0 leaves the choice to the engine.

    `test` starts with CMD (a command), CMD-SHELL (one word for the shell) or NONE (no check).
    """

    test: tuple[str, ...] = ()
    interval_ns: int = 0
    timeout_ns: int = 0
    start_period_ns: int = 0
    start_interval_ns: int = 0
    retries: int = 0


class RunConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one layer asks for; `None` and empty mean 'no wish', and the layer below decides.

    `env` holds only the variables that the layer itself sets. `ports` (`80/tcp`), `volumes`,
    `stop_signal` and `healthcheck` are for the engines that an image is exported to.
    """

    env: dict[str, str] = {}
    workdir: str | None = None
    user: str | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    shell: tuple[str, ...] | None = None
    labels: dict[str, str] = {}
    ports: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    stop_signal: str | None = None
    healthcheck: Healthcheck | None = None


def merge(configs: Iterable[RunConfig]) -> RunConfig:
    """Merge from lowest to highest.

    Higher wins, PATH-like variables prepend, a new entrypoint drops a lower command, ports and
    volumes are those of all, sorted.
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
            ports=tuple(sorted({*merged.ports, *high.ports})),
            volumes=tuple(sorted({*merged.volumes, *high.volumes})),
            stop_signal=high.stop_signal or merged.stop_signal,
            healthcheck=high.healthcheck or merged.healthcheck,
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
