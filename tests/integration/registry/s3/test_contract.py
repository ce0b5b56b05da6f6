"""The contract of stores, kept on a careful and a careless S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from dsec_layers.model.blobs import Store
from dsec_layers.registry.s3.store import S3Store
from tests.support.s3servers import S3Server
from tests.support.store_contract import StoreContract


def fresh(server: S3Server) -> Iterator[S3Store]:
    prefix = f"contract/{uuid4()}"
    store = S3Store.open(server.url(prefix), create=True)
    yield store
    store.close()
    assert server.uploads(prefix) == []


class TestSeaweedFS(StoreContract):
    @pytest.fixture
    def store(self, seaweed: S3Server, aws: None) -> Iterator[Store]:
        yield from fresh(seaweed)


class TestRclone(StoreContract):
    guards = False

    @pytest.fixture
    def store(self, rclone: S3Server, aws: None) -> Iterator[Store]:
        yield from fresh(rclone)
