"""Digests of what a build copies: the same however they are read, and no longer than wanted."""

import os
import threading
from pathlib import Path

import pytest

from dsec_layers.builder.hashing import file_digests
from dsec_layers.chunks.content import hash_content
from dsec_layers.linux import cancelling
from dsec_layers.sources.scan import scan

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        (tmp_path / f"large{number}").write_bytes(os.urandom(MIB + number))
    (tmp_path / "small").write_bytes(b"small")
    (tmp_path / "empty").touch()
    (tmp_path / "again").hardlink_to(tmp_path / "large1")
    (tmp_path / "link").symlink_to("small")
    return tmp_path


def test_every_file_has_its_digest(folder: Path) -> None:
    source = scan(os.fsencode(folder))
    sizes = {entry.path: entry.size for entry in source.tree if entry.path in source.contents}
    expected = {path: hash_content(source.contents[path], sizes[path]) for path in sizes}
    assert file_digests(source) == expected
    assert len(expected) == 6


def test_what_stops_the_caller_stops_the_threads(folder: Path) -> None:
    source = scan(os.fsencode(folder))
    stop = threading.Event()
    stop.set()
    with cancelling.by(stop), pytest.raises(InterruptedError):
        file_digests(source)
