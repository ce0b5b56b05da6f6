from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.network.ports import ALL, HIGHEST, NONE, PROTOCOLS, PortSet, Protocol

# Few ports, so that sets meet.
ports = st.integers(1, 12) | st.sampled_from([HIGHEST - 1, HIGHEST])
port_sets = st.builds(
    PortSet.of, st.lists(ports, max_size=5), st.sampled_from(["tcp", "udp", "any"])
) | st.sampled_from([ALL, NONE])
probes = st.tuples(st.sampled_from(PROTOCOLS), ports | st.integers(0, HIGHEST))


@given(port_sets, port_sets, probes)
def test_sets_combine_as_sets_do(
    left: PortSet, right: PortSet, probe: tuple[Protocol, int]
) -> None:
    assert (left | right).holds(*probe) == (left.holds(*probe) or right.holds(*probe))
    assert (left & right).holds(*probe) == (left.holds(*probe) and right.holds(*probe))
    assert (left - right).holds(*probe) == (left.holds(*probe) and not right.holds(*probe))


@given(port_sets, port_sets)
def test_equal_sets_are_equal_values(left: PortSet, right: PortSet) -> None:
    assert left | right == right | left
    assert (left - right) | (left & right) == left
    assert bool(left - left) is False


@given(port_sets)
def test_ranges_are_ascending_and_apart(found: PortSet) -> None:
    for protocol in PROTOCOLS:
        edges = [edge for pair in found.ranges(protocol) for edge in pair]
        assert edges == sorted(edges)
        starts, ends = edges[2::2], edges[1:-1:2]
        assert all(start > end + 1 for start, end in zip(starts, ends, strict=True))


def test_no_port_at_all_means_every_port() -> None:
    assert PortSet.of((), "any") == ALL
    assert PortSet.of((), "tcp").is_all("tcp")
    assert not PortSet.of((), "tcp").ranges("udp")
