"""Root in a sandbox's network namespace, which is more than root in a sandbox has."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import dns.exception
import pytest
from pyroute2 import IPRoute

from dsec_runtime.linux import namespaces
from dsec_runtime.linux.nftables import Nftables
from dsec_runtime.network import links
from dsec_runtime.network.network import Claimed
from dsec_runtime.network.ruleset import CHAINS
from dsec_runtime.spec import NetworkRule
from tests.integration.runtime.network.conftest import Node
from tests.support import internet
from tests.support.internet import (
    GATEWAY,
    METADATA,
    NODE,
    NODE_PORT,
    ONE,
    OTHER,
    UDP_PORT,
    Tap,
    answers,
    connect,
    echoes,
    inside,
    look_up,
    reaches,
    send_frame,
    send_raw,
    udp_packets,
)

pytestmark = pytest.mark.root

EVERYTHING = NetworkRule(cidr="0.0.0.0/0")
LAST = b"the last one"
ROUTER_MAC = "02:d5:0a:e7:00:01"
_NO_DAD = 0x02  # IFA_F_NODAD, rtnetlink(7)


def only_the_last_leaves(node: Node, claimed: Claimed, attack: Callable[[], None]) -> None:
    """What `attack` sends never reaches the node, where an honest packet after it does."""
    with Tap(node.internet.node, node_link(node)) as tap:
        attack()
        inside(claimed.netns, lambda: send(ONE, UDP_PORT, LAST))
        frames = tap.until(LAST)
    assert [frame for frame in frames if LAST not in frame and is_ip(frame)] == []


def is_ip(frame: bytes) -> bool:
    return struct.unpack_from("!H", frame, 12)[0] in (0x0800, 0x86DD, 0x8100)


def node_link(node: Node) -> str:
    names = inside(node.internet.node, socket.if_nameindex)
    return next(name for _, name in names if name.startswith("dsec"))


def send(address: str, port: int, data: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(data, (address, port))


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_names_are_asked_of_no_other_resolver(node: Node, tcp: bool) -> None:
    node.internet.names["secret.evil.example"] = 60, (ONE,)
    claimed = node.claim("a", NetworkRule(domain="packages.example"))

    with pytest.raises((dns.exception.Timeout, OSError)):
        look_up(claimed.netns, OTHER, "secret.evil.example", tcp=tcp)

    assert node.internet.asked == []
    assert {(it.address, it.port) for it in node.network.counts("a").refused} == {(OTHER, 53)}


@pytest.mark.parametrize(
    ("address", "port"),
    [
        (METADATA, 80),
        (NODE, NODE_PORT),
        ("127.0.0.1", NODE_PORT),
        ("10.231.0.1", 80),
        ("10.231.0.1", NODE_PORT),
        (GATEWAY, 53),
    ],
)
def test_no_rule_opens_the_node(node: Node, address: str, port: int) -> None:
    claimed = node.claim("a", EVERYTHING)
    assert reaches(claimed.netns, ONE, 80)

    assert not answers(claimed.netns, address, port)


def test_a_port_that_the_node_publishes_for_others_is_not_reached(node: Node) -> None:
    claimed = node.claim("a", EVERYTHING)
    with inside(node.internet.node, Nftables) as table:
        table.run(
            "add table ip published; add chain ip published before "
            "{ type nat hook prerouting priority -100; }; "
            f"add rule ip published before tcp dport 7777 dnat to {ONE}:80"
        )

    assert not answers(claimed.netns, NODE, 7777)


def test_the_ends_of_the_links_are_closed(node: Node) -> None:
    claimed = node.claim("a", EVERYTHING)
    own = inside(node.internet.node, lambda: links.node_address(node_link(node)))

    assert not any(answers(claimed.netns, str(it), NODE_PORT) for it in (own, own + 1))


def test_another_sandbox_is_not_reached(node: Node) -> None:
    one, other = node.claim("a", EVERYTHING), node.claim("b", EVERYTHING)
    with inside(other.netns, lambda: socket.create_server(("", 80))):
        assert not reaches(one.netns, other.address, 80)
        assert reaches(one.netns, ONE, 80)


def test_nobody_outside_begins_a_connection(node: Node) -> None:
    claimed = node.claim("a", EVERYTHING)

    def route() -> None:
        with IPRoute() as netlink:
            router = links.node_address(node_link(node)) + 1
            netlink.route("add", dst=f"{claimed.address}/32", gateway=str(router))

    inside(node.internet.node, route)
    with inside(claimed.netns, lambda: socket.create_server(("", 80))):
        assert not answers(node.internet.node, claimed.address, 80)


def test_a_source_of_others_is_dropped(node: Node) -> None:
    claimed, other = node.claim("a", EVERYTHING), node.claim("b", EVERYTHING)

    def attack() -> None:
        for source in (other.address, "203.0.113.77", NODE, "127.0.0.1", "10.231.0.1"):
            for packet in udp_packets(source, ONE):
                send_raw(claimed.netns, packet, ONE)

    only_the_last_leaves(node, claimed, attack)
    assert node.network.counts("a").refused_packets >= 5
    assert node.network.counts("b").allowed_packets == 0


def test_an_address_of_another_sandbox_is_of_no_use(node: Node) -> None:
    claimed, other = node.claim("a"), node.claim("b", EVERYTHING)

    def steal() -> None:
        with IPRoute() as netlink:
            index = netlink.link_lookup(ifname="eth0")[0]
            netlink.addr("add", index=index, address=other.address, prefixlen=32)
            netlink.link("set", index=index, state="down")
            netlink.link("set", index=index, address="02:d5:aa:aa:aa:aa", state="up")
            netlink.route("replace", dst="0.0.0.0/0", oif=index)
            netlink.neigh(
                "replace",
                dst=ONE,
                lladdr=ROUTER_MAC,
                ifindex=index,
                state=0x80,
            )

    inside(claimed.netns, steal)

    def ask() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind((other.address, 0))
            datagrams.settimeout(internet.QUIET_S)
            datagrams.sendto(b"echo", (ONE, UDP_PORT))
            datagrams.recv(4)

    with pytest.raises(TimeoutError):
        inside(claimed.netns, ask)
    assert reaches(other.netns, ONE, 80)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(struct.pack("!H", 0x86DD) + b"\x60" + bytes(60), id="ipv6"),
        pytest.param(struct.pack("!HHH", 0x8100, 5, 0x0800) + bytes(60), id="vlan"),
        pytest.param(struct.pack("!H", 0x0806) + bytes(46), id="arp"),
        pytest.param(struct.pack("!H", 0x88CC) + bytes(46), id="lldp"),
    ],
)
def test_frames_of_other_protocols_end_at_the_router(node: Node, frame: bytes) -> None:
    claimed = node.claim("a", EVERYTHING)
    router = bytes.fromhex(ROUTER_MAC.replace(":", ""))

    def attack() -> None:
        for target in (router, b"\xff" * 6, bytes.fromhex("333300000001")):
            send_frame(claimed.netns, target + bytes.fromhex("02d5aaaaaaaa") + frame)

    only_the_last_leaves(node, claimed, attack)


def test_ipv6_that_root_switches_on_leads_nowhere(node: Node) -> None:
    claimed = node.claim("a", EVERYTHING)

    def attack() -> None:
        for name in ("all", "eth0"):
            links.change_setting(f"ipv6/conf/{name}/disable_ipv6", "0")
        with IPRoute() as netlink:
            index = netlink.link_lookup(ifname="eth0")[0]
            netlink.addr("add", index=index, address="fd00::2", prefixlen=64, flags=_NO_DAD)
            netlink.route("add", dst="default", oif=index, family=10)
            netlink.neigh("replace", dst="fd00::1", lladdr=ROUTER_MAC, ifindex=index, state=0x80)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as datagrams:
            datagrams.sendto(b"out", ("fd00::1", 5000))

    only_the_last_leaves(node, claimed, lambda: inside(claimed.netns, attack))


@pytest.mark.parametrize("target", ["224.0.0.1", "239.1.2.3", "255.255.255.255"])
def test_many_at_once_are_not_addressed(node: Node, target: str) -> None:
    claimed = node.claim("a", EVERYTHING)

    def attack() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            datagrams.sendto(b"all", (target, UDP_PORT))

    only_the_last_leaves(node, claimed, lambda: inside(claimed.netns, attack))


def test_icmp_and_other_protocols_are_dropped(node: Node) -> None:
    claimed = node.claim("a", EVERYTHING)

    def attack() -> None:
        for protocol in (socket.IPPROTO_ICMP, socket.IPPROTO_GRE, socket.IPPROTO_SCTP, 4):
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) as raw:
                raw.sendto(b"\x08\x00\xf7\xff" + bytes(4), (ONE, 0))

    only_the_last_leaves(node, claimed, lambda: inside(claimed.netns, attack))
    assert node.network.counts("a").refused_packets >= 4


@pytest.mark.parametrize("pieces", [2, 4])
def test_fragments_are_dropped(node: Node, pieces: int) -> None:
    claimed = node.claim("a", EVERYTHING)

    def attack() -> None:
        for packet in udp_packets(claimed.address, ONE, pieces=pieces):
            send_raw(claimed.netns, packet, ONE)

    only_the_last_leaves(node, claimed, attack)


def test_a_packet_between_two_allowed_ones_is_judged_by_itself(node: Node) -> None:
    claimed = node.claim("a", NetworkRule(cidr=f"{ONE}/32", ports=(UDP_PORT,), protocol="udp"))

    assert echoes(claimed.netns, ONE, UDP_PORT, internet.WAIT_S)
    assert not echoes(claimed.netns, OTHER, UDP_PORT)
    assert not reaches(claimed.netns, ONE, 80)


def test_a_sandbox_has_a_share_of_the_connections(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tuple(rule.replace("count over 4096", "count over 3") for rule in CHAINS["permit"])
    monkeypatch.setitem(CHAINS, "permit", few)
    node.restart()
    claimed, other = node.claim("a", EVERYTHING), node.claim("b", EVERYTHING)

    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connect(claimed.netns, ONE, 80))
        assert not answers(claimed.netns, ONE, 80)
        assert reaches(other.netns, ONE, 80)
    while not reaches(claimed.netns, ONE, 80):
        pass  # they end when the server has ended its side, too


def test_questions_are_limited(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(
        rule.replace("over 200/second burst 400", "over 1/minute burst 5") for rule in CHAINS["ask"]
    )
    monkeypatch.setitem(CHAINS, "ask", few)
    node.restart()
    claimed, other = node.claim("a", EVERYTHING), node.claim("b", EVERYTHING)

    def ask(box: Claimed, wait_s: float = internet.WAIT_S) -> None:
        look_up(box.netns, box.resolver, "packages.example", "AAAA", wait_s=wait_s)

    for _ in range(5):
        ask(claimed)
    with pytest.raises(dns.exception.Timeout):
        ask(claimed, internet.QUIET_S)
    ask(other)


def test_the_world_sees_the_node_only(node: Node) -> None:
    claimed = node.claim("a", EVERYTHING)

    with connect(claimed.netns, ONE, 80) as connection:
        connection.sendall(b"echo")
        connection.recv(4)

    assert node.internet.peers == [NODE]


def test_the_node_hands_on_for_nobody_else(node: Node) -> None:
    """Switching forwarding on for our own packets opens no way for neighbours of the node."""
    world, behind = node.internet.node.with_name("world"), node.home / "behind"
    namespaces.in_new_network(behind, lambda: _behind(node.internet.node))
    try:
        inside(node.internet.node, _join_behind)
        inside(world, _route_behind)
        with Tap(behind, "eth0") as tap:
            inside(world, lambda: send("10.99.0.2", UDP_PORT, b"from a neighbour"))
            inside(node.internet.node, lambda: send("10.99.0.2", UDP_PORT, LAST))
            assert not any(b"from a neighbour" in frame for frame in tap.until(LAST))
    finally:
        namespaces.forget(behind)


def test_a_node_that_forwards_anyway_goes_on_doing_so(node: Node) -> None:
    world, behind = node.internet.node.with_name("world"), node.home / "behind"
    inside(node.internet.node, lambda: links.change_setting("ipv4/ip_forward", "1"))
    node.restart()
    namespaces.in_new_network(behind, lambda: _behind(node.internet.node))
    try:
        inside(node.internet.node, _join_behind)
        inside(world, _route_behind)
        with Tap(behind, "eth0") as tap:
            inside(world, lambda: send("10.99.0.2", UDP_PORT, LAST))
            tap.until(LAST)
    finally:
        namespaces.forget(behind)
    node.network.remove()
    assert inside(node.internet.node, lambda: links.forwarding("eth0")) == "1"


def _behind(node: Path) -> None:
    with IPRoute() as netlink, node.open() as node_file:
        peer = {"ifname": "behind", "net_ns_fd": node_file.fileno()}
        netlink.link("add", ifname="eth0", kind="veth", peer=peer)
        index = netlink.link_lookup(ifname="eth0")[0]
        netlink.addr("add", index=index, address="10.99.0.2", prefixlen=24)
        netlink.link("set", index=index, state="up")


def _join_behind() -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname="behind")[0]
        netlink.addr("add", index=index, address="10.99.0.1", prefixlen=24)
        netlink.link("set", index=index, state="up")


def _route_behind() -> None:
    with IPRoute() as netlink:
        netlink.route("add", dst="10.99.0.0/24", gateway=NODE)
