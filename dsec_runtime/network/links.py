"""The interfaces, addresses and routes of the router, of the node and of a sandbox's namespace.

    node ──────────── dsecTAG ═══ up ── router ── s16 ═══ eth0 ── sandbox 16
      its interfaces, NAT               NAT    └─ s17 ═══ eth0 ── sandbox 17

Each ═══ is a veth pair. The router is a network namespace in which nothing runs; the sockets of the
resolver are its only ones. A sandbox has one address and one neighbour, both written into the
router beforehand: it needs no ARP, and there is no link that two sandboxes share.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from dsec_runtime.errors import InfrastructureError
from dsec_runtime.linux import rtnetlink
from dsec_runtime.linux.rtnetlink import IFF_NOARP, IFF_UP, End, Rtnetlink
from dsec_runtime.network.addresses import Address, Range
from dsec_runtime.network.ruleset import UPLINK

SANDBOX_LINK: Final = "eth0"
_LOOPBACK, _INSIDE = 1, 2  # indexes of the links of a sandbox
_CARRIER_S: Final = 5.0
_SETTINGS: Final = Path("/proc/sys/net")

_ROUTER_SETTINGS: Final[Mapping[str, str]] = {
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
    "ipv4/ip_forward": "1",
    "ipv4/conf/all/rp_filter": "1",
    "ipv4/conf/default/rp_filter": "1",
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
    "ipv4/conf/all/accept_redirects": "0",
    "ipv4/conf/default/accept_redirects": "0",
    "ipv4/conf/all/accept_source_route": "0",
    "ipv4/conf/default/accept_source_route": "0",
    # An answer of the resolver goes out by the interface of the question.
    "ipv4/conf/all/arp_ignore": "1",
    # What a sandbox has left behind is forgotten within hours instead of days.
    "netfilter/nf_conntrack_tcp_timeout_established": "21600",
}


def interface(slot: int) -> str:
    """The name of a sandbox's interface in the router."""
    return f"s{slot}"


def setting(name: str) -> str:
    """A network setting (sysctl) of the calling thread's namespace."""
    return (_SETTINGS / name).read_text().strip()


def change_setting(name: str, value: str) -> None:
    """Set a network setting of the calling thread's namespace. Raises OSError."""
    path = _SETTINGS / name
    if path.read_text().strip() != value:
        path.write_text(value)


def prepare_router(addresses: Range) -> None:
    """Inside the new router: settings, and the address of the resolver."""
    for name, value in _ROUTER_SETTINGS.items():
        if (_SETTINGS / name).exists():  # a kernel without IPv6 has nothing to switch off
            change_setting(name, value)
    with IPRoute() as netlink:
        loopback = _index(netlink, "lo")
        netlink.link("set", index=loopback, state="up")
        netlink.addr("add", index=loopback, address=str(addresses.resolver), prefixlen=32)


def join_node(link: str, router: Path, addresses: Range, first: int) -> None:
    """On the node: the veth pair to the new router, with the first free pair of addresses.

    Raises InfrastructureError where the node uses addresses of the range otherwise.
    """
    with IPRoute() as netlink, _opened(router) as router_fd:
        with contextlib.suppress(IndexError):  # left by a process that was killed
            netlink.link("del", index=_index(netlink, link))
        own, other = _free_pair(netlink, addresses, first)
        netlink.link(
            "add", ifname=link, kind="veth", peer={"ifname": UPLINK, "net_ns_fd": router_fd}
        )
        if Path(f"/proc/sys/net/ipv6/conf/{link}").exists():
            change_setting(f"ipv6/conf/{link}/disable_ipv6", "1")
        index = _index(netlink, link)
        netlink.addr("add", index=index, address=str(own), prefixlen=30)
        netlink.link("set", index=index, state="up", alias=str(other))
        change_setting(f"ipv4/conf/{link}/forwarding", "1")


def node_address(link: str) -> Address:
    """On the node: its address on the link to the router. Raises LookupError without the link."""
    with IPRoute() as netlink:
        found = netlink.get_addr(index=_index(netlink, link), family=2)
        return Address(next(iter(found)).get("address"))


def join_router(own: Address, gateway: Address) -> None:
    """Inside the router: its side of the link to the node, and the way out; may be said again."""
    with IPRoute() as netlink:
        index = _index(netlink, UPLINK)
        netlink.addr("replace", index=index, address=str(own), prefixlen=30)
        netlink.link("set", index=index, state="up")
        netlink.route("replace", dst="default", gateway=str(gateway), oif=index)


def uplinks() -> list[str]:
    """On the node: the interfaces by which default routes lead out."""
    with IPRoute() as netlink:
        routes = netlink.get_default_routes(family=2)
        indexes = {route.get("oif") for route in routes} - {None}
        return sorted(netlink.get_links(index)[0].get("ifname") for index in indexes)


