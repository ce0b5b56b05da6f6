from __future__ import annotations

import pytest

from dsec_runtime.network.addresses import Address, Range
from dsec_runtime.network.answers import MOST_ADDRESSES, Answers, NodeNames
from dsec_runtime.network.ports import ALL, NONE
from dsec_runtime.network.rules import Policy, compile_rules
from dsec_runtime.network.services import NodePolicy, Service, Table
from dsec_runtime.spec import NetworkRule

WORLD, PRIVATE = Address("198.51.100.1"), Address("192.168.1.1")
OWN = Range.parse("10.231.0.0/16").network


def node(**policy: object) -> NodeNames:
    table = Table(
        services={"inner": Service(names=("inner.example",))},
        hosts={"fixed.example": (str(PRIVATE),)},
        policy=NodePolicy(**policy),  # type: ignore[arg-type]
    )
    return NodeNames.of(table, OWN)


def policy(*rules: NetworkRule) -> Policy:
    return compile_rules(rules, node().table)


ANY = policy(NetworkRule(domain="*.example"))


@pytest.mark.parametrize(
    "address", ["0.1.2.3", "127.0.0.1", "169.254.169.254", "224.1.1.1", "255.255.255.255"]
)
def test_special_addresses_are_never_opened(address: str) -> None:
    everything = policy(NetworkRule(cidr="0.0.0.0/0"), NetworkRule(service="inner"))

    assert not node().answers(everything, "inner.example", Address(address))
    assert not node().opens(everything, "inner.example", Address(address))
    assert not node().answers(everything, "inner.example", OWN[17])


def test_private_addresses_need_the_word_of_the_operator() -> None:
    assert node().opens(ANY, "a.example", WORLD) == ALL
    assert node().opens(ANY, "a.example", PRIVATE) == NONE
    assert node(private_answers=True).opens(ANY, "a.example", PRIVATE) == ALL
    assert node().opens(ANY, "fixed.example", PRIVATE) == ALL
    assert node().opens(policy(NetworkRule(service="inner")), "inner.example", PRIVATE) == ALL


def test_what_networks_allow_may_be_told() -> None:
    wide = policy(NetworkRule(domain="a.example"), NetworkRule(cidr="192.168.0.0/16"))

    assert node().answers(wide, "a.example", PRIVATE)
    assert node().opens(wide, "a.example", PRIVATE) == NONE  # the network rule opens it


def test_the_operators_never_holds_for_names() -> None:
    assert not node(never=("198.51.100.0/24",)).answers(ANY, "a.example", WORLD)


def test_an_answer_holds_until_it_expires() -> None:
    answers = Answers()
    answers.add("a.example", WORLD, 100.0)
    answers.add("a.example", WORLD, 50.0)  # a shorter one does not shorten the first

    assert answers.open_ports(node(), ANY, WORLD, after_s=99.0) == ALL
    assert answers.open_ports(node(), ANY, WORLD, after_s=100.0) == NONE
    assert answers.until(WORLD, 60.0) == 100.0
    assert answers.open_ports(node(), policy(), WORLD, after_s=0.0) == NONE


def test_names_of_one_address_open_together() -> None:
    some = policy(
        NetworkRule(domain="a.example", ports=(80,), protocol="tcp"),
        NetworkRule(domain="b.example", ports=(443,), protocol="tcp"),
    )
    answers = Answers()
    answers.add("a.example", WORLD, 100.0)
    answers.add("b.example", WORLD, 200.0)

    assert answers.open_ports(node(), some, WORLD, after_s=0.0).tcp == ((80, 80), (443, 443))
    assert answers.open_ports(node(), some, WORLD, after_s=150.0).tcp == ((443, 443),)


def test_the_oldest_answers_give_way() -> None:
    answers = Answers()
    for number in range(MOST_ADDRESSES):
        assert answers.add("a.example", WORLD + number, 100.0) == []
    answers.add("a.example", WORLD, 100.0)  # asked for again

    assert answers.add("a.example", WORLD + MOST_ADDRESSES, 100.0) == [WORLD + 1]
    assert len(list(answers.addresses())) == MOST_ADDRESSES
