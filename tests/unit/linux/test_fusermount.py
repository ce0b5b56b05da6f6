from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.errors import BusyError, CapabilityMissingError
from dsec_layers.linux import fusermount
from dsec_layers.linux import mount as mounts
from dsec_layers.linux.mount import MountPoint


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for fusermount3: it says what a test wants, and mounts nothing."""
    path = tmp_path / "bin/fusermount3"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\necho "$@" >>$0.args\ncat $0.says >&2\nexit $(cat $0.ends)\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    (tmp_path / "fuse").touch()
    monkeypatch.setattr(fusermount, "_DEVICE", tmp_path / "fuse")
    monkeypatch.setattr(mounts, "mounted_at", lambda target: None)
    answer(path, "", 0)
    return path


def answer(program: Path, words: str, status: int) -> None:
    Path(f"{program}.says").write_text(words)
    Path(f"{program}.ends").write_text(str(status))


def mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    point = MountPoint(1, "0:1", "/mnt", "fuse.dsec", "dsec-1", frozenset())
    monkeypatch.setattr(mounts, "mounted_at", lambda target: point)


def test_what_is_missing_is_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fusermount.require() == str(program)
    monkeypatch.setattr(fusermount, "_DEVICE", program.parent / "absent")
    with pytest.raises(CapabilityMissingError, match="absent cannot be opened") as caught:
        fusermount.require()
    assert "modprobe fuse" in (caught.value.hint or "")
    monkeypatch.setenv("PATH", "/")
    for call in (fusermount.require, lambda: fusermount.unmount(Path("/mnt"))):
        with pytest.raises(CapabilityMissingError, match="fusermount3 is not installed") as caught:
            call()
        assert "fuse3" in (caught.value.hint or "")


def test_a_mount_that_is_refused(program: Path, tmp_path: Path) -> None:
    answer(program, "user has no write access to mountpoint", 1)
    with pytest.raises(CapabilityMissingError, match="no write access"):
        fusermount.mount(tmp_path, "dsec-1")
    answer(program, "", 0)  # it ends well and gives nothing
    with pytest.raises(CapabilityMissingError, match="gave no reason"):
        fusermount.mount(tmp_path, "dsec-1")
    said = Path(f"{program}.args").read_text()
    assert "ro,nosuid,nodev" in said
    assert said.strip().endswith(f"-- {tmp_path}")
    assert "allow_other" not in said


def test_unmounting(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fusermount.unmount(Path("/mnt"))
    fusermount.unmount(Path("/mnt"), lazy=True)
    assert Path(f"{program}.args").read_text().splitlines() == ["-u -- /mnt", "-u -q -z -- /mnt"]
    answer(program, "entry for /mnt not found", 1)
    fusermount.unmount(Path("/mnt"))  # somebody else was faster
    mounted(monkeypatch)
    with pytest.raises(CapabilityMissingError, match="entry for /mnt"):
        fusermount.unmount(Path("/mnt"))
    answer(program, "failed to unmount /mnt: Device or resource busy", 1)
    with pytest.raises(BusyError):
        fusermount.unmount(Path("/mnt"))
