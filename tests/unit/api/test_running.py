"""What is run, and by which runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dsec_layers.api import runtimes
from dsec_layers.api.running import command_words
from dsec_layers.api.runtimes import remembered_runtime, working_runtime
from dsec_layers.errors import DsecError
from dsec_layers.linux.runtime import Runtime
from dsec_layers.model.runconfig import RunConfig


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "argv", "given", "words"),
    [
        (None, ("c",), (), None, ("c",)),
        (None, ("c",), ("a", "b"), None, ("a", "b")),
        (("e", "-x"), ("c",), (), None, ("e", "-x", "c")),
        (("e",), ("c",), ("a",), None, ("e", "a")),
        (("e",), ("c",), (), ("g",), ("g",)),
        (("e",), ("c",), ("a",), ("g",), ("g", "a")),
        (("e",), ("c",), ("a",), (), ("a",)),
        (None, None, (), None, ()),
    ],
)
def test_words(
    entrypoint: tuple[str, ...] | None,
    cmd: tuple[str, ...] | None,
    argv: Sequence[str],
    given: Sequence[str] | None,
    words: tuple[str, ...],
) -> None:
    assert command_words(RunConfig(entrypoint=entrypoint, cmd=cmd), argv, given) == words


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Runtime]:
    """The runtimes that were found by trying; the program is a file of the test."""
    program = tmp_path / "runtime"
    program.write_text("one")
    found: list[Runtime] = []

    def find() -> Runtime:
        found.append(Runtime(str(program), ("prefix",)))
        return found[-1]

    monkeypatch.setattr(runtimes, "find_runtime", find)
    monkeypatch.setattr(runtimes, "require", lambda *_: None)
    return found


def test_a_runtime_is_tried_once(tmp_path: Path, tried: list[Runtime]) -> None:
    assert working_runtime(tmp_path) == working_runtime(tmp_path) == tried[0]
    assert len(tried) == 1
    with remembered_runtime(tmp_path) as runtime:
        assert runtime == tried[0]
    assert len(tried) == 1
    with pytest.raises(DsecError, match="the container"), remembered_runtime(tmp_path):
        raise DsecError("the container cannot be made")
    working_runtime(tmp_path)
    assert len(tried) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda path, _: path.joinpath("runtime").write_text("another one"),
        lambda path, _: path.joinpath("oci-runtime.json").write_text("{"),
        lambda path, _: path.joinpath("oci-runtime.json").write_text('{"program": 1}'),
        lambda _, patch: patch.setattr("dsec_layers.linux.procinfo.boot_id", lambda: "other"),
        lambda _, patch: patch.setattr("dsec_layers.linux.procinfo.mount_namespace", lambda: 7),
        lambda _, patch: patch.setattr(os, "geteuid", lambda: 7),
    ],
    ids=["program", "cut", "shape", "boot", "namespace", "user"],
)
def test_it_is_tried_again_when_something_changed(
    tmp_path: Path,
    tried: list[Runtime],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    working_runtime(tmp_path)
    change(tmp_path, monkeypatch)
    working_runtime(tmp_path)
    assert len(tried) == 2


def test_a_program_that_is_gone(tmp_path: Path, tried: list[Runtime]) -> None:
    working_runtime(tmp_path)
    (tmp_path / "runtime").unlink()
    working_runtime(tmp_path)
    assert len(tried) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path, tried: list[Runtime]) -> None:
    assert working_runtime(tmp_path / "missing") == tried[0]
