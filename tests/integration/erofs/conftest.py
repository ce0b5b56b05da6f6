import pytest

from tests.support.mounts import Mounts


@pytest.fixture(scope="session")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Mounts:
    return Mounts(tmp_path_factory.mktemp("mounts"))
