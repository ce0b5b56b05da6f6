"""Rootless mounts as far as they go without FUSE: what is refused, cleared, and kept by gc."""

from pathlib import Path

import pytest

from dsec_layers.api import collecting, mounting, rootless
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import BusyError, CapabilityMissingError, NotFoundError
from dsec_layers.lazyfs.journal import Owner
from dsec_layers.lazyfs.rootlessmounts import RootlessMount, RootlessMounts
from dsec_layers.linux import fusermount, mount, procinfo
from dsec_layers.linux.capabilities import Capability
from dsec_layers.linux.mount import MountPoint
from dsec_layers.model.reference import Reference
from dsec_layers.registry.collect import Rules
from tests.support.packed import pack_files

BASE = Reference.parse("base/b:1")
DEAD = Owner(1 << 22, 1)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"file": b"data"})
    return made


@pytest.fixture
def mounts(bench: Workbench) -> RootlessMounts:
    made = RootlessMounts(bench.home.run)
    made.create()
    return made


class Kernel:
    """Stands for mountinfo and fusermount3: what is mounted, and whether it is in use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mounted: dict[str, str] = {}
        self.busy = False
        monkeypatch.setattr(mount, "mounted_at", self._at)
        monkeypatch.setattr(fusermount, "unmount", self._unmount)
        monkeypatch.setattr(fusermount, "require", lambda: "fusermount3")

    def _at(self, target: Path) -> MountPoint | None:
        source = self.mounted.get(str(target))
        if source is None:
            return None
        return MountPoint(1, "0:1", str(target), "fuse.dsec", source, frozenset())

    def _unmount(self, target: Path, *, lazy: bool = False) -> None:
        if self.busy and not lazy:
            raise BusyError("in use")
        del self.mounted[str(target)]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def put(
    bench: Workbench, mounts: RootlessMounts, kernel: Kernel, target: Path, server: Owner
) -> RootlessMount:
    target.mkdir()
    record = RootlessMount(
        id=target.name,
        name=str(BASE),
        target=str(target),
        layers=(bench.resolve(BASE).parsed_digest.hex,),
        server=server,
        boot=procinfo.boot_id(),
        made_target=True,
    )
    mounts.put(record)
    kernel.mounted[str(target)] = record.source
    return record


def test_what_a_killed_server_left_is_listed_and_unmounted(
    bench: Workbench, mounts: RootlessMounts, kernel: Kernel, tmp_path: Path
) -> None:
    target = tmp_path / "mnt"
    put(bench, mounts, kernel, target, DEAD)
    [row] = rootless.list_mounts(bench)
    assert (row.reference, row.target, row.server) == (str(BASE), str(target), None)
    kernel.busy = True
    with pytest.raises(BusyError, match="in use") as caught:
        rootless.umount(bench, target)
    assert "--lazy" in (caught.value.hint or "")
    assert rootless.umount(bench, target, lazy=True)
    assert not target.exists()
    assert mounts.listed() == []
    assert not rootless.umount(bench, target)


def test_a_mount_over_a_dead_one_begins_by_removing_it(
    bench: Workbench, mounts: RootlessMounts, kernel: Kernel, tmp_path: Path
) -> None:
    put(bench, mounts, kernel, tmp_path / "mnt", DEAD)
    notes: list[str] = []
    with pytest.raises(NotFoundError):
        rootless.mount(bench, Reference.parse("base/o:1"), tmp_path / "mnt", note=notes.append)
    assert notes == [f"{tmp_path}/mnt held {BASE}, whose server was killed: unmounted"]
    assert kernel.mounted == {}


def test_a_mount_over_a_living_one_is_refused(
    bench: Workbench, mounts: RootlessMounts, kernel: Kernel, tmp_path: Path
) -> None:
    put(bench, mounts, kernel, tmp_path / "mnt", Owner.current())
    with pytest.raises(BusyError, match="mount point already"):
        rootless.mount(bench, BASE, tmp_path / "mnt", note=print)
    assert kernel.mounted


def test_the_list_needs_no_root(
    bench: Workbench,
    mounts: RootlessMounts,
    kernel: Kernel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking = CapabilityMissingError("this needs root", hint="run as root")
    monkeypatch.setattr(
        mounting, "missing", lambda which: lacking if which is Capability.ROOT else None
    )
    put(bench, mounts, kernel, tmp_path / "mnt", Owner.current())
    [row] = mounting.list_mounts(bench)
    assert row.rootless
    assert row.read_only
    with pytest.raises(CapabilityMissingError) as caught:
        mounting.mount(bench, BASE, tmp_path / "other")
    assert "--rootless" in (caught.value.hint or "")


def test_mounted_layers_are_not_collected(
    bench: Workbench, mounts: RootlessMounts, kernel: Kernel, tmp_path: Path
) -> None:
    record = put(bench, mounts, kernel, tmp_path / "mnt", Owner.current())
    bench.local.untag(BASE)
    before = {blob.digest for blob in bench.local.blobs()}
    assert collecting.gc(bench, None, Rules(grace_s=-1)).blobs == 0
    mounts.drop(record)
    assert collecting.gc(bench, None, Rules(grace_s=-1)).blobs == len(before)
