from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.network import ruleset
from dsec_runtime.network.addresses import Address, Range
from dsec_runtime.network.answers import NodeNames
from dsec_runtime.network.rules import NOTHING, Policy, compile_rules
from dsec_runtime.network.sandboxes import Change, Sandbox
from dsec_runtime.network.services import Table
from dsec_runtime.spec import NetworkRule

RANGE = Range.parse("10.231.0.0/16")
NODE = NodeNames.of(Table(), RANGE.network)
A, B = Address("198.51.100.1"), Address("198.51.100.2")


def policy(*rules: NetworkRule) -> Policy:
    return compile_rules(rules, Table())


WEB = policy(NetworkRule(domain="a.example", ports=(80,)))
TLS = policy(NetworkRule(domain="a.example", ports=(443,)))


def sandbox(under: Policy = WEB) -> Sandbox:
    member = ruleset.Member("s16", RANGE.address(16))
    return Sandbox(member, 16, under, ruleset.ruling_chain(under), 7)


def kernel(lines: list[str], before: dict[str, str]) -> dict[str, str]:
    """The elements after a transaction; like the kernel it refuses what makes no sense."""
    after = dict(before)
    for line in lines:
        words = line.split()  # verb element inet dsec KIND { SOURCE . ADDRESS ... : jump CHAIN }
        key = f"{words[4]} {words[6]} {words[8]}"
        if words[0] == "add":
            chain = words[-2]
            assert after.setdefault(key, chain) == chain, "another verdict is there"
        else:
            del after[key]
    return after


def run(found: Sandbox, change: Change, before: dict[str, str]) -> dict[str, str]:
    after = kernel(change.lines, before)
    found.grants = change.grants
    assert set(after.values()) == set(change.grants.values())
    assert len(after) == len(change.grants)
    return after


def test_an_answer_opens_its_address_for_new_connections_and_for_those_made() -> None:
    found = sandbox()
    found.answers.add("a.example", A, 60.0)

    change = found.regrant(NODE, WEB, [A], 0.0, renew=True)

    chain = ruleset.ports_chain(WEB.name("a.example").ports)
    assert change.grants == {("names", A): chain, ("held", A): chain}
    assert change.chains == {chain: ruleset.ports_ruling(WEB.name("a.example").ports)}
    assert any("timeout 60s" in line for line in change.lines)


def test_an_element_tells_its_names_as_far_as_there_is_room() -> None:
    found = sandbox()
    for name in ("first.example", f"{'long' * 30}.example", "second.example"):
        found.answers.add(name, A, 60.0)

    change = found.regrant(NODE, policy(NetworkRule(cidr="0.0.0.0/0")), [A], 0.0, renew=True)

    said = {line.split('"')[1] for line in change.lines if "comment" in line}
    assert said == {"second.example first.example"}


def test_what_stays_the_same_is_left_alone() -> None:
    found = sandbox()
    found.answers.add("a.example", A, 60.0)
    run(found, found.regrant(NODE, WEB, [A], 0.0, renew=True), {})

    assert found.regrant(NODE, WEB, [A], 1.0, renew=False).lines == []


def test_an_expired_answer_keeps_only_what_was_made() -> None:
    found = sandbox()
    found.answers.add("a.example", A, 60.0)
    after = run(found, found.regrant(NODE, WEB, [A], 0.0, renew=True), {})

    after = run(found, found.regrant(NODE, TLS, [A], 61.0, renew=False), after)

    assert set(found.grants) == {("held", A)}


def test_rules_without_the_name_take_everything_back() -> None:
    found = sandbox()
    found.answers.add("a.example", A, 60.0)
    after = run(found, found.regrant(NODE, WEB, [A], 0.0, renew=True), {})

    assert run(found, found.regrant(NODE, NOTHING, found.granted(), 1.0, renew=False), after) == {}


steps = st.lists(
    st.tuples(
        st.sampled_from([WEB, TLS, NOTHING]),
        st.sampled_from(["a.example", "b.example"]),
        st.sampled_from([A, B]),
        st.integers(1, 5),
        st.booleans(),
    )
)


@given(steps)
def test_the_kernel_never_refuses_a_change(
    some: list[tuple[Policy, str, Address, int, bool]],
) -> None:
    found, after, now_s = sandbox(), dict[str, str](), 0.0
    for under, name, address, ttl_s, answered in some:
        now_s += 2
        if answered:
            found.answers.add(name, address, now_s + ttl_s)
        touched = {address} if answered else found.granted()
        after = run(found, found.regrant(NODE, under, touched, now_s, renew=answered), after)


def test_refused_names_are_bounded() -> None:
    found = sandbox()
    for number in range(1000):
        found.note_refused(f"n{number}.example", "no rule allows it")
        found.note_refused("often.example", "no rule allows it")

    names = {it.name: it.count for it in found.refused_names()}
    assert len(names) <= 128
    assert names["often.example"] == 1000
    assert "n999.example" in names
