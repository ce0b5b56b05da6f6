"""A build in which nothing has changed packs nothing, unless its layer is no longer whole."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dsec_layers.api import building, publishing
from dsec_layers.api.buildrequests import BuildOptions
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from dsec_layers.registry import layers
from dsec_layers.registry.collect import Rules, collect

pytestmark = [pytest.mark.root, pytest.mark.overlay, pytest.mark.oci]


@dataclass
class Project:
    """A context of one file, and builds of it."""

    folder: Path
    bench: Workbench

    def build(self, reference: str = "base/x:v1", **options: object) -> tuple[str, int]:
        """The digest of the layer, and how many bytes were packed for it."""
        packed: list[int] = []
        row = building.build(
            self.bench,
            self.folder,
            Reference.parse(reference),
            BuildOptions(layerfile=self.folder / "Dockerfile", **options),  # type: ignore[arg-type]
            on_bytes=packed.append,
        )
        return row.digest, sum(packed)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY file /file\nENV A=b\n")
    (folder / "file").write_text("content")
    return Project(folder, Workbench(tmp_path / "home"))


def test_nothing_is_packed_again(project: Project) -> None:
    digest, packed = project.build()
    assert packed == 7
    assert project.build() == (digest, 0)
    assert project.build("base/x:v2") == (digest, 0)


def test_what_the_layer_depends_on_is_looked_at(project: Project) -> None:
    digests = [project.build()[0], project.build("base/y:v1")[0], project.build(epoch_s=5)[0]]
    (project.folder / "Dockerfile").write_text("FROM scratch\nCOPY file /file\nENV A=c\n")
    digests.append(project.build()[0])
    (project.folder / "file").write_text("changed")
    digests.append(project.build()[0])
    assert len(set(digests)) == 5


def test_every_step_anew_packs_anew(project: Project) -> None:
    digest, _ = project.build(epoch_s=5)
    assert project.build(epoch_s=5, no_cache=True) == (digest, 7)


def test_a_layer_that_is_not_whole_is_packed_again(project: Project) -> None:
    digest, _ = project.build()
    store = project.bench.local
    for blob in list(store.blobs()):
        kept = {each.digest: store.read(each) for each in store.blobs()}
        store.delete(blob)
        assert project.build() == (digest, 7)
        assert {each.digest: store.read(each) for each in store.blobs()} == kept


def test_a_collector_without_grace_takes_nothing_from_a_build_that_packs_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tag leads to the layer that the build has found: only its lease keeps it."""
    digest, _ = project.build()
    store = project.bench.local
    store.untag(Reference.parse("base/x:v1"))
    blobs = {blob.digest for blob in store.blobs()}
    tagged = publishing.tagged

    def late(*args: Any) -> object:
        assert collect(store, Rules(grace_s=-1)).blobs == 0
        return tagged(*args)

    with monkeypatch.context() as patch:
        patch.setattr(building, "tagged", late)
        assert project.build() == (digest, 0)
    found = layers.load_layer(store, store.resolve(Reference.parse("base/x:v1")))
    for blob in found.manifest.blobs:
        assert store.read(blob) == b"".join(store.stream(blob))
    store.untag(Reference.parse("base/x:v1"))
    assert collect(store, Rules(grace_s=-1)).blobs == len(blobs), "its lease has ended"


def test_a_damaged_record_is_none(project: Project) -> None:
    digest, _ = project.build()
    for record in (project.bench.home.builder / "layers").iterdir():
        record.write_bytes(b"{")
    assert project.build() == (digest, 7)


def test_a_change_gives_the_layer_that_a_fresh_machine_makes(
    project: Project, tmp_path: Path
) -> None:
    for number in range(3):
        (project.folder / f"file{number}").write_bytes(os.urandom(300_000))
    (project.folder / "Dockerfile").write_text("FROM scratch\nCOPY . /all\n")
    project.build(epoch_s=5)
    (project.folder / "file1").write_text("changed")
    elsewhere = Project(project.folder, Workbench(tmp_path / "elsewhere"))
    assert project.build(epoch_s=5) == elsewhere.build(epoch_s=5)
