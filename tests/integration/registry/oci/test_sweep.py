"""Whatever happens to one request to a registry, a push or a pull is whole or nothing is visible.

Each request in turn is dropped, answered into the void, and cut in the middle, as is its answer.
A share of these mishaps is tried every day; the nightly profile tries all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsec_layers.api import composing
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import DsecError
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.blobs import Store
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry import attachments, transfer
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.oci.client import Client
from dsec_layers.registry.oci.endpoint import StoreAddress
from dsec_layers.registry.oci.store import OciStore
from dsec_layers.registry.patience import Patience
from tests.support import faultgate, oci_registry
from tests.support.closure import check_closures
from tests.support.faultgate import Fault, FaultGate
from tests.support.oci_registry import Registry
from tests.support.packed import pack_files
from tests.support.profiles import NIGHTLY

pytestmark = [pytest.mark.peers("docker-registry"), pytest.mark.timeout(900 if NIGHTLY else 120)]

BASE, ENV = Reference.parse("base/b:1"), Reference.parse("env/e:1")
SHARE = 7  # of all mishaps every seventh, so that each request has its turn, and each kind
PATIENT = Patience(sleep=lambda _: None)
HASTY = Patience(attempts=1, sleep=lambda _: None)
FAULTS = {
    "drop": Fault(drop=True),
    "deaf": Fault(deaf=True),
    "cut-request": Fault(cut_request=True),
    "cut-answer": Fault(cut_answer=True),
}

each_patience = pytest.mark.parametrize("patience", [PATIENT, HASTY], ids=["patient", "hasty"])


def mishaps(gate: FaultGate, patience: Patience) -> list[tuple[int, str]]:
    """What can happen to each of the requests that have passed, counted from 1, or a share of it.

    Only what has a body can be cut.
    """
    found = []
    for number, passed in enumerate(gate.passed, start=1):
        found += [(number, "drop"), (number, "deaf")]
        found += [(number, "cut-request")] * bool(passed.sent_bytes)
        found += [(number, "cut-answer")] * bool(passed.received_bytes)
    return found if NIGHTLY else found[3 * (patience is HASTY) :: SHARE]


@dataclass
class Bench:
    """A signed environment of a layer in a local store, and a registry behind a gate."""

    registry: Registry
    gate: FaultGate
    local: DirectoryStore
    target: Descriptor

    def copy(self, source: Store, destination: Store) -> None:
        """One thread, so that the requests have an order; only what is mounted has none."""
        try:
            transfer.copy(ENV, source, destination, workers=1)
        finally:
            for store in (source, destination):
                if isinstance(store, OciStore):
                    store.close()

    def remote(self, prefix: object, patience: Patience = PATIENT) -> OciStore:
        """A store behind the gate."""
        place = StoreAddress.parse(f"oci+http://{self.gate.address}/{prefix}")
        return OciStore(place, Client(place.endpoint, patience=patience, find=lambda: None))

    def whole(self, store: Store) -> bool:
        """Whether the environment is there; what is visible is read to the last byte."""
        found = check_closures(store)
        assert found in ([str(ENV)], [])
        if found:
            assert store.resolve(ENV) == self.target
            assert len(list(attachments.attachments(store, self.target))) == 1
        return bool(found)

    def whole_at(self, prefix: object) -> bool:
        """The same of a store in the registry, past the gate."""
        store = OciStore.open(self.registry.url(str(prefix)))
        try:
            return self.whole(store)
        finally:
            store.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """The registry is the test's own: hundreds of repositories would slow its lists for others."""
    work = Workbench(tmp_path / "home")
    pack_files(work, BASE, {"base": b"base" * 1000})
    composing.compose(work, [BASE], ENV)
    target = work.local.resolve(ENV)
    signature = Descriptor.of(b"a signature", "text/plain")
    note = Attachment("application/vnd.dsec.signature.v1", target, (signature,))
    attachments.publish(work.local, note, b"a signature")
    with (
        oci_registry.running(tmp_path / "registry") as registry,
        faultgate.before(registry.address) as gate,
    ):
        yield Bench(registry, gate, work.local, target)


@pytest.mark.slow
@each_patience
def test_each_request_of_a_push(bench: Bench, patience: Patience) -> None:
    bench.copy(bench.local, bench.remote("count"))
    assert bench.gate.requests > 40
    failed = set()
    for number, name in mishaps(bench.gate, patience):
        prefix = f"push-{number}-{name}"
        bench.gate.reset(faultgate.at(number, FAULTS[name]))
        try:
            bench.copy(bench.local, bench.remote(prefix, patience))
        except DsecError:
            assert patience is HASTY, (number, name)
            failed.add(name)
            bench.whole_at(prefix)
            bench.gate.reset()
            bench.copy(bench.local, bench.remote(prefix))  # what is left is no obstacle
        assert bench.whole_at(prefix), (number, name)
    assert patience is PATIENT or {"drop", "deaf"} <= failed


@each_patience
def test_each_request_of_a_pull(bench: Bench, patience: Patience, tmp_path: Path) -> None:
    bench.copy(bench.local, bench.remote("pull"))
    bench.gate.reset()
    bench.copy(bench.remote("pull"), DirectoryStore.open(tmp_path / "count", create=True))
    assert bench.gate.requests > 10
    failed = set()
    for number, name in mishaps(bench.gate, patience):
        home = DirectoryStore.open(tmp_path / f"home-{number}-{name}", create=True)
        bench.gate.reset(faultgate.at(number, FAULTS[name]))
        try:
            bench.copy(bench.remote("pull", patience), home)
        except DsecError:
            assert patience is HASTY, (number, name)
            assert not bench.whole(home), (number, name)
            failed.add(name)
            bench.gate.reset()
            bench.copy(bench.remote("pull"), home)
        assert bench.whole(home), (number, name)
    assert patience is PATIENT or {"drop", "deaf"} <= failed
