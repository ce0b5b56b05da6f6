from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from dsec_layers.builder.caches import Caches, folder_name


def nothing(_: Path) -> None:
    pass


@pytest.fixture
def caches(tmp_path: Path) -> Caches:
    return Caches(tmp_path / "caches")


@pytest.mark.parametrize(
    ("identifier", "name"),
    [("pip", "pip"), ("/root/.cache", "%2Froot%2F.cache"), (".", "%2E"), ("..", "%2E.")],
)
def test_an_id_becomes_the_name_of_one_folder(identifier: str, name: str) -> None:
    assert folder_name(identifier) == name


def test_names_are_never_too_long_and_keep_apart() -> None:
    names = {
        folder_name("ä" * 200),
        folder_name("ä" * 201),
        folder_name("a"),
        folder_name("a", "s"),
    }
    assert len(names) == 4
    assert max(map(len, names)) < 200


def test_what_is_in_a_cache_stays(caches: Caches) -> None:
    with caches.use("a", "shared", lambda data: (data / "first").touch()) as data:
        (data / "more").touch()
    with caches.use("a", "locked", lambda data: (data / "never").touch()) as data:
        assert sorted(path.name for path in data.iterdir()) == ["first", "more"]


def test_a_cache_that_cannot_be_filled_is_not_made(caches: Caches, tmp_path: Path) -> None:
    def fail(data: Path) -> None:
        (data / "half").touch()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), caches.use("a", "shared", fail):
        pass
    with caches.use("a", "shared", nothing) as data:
        assert list(data.iterdir()) == []
    assert list((tmp_path / "work").iterdir()) == []


def test_private_caches_are_not_shared_and_are_taken_up_again(caches: Caches) -> None:
    with (
        caches.use("a", "private", nothing) as first,
        caches.use("a", "private", nothing) as second,
    ):
        assert first != second
    with caches.use("a", "private", nothing) as again:
        assert again == first


def test_shared_caches_are_used_at_once(caches: Caches) -> None:
    with caches.use("a", "shared", nothing) as first, caches.use("a", "shared", nothing) as second:
        assert first == second


def test_a_locked_cache_waits_and_finds_one_that_was_removed_meanwhile(
    caches: Caches, tmp_path: Path
) -> None:
    got: list[bool] = []

    def wait() -> None:
        with caches.use("a", "locked", nothing) as data:
            got.append(data.is_dir())

    waiting = threading.Thread(target=wait)
    with caches.use("a", "locked", nothing):
        waiting.start()
        assert got == []
        shutil.rmtree(tmp_path / "caches/a")
    waiting.join(60)
    assert got == [True]
