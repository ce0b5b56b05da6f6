"""What a sandbox is shown of the machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.resources.views import Views, tell_memory
from dsec_runtime.spec import MIB
from tests.support.profiles import fewer


def test_processors(tmp_path: Path) -> None:
    views = Views(tmp_path / "views", hide=False)
    shown = {view.target: view.source for view in views.of(tmp_path, [5], 64 * MIB)}
    assert len(re.findall(r"^processor", shown["/proc/cpuinfo"].read_text(), re.MULTILINE)) == 1
    assert re.findall(r"^cpu\d*", shown["/proc/stat"].read_text(), re.MULTILINE) == ["cpu", "cpu0"]
    cpu = shown["/sys"] / "devices/system/cpu"
    assert (cpu / "online").read_text() == "0\n"
    assert [path.name for path in cpu.iterdir() if path.is_dir()] == ["cpu0"]


def test_what_tells_of_the_node_is_hidden(tmp_path: Path) -> None:
    views = Views(tmp_path / "views", hide=True).of(tmp_path, [0], 64 * MIB)
    shown = {view.target: view.source for view in views}
    assert {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/tty"} <= shown.keys()
    assert list(shown["/proc/irq"].iterdir()) == []
    assert all(Path(target).exists() for target in shown)


def test_another_process_shows_the_same_files(tmp_path: Path) -> None:
    first = Views(tmp_path / "views", hide=False).of(tmp_path, [0, 1], 64 * MIB)
    inode = (first[0].source / "devices/system/cpu/online").stat().st_ino
    again = Views(tmp_path / "views", hide=False).of(tmp_path, [0, 1], 64 * MIB)
    assert again == first
    assert (again[0].source / "devices/system/cpu/online").stat().st_ino == inode


def test_views_of_another_boot_are_removed(tmp_path: Path) -> None:
    (tmp_path / "views/old/0").mkdir(parents=True)
    Views(tmp_path / "views", hide=False)
    assert not (tmp_path / "views/old").exists()


@fewer
@given(limit=st.integers(16 * MIB, 1 << 44), used=st.integers(0, 1 << 45))
def test_memory_adds_up_and_keeps_its_length(
    tmp_path_factory: pytest.TempPathFactory, limit: int, used: int
) -> None:
    folder = tmp_path_factory.mktemp("box")
    tell_memory(folder, limit, 0)
    length = (folder / "meminfo").stat().st_size
    tell_memory(folder, limit, used)
    lines = (folder / "meminfo").read_text().splitlines()
    rows = {
        name: int(value) for name, value in (re.findall(r"(\w+): +(\d+) kB", it)[0] for it in lines)
    }
    assert rows["MemTotal"] == limit // 1024
    assert rows["MemFree"] + rows["AnonPages"] == rows["MemTotal"]
    assert (folder / "meminfo").stat().st_size == length
