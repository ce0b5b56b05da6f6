from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_layers.errors import InvalidInputError
from dsec_layers.linux.users import User, find_user

PASSWD = """root:x:0:0:root:/root:/bin/sh
# a comment
+nis-line
broken:x:no:number:::
user:x:1000:1001:A User,,,:/home/user:/bin/bash
homeless:x:1002:1002:::
1000:x:7:7::/seven:
"""
GROUP = """root:x:0:
users:x:1001:user
wheel:x:10:other,user
audio:x:29:user
userish:x:30:user2,auser
broken:x:x:user
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(PASSWD)
    (tmp_path / "etc/group").write_text(GROUP)
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "user"),
    [
        ("0", User(0, 0, (), "/root")),
        ("root", User(0, 0, (), "/root")),
        ("user", User(1000, 1001, (10, 29), "/home/user")),
        ("homeless", User(1002, 1002, (), "/")),
        # a name goes before a number
        ("1000", User(7, 7, (), "/seven")),
        ("1002", User(1002, 1002, (), "/")),
        ("4711", User(4711, 0, (), "/")),
        ("4294967294", User(4294967294, 0, (), "/")),
        ("user:wheel", User(1000, 10, (), "/home/user")),
        ("user:29", User(1000, 29, (), "/home/user")),
        ("12:34", User(12, 34, (), "/")),
    ],
)
def test_users_are_those_of_the_root(root: Path, wanted: str, user: User) -> None:
    assert find_user(root, wanted) == user


@pytest.mark.parametrize(
    "wanted",
    ["nobody", "user:nogroup", "", ":", "user:", "-1", "+nis-line", "4294967295", "9" * 5000, "٣"],
)
def test_an_unknown_user_or_group_is_an_error(root: Path, wanted: str) -> None:
    with pytest.raises(InvalidInputError, match=r"no (user|group)"):
        find_user(root, wanted)


def test_numbers_work_without_any_file(tmp_path: Path) -> None:
    assert find_user(tmp_path, "5:6") == User(5, 6, (), "/")


def test_files_outside_the_root_are_not_asked(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (tmp_path / "passwd").write_text("mallory:x:0:0::/:\n")
    (root / "etc/passwd").symlink_to("../../passwd")
    with pytest.raises(InvalidInputError):
        find_user(root, "mallory")


@given(passwd=st.binary(max_size=200), wanted=st.text(max_size=12))
def test_any_file_gives_a_user_or_the_error(
    tmp_path_factory: pytest.TempPathFactory, passwd: bytes, wanted: str
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "etc").mkdir()
    (root / "etc/passwd").write_bytes(passwd)
    try:
        user = find_user(root, wanted)
    except InvalidInputError:
        return
    assert 0 <= user.uid < 2**32 - 1
