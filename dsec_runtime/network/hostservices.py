"""What the node's own pip, npm and apt use, as services for the operator's table.

Names come from their settings, and where these say nothing from the programs themselves.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from dsec_layers.errors import DsecError
from dsec_layers.linux import hostapt, hostnpm, hostpip, process
from dsec_layers.linux.hostloan import Host
from dsec_runtime.network.addresses import normal_name
from dsec_runtime.network.services import Service

_PORTS: Final = {"http": 80, "https": 443}
_TIMEOUT_S: Final = 10.0
# pip tells its default index and where that keeps its files only to its own code.
_PIP_DEFAULT: Final = (
    "from pip._internal.models.index import PyPI as index; "
    "print(index.simple_url, f'https://{index.file_storage_domain}')"
)


def find(host: Host) -> dict[str, Service]:
    """The services that `host` can use, by name: `pypi`, `npm`, `apt`, and its distribution."""
    sources = list(hostapt.host_sources(host))
    release = hostapt.host_release(host)
    urls: dict[str, list[str]] = {
        "pypi": _pip(host),
        "npm": _npm(host),
        "apt": [url for source in sources for url in source.get("URIs").split()],
    }
    if release:
        distribution, codename = release
        own = [source for source in sources if source.is_of(codename)]
        urls[distribution] = [url for source in own for url in source.get("URIs").split()]
    services = {name: service(found) for name, found in urls.items()}
    return {name: it for name, it in services.items() if it.names or it.networks}


def service(urls: Iterable[str]) -> Service:
    """A service of the hosts and ports of `urls`; what is no URL of a web server is left out."""
    names: set[str] = set()
    networks: set[str] = set()
    ports: set[int] = set()
    for url in urls:
        try:
            parts = urlsplit(url.removeprefix("mirror+"))
            port = parts.port or _PORTS[parts.scheme]
            host = normal_name(parts.hostname or "")
        except (KeyError, ValueError):
            continue
        (networks if _is_address(host) else names).add(host)
        ports.add(port)
    return Service(
        names=tuple(sorted(names)),
        networks=tuple(sorted(f"{it}/32" for it in networks)),
        ports=tuple(sorted(ports)),
        protocol="tcp",
    )


def _pip(host: Host) -> list[str]:
    found = hostpip.indexes(host)
    return found if hostpip.has_index(host) else found + _said([sys.executable, "-c", _PIP_DEFAULT])


def _npm(host: Host) -> list[str]:
    found = hostnpm.registries(host)
    asked = [] if "registry" in found else _said(["npm", "config", "get", "registry", "--global"])
    return [*found.values(), *asked]


def _said(argv: list[str]) -> list[str]:
    """The words that a program prints; none where it is missing or fails."""
    try:
        return process.run(argv, timeout_s=_TIMEOUT_S).stdout.decode(errors="replace").split()
    except (DsecError, TimeoutError):
        return []


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True
