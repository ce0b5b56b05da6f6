"""Lending pip's settings: those that say where packages come from, not those that change builds."""

from __future__ import annotations

import configparser
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from dsec_layers.linux.hostloan import Host, Loan

_LENT = frozenset(
    (
        *("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "constraint"),
        *("cert", "client-cert", "proxy", "timeout", "default-timeout", "retries"),
        *("disable-pip-version-check", "keyring-provider"),
    )
)

_SOURCES = ("index-url", "extra-index-url", "find-links")


def lend(loan: Loan, host: Host) -> None:
    """Lend pip's files as one that PIP_CONFIG_FILE names, and the PIP_ variables.

    Local folders and files that they name are lent too.
    """
    merged = configparser.RawConfigParser()
    for path in _files(host):
        for section, option, value in _options(host.text(path)):
            if not merged.has_section(section):
                merged.add_section(section)
            merged.set(section, option, loan.words(value))
    if merged.sections():
        text = io.StringIO()
        merged.write(text)
        loan.env["PIP_CONFIG_FILE"] = loan.write("pip.conf", text.getvalue())
    for name, value in host.environ.items():
        if name.startswith("PIP_") and _normal(name.removeprefix("PIP_")) in _LENT:
            loan.env[name] = loan.words(value)


def indexes(host: Host) -> list[str]:
    """The URLs and folders from which pip takes packages on this machine, without its default."""
    found: dict[str, list[str]] = {}
    for path in _files(host):
        for _, option, value in _options(host.text(path)):
            found[option] = value.split()
    for name, value in host.environ.items():
        if name.startswith("PIP_"):
            found[_normal(name.removeprefix("PIP_"))] = value.split()
    return [word for option in _SOURCES for word in found.get(option, ())]


def has_index(host: Host) -> bool:
    """Whether a setting replaces pip's default index."""
    set_by_file = (option for path in _files(host) for _, option, _ in _options(host.text(path)))
    return "PIP_INDEX_URL" in host.environ or "index-url" in set_by_file


def _files(host: Host) -> Iterator[Path]:
    """The configuration files of pip, the weakest first (pip documentation, "Configuration")."""
    for folder in reversed(host.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(folder, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    yield host.home / ".pip/pip.conf"
    yield Path(host.environ.get("XDG_CONFIG_HOME") or host.home / ".config", "pip/pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if named := host.environ.get("PIP_CONFIG_FILE"):
        yield Path(named)


def _options(text: str) -> Iterator[tuple[str, str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:  # pip itself would refuse it
        return
    for section in parser.sections():
        for option, value in parser.items(section):
            if _normal(option) in _LENT:
                yield section, _normal(option), value


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")
