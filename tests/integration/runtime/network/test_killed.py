"""A process that is killed while it works on networks, and what the next one finds."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsec_runtime.linux.nftables import Nftables
from dsec_runtime.network import kernelstate, links
from dsec_runtime.network.network import Network
from dsec_runtime.network.settings import Settings
from dsec_runtime.spec import NetworkRule
from tests.support.internet import ONE, Internet, inside, reaches

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

KILLS = 6
ROOT = Path(__file__).parents[4]


def kill_at_work(home: Path, world: Internet, seed: int) -> None:
    argv = ["-m", "tests.support.network_worker", home, world.node, world.resolv_conf, seed]
    with subprocess.Popen(
        [sys.executable, *map(str, argv)], cwd=ROOT, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        if seed:  # the first may be killed before it has begun
            assert worker.stdout.readline() == b"ready\n"
        time.sleep(random.Random(seed).random() / 3)  # whenever that is
        worker.kill()


def test_what_a_killed_process_leaves_is_found_or_taken_away(
    tmp_path: Path, world: Internet
) -> None:
    home = tmp_path / "home"
    settings = Settings(ready=0, node=world.node, resolv_conf=world.resolv_conf)
    for seed in range(KILLS):
        kill_at_work(home, world, seed)
        network = Network(home, settings)
        claims = network.leftovers([])
        rules = {name: [NetworkRule(cidr=f"{ONE}/32")] for name in claims}
        assert network.reconcile(rules) == []
        assert all(reaches(network.claimed(it).netns, ONE, 80) for it in claims)  # type: ignore[union-attr]
        check_kernel(home, len(claims))
        for name in claims[: len(claims) // 2]:
            network.release(name)
        network.close()
    Network(home, settings).remove()
    assert inside(world.node, lambda: links.named("dsec")) == []
    assert [it.name for it in (home / "run/netns").iterdir()] == ["claims"]


def check_kernel(home: Path, number: int) -> None:
    """The kernel has these sandboxes and no others."""
    folder = home / "run/netns"
    router = folder / "router"
    assert len([it for it in folder.iterdir() if it.name.isdigit()]) == number
    assert len(inside(router, links.sandbox_slots)) == number
    with inside(router, Nftables) as table:
        assert len(kernelstate.counters(table, "allowed")) == number
        assert len(kernelstate.counters(table, "refused_by")) == number
