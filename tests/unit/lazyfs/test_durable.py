import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import NoSpaceError
from dsec_layers.lazyfs import durable


def test_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"longer than the new one")
    durable.write_whole(path, [b"ne", b"w"])
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_source_leaves_what_was_there(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("source failed")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="source failed"):
        durable.write_whole(path, pieces())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        raise OSError(errno.ENOSPC, "No space left on device")
        yield b""

    with pytest.raises(NoSpaceError, match=r"no space left to write .*/file"):
        durable.write_whole(tmp_path / "file", pieces())


def test_sweep_removes_what_killed_writers_left_and_nothing_else(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from dsec_layers.lazyfs import durable\n"
        "def pieces():\n"
        "    yield b'half'\n"
        "    os.kill(os.getpid(), 9)\n"
        "durable.write_whole(Path(sys.argv[1]), pieces())\n"
    )
    dead = subprocess.run([sys.executable, "-c", program, tmp_path / "file"], check=False)
    assert dead.returncode == -9
    assert len(list(tmp_path.iterdir())) == 1

    def pieces() -> Iterator[bytes]:
        durable.sweep(tmp_path)  # in the middle of another write, which must survive it
        assert len(list(tmp_path.iterdir())) == 1
        yield b"whole"

    durable.write_whole(tmp_path / "other", pieces())
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
