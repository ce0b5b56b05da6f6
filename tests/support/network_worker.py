"""Gives sandboxes networks and takes them away until it is killed: HOME NODE RESOLV_CONF SEED."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from dsec_runtime.network.network import Network
from dsec_runtime.network.settings import Settings
from dsec_runtime.spec import NetworkRule

RULES: tuple[list[NetworkRule], ...] = (
    [NetworkRule(cidr="198.51.100.0/24")],
    [NetworkRule(domain="*.example", ports=(80,))],
    [],
)


def main() -> None:
    """Say `ready` when it begins, and go on for ever."""
    home, node, resolv_conf, seed = sys.argv[1:]
    settings = Settings(ready=2, node=Path(node), resolv_conf=Path(resolv_conf))
    choose = random.Random(seed)
    network = Network(Path(home), settings)
    print("ready", flush=True)
    while True:
        name = f"sandbox-{choose.randrange(6)}"
        if choose.random() < 0.6:
            network.claim(name, choose.choice(RULES))
        else:
            network.release(name)


if __name__ == "__main__":
    main()
