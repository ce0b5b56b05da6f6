"""Whether this machine can give sandboxes networks, found by making one in a passing namespace."""

from __future__ import annotations

import os

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from dsec_runtime.errors import UnsupportedError
from dsec_runtime.linux import namespaces
from dsec_runtime.linux.conntrack import Conntrack
from dsec_runtime.linux.nftables import Nftables, NftError
from dsec_runtime.network import ruleset
from dsec_runtime.network.addresses import NEVER, Range

_ANY = Range.parse("10.0.0.0/16")


def missing() -> UnsupportedError | None:
    """What is missing and how to get it, or None. Leaves nothing, and touches no interface."""
    try:
        require()
    except UnsupportedError as error:
        return error
    return None


def require() -> None:
    """Raise UnsupportedError naming what this machine lacks."""
    if os.geteuid() != 0:
        raise UnsupportedError(
            f"networks of sandboxes need root, and this runs as uid {os.geteuid()}",
            hint="run as root",
        )
    try:
        namespaces.in_thread(_try)
    except OSError as error:
        raise UnsupportedError(
            f"no network namespace can be made: {error}", hint="this needs CAP_SYS_ADMIN"
        ) from error


def _try() -> None:
    namespaces.unshare()
    with Nftables() as table:
        try:
            table.run(ruleset.router(_ANY, NEVER))
            table.run(ruleset.node("dsec_check", "dsec0", _ANY.resolver))
        except NftError as error:
            raise UnsupportedError(
                f"the kernel's packet filter lacks something: {error.message}",
                hint="nf_tables is needed with conntrack, connlimit, fib, limit, nat and reject",
            ) from error
    try:
        with Conntrack() as connections:
            connections.forget(1)
    except OSError as error:
        raise UnsupportedError(
            f"tracked connections cannot be forgotten: {error}",
            hint="CONFIG_NF_CT_NETLINK is needed; try: modprobe nf_conntrack_netlink",
        ) from error
    try:
        with IPRoute() as netlink:
            netlink.link("add", ifname="dsec0", kind="veth", peer={"ifname": "dsec1"})
    except NetlinkError as error:
        raise UnsupportedError(
            f"no pair of network links can be made: {error}",
            hint="virtual Ethernet is needed (CONFIG_VETH); try: modprobe veth",
        ) from error
