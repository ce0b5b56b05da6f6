"""The command line over a bucket: push, lazy mount on another machine, limits, credentials."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from dsec_layers.errors import StoreError
from dsec_layers.registry.directory import DirectoryStore
from tests.support.cli import BASE, Cli, pids_with
from tests.support.s3servers import ENVIRON, KEY, SECRET, S3Server

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse]

QUIET = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null"}


@pytest.fixture
def url(seaweed: S3Server) -> str:
    return seaweed.url(f"command/{uuid4()}")


@pytest.fixture
def known(bare: Cli) -> Cli:
    """A command line of a user with credentials."""
    bare.environ.update(ENVIRON, **QUIET)
    return bare


def test_a_lazy_mount(known: Cli, base_store: DirectoryStore, url: str) -> None:
    known.pull(base_store)
    assert known.json("push", BASE, url, "--jobs", "3", "--limit-rate", "200M")["sent_bytes"] > 0
    assert known.json("push", BASE, url)["sent_bytes"] == 0
    known.home.rename(known.folder / "other-machine")

    target = known.folder / "mnt"
    known("--store", url, "mount", BASE, target)
    assert (target / "etc/group").read_text().startswith("root:x:0:")
    program = (target / "bin/sh").read_bytes()
    assert program == Path("/bin/sh").read_bytes()
    totals = known.json("stats")["total"]
    assert totals["fetched_bytes"] >= len(program)
    assert totals["errors"] == 0
    assert list((known.home / "store/packs").rglob("*")) == [], "nothing was copied whole"

    nowhere_visible(known)
    known("umount", target)
    known("--store", url, "pull", BASE)
    known("verify", BASE)
    assert known("--store", url, "pull", BASE).endswith("already here\n")


def nowhere_visible(cli: Cli) -> None:
    """The secret stands in no file and no command line; the daemon has it in its environment."""
    daemons = pids_with("dsec_layers.daemon")
    assert any(str(cli.home) in command_line(pid) for pid in daemons)
    for pid in pids_with(str(cli.folder)):
        assert SECRET not in command_line(pid)
    for path in cli.home.rglob("*"):
        if path.is_file() and "run/blobs" not in str(path):
            data = path.read_bytes()
            assert SECRET.encode() not in data, path
            assert KEY.encode() not in data, path


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_without_credentials(bare: Cli, url: str) -> None:
    bare.environ.update(QUIET)
    failed = bare.fails(StoreError, "--store", url, "mount", BASE, bare.folder / "mnt")
    assert "AWS_ACCESS_KEY_ID" in failed.hint
    assert bare.leftovers() == []
