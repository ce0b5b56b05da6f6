from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import CapabilityMissingError
from dsec_layers.linux import runtime


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    runtime.find_runtime.cache_clear()
    yield
    runtime.find_runtime.cache_clear()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", None),
        ('{"level":"warning","msg":"w"}\n', None),
        ('{"level":"error","msg":"first"}\n{"level":"error","msg":"last"}\n', "last"),
        ('not json\n{"msg":"m","level":"error"}\n{"level":"info","msg":"i"}\n[1]\n', "m"),
    ],
)
def test_the_last_error_of_a_log(tmp_path: Path, content: str, error: str | None) -> None:
    (tmp_path / "log").write_text(content)
    assert runtime.error_in_log(tmp_path / "log") == error


def test_without_a_log_there_is_no_error(tmp_path: Path) -> None:
    assert runtime.error_in_log(tmp_path / "log") is None


def test_the_first_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = runtime.Runtime("/bin/bad"), runtime.Runtime("/bin/good")
    monkeypatch.setattr(runtime, "candidates", lambda: iter([bad, good]))
    monkeypatch.setattr(runtime, "attempt", lambda it: "no" if it is bad else None)
    assert runtime.find_runtime() is good


def test_none_that_works_is_told_with_each_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "candidates", lambda: iter([runtime.Runtime("/bin/bad")]))
    monkeypatch.setattr(runtime, "attempt", lambda _: "because")
    with pytest.raises(CapabilityMissingError, match="bad: because") as raised:
        runtime.find_runtime()
    assert "apt-get install crun" in (raised.value.hint or "")


def test_none_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CapabilityMissingError, match="not installed"):
        runtime.find_runtime()
