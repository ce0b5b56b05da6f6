"""`mount` and `umount`: what is shown, what is refused, what stays."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import BusyError, InvalidInputError, NotFoundError
from dsec_layers.model.manifest import PACK_TYPE
from dsec_layers.registry.directory import DirectoryStore
from tests.support.cli import BASE, Cli

pytestmark = [pytest.mark.root, pytest.mark.erofs, pytest.mark.fuse]


@pytest.fixture
def target(cli: Cli) -> Path:
    return cli.folder / "mnt"


@pytest.fixture
def busy(cli: Cli, target: Path) -> Iterator[None]:
    """A mount in which a process stands."""
    cli("mount", BASE, target)
    with subprocess.Popen(["sleep", "1000"], cwd=target / "etc") as child:
        yield
        child.kill()


def test_a_life(cli: Cli, target: Path) -> None:
    assert cli("mount", BASE, target) == f"{target}\n"
    assert (target / "etc/group").read_text().startswith("root:x:0:")
    (target / "new").write_text("written")
    listed = cli("mount").splitlines()
    assert [line.split() for line in listed] == [
        ["REFERENCE", "TARGET", "MODE"],
        [BASE, str(target), "rw"],
    ]
    assert cli.json("mount")[0]["upper"]
    assert cli("umount", target) == ""
    assert not target.exists(), "it was made by mount"
    assert cli("mount") == "REFERENCE  TARGET  MODE\n"
    assert cli.leftovers() == []


def test_read_only_and_an_upper_of_ones_own(cli: Cli, target: Path) -> None:
    target.mkdir()
    cli("mount", BASE, target, "--read-only")
    with pytest.raises(OSError, match="Read-only"):
        (target / "new").write_text("")
    cli("umount", target)
    assert target.is_dir(), "it was there before"
    upper = cli.folder / "upper"
    cli("mount", BASE, target, "--upper", upper)
    (target / "new").write_text("kept")
    assert cli.json("umount", target) == [{"target": str(target), "upper": str(upper)}]
    assert (upper / "new").read_text() == "kept"


def test_an_upper_that_is_kept(cli: Cli, target: Path) -> None:
    upper = Path(cli.json("mount", BASE, target)["upper"])
    (target / "new").write_text("kept")
    assert cli("umount", "--keep-upper", target) == f"{upper}\n"
    assert (upper / "new").read_text() == "kept"
    subprocess.run(["rm", "-r", upper.parent], check=True)


def test_a_folder_that_is_not_empty(cli: Cli, target: Path) -> None:
    target.mkdir()
    (target / "mine").touch()
    assert "mine" in cli.fails(InvalidInputError, "mount", BASE, target).error
    (cli.folder / "file").touch()
    cli.fails(InvalidInputError, "mount", BASE, cli.folder / "file")
    assert cli.leftovers() == []


def test_a_mount_point_in_use(cli: Cli, target: Path) -> None:
    cli("mount", BASE, target)
    refused = cli.fails(BusyError, "mount", BASE, target)
    assert refused.error == f"{BASE} is mounted on {target}"
    assert f"umount {target}" in refused.hint
    cli("umount", target)


@pytest.mark.usefixtures("busy")
def test_a_busy_mount(cli: Cli, target: Path) -> None:
    error = cli.fails(BusyError, "umount", target)
    assert f"{target} is in use by sleep (pid " in error.error
    assert "--lazy" in error.hint
    assert (target / "etc/group").exists()
    other = cli.folder / "other"
    cli("mount", BASE, other)
    cli.fails(BusyError, "umount", "--all")
    assert not other.exists(), "what was not busy is gone"
    assert cli("umount", "--lazy", target) == ""
    assert cli("mount", "--json") == "[]\n"


def test_umount_of_what_is_not_mounted(cli: Cli, target: Path) -> None:
    assert "dsec-layers mount" in cli.fails(NotFoundError, "umount", target).hint
    assert cli("umount", "--all") == ""


def test_all_leaves_a_run_alone(cli: Cli) -> None:
    with cli.start(
        "run", "-i", BASE, "--", "sh", "-c", "echo ready; read line; cat /etc/group"
    ) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == b"ready\n"
        assert f"rw, of process {it.pid}" in cli("mount")
        assert cli.json("umount", "--all") == []
        said, _ = it.communicate(b"go on\n")
    assert said.startswith(b"root:x:0:")


def test_packs_that_are_nowhere(cli: Cli, base_store: DirectoryStore, target: Path) -> None:
    """Only the metadata is here, and no store is named that has the rest."""
    lazy = Cli(cli.folder / "lazy", cli.environ)
    lazy.folder.mkdir()
    lazy("pull", BASE, base_store.url, "--metadata-only")
    for words in (("mount", BASE, target), ("run", BASE, "--", "true")):
        error = lazy.fails(NotFoundError, *words)
        assert "is not in the local store" in error.error
        assert "--store URL" in error.hint
    assert not target.exists()
    assert lazy.leftovers() == []


@pytest.mark.oci
def test_metadata_here_and_data_there(bare: Cli, base_store: DirectoryStore) -> None:
    moved = bare.json("pull", BASE, base_store.url, "--metadata-only")
    assert moved["sent_bytes"] < 20_000
    assert bare.json("ls")[0]["complete"] is False
    assert "lazy" in bare("ls")
    assert bare("--store", base_store.url, "run", BASE, "--", "cat", "/etc/group").startswith(
        "root:"
    )
    assert bare.json("stats")["total"]["fetched_bytes"] > 0
    packs = [blob for blob in bare.bench.local.blobs() if blob.media_type == PACK_TYPE]
    assert packs == []
    # A reference that is in the further store only is found there.
    bare("untag", BASE)
    assert bare("--store", base_store.url, "run", BASE, "--", "cat", "/etc/group").startswith(
        "root:"
    )
    assert "/etc/group" in bare("--store", base_store.url, "tree", BASE)


def test_a_daemon_that_is_killed_under_a_mount(cli: Cli, target: Path) -> None:
    cli("mount", BASE, target)
    pid = cli.json("daemon", "status")["pid"]
    with (cli.home / "run/start.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # its successor has to wait
        os.kill(pid, signal.SIGKILL)
        assert "daemon restart" in cli.fails(NotFoundError, "stats").hint
    cli("daemon", "restart")
    assert (target / "bin/sh").read_bytes()
    assert cli.json("stats")["layers"][0]["read_bytes"] > 0
    cli("umount", target)
    assert cli.leftovers() == []


def test_the_daemon(cli: Cli, target: Path) -> None:
    assert cli.fails(NotFoundError, "daemon", "status").hint
    assert cli("daemon", "stop") == "it did not run\n"
    cli("mount", BASE, target)
    columns = cli("daemon", "status").splitlines()[0].split()
    assert columns == ["PID", "VERSION", "UP", "LAYERS", "DEVICES"]
    assert "unmount first" in cli.fails(BusyError, "daemon", "stop").hint
    before = cli.json("daemon", "status")
    after = cli.json("daemon", "restart")
    assert after["pid"] != before["pid"]
    assert (target / "etc/group").read_text().startswith("root:")
    cli("umount", target)
    assert cli.stop_daemon() == {"stopped": True}
    cli.fails(NotFoundError, "daemon", "status")
