from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import CorruptError
from dsec_layers.lazyfs.journal import Owner
from dsec_layers.lazyfs.rootlessmounts import RootlessMount, RootlessMounts
from dsec_layers.linux import mount, procinfo
from dsec_layers.linux.mount import MountPoint


def record(target: Path, name: str, server: Owner, *, made_target: bool = False) -> RootlessMount:
    return RootlessMount(
        id=name,
        name=f"env/{name}:1",
        target=str(target),
        layers=("0" * 64,),
        server=server,
        boot=procinfo.boot_id(),
        made_target=made_target,
    )


@pytest.fixture
def mounts(tmp_path: Path) -> RootlessMounts:
    made = RootlessMounts(tmp_path / "run")
    made.create()
    return made


def test_records(mounts: RootlessMounts, tmp_path: Path) -> None:
    second = record(tmp_path / "b", "one", Owner.current())
    first = record(tmp_path / "a", "two", Owner(1 << 22, 1))
    for each in (second, first):
        mounts.put(each)
    assert mounts.listed() == [first, second]
    assert second.served
    assert not first.served
    mounts.drop(second)
    assert mounts.listed() == [first]


def test_only_what_is_gone_with_its_server_is_swept(
    mounts: RootlessMounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Owner(1 << 22, 1)
    gone = record(tmp_path / "gone", "gone", dead, made_target=True)
    left = record(tmp_path / "left", "left", dead)
    alive = record(tmp_path / "alive", "alive", Owner.current())
    (tmp_path / "gone").mkdir()
    for each in (gone, left, alive):
        mounts.put(each)
    point = MountPoint(1, "0:1", left.target, "fuse.dsec", left.source, frozenset())
    monkeypatch.setattr(
        mount, "mounted_at", lambda target: point if str(target) == left.target else None
    )
    mounts.sweep()
    assert mounts.listed() == [alive, left]
    assert not (tmp_path / "gone").exists(), "it was made for the mount"
    assert mounts.at(Path(left.target)) == left
    assert mounts.at(Path(alive.target)) is None, "it is not there yet"


def test_a_mount_of_somebody_else_is_not_ours(
    mounts: RootlessMounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = record(tmp_path, "ours", Owner.current())
    mounts.put(ours)
    point = MountPoint(1, "0:1", ours.target, "fuse.dsec", "dsec-other", frozenset())
    monkeypatch.setattr(mount, "mounted_at", lambda target: point)
    assert mounts.at(tmp_path) is None


def test_a_malformed_record_is_named(mounts: RootlessMounts) -> None:
    (mounts.folder / "x.json").write_text("{")
    with pytest.raises(CorruptError, match=r"x\.json"):
        mounts.listed()
