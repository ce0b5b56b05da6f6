"""One node for the tests of a file; each test's sandboxes go with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import sandboxes as support
from tests.support.sandboxes import Box, Sandboxes


@pytest.fixture(scope="module")
def node_of_file() -> Iterator[Sandboxes]:
    """Do not use it in a test: what one makes stays."""
    with support.home() as home, support.opened(home) as made:
        yield made


@pytest.fixture
def boxes(node_of_file: Sandboxes) -> Iterator[Sandboxes]:
    """Makes sandboxes, which end with the test and leave nothing."""
    yield node_of_file
    names = list(node_of_file.made)
    node_of_file.destroy_all()
    assert node_of_file.left(*names) == []


@pytest.fixture
def box(boxes: Sandboxes) -> Box:
    """A running sandbox."""
    return boxes.create()
