"""Whatever happens to one request of a push or a pull, nothing half is ever visible.

Every request in turn is dropped, answered into the void, cut in the middle and changed on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from dsec_layers.errors import DsecError
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import transfer
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.patience import Patience
from dsec_layers.registry.s3.bucket import Bucket
from dsec_layers.registry.s3.client import make_client
from dsec_layers.registry.s3.location import Location
from dsec_layers.registry.s3.store import S3Store
from tests.support import faultgate
from tests.support.blob_contract import in_pieces
from tests.support.closure import check_closures
from tests.support.faultgate import Fault, FaultGate
from tests.support.s3servers import BUCKET, S3Server
from tests.support.stores import put_environment, put_layer

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

ENV = Reference.parse("env/demo:1")
PART_BYTES = 5 << 20  # the least that the protocol allows
PATIENT = Patience(sleep=lambda _: None)
LARGE = b"p" * (PART_BYTES + 1)
LARGE_BLOB = Descriptor.of(LARGE, PACK_TYPE)
HASTY = Patience(attempts=1, sleep=lambda _: None)
FAULTS = {
    "drop": Fault(drop=True),
    "deaf": Fault(deaf=True),
    "cut-request": Fault(cut_request=True),
    "cut-answer": Fault(cut_answer=True),
    "flip-request": Fault(flip_request=True),
    "flip-answer": Fault(flip_answer=True),
    "busy": Fault(status=503, retry_after="7"),
}


@dataclass
class Bench:
    """An environment in a local store, and a way to stores behind a gate."""

    server: S3Server
    gate: FaultGate
    local: DirectoryStore
    folder: Path
    client: S3Client

    def open(self, prefix: str, patience: Patience, *, gated: bool = True) -> S3Store:
        """A store. Its parts are small, so that a pack of a few MB takes several."""
        client = self.client if gated else self.server.client
        store = S3Store(Bucket(client, Location(BUCKET, f"{prefix}/"), patience))
        store.uploads.part_bytes = PART_BYTES
        return store

    def push(self, prefix: str, patience: Patience) -> None:
        """One thread, so that the requests have an order."""
        store = self.open(prefix, patience)
        try:
            transfer.copy(ENV, self.local, store, workers=1)
        finally:
            store.close()

    def check(self, prefix: str, *, whole: bool) -> None:
        """All that can be seen of the store is whole, and it is there when it has to be."""
        seen = self.open(prefix, PATIENT, gated=False)
        found = check_closures(seen)
        assert found in ([str(ENV)], [])
        assert not whole or found == [str(ENV)]
        seen.close()


@pytest.fixture
def bench(seaweed: S3Server, aws: None, tmp_path: Path) -> Iterator[Bench]:
    local = DirectoryStore.open(tmp_path / "local", create=True)
    base = Reference.parse("base/debian:12")
    layer = put_layer(local, base, [b"pack one", b"pack two"])
    put_environment(local, ENV, [(Kind.BASE, "debian", layer)])
    local.untag(base)
    with faultgate.before(seaweed.endpoint.removeprefix("http://")) as gate:
        location = Location.parse(f"s3://{BUCKET}?endpoint=http://{gate.address}")
        yield Bench(seaweed, gate, local, tmp_path, make_client(location))


def requests_of_upload(bench: Bench) -> int:
    bench.gate.reset()
    store = bench.open(f"faults/{uuid4()}", PATIENT)
    assert store.put(LARGE_BLOB, LARGE) is True
    store.close()
    return bench.gate.requests


@pytest.mark.parametrize(
    "name", ["drop", "deaf", "cut-request", "cut-answer", "flip-request", "busy"]
)
def test_each_request_of_an_upload_in_parts(bench: Bench, name: str) -> None:
    total = requests_of_upload(bench)
    assert total == len(("HEAD", "begin", "part", "part", "complete", "HEAD"))
    for patience in (PATIENT, HASTY):
        for number in range(1, total + 1):
            prefix = f"faults/{uuid4()}"
            store = bench.open(prefix, patience)
            bench.gate.reset(faultgate.at(number, FAULTS[name]))
            whole = True
            try:
                store.put(LARGE_BLOB, in_pieces(LARGE))
            except DsecError:
                assert patience is HASTY
                whole = False
            bench.gate.reset()
            if whole or store.has(LARGE_BLOB):
                assert store.read(LARGE_BLOB) == LARGE
            store.put(LARGE_BLOB, LARGE)
            assert store.read(LARGE_BLOB) == LARGE
            store.close()


def requests_of_push(bench: Bench) -> int:
    bench.gate.reset()
    bench.push(f"faults/{uuid4()}", PATIENT)
    return bench.gate.requests


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drop", "deaf", "cut-request", "cut-answer"])
def test_each_request_of_a_push_is_made_up_for(bench: Bench, name: str) -> None:
    total = requests_of_push(bench)
    assert total > 15
    for number in range(1, total + 1):
        prefix = f"faults/{uuid4()}"
        bench.gate.reset(faultgate.at(number, FAULTS[name]))
        bench.push(prefix, PATIENT)
        bench.check(prefix, whole=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drop", "cut-request"])
def test_a_push_that_fails_at_any_request_shows_nothing_half(bench: Bench, name: str) -> None:
    total = requests_of_push(bench)
    failed = 0
    for number in range(1, total + 1):
        prefix = f"faults/{uuid4()}"
        bench.gate.reset(faultgate.at(number, FAULTS[name]))
        try:
            bench.push(prefix, HASTY)
        except DsecError:
            failed += 1
            bench.check(prefix, whole=False)
            bench.gate.reset()
            bench.push(prefix, PATIENT)  # what is left is no obstacle
        bench.check(prefix, whole=True)
    assert failed > 5


@pytest.mark.slow
@pytest.mark.parametrize("patience", [PATIENT, HASTY], ids=["patient", "hasty"])
@pytest.mark.parametrize("name", ["drop", "cut-answer", "flip-answer"])
def test_each_request_of_a_pull(bench: Bench, name: str, patience: Patience) -> None:
    prefix = f"faults/{uuid4()}"
    bench.push(prefix, PATIENT)
    number, total = 0, 1
    while number < total:
        number += 1
        home: Store = DirectoryStore.open(bench.folder / f"home-{number}", create=True)
        bench.gate.reset(faultgate.at(number, FAULTS[name]))
        remote = bench.open(prefix, patience)
        try:
            transfer.copy(ENV, remote, home, workers=1)
        except DsecError:
            # a changed byte is a wrong digest, which nobody asks for again
            assert patience is HASTY or name == "flip-answer"
            assert check_closures(home) == []
            bench.gate.reset()
            transfer.copy(ENV, remote, home, workers=1)
        assert check_closures(home) == [str(ENV)]
        remote.close()
        total = max(total, bench.gate.requests)
    assert total > 8


@pytest.mark.parametrize("name", ["flip-request", "busy"])
def test_what_a_server_refuses_is_sent_again(bench: Bench, name: str) -> None:
    prefix, waits = f"faults/{uuid4()}", list[float]()
    bench.gate.reset(faultgate.whenever("PUT", FAULTS[name], times=2))
    bench.push(prefix, Patience(sleep=waits.append))
    bench.check(prefix, whole=True)
    assert name != "busy" or [wait >= 7 for wait in waits].count(True) == 2, "Retry-After counts"


def test_many_who_push_over_a_bad_line(bench: Bench) -> None:
    prefix = f"faults/{uuid4()}"
    bench.gate.reset(lambda number, _: Fault(drop=True) if number % 7 == 0 else None)
    with ThreadPoolExecutor(4) as pool:
        pushes = [pool.submit(bench.push, prefix, PATIENT) for _ in range(4)]
    for each in pushes:
        each.result()
    bench.check(prefix, whole=True)
    assert bench.server.uploads(prefix) == []
