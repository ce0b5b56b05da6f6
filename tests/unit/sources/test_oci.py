import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from dsec_layers.errors import CorruptError, InvalidInputError, NotFoundError
from dsec_layers.linux.machine import oci_architecture
from dsec_layers.model.runconfig import Healthcheck, RunConfig
from dsec_layers.sources.oci import OciImage, find_image, image_in, read_image
from tests.support.ocis import CONFIG, INDEX, LAYER, Image, Json, docker_archive, files_archive
from tests.support.tars import archive, contents, member
from tests.support.tars import read as read_tar

LAYERS = [
    archive([member("a", data=b"1"), member("gone", data=b"1")]),
    archive([member("b", data=b"2"), member(".wh.gone")]),
]
SHOWN = {b"a": b"1", b"b": b"2"}
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar"


@pytest.fixture
def image() -> Image:
    return Image()


def read(folder: Path, image: Image, reference: str | None = None) -> OciImage:
    layout = image.write(folder / "layout")
    return read_image(layout, folder / "spool", reference=reference)


def test_layers_are_folded_to_one_base(tmp_path: Path, image: Image) -> None:
    image.manifests.append(image.image(LAYERS))
    assert contents(read(tmp_path, image).source) == SHOWN


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_archive_is_read_like_a_directory(
    tmp_path: Path, image: Image, pack: Callable[[bytes], bytes]
) -> None:
    image.manifests.append(image.image(LAYERS))
    path = tmp_path / "image.tar"
    path.write_bytes(pack(image.archive()))
    found = read_image(path, tmp_path / "spool")
    assert contents(found.source) == SHOWN
    assert found.digest == read(tmp_path, image).digest


@pytest.mark.parametrize(
    ("pack", "layer_type"),
    [
        (bytes, LAYER),
        (gzip.compress, LAYER + "+gzip"),
        (zstandard.compress, LAYER + "+zstd"),
        (bytes, DOCKER_LAYER),
        (gzip.compress, DOCKER_LAYER + ".gzip"),
        (zstandard.compress, DOCKER_LAYER + ".zstd"),
    ],
)
def test_layers_of_all_types_are_read(
    tmp_path: Path, image: Image, pack: Callable[[bytes], bytes], layer_type: str
) -> None:
    image.manifests.append(image.image(LAYERS, pack=pack, layer_type=layer_type))
    assert contents(read(tmp_path, image).source) == SHOWN


@pytest.mark.parametrize(
    ("layer_type", "fields", "match"),
    [
        ("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", {}, "foreign"),
        ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", {}, "foreign"),
        (LAYER, {"urls": ["https://example.com/layer"]}, "foreign"),
        (LAYER + "+gzip+encrypted", {}, "unknown type"),
        ("text/plain", {}, "unknown type"),
    ],
)
def test_foreign_and_unknown_layers_are_refused_by_name(
    tmp_path: Path, image: Image, layer_type: str, fields: Json, match: str
) -> None:
    image.manifests.append(image.image(LAYERS, layer_type=layer_type, layer_fields=fields))
    digest = hashlib.sha256(LAYERS[0]).hexdigest()
    with pytest.raises(InvalidInputError, match=f"sha256:{digest}.*{match}"):
        read(tmp_path, image)


def platform(architecture: str, system: str = "linux") -> Json:
    return {"architecture": architecture, "os": system}


def test_the_image_for_this_machine_is_taken_and_attestations_are_skipped(
    tmp_path: Path, image: Image
) -> None:
    mine = platform(oci_architecture())
    other = archive([member("other")])
    attestation = {"vnd.docker.reference.type": "attestation-manifest"}
    index = {
        "schemaVersion": 2,
        "manifests": [
            image.image([other], architecture="s390x", platform=platform("s390x")),
            image.image([other], platform=platform(oci_architecture(), "windows")),
            image.image([other], annotations=attestation, platform=mine),
            image.image([other], platform=platform("unknown", "unknown")),
            image.image(LAYERS, platform=mine),
        ],
    }
    image.manifests.append(image.document(index, INDEX))
    assert contents(read(tmp_path, image).source) == SHOWN


