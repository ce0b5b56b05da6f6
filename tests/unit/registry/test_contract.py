"""The contract of stores, kept by directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsec_layers.model.blobs import Store
from dsec_layers.registry.directory import DirectoryStore
from tests.support.store_contract import StoreContract


class TestDirectory(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return DirectoryStore.open(tmp_path / "store", create=True)


class TestThreeFS(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        (tmp_path / "mounted").mkdir()
        return DirectoryStore.open(tmp_path / "mounted", scheme="threefs", create=True)
