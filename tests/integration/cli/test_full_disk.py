"""Disks that are really full: one line, status 9, no tag, nothing half done."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import NoSpaceError
from dsec_layers.linux import mount
from tests.support.cli import BASE, Cli

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse, pytest.mark.oci]

DISK_BYTES = 24 << 20


@pytest.fixture
def small_disk(bare: Cli) -> Iterator[Path]:
    """An ext4 of few bytes, which can hold a home: EROFS wants no tmpfs."""
    image, target = bare.folder / "disk.img", bare.folder / "disk"
    target.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, target], check=True)
    yield target
    small = Cli(target, bare.environ)
    if (small.home / "run").exists():
        small.run("umount", "--all", "--lazy")
        small.run("daemon", "stop", "--force")
    mount.unmount(target)


@pytest.fixture
def large(bare: Cli) -> Path:
    """A tree of more bytes than the disk has; nothing of it can be compressed."""
    folder = bare.folder / "large"
    folder.mkdir()
    for number in range(16):
        (folder / f"f{number}").write_bytes(os.urandom(2 << 20))
    return folder


def test_an_import(bare: Cli, small_disk: Path, large: Path) -> None:
    small = Cli(small_disk, bare.environ)
    error = small.fails(NoSpaceError, "import", large, "base/x:1")
    assert error.hint
    assert small.tags() == []
    assert small.leftovers() == []


def test_an_import_of_an_archive(bare: Cli, small_disk: Path, large: Path) -> None:
    small = Cli(small_disk, bare.environ)
    tar = subprocess.run(["tar", "c", "-C", large, "."], capture_output=True, check=True).stdout
    small.fails(NoSpaceError, "import", "-", "base/x:1", stdin=tar)
    assert small.tags() == []
    assert small.leftovers() == []


def test_a_push(bare: Cli, small_disk: Path, large: Path) -> None:
    bare("import", large, "base/x:1")
    url = f"dir://{small_disk}/store"
    bare.fails(NoSpaceError, "push", "base/x:1", url)
    assert list((small_disk / "store").rglob("tmp-*")) == []
    assert list((small_disk / "store").rglob("@*.json")) == []


def test_a_pull(bare: Cli, small_disk: Path, large: Path) -> None:
    bare("import", large, "base/x:1")
    small = Cli(small_disk, bare.environ)
    small.fails(NoSpaceError, "pull", "base/x:1", bare.bench.local.url)
    assert small.tags() == []
    assert small.leftovers() == []
    small("pull", "base/x:1", bare.bench.local.url, "--metadata-only")


def test_a_build(cli: Cli, small_disk: Path) -> None:
    small = Cli(small_disk, cli.environ)
    small.pull(cli.bench.local)
    context = cli.folder / "context"
    context.mkdir()
    (context / "Layerfile").write_text(
        f"LAYER base x\nFROM {BASE}\nRUN echo fits > /fits\nRUN exec cat /dev/urandom > /large\n"
    )
    ran = small.run("build", context, "-t", "base/x:1")
    assert ran.status in (NoSpaceError.exit_code, 10), ran
    assert f"{context}/Layerfile:4: step 2/2" in ran.error
    assert "no space is left" in ran.hint
    assert small.tags() == [BASE]
    assert small.leftovers() == []


def test_a_run_that_fills_the_disk(cli: Cli, small_disk: Path) -> None:
    """The command gets the kernel's error; what it wrote goes, and the disk is free again."""
    small = Cli(small_disk, cli.environ)
    small.pull(cli.bench.local)
    ran = small.run("run", BASE, "--", "sh", "-c", "cat /dev/urandom > /large")
    assert ran.status == 1
    assert "No space left on device" in ran.stderr
    assert small.leftovers() == []
    assert small("run", BASE, "--", "sh", "-c", "echo x > /small; cat /small") == "x\n"
