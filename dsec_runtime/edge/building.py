"""An edge with the tiers that this machine has."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import structlog

from dsec_layers.api.workbench import Workbench
from dsec_runtime.channel.channel import Channel
from dsec_runtime.edge.alone import only_one
from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.service import Edge
from dsec_runtime.errors import UnsupportedError
from dsec_runtime.network.network import Network
from dsec_runtime.spec import Tier
from dsec_runtime.tiers.container.driver import ContainerTier
from dsec_runtime.tiers.container.node import Node
from dsec_runtime.tiers.fncall.members import Members
from dsec_runtime.tiers.networked import NetworkedTier, find_network
from dsec_runtime.tiers.tier import TierDriver

_log = structlog.get_logger("dsec.edge.building")


@contextlib.contextmanager
def built(config: EdgeConfig) -> Iterator[Edge]:
    """The edge; what its tiers hold is let go of afterwards, and their sandboxes go on.

    Raises BusyError, UnsupportedError and CapabilityMissingError.
    """
    config.home.mkdir(mode=0o755, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_one(config))
        node = stack.enter_context(contextlib.closing(_node(config)))
        network = _network(config)
        if network is not None:
            stack.enter_context(network)
        node.warm_up()
        yield Edge(
            config,
            {Tier.CONTAINER: _tier(node, network)},
            Channel.connect,
            network=network,
            fncall=Members(node),
        )


def _tier(node: Node, network: Network | None) -> TierDriver:
    if network is None:
        return ContainerTier(node)
    tier = ContainerTier(
        node,
        network=functools.partial(find_network, network),
        resolv_conf=network.resolv_conf,
    )
    return NetworkedTier(tier, network)


def _network(config: EdgeConfig) -> Network | None:
    """None where the machine lacks what it needs: sandboxes have their loopback alone then."""
    try:
        return Network(config.home, config.network)
    except UnsupportedError as error:
        _log.warning("no-network", reason=error.message, hint=error.hint)
        return None


def _node(config: EdgeConfig) -> Node:
    return Node(Workbench(config.home, config.stores), config.container)
