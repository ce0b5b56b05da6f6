"""Trees and files of a local store, without a mount."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsec_layers.api import contents, looking
from dsec_layers.api.workbench import Workbench
from dsec_layers.erofs.reader import ErofsImage
from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.reference import Reference
from dsec_layers.model.tree import Entry, EntryKind, Tree
from tests.support.images import write
from tests.support.packed import pack_files

BASE, TOOL = Reference.parse("base/b:1"), Reference.parse("toolkit/t:1")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    large = os.urandom(300_000) + bytes(100_000) + b"end"
    pack_files(made, BASE, {"dir/a": b"below", "dir/b": b"b", "large": large, "hole": bytes(9000)})
    pack_files(made, TOOL, {"dir/a": b"above", "t": b"t"}, base=made.resolve(BASE))
    return made


def link(path: bytes, target: bytes) -> Entry:
    return Entry(path=path, kind=EntryKind.SYMLINK, mode=0o777, target=target)


def folder(path: bytes, *, opaque: bool = False) -> Entry:
    return Entry(path=path, kind=EntryKind.DIRECTORY, mode=0o755, opaque=opaque)


def file(path: bytes) -> Entry:
    return Entry(path=path, kind=EntryKind.FILE, mode=0o644)


def gone(path: bytes) -> Entry:
    return Entry(path=path, kind=EntryKind.WHITEOUT)


LAYERS = [
    [
        *(folder(b"d"), file(b"d/f"), file(b"d/g"), folder(b"d/s"), file(b"d/s/x")),
        *(folder(b"e"), file(b"e/f"), file(b"w"), folder(b"v"), file(b"v/x")),
    ],
    [
        *(folder(b"d"), gone(b"d/g"), folder(b"d/s", opaque=True), file(b"d/s/y")),
        *(link(b"e", b"d"), gone(b"w"), gone(b"v")),
    ],
    [
        *(folder(b"d"), file(b"d/g"), link(b"l", b"e/../e/./s"), gone(b"none")),
        *(link(b"r", b"/../d"), folder(b"v"), file(b"v/y")),
    ],
]


@pytest.mark.parametrize(
    ("path", "layer", "found"),
    [
        (b"", 2, b""),
        (b"d", 2, b"d"),
        (b"d/f", 0, b"d/f"),
        (b"d/g", 2, b"d/g"),
        (b"d/s/y", 1, b"d/s/y"),
        (b"d/s/x", None, b""),
        (b"e", 2, b"d"),
        (b"e/f", 0, b"d/f"),
        (b"l/y", 1, b"d/s/y"),
        (b"l/../f", 0, b"d/f"),
        (b"r/s/../g", 2, b"d/g"),
        (b"../../d/./f", 0, b"d/f"),
        (b"d/f/", 0, b"d/f"),
        (b"d/f/..", None, b""),
        (b"none", None, b""),
        (b"w", None, b""),
        (b"v/x", None, b""),
        (b"v/y", 2, b"v/y"),
    ],
)
def test_find(path: bytes, layer: int | None, found: bytes) -> None:
    images = [ErofsImage(write(Tree.of(entries))) for entries in LAYERS]
    if layer is None:
        with pytest.raises(NotFoundError):
            contents.find(images, path)
    else:
        index, entry = contents.find(images, path)
        assert (index, entry.path) == (layer, found)


def test_links_without_an_end() -> None:
    chain = [link(b"l%d" % number, b"l%d" % (number + 1)) for number in range(41)]
    image = ErofsImage(write(Tree.of([*chain, file(b"l41")])))
    assert contents.find([image], b"l1")[1].path == b"l41"
    with pytest.raises(NotFoundError, match="too many symbolic links: /l0"):
        contents.find([image], b"l0")


def test_cat(bench: Workbench) -> None:
    assert b"".join(looking.cat(bench, TOOL, "dir/a")) == b"above"
    assert b"".join(looking.cat(bench, BASE, "/dir/a")) == b"below"
    large = b"".join(looking.cat(bench, TOOL, "/large"))
    assert len(large) == 400_003
    assert large.endswith(bytes(100) + b"end")
    assert b"".join(looking.cat(bench, TOOL, "/hole")) == bytes(9000)
    with pytest.raises(InvalidInputError, match="is a directory"):
        list(looking.cat(bench, TOOL, "/dir"))


def test_files(bench: Workbench) -> None:
    def paths(path: str, depth: int | None = None) -> list[bytes]:
        return [entry.path for entry in looking.files(bench, TOOL, path, depth)]

    assert paths("/") == [b"", b"dir", b"dir/a", b"dir/b", b"hole", b"large", b"t"]
    assert paths("/", 1) == [b"", b"dir", b"hole", b"large", b"t"]
    assert paths("dir") == [b"dir", b"dir/a", b"dir/b"]
    assert paths("dir", 0) == [b"dir"]
    assert paths("/dir/a/") == [b"dir/a"]
    with pytest.raises(NotFoundError):
        paths("di")
