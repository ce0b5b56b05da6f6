"""Ranges of ids: never two sandboxes with one, whoever comes and goes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsec_runtime.errors import OverloadedError
from dsec_runtime.resources import identities
from dsec_runtime.resources.identities import COUNT, Identities
from tests.support.profiles import fewer


class Userns:
    """Counts the user namespaces that are made; what it gives are descriptors of nothing."""

    def __init__(self) -> None:
        self.made: list[Sequence[tuple[int, int, int]]] = []

    def __call__(self, lines: Sequence[tuple[int, int, int]]) -> int:
        self.made.append(lines)
        return os.open("/dev/null", os.O_RDONLY)


@fewer
@given(steps=st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=30))
def test_ranges_never_overlap(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("ids") / "ids"
    ids, held = Identities(folder, open_userns=Userns()), dict[str, int]()
    for name, wants in steps:
        if wants and name not in held:
            held[name] = ids.take(name).first
        elif not wants:
            ids.release(name)
            held.pop(name, None)
        firsts = sorted(held.values())
        assert all(b - a >= COUNT for a, b in itertools.pairwise(firsts))
        assert ids.holders() == held.keys()
    ids.close()
    again = Identities(folder, open_userns=Userns())
    assert again.holders() == held.keys()
    assert again.take("new").first not in held.values()
    again.close()


def test_the_upper_maps_the_root_of_the_node_too(tmp_path: Path) -> None:
    userns = Userns()
    ids = Identities(tmp_path / "ids", open_userns=userns)
    first = ids.take("a").first
    assert userns.made == [[(0, first, COUNT)], [(0, first, COUNT), (COUNT, 0, 1)]]
    ids.close()


def test_namespaces_are_made_once_a_range(tmp_path: Path) -> None:
    userns = Userns()
    ids = Identities(tmp_path / "ids", open_userns=userns)
    ids.prepare(1)
    for name in ("a", "b", "c"):
        ids.take(name)
        ids.release(name)
    assert len(userns.made) == 2
    ids.close()


def test_a_claim_that_could_not_be_kept_is_given_back(tmp_path: Path) -> None:
    def fails(_lines: object) -> int:
        raise OSError(28, "no")

    ids = Identities(tmp_path / "ids", open_userns=fails)
    with pytest.raises(OSError, match="no"):
        ids.take("a")
    assert ids.holders() == frozenset()
    assert list((tmp_path / "ids").iterdir()) == []


def test_when_all_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "_MOST", 2)
    ids = Identities(tmp_path / "ids", open_userns=Userns())
    ids.take("a")
    ids.take("b")
    with pytest.raises(OverloadedError):
        ids.take("c")
    ids.release("a")
    ids.take("c")
    ids.close()
