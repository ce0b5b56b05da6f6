from __future__ import annotations

from collections.abc import Iterator

import pytest

from dsec_layers.errors import CapabilityMissingError
from dsec_layers.linux import runtime, syscalls
from dsec_layers.linux.capabilities import Capability, missing, require


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    missing.cache_clear()
    runtime.find_runtime.cache_clear()
    yield
    missing.cache_clear()


@pytest.mark.parametrize("capability", Capability)
def test_every_capability_has_a_check_a_hint_and_a_marker(
    capability: Capability, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError("not permitted")

    monkeypatch.setattr(syscalls, "fsopen", refuse)
    error = missing(capability)
    assert error is not None
    assert error.hint
    with pytest.raises(CapabilityMissingError):
        require(capability)
    markers = [line.partition(":")[0] for line in pytestconfig.getini("markers")]
    assert capability.value in markers


def test_a_user_without_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    error = missing(Capability.ROOT)
    assert error is not None
    assert "uid 1000" in error.message
    assert "root" in (error.hint or "")


def test_the_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    first = missing(Capability.ROOT)
    monkeypatch.undo()
    assert missing(Capability.ROOT) is first
