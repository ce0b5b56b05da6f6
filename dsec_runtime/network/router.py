"""The router: a network namespace between the node and its sandboxes, made once and kept.

Everything here outlives this process: the namespace by a mount on `run/netns/router`, the rules by
the namespace. What is found is used again; what does not fit together any more is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from pyroute2.netlink.exceptions import NetlinkError

from dsec_layers.linux import mount
from dsec_runtime.errors import InfrastructureError
from dsec_runtime.linux import launcher, namespaces
from dsec_runtime.linux.conntrack import Conntrack
from dsec_runtime.linux.namespaces import Inside
from dsec_runtime.linux.nftables import Nftables, NftError
from dsec_runtime.linux.rtnetlink import Rtnetlink
from dsec_runtime.network import capability, links, ruleset
from dsec_runtime.network.addresses import Network4, Range

_ROUTER: Final = "router"
_LINK: Final = "dsec"


class Router:
    """The router of one home, and its place in the node."""

    def __init__(self, folder: Path, addresses: Range, node: Path | None) -> None:
        """Find or make it; `folder` keeps the namespaces, `node` is the node's where not our own.

        Raises UnsupportedError naming what the machine lacks, and InfrastructureError.
        """
        capability.require()
        # Whoever starts a container copies all mounts that he sees, and these may be thousands.
        launcher.keep_private(folder)
        self.folder, self.addresses = folder, addresses
        self.path = folder / _ROUTER
        tag = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:6]
        self.link = f"{_LINK}{tag}"
        self.table = _table(self.link)
        with contextlib.ExitStack() as stack:
            self.node = stack.enter_context(Inside(node, "dsec-node"))
            self._node_filter = stack.enter_context(self.node.run(Nftables))
            if not self._is_whole():
                self._make(int(tag, 16))
            self.inside = stack.enter_context(Inside(self.path, "dsec-router"))
            self.filter = stack.enter_context(self.inside.run(Nftables))
            self.netlink = stack.enter_context(self.inside.run(Rtnetlink))
            self.connections = stack.enter_context(self.inside.run(Conntrack))
            self._connect()
            self._stack = stack.pop_all()

    def load(self, never: Iterable[Network4]) -> None:
        """Say the rules that are not of a sandbox; those of sandboxes stay. Raises NftError."""
        self.filter.run(ruleset.router(self.addresses, never))

    def close(self) -> None:
        """Let go; all stays as it is."""
        self._stack.close()

    def remove(self) -> None:
        """Take everything away, as if it had never been, and close."""
        self._clear()
        self._stack.close()
        mount.unmount(self.folder, lazy=True)

    def _is_whole(self) -> bool:
        return namespaces.is_kept(self.path) and self.node.run(lambda: links.has_link(self.link))

    def _make(self, first: int) -> None:
        self._clear()
        try:
            namespaces.in_new_network(self.path, lambda: links.prepare_router(self.addresses))
            self.node.run(lambda: links.join_node(self.link, self.path, self.addresses, first))
        except NetlinkError as error:
            self._clear()
            raise InfrastructureError(
                f"the kernel refuses a network for sandboxes: {error}"
            ) from error
        except BaseException:
            self._clear()
            raise

    def _connect(self) -> None:
        """The node's rules, and the way out; said again they change nothing."""
        own = self.node.run(lambda: links.node_address(self.link))
        self._node_filter.run(ruleset.node(self.table, self.link, own + 1))
        self.inside.run(lambda: links.join_router(own + 1, own))
        self.node.run(lambda: links.wait_until_up(self.link))
        self._forward()

    def _forward(self) -> None:
        """Let the node forward what comes in by its uplinks; what we switch on is for us only."""
        if self._forwards_anyway():
            self._node_filter.run(f"flush set inet {self.table} forwarded")
            return
        shared = set().union(*map(self._forwarded, self._other_tables()))
        for name in self.node.run(links.uplinks):
            if self.node.run(lambda: links.forwarding(name)) == "0" or name in shared:  # noqa: B023 # run at once
                # First the rule, so that the node never forwards for others.
                self._node_filter.run(f'add element inet {self.table} forwarded {{ "{name}" }}')
                self.node.run(lambda: links.set_forwarding(name, "1"))  # noqa: B023 # run at once

    def _clear(self) -> None:
        shared = set().union(*map(self._forwarded, self._other_tables()))
        for name in self._forwarded(self.table) - shared:
            if self._forwards_anyway():
                break
            with contextlib.suppress(OSError):  # the interface is gone
                self.node.run(lambda: links.set_forwarding(name, "0"))  # noqa: B023 # run at once
        self.node.run(lambda: links.remove_link(self.link))
        self._node_filter.run(f"add table inet {self.table}; delete table inet {self.table}")
        for path in self.folder.iterdir():
            if path.is_file():
                namespaces.forget(path)

    def _forwards_anyway(self) -> bool:
        """Whether somebody wants the node to forward for others, too: what we switched on is his.

        Switching it on for all is switching it on for each interface (ip-sysctl in the kernel).
        """
        return self.node.run(lambda: links.setting("ipv4/ip_forward")) == "1"

    def _other_tables(self) -> list[str]:
        """The tables of other homes on this node."""
        names = self.node.run(lambda: links.named(_LINK))
        return [_table(name) for name in names if name != self.link]

    def _forwarded(self, table: str) -> set[str]:
        """The interfaces that forward because a home made them; the kernel keeps the list."""
        try:
            found = self._node_filter.query(f"list set inet {table} forwarded")
        except NftError:  # there is no table
            return set()
        return set(msgspec.convert(found[0], dict[str, _NameSet])["set"].elem)


def _table(link: str) -> str:
    return f"dsec_{link.removeprefix(_LINK)}"


class _NameSet(msgspec.Struct):
    elem: tuple[str, ...] = ()
