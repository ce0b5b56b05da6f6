"""What is attached to a layer is found from it in every store, and goes where the layer goes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsec_layers.errors import CorruptError, NotFoundError
from dsec_layers.model.attachment import EMPTY_BLOB, Attachment
from dsec_layers.model.manifest import Descriptor
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry import transfer
from dsec_layers.registry.attachments import attachments, publish
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.failover import Failover
from tests.support.stores import put_bytes, put_environment, put_layer

BASE = Reference.parse("base/debian:12")
ENV = Reference.parse("env/demo:v1")
NOTE = "application/vnd.dsec.note.v1"


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    made = DirectoryStore.open(tmp_path / "source", create=True)
    base = put_layer(made, BASE, [b"1" * 5000])
    put_environment(made, ENV, [(Kind.BASE, str(BASE), base)])
    return made


def note(store: DirectoryStore, subject: Descriptor, text: bytes) -> Descriptor:
    return publish(store, Attachment(NOTE, subject, (Descriptor.of(text, "text/plain"),)), text)


def texts(store: DirectoryStore, subject: Descriptor) -> list[bytes]:
    return sorted(store.read(each.data[0]) for _, each in attachments(store, subject))


def test_attached_twice_found_once_and_detached(store: DirectoryStore) -> None:
    subject = store.resolve(BASE)
    assert list(store.referrers(subject)) == []
    first = note(store, subject, b"one")
    assert note(store, subject, b"one") == first
    second = note(store, subject, b"two")
    found = list(store.referrers(subject))
    assert found == sorted([first, second], key=lambda each: each.digest)
    assert list(store.referrers(store.resolve(ENV))) == []
    store.detach(subject, first)
    store.detach(subject, first)
    assert texts(store, subject) == [b"two"]
    store.detach(subject, second)
    assert list(store.referrers(subject)) == []
    assert list((store.root / "referrers").rglob("*.json")) == []


def test_the_manifest_is_one_that_a_registry_takes(store: DirectoryStore) -> None:
    subject = msgspec.structs.replace(store.resolve(BASE), annotations={"where": "here"})
    attached = note(store, subject, b"one")
    document = msgspec.json.decode(store.read(attached))
    assert document["mediaType"] == attached.media_type
    assert document["artifactType"] == attached.artifact_type == NOTE
    assert document["config"] == {
        "mediaType": "application/vnd.oci.empty.v1+json",
        "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "size": 2,
    }
    assert document["subject"]["digest"] == subject.digest
    assert "annotations" not in document["subject"]
    assert store.read(EMPTY_BLOB) == b"{}"


def test_a_copy_brings_what_is_attached_to_an_environment_and_its_layers(
    store: DirectoryStore, tmp_path: Path
) -> None:
    base, env = store.resolve(BASE), store.resolve(ENV)
    note(store, base, b"of the base")
    note(store, env, b"of the environment")
    other = DirectoryStore.open(tmp_path / "other", create=True)
    transfer.copy(ENV, store, other, metadata_only=True)
    assert texts(other, base) == [b"of the base"]
    assert texts(other, env) == [b"of the environment"]
    note(store, env, b"later")
    again = transfer.copy(ENV, store, other, metadata_only=True)
    assert texts(other, env) == [b"later", b"of the environment"]
    assert 0 < again.moved_bytes < 2000


def test_several_stores_answer_as_one(store: DirectoryStore, tmp_path: Path) -> None:
    base = store.resolve(BASE)
    other = DirectoryStore.open(tmp_path / "other", create=True)
    transfer.copy(BASE, store, other)
    both = note(store, base, b"both")
    note(other, base, b"both")
    here, there = note(store, base, b"here"), note(other, base, b"there")
    found = [each.digest for each in Failover([store, other]).referrers(base)]
    assert sorted(found) == sorted(each.digest for each in (both, here, there))


def test_what_others_attached_and_what_is_gone_is_passed_over(store: DirectoryStore) -> None:
    subject = store.resolve(BASE)
    foreign = put_bytes(store, b"not ours", "application/vnd.oci.image.manifest.v1+json")
    store.attach(subject, foreign)
    gone = note(store, subject, b"gone")
    store.delete(gone)
    assert list(attachments(store, subject)) == []
    with pytest.raises(NotFoundError):
        store.attach(subject, gone)


def test_what_is_about_something_else_is_corrupt(store: DirectoryStore) -> None:
    attached = note(store, store.resolve(ENV), b"of the environment")
    store.attach(store.resolve(BASE), attached)
    with pytest.raises(CorruptError, match="but about"):
        list(attachments(store, store.resolve(BASE)))


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b'{"mediaType":1}', b"\xff"])
def test_malformed_manifests_and_files_are_corrupt(store: DirectoryStore, data: bytes) -> None:
    subject = store.resolve(BASE)
    with pytest.raises(CorruptError):
        Attachment.decode(data)
    attached = note(store, subject, b"one")
    (file,) = (store.root / "referrers").rglob("*.json")
    file.unlink()
    file.write_bytes(data)
    with pytest.raises(CorruptError):
        list(store.referrers(subject))
    assert attached.digest.endswith(file.stem)
