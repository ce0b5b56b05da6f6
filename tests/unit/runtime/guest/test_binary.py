"""The agent's binary is found only when it is there and made of the sources beside it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dsec_layers.errors import CapabilityMissingError
from dsec_runtime.guest import binary, build


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(build, "BINARY", tmp_path / "dsec-agent")
    monkeypatch.setattr(binary, "path", binary.path.__wrapped__)  # asked anew each time
    return tmp_path / "dsec-agent"


def test_an_absent_one_is_a_missing_capability(place: Path) -> None:
    with pytest.raises(CapabilityMissingError, match="not built") as caught:
        binary.path()
    assert caught.value.hint is not None
    assert "dsec_runtime.guest.build" in caught.value.hint


def test_a_stale_one_is_told_from_a_fresh_one(place: Path) -> None:
    place.write_bytes(b"\x7fELF" + build.mark() + b"\0")
    assert binary.path() == place
    place.write_bytes(b"\x7fELF" + build.mark()[:-1] + b"!\0")
    with pytest.raises(CapabilityMissingError, match="other sources"):
        binary.path()


def test_the_installed_one_says_what_it_was_made_of_and_refuses_what_it_does_not_know() -> None:
    said = subprocess.run([binary.path(), "--version"], capture_output=True, check=True)
    assert said.stdout.strip() == build.mark()
    for wrong in (["--no-such"], ["word"], []):
        done = subprocess.run([binary.path(), *wrong], capture_output=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(b"dsec-agent: ") or b"no-such" in done.stderr
