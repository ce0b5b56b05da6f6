from __future__ import annotations

import contextlib
import socket
import time

import dns.edns
import dns.rcode
import pytest

from dsec_layers.linux.hostloan import Host
from dsec_runtime.errors import UnsupportedError
from dsec_runtime.network import hostservices
from dsec_runtime.network.network import Claimed
from dsec_runtime.network.services import Service
from dsec_runtime.spec import NetworkRule
from tests.integration.runtime.network.conftest import Node
from tests.support.internet import (
    METADATA,
    ONE,
    OTHER,
    PRIVATE,
    TWO,
    WAIT_S,
    addresses,
    connect,
    exchange,
    look_up,
    reaches,
)

pytestmark = pytest.mark.root

PACKAGES = NetworkRule(domain="packages.example", ports=(80,), protocol="tcp")


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


def test_a_private_answer_needs_the_word_of_the_operator(node: Node) -> None:
    node.internet.names["packages.example"] = 60, (PRIVATE,)
    node.services('[services.inner]\nnames = ["packages.example"]\n')
    bare = node.claim("a", PACKAGES)
    vouched = node.claim("b", NetworkRule(service="inner"))

    assert not addresses(look_up(bare.netns, bare.resolver, "packages.example"))
    assert not reaches(bare.netns, PRIVATE, 80)
    assert addresses(look_up(vouched.netns, vouched.resolver, "packages.example")) == [PRIVATE]
    assert reaches(vouched.netns, PRIVATE, 80)


def test_a_service_is_what_the_node_itself_uses(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Host] = []

    def find(host: Host) -> dict[str, Service]:
        asked.append(host)
        return {"pypi": Service(names=("packages.example",), ports=(80,))}

    monkeypatch.setattr(hostservices, "find", find)
    node.internet.names["packages.example"] = 60, (ONE,)

    claimed = node.claim("a", NetworkRule(service="pypi"))

    assert addresses(look_up(claimed.netns, claimed.resolver, "packages.example")) == [ONE]
    assert "packages.example" in (node.home / "edge/services.toml").read_text()
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="no service nothing"):
            node.network.apply("a", [NetworkRule(service="nothing")])
    assert len(asked) == 1


@pytest.mark.parametrize("address", [METADATA, "127.0.0.1", "224.0.0.1", "10.231.0.1"])
def test_a_name_opens_no_address_that_nobody_may_reach(node: Node, address: str) -> None:
    node.internet.names["inner.example"] = 60, (address, ONE)
    node.services('[services.inner]\nnames = ["inner.example"]\n')
    claimed = node.claim("a", NetworkRule(service="inner"))

    assert addresses(look_up(claimed.netns, claimed.resolver, "inner.example")) == [ONE]


def test_a_refused_network_is_refused_for_names(node: Node) -> None:
    node.internet.names["packages.example"] = 60, (ONE, OTHER)
    claimed = node.claim("a", PACKAGES, NetworkRule(cidr="198.51.100.0/24", allow=False))

    assert addresses(look_up(claimed.netns, claimed.resolver, "packages.example")) == [OTHER]
    assert reaches(claimed.netns, OTHER, 80)
    assert not reaches(claimed.netns, ONE, 80)


def test_hosts_of_the_operator_are_answered_without_asking(node: Node) -> None:
    node.services('[hosts]\n"packages.example" = ["203.0.113.9"]\n')
    claimed = node.claim("a", PACKAGES)

    assert addresses(look_up(claimed.netns, claimed.resolver, "packages.example")) == [OTHER]
    assert reaches(claimed.netns, OTHER, 80)
    assert node.internet.asked == []


def test_what_the_operator_never_wants_holds_for_sandboxes_that_run(node: Node) -> None:
    claimed = node.claim("a", NetworkRule(cidr="0.0.0.0/0"))
    assert reaches(claimed.netns, ONE, 80)

    node.services('[policy]\nnever = ["198.51.100.1/32"]\n')
    node.claim("b")

    assert not reaches(claimed.netns, ONE, 80)
    assert reaches(claimed.netns, TWO, 80)


def test_an_answer_expires(node: Node) -> None:
    node.internet.names["packages.example"] = 1, (ONE,)
    node.restart(grace_s=0.0)
    claimed = node.claim("a", PACKAGES)
    with connected_by_name(claimed) as connection:
        end_s = time.monotonic() + WAIT_S
        while reaches(claimed.netns, ONE, 80):
            assert time.monotonic() < end_s

        assert (
            exchange(connection, b"old") == b"old"
        )  # a connection outlives the answer that it was made by
        # and a change to other rules that allow its name,
        node.network.apply("a", [PACKAGES, NetworkRule(cidr="192.0.2.77/32")])
        assert exchange(connection, b"new") == b"new"
        # but not one to rules that do not.
        node.network.apply("a", [NetworkRule(cidr="192.0.2.77/32")])
        with pytest.raises(ConnectionResetError):
            exchange(connection, b"cut")


def connected_by_name(claimed: Claimed) -> socket.socket:
    """A connection made while an answer holds; on a busy machine that may take several."""
    while True:
        look_up(claimed.netns, claimed.resolver, "packages.example")
        with contextlib.suppress(ConnectionError):
            return connect(claimed.netns, ONE, 80)


def test_without_an_upstream_the_failure_is_no_refusal(node: Node) -> None:
    node.internet.resolv_conf.write_text("")
    claimed = node.claim("a", PACKAGES)

    answer = look_up(claimed.netns, claimed.resolver, "packages.example")

    assert answer.rcode() == dns.rcode.SERVFAIL
    assert node.network.counts("a").refused_names == ()
