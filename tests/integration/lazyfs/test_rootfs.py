"""The life of a rootfs: mounted, shared, written to, busy, unmounted."""

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import (
    BusyError,
    CapabilityMissingError,
    CorruptError,
    DaemonError,
    DsecError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
)
from dsec_layers.lazyfs.devices import Device
from dsec_layers.lazyfs.journal import Journal, Record
from dsec_layers.lazyfs.layers import MountLayer
from dsec_layers.lazyfs.rootfs import RootfsManager
from dsec_layers.linux import mount
from dsec_layers.model.reference import Kind
from dsec_layers.model.tree import Entry, EntryKind, Tree
from dsec_layers.registry.directory import DirectoryStore
from tests.support.layers import LocalDevices, file_tree, pack_tree
from tests.support.leftovers import leftovers, mounts_below, settle

pytestmark = [pytest.mark.root, pytest.mark.erofs]


@pytest.fixture
def base(store: DirectoryStore, disk: Path) -> MountLayer:
    return pack_tree(*file_tree({b"etc/low": b"low", b"both": b"base" * 5000}), store, disk)


@pytest.fixture
def tool(store: DirectoryStore, disk: Path) -> MountLayer:
    files = file_tree({b"both": b"tool", b"opt/t/run": b"x" * 100_000})
    return pack_tree(*files, store, disk, kind=Kind.TOOLKIT, name="tool")


def device_of(path: Path) -> int:
    return path.stat().st_dev


def test_layers_are_stacked_in_order_and_gone_afterwards(
    manager: RootfsManager, base: MountLayer, tool: MountLayer, disk: Path, devices: LocalDevices
) -> None:
    target = disk / "mnt"
    rootfs = manager.mount([base, tool], target, read_only=True, name="env/demo")
    assert manager.list() == (rootfs,)
    assert (rootfs.name, rootfs.layers) == ("env/demo", (base.digest, tool.digest))
    assert (target / "etc/low").read_bytes() == b"low"
    assert (target / "both").read_bytes() == b"tool"
    assert (target / "opt/t/run").read_bytes() == b"x" * 100_000
    with pytest.raises(OSError, match="Read-only"):
        (target / "new").touch()
    manager.unmount(target)
    assert manager.list() == ()
    assert not target.exists()
    assert mounts_below(disk) == []
    assert leftovers(disk / "home") == []
    settle(manager, disk / "home")
    assert devices.attached == set()


