from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import CapabilityMissingError
from dsec_layers.linux import capabilities, mount, runtime, syscalls

pytestmark = [pytest.mark.root, pytest.mark.overlay]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "target"
    path.mkdir()
    yield path
    while mount.mounted_at(path):
        mount.unmount(path, lazy=True)


def layers(folder: Path, count: int) -> list[Path]:
    """Layers that each hold `same` with their number and a file of their own; topmost first."""
    found = []
    for number in range(count):
        layer = folder / f"layer{number}"
        layer.mkdir(parents=True)
        (layer / "same").write_text(str(number))
        (layer / f"own{number}").touch()
        found.append(layer)
    return found


def test_more_layers_than_an_option_string_could_name(tmp_path: Path, target: Path) -> None:
    mount.mount_overlay(target, layers(tmp_path / ("long" * 30), 400))
    assert (target / "same").read_text() == "0"
    assert len(list(target.iterdir())) == 401


def test_too_many_layers_are_refused_before_mounting(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ValueError, match="at most 500 layers"):
        mount.mount_overlay(target, [tmp_path] * 501)
    assert mount.mounted_at(target) is None


def test_without_an_upper_nothing_can_be_written(tmp_path: Path, target: Path) -> None:
    mount.mount_overlay(target, layers(tmp_path, 2))
    with pytest.raises(OSError, match="Read-only") as raised:
        (target / "new").touch()
    assert raised.value.errno == errno.EROFS


def test_an_upper_holds_plain_files(tmp_path: Path, target: Path) -> None:
    """A renamed folder is copied, not redirected, so that the upper can be packed by itself."""
    lowers = layers(tmp_path, 2)
    (lowers[0] / "folder").mkdir()
    (lowers[0] / "folder/file").write_text("content")
    upper, work = tmp_path / "upper", tmp_path / "work"
    upper.mkdir()
    work.mkdir()
    mount.mount_overlay(target, lowers, upper=upper, work=work, volatile=True, source="name")
    (target / "same").chmod(0o600)
    assert (upper / "same").read_text() == "0"
    with pytest.raises(OSError, match="cross-device"):
        os.rename(target / "folder", target / "moved")
    found = mount.mounted_at(target)
    assert found is not None
    assert (found.filesystem, found.source) == ("overlay", "name")
    assert any("volatile" in option for option in found.options)


@pytest.mark.parametrize("count", [1, 3])
def test_a_view_is_seen_but_mounted_nowhere(tmp_path: Path, count: int) -> None:
    with mount.overlay_view(layers(tmp_path, count)) as view:
        assert (view / "same").read_text() == "0"
        assert (view / f"own{count - 1}").exists()
        assert not any(str(tmp_path) in str(it) for it in mount.mount_points())
    assert count == 1 or not view.exists()


@pytest.mark.parametrize("name", ["with space", "tab\there", "new\nline", "back\\slash", "\udcff"])
def test_mount_points_have_their_real_names(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    mount.mount_tmpfs(folder)
    try:
        assert mount.mounted_at(folder) is not None
    finally:
        mount.unmount(folder)
    assert mount.mounted_at(folder) is None


def test_a_mount_in_use_is_busy_and_can_be_detached(target: Path) -> None:
    mount.mount_tmpfs(target)
    with (target / "open").open("w"):
        with pytest.raises(OSError, match="busy") as raised:
            mount.unmount(target)
        assert raised.value.errno == errno.EBUSY
        mount.unmount(target, lazy=True)
    assert mount.mounted_at(target) is None


def test_a_missing_layer_is_named(tmp_path: Path, target: Path) -> None:
    with pytest.raises(OSError, match="No such file") as raised:
        mount.mount_overlay(target, [tmp_path / "missing", tmp_path])
    assert "missing" in str(raised.value)


@pytest.mark.erofs
def test_an_image_that_is_none_is_refused(tmp_path: Path, target: Path) -> None:
    image = Path(tmp_path, "image")
    image.write_bytes(bytes(8192))
    with pytest.raises(OSError, match="Invalid argument"):
        mount.mount_erofs(image, target, device=None)


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.EPERM, "root"), (errno.ENODEV, "kernel"), (errno.ENOTBLK, "disk")]
)
def test_what_the_machine_lacks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(syscalls, "mount", refuse)
    monkeypatch.setattr(syscalls, "fsopen", refuse)
    with pytest.raises(CapabilityMissingError) as erofs:
        mount.mount_erofs(tmp_path / "image", tmp_path, device=None)
    with pytest.raises(CapabilityMissingError) as overlay:
        mount.mount_overlay(tmp_path, [tmp_path, tmp_path])
    assert hint in (erofs.value.hint or "")
    assert hint in (overlay.value.hint or "")


def test_the_kernel_s_own_explanation_is_told() -> None:
    with pytest.raises(OSError, match="Unknown parameter 'no-such'"):
        syscalls.detached_mount("tmpfs", [("no-such", "x")])


def test_checks_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(capabilities, "SCRATCH", str(tmp_path))
    capabilities.missing.cache_clear()
    runtime.find_runtime.cache_clear()
    for capability in capabilities.Capability:
        capabilities.missing(capability)
    assert not any(str(tmp_path) in str(it) for it in mount.mount_points())
    assert list(tmp_path.iterdir()) == []
