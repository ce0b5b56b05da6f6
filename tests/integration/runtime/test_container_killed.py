"""The maker of sandboxes is killed at every step: its successor leaves nothing of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dsec_runtime.tiers.tier import Running
from tests.support import sandboxes as support
from tests.support.cli import ROOT, pids_with
from tests.support.sandboxes import Box, wait_gone

pytestmark = [
    pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay, pytest.mark.oci,
]  # fmt: skip

_CREATED = (
    *("folder made", "layers held", "disk made", "identity taken", "root mounted", "group made"),
    *("staged", "spawned", "entered", "started"),
)
_DESTROYED = (
    *("killed", "group removed", "root unmounted", "disk removed", "identity released"),
    "layers released",
)
_VICTIM = """
import os, signal, sys
from pathlib import Path
from dsec_runtime.tiers.container.driver import ContainerTier
from tests.support import sandboxes
home, name, last = sys.argv[1:]
def trace(step):
    if step == last:
        os.kill(os.getpid(), signal.SIGKILL)
node = sandboxes.open_node(Path(home))
made = sandboxes.Sandboxes(Path(home), node, ContainerTier(node, trace=trace))
made.tier.create(name, made.spec())
made.tier.destroy(name)
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with support.home() as made:
        yield made


@pytest.mark.parametrize("step", [*_CREATED, *_DESTROYED])
def test_killed(home: Path, step: str) -> None:
    name = f"k{''.join(filter(str.isalpha, step))}"
    words = [sys.executable, "-c", _VICTIM, str(home), name, step]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == -9, ended
    with support.opened(home) as made:
        for left in made.tier.leftovers(frozenset()):
            assert left == name
            made.tier.destroy(left)
        assert made.left(name) == []
        assert made.node.environments.users() == 0
        for pid in pids_with(name):
            wait_gone(pid)
        fresh = made.create()
        assert fresh.ok("echo here") == "here\n"


_FORKER = """
import os, signal, sys
from pathlib import Path
from dsec_runtime.tiers.container import snapshots
from dsec_runtime.resources import diskimages
from dsec_runtime.tiers.container.driver import ContainerTier
from tests.support import sandboxes
home, name, how = sys.argv[1:]
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
node = sandboxes.open_node(Path(home))
made = sandboxes.Sandboxes(Path(home), node, ContainerTier(node))
running = made.tier.create(name, made.spec())
print(msgspec.json.encode(running).decode(), flush=True)
if how == "fork":
    diskimages._copy_range = killed
    made.tier.fork(running, {name + "f": made.spec()})
elif how == "snapshot":
    snapshots.commit_layer = killed
    made.tier.snapshot(running, "toolkit/never:1")
else:
    made.tier.pause(running)
    killed()
"""


@pytest.mark.parametrize("how", ["fork", "snapshot", "pause"])
def test_a_sandbox_that_stood_still_for_somebody_who_was_killed_goes_on(
    home: Path, how: str
) -> None:
    words = [sys.executable, "-c", f"import msgspec{_FORKER}", str(home), f"s{how}", how]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == -9, ended
    running = msgspec.json.decode(ended.stdout, type=Running)
    with support.opened(home) as made:
        made.made.extend(made.tier.leftovers(frozenset()))
        assert made.tier.reattach(running)
        assert made.node.groups.frozen(running.id) == (how == "pause")
        made.tier.resume(running)
        assert Box(made.tier, running).ok("echo text > /file; cat /file") == "text\n"
