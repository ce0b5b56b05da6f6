from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsec_runtime.errors import UnsupportedError
from dsec_runtime.linux import nftables
from dsec_runtime.network import capability, ruleset
from dsec_runtime.network.network import Network


def test_without_root_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(UnsupportedError, match="need root, and this runs as uid 1000"):
        Network(tmp_path)


@pytest.mark.root
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nftables, "_LIBRARY", "libnftables.so.0")

    error = capability.missing()

    assert error is not None
    assert error.message == "libnftables.so.0 is not installed"
    assert "libnftables1" in (error.hint or "")


@pytest.mark.root
def test_a_kernel_that_lacks_something_is_told_by_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ruleset, "router", lambda *_: "add rule inet none none frobnicate")

    error = capability.missing()

    assert error is not None
    assert "frobnicate" in error.message


@pytest.mark.root
def test_a_check_leaves_the_machine_as_it_was() -> None:
    before = Path("/proc/net/dev").read_text().count("\n")

    assert capability.missing() is None

    assert Path("/proc/net/dev").read_text().count("\n") == before
