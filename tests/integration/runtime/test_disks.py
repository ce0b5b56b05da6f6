"""Disks of sandboxes: empty ones and copies hold together, whatever was cached when they ended."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_runtime.linux.closer import Closer
from dsec_runtime.resources.disks import Disks
from dsec_runtime.spec import MIB

pytestmark = pytest.mark.root

SIZE = 64 * MIB
CONTENT = bytes(range(256)) * 4096
_PATIENCE_S = 60.0


@pytest.fixture
def closer() -> Iterator[Closer]:
    made = Closer()
    yield made
    made.close()


@pytest.fixture
def disks(tmp_path: Path, closer: Closer) -> Iterator[Disks]:
    """One is made ahead, and one when it is asked for."""
    folder = tmp_path / "sandboxes"
    folder.mkdir()
    made = Disks(tmp_path / "templates", folder, closer, spares=1)
    yield made
    made.close()


def check(image: Path) -> None:
    """All of it is consistent (e2fsck(8))."""
    done = subprocess.run(["e2fsck", "-fn", image], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def ended(disks: Disks, closer: Closer, sandbox: Path) -> Path:
    """The image of a disk that is mounted nowhere any more, under another name."""
    image = sandbox.parent / f"{sandbox.name}.img"
    os.link(sandbox / "disk.img", image)
    device = os.minor((sandbox / "disk").stat().st_dev)
    disks.remove(sandbox)
    closer.settle()
    give_up = time.monotonic() + _PATIENCE_S
    while is_ours(
        device, sandbox.parent
    ):  # whoever makes a mount namespace has a copy for a moment
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return image


def is_ours(device: int, folder: Path) -> bool:
    """Whether a loop device has a file of this folder."""
    try:
        return str(folder) in Path(f"/sys/block/loop{device}/loop/backing_file").read_text()
    except OSError:  # it has none
        return False


def test_empty_disks_and_copies(tmp_path: Path, disks: Disks, closer: Closer) -> None:
    folders = [tmp_path / "sandboxes" / name for name in ("one", "two", "copy")]
    for folder in folders:
        folder.mkdir()
    one, two, copy = folders
    for sandbox in (one, two):
        disk = disks.make(sandbox, SIZE)
        assert sorted(path.name for path in disk.iterdir()) == ["upper", "work"]
        space = os.statvfs(disk)
        assert SIZE // 2 < space.f_blocks * space.f_frsize <= SIZE
    (one / "disk/upper/file").write_bytes(CONTENT)
    disks.copy(one, copy)
    (copy / "disk/upper/other").touch()

    assert (copy / "disk/upper/file").read_bytes() == CONTENT
    assert not (one / "disk/upper/other").exists()
    for sandbox in folders:
        check(ended(disks, closer, sandbox))