def test_no_image_for_this_machine_lists_what_there_is(tmp_path: Path, image: Image) -> None:
    image.manifests.append(image.image(LAYERS, platform=platform("s390x")))
    with pytest.raises(InvalidInputError, match="no image") as raised:
        read(tmp_path, image)
    assert "s390x" in (raised.value.hint or "")


def test_a_config_for_another_machine_is_refused(tmp_path: Path, image: Image) -> None:
    image.manifests.append(image.image(LAYERS, architecture="s390x"))
    with pytest.raises(InvalidInputError, match="linux/s390x"):
        read(tmp_path, image)


def test_one_of_several_is_named_by_reference(tmp_path: Path, image: Image) -> None:
    for tag, layers in (("v1", LAYERS[:1]), ("v2", LAYERS)):
        name = {"org.opencontainers.image.ref.name": f"example.com/x:{tag}"}
        image.manifests.append(image.image(layers, annotations=name))
    with pytest.raises(InvalidInputError, match="several") as raised:
        read(tmp_path, image)
    assert "example.com/x:v1" in (raised.value.hint or "")
    assert contents(read(tmp_path, image, "v2").source) == SHOWN
    assert b"gone" in contents(read(tmp_path, image, "example.com/x:v1").source)
    with pytest.raises(InvalidInputError, match="'v3'"):
        read(tmp_path, image, "v3")


def test_the_same_image_under_two_names_is_one(tmp_path: Path, image: Image) -> None:
    pointer = image.image(LAYERS)
    image.manifests += [pointer, {**pointer, "annotations": {"io.containerd.image.name": "y"}}]
    assert contents(read(tmp_path, image).source) == SHOWN


def test_the_run_configuration(tmp_path: Path, image: Image) -> None:
    run: Json = {
        "Env": ["PATH=/bin:/usr/bin", "EMPTY=", "EQ=a=b"],
        "WorkingDir": "/w",
        "User": "1000:1000",
        "Entrypoint": ["/init"],
        "Cmd": ["a", "b"],
        "Shell": ["/bin/bash", "-c"],
        "Labels": {"k": "v"},
        "ExposedPorts": {"80/tcp": {}, "53/udp": {}},
        "Volumes": {"/data": {}},
        "StopSignal": "SIGINT",
        "Healthcheck": {"Test": ["CMD", "a"], "Interval": 5, "Retries": 3},
    }
    image.manifests.append(image.image(LAYERS, run=run))
    assert read(tmp_path, image).run == RunConfig(
        env={"PATH": "/bin:/usr/bin", "EMPTY": "", "EQ": "a=b"},
        workdir="/w",
        user="1000:1000",
        entrypoint=("/init",),
        cmd=("a", "b"),
        shell=("/bin/bash", "-c"),
        labels={"k": "v"},
        ports=("53/udp", "80/tcp"),
        volumes=("/data",),
        stop_signal="SIGINT",
        healthcheck=Healthcheck(test=("CMD", "a"), interval_ns=5, retries=3),
    )


@pytest.mark.parametrize(
    "run",
    [
        None,
        {},
        {"Env": None, "Cmd": [], "WorkingDir": "", "User": ""},
        {"ExposedPorts": None, "Volumes": {}, "StopSignal": "", "Healthcheck": {"Test": []}},
    ],
)
def test_a_configuration_without_wishes(tmp_path: Path, image: Image, run: Json | None) -> None:
    image.manifests.append(image.image(LAYERS, run=run))
    assert read(tmp_path, image).run == RunConfig()


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"\1"])
def test_every_blob_is_checked(
    tmp_path: Path, image: Image, damage: Callable[[bytes], bytes]
) -> None:
    image.manifests.append(image.image(LAYERS))
    whole = dict(image.files)
    for name, data in whole.items():
        image.files = {**whole, name: damage(data)}
        with pytest.raises(CorruptError, match=name.rpartition("/")[2]):
            read(tmp_path, image)


def test_a_missing_blob_is_not_found(tmp_path: Path, image: Image) -> None:
    image.manifests.append(image.image(LAYERS))
    for name in list(image.files):
        folder = tmp_path / name.rpartition("/")[2]
        (image.write(folder / "layout") / name).unlink()
        with pytest.raises(NotFoundError, match=name):
            read_image(folder / "layout", tmp_path / "spool")


