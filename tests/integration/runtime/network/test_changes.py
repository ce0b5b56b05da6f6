from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dsec_runtime.errors import UnknownSandboxError, UnsupportedError
from dsec_runtime.linux.nftables import Nftables
from dsec_runtime.network import kernelstate, links
from dsec_runtime.network.network import Network
from dsec_runtime.spec import NetworkRule
from tests.integration.runtime.network.conftest import Node
from tests.support.internet import ONE, QUIET_S, TWO, connect, exchange, inside, look_up, reaches
from tests.support.leftovers import mounts_below

pytestmark = pytest.mark.root

WORLD = NetworkRule(cidr="198.51.100.0/24")


def test_a_connection_is_cut_when_its_rule_goes(node: Node) -> None:
    claimed = node.claim("a", WORLD)
    with connect(claimed.netns, ONE, 80) as connection:
        assert exchange(connection, b"one") == b"one"

        node.network.apply("a", [])

        with pytest.raises(ConnectionResetError):
            exchange(connection, b"two")
    assert not reaches(claimed.netns, ONE, 80)


def test_nothing_comes_in_by_a_connection_whose_rule_is_gone(node: Node) -> None:
    claimed = node.claim("a", WORLD)
    with connect(claimed.netns, ONE, 80) as connection:
        connection.sendall(b"push")
        connection.settimeout(QUIET_S)
        with pytest.raises(TimeoutError):
            connection.recv(4)  # the server waits, so that it is the next to send

        node.network.apply("a", [])
        node.internet.pushing.set()

        with pytest.raises(TimeoutError):
            connection.recv(4)


def test_a_connection_goes_on_when_the_new_rules_allow_it(node: Node) -> None:
    claimed = node.claim("a", WORLD)
    with connect(claimed.netns, ONE, 80) as connection:
        node.network.apply("a", [NetworkRule(cidr=f"{ONE}/32", ports=(80,))])

        assert exchange(connection, b"on") == b"on"
    assert not reaches(claimed.netns, TWO, 80)


def test_a_name_stays_open_when_the_new_rules_allow_it(node: Node) -> None:
    node.internet.names["packages.example"] = 60, (ONE,)
    claimed = node.claim("a", NetworkRule(domain="packages.example"))
    look_up(claimed.netns, claimed.resolver, "packages.example")

    node.network.apply("a", [NetworkRule(domain="*.example", ports=(443,))])

    assert reaches(claimed.netns, ONE, 443)
    assert not reaches(claimed.netns, ONE, 80)


def test_rules_that_mean_nothing_change_nothing(node: Node) -> None:
    claimed = node.claim("a", WORLD)

    with pytest.raises(UnsupportedError, match="no service nothing"):
        node.network.apply("a", [NetworkRule(service="nothing")])

    assert reaches(claimed.netns, ONE, 80)


def test_sandboxes_outlive_the_process(node: Node) -> None:
    node.internet.names["packages.example"] = 60, (TWO,)
    rules = [NetworkRule(cidr=f"{ONE}/32"), NetworkRule(domain="packages.example")]
    claimed = node.claim("a", *rules)
    look_up(claimed.netns, claimed.resolver, "packages.example")
    with connect(claimed.netns, ONE, 80) as connection:
        node.restart()
        assert node.network.reconcile({"a": rules, "gone": []}) == ["gone"]

        assert exchange(connection, b"on") == b"on"
        assert reaches(claimed.netns, TWO, 80)
        assert node.network.claimed("a") == claimed
        assert look_up(claimed.netns, claimed.resolver, "packages.example").answer

        node.network.apply("a", [])
        with pytest.raises(ConnectionResetError):
            exchange(connection, b"cut")
    assert not reaches(claimed.netns, TWO, 80)


def test_names_of_before_a_start_still_mean_their_addresses(node: Node) -> None:
    """A change of rules after it cuts what they refuse, and leaves what they allow."""
    node.internet.names |= {"a.example": (60, (ONE,)), "b.example": (60, (TWO,))}
    both = [NetworkRule(domain="a.example"), NetworkRule(domain="b.example")]
    claimed = node.claim("a", *both)
    for name in ("a.example", "b.example"):
        look_up(claimed.netns, claimed.resolver, name)
    with connect(claimed.netns, ONE, 80) as kept, connect(claimed.netns, TWO, 80) as cut:
        node.restart()
        node.network.reconcile({"a": both})

        node.network.apply("a", [NetworkRule(domain="a.example"), NetworkRule(domain="c.example")])

        assert exchange(kept, b"on") == b"on"
        assert reaches(claimed.netns, ONE, 80)
        with pytest.raises(ConnectionResetError):
            exchange(cut, b"cut")
    assert not reaches(claimed.netns, TWO, 80)


