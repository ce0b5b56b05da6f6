"""Images that are fetched: side by side but few ahead, and refused before anything is fetched."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsec_layers.errors import InvalidInputError, NotFoundError
from dsec_layers.model.digest import Digest
from dsec_layers.sources.oci import fetch_image
from dsec_layers.sources.ocifetch import AHEAD, FetchedFiles
from tests.support.ocis import CONFIG, MANIFEST, Image
from tests.support.tars import archive, member


class Fake:
    """A registry that holds one image, and notes what is asked of it."""

    def __init__(self, image: Image, top: dict[str, object]) -> None:
        self.files = image.files
        self.digest = str(top["digest"])
        self.media_type = str(top["mediaType"])
        self.manifest = self.file(self.digest)
        self.streamed: list[str] = []
        self.stopped = False
        self._lock = threading.Lock()

    def file(self, digest: str) -> bytes:
        return self.files[f"blobs/sha256/{digest.removeprefix('sha256:')}"]

    def stop(self) -> None:
        self.stopped = True

    def document(self, digest: str) -> bytes:
        return self.file(digest)

    def stream(self, digest: str, size: int) -> Iterator[bytes]:
        with self._lock:
            self.streamed.append(digest)
        data = self.file(digest)
        assert len(data) == size
        yield data[: size // 2]
        yield data[size // 2 :]


def fetch(fake: Fake, spool: Path) -> list[bytes]:
    """The paths of the image."""
    told = []
    files = FetchedFiles(fake, spool, lambda done, total: told.append((done, total)))
    try:
        image = fetch_image(files, spool)
    finally:
        files.close()
    assert len({total for _, total in told}) == 1
    return [entry.path for entry in image.source.tree if entry.path]


def layers_of(fake: Fake) -> list[str]:
    found = json.loads(fake.manifest)["layers"]
    return list(dict.fromkeys(layer["digest"] for layer in found))


def made(count: int) -> list[bytes]:
    return [archive([member(f"f{number}", data=b"x" * 5000)]) for number in range(count)]


def test_layers_come_and_their_files_go(tmp_path: Path) -> None:
    image = Image()
    layers = made(10)
    fake = Fake(image, image.image([*layers, layers[3]]))  # one occurs again
    assert fetch(fake, tmp_path) == sorted(f"f{number}".encode() for number in range(10))
    assert len(fake.streamed) == 12  # the config, too
    assert all(path.name.startswith("contents-") for path in tmp_path.iterdir())


def test_only_a_few_layers_are_ahead(tmp_path: Path) -> None:
    image = Image()
    fake = Fake(image, image.image(made(10)))
    files = FetchedFiles(fake, tmp_path)
    files.open(f"blobs/sha256/{fake.digest.removeprefix('sha256:')}").close()
    for number, digest in enumerate(layers_of(fake)):
        files.open(f"blobs/sha256/{digest.removeprefix('sha256:')}").close()
        assert len(fake.streamed) <= number + 1 + AHEAD
    files.close()
    assert fake.stopped
    assert list(tmp_path.iterdir()) == []


def test_an_index_is_followed(tmp_path: Path) -> None:
    image = Image()
    here = image.image(made(2))
    attested = {"vnd.docker.reference.type": "attestation-manifest"}
    other = image.image([b"statement"], annotations=attested)
    index = {"schemaVersion": 2, "manifests": [other, here]}
    top = image.document(index, "application/vnd.oci.image.index.v1+json")
    assert fetch(Fake(image, top), tmp_path) == [b"f0", b"f1"]


def test_what_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    image = Image()
    foreign = image.image(made(2), layer_fields={"urls": ["https://example.com/x"]})
    fake = Fake(image, foreign)
    with pytest.raises(InvalidInputError, match="foreign"):
        fetch(fake, tmp_path)
    config = {"mediaType": CONFIG, "digest": f"sha256:{'0' * 64}", "size": 1 << 40}
    large = Fake(
        image, image.document({"schemaVersion": 2, "config": config, "layers": []}, MANIFEST)
    )
    with pytest.raises(InvalidInputError, match="the config of the image has"):
        fetch(large, tmp_path)
    for old in ({"schemaVersion": 1, "fsLayers": []}, {"schemaVersion": 1, "manifests": []}):
        with pytest.raises(InvalidInputError, match="schema 1"):
            fetch(Fake(image, image.document(old, MANIFEST)), tmp_path)
    assert fake.streamed == []


def test_a_layer_that_fails_is_an_error_and_ends_the_others(tmp_path: Path) -> None:
    image = Image()
    fake = Fake(image, image.image(made(6)))
    gone = layers_of(fake)[2]

    class Lossy(Fake):
        def stream(self, digest: str, size: int) -> Iterator[bytes]:
            if digest == gone:
                raise NotFoundError("gone")
            return super().stream(digest, size)

    fake.__class__ = Lossy
    with pytest.raises(NotFoundError, match="gone"):
        fetch(fake, tmp_path)
    files = FetchedFiles(fake, tmp_path)
    with pytest.raises(NotFoundError):
        files.open(f"blobs/sha256/{str(Digest.sha256(b'?')).removeprefix('sha256:')}")
    files.close()
