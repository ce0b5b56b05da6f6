"""Whatever is killed, and whenever: the next start finds nothing, or all of it."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import BusyError
from dsec_layers.lazyfs.journal import Journal
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.linux import mount
from dsec_layers.model.reference import Kind
from dsec_layers.registry.directory import DirectoryStore
from tests.support.layers import LocalDevices, file_tree, pack_tree
from tests.support.leftovers import leftovers, mounts_below, settle

pytestmark = [pytest.mark.root, pytest.mark.erofs]

MOUNTING = ["claimed", "prepared", "layers mounted", "overlay mounted"]
UNDOING = ["overlay unmounted", "folders removed", "layers released"]


@pytest.fixture
def layers(store: DirectoryStore, disk: Path) -> list[MountLayer]:
    return [
        pack_tree(*file_tree({b"a/low": b"low"}), store, disk),
        pack_tree(*file_tree({b"high": b"high"}), store, disk, kind=Kind.TOOLKIT),
    ]


class Other:
    """Runs tests.support.killed on the folders of a test."""

    def __init__(self, disk: Path, store: DirectoryStore, layers: list[MountLayer]) -> None:
        self._folders = [str(disk / "home"), str(disk / "devices"), str(store.root)]
        self._names = [f"{layer.descriptor.digest}-{layer.descriptor.size}" for layer in layers]

    def argv(self, step: str, action: str) -> list[str]:
        program = [sys.executable, "-m", "tests.support.killed", *self._folders]
        return [*program, step, action, *self._names]

    def dies(self, step: str, action: str) -> None:
        done = subprocess.run(self.argv(step, action), check=False, timeout=60)
        assert done.returncode == -9, f"never came to {step!r}"


@pytest.fixture
def other(disk: Path, store: DirectoryStore, layers: list[MountLayer]) -> Other:
    return Other(disk, store, layers)


def nothing_is_left(manager: RootfsManager, disk: Path) -> bool:
    assert mounts_below(disk) == []
    assert leftovers(disk / "home") == []
    settle(manager, disk / "home")
    assert list((disk / "devices").glob("*")) == []
    assert not (disk / "mnt").exists()
    return True


@pytest.mark.parametrize("action", ["bound", "mount"])
@pytest.mark.parametrize("step", MOUNTING)
def test_killed_while_mounting(
    manager: RootfsManager, other: Other, disk: Path, step: str, action: str
) -> None:
    other.dies(step, action)
    reconciled = manager.reconcile()
    assert reconciled.undone == (str(disk / "mnt"),)
    assert nothing_is_left(manager, disk)


@pytest.mark.parametrize("step", ["mounted", *UNDOING])
def test_killed_while_a_block_ends(
    manager: RootfsManager, other: Other, disk: Path, step: str
) -> None:
    other.dies(step, "bound")
    manager.reconcile()
    assert nothing_is_left(manager, disk)


@pytest.mark.parametrize("step", ["removing", *UNDOING])
def test_killed_while_unmounting(
    manager: RootfsManager, other: Other, disk: Path, step: str
) -> None:
    other.dies(step, "unmount")
    manager.reconcile()
    assert nothing_is_left(manager, disk)


@pytest.mark.parametrize("step", [*UNDOING[:2], "swept"])
def test_killed_while_cleaning_up_after_the_killed(
    manager: RootfsManager, other: Other, disk: Path, step: str
) -> None:
    other.dies("overlay mounted", "mount")
    other.dies(step, "sweep")
    manager.reconcile()
    assert nothing_is_left(manager, disk)


def test_the_next_mount_cleans_up_by_itself(
    manager: RootfsManager, other: Other, layers: list[MountLayer], disk: Path
) -> None:
    other.dies("overlay mounted", "bound")
    with manager.mounted(layers, disk / "mnt") as rootfs:
        assert (rootfs.target / "a/low").read_bytes() == b"low"
    assert nothing_is_left(manager, disk)


def test_a_layer_attached_after_its_user_died_is_detached(
    manager: RootfsManager, devices: LocalDevices, layers: list[MountLayer], disk: Path
) -> None:
    devices.attach_one(layers[0])  # by a daemon that could not know that nobody waits any more
    with manager.mounted(layers[1:], disk / "mnt"):
        assert devices.attached == {layers[1].digest.hex}
    assert nothing_is_left(manager, disk)
    assert devices.attached == set()


def test_a_mount_outlives_the_process_that_made_it(
    manager: RootfsManager, other: Other, disk: Path
) -> None:
    other.dies("mounted", "mount")
    assert manager.reconcile().undone == ()
    assert (disk / "mnt/a/low").read_bytes() == b"low"
    manager.unmount(disk / "mnt")
    assert nothing_is_left(manager, disk)


def test_what_a_living_process_uses_stays(manager: RootfsManager, other: Other, disk: Path) -> None:
    with subprocess.Popen(
        other.argv("-", "bound"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert manager.reconcile().undone == ()
        assert (disk / "mnt/high").read_bytes() == b"high"
        with pytest.raises(BusyError, match=f"process {process.pid}"):
            manager.unmount(disk / "mnt")
        process.kill()
    manager.reconcile()
    assert nothing_is_left(manager, disk)


def test_a_mount_in_another_namespace_is_left_alone_until_that_is_gone(
    manager: RootfsManager, other: Other, disk: Path
) -> None:
    with subprocess.Popen(
        ["unshare", "--mount", *other.argv("-", "bound")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert mounts_below(disk) == []
        assert manager.reconcile().undone == ()
        inside = Path(f"/proc/{process.pid}/root{disk}/mnt")
        assert (inside / "high").read_bytes() == b"high"
        process.kill()
    assert manager.reconcile().undone == (str(disk / "mnt"),)
    assert nothing_is_left(manager, disk)


def reboot(disk: Path) -> None:
    """Take all mounts away and let the journal come from an earlier boot."""
    for target in reversed(mounts_below(disk)):
        mount.unmount(Path(target), lazy=True)
    journal = Journal(disk / "home/run")
    for record in journal.records():
        journal.put(msgspec.structs.replace(record, boot="an earlier boot"))


def test_after_a_reboot_nothing_is_left_but_work(
    manager: RootfsManager, layers: list[MountLayer], disk: Path
) -> None:
    manager.mount(layers, disk / "mnt")
    worked = manager.mount(layers, disk / "worked")
    (disk / "worked/result").write_text("a day's work")
    reboot(disk)
    reconciled = manager.reconcile()
    assert worked.upper is not None
    assert set(reconciled.undone) == {str(disk / "mnt"), str(disk / "worked")}
    assert reconciled.kept_uppers == (worked.upper,)
    assert (worked.upper / "result").read_text() == "a day's work"
    folder = f"rootfs/{worked.id}"
    assert leftovers(disk / "home") == [folder, f"{folder}/upper", f"{folder}/upper/result"]
    assert manager.reconcile().kept_uppers == ()


def test_a_reboot_in_the_middle_of_mounting_leaves_nothing(
    manager: RootfsManager, other: Other, disk: Path
) -> None:
    other.dies("overlay mounted", "mount")
    reboot(disk)
    manager.reconcile()
    assert nothing_is_left(manager, disk)


def test_a_rootfs_unmounted_by_hand_is_forgotten(
    manager: RootfsManager, layers: list[MountLayer], disk: Path
) -> None:
    manager.mount(layers, disk / "mnt")
    mount.unmount(disk / "mnt")
    assert manager.reconcile().undone == (str(disk / "mnt"),)
    assert nothing_is_left(manager, disk)


def test_what_a_crash_of_the_machine_leaves_without_a_record_goes_if_it_ended_with_its_process(
    manager: RootfsManager, disk: Path
) -> None:
    lost = disk / "home/run/rootfs/run-5eed5eed-0123456789abcdef/upper"
    kept = disk / "home/run/rootfs/0123456789abcdef/upper"
    for upper in (lost, kept):
        upper.mkdir(parents=True)
        (upper / "result").write_text("work")
    manager.reconcile()
    assert not lost.parent.exists()
    assert (kept / "result").exists()
