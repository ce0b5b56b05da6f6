"""Containers in networks: what programs in them find, and what goes with them."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from dsec_runtime.errors import SandboxError
from dsec_runtime.spec import Environment, NetworkRule, SandboxSpec
from dsec_runtime.tiers.container.driver import ContainerTier
from dsec_runtime.tiers.networked import NetworkedTier, find_network
from tests.integration.runtime.network.conftest import Node
from tests.support.internet import ONE, TWO
from tests.support.sandboxes import Box, Sandboxes

pytestmark = [
    pytest.mark.root,
    pytest.mark.overlay,
    pytest.mark.erofs,
    pytest.mark.fuse,
    pytest.mark.oci,
]

RULES = (NetworkRule(domain="packages.example"),)
# Sockets and names of perl itself; a module would not be there.
CONNECT = """
my ($host, $port) = @ARGV;
my $address = gethostbyname($host) or die "no name\n";
socket(my $s, 2, 1, 6) or die "no socket: $!\n";
connect($s, pack("S n a4 x8", 2, $port, $address)) or die "refused: $!\n";
syswrite($s, "echo"); sysread($s, my $back, 4); print $back;
"""

SET_DOWN = """
socket(my $s, 2, 2, 0) or die;
my $request = pack("a16 s x22", "eth0", 0);  # struct ifreq, netdevice(7)
print ioctl($s, 0x8914, $request) ? "down" : "refused";
"""


@pytest.fixture
def tier(boxes: Sandboxes, node: Node) -> Iterator[NetworkedTier]:
    network = node.network
    inner = ContainerTier(
        boxes.node,
        network=functools.partial(find_network, network),
        resolv_conf=network.resolv_conf,
    )
    made = NetworkedTier(inner, network)
    yield made
    for name in boxes.made:
        made.destroy(name)
    assert network.leftovers([]) == []


def create(tier: NetworkedTier, boxes: Sandboxes, spec: SandboxSpec) -> Box:
    return Box(tier, tier.create(boxes.new_id(), spec))  # type: ignore[arg-type]


def test_a_program_finds_what_its_rules_allow(
    tier: NetworkedTier, boxes: Sandboxes, node: Node
) -> None:
    node.internet.names["packages.example"] = 60, (ONE,)
    box = create(tier, boxes, boxes.spec(network=RULES))

    assert box.ok("cat /etc/resolv.conf") == "nameserver 10.231.0.1\n"
    assert box.run("perl", "-e", CONNECT, ONE, "80").stderr.startswith("refused")
    assert box.run("perl", "-e", CONNECT, "packages.example", "80").stdout == "echo"
    assert box.run("perl", "-e", CONNECT, "other.example", "80").stderr == "no name\n"

    node.network.apply(box.id, [])
    assert box.run("perl", "-e", CONNECT, ONE, "80").stderr.startswith("refused")


def test_root_in_a_container_changes_nothing_of_its_network(
    tier: NetworkedTier, boxes: Sandboxes
) -> None:
    box = create(tier, boxes, boxes.spec(network=RULES))

    for kind, protocol in ((3, 1), (3, 255)):  # raw sockets of IPv4
        assert box.perl(f"print socket(S, 2, {kind}, {protocol}) ? 'yes' : 'no'").stdout == "no"
    assert box.perl("print socket(S, 17, 3, 768) ? 'yes' : 'no'").stdout == "no"  # of the link
    assert box.perl(SET_DOWN).stdout == "refused"
    assert box.sh("echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6").status != 0
    assert box.sh("echo nameserver 192.0.2.1 > /etc/resolv.conf").status != 0


def test_low_ports_are_free_to_serve_on(tier: NetworkedTier, boxes: Sandboxes) -> None:
    box = create(tier, boxes, boxes.spec(network=RULES))
    listen = (
        "socket(S, 2, 1, 6); print bind(S, pack('S n x12', 2, 80)) && listen(S, 1) ? 'yes' : $!"
    )
    assert box.perl(listen).stdout == "yes"


def test_forks_have_networks_of_their_own(
    tier: NetworkedTier, boxes: Sandboxes, node: Node
) -> None:
    node.internet.names["packages.example"] = 60, (TWO,)
    box = create(tier, boxes, boxes.spec(network=RULES))
    wanted = {boxes.new_id(): boxes.spec(network=RULES) for _ in range(2)}
    others = [Box(tier, it) for it in tier.fork(box.running, wanted)]  # type: ignore[arg-type]

    claimed = [node.network.claimed(it.id) for it in (box, *others)]
    assert len({it.address for it in claimed if it}) == 3
    assert others[1].run("perl", "-e", CONNECT, "packages.example", "80").stdout == "echo"


def test_a_network_goes_with_its_container(
    tier: NetworkedTier, boxes: Sandboxes, node: Node
) -> None:
    box = create(tier, boxes, boxes.spec(network=RULES))
    claimed = node.network.claimed(box.id)
    assert claimed is not None
    assert tier.reattach(box.running)

    tier.destroy(box.id)

    assert not claimed.netns.exists()
    assert not tier.reattach(box.running)


def test_a_container_that_cannot_be_made_leaves_no_network(
    tier: NetworkedTier, boxes: Sandboxes, node: Node
) -> None:
    broken = boxes.spec(network=RULES, environment=Environment(reference="base/none:1"))
    with pytest.raises(SandboxError):
        create(tier, boxes, broken)
    with pytest.raises(SandboxError):
        create(tier, boxes, boxes.spec(network=(NetworkRule(service="nothing"),)))

    assert node.network.leftovers([]) == []
