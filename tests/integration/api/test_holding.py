"""Layers held for nobody's life: they stay when processes end, and go when they are released."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsec_layers.api import holding
from dsec_layers.api.managing import manager
from dsec_layers.errors import InvalidInputError
from dsec_layers.linux import mount
from dsec_layers.model.reference import Reference
from tests.support.cli import BASE, Cli
from tests.support.leftovers import mounts_below

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.erofs, pytest.mark.overlay]

_HOLD = """
import sys
from pathlib import Path
from dsec_layers.api import holding
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
bench = Workbench(Path(sys.argv[1]))
references = holding.pinned(bench, [Reference.parse(word) for word in sys.argv[2:]])
print(*holding.hold(bench, references, "somebody").folders)
"""


def held(cli: Cli, *references: str) -> list[Path]:
    """The folders of layers that a process held which has ended."""
    words = [sys.executable, "-c", _HOLD, str(cli.home), *references]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=dict(os.environ))
    return [Path(word) for word in done.stdout.split()]


def test_layers_outlive_the_process_that_held_them(cli: Cli) -> None:
    cli.add("workspace/w:1", {"w": "of the workspace"})
    base, workspace = held(cli, BASE, "workspace/w:1")
    manager(cli.bench).reconcile()
    cli("gc")
    assert (base / "bin").is_dir()
    assert (workspace / "w").read_text() == "of the workspace"
    assert holding.holders(cli.bench) == {"somebody"}
    holding.release(cli.bench, "somebody")
    assert mount.mounted_at(base) is None
    assert holding.holders(cli.bench) == frozenset()


def test_what_is_held_is_used_by_others_and_stays_theirs(cli: Cli) -> None:
    (base,) = held(cli, BASE)
    with manager(cli.bench).layer_dirs(cli.bench.stack(Reference.parse(BASE)).layers) as folders:
        assert folders == (base,)
        holding.release(cli.bench, "somebody")
        assert (base / "bin").is_dir()


def test_holding_again_replaces(cli: Cli) -> None:
    cli.add("toolkit/t:1", {"t": "tool"})
    assert len(held(cli, BASE, "toolkit/t:1")) == 2
    (base,) = held(cli, BASE)
    assert manager(cli.bench).held().keys() == {"somebody"}
    manager(cli.bench).reconcile()
    assert mounts_below(base.parent) == [str(base)]
    holding.release(cli.bench, "somebody")


@pytest.mark.parametrize(
    "references", [("workspace/w:1", BASE), (BASE, "toolkit/t:1", "workspace/w:1"), (BASE, BASE)]
)
def test_what_makes_no_environment_is_refused(cli: Cli, references: tuple[str, ...]) -> None:
    cli.add("workspace/w:1", {"w": ""})
    cli.add("toolkit/t:1", {"t": ""})
    pinned = holding.pinned(cli.bench, [Reference.parse(word) for word in references])
    with pytest.raises(InvalidInputError):
        holding.hold(cli.bench, pinned, "somebody")
    assert holding.holders(cli.bench) == frozenset()