def test_what_is_no_image_is_refused(tmp_path: Path, image: Image) -> None:
    (tmp_path / "x.tar").write_bytes(archive([member("etc/passwd")]))
    for path in (tmp_path, tmp_path / "x.tar"):
        with pytest.raises(InvalidInputError, match="not an OCI image"):
            read_image(path, tmp_path / "spool")
    with pytest.raises(NotFoundError):
        read_image(tmp_path / "none", tmp_path / "spool")
    artifact = {"schemaVersion": 2, "config": image.document({}, "text/x"), "layers": []}
    image.manifests.append(image.document(artifact, CONFIG))
    with pytest.raises(InvalidInputError, match="text/x"):
        read(tmp_path, image)


@pytest.mark.parametrize("digest", ["sha256:../../etc/passwd", "sha512:" + "0" * 128, "x", ""])
def test_strange_digests_are_refused(tmp_path: Path, image: Image, digest: str) -> None:
    image.manifests.append({"mediaType": INDEX, "digest": digest, "size": 1})
    with pytest.raises(InvalidInputError, match="digest"):
        read(tmp_path, image)


def saved(folder: Path, data: bytes) -> Path:
    path = folder / "saved.tar"
    path.write_bytes(data)
    return path


def test_a_docker_archive(tmp_path: Path) -> None:
    data = docker_archive([*LAYERS, LAYERS[0]])
    found = read_image(saved(tmp_path, data), tmp_path / "spool")
    assert contents(found.source) == {**SHOWN, b"gone": b"1"}
    assert found.run == RunConfig(cmd=("sh",))


def test_a_docker_archive_is_checked_against_its_config(tmp_path: Path) -> None:
    data = bytearray(docker_archive(LAYERS))
    data[data.index(LAYERS[1]) + 512] ^= 1  # the one byte of file b
    with pytest.raises(CorruptError, match="digest"):
        read_image(saved(tmp_path, bytes(data)), tmp_path / "spool")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b"])
def test_names_in_a_docker_manifest_stay_inside(tmp_path: Path, name: str) -> None:
    manifest: list[Json] = [{"Config": name, "RepoTags": None, "Layers": []}]
    data = files_archive({"manifest.json": json.dumps(manifest).encode()})
    with pytest.raises(InvalidInputError, match="outside"):
        read_image(saved(tmp_path, data), tmp_path / "spool")


def test_several_images_in_a_docker_archive_need_a_reference(tmp_path: Path) -> None:
    one = {"Config": "c", "RepoTags": ["x:1"], "Layers": []}
    data = json.dumps([one, {**one, "RepoTags": ["x:2"]}]).encode()
    path = saved(tmp_path, files_archive({"manifest.json": data}))
    with pytest.raises(InvalidInputError, match="several") as raised:
        read_image(path, tmp_path / "spool")
    assert raised.value.hint == "there are: x:1, x:2"


@pytest.mark.parametrize("is_docker", [False, True])
def test_an_image_that_was_read_as_a_tree(tmp_path: Path, image: Image, is_docker: bool) -> None:
    """Such as it comes through a pipe; large zeros are not in the spool."""
    layer = archive([member("z", data=bytes(300_000) + b"end" + bytes(300_000))])
    image.manifests = [image.image([layer])]
    data = docker_archive([layer, layer]) if is_docker else image.archive()
    found = image_in(read_tar(data, tmp_path), tmp_path)
    assert found is not None
    assert contents(found.source) == {b"z": bytes(300_000) + b"end" + bytes(300_000)}


@pytest.mark.parametrize("name", ["index.json", "manifest.json", "oci-layout"])
def test_a_root_file_system_with_the_files_of_a_web_application(tmp_path: Path, name: str) -> None:
    data = archive([member(name, data=b' {"name": "app"}'), member("f")])
    assert image_in(read_tar(data, tmp_path), tmp_path) is None
    (tmp_path / "tar").write_bytes(data)
    assert find_image(tmp_path / "tar", tmp_path) is None
