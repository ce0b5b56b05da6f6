from __future__ import annotations

import os
from pathlib import Path

import dns.edns
import dns.message
import dns.rcode
import pytest

from dsec_runtime.spec import NetworkRule
from tests.integration.network.conftest import Node
from tests.support.internet import ONE, OTHER, TWO, addresses, look_up, reaches

pytestmark = pytest.mark.root

PACKAGES = NetworkRule(domain="packages.example", ports=(80,), protocol="tcp")


def write_services(home: Path, text: str) -> None:
    path = home / "edge/services.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name("draft")
    draft.write_text(text)
    os.replace(draft, path)


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_an_allowed_name_is_answered_and_its_addresses_are_open(node: Node, tcp: bool) -> None:
    node.internet.names["packages.example"] = 60, (ONE, TWO)
    claimed = node.claim("a", PACKAGES)
    assert not reaches(claimed.netns, ONE, 80)  # nobody has asked for it yet

    answer = look_up(claimed.netns, claimed.resolver, "Packages.EXAMPLE", tcp=tcp)

    assert sorted(addresses(answer)) == [ONE, TWO]
    assert reaches(claimed.netns, ONE, 80)
    assert reaches(claimed.netns, TWO, 80)
    assert not reaches(claimed.netns, ONE, 443)
    assert not reaches(claimed.netns, OTHER, 80)


def test_an_answer_opens_nothing_to_another_sandbox(node: Node) -> None:
    node.internet.names["packages.example"] = 60, (ONE,)
    first, second = node.claim("a", PACKAGES), node.claim("b", PACKAGES)

    look_up(first.netns, first.resolver, "packages.example")

    assert reaches(first.netns, ONE, 80)
    assert not reaches(second.netns, ONE, 80)


def test_another_name_does_not_exist_and_is_not_asked_for(node: Node) -> None:
    node.internet.names["secret.evil.example"] = 60, (ONE,)
    claimed = node.claim("a", PACKAGES)

    answer = look_up(claimed.netns, claimed.resolver, "secret.evil.example")

    assert answer.rcode() == dns.rcode.NXDOMAIN
    assert [option.code for option in answer.options] == [dns.edns.EDECode.BLOCKED]
    assert node.internet.asked == []
    (refused,) = node.network.counts("a").refused_names
    assert (refused.name, refused.count) == ("secret.evil.example", 1)


@pytest.mark.parametrize("rdtype", ["AAAA", "TXT", "HTTPS", "MX", "NS"])
def test_only_addresses_are_answered(node: Node, rdtype: str) -> None:
    claimed = node.claim("a", PACKAGES)

    answer = look_up(claimed.netns, claimed.resolver, "packages.example", rdtype)

    assert answer.rcode() == dns.rcode.NOERROR
    assert not answer.answer
    assert node.internet.asked == []


def test_a_name_that_moves_is_reached_where_it_is_now(node: Node) -> None:
    claimed = node.claim("a", PACKAGES)
    node.internet.names["packages.example"] = 1, (ONE,)
    look_up(claimed.netns, claimed.resolver, "packages.example")
    node.internet.names["packages.example"] = 1, (TWO,)

    assert addresses(look_up(claimed.netns, claimed.resolver, "packages.example")) == [TWO]

    assert reaches(claimed.netns, TWO, 80)
    assert reaches(claimed.netns, ONE, 80)  # the old answer still holds
