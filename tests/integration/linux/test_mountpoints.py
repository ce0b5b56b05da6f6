from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsec_layers.linux import mountpoints
from dsec_layers.linux.ocispec import Bind

pytestmark = [pytest.mark.root, pytest.mark.overlay]


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    path = tmp_path / "stubs"
    path.mkdir()
    return path


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Mode and time of everything below `folder`."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns)
    return found


def test_stubs_are_always_the_same(stubs: Path) -> None:
    old = os.umask(0o077)
    try:
        mountpoints.make_stubs(stubs, [])
    finally:
        os.umask(old)
    folder, file = (0o040755, 0), (0o100644, 0)
    assert tree(stubs) == {
        "proc": folder,
        "sys": folder,
        "dev": folder,
        "etc": folder,
        "etc/resolv.conf": file,
        "etc/hosts": file,
    }
    assert stubs.stat().st_mtime_ns == 0


def test_stubs_lie_where_the_links_of_the_layers_lead(tmp_path: Path, stubs: Path) -> None:
    low, high = tmp_path / "low", tmp_path / "high"
    (low / "etc").mkdir(parents=True)
    (high / "etc").mkdir(parents=True)
    (low / "etc/resolv.conf").symlink_to("/wrong")
    (high / "etc/resolv.conf").symlink_to("../run/resolve/stub")
    (low / "run").symlink_to("var/run")
    mountpoints.make_stubs(stubs, [high, low])
    assert (stubs / "var/run/resolve/stub").is_file()
    assert not (stubs / "wrong").exists()
    assert not (stubs / "etc/resolv.conf").exists()


def test_binds_have_stubs_of_their_kind_except_in_dev(tmp_path: Path, stubs: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    binds = [Bind(file, "/a/b/c"), Bind(tmp_path, "/a/d"), Bind(tmp_path, "/dev/e")]
    mountpoints.make_stubs(stubs, [], binds)
    assert (stubs / "a/b/c").is_file()
    assert (stubs / "a/d").is_dir()
    assert list((stubs / "dev").iterdir()) == []


def test_what_is_missing_is_made_and_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/hosts").write_text("own")
    os.utime(root / "etc", ns=(1, 2))
    before = tree(root)
    with mountpoints.present(root, [Bind(tmp_path, "/a/b")]):
        assert (root / "a/b").is_dir()
        assert (root / "etc/resolv.conf").is_file()
    assert tree(root) == before
    assert (root / "etc/hosts").read_text() == "own"


def test_what_a_command_puts_beside_a_mount_point_stays(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with mountpoints.present(root, []):
        (root / "etc/new").write_text("of the command")
    assert set(tree(root)) == {"etc", "etc/new"}


def test_a_link_of_the_root_does_not_lead_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "etc").symlink_to(outside)
    with mountpoints.present(root, []):
        assert list(outside.iterdir()) == []
    assert list(outside.iterdir()) == []
    assert [path.name for path in root.iterdir()] == ["etc"]
