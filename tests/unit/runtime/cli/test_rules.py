from __future__ import annotations

import click
import pytest

from dsec_runtime.cli.rules import RuleType, described
from dsec_runtime.spec import NetworkCounts, NetworkRule, RefusedDestination, RefusedName


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("pypi", NetworkRule(service="pypi")),
        ("pypi:443", NetworkRule(service="pypi", ports=(443,))),
        ("example.org", NetworkRule(domain="example.org")),
        ("*.example.org:80,443", NetworkRule(domain="*.example.org", ports=(80, 443))),
        ("10.0.0.0/8", NetworkRule(cidr="10.0.0.0/8")),
        ("10.0.0.1:53/udp", NetworkRule(cidr="10.0.0.1", ports=(53,), protocol="udp")),
        ("10.0.0.0/8/tcp", NetworkRule(cidr="10.0.0.0/8", protocol="tcp")),
    ],
)
def test_words_are_rules(words: str, rule: NetworkRule) -> None:
    assert RuleType(allow=True).convert(words, None, None) == rule


@pytest.mark.parametrize("words", ["", "pypi:", "pypi:0", "pypi:x", "a b", "pypi:70000"])
def test_what_is_no_rule_is_refused(words: str) -> None:
    with pytest.raises(click.BadParameter):
        RuleType(allow=False).convert(words, None, None)


@pytest.mark.parametrize("words", ["::1", "2001:db8::/32", "[2001:db8::1]:443", "::/0"])
def test_ipv6_is_refused_by_name(words: str) -> None:
    with pytest.raises(click.BadParameter, match="no IPv6"):
        RuleType(allow=True).convert(words, None, None)


def test_what_was_refused_is_shown() -> None:
    counts = NetworkCounts(
        allowed_packets=1,
        allowed_bytes=60,
        refused_packets=2,
        refused_bytes=120,
        refused=(RefusedDestination(address="192.0.2.1", protocol="tcp", port=25),),
        refused_names=(RefusedName(name="a.example", reason="no rule allows it", count=3),),
    )

    text = described([NetworkRule(service="pypi", ports=(443,))], counts)

    assert "pypi" in text
    assert "192.0.2.1 tcp 25 (1 times, 0 s ago)" in text
    assert "a.example: no rule allows it (3 times)" in text
