from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.builder.request import BuildRequest, find_epoch, locate, read_ignore_rules
from dsec_layers.errors import InvalidInputError, NotFoundError


def request(folder: Path, **options: object) -> BuildRequest:
    values = {"layerfile": folder / "L", "context": folder / "c", "home": folder, **options}
    return BuildRequest(**values)  # type: ignore[arg-type]


def test_a_folder_or_a_file_is_a_layerfile_with_its_context(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no Layerfile at") as caught:
        locate(tmp_path)
    assert caught.value.hint == "name the file with -f"
    file = tmp_path / "Layerfile"
    file.touch()
    assert locate(tmp_path) == locate(file) == (file, tmp_path)
    with pytest.raises(NotFoundError, match="other"):
        locate(tmp_path / "other")


def test_the_epoch_may_be_a_build_argument(tmp_path: Path) -> None:
    assert find_epoch(request(tmp_path)) is None
    assert find_epoch(request(tmp_path, epoch=0)) == 0
    assert find_epoch(request(tmp_path, args={"SOURCE_DATE_EPOCH": "7"})) == 7
    assert find_epoch(request(tmp_path, epoch=3, args={"SOURCE_DATE_EPOCH": "7"})) == 3
    with pytest.raises(InvalidInputError, match="SOURCE_DATE_EPOCH is 'today'"):
        find_epoch(request(tmp_path, args={"SOURCE_DATE_EPOCH": "today"}))


@pytest.mark.parametrize("epoch", [-1, 10**10, 10**30])
def test_an_epoch_that_no_file_can_have_is_refused(tmp_path: Path, epoch: int) -> None:
    for options in ({"epoch": epoch}, {"args": {"SOURCE_DATE_EPOCH": str(epoch)}}):
        with pytest.raises(InvalidInputError, match=f"SOURCE_DATE_EPOCH is '{epoch}'"):
            find_epoch(request(tmp_path, **options))


def test_ignore_rules_are_read(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    assert not read_ignore_rules(tmp_path / "c", tmp_path / "L").ignores(b"a")
    (tmp_path / "c/.dockerignore").write_text("a\n")
    assert read_ignore_rules(tmp_path / "c", tmp_path / "L").ignores(b"a")
    (tmp_path / "L.dockerignore").write_text("b\n")
    assert not read_ignore_rules(tmp_path / "c", tmp_path / "L").ignores(b"a")
    (tmp_path / "L.dockerignore").write_text("[\n")
    with pytest.raises(InvalidInputError, match="malformed pattern") as caught:
        read_ignore_rules(tmp_path / "c", tmp_path / "L")
    assert caught.value.where == str(tmp_path / "L.dockerignore")
