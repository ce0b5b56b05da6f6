"""Lending npm's settings: registries with their credentials, certificates, proxies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dsec_layers.linux.hostloan import Host, Loan

# Registries by scope (`@scope:registry`) and what belongs to one registry (`//host/path/:...`).
_LENT = re.compile(
    r"(registry|@[^:]+:registry|//.*|ca|ca\[\]|cafile|cert|key|strict-ssl|proxy|https-proxy|noproxy"
    r"|fetch-retries|fetch-timeout|maxsockets|audit|update-notifier)"
)
_GLOBAL = ("/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc")
_PREFIX = "npm_config_"


def lend(loan: Loan, host: Host) -> None:
    """Lend npm's files as its global one, over which a user's and a project's go; and variables."""
    merged: dict[str, str] = {}
    for path in _files(host):
        for name, value in _settings(host.text(path)):
            merged[name] = loan.words(value) if name == "cafile" else value
    for variable, value in host.environ.items():
        name = variable.lower().removeprefix(_PREFIX)
        if variable.lower().startswith(_PREFIX) and _LENT.fullmatch(name.replace("_", "-")):
            loan.env[variable] = loan.words(value) if name == "cafile" else value
    if merged:
        text = "".join(f"{name}={value}\n" for name, value in merged.items())
        loan.env["NPM_CONFIG_GLOBALCONFIG"] = loan.write("npmrc", text)


def registries(host: Host) -> dict[str, str]:
    """The registries that this machine's settings name, by `registry` or `@scope:registry`."""
    found = {name: value for path in _files(host) for name, value in _settings(host.text(path))}
    for variable, value in host.environ.items():
        if variable.lower().startswith(_PREFIX):
            found[variable.lower().removeprefix(_PREFIX)] = value
    return {
        name: value
        for name, value in found.items()
        if name == "registry" or (name.startswith("@") and name.endswith(":registry"))
    }


def _files(host: Host) -> Iterator[Path]:
    """The files of npm, the weakest first (npm documentation, "npmrc")."""
    given = {name.lower(): value for name, value in host.environ.items()}
    if named := given.get(f"{_PREFIX}globalconfig"):
        yield Path(named)
    else:
        yield from map(Path, _GLOBAL)
    yield Path(given.get(f"{_PREFIX}userconfig") or host.home / ".npmrc")


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip().strip("\"'")
        if equals and not name.startswith((";", "#")) and _LENT.fullmatch(name):
            yield name, value
