from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.errors import InvalidRequestError, UnsupportedError
from dsec_runtime.network.addresses import Address, normal_name
from dsec_runtime.network.ports import PROTOCOLS, Protocol
from dsec_runtime.network.rules import Policy, compile_rules
from dsec_runtime.network.services import Service, Table
from dsec_runtime.spec import NetworkRule

TABLE = Table(
    services={
        "packages": Service(
            names=("a.example", "*.files.example"),
            networks=("10.0.0.0/31",),
            ports=(80, 443),
            protocol="tcp",
        )
    }
)

# A small world, so that rules meet.
names = st.sampled_from(["example", "a.example", "b.a.example", "x.files.example", "other"])
domains = names | names.map("*.{}".format)
cidrs = st.sampled_from(["0.0.0.0/0", "10.0.0.0/30", "10.0.0.0/31", "10.0.0.1/32", "10.0.0.2/31"])
ports = st.lists(st.sampled_from([22, 80, 443]), max_size=2).map(tuple)
rules = st.builds(
    NetworkRule,
    allow=st.booleans(),
    domain=domains,
    ports=ports,
    protocol=st.sampled_from(["tcp", "udp", "any"]),
) | st.builds(NetworkRule, allow=st.booleans(), cidr=cidrs, ports=ports)
rules |= st.builds(NetworkRule, allow=st.booleans(), service=st.just("packages"), ports=ports)
rule_lists = st.lists(rules, max_size=6)
addresses = st.sampled_from(["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "192.0.2.1"])
packets = st.tuples(
    addresses.map(Address), st.sampled_from(PROTOCOLS), st.sampled_from([22, 53, 80, 443])
)
Packet = tuple[Address, Protocol, int]


def policy(*given_rules: NetworkRule) -> Policy:
    return compile_rules(given_rules, TABLE)


@given(packets, st.lists(names))
def test_nothing_is_allowed_without_a_rule(packet: Packet, known: list[str]) -> None:
    assert not policy().allows(*packet, known)


@given(st.lists(rules.filter(lambda rule: not rule.allow)), packets, st.lists(names))
def test_refusals_alone_allow_nothing(
    refusals: Sequence[NetworkRule], packet: Packet, known: list[str]
) -> None:
    assert not policy(*refusals).allows(*packet, known)


@given(rule_lists, packets, st.lists(names), st.randoms())
def test_the_order_of_rules_means_nothing(
    some: list[NetworkRule], packet: Packet, known: list[str], random: Random
) -> None:
    shuffled = some.copy()
    random.shuffle(shuffled)

    assert policy(*some) == policy(*shuffled)
    assert policy(*some).digest == policy(*shuffled).digest
    assert policy(*some, *some).allows(*packet, known) == policy(*some).allows(*packet, known)


@given(rule_lists, rules.filter(lambda rule: not rule.allow), packets, names)
def test_a_refusal_more_opens_nothing(
    some: list[NetworkRule], refusal: NetworkRule, packet: Packet, name: str
) -> None:
    if policy(*some, refusal).allows(*packet, [name]):
        assert policy(*some).allows(*packet, [name])


@given(rule_lists, rules.filter(lambda rule: rule.allow), packets, names)
def test_an_allowance_more_closes_nothing(
    some: list[NetworkRule], allowance: NetworkRule, packet: Packet, name: str
) -> None:
    if policy(*some).allows(*packet, [name]):
        assert policy(*some, allowance).allows(*packet, [name])


@given(rule_lists, packets, names, names)
def test_an_answer_more_closes_nothing(
    some: list[NetworkRule], packet: Packet, name: str, other: str
) -> None:
    if policy(*some).allows(*packet, [name]):
        assert policy(*some).allows(*packet, [name, other])


@given(rule_lists, packets)
def test_what_networks_say_is_one_decision(some: list[NetworkRule], packet: Packet) -> None:
    found = policy(*some)
    address, protocol, port = packet
    allowed, refused = found.address(address)

    assert found.allows(address, protocol, port) == allowed.holds(protocol, port)
    assert not allowed & refused


@given(rule_lists, names)
def test_a_name_that_is_not_answered_opens_nothing(some: list[NetworkRule], name: str) -> None:
    found = policy(*some)
    if not found.name(name).ports:
        for address in ("10.0.0.0", "192.0.2.1"):
            for port in (22, 53, 80, 443):
                packet: Packet = Address(address), "tcp", port
                assert found.allows(*packet, [name]) == found.allows(*packet)


def allows(found: Policy, name: str, port: int = 80, address: str = "192.0.2.1") -> bool:
    return found.allows(Address(address), "tcp", port, [name])


def test_a_star_is_all_names_below_and_not_the_name_itself() -> None:
    found = policy(NetworkRule(domain="*.example"))

    assert allows(found, "a.example")
    assert allows(found, "b.a.example")
    assert not allows(found, "example")
    assert not allows(found, "badexample")


@pytest.mark.parametrize(
    ("wide", "narrow", "name"),
    [
        ("*.example", "a.example", "a.example"),
        ("*.example", "*.a.example", "b.a.example"),
    ],
)
def test_the_narrower_name_decides(wide: str, narrow: str, name: str) -> None:
    assert allows(policy(NetworkRule(domain=wide, allow=False), NetworkRule(domain=narrow)), name)
    assert not allows(
        policy(NetworkRule(domain=wide), NetworkRule(domain=narrow, allow=False)), name
    )


def test_the_narrower_network_decides_and_between_equals_the_refusal() -> None:
    wide = NetworkRule(cidr="10.0.0.0/8", allow=False)
    narrow = NetworkRule(cidr="10.1.0.0/16")
    packet: Packet = Address("10.1.2.3"), "tcp", 80

    assert policy(wide, narrow).allows(*packet)
    assert not policy(narrow, NetworkRule(cidr="10.1.0.0/16", allow=False)).allows(*packet)


def test_a_refused_network_is_refused_for_names() -> None:
    found = policy(NetworkRule(domain="a.example"), NetworkRule(cidr="10.0.0.0/8", allow=False))

    assert allows(found, "a.example")
    assert not allows(found, "a.example", address="10.0.0.1")


def test_a_refusal_of_one_port_leaves_the_others() -> None:
    found = policy(
        NetworkRule(domain="a.example"), NetworkRule(domain="a.example", ports=(25,), allow=False)
    )

    assert allows(found, "a.example", 80)
    assert not allows(found, "a.example", 25)


def test_a_rule_for_all_addresses_answers_all_names_but_refused_ones() -> None:
    found = policy(NetworkRule(cidr="0.0.0.0/0"), NetworkRule(domain="*.bad.example", allow=False))

    assert found.name("any.thing").ports
    assert not found.name("very.bad.example").ports
    assert not policy(NetworkRule(cidr="10.0.0.0/8")).name("any.thing").ports


def test_a_service_is_what_the_table_says_at_the_ports_of_both() -> None:
    found = policy(NetworkRule(service="packages", ports=(443, 8443)))

    assert allows(found, "a.example", 443)
    assert not allows(found, "a.example", 80)
    assert not allows(found, "a.example", 8443)
    assert allows(found, "x.files.example", 443)
    assert found.allows(Address("10.0.0.1"), "tcp", 443)
    assert found.name("a.example").own
    assert not policy(NetworkRule(domain="a.example")).name("a.example").own


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (NetworkRule(), "exactly one"),
        (NetworkRule(domain="a.example", cidr="10.0.0.0/8"), "exactly one"),
        (NetworkRule(domain="a..example"), "no host name"),
        (NetworkRule(domain="*"), "no host name"),
        (NetworkRule(domain="a.*.example"), "no host name"),
        (NetworkRule(domain="10.0.0.1"), "give it as cidr"),
        (NetworkRule(cidr="10.0.0.0/33"), "10.0.0.0/33"),
        (NetworkRule(cidr="fd00::/8"), "no IPv6"),
    ],
)
def test_a_rule_that_means_nothing_is_named(rule: NetworkRule, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"network\[1\]") as caught:
        policy(NetworkRule(domain="a.example"), rule)

    assert words in caught.value.message


def test_a_service_that_the_node_does_not_know_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"no service nothing \(it knows: packages\)"):
        policy(NetworkRule(service="nothing"))


def test_names_are_compared_without_case_and_last_dot() -> None:
    assert normal_name("A.Example.") == "a.example"
    assert normal_name("bücher.example") == "xn--bcher-kva.example"
    assert allows(policy(NetworkRule(domain="A.EXAMPLE")), "a.example")
