"""Ranges of ids: never two sandboxes with one, whoever comes and goes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.errors import OverloadedError
from dsec_runtime.resources import identities
from dsec_runtime.resources.identities import COUNT, Identities
from tests.support.profiles import fewer


@fewer
@given(steps=st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=30))
def test_ranges_never_overlap(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("ids") / "ids"
    ids, held = Identities(folder), dict[str, int]()
    for name, wants in steps:
        if wants and name not in held:
            held[name] = ids.take(name).first
        elif not wants:
            ids.release(name)
            held.pop(name, None)
        firsts = sorted(held.values())
        assert all(b - a >= COUNT for a, b in itertools.pairwise(firsts))
        assert ids.holders() == held.keys()
    again = Identities(folder)
    assert again.holders() == held.keys()
    assert again.take("new").first not in held.values()


def test_the_upper_maps_the_root_of_the_node_too(tmp_path: Path) -> None:
    identity = Identities(tmp_path / "ids").take("a")
    assert identity.layers == ((0, identity.first, COUNT),)
    assert identity.upper == ((0, identity.first, COUNT), (COUNT, 0, 1))


def test_a_claim_that_could_not_be_made_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_path: Path, _target: str) -> None:
        raise OSError(28, "no")

    ids = Identities(tmp_path / "ids")
    with monkeypatch.context() as broken:
        broken.setattr(Path, "symlink_to", fails)
        with pytest.raises(OSError, match="no"):
            ids.take("a")
    assert ids.holders() == frozenset()
    assert ids.take("b").first == identities._FIRST


def test_when_all_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "_MOST", 2)
    ids = Identities(tmp_path / "ids")
    ids.take("a")
    ids.take("b")
    with pytest.raises(OverloadedError):
        ids.take("c")
    ids.release("a")
    ids.take("c")