def test_rules_that_changed_while_nobody_looked_hold_after_a_start(node: Node) -> None:
    claimed = node.claim("a", WORLD)
    node.restart()

    node.network.reconcile({"a": []})

    assert not reaches(claimed.netns, ONE, 80)


def test_leftovers_are_told_and_released(node: Node) -> None:
    left, kept = node.claim("left", WORLD), node.claim("kept", WORLD)
    node.restart()

    assert node.network.leftovers({"kept"}) == ["left"]
    node.network.release("left")

    assert node.network.leftovers({"kept"}) == []
    assert not left.netns.exists()
    assert reaches(kept.netns, ONE, 80)
    with pytest.raises(UnknownSandboxError):
        node.network.counts("left")


def test_connections_of_a_sandbox_end_with_it(node: Node) -> None:
    claimed, other = node.claim("a", WORLD), node.claim("b", WORLD)
    with connect(claimed.netns, ONE, 80), connect(other.netns, ONE, 80):
        node.network.apply("a", [NetworkRule(cidr="198.51.100.0/25")])
        assert tracked(node, claimed.address)

        node.network.release("a")

        assert not tracked(node, claimed.address)
        assert tracked(node, other.address)


def tracked(node: Node, address: str) -> bool:
    table = Path("/proc/thread-self/net/nf_conntrack")
    text = inside(node.home / "run/netns/router", table.read_text)
    return f"src={address} " in text


def test_a_start_takes_away_what_was_half_made(node: Node) -> None:
    kept, other = node.claim("a", WORLD), node.claim("b", WORLD)
    node.network.close()
    folder = node.home / "run/netns"
    (folder / "claims/half").write_text("999")
    (folder / "claims/empty").write_text("")
    (folder / "998").touch()
    (folder / "claims/b").unlink()

    node.network = Network(node.home, node.settings)

    assert node.network.leftovers([]) == ["a"]
    assert not (folder / "998").exists()
    assert not other.netns.exists()
    with inside(folder / "router", Nftables) as table:
        assert list(kernelstate.counters(table, "allowed")) == [kept.address]
    assert reaches(kept.netns, ONE, 80)


def test_claims_of_many_threads_are_apart(node: Node) -> None:
    found: list[Path] = []

    def claim(number: int) -> None:
        found.append(node.claim(f"sandbox-{number}", WORLD).netns)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 6
    assert all(reaches(netns, ONE, 80) for netns in found)


def test_a_claim_again_is_the_same_network(node: Node) -> None:
    first = node.claim("a", WORLD)

    assert node.claim("a") == first
    assert not reaches(first.netns, ONE, 80)


def test_two_homes_share_a_node(node: Node) -> None:
    first = node.claim("a", WORLD)
    home = node.home.with_name("second")
    other = Network(home, node.settings)
    try:
        second = other.claim("a", [WORLD])
        assert reaches(first.netns, ONE, 80)
        assert reaches(second.netns, ONE, 80)
        node.network.release("a")
        assert reaches(second.netns, ONE, 80)
    finally:
        other.remove()

    third = node.claim("b", WORLD)
    assert reaches(third.netns, ONE, 80)


def test_namespaces_are_seen_where_they_are_made_alone(node: Node) -> None:
    """A program that starts containers copies all mounts that are shared with it."""
    claimed = node.claim("a", WORLD)

    lines = Path("/proc/self/mountinfo").read_text().splitlines()

    (folder,) = [line for line in lines if line.split()[4] == str(claimed.netns.parent)]
    assert "shared:" not in folder
    assert mounts_below(node.home)[0] == str(claimed.netns.parent)


def test_nothing_is_left_on_the_node(node: Node) -> None:
    node.claim("a", WORLD)

    node.network.remove()

    assert inside(node.internet.node, lambda: links.forwarding("eth0")) == "0"
    assert inside(node.internet.node, lambda: links.named("")) == ["all", "default", "eth0", "lo"]
    with inside(node.internet.node, Nftables) as table:
        assert table.query("list tables") == []
    assert [it.name for it in (node.home / "run/netns").iterdir()] == ["claims"]
    assert mounts_below(node.home) == []
