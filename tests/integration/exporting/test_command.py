"""`export` as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from dsec_layers.errors import ConflictError, InvalidInputError
from tests.support.cli import Cli

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def large(bare: Cli) -> Cli:
    source = bare.folder / "source"
    source.mkdir()
    for count in range(48):
        (source / f"f{count}").write_bytes(os.urandom(1 << 20))
    os.mkfifo(source / "fifo")
    bare("import", source, "base/x:1")
    return bare


def test_results(bare: Cli) -> None:
    bare.add("base/x:1", {"a": "text"})
    out = bare.folder / "out"
    said = bare("export", "base/x:1", f"oci:{out}:v")
    row = bare.json("export", "base/x:1", f"oci:{out}:v")
    assert said.splitlines()[0] == f"oci:{out}:v {row['image_id']}"
    assert row["sockets"] == []
    assert [layer["digest"] for layer in row["layers"]] == [bare.json("ls")[0]["digest"]]
    bare.fails(InvalidInputError, "export", "base/x:1", "oci:x", "--format", "oci-archive")
    assert bare.fails(ConflictError, "export", "base/x:1", bare.folder).hint


def test_progress_and_sockets(bare: Cli) -> None:
    source = bare.folder / "source"
    source.mkdir()
    (source / "holes").touch()
    os.truncate(source / "holes", 1 << 40)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(source / "s"))
    bare("import", source, "base/x:1")
    ran = bare.run("--progress", "json", "export", "base/x:1", bare.folder / "out.tar")
    *_, progress, note = map(json.loads, ran.stderr.splitlines())
    assert (progress["done"], progress["total"]) == (1 << 40, 1 << 40)
    assert note["message"] == "left out: /s is a socket"
    assert (bare.folder / "out.tar").stat().st_size < 16 << 10


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", ["out", "out.tar", "there"])
def test_a_signal_leaves_nothing(large: Cli, number: signal.Signals, name: str) -> None:
    large.add("base/y:1", {"a": "text"})
    large("export", "base/y:1", large.folder / "there")
    before = sorted(_below(large.folder))
    with large.start("export", "base/x:1", large.folder / name) as child:
        assert child.stderr is not None
        while not _growing(large.folder) and child.poll() is None:
            os.sched_yield()
        child.send_signal(number)
        said = child.stderr.read()
    assert child.returncode == 128 + number, said
    assert said == f"error: ended by {number.name}\n".encode()
    assert sorted(_below(large.folder)) == before


def _below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if "home" not in path.relative_to(folder).parts]


def _growing(folder: Path) -> bool:
    """Whether something of the image has been written, aside."""
    for pattern in (".dsec-export-*/*", "*/.dsec-export-*/*"):
        for path in folder.glob(pattern):
            if path.is_file() and path.stat().st_size:
                return True
    return False
