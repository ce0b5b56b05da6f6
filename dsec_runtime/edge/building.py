"""An edge with the tiers that this machine has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dsec_layers.api.workbench import Workbench
from dsec_runtime.channel.channel import Channel
from dsec_runtime.edge.alone import only_one
from dsec_runtime.edge.config import EdgeConfig
from dsec_runtime.edge.service import Edge
from dsec_runtime.spec import Tier
from dsec_runtime.tiers.container.driver import ContainerTier
from dsec_runtime.tiers.container.node import Node


@contextlib.contextmanager
def built(config: EdgeConfig) -> Iterator[Edge]:
    """The edge; what its tiers hold is let go of afterwards, and their sandboxes go on.

    Raises BusyError, UnsupportedError and CapabilityMissingError.
    """
    config.home.mkdir(mode=0o755, parents=True, exist_ok=True)
    with only_one(config), contextlib.closing(_node(config)) as node:
        node.warm_up()
        yield Edge(config, {Tier.CONTAINER: ContainerTier(node)}, Channel.connect)


def _node(config: EdgeConfig) -> Node:
    return Node(Workbench(config.home, config.stores), config.container)
