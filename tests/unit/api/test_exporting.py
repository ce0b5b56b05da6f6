"""Layers and environments as images: what comes back is what went out."""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dsec_layers.api import composing, looking
from dsec_layers.api.exporting import Exported, ExportOptions, export
from dsec_layers.api.importing import import_
from dsec_layers.api.publishing import publish
from dsec_layers.api.workbench import Workbench
from dsec_layers.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from dsec_layers.exporting.compression import Compression
from dsec_layers.exporting.destination import Destination, Format
from dsec_layers.model import merge
from dsec_layers.model.content import Source
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import Healthcheck, RunConfig
from dsec_layers.model.tree import Tree
from tests.support.exports import Drawn, exportable_trees, source_of
from tests.support.packed import pack_files
from tests.support.profiles import fewest

BASE, TOOL = Reference.parse("base/b:1"), Reference.parse("toolkit/t:1")
ENV, AGAIN = Reference.parse("env/e:v1"), Reference.parse("base/again:1")
RUN = RunConfig(
    env={"PATH": "/bin", "A": "b=c"},
    workdir="/srv",
    user="1:2",
    entrypoint=("sh",),
    cmd=("-c", "x"),
    shell=("/bin/sh",),
    labels={"a": "b"},
    ports=("80/tcp",),
    volumes=("/data",),
    stop_signal="SIGINT",
    healthcheck=Healthcheck(test=("CMD", "true"), interval_ns=5, retries=2),
)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    pack_files(made, BASE, {"dir/a": b"below", "large": bytes(9000) + b"x" * 9000}, run=RUN)
    pack_files(made, TOOL, {"dir/a": b"above", "t": b"t"}, base=made.resolve(BASE))
    composing.compose(made, [BASE, TOOL], ENV)
    return made


def exported(bench: Workbench, reference: Reference, destination: str | Path) -> Exported:
    return export(bench, reference, Destination.parse(str(destination)))


def digest_of(bench: Workbench, reference: Reference) -> str:
    return looking.inspect(bench, reference).configs[0].tree_digest


def document(layout: Path, name: str) -> Any:
    path = layout / name if "." in name else layout / "blobs/sha256" / name.partition(":")[2]
    return json.loads(path.read_bytes())


@fewest
@given(exportable_trees(changes=False), exportable_trees(), exportable_trees())
def test_stacks_come_back(base: Drawn, middle: Drawn, top: Drawn) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench = Workbench(folder / "home")
        parts = [BASE, TOOL, Reference.parse("toolkit/u:1")]
        for part, drawn in zip(parts, (base, middle, top), strict=True):
            source = source_of(drawn, folder / part.name)
            publish(bench, source, part, run=RunConfig(), provenance=Provenance(), workers=1)
        composing.compose(bench, parts, ENV)
        exported(bench, ENV, folder / "out")
        import_(bench, str(folder / "out"), AGAIN)
        whole = merge.apply(merge.apply(base[0], middle[0]), top[0])
        assert digest_of(bench, AGAIN) == str(whole.digest())


@pytest.mark.parametrize("format_", Format)
@pytest.mark.parametrize("compression", [None, *Compression])
def test_every_form_comes_back(
    bench: Workbench, tmp_path: Path, format_: Format, compression: Compression | None
) -> None:
    options = ExportOptions(compression=compression)
    images, data = set(), set()
    for workers in (1, 3):
        path = tmp_path / f"out{workers}"
        options = ExportOptions(compression=compression, workers=workers)
        images.add(export(bench, BASE, Destination(format_, path), options).image_id)
        data.add(path.read_bytes() if path.is_file() else (path / "index.json").read_bytes())
    assert len(data) == 1
    assert images == {exported(bench, BASE, tmp_path / "x").image_id}
    import_(bench, str(path), AGAIN)
    assert digest_of(bench, AGAIN) == digest_of(bench, BASE)
    assert looking.inspect(bench, AGAIN).run == RUN
    assert not list(tmp_path.rglob(".dsec*"))


