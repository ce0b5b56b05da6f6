"""User namespaces are used again while they are kept, and no descriptor of one is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_runtime.linux.userns import Lines, UserNamespaces

pytestmark = pytest.mark.root

MAPS: list[Lines] = [((0, 100000 * number, 10),) for number in (1, 2, 3)]


@pytest.fixture
def kept() -> Iterator[UserNamespaces]:
    before = _held()
    made = UserNamespaces(2)
    yield made
    made.close()
    assert _held() == before


def which(kept: UserNamespaces, lines: Lines) -> int:
    with kept.of(lines) as fd:
        return os.fstat(fd).st_ino


def test_the_same_map_is_the_same_namespace(kept: UserNamespaces) -> None:
    first, second = (which(kept, lines) for lines in MAPS[:2])
    assert first != second
    assert [which(kept, lines) for lines in MAPS[:2]] == [first, second]


def test_the_one_used_longest_ago_goes(kept: UserNamespaces) -> None:
    for lines in MAPS:
        which(kept, lines)
    assert len(_held()) == 2


def test_two_at_once(kept: UserNamespaces) -> None:
    with kept.of(MAPS[0]) as one, kept.of(MAPS[0]) as other:
        assert one != other
        kept.close()
        assert os.fstat(one).st_nlink == os.fstat(other).st_nlink == 1  # both are open still


def _held() -> list[str]:
    """The descriptors of user namespaces that this process has."""
    links = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(path))
        except FileNotFoundError:  # of the folder that is being read
            continue
    return sorted(link for link in links if link.startswith("user:"))
