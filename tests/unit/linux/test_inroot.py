from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.linux import inroot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    return root


@pytest.mark.parametrize(
    ("link", "leads_to"),
    [
        ("file", "/etc/file"),
        ("/etc/file", "/etc/file"),
        ("../etc/./file", "/etc/file"),
        ("../../../../secret", "/secret"),
        ("/../secret", "/secret"),
        ("../run/systemd/resolve/stub", "/run/systemd/resolve/stub"),
        ("/missing/../etc/file", "/etc/file"),
    ],
)
def test_links_are_followed_inside_the_root(root: Path, link: str, leads_to: str) -> None:
    (root / "etc/link").symlink_to(link)
    assert inroot.resolve(root, "/etc/link") == leads_to
    assert inroot.locate(root, "etc/link") == root / leads_to[1:]


def test_a_linked_folder_on_the_way_is_followed(root: Path) -> None:
    (root / "var").symlink_to("/etc")
    assert inroot.resolve(root, "var/x/../file") == "/etc/file"


def test_a_circle_of_links_is_an_error(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        inroot.resolve(root, "/a")
    assert inroot.read_file(root, "/a") is None


def test_the_root_itself(root: Path) -> None:
    assert inroot.resolve(root, "/") == "/"
    assert inroot.locate(root, "/") == root


def test_a_file_outside_is_never_read(root: Path) -> None:
    (root / "etc/passwd").symlink_to(root.parent / "secret")
    (root / "etc/up").symlink_to("../../secret")
    assert inroot.read_file(root, "/etc/passwd") is None
    assert inroot.read_file(root, "/etc/up") is None
    assert inroot.read_file(root, "/etc/../etc/file") == b"inside"


@pytest.mark.timeout(10)
def test_only_regular_files_are_read_and_a_fifo_does_not_hold_us(root: Path) -> None:
    os.mkfifo(root / "fifo")
    assert inroot.read_file(root, "/fifo") is None
    assert inroot.read_file(root, "/etc") is None
    assert inroot.read_file(root, "/missing") is None


def test_at_most_a_mebibyte_is_read(root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(1 << 40)
    content = inroot.read_file(root, "/big")
    assert content is not None
    assert len(content) == 1 << 20


@given(st.lists(st.sampled_from(["..", ".", "", "a", "etc", "link"]), max_size=8))
def test_no_path_leads_out(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "link").symlink_to("../../a")
    located = inroot.locate(root, "/".join(parts))
    assert located.is_relative_to(root)
    assert located.resolve() == located, "nothing is left to follow"
