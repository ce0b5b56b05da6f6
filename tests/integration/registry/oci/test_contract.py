"""The contract of stores, kept in a registry but for what no registry can do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dsec_layers.errors import ConflictError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from tests.integration.registry.oci.conftest import Open
from tests.support.oci_registry import Registry
from tests.support.store_contract import StoreContract
from tests.support.stores import put_layer


@pytest.mark.peers("docker-registry")
class TestRegistry(StoreContract):
    collected = False

    @pytest.fixture
    def store(self, open_oci: Open, registry: Registry) -> Store:
        return open_oci(registry.address)

    def test_of_many_who_swap_one_wins(self, store: Store, layer: Descriptor) -> None:
        """A registry compares nothing: several may win, and what stands is one of theirs."""
        rivals = [
            put_layer(store, Reference.parse(f"base/rival:{number}"), [b"%d" % number])
            for number in range(6)
        ]
        fresh = Reference.parse("base/debian:fresh")

        def swap(rival: Descriptor) -> bool:
            try:
                store.tag(fresh, rival, expected=None)
            except ConflictError:
                return False
            return True

        with ThreadPoolExecutor(len(rivals)) as pool:
            won = list(pool.map(swap, rivals))
        assert won[rivals.index(store.resolve(fresh))]
