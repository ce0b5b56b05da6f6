"""Registries for the tests of this folder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsec_layers.registry.oci.client import Client
from dsec_layers.registry.oci.credentials import Credentials
from dsec_layers.registry.oci.endpoint import StoreAddress
from dsec_layers.registry.oci.store import OciStore
from dsec_layers.registry.patience import Patience
from tests.support import gateway, oci_registry
from tests.support.gateway import Gateway
from tests.support.oci_registry import Registry
from tests.support.ocis import Image

Open = Callable[..., OciStore]
Put = Callable[..., str]


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that all tests share; each takes repositories of its own."""
    with oci_registry.running(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def front(registry: Registry) -> Iterator[Gateway]:
    """A gateway before it."""
    with gateway.before(registry.address) as running:
        yield running


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """A name in the registry that no other test has."""
    return f"{Path(request.path).stem}/{request.node.name.lower()}".replace("_", "-").split("[")[0]


@pytest.fixture
def waits() -> list[float]:
    """How long the stores of a test would have waited."""
    return []


@pytest.fixture
def open_oci(prefix: str, waits: list[float]) -> Iterator[Open]:
    """Opens a store of the test at an address, without waiting between attempts."""
    opened = []

    def open_(address: str, who: Credentials | None = None) -> OciStore:
        place = StoreAddress.parse(f"oci+http://{address}/{prefix}")
        client = Client(place.endpoint, patience=Patience(sleep=waits.append), find=lambda: who)
        opened.append(OciStore(place, client))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def put(registry: Registry, prefix: str, tmp_path: Path) -> Put:
    """Puts an image into the registry with skopeo; returns its name without the registry."""

    def put_(image: Image, name: str = "image:1", *options: str) -> str:
        folder = image.write(tmp_path / "layout")
        target = f"docker://{registry.address}/{prefix}/{name}"
        copy = ["skopeo", "copy", "-q", "--dest-tls-verify=false", *options]
        subprocess.run([*copy, f"oci:{folder}", target], check=True)
        return f"{prefix}/{name}"

    return put_
