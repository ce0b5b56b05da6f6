"""Killed at any moment of several things that go on: the successor finds and ends them all."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dsec_runtime.tiers.tier import Running
from tests.support import sandboxes as support
from tests.support.cli import ROOT
from tests.support.sandboxes import Box

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay, pytest.mark.oci,
    pytest.mark.slow,
]  # fmt: skip

_ROUNDS = 15
_THREADS = 3
# Says each step that is done, and each sandbox that it promised.
_MAKER = """
import msgspec, os, random, sys, threading
from pathlib import Path
from dsec_runtime.tiers.container.driver import ContainerTier
from tests.support import sandboxes
home, seed, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def tell(*words):
    os.write(1, (" ".join(words) + "\\n").encode())
node = sandboxes.open_node(home)
tier = ContainerTier(node, trace=lambda step: tell("step", step))
made = sandboxes.Sandboxes(home, node, tier)
def work(number):
    choose = random.Random(seed + str(number))
    kept = []
    for turn in range(1000):
        name = f"c{seed}-{number}-{turn}"
        running = tier.create(name, made.spec())
        tell("made", msgspec.json.encode(running).decode())
        kept.append(running)
        what = choose.choice(("pause", "snapshot", "fork", "destroy", "destroy"))
        if what == "pause":
            tier.pause(running)
            tier.resume(running)
        elif what == "snapshot":
            tier.snapshot(running, f"toolkit/{name}:1")
        elif what == "fork":
            kept += tier.fork(running, {name + "f": made.spec()})
        else:
            gone = kept.pop(choose.randrange(len(kept)))
            tell("going", gone.id)
            tier.destroy(gone.id)
workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with support.home() as made:
        yield made


def killed_after(home: Path, seed: str, steps: int) -> dict[str, Running]:
    """What was promised by a maker that was killed after so many steps, and not given up."""
    words = [sys.executable, "-c", _MAKER, str(home), seed, str(_THREADS)]
    promised = dict[str, Running]()
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        for line in maker.stdout:
            kind, _, rest = line.strip().partition(" ")
            if kind == "made":
                running = msgspec.json.decode(rest, type=Running)
                promised[running.id] = running
            elif kind == "going":
                promised.pop(rest, None)
            steps -= 1
            if steps == 0:
                maker.send_signal(signal.SIGKILL)
    assert maker.returncode == -9
    return promised


@pytest.mark.parametrize("turn", range(_ROUNDS))
def test_killed_in_the_middle(home: Path, turn: int) -> None:
    choose = random.Random(turn)
    promised = killed_after(home, f"{turn}", choose.randrange(1, 250))
    with support.opened(home) as made:
        left = made.tier.leftovers(frozenset())
        assert set(promised) <= set(left)
        for running in promised.values():
            assert made.tier.reattach(running)
            made.tier.resume(running)
        for running in list(promised.values())[:2]:
            assert Box(made.tier, running).ok("echo text > /file; cat /file") == "text\n"
        for name in left:
            made.tier.destroy(name)
        assert made.left(*left) == []
        assert made.node.environments.users() == 0
        assert made.tier.leftovers(frozenset()) == []
