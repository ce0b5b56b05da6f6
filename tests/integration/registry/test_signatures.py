"""Signatures in stores of every kind: found, copied, asked for, and gone with what they sign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.api import composing, keys, moving
from dsec_layers.api.collecting import gc
from dsec_layers.api.signatures import list_signatures, sign
from dsec_layers.api.trust import Trust
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import NotFoundError, SignatureError
from dsec_layers.model.reference import Reference
from dsec_layers.registry.collect import Rules
from dsec_layers.registry.urls import open_store
from tests.support import oci_registry, s3servers
from tests.support.packed import pack_files

BASE, TOOL, ENV = map(Reference.parse, ("base/b:1", "toolkit/t:1", "env/e:1"))
NOW = Rules(grace_s=0)


@pytest.fixture(
    params=["dir", "s3", pytest.param("oci", marks=pytest.mark.peers("docker-registry"))]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store of each kind."""
    if request.param == "dir":
        yield f"dir://{tmp_path}/store"
    elif request.param == "s3":
        (tmp_path / "s3").mkdir()
        with s3servers.seaweed(tmp_path / "s3") as server, s3servers.credentials():
            yield server.url("signed/store")
    else:
        with oci_registry.running(tmp_path / "registry") as registry:
            yield f"oci+http://{registry.address}/signed"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"a": b"a"})
    pack_files(made, TOOL, {"b": b"b"}, base=made.resolve(BASE))
    composing.compose(made, [BASE, TOOL], ENV)
    return made


def test_from_store_to_store(bench: Workbench, url: str, tmp_path: Path) -> None:
    pair = keys.generate(tmp_path / "release")
    private = keys.load_private(Path(pair.private), lambda: None)
    trust = Trust.of([Path(pair.public)])
    moving.push(bench, ENV, url)
    there = Workbench(tmp_path / "there", [url], trust)
    with pytest.raises(SignatureError, match="has no signature"):
        there.stack(ENV)
    sign(bench, ENV, private)
    moving.push(bench, ENV, url)
    assert len(there.stack(ENV).layers) == 2
    signed = sign(bench, BASE, private, stores=[url])
    listed = open_store(url).referrers(bench.resolve(BASE))
    assert [each.digest for each in listed] == [signed.signature]
    for reference in (BASE, TOOL):
        moving.push(bench, reference, url)
    assert [row.key_id for row in list_signatures(there, BASE)] == [pair.key_id]
    fresh = Workbench(tmp_path / "fresh", [url], trust)
    moving.pull(fresh, ENV)
    moving.pull(fresh, BASE)
    alone = Workbench(tmp_path / "fresh", [], trust)
    assert alone.stack(ENV)
    assert alone.stack(BASE)
    with pytest.raises(SignatureError):
        there.stack(TOOL)


def test_collection_keeps_a_signature_as_long_as_what_it_signs(
    bench: Workbench, tmp_path: Path
) -> None:
    pair = keys.generate(tmp_path / "release")
    private = keys.load_private(Path(pair.private), lambda: None)
    signed = sign(bench, ENV, private)
    subject = bench.resolve(ENV)
    gc(bench, rules=NOW)
    bench.trust = Trust.of([Path(pair.public)])
    assert bench.stack(ENV)
    bench.local.untag(ENV)
    gc(bench, rules=NOW)
    assert list(bench.local.referrers(subject)) == []
    assert signed.signature not in {blob.digest for blob in bench.local.blobs()}
    with pytest.raises(NotFoundError):
        bench.resolve(ENV.pinned(subject.parsed_digest))
