"""Whatever an archive or image holds: it is read or refused, and nothing leaves its tree."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

from dsec_layers.model.content import Source, Spooled
from dsec_layers.model.tree import EntryKind
from dsec_layers.sources import oci
from dsec_layers.sources.archive import is_tar, read_tar
from tests.support import hostile
from tests.support.fuzzing import only_errors_of_ours, times


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory, where there is such a place: inputs are many and small."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture
def _fresh(folder: Path) -> None:
    assert list(folder.iterdir()) == []


class _Spool:
    """A folder for one input, which writes nowhere else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "spool"

    def __enter__(self) -> Path:
        self.path.mkdir()
        return self.path

    def __exit__(self, *_: object) -> None:
        beside = [path for path in self._folder.iterdir() if path != self.path]
        shutil.rmtree(self.path)
        assert beside == []


def check(source: Source, spool: Path) -> None:
    """Every path is a name below a directory of the tree, every content lies in the spool."""
    kinds = {entry.path: entry.kind for entry in source.tree}
    for entry in source.tree:
        parts = entry.path.split(b"/")
        if entry.path:
            assert not {b"", b".", b".."}.intersection(parts)
            assert b"\0" not in entry.path
            assert kinds[entry.parent] is EntryKind.DIRECTORY
        assert (entry.kind is EntryKind.FILE) == (entry.path in source.contents)
    for path, content in source.contents.items():
        assert isinstance(content, Spooled)
        place = Path(content.path.decode())
        assert place.parent == spool
        assert kinds[path] is EntryKind.FILE
        for _, length, start in content.runs:
            assert start + length <= place.stat().st_size


@given(hostile.tars)
@times(4)
def test_a_tar(folder: Path, data: bytes) -> None:
    with only_errors_of_ours(), _Spool(folder) as spool:
        is_tar(io.BytesIO(data))
        check(read_tar(io.BytesIO(data), spool), spool)


@given(hostile.packed_tars)
@times(1)
def test_a_compressed_tar(folder: Path, data: bytes) -> None:
    with only_errors_of_ours(), _Spool(folder) as spool:
        is_tar(io.BytesIO(data))
        check(read_tar(io.BytesIO(data), spool), spool)


@given(hostile.images)
@times(2)
def test_a_layout(folder: Path, files: dict[str, bytes]) -> None:
    with only_errors_of_ours(), _Spool(folder) as spool:
        layout = spool / "layout"
        for name, data in files.items():
            path = layout / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_dir():
                path.write_bytes(data)
        check(oci.read_image(layout, spool).source, spool)


@given(hostile.image_archives)
@times(1)
def test_an_image_archive(folder: Path, data: bytes) -> None:
    with only_errors_of_ours(), _Spool(folder) as spool:
        path = spool / "archive"
        path.write_bytes(data)
        if found := oci.find_image(path, spool):
            check(found.source, spool)
    with only_errors_of_ours(), _Spool(folder) as spool:
        source = read_tar(io.BytesIO(data), spool)
        check(source, spool)
        if found := oci.image_in(source, spool):
            check(found.source, spool)