def test_a_single_layer_is_an_overlay_too(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    with manager.mounted([base], disk / "mnt", read_only=True) as rootfs:
        point = mount.mounted_at(rootfs.target)
        assert point is not None
        assert point.filesystem == "overlay"
        assert point.source == f"dsec:{rootfs.id}"


def test_writes_go_to_the_own_upper_which_is_gone_afterwards(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    rootfs = manager.mount([base], disk / "mnt")
    assert rootfs.upper is not None
    (rootfs.target / "new").write_text("mine")
    (rootfs.target / "both").unlink()
    assert (rootfs.upper / "new").read_text() == "mine"
    assert (rootfs.upper / "both").is_char_device()
    manager.unmount(rootfs.target)
    assert not rootfs.upper.exists()
    assert leftovers(disk / "home") == []


def test_a_kept_upper_can_be_mounted_again(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    rootfs = manager.mount([base], disk / "mnt")
    (rootfs.target / "new").write_text("mine")
    manager.unmount(rootfs.target, keep_upper=True)
    manager.reconcile()
    assert rootfs.upper is not None
    assert [path.name for path in rootfs.upper.parent.iterdir()] == ["upper"]
    with manager.mounted([base], upper=rootfs.upper) as again:
        assert (again.target / "new").read_text() == "mine"
    assert (rootfs.upper / "new").read_text() == "mine"


def test_a_given_upper_stays_without_its_work_folder(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    upper = disk / "changes" / "upper"
    manager.mount([base], disk / "mnt", upper=upper)
    (disk / "mnt" / "new").touch()
    with pytest.raises(BusyError, match="upper"):
        manager.mount([base], disk / "mnt2", upper=upper)
    manager.unmount(disk / "mnt")
    assert [path.name for path in upper.parent.iterdir()] == ["upper"]
    assert [path.name for path in upper.iterdir()] == ["new"]


def test_the_root_of_a_new_upper_looks_like_the_layers_root(
    manager: RootfsManager, store: DirectoryStore, disk: Path
) -> None:
    root = Entry(
        path=b"",
        kind=EntryKind.DIRECTORY,
        mode=0o1751,
        uid=7,
        gid=8,
        mtime_ns=1_000_000_001,
        xattrs=((b"trusted.overlay.x", b"escaped"), (b"user.a", b"1")),
    )
    layer = pack_tree(Tree.of([root]), {}, store, disk)
    with manager.mounted([layer]) as rootfs:
        status = rootfs.target.stat()
        assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o1751, 7, 8)
        assert status.st_mtime_ns == 1_000_000_001
        assert os.getxattr(rootfs.target, "user.a") == b"1"
        assert os.getxattr(rootfs.target, "trusted.overlay.x") == b"escaped"


def test_a_layer_is_mounted_once_and_until_its_last_user_is_gone(
    manager: RootfsManager, base: MountLayer, tool: MountLayer, disk: Path, devices: LocalDevices
) -> None:
    manager.mount([base], disk / "one", read_only=True)
    with manager.layer_dirs([tool, base]) as (tool_dir, base_dir):
        assert (base_dir / "etc/low").read_bytes() == b"low"
        mounted = device_of(base_dir)
        with manager.mounted([base, tool]) as rootfs:
            assert (rootfs.target / "both").read_bytes() == b"tool"
            assert device_of(base_dir) == mounted
            assert len([path for path in mounts_below(disk) if "/run/layers/" in path]) == 2
        assert (tool_dir / "both").read_bytes() == b"tool"
    assert len([path for path in mounts_below(disk) if "/run/layers/" in path]) == 1
    assert base.digest.hex in devices.attached
    assert (disk / "one/etc/low").read_bytes() == b"low"
    manager.unmount(disk / "one")
    settle(manager, disk / "home")
    assert devices.attached == set()


def test_extra_lowers_lie_below_all_layers(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    for name in ("upper stub", "lower stub"):
        (disk / name / "proc").mkdir(parents=True)
        (disk / name / "both").write_text(name)
        (disk / name / "stub").write_text(name)
    extra = [disk / "upper stub", disk / "lower stub"]
    with manager.mounted([base], extra_lowers=extra, read_only=True) as rootfs:
        assert (rootfs.target / "both").read_bytes() == b"base" * 5000
        assert (rootfs.target / "stub").read_text() == "upper stub"
        assert (rootfs.target / "proc").is_dir()


def test_the_kernel_reads_ahead_far(manager: RootfsManager, base: MountLayer, disk: Path) -> None:
    with manager.layer_dirs([base]):
        (link,) = (disk / "home/run/layers").glob("*.bdi")
        _boot, *names = str(link.readlink()).split("/")
        settings = [Path("/sys/class/bdi", name, "read_ahead_kb") for name in names]
        assert "8192\n" in [setting.read_text() for setting in settings if setting.exists()]


@pytest.mark.parametrize("count", [200, 330])
def test_hundreds_of_layers(
    manager: RootfsManager, store: DirectoryStore, disk: Path, count: int
) -> None:
    layers = [
        pack_tree(
            *file_tree({b"top": b"%d" % number, b"f%d" % number: b"%d" % number}), store, disk
        )
        for number in range(count)
    ]
    with manager.mounted(layers, read_only=count == 330) as rootfs:
        assert (rootfs.target / "top").read_bytes() == b"%d" % (count - 1)
        names = {path.name for path in rootfs.target.iterdir()}
        assert names == {"top", *(f"f{number}" for number in range(count))}
        for number in (0, count // 2):
            assert (rootfs.target / f"f{number}").read_bytes() == b"%d" % number
        if count == 200:
            (rootfs.target / "new").touch()


def test_no_layer_or_one_twice_is_refused(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    for layers in ([], [base, base]):
        with pytest.raises(InvalidInputError):
            manager.mount(layers, disk / "mnt")
    assert not (disk / "mnt").exists()
    with pytest.raises(InvalidInputError, match="the kernel stacks 0"):
        manager.mount([base], disk / "mnt", extra_lowers=[disk] * 499)


def test_a_target_is_mounted_on_once(
    manager: RootfsManager, base: MountLayer, tool: MountLayer, disk: Path
) -> None:
    with manager.mounted([base], disk / "mnt"):
        with pytest.raises(BusyError):
            manager.mount([tool], disk / "mnt")
        with pytest.raises(BusyError, match="which still runs"):
            manager.unmount(disk / "mnt")
        assert (disk / "mnt/etc/low").exists()


def test_a_link_to_the_target_means_the_target(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    (disk / "real").mkdir()
    (disk / "link").symlink_to("real")
    assert manager.mount([base], disk / "link").target == disk / "real"
    manager.unmount(disk / "link")
    assert (disk / "real").is_dir()


def test_unmounting_what_is_not_mounted_is_not_found(manager: RootfsManager, disk: Path) -> None:
    with pytest.raises(NotFoundError, match=str(disk)):
        manager.unmount(disk)


@pytest.fixture
def intruder(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands in a mounted rootfs, which is on `mnt`."""
    manager.mount([base], disk / "mnt")
    with subprocess.Popen(["cat"], cwd=disk / "mnt/etc", stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_busy_rootfs_names_its_users_and_stays(
    manager: RootfsManager, intruder: subprocess.Popen[bytes], disk: Path
) -> None:
    with pytest.raises(BusyError) as caught:
        manager.unmount(disk / "mnt")
    assert f"cat (pid {intruder.pid}, cwd {disk}/mnt/etc)" in caught.value.message
    assert "--lazy" in (caught.value.hint or "")
    assert len(manager.list()) == 1
    (disk / "mnt/new").touch()
    intruder.kill()
    intruder.wait()
    manager.unmount(disk / "mnt")


def test_a_mount_inside_makes_a_rootfs_busy(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    manager.mount([base], disk / "mnt")
    mount.mount_tmpfs(disk / "mnt/etc")
    with pytest.raises(BusyError, match=f"a mount on {disk}/mnt/etc"):
        manager.unmount(disk / "mnt")
    mount.unmount(disk / "mnt/etc")
    manager.unmount(disk / "mnt")


def test_a_lazily_unmounted_rootfs_serves_its_last_user(
    manager: RootfsManager, base: MountLayer, disk: Path, devices: LocalDevices
) -> None:
    manager.mount([base], disk / "mnt", read_only=True)
    inside = os.open(disk / "mnt", os.O_PATH | os.O_DIRECTORY)
    try:
        manager.unmount(disk / "mnt", lazy=True)
        assert mounts_below(disk) == []
        assert manager.list() == ()
        assert devices.attached == {base.digest.hex}  # somebody may still read
        manager.reconcile()
        fd = os.open("both", os.O_RDONLY, dir_fd=inside)
        assert os.read(fd, 8) == b"basebase"
        os.close(fd)
    finally:
        os.close(inside)
    settle(manager, disk / "home")
    assert devices.attached == set()
    assert leftovers(disk / "home") == []


def test_a_block_that_leaves_a_user_behind_detaches(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    with manager.mounted([base]) as rootfs:
        fd = os.open(rootfs.target / "both", os.O_RDONLY)
    assert mounts_below(disk) == []
    os.close(fd)
    manager.reconcile()
    assert leftovers(disk / "home") == []


def test_many_threads_share_layers(
    manager: RootfsManager, base: MountLayer, tool: MountLayer, disk: Path, devices: LocalDevices
) -> None:
    failures: list[BaseException] = []

    def live(number: int) -> None:
        try:
            for _ in range(5):
                with manager.mounted([base, tool], disk / f"mnt{number}") as rootfs:
                    assert (rootfs.target / "etc/low").read_bytes() == b"low"
                    assert (rootfs.target / "opt/t/run").stat().st_size == 100_000
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert mounts_below(disk) == []
    assert leftovers(disk / "home") == []


class ShortDevices(LocalDevices):
    """Serves a device that has lost its last block."""

    def attach_one(self, layer: MountLayer) -> Device:
        device = super().attach_one(layer)
        os.truncate(device.path, device.size_bytes - 4096)
        return device


def test_a_short_device_is_refused_before_it_is_mounted(disk: Path, base: MountLayer) -> None:
    manager = RootfsManager(disk / "home", ShortDevices(disk / "devices"))
    with pytest.raises(CorruptError, match="serves"):
        manager.mount([base], disk / "mnt")
    assert leftovers(disk / "home") == []


class LostDevices(LocalDevices):
    """Names a device that nobody serves."""

    def attach_one(self, layer: MountLayer) -> Device:
        return Device(super().attach_one(layer).path / "lost", 1 << 40)


def test_a_device_that_is_not_served_is_explained(disk: Path, base: MountLayer) -> None:
    manager = RootfsManager(disk / "home", LostDevices(disk / "devices"))
    with pytest.raises(DaemonError) as caught:
        manager.mount([base], disk / "mnt")
    assert "restart" in (caught.value.hint or "")
    assert leftovers(disk / "home") == []


def test_an_image_that_the_kernel_refuses_is_explained(
    manager: RootfsManager, base: MountLayer, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(metadata: Path, target: Path, *, device: Path) -> None:
        raise OSError(errno.EINVAL, "Invalid argument", str(target))

    monkeypatch.setattr(mount, "mount_erofs", refuse)
    with pytest.raises(DsecError, match=r"the kernel does not mount .*\.erofs"):
        manager.mount([base], disk / "mnt")
    assert leftovers(disk / "home") == []


def test_a_layer_stands_on_the_device_that_is_served_today(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    """A daemon that was lost for good leaves mounts that give EIO: they are not used again."""
    manager.mount([base], disk / "old", read_only=True)
    (disk / "devices" / base.digest.hex).unlink()
    with manager.mounted([base], read_only=True) as rootfs:
        with manager.layer_dirs([base]) as (layer_dir,):
            assert device_of(layer_dir) != device_of(disk / "old" / "etc")
        assert (rootfs.target / "etc/low").read_bytes() == b"low"
    manager.unmount(disk / "old")


def test_an_upper_that_the_kernel_cannot_use_is_explained(
    manager: RootfsManager, base: MountLayer, disk: Path
) -> None:
    with manager.mounted([base]) as outer, pytest.raises(CapabilityMissingError) as caught:
        manager.mount([base], disk / "mnt", upper=outer.target / "upper")
    assert "ext4" in (caught.value.hint or "")
    assert not (disk / "mnt").exists()
    assert leftovers(disk / "home") == []


@pytest.mark.parametrize("step", ["claimed", "prepared", "layers mounted", "overlay mounted"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, NoSpaceError("no space left")])
def test_an_interrupted_or_failing_mount_leaves_nothing(
    disk: Path,
    devices: LocalDevices,
    base: MountLayer,
    tool: MountLayer,
    step: str,
    error: BaseException | type[BaseException],
) -> None:
    def trace(reached: str) -> None:
        if reached == step:
            raise error

    manager = RootfsManager(disk / "home", devices, trace=trace)
    with pytest.raises((KeyboardInterrupt, NoSpaceError)):
        manager.mount([base, tool], disk / "mnt")
    assert mounts_below(disk) == []
    assert leftovers(disk / "home") == []
    assert not (disk / "mnt").exists()
    settle(manager, disk / "home")
    assert devices.attached == set()


def test_a_full_disk_does_not_hinder_unmounting(
    manager: RootfsManager, base: MountLayer, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(journal: Journal, record: Record) -> None:
        raise NoSpaceError(f"no space left to write {record.id}")

    manager.mount([base], disk / "mnt")
    monkeypatch.setattr(Journal, "put", full)
    manager.unmount(disk / "mnt")
    assert mounts_below(disk) == []
    assert leftovers(disk / "home") == []


def test_a_mount_beside_ours_is_not_taken_for_it(
    manager: RootfsManager, base: MountLayer, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's name of a mount is found by what is new; others mount at the same time."""
    real, beside = mount.mount_erofs, disk / "beside"
    beside.mkdir()

    def mount_two(metadata: Path, target: Path, *, device: Path) -> None:
        real(metadata, target, device=device)
        if not mount.mounted_at(beside):
            real(metadata, beside, device=device)

    monkeypatch.setattr(mount, "mount_erofs", mount_two)
    try:
        with manager.layer_dirs([base]):
            (link,) = (disk / "home/run/layers").glob("*.bdi")
            assert len([point for point in mounts_below(disk) if "layers" in point]) == 1
            assert len(str(link.readlink()).split("/")) == 2
    finally:
        mount.unmount(beside)
