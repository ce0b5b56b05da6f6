from __future__ import annotations

import pytest

from dsec_layers.errors import InvalidInputError
from dsec_runtime.network import ruleset
from dsec_runtime.network.addresses import NEVER, Address, Range
from dsec_runtime.network.ports import ALL, PortSet
from dsec_runtime.network.rules import compile_rules
from dsec_runtime.network.services import Table
from dsec_runtime.spec import NetworkRule

RANGE = Range.parse("10.231.0.0/16")


def test_a_policy_is_a_chain_whose_first_match_decides() -> None:
    policy = compile_rules(
        [
            NetworkRule(cidr="10.0.0.0/8", ports=(80, 81, 443), protocol="tcp"),
            NetworkRule(cidr="10.1.0.0/16", allow=False),
        ],
        Table(),
    )
    chain = ruleset.ruling_chain(policy)

    assert ruleset.ruling(policy) == [
        f"add chain inet dsec {chain}",
        f"add rule inet dsec {chain} ct original ip daddr 10.1.0.0/16 meta l4proto tcp goto refuse",
        f"add rule inet dsec {chain} ct original ip daddr 10.1.0.0/16 meta l4proto udp goto refuse",
        f"add rule inet dsec {chain} ct original ip daddr 10.0.0.0/8 "
        "meta l4proto tcp ct original proto-dst { 80-81, 443 } goto permit",
    ]


def test_the_same_ports_share_a_chain() -> None:
    assert ruleset.ports_chain(PortSet.of((443, 80), "tcp")) == ruleset.ports_chain(
        PortSet.of((80, 443), "tcp")
    )
    assert ruleset.ports_chain(ALL) != ruleset.ports_chain(PortSet.of((), "tcp"))


def test_what_is_admitted_is_expelled() -> None:
    member = ruleset.Member("s16", RANGE.address(16))
    added = ruleset.admit(member, 7, "p_x")
    removed = ruleset.expel(member, 7, "p_x")

    assert sorted(line.removeprefix("add ") for line in added) == sorted(
        line.removeprefix("delete ") for line in removed
    )


def test_special_addresses_stand_in_the_set_of_never() -> None:
    text = ruleset.router(RANGE, [*NEVER, RANGE.network])

    assert "169.254.0.0/16" in text
    assert "10.231.0.0/16" in text


def test_a_range_is_divided() -> None:
    assert RANGE.resolver == Address("10.231.0.1")
    assert RANGE.slot(RANGE.address(300)) == 300
    pairs = list(RANGE.links(70))
    assert len(set(pairs)) == 64
    assert all(RANGE.slots.stop <= RANGE.slot(it) < 65536 for pair in pairs for it in pair)


@pytest.mark.parametrize("text", ["10.0.0.1/16", "10.0.0.0/30", "10.0.0.0/4", "x", "fd00::/64"])
def test_a_range_that_does_not_do_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="network range"):
        Range.parse(text)
