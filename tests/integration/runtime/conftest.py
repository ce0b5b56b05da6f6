"""One node, or one edge, for the tests of a file; on a node, each test's sandboxes go with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from dsec_runtime.sdk import DSecClient
from tests.support import sandboxes as support
from tests.support.edges import RealEdge, real_edge
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


@pytest.fixture(scope="module")
def edge() -> Iterator[RealEdge]:
    """A real edge; what a test makes there stays for the next, unless the test ends it."""
    with real_edge() as made:
        yield made


@pytest.fixture
async def client(edge: RealEdge) -> AsyncIterator[DSecClient]:
    """A client of it."""
    async with edge.client() as made:
        yield made
