"""When a step is carried out again, and that what comes from the cache is what was built."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dsec_layers.builder.stepcache import StepCache
from dsec_layers.linux import syscalls
from dsec_layers.model.tree import Tree
from tests.support.builds import Built, FolderLayers, Workshop

pytestmark = [pytest.mark.root, pytest.mark.oci]

TEXT = "FROM base/small\nCOPY d /d\nRUN cat /d/f > /copy\n"


@pytest.fixture
def built(workshop: Workshop) -> Workshop:
    workshop.write("d/f", "one")
    assert workshop.build(TEXT).cached == [False, False]
    return workshop


def test_the_same_inputs_are_not_built_again(built: Workshop) -> None:
    again = built.build("# a comment\n" + TEXT.replace("RUN ", "run   "))
    assert again.cached == [True, True]
    assert again.files["copy"] == b"one"


def test_a_cached_build_of_a_workspace_mounts_no_layer(workshop: Workshop) -> None:
    text = "FROM base/small\nRUN echo > /x\n"
    for opened in (1, 1):
        workshop.build(text, head="LAYER workspace w\n")
        assert workshop.layers.opened == opened


def test_a_change_that_keeps_size_and_time_is_seen(built: Workshop) -> None:
    file = built.context / "d/f"
    status = file.stat()
    file.write_text("two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    again = built.build(TEXT)
    assert again.cached == [False, False]
    assert again.files["copy"] == b"two"


def test_times_alone_change_nothing(built: Workshop) -> None:
    os.utime(built.context / "d/f", ns=(1, 1))
    os.utime(built.context / "d", ns=(2, 2))
    assert built.build(TEXT).cached == [True, True]


@pytest.mark.parametrize("change", ["mode", "folder mode", "xattr", "name"])
def test_attributes_are_inputs(built: Workshop, change: str) -> None:
    folder, file = built.context / "d", built.context / "d/f"
    if change == "mode":
        file.chmod(0o600)
    elif change == "folder mode":
        folder.chmod(0o700)
    elif change == "xattr":
        os.setxattr(file, "user.a", b"")
    else:
        (folder / "g").write_text("")
    assert built.build(TEXT).cached == [False, False]


@pytest.mark.parametrize("name", ["d", "d/f"])
def test_the_owner_of_the_context_is_copied_again_and_not_told(built: Workshop, name: str) -> None:
    before = built.build(TEXT)
    os.chown(built.context / name, 5, 6)
    after = built.build(TEXT)
    assert after.cached == [False, False]
    assert after.result.inputs == before.result.inputs
    assert after.entries["d/f"].uid == 0


@pytest.mark.parametrize("owner", ["5:0", "0:5"])
def test_the_owner_in_a_stage_is_an_input(workshop: Workshop, owner: str) -> None:
    def text(owner: str) -> str:
        first = f"FROM scratch AS a\nCOPY --chown={owner} f /f\n"
        return first + "FROM base/small\nCOPY --from=a /f /f\n"

    workshop.write("f", "f")
    assert workshop.build(text("0:0")).entries["f"].uid == 0
    assert workshop.build(text(owner)).cached == [False, False]


def test_the_kind_of_a_file_is_an_input(workshop: Workshop) -> None:
    workshop.write("d/f", "one")
    workshop.write("d/g", "one")
    text = "FROM base/small\nCOPY d /d\n"
    seen = [workshop.build(text).cached]
    (workshop.context / "d/g").unlink()
    os.link(workshop.context / "d/f", workshop.context / "d/g")
    seen.append(workshop.build(text).cached)
    (workshop.context / "d/g").unlink()
    (workshop.context / "d/g").symlink_to("f")
    seen.append(workshop.build(text).cached)
    (workshop.context / "d/g").unlink()
    (workshop.context / "d/g").symlink_to("/d/f")
    seen.append(workshop.build(text).cached)
    assert seen == [[False]] * 4


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("cat", "cat "),
        TEXT.replace("RUN ", "RUN --network=none "),
        TEXT.replace("RUN ", "ENV a=1\nRUN "),
        TEXT.replace("RUN ", "ARG a=1\nRUN "),
        TEXT.replace("RUN ", "USER 0:0\nRUN "),
        TEXT.replace("RUN ", 'SHELL ["/bin/sh", "-ec"]\nRUN '),
    ],
)
def test_what_a_command_sees_is_an_input(built: Workshop, text: str) -> None:
    assert built.build(text).cached == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        TEXT + "ENV a=1\nLABEL b=c\nCMD d\n",
        TEXT.replace("COPY", "LABEL b=c\nCOPY"),
        TEXT.replace("RUN ", "LABEL b=c\nCMD d\nRUN "),
        "ARG a=1\n" + TEXT,
    ],
)
def test_what_a_command_does_not_see_is_no_input(built: Workshop, text: str) -> None:
    assert built.build(text).cached == [True, True]


def test_arguments_count_from_their_line_on(workshop: Workshop) -> None:
    text = "FROM base/small\nRUN echo a\nARG x\nRUN echo b\n"
    assert workshop.build(text, args={"x": "1"}).cached == [False, False]
    assert workshop.build(text, args={"x": "2"}).cached == [True, False]
    assert workshop.build(text, args={"x": "1"}).cached == [True, True]
    assert workshop.build(text, args={"x": "1", "http_proxy": "p"}).cached == [True, True]


def test_the_parent_and_the_epoch_are_inputs(built: Workshop) -> None:
    built.layers.layers["base/other"] = built.layers.layers["base/small"]
    assert built.build(TEXT.replace("base/small", "base/other")).cached == [False, False]
    assert built.build(TEXT, epoch=1).cached == [False, False]
    assert built.build(TEXT, args={"SOURCE_DATE_EPOCH": "1"}).cached == [True, True]


def test_without_cache_everything_is_done_and_kept(built: Workshop) -> None:
    text = "FROM base/small\nRUN cat /proc/sys/kernel/random/uuid > /id\nRUN cat /id > /id2\n"
    first = built.build(text)
    fresh = built.build(text, no_cache=True)
    assert fresh.cached == [False, False]
    assert fresh.files["id"] != first.files["id"]
    later = built.build(text)
    assert later.cached == [True, True]
    assert later.files["id"] == later.files["id2"] == fresh.files["id"]


def test_results_of_different_runs_are_never_mixed(built: Workshop) -> None:
    """A later step must not stand on another run of the command than the one it was built on."""
    start = "FROM base/small\nRUN cat /proc/sys/kernel/random/uuid > /id\n"
    built.build(start + "RUN cat /id > /id2\n")
    built.build(start, no_cache=True)
    mixed = built.build(start + "RUN cat /id > /id2\n")
    assert mixed.cached == [True, False]
    assert mixed.files["id"] == mixed.files["id2"]


def test_a_stage_that_gives_the_same_files_keeps_what_follows(workshop: Workshop) -> None:
    text = (
        "FROM base/small AS a\nRUN echo {} > /dev/null; echo same > /out\n"
        "FROM base/small\nCOPY --from=a /out /out\nRUN cat /out\n"
    )
    workshop.build(text.format(1))
    assert workshop.build(text.format(2)).cached == [False, True, True]


def test_damaged_records_and_lost_results_are_built_again(built: Workshop) -> None:
    for record in (built.home / "steps").iterdir():
        record.write_bytes(b"{")
    assert built.build(TEXT).cached == [False, False]
    assert built.build(TEXT).cached == [True, True]
    (built.home / "results").rename(built.home / "elsewhere")
    assert built.build(TEXT).cached == [False, False]
    assert built.build(TEXT).cached == [True, True]


def test_of_two_builds_of_a_step_one_counts(tmp_path: Path) -> None:
    cache = StepCache(tmp_path)
    with cache.working() as one, cache.working() as two:
        (one.upper / "one").touch()
        (two.upper / "two").touch()
        first = cache.publish("k", one, title="t", identity=None, replace=False)
        second = cache.publish("k", two, title="t", identity=None, replace=False)
    assert first == second == cache.find("k")
    assert [path.name for path in first.upper.iterdir()] == ["one"]
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_a_result_that_cannot_be_made_durable_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(syscalls, "syncfs", fail)
    cache = StepCache(tmp_path)
    with cache.working() as folder, pytest.raises(OSError, match="full"):
        cache.publish("k", folder, title="t", identity="k", replace=False)
    assert cache.find("k") is None
    assert list((tmp_path / "results").iterdir()) == []


def test_a_replaced_result_stays_for_those_who_use_it(tmp_path: Path) -> None:
    cache = StepCache(tmp_path)
    with cache.working() as one, cache.working() as two:
        first = cache.publish("k", one, title="t", identity=None, replace=False)
        second = cache.publish("k", two, title="t", identity=None, replace=True)
    assert cache.find("k") == second != first
    assert first.upper.is_dir()


def test_sweeping_takes_only_what_nobody_holds(tmp_path: Path) -> None:
    cache = StepCache(tmp_path)
    abandoned = tmp_path / "work/abandoned"
    (abandoned / "upper/d").mkdir(parents=True)
    with cache.working() as held:
        StepCache(tmp_path).sweep()
        assert held.upper.is_dir()
        assert not abandoned.exists()
    assert list((tmp_path / "work").iterdir()) == []


def test_the_same_inputs_give_the_same_layer_anywhere(workshop: Workshop, tmp_path: Path) -> None:
    """Other folders, other times, other caches: with an epoch every field is the same."""
    text = (
        "FROM base/small AS a\nRUN mkdir /out && echo 1 > /out/f && touch /out/g\n"
        "FROM base/small\nWORKDIR /w/x\nCOPY . /w/\nCOPY --from=a /out /w/out\n"
        "COPY <<E /etc/e\ne\nE\nRUN touch /root/x /w/d/y; ln /w/d/f /w/link\n"
    )

    def tree_of(place: Workshop, time_ns: int) -> Tree:
        place.write("d/f", "f")
        place.write("d/g", "g")
        for path in (place.context / "d/f", place.context / "d/g", place.context / "d"):
            os.utime(path, ns=(time_ns, time_ns))
        return without_digests(place.build(text, head="LAYER workspace w\n", epoch=1_000_000_000))

    def without_digests(built: Built) -> Tree:
        assert all(entry.mtime_ns <= 10**18 for entry in built.entries.values())
        return Tree(tuple(built.entries.values()))

    other = Workshop(tmp_path / "an" / "other", FolderLayers(workshop.layers.layers))
    other.folder.mkdir(parents=True)
    assert tree_of(workshop, 10**9) == tree_of(other, 2 * 10**18)


def test_results_without_a_name_are_removed_when_nobody_builds(tmp_path: Path) -> None:
    cache = StepCache(tmp_path)
    with cache.working() as one, cache.working() as two:
        old = cache.publish("k", one, title="t", identity=None, replace=False)
        new = cache.publish("k", two, title="t", identity=None, replace=True)
    killed = tmp_path / "results/killed"
    killed.mkdir()
    (tmp_path / "steps/.k-12345678").write_bytes(b"{")
    with cache.in_use(), StepCache(tmp_path).in_use():
        assert [path.name for path in (tmp_path / "steps").iterdir()] == ["k.json"]
        assert not old.upper.exists()
        assert not killed.exists()
        killed.mkdir()
        with StepCache(tmp_path).in_use():
            assert killed.exists()
    assert cache.find("k") == new
