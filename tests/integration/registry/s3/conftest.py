"""S3 servers, started when the first test needs one."""

from collections.abc import Iterator

import pytest

from tests.support import s3servers
from tests.support.cli import bare, base_store
from tests.support.s3servers import S3Server

__all__ = ["bare", "base_store"]


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3servers.seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3servers.rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture
def aws() -> Iterator[None]:
    """The environment of a user with credentials."""
    with s3servers.credentials():
        yield
