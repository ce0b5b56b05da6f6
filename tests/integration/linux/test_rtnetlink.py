"""Our messages, as pyroute2 reads what they made."""

from __future__ import annotations

import errno
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import TypeVar

import pytest
from pyroute2 import IPRoute

from dsec_runtime.linux import namespaces, rtnetlink
from dsec_runtime.linux.rtnetlink import IFF_NOARP, IFF_UP, End, Rtnetlink

pytestmark = pytest.mark.root

Result = TypeVar("Result")
MAC, OTHER_MAC = b"\x02\xd5\0\0\0\1", b"\x02\xd5\0\0\0\2"
HERE, THERE = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")


def in_new(work: Callable[[Rtnetlink, IPRoute], Result]) -> Result:
    def body() -> Result:
        namespaces.unshare()
        with Rtnetlink() as ours, IPRoute() as theirs:
            return work(ours, theirs)

    return namespaces.in_thread(body)


def pair() -> rtnetlink.Message:
    return rtnetlink.add_veth(End(7, "inner", MAC), End(1 << 24, "outer", OTHER_MAC))


def test_a_pair_of_links_is_what_was_said() -> None:
    def work(ours: Rtnetlink, theirs: IPRoute) -> None:
        ours.run(pair(), rtnetlink.set_link(7, IFF_UP | IFF_NOARP))

        (inner,), (outer,) = theirs.get_links(7), theirs.get_links(1 << 24)
        assert (inner.get("ifname"), outer.get("ifname")) == ("inner", "outer")
        assert (inner.get("address"), outer.get("address")) == (
            "02:d5:00:00:00:01",
            "02:d5:00:00:00:02",
        )
        assert inner.get(("linkinfo", "kind")) == "veth"
        for name in ("num_tx_queues", "num_rx_queues"):
            assert inner.get(name) == outer.get(name) == 1
        assert inner["flags"] & (IFF_UP | IFF_NOARP) == IFF_UP | IFF_NOARP
        assert not outer["flags"] & IFF_UP
        assert not ours.is_up(7)

        ours.run(rtnetlink.delete_link(7))
        assert [link.get("ifname") for link in theirs.get_links()] == ["lo"]

    in_new(work)


def test_the_other_end_may_be_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "netns"
    namespaces.in_new_network(path, lambda: None)
    try:
        with path.open() as elsewhere:
            ends = End(7, "inner", MAC), End(9, "outer", OTHER_MAC, elsewhere.fileno())
            in_new(lambda ours, _: ours.run(rtnetlink.add_veth(*ends)))
    finally:
        namespaces.forget(path)


def test_addresses_routes_and_neighbours() -> None:
    def work(ours: Rtnetlink, theirs: IPRoute) -> None:
        ours.run(
            pair(),
            rtnetlink.set_link(1 << 24, IFF_UP),
            rtnetlink.add_address(7, HERE),
            rtnetlink.set_link(7, IFF_UP),
            rtnetlink.add_neighbour(7, THERE, OTHER_MAC),
            rtnetlink.add_route(7, THERE),
            rtnetlink.add_default_route(7, THERE),
        )

        (address,) = theirs.get_addr(index=7, family=2)
        assert (address.get("address"), address["prefixlen"]) == (str(HERE), 32)
        routes = {
            (route.get("dst"), route["dst_len"], route.get("gateway"), route.get("oif"))
            for route in theirs.get_routes(family=2, table=254)
        }
        assert routes == {(str(THERE), 32, None, 7), (None, 0, str(THERE), 7)}
        (neighbour,) = theirs.get_neighbours(ifindex=7, family=2)
        assert (neighbour.get("dst"), neighbour.get("lladdr"), neighbour["state"]) == (
            str(THERE),
            "02:d5:00:00:00:02",
            0x80,
        )

    in_new(work)


def test_the_first_error_is_told_and_the_socket_goes_on() -> None:
    def work(ours: Rtnetlink, _: IPRoute) -> None:
        with pytest.raises(FileExistsError):
            ours.run(pair(), pair(), rtnetlink.delete_link(99))
        with pytest.raises(OSError, match="rtnetlink") as caught:
            ours.run(rtnetlink.delete_link(99))
        assert caught.value.errno == errno.ENODEV
        with pytest.raises(OSError, match="link 99"):
            ours.is_up(99)
        ours.run(rtnetlink.delete_link(7))

    in_new(work)
