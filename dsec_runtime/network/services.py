"""The operator's table: which hosts a service name means on this node (`edge/services.toml`).

[services.pypi]            # rules say: service = "pypi"
names = ["index.example", "*.files.example"]
networks = ["198.51.100.0/24"]
ports = [443]              # empty or left out: all
protocol = "tcp"           # tcp, udp or any (when left out)

[hosts]                    # answered without asking anybody
"mirror.example" = ["198.51.100.7"]

[policy]
never = ["192.0.2.0/24"]   # refused to every sandbox, whatever its rules say
private_answers = false    # whether names that only a sandbox's rules name, not a service of
                           # this table, may have private addresses (against DNS rebinding)
"""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dsec_layers.errors import InvalidInputError
from dsec_runtime.network.addresses import network, normal_name

_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as spec.Name
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # what TOML takes without quotes

Port = Annotated[int, Meta(ge=1, le=65535)]


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one service name means; names may begin with `*.`."""

    names: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    protocol: Literal["tcp", "udp", "any"] = "any"


class NodePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for all sandboxes of the node."""

    never: tuple[str, ...] = ()
    private_answers: bool = False


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of the file."""

    services: dict[str, Service] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    policy: NodePolicy = NodePolicy()


def read(path: Path) -> Table:
    """The table at `path`, an empty one without a file. Raises InvalidInputError."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Table()
    try:
        table = msgspec.convert(tomllib.loads(text.decode()), Table)
        _check(table)
        return table
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidInputError(f"{error}", where=str(path)) from error


def fill(path: Path, found: Mapping[str, Service]) -> list[str]:
    """Add the services that the table does not have yet; their names. What is there stays.

    Raises InvalidInputError, before anything is written, and OSError.
    """
    known = read(path).services
    new = sorted(found.keys() - known.keys())
    if new:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        added = "\n".join(_section(name, found[name]) for name in new)
        draft = path.with_name(f".{path.name}.new")
        draft.write_text(f"{text.rstrip()}\n\n{added}".lstrip("\n"))
        draft.replace(path)
    return new


def _check(table: Table) -> None:
    for name, service in table.services.items():
        if not _SERVICE.fullmatch(name):
            raise ValueError(f"services.{name}: no name of a service")
        for pattern in service.names:
            normal_name(pattern.removeprefix("*."))
    for name, addresses in table.hosts.items():
        if normal_name(name) != name:
            raise ValueError(f"hosts.{name}: must be {normal_name(name)}")
        for address in addresses:
            ipaddress.IPv4Address(address)
    cidrs = [*table.policy.never, *(it for one in table.services.values() for it in one.networks)]
    for cidr in cidrs:
        network(cidr)


def _section(name: str, service: Service) -> str:
    # A JSON string of printable text is a TOML string.
    lists = {"names": service.names, "networks": service.networks, "ports": service.ports}
    lines = [f"[services.{name if _BARE.fullmatch(name) else json.dumps(name)}]"]
    lines += [f"{key} = {json.dumps(values)}" for key, values in lists.items() if values]
    if service.protocol != "any":
        lines.append(f"protocol = {json.dumps(service.protocol)}")
    return "\n".join(lines) + "\n"
