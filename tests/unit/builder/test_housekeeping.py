from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dsec_layers.builder.caches import Caches
from dsec_layers.builder.housekeeping import kept, limit, remove, superfluous
from dsec_layers.builder.kept import Kept, disk_bytes
from dsec_layers.builder.stepcache import StepCache


def publish(home: Path, key: str, size_bytes: int = 0, *, replace: bool = False) -> Path:
    cache = StepCache(home)
    with cache.working() as folder:
        (folder.upper / "f").write_bytes(os.urandom(size_bytes))
        return cache.publish(key, folder, title=f"RUN {key}", identity=key, replace=replace).upper


def use_cache(home: Path, name: str) -> None:
    with Caches(home / "caches").use(name, "shared", lambda data: (data / "f").touch()):
        pass


def names(found: list[Kept]) -> set[str]:
    return {one.name for one in found}


def test_what_is_kept(tmp_path: Path) -> None:
    assert kept(tmp_path) == []
    publish(tmp_path, "a", 100_000)
    replaced = publish(tmp_path, "b")
    publish(tmp_path, "b", replace=True)
    use_cache(tmp_path, "%2Froot+1")
    os.utime(tmp_path / "steps/a.json", (5, 5))
    found = {one.name: one for one in kept(tmp_path)}
    assert set(found) == {"a", "b", replaced.name, "%2Froot+1"}
    assert (found["a"].title, found["a"].used_s) == ("RUN a", 5)
    assert 100_000 <= found["a"].size_bytes < 120_000
    assert (found["%2Froot+1"].kind, found["%2Froot+1"].title) == ("cache", "/root")
    assert found[replaced.name].title == ""
    assert kept(tmp_path)[-1].name == replaced.name
    assert StepCache(tmp_path).find("a") is not None
    assert {one.name: one for one in kept(tmp_path)}["a"].used_s > 5


def test_first_steps_of_a_build_are_the_last_to_go(tmp_path: Path) -> None:
    for key in ("a", "b", "c", "old"):
        publish(tmp_path, key, 100_000)
    StepCache(tmp_path).mark_used(["old"])
    StepCache(tmp_path).mark_used(["a", "b", "c"])
    os.utime(tmp_path / "steps/old.json", (5, 5))
    assert [one.name for one in limit(tmp_path, 250_000)] == ["c", "old"]
    assert {one.name for one in kept(tmp_path)} == {"a", "b"}
    assert limit(tmp_path, 250_000) == []


def test_without_a_number_a_tenth_of_the_disk_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, "a", 100_000)
    publish(tmp_path, "b", 100_000)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(total=1_500_000))
    assert len(limit(tmp_path, None)) == 1


def test_the_limit_is_for_steps_alone(tmp_path: Path) -> None:
    publish(tmp_path, "a", 100_000)
    use_cache(tmp_path, "c")
    assert [one.name for one in limit(tmp_path, 0)] == ["a"]
    assert [one.name for one in kept(tmp_path)] == ["c"]


def test_files_of_several_names_take_their_place_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(50_000))
    before = disk_bytes(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(".")
    assert disk_bytes(tmp_path) - before < 10_000


@pytest.mark.parametrize(
    ("before_s", "keep_bytes", "chosen"),
    [
        (None, 0, "abc"),
        (None, 10, "bc"),
        (None, 29, "c"),
        (None, 30, ""),
        (2.5, 0, "bc"),
        (1, 0, ""),
        (2.5, 20, "c"),
    ],
)
def test_what_is_superfluous(before_s: float | None, keep_bytes: int, chosen: str) -> None:
    found = [Kept("step", name, "", 10, used) for name, used in (("a", 3), ("b", 2), ("c", 1))]
    rest = superfluous(found, before_s=before_s, keep_bytes=keep_bytes)
    assert "".join(one.name for one in rest) == chosen


def test_what_is_chosen_goes_and_the_rest_stays(tmp_path: Path) -> None:
    for key in ("a", "b"):
        publish(tmp_path, key)
        use_cache(tmp_path, f"cache-{key}")
    chosen = [one for one in kept(tmp_path) if one.name.endswith("a")]
    assert names(remove(tmp_path, chosen)) == {"a", "cache-a"}
    assert names(kept(tmp_path)) == {"b", "cache-b"}
    assert names(remove(tmp_path, chosen)) == {"a", "cache-a"}  # nothing is left of them
    assert list((tmp_path / "work").iterdir()) == []


def test_what_a_build_uses_stays(tmp_path: Path) -> None:
    upper = publish(tmp_path, "a")
    caches = Caches(tmp_path / "caches")
    with StepCache(tmp_path).in_use(), caches.use("c", "shared", lambda _: None) as data:
        assert remove(tmp_path, kept(tmp_path)) == []
        assert upper.is_dir()
        assert data.is_dir()
        assert StepCache(tmp_path).find("a") is None
    assert names(remove(tmp_path, kept(tmp_path))) == {upper.name, "c"}
    assert not upper.exists()
