"""What every store must do, whatever is behind it.

A module of tests inherits `StoreContract` and gives a fixture `store`: an empty store. It sets
`guards` to False where compare and swap is refused, and `collected` to False where blobs cannot be
listed because the store collects by itself.
"""

from __future__ import annotations

import pytest

from dsec_layers.errors import NotFoundError
from dsec_layers.model.blobs import Store
from dsec_layers.model.collecting import Collectable
from dsec_layers.model.manifest import Descriptor
from tests.support.blob_contract import BLOB, BlobContract
from tests.support.reference_contract import ReferenceContract


class StoreContract(BlobContract, ReferenceContract):
    """Inherit and give the fixture `store`."""

    def test_notes_and_times(self, store: Store, layer: Descriptor) -> None:
        if not self.collected:
            pytest.skip("this store collects by itself")
        assert isinstance(store, Collectable)
        assert list(store.notes("leases")) == []
        store.write_note("leases/one", b"1")
        store.write_note("leases/one", b"2")
        store.write_note("condemned/two", b"")
        (note,) = store.notes("leases")
        assert note.name == "leases/one"
        assert store.read_note("leases/one") == b"2"
        store.renew(layer)
        assert store.renewed(layer) >= note.modified_s - 2  # whole seconds, rounded either way
        for _ in range(2):
            store.remove_note("leases/one")
        assert list(store.notes("leases")) == []
        with pytest.raises(NotFoundError):
            store.read_note("leases/one")
        for ask in (store.renew, store.renewed):
            with pytest.raises(NotFoundError):
                ask(BLOB)

    def test_its_url_says_what_it_is(self, store: Store) -> None:
        assert "://" in store.url