def test_what_an_image_says(bench: Workbench, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    row = export(
        bench,
        ENV,
        Destination.parse(f"oci:{tmp_path / 'out'}:name"),
        progress=lambda *each: told.append(each),
    )
    total = sum(len(data) for data in (b"below", b"above", b"t")) + 18_000
    assert [layer.reference for layer in row.layers] == ["base/b:1", "toolkit/t:1"]
    assert {whole for _, whole in told} == {total} == {sum(done for done, _ in told)}
    (pointer,) = document(tmp_path / "out", "index.json")["manifests"]
    assert pointer["annotations"] == {"org.opencontainers.image.ref.name": "name"}
    assert pointer["digest"] == row.digest
    manifest = document(tmp_path / "out", row.digest or "")
    assert [layer["size"] for layer in manifest["layers"]] == [
        layer.size_bytes for layer in row.layers
    ]
    config = document(tmp_path / "out", row.image_id)
    assert config["rootfs"]["diff_ids"] == [layer.diff_id for layer in row.layers]
    assert config["config"] == {
        "Env": ["A=b=c", "PATH=/bin"],
        "WorkingDir": "/srv",
        "User": "1:2",
        "Entrypoint": ["sh"],
        "Cmd": ["-c", "x"],
        "Shell": ["/bin/sh"],
        "Labels": {"a": "b"},
        "ExposedPorts": {"80/tcp": {}},
        "Volumes": {"/data": {}},
        "StopSignal": "SIGINT",
        "Healthcheck": {"Test": ["CMD", "true"], "Interval": 5, "Retries": 2},
    }
    digests = [layer.digest for layer in bench.environment(bench.resolve(ENV)).layers]
    assert [each["created_by"] for each in config["history"]] == [
        f"dsec-layers export base/b@{digests[0]}",
        f"dsec-layers export toolkit/t@{digests[1]}",
    ]
    assert {each["created"] for each in config["history"]} == {"1970-01-01T00:00:00Z"}


def test_the_time_is_that_of_the_build(bench: Workbench, tmp_path: Path) -> None:
    made = Provenance(source_date_epoch=86_400)
    publish(bench, Source(Tree.of([])), AGAIN, run=RunConfig(), provenance=made)
    row = exported(bench, AGAIN, tmp_path / "out")
    assert document(tmp_path / "out", row.image_id)["created"] == "1970-01-02T00:00:00Z"


def test_a_layout_takes_images_in(bench: Workbench, tmp_path: Path) -> None:
    layout = tmp_path / "out"
    layout.mkdir()
    exported(bench, BASE, f"oci:{layout}:one")
    index = document(layout, "index.json")
    index["manifests"].append({"digest": "sha256:0", "mediaType": "?", "size": 0, "extra": [1]})
    (layout / "index.json").write_text(json.dumps({**index, "annotations": {"a": "b"}}))
    exported(bench, ENV, f"oci:{layout}:two")
    exported(bench, TOOL, f"oci:{layout}:one")
    index = document(layout, "index.json")
    names = [each.get("annotations", {"": each.get("extra")}) for each in index["manifests"]]
    assert [next(iter(each.values())) for each in names] == [[1], "two", "one"]
    assert index["annotations"] == {"a": "b"}
    assert sorted(path.name for path in layout.iterdir()) == ["blobs", "index.json", "oci-layout"]


@pytest.mark.parametrize("place", ["out", "oci-archive:out.tar", "layout"])
def test_what_fails_leaves_nothing(
    bench: Workbench, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exported(bench, BASE, "layout")
    before = sorted(tmp_path.rglob("*"))

    def fail(done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(bench, ENV, Destination.parse(place), progress=fail)
    assert [path for path in sorted(tmp_path.rglob("*")) if "home" not in path.parts] == [
        path for path in before if "home" not in path.parts
    ]


def test_a_layout_keeps_nothing_of_what_could_not_be_added(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = tmp_path / "out"
    exported(bench, BASE, layout)
    before = sorted(layout.rglob("*"))
    rename, count = Path.rename, 0

    def fail(path: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == 2:
            raise OSError(28, "full")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="full"):
        exported(bench, ENV, f"oci:{layout}:two")
    assert count == 2
    assert sorted(layout.rglob("*")) == before


def test_what_a_killed_export_left_is_swept(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / ".dsec-export-0/layout").mkdir(parents=True)
    exported(bench, BASE, tmp_path / "out")
    assert not (tmp_path / ".dsec-export-0").exists()


def test_a_layer_that_is_there_twice_is_written_once(bench: Workbench, tmp_path: Path) -> None:
    other = Reference.parse("toolkit/other:1")
    pack_files(bench, other, {"dir/a": b"above", "t": b"t"}, base=bench.resolve(BASE))
    composing.compose(bench, [BASE, TOOL, other], ENV)
    row = exported(bench, ENV, f"docker-archive:{tmp_path / 'x.tar'}")
    assert row.layers[1].diff_id == row.layers[2].diff_id
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert len(tar.getnames()) == len(set(tar.getnames())) == 4
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        (image,) = json.load(manifest)
    assert image["RepoTags"] == ["env/e:v1"]
    assert image["Layers"][1] == image["Layers"][2]
    import_(bench, str(tmp_path / "x.tar"), AGAIN)


@pytest.mark.parametrize(
    ("name", "expected"), [("x", "x:latest"), ("h.io:5/x:2", "h.io:5/x:2"), ("a/b", "a/b:latest")]
)
def test_docker_names(bench: Workbench, tmp_path: Path, name: str, expected: str) -> None:
    assert exported(bench, BASE, f"docker-archive:{tmp_path / 'x'}:{name}").name == expected


@pytest.mark.parametrize("name", ["A", "a..b", "x:y:z", "a//b"])
def test_names_that_docker_refuses(bench: Workbench, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match="Docker takes no image"):
        exported(bench, BASE, f"docker-archive:{tmp_path / 'x'}:{name}")


def test_places_that_cannot_be(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(ConflictError, match="no OCI layout"):
        exported(bench, BASE, tmp_path / "full")
    with pytest.raises(ConflictError, match="no OCI layout"):
        exported(bench, BASE, tmp_path / "full/file")
    with pytest.raises(InvalidInputError, match="is no file"):
        exported(bench, BASE, f"oci-archive:{tmp_path / 'full'}")
    with pytest.raises(NotFoundError, match="no directory"):
        exported(bench, BASE, tmp_path / "none/out")
    with pytest.raises(NotFoundError, match="there is no env/x"):
        exported(bench, Reference.parse("env/x:1"), tmp_path / "out")


def test_an_archive_takes_the_place_of_another(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"old")
    exported(bench, BASE, tmp_path / "x.tar")
    import_(bench, str(tmp_path / "x.tar"), AGAIN)
    assert digest_of(bench, AGAIN) == digest_of(bench, BASE)
