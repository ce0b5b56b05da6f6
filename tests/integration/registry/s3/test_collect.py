"""What nobody needs goes from a bucket too, and a writer that is killed leaves nothing visible."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from uuid import uuid4

import pytest

from dsec_layers.model.attachment import Attachment
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Reference
from dsec_layers.registry.attachments import publish
from dsec_layers.registry.collect import Rules, collect
from dsec_layers.registry.s3.store import S3Store
from tests.support import faultgate
from tests.support.cli import ROOT
from tests.support.closure import check_closures
from tests.support.faultgate import Fault
from tests.support.s3servers import S3Server
from tests.support.stores import put_layer

KEPT, GONE = Reference.parse("base/kept:1"), Reference.parse("base/gone:1")
AT_ONCE = Rules(grace_s=-60, keep_untagged_s=-60)  # the times of objects are whole seconds

pytestmark = pytest.mark.usefixtures("aws")


@pytest.mark.parametrize("name", ["seaweed", "rclone"])
def test_what_no_tag_leads_to_is_collected(name: str, request: pytest.FixtureRequest) -> None:
    server: S3Server = request.getfixturevalue(name)
    store = S3Store.open(server.url(f"collect/{uuid4()}"), create=True)
    signature = Descriptor.of(b"signed", "text/plain")
    layers = [put_layer(store, each, [str(each).encode()]) for each in (KEPT, GONE)]
    for layer in layers:
        publish(store, Attachment("application/vnd.dsec.test.v1", layer, (signature,)), b"signed")
    before = {blob.digest for blob in store.blobs()}
    assert collect(store, AT_ONCE).blobs == 0
    store.untag(GONE)
    assert collect(store).blobs == 0, "they are young"
    assert collect(store, AT_ONCE).blobs == 6  # pack, table, metadata, config, manifest, attached
    assert len(before) - len({blob.digest for blob in store.blobs()}) == 6
    assert check_closures(store) == [str(KEPT)]
    assert len(list(store.referrers(layers[0]))) == 1
    assert list(store.referrers(layers[1])) == []
    for folder in ("leases", "condemned", "clock"):
        assert list(store.notes(folder)) == []


def test_a_writer_that_is_killed(seaweed: S3Server) -> None:
    prefix, killed = f"collect/{uuid4()}", threading.Event()

    def complete(_count: int, line: str) -> Fault | None:
        """However late we are: its last word waits for its end, and is not heard."""
        if not (line.startswith("POST") and "uploadId=" in line):
            return None
        killed.wait(60)
        return Fault(drop=True)

    with faultgate.before(seaweed.endpoint.removeprefix("http://")) as gate:
        url = seaweed.url(prefix).replace(seaweed.endpoint, f"http://{gate.address}")
        words = [sys.executable, "-m", "tests.support.moving_much", url, "1", str(64 << 20)]
        gate.bytes_per_s, gate.plan = 32 << 20, complete
        with subprocess.Popen(words, cwd=ROOT) as child:
            while not any("partNumber=2" in each.line for each in list(gate.passed)):
                assert child.poll() is None
                time.sleep(0.01)
            child.kill()
            child.wait()
            killed.set()
    store = S3Store.open(seaweed.url(prefix))
    assert seaweed.keys(prefix) == [f"{prefix}/dsec-store.json"]
    assert len(seaweed.uploads(prefix)) == 1
    assert store.remove_stale(older_than_s=-60) == 1
    assert seaweed.uploads(prefix) == []
