"""A store in a real registry: what every store does, and what others see of it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsec_layers.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from dsec_layers.model.attachment import Attachment
from dsec_layers.model.manifest import OCI_INDEX, OCI_MANIFEST, PACK_TYPE, Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import attachments, layers, transfer
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.oci.store import OciStore
from tests.integration.registry.oci.conftest import Open
from tests.support import oci_registry
from tests.support.gateway import Asked, Gateway
from tests.support.oci_registry import Registry
from tests.support.stores import put_bytes, put_environment, put_layer

pytestmark = pytest.mark.peers("docker-registry")

DATA = bytes(range(256)) * 5000
BASE, WORK = Reference.parse("base/debian:12"), Reference.parse("workspace/a/b:v1")
ENV = Reference.parse("env/e:v1")


@pytest.fixture
def store(open_oci: Open, registry: Registry) -> OciStore:
    return open_oci(registry.address)


def put_all(store: OciStore | DirectoryStore) -> tuple[Descriptor, Descriptor, Descriptor]:
    base = put_layer(store, BASE, [b"base" * 1000, DATA])
    work = put_layer(store, WORK, [b"work" * 1000], base=base.digest)
    layers_ = [(Kind.BASE, str(BASE), base), (Kind.WORKSPACE, str(WORK), work)]
    return base, work, put_environment(store, ENV, layers_)


def fetch(address: str, path: str) -> bytes:
    """A reader of its own: plain HTTP, nothing of ours."""
    connection = http.client.HTTPConnection(address)
    connection.request("GET", path, headers={"Accept": ", ".join((OCI_MANIFEST, OCI_INDEX))})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    assert response.status == 200, (path, response.status, data)
    return data


def test_blobs_come_back_from_any_kind_of_source(store: OciStore, tmp_path: Path) -> None:
    path = tmp_path / "source"
    for number in range(4):
        data = DATA + bytes([number])
        path.write_bytes(data)
        blob = Descriptor.of(data, PACK_TYPE)
        pieces = iter([data[:7], b"", data[7:]])
        source = (data, path, pieces, path)[number]
        assert not store.has(blob)
        assert store.put(blob, source, consume=number == 3) is True
        assert store.put(blob, data) is False
        assert store.has(blob)
        assert store.read(blob) == b"".join(store.stream(blob)) == data
        assert path.exists() == (number < 3)
    empty = put_bytes(store, b"")
    assert store.read(empty) == b"".join(store.stream(empty)) == b""


def test_ranges(store: OciStore) -> None:
    blob, size = put_bytes(store, DATA), len(DATA)
    for offset, length in ((0, 0), (0, 1), (size - 1, 1), (size, 0), (4097, 8191)):
        assert store.read(blob, offset, length) == DATA[offset : offset + length]
    assert store.read(blob, 1000) == DATA[1000:]
    for offset, length in ((-1, 2), (0, size + 1), (size + 1, 0), (5, -1)):
        with pytest.raises(CorruptError):
            store.read(blob, offset, length)
    longer = Descriptor(PACK_TYPE, blob.digest, size + 10)
    assert not store.has(longer)
    for offset, length in ((0, size + 10), (size - 5, 10), (size + 2, 3)):
        with pytest.raises(CorruptError):
            store.read(longer, offset, length)


def test_what_is_not_there(store: OciStore) -> None:
    absent = Descriptor.of(b"absent", PACK_TYPE)
    manifest = Descriptor.of(b"{}", OCI_MANIFEST)
    for blob in (absent, manifest):
        assert not store.has(blob)
        with pytest.raises(NotFoundError):
            store.read(blob)
        with pytest.raises(NotFoundError):
            b"".join(store.stream(blob))
    with pytest.raises(NotFoundError):
        store.read(absent, 3, 0)
    with pytest.raises(NotFoundError):
        store.resolve(WORK)
    with pytest.raises(NotFoundError):
        store.resolve(Reference.parse(f"base/x@{absent.digest}"))
    with pytest.raises(NotFoundError):
        store.tag(WORK, manifest)
    with pytest.raises(NotFoundError):
        store.untag(WORK)
    assert list(store.tags(Kind.TOOLKIT)) == []
    store.delete(absent)


@pytest.mark.parametrize("size", [10_000, 20_000_000])
def test_another_content_is_refused_before_it_can_be_seen(store: OciStore, size: int) -> None:
    data = os.urandom(size)
    blob = Descriptor.of(data, PACK_TYPE)
    for wrong in (data[:-1], data + b"x", b"y" + data[1:]):
        with pytest.raises(CorruptError):
            store.put(blob, iter([wrong[: size // 2], wrong[size // 2 :]]))
        assert not store.has(blob)

    def failing() -> Iterator[bytes]:
        yield data[:5000]
        raise OSError("the source fails")

    with pytest.raises(StoreError, match="the source fails"):
        store.put(blob, failing())
    assert not store.has(blob)
    with pytest.raises(CorruptError):
        store.put(Descriptor.of(b"{}", OCI_MANIFEST), b"{ }")


def test_references(store: OciStore, prefix: str) -> None:
    base, work, env = put_all(store)
    assert store.resolve(WORK) == store.tagged(WORK) == work
    assert store.resolve(WORK.pinned(work.parsed_digest)) == work
    assert store.resolve(Reference(Kind.BASE, "any/name", "", base.parsed_digest)) == base
    assert store.resolve(Reference(Kind.ENV, "e", "", env.parsed_digest)) == env
    with pytest.raises(NotFoundError, match="is now"):
        store.resolve(WORK.pinned(base.parsed_digest))
    mine = [(ref, target) for ref, target in store.tags() if prefix in store.url]
    assert mine == [(BASE, base), (ENV, env), (WORK, work)]
    assert list(store.tags(Kind.ENV)) == [(ENV, env)]
    assert layers.load_environment(store, env).layers[1].digest == work.digest
    for tag in ("keep-" + "0" * 64, "sha256-" + "0" * 64):
        with pytest.raises(InvalidInputError):
            store.tag(Reference(Kind.BASE, "debian", tag), base)


def test_a_tag_goes_and_others_of_the_same_layer_stay(store: OciStore) -> None:
    base, *_ = put_all(store)
    other = Reference.parse("base/debian:latest")
    store.tag(other, base)
    store.untag(BASE)
    assert [ref for ref, _ in store.tags(Kind.BASE)] == [other]
    with pytest.raises(NotFoundError):
        store.untag(BASE)
    assert store.resolve(other) == base


def test_the_guard_of_a_tag(store: OciStore) -> None:
    base, work, _ = put_all(store)
    with pytest.raises(ConflictError):
        store.tag(BASE, work, expected=None)
    with pytest.raises(ConflictError):
        store.tag(BASE, work, expected=work)
    assert store.resolve(BASE) == base
    store.tag(BASE, work, expected=base)
    assert store.resolve(BASE) == work
    fresh = Reference.parse("base/fresh:1")
    store.tag(fresh, base, expected=None)
    assert store.resolve(fresh) == base


def test_a_tag_that_somebody_else_sets_meanwhile(
    open_oci: Open, front: Gateway, registry: Registry
) -> None:
    other = open_oci(registry.address)
    base, work, _ = put_all(other)
    store = open_oci(front.address)

    def plan(asked: Asked) -> None:
        if asked.method == "GET" and front.methods("PUT", "manifests/12$"):
            front.plan = lambda _: None
            other.tag(BASE, base)  # after our write, which the read-back then finds gone

    store.tag(BASE, base)
    front.asked.clear()
    front.plan = plan
    with pytest.raises(ConflictError, match="same moment"):
        store.tag(BASE, work, expected=base)


def test_a_shared_blob_is_kept_once(store: OciStore, registry: Registry) -> None:
    pack = os.urandom(3_000_000)
    put_layer(store, BASE, [pack])
    before = registry.stored_bytes()
    for number in range(5):
        put_layer(store, Reference.parse(f"toolkit/t{number}:1"), [pack])
    assert registry.stored_bytes() - before < 20_000


def test_no_collection_of_the_registry_takes_from_a_tagged_layer(tmp_path: Path) -> None:
    with oci_registry.running(tmp_path / "r") as registry:
        store = OciStore.open(registry.url())
        base, work, env = put_all(store)
        data = Descriptor.of(b"a signature", "text/plain")
        note = Attachment("application/vnd.dsec.signature.v1", env, (data,))
        signature = attachments.publish(store, note, b"a signature")
        config, folder = registry.config, registry.data
        store.close()
    command = ["docker-registry", "garbage-collect", "--delete-untagged", str(config)]
    subprocess.run(command, check=True, capture_output=True)
    with oci_registry.running(tmp_path / "again") as again:
        again.data.parent.joinpath("data").mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", f"{folder}/.", str(again.data)], check=True)
        for reopened in (OciStore.open(again.url()), OciStore.open(again.url())):
            for reference, target in ((BASE, base), (WORK, work), (ENV, env)):
                assert reopened.resolve(reference) == target
            local = DirectoryStore.open(tmp_path / f"copy-{id(reopened)}", create=True)
            transfer.copy(ENV, reopened, local)
            found = list(attachments.attachments(reopened, env))
            assert found == [(signature, note)]
            reopened.close()


@pytest.mark.peers("skopeo")
def test_skopeo_reads_and_copies_what_we_push(
    store: OciStore, registry: Registry, prefix: str, tmp_path: Path
) -> None:
    base, *_ = put_all(store)
    name = f"{registry.address}/{prefix}"
    raw = subprocess.run(
        ["skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{name}/base/debian:12"],
        capture_output=True,
        check=True,
    ).stdout
    assert hashlib.sha256(raw).hexdigest() == base.parsed_digest.hex
    elsewhere = f"docker://{registry.address}/elsewhere/{prefix}/base/debian:12"
    copy = ["skopeo", "copy", "--preserve-digests"]
    plain = ["--src-tls-verify=false", "--dest-tls-verify=false"]
    subprocess.run([*copy, *plain, f"docker://{name}/base/debian:12", elsewhere], check=True)
    # The copy has no common repository: what a tag leads to is found in the tag's own.
    copied = OciStore.open(f"oci+http://{registry.address}/elsewhere/{prefix}")
    local = DirectoryStore.open(tmp_path / "local", create=True)
    assert transfer.copy(BASE, copied, local).target == base
    copied.close()


def test_a_reader_of_its_own_finds_all_in_the_repository_of_the_tag(
    store: OciStore, registry: Registry, prefix: str
) -> None:
    put_all(store)
    place = f"/v2/{prefix}/env/e"
    index = json.loads(fetch(registry.address, f"{place}/manifests/v1"))
    found = 0
    for layer in index["manifests"]:
        data = fetch(registry.address, f"{place}/manifests/{layer['digest']}")
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == layer["digest"]
        manifest = json.loads(data)
        for blob in (manifest["config"], *manifest["layers"]):
            data = fetch(registry.address, f"{place}/blobs/{blob['digest']}")
            assert f"sha256:{hashlib.sha256(data).hexdigest()}" == blob["digest"]
            assert len(data) == blob["size"]
            found += 1
    assert found == 9


def test_layers_move_there_and_back(open_oci: Open, registry: Registry, tmp_path: Path) -> None:
    first = DirectoryStore.open(tmp_path / "first", create=True)
    second = DirectoryStore.open(tmp_path / "second", create=True)
    *_, env = put_all(first)
    store = open_oci(registry.address)
    sent = transfer.copy(ENV, first, store)
    assert sent.moved_bytes > len(DATA)
    assert transfer.copy(ENV, first, store).moved_bytes == 0
    assert transfer.copy(ENV, open_oci(registry.address), second).target == env
    assert sorted(blob.digest for blob in second.blobs()) == sorted(
        blob.digest for blob in first.blobs()
    )
    listed = {blob.digest for blob in store.blobs()}
    assert listed == {blob.digest for blob in first.blobs()}


def test_many_writers_at_once(open_oci: Open, registry: Registry) -> None:
    store = open_oci(registry.address)
    data = [os.urandom(100_000 + number) for number in range(6)] * 4

    def put(content: bytes) -> bytes:
        return store.read(put_bytes(store, content))

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(put, data)) == data


def test_memory_does_not_grow_with_a_blob(store: OciStore) -> None:
    piece = os.urandom(1 << 20)
    size = 120
    hasher = hashlib.sha256()
    for _ in range(size):
        hasher.update(piece)
    blob = Descriptor(PACK_TYPE, f"sha256:{hasher.hexdigest()}", size << 20)
    tracemalloc.start()
    try:
        store.put(blob, iter([piece] * size))
        assert sum(map(len, store.stream(blob))) == size << 20
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_what_refers_to_a_layer(store: OciStore) -> None:
    base, _, env = put_all(store)
    notes = []
    for number in range(3):
        data = Descriptor.of(b"%d" % number, "text/plain")
        note = Attachment("application/vnd.dsec.signature.v1", env, (data,))
        notes.append(attachments.publish(store, note, b"%d" % number))
    expected = sorted(note.digest for note in notes)
    assert [each.digest for each in store.referrers(env)] == expected
    store.attach(env, notes[0])
    assert [each.digest for each in store.referrers(env)] == expected
    assert list(store.referrers(base)) == []
    with pytest.raises(NotFoundError):
        store.attach(env, Descriptor.of(b"absent", OCI_MANIFEST))
    assert [ref for ref, _ in store.tags()] == [BASE, ENV, WORK]
    for each in notes:
        store.detach(env, each)
        store.detach(env, each)
    assert list(store.referrers(env)) == []
    assert store.has(notes[0])


def test_writers_that_attach_at_once_lose_nothing(store: OciStore) -> None:
    *_, env = put_all(store)

    def attach(number: int) -> str:
        data = Descriptor.of(b"%d" % number, "text/plain")
        note = Attachment("application/vnd.dsec.signature.v1", env, (data,))
        return attachments.publish(store, note, b"%d" % number).digest

    with ThreadPoolExecutor(3) as pool:
        digests = sorted(pool.map(attach, range(3)))
    assert [each.digest for each in store.referrers(env)] == digests


def test_a_registry_that_does_not_delete(tmp_path: Path) -> None:
    with oci_registry.running(tmp_path / "r", delete=False) as registry:
        store = OciStore.open(registry.url())
        base, *_ = put_all(store)
        with pytest.raises(StoreError, match="removes no tags"):
            store.untag(BASE)
        assert store.resolve(BASE) == base
        with pytest.raises(StoreError):
            store.delete(base)
        store.close()
