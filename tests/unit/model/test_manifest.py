import hashlib
import json

import msgspec
import pytest

from dsec_layers.errors import CorruptError
from dsec_layers.model import canonical
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    MAX_CARRIED_BYTES,
    METADATA_TYPE,
    PACK_TYPE,
    TABLE_TYPE,
    Descriptor,
    LayerConfig,
    LayerManifest,
    Plain,
    Provenance,
    Sizes,
    decode_config,
)
from dsec_layers.model.reference import Kind
from dsec_layers.model.residue import DroppedBy, Residue
from dsec_layers.model.runconfig import RunConfig


def manifest(packs: int = 2) -> LayerManifest:
    return LayerManifest(
        config=Descriptor.of(b"{}", CONFIG_TYPE),
        metadata=Descriptor.of(b"metadata", METADATA_TYPE),
        table=Descriptor.of(b"table", TABLE_TYPE),
        packs=tuple(Descriptor.of(b"pack %d" % n, PACK_TYPE) for n in range(packs)),
    )


@pytest.mark.parametrize("packs", [0, 1, 3])
def test_a_manifest_comes_back(packs: int) -> None:
    assert LayerManifest.decode(manifest(packs).encode()) == manifest(packs)


def test_it_is_an_oci_manifest_named_by_its_bytes() -> None:
    data = manifest().encode()
    document = json.loads(data)
    assert document["schemaVersion"] == 2
    assert document["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert [layer["mediaType"] for layer in document["layers"]] == [
        METADATA_TYPE,
        TABLE_TYPE,
        PACK_TYPE,
        PACK_TYPE,
    ]
    descriptor = manifest().descriptor()
    assert descriptor.digest == "sha256:" + hashlib.sha256(data).hexdigest()
    assert descriptor.size == len(data)
    assert descriptor.parsed_digest.hex == hashlib.sha256(data).hexdigest()


def test_blobs_are_listed_in_the_order_of_a_push() -> None:
    layer = manifest()
    assert layer.blobs == (*layer.packs, layer.table, layer.metadata, layer.config)


def altered(**changes: object) -> bytes:
    return json.dumps({**json.loads(manifest().encode()), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        altered(artifactType="application/vnd.other"),
        altered(layers=[]),
        altered(layers=json.loads(manifest().encode())["layers"][::-1]),
        altered(config={"mediaType": "text/plain", "digest": "x", "size": 0}),
        altered(config={"mediaType": CONFIG_TYPE, "digest": "x", "size": "many"}),
    ],
)
def test_other_documents_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError, match="manifest"):
        LayerManifest.decode(data)


def test_a_config_comes_back() -> None:
    plain = Plain(size_bytes=1, digest="blake3:" + "0" * 64)
    config = LayerConfig(
        kind=Kind.WORKSPACE,
        name="swe/x",
        tree_digest="blake3:" + "1" * 64,
        sizes=Sizes(entries=1, files=1, content_bytes=1, device_bytes=4096, chunks=1),
        metadata=plain,
        table=plain,
        provenance=Provenance(source="Layerfile", inputs={"a": "b"}, source_date_epoch=0),
    )
    data = canonical.encode(config)
    assert decode_config(data) == config
    assert b'"kind":"workspace"' in data
    explicit = msgspec.structs.replace(config, run=RunConfig())
    assert canonical.encode(explicit) == canonical.encode(decode_config(data)) == data
    with pytest.raises(CorruptError, match="config"):
        decode_config(data.replace(b"workspace", b"workshop"))


def test_nesting_without_end_is_malformed() -> None:
    with pytest.raises(CorruptError, match="config is malformed"):
        decode_config(b'{"x":' + b"[" * 1_000_000)


def test_a_provenance_without_residue_is_written_as_before() -> None:
    """Digests of layers that exist do not change."""
    assert canonical.encode(Provenance(source="build", base="x")) == (
        b'{"base":"x","source":"build"}'
    )
    told = Provenance(residue=Residue((DroppedBy("logs", 1, 2, 3),), digest="d"))
    assert msgspec.json.decode(canonical.encode(told), type=Provenance) == told


def test_a_descriptor_can_carry_its_blob() -> None:
    bare = Descriptor.of(b"text", "text/plain")
    carrying = bare.carrying(b"text")
    assert (bare.carried, carrying.carried) == (None, b"text")
    assert carrying.alone == bare == bare.alone
    assert canonical.decode(canonical.encode(carrying), Descriptor, what="it") == carrying
    large = bytes(MAX_CARRIED_BYTES + 1)
    assert Descriptor.of(large, "text/plain").carrying(large).data == ""


@pytest.mark.parametrize("data", ["dGV4", "dGV5dA==", "dGV4d", "d\n", "\u00e4"])
def test_what_is_carried_is_checked(data: str) -> None:
    bare = Descriptor.of(b"text", "text/plain")
    assert msgspec.structs.replace(bare, data=data).carried is None
