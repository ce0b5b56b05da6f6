from __future__ import annotations

import pytest
from pyroute2 import IPRoute

from dsec_runtime.spec import NetworkRule
from tests.integration.runtime.network.conftest import Node
from tests.support import internet
from tests.support.internet import ONE, OTHER, TWO, UDP_PORT, connect, inside, reaches

pytestmark = pytest.mark.root


def test_nothing_is_reached_without_a_rule(node: Node) -> None:
    claimed = node.claim("a")

    assert not reaches(claimed.netns, ONE, 80)
    assert not internet.echoes(claimed.netns, ONE, UDP_PORT)

    counts = node.network.counts("a")
    assert counts.allowed_packets == 0
    assert counts.refused_packets >= 2
    assert {(it.address, it.protocol, it.port, it.packets) for it in counts.refused} == {
        (ONE, "tcp", 80, 1),
        (ONE, "udp", UDP_PORT, 1),
    }
    assert all(it.ago_s < 60 for it in counts.refused)


def test_a_network_is_reached_at_the_ports_of_its_rule(node: Node) -> None:
    claimed = node.claim("a", NetworkRule(cidr="198.51.100.0/24", ports=(80,), protocol="tcp"))

    assert reaches(claimed.netns, ONE, 80)
    assert reaches(claimed.netns, TWO, 80)
    assert not reaches(claimed.netns, ONE, 443)
    assert not reaches(claimed.netns, OTHER, 80)
    assert node.network.counts("a").allowed_bytes > 0


def test_a_smaller_packet_size_on_the_way_is_found_out(node: Node) -> None:
    def shrink() -> None:
        with IPRoute() as netlink:
            index = netlink.link_lookup(ifname="eth0")[0]
            netlink.link("set", index=index, mtu=1280)

    inside(node.internet.node, shrink)
    claimed = node.claim("a", NetworkRule(cidr="198.51.100.0/24"))

    with connect(claimed.netns, ONE, 80) as connection:
        sent = bytes(range(256)) * 400
        connection.sendall(sent)
        received = b""
        while len(received) < len(sent):
            received += connection.recv(65536)
    assert received == sent