def prepare_sandbox(slot: int, router: Path, netlink: Rtnetlink, addresses: Range) -> None:
    """Inside the new namespace of a sandbox: loopback, and a link that ends in the router.

    `netlink` is of the router. Its end is switched on first: an end sends at once when the other
    one is on already, else when the kernel has noticed, for which we wait.
    """
    for name in ("all", "default"):
        path = f"ipv6/conf/{name}/disable_ipv6"
        if (_SETTINGS / path).exists():
            change_setting(path, "1")
    # Root of the sandbox has no rights over a namespace that the node made, and yet serves port 80.
    change_setting("ipv4/ip_unprivileged_port_start", "0")
    address, gateway = addresses.address(slot), addresses.resolver
    with _opened(router) as router_fd, Rtnetlink() as own:
        inner = End(_INSIDE, SANDBOX_LINK, _mac(address))
        outer = End(_outside(slot), interface(slot), _mac(gateway), router_fd)
        own.run(rtnetlink.add_veth(inner, outer))
        netlink.run(
            rtnetlink.set_link(outer.index, IFF_UP | IFF_NOARP),
            rtnetlink.add_neighbour(outer.index, address, inner.mac),
            rtnetlink.add_route(outer.index, address),
        )
        own.run(
            rtnetlink.set_link(_LOOPBACK, IFF_UP),
            rtnetlink.add_address(_INSIDE, address),
            rtnetlink.set_link(_INSIDE, IFF_UP),
            rtnetlink.add_neighbour(_INSIDE, gateway, outer.mac),
            rtnetlink.add_route(_INSIDE, gateway),
            rtnetlink.add_default_route(_INSIDE, gateway),
        )
    _wait_until_up(netlink, outer.index, outer.name)


def remove_sandbox(slot: int, netlink: Rtnetlink) -> None:
    """Remove the link of a sandbox, by its end in the router; no error when it is gone."""
    try:
        netlink.run(rtnetlink.delete_link(_outside(slot)))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def _outside(slot: int) -> int:
    """The index of a sandbox's link in the router, where the others have small ones."""
    return (1 << 24) + slot


def _wait_until_up(netlink: Rtnetlink, index: int, name: str) -> None:
    end_s = time.monotonic() + _CARRIER_S
    while not netlink.is_up(index):
        if time.monotonic() > end_s:
            raise InfrastructureError(f"the network link {name} does not come up")
        time.sleep(0.001)


def wait_until_up(name: str) -> None:
    """Wait until an interface sends, which the kernel sees to soon after both its ends are on.

    Raises InfrastructureError when that takes seconds.
    """
    with Rtnetlink() as netlink:
        _wait_until_up(netlink, socket.if_nametoindex(name), name)


def remove_link(name: str) -> None:
    """Remove an interface of the calling thread's namespace, with its other end, if it is there."""
    with IPRoute() as netlink, contextlib.suppress(IndexError, NetlinkError):
        netlink.link("del", index=_index(netlink, name))


def has_link(name: str) -> bool:
    """Whether the calling thread's namespace has this interface."""
    return Path(f"/proc/sys/net/ipv4/conf/{name}").exists()


def named(prefix: str) -> list[str]:
    """The interfaces of the calling thread's namespace whose names begin so."""
    names = (it.name for it in (_SETTINGS / "ipv4/conf").iterdir())
    return sorted(name for name in names if name.startswith(prefix))


def forwarding(name: str) -> str:
    """What is set: "1" where what comes in by this interface may be handed on."""
    return setting(f"ipv4/conf/{name}/forwarding")


def set_forwarding(name: str, value: str) -> None:
    """Set `forwarding`. Raises OSError."""
    change_setting(f"ipv4/conf/{name}/forwarding", value)


def sandbox_slots() -> set[int]:
    """Inside the router: the numbers of the sandboxes that have a link."""
    return {int(name[1:]) for name in named("s") if name[1:].isdigit()}


def _free_pair(netlink: IPRoute, addresses: Range, first: int) -> tuple[Address, Address]:
    used = {Address(it.get("address")) for it in netlink.get_addr(family=2)}
    links = {own for own, _ in addresses.links(0)}
    if taken := sorted(it for it in used - links if it in addresses.network):
        raise InfrastructureError(
            f"the node has the address {taken[0]} in the sandboxes' range {addresses.network}",
            hint="choose another range of private addresses for the sandboxes",
        )
    for own, other in addresses.links(first):
        if own not in used:
            return own, other
    raise InfrastructureError(
        f"no addresses are left in {addresses.network} for a link to the node",
        hint="end another edge of this node, or choose another range",
    )


def _mac(address: Address) -> bytes:
    """A locally administered address of the link layer, told by the network's."""
    return b"\x02\xd5" + address.packed


def _index(netlink: IPRoute, name: str) -> int:
    """Raises IndexError where there is no such interface."""
    return int(netlink.link_lookup(ifname=name)[0])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
