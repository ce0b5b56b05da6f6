"""Network rules as words of a command line."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import click
import msgspec

from dsec_layers.cli.output import size, table
from dsec_runtime.spec import NetworkCounts, NetworkRule

METAVAR = "WHAT[:PORT,...][/tcp|/udp]"


class RuleType(click.ParamType[NetworkRule]):
    """A service (`pypi`), a name (`*.example.org`) or a network (`10.0.0.0/8`), with its ports."""

    name = "rule"

    def __init__(self, *, allow: bool) -> None:
        self._allow = allow

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> NetworkRule:
        """Raises click.BadParameter."""
        text, protocol = str(value), "any"
        for suffix in ("tcp", "udp"):
            if text.endswith(f"/{suffix}"):
                text, protocol = text.removesuffix(f"/{suffix}"), suffix
        if _is_ipv6(text):
            self.fail(f"{value}: sandboxes have no IPv6; it is closed to them", param, ctx)
        what, colon, ports = text.partition(":")
        fields = {
            "allow": self._allow,
            _kind(what): what,
            "ports": ports.split(",") if colon else (),
            "protocol": protocol,
        }
        try:
            return msgspec.convert(fields, NetworkRule, strict=False)
        except msgspec.ValidationError as error:
            self.fail(f"{value}: {error}", param, ctx)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Network(text.removeprefix("[").partition("]")[0], strict=False)
    except ValueError:
        return False
    return True


def _kind(what: str) -> str:
    try:
        ipaddress.ip_network(what, strict=False)
    except ValueError:
        return "domain" if "." in what else "service"
    return "cidr"


def described(rules: Sequence[NetworkRule], counts: NetworkCounts | None) -> str:
    """Rules as a table, and below it what they did."""
    rows = [
        (
            "allow" if rule.allow else "deny",
            rule.service or rule.domain or rule.cidr or "",
            rule.protocol,
            ", ".join(map(str, rule.ports)) or "all",
        )
        for rule in rules
    ]
    text = table(("RULE", "WHAT", "PROTOCOL", "PORTS"), [*rows, ("deny", "all else", "", "")])
    return text if counts is None else f"{text}\n\n{_counted(counts)}"


def _counted(counts: NetworkCounts) -> str:
    lines = [
        f"allowed: {counts.allowed_packets} packets, {size(counts.allowed_bytes)}",
        f"refused: {counts.refused_packets} packets, {size(counts.refused_bytes)}",
    ]
    lines += [
        f"  {it.address} {it.protocol} {it.port} ({it.packets} times, {it.ago_s} s ago)"
        for it in counts.refused
    ]
    lines += [f"  {it.name}: {it.reason} ({it.count} times)" for it in counts.refused_names]
    return "\n".join(lines)
