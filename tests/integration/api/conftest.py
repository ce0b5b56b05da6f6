"""The command line over a home of its own, and images mounted for a block."""

import pytest

from tests.support.cli import bare, base_store, cli
from tests.support.mounts import Mounts

__all__ = ["bare", "base_store", "cli"]


@pytest.fixture(scope="session")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Mounts:
    return Mounts(tmp_path_factory.mktemp("mounts"))
