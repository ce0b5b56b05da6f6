"""A reader of stores that follows the pages of docs/formats and shares no code with the package.

With its parts `stranger_erofs` and `stranger_parts` it holds the pages against what is written: all
it needs besides them is the standard library, zstd and blake3. It is simple rather than fast, holds
in memory what it reads, and verifies what the pages say can be verified.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from tests.support.stranger_erofs import Device, Image
from tests.support.stranger_parts import Item, Runs, Table, check, read_table, tree_digest, unzstd

Json = dict[str, Any]

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.dsec.layer.v1"
ENVIRONMENT = "application/vnd.dsec.environment.v1"
CONFIG = "application/vnd.dsec.layer.config.v1+json"
METADATA = "application/vnd.dsec.layer.metadata.v1.erofs+zstd"
TABLE = "application/vnd.dsec.layer.chunktable.v1+zstd"
PACK = "application/vnd.dsec.layer.pack.v1"

COMPONENT = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
REFERENCE = re.compile(
    rf"(?P<kind>base|workspace|toolkit|env)/(?P<name>{COMPONENT}(?:/{COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
PATH_LIKE = [
    "CPATH",
    "GOPATH",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "MANPATH",
    "NODE_PATH",
    "PATH",
    "PKG_CONFIG_PATH",
    "PYTHONPATH",
    "XDG_DATA_DIRS",
]


def canonical(value: Json) -> bytes:
    """canonical-json.md"""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Store:
    """store.md"""

    root: Path

    def resolve(self, text: str) -> Json:
        """The descriptor that a reference names."""
        check(self._json(self.root / "dsec-store.json")["layout"] == 1, "another layout")
        match = REFERENCE.fullmatch(text)
        assert match is not None, text
        kind, name, tag, digest = match.group("kind", "name", "tag", "digest")
        if digest and not tag:
            media, artifact = (INDEX, ENVIRONMENT) if kind == "env" else (MANIFEST, LAYER)
            size = self._path(digest, media).stat().st_size
            return {"mediaType": media, "artifactType": artifact, "digest": digest, "size": size}
        found = self._json(self.root / "refs" / kind / name / f"@{tag or 'latest'}.json")
        check(digest in (None, found["digest"]), "the tag has moved")
        return found

    def blob(self, descriptor: Json) -> bytes:
        data = self._path(descriptor["digest"], descriptor["mediaType"]).read_bytes()
        check(len(data) == descriptor["size"], "a blob of another size")
        check(
            f"sha256:{hashlib.sha256(data).hexdigest()}" == descriptor["digest"], "a damaged blob"
        )
        return data

    def document(self, descriptor: Json) -> Json:
        data = self.blob(descriptor)
        document: Json = json.loads(data)
        check(canonical(document) == data, "not canonical JSON")
        return document

    def _path(self, digest: str, media_type: str) -> Path:
        digits = digest.removeprefix("sha256:")
        folder = "packs" if media_type == PACK else "blobs"
        return self.root / folder / digits[:2] / digits

    @staticmethod
    def _json(path: Path) -> Json:
        data = path.read_bytes()
        document: Json = json.loads(data)
        check(canonical(document) == data, "not canonical JSON")
        return document


@dataclass(frozen=True)
class Layer:
    """layer.md: all of a layer, verified. `packs` are the bytes of its packs, in order."""

    digest: str
    config: Json
    table: Table
    packs: list[bytes]
    items: list[Item]
    runs: dict[bytes, Runs]


def read_layer(store: Store, descriptor: Json) -> Layer:
    check(descriptor["mediaType"] == MANIFEST, "not a manifest")
    manifest = store.document(descriptor)
    head = {"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": LAYER}
    layers: list[Json] = manifest["layers"]
    types = [CONFIG, METADATA, TABLE, *[PACK] * (len(layers) - 2)]
    check(manifest == {**head, "config": manifest["config"], "layers": layers}, "no layer")
    check([each["mediaType"] for each in (manifest["config"], *layers)] == types, "other blobs")
    config = store.document(manifest["config"])
    metadata, encoded = (
        _unpacked(store.blob(blob), config[part])
        for blob, part in zip(layers[:2], ("metadata", "table"), strict=True)
    )
    table = read_table(encoded)
    check(table.packs == [(pack["digest"], pack["size"]) for pack in layers[2:]], "other packs")
    device = Device(table, [store.blob(pack) for pack in layers[2:]])
    uuid = bytes.fromhex(config["tree_digest"].removeprefix("blake3:"))[:16]
    image = Image(metadata, uuid, device)
    check(tree_digest(image.items) == config["tree_digest"], "another tree")
    check(config["sizes"] == _sizes(image.items, table), "other sizes")
    digest = f"sha256:{hashlib.sha256(canonical(manifest)).hexdigest()}"
    return Layer(digest, config, table, device.packs, image.items, image.runs)


def read_environment(store: Store, descriptor: Json) -> tuple[list[Layer], Json]:
    """environment.md: the layers, lowest first, and the merged run configuration."""
    check(descriptor["mediaType"] == INDEX, "not an index")
    index = store.document(descriptor)
    check((index["schemaVersion"], index["mediaType"]) == (2, INDEX), "not an index")
    check(index["artifactType"] == ENVIRONMENT, "no environment")
    layers = [read_layer(store, each) for each in index["manifests"]]
    kinds = [each["annotations"]["dev.dsec.layer.kind"] for each in index["manifests"]]
    check(kinds == [layer.config["kind"] for layer in layers], "layers of other kinds")
    check(re.fullmatch("base( workspace)?( toolkit)*", " ".join(kinds)) is not None, "an order")
    run: Json = json.loads(index["annotations"]["dev.dsec.environment.run"])
    check(run == merge_runs(layer.config.get("run", {}) for layer in layers), "another run")
    return layers, run


def read_stack(store: Store, text: str) -> tuple[list[Layer], Json]:
    """environment.md: the layers for which a reference stands, lowest first, and how to run."""
    descriptor = store.resolve(text)
    if descriptor["mediaType"] == INDEX:
        return read_environment(store, descriptor)
    layers = [read_layer(store, descriptor)]
    while layers[0].config["kind"] != "base":
        base = layers[0].config["provenance"]["base"]
        layers.insert(0, read_layer(store, store.resolve(f"base/any@{base}")))
    return layers, merge_runs(layer.config.get("run", {}) for layer in layers)


def merge_runs(runs: Iterable[Json]) -> Json:
    """environment.md: lowest first; what is empty or absent is left out."""
    merged: Json = {}
    for high in runs:
        env = dict(merged.get("env", {}))
        for name, value in high.get("env", {}).items():
            parts = f"{value}:{env[name]}".split(":") if env.get(name) else []
            joined = ":".join(dict.fromkeys(filter(None, parts)))
            env[name] = joined if parts and name in PATH_LIKE else value
        if "entrypoint" in high:
            merged.pop("cmd", None)
        for key in ("workdir", "user", "shell", "stop_signal", "healthcheck"):
            merged |= {key: high[key]} if high.get(key) else {}
        for key in ("entrypoint", "cmd"):
            merged |= {key: high[key]} if key in high else {}
        for key in ("ports", "volumes"):
            both = sorted({*merged.get(key, []), *high.get(key, [])})
            merged |= {key: both} if both else {}
        merged |= {"env": env, "labels": merged.get("labels", {}) | high.get("labels", {})}
    return {key: value for key, value in merged.items() if value != {}}


def _unpacked(blob: bytes, plain: Json) -> bytes:
    data = unzstd(blob, plain["size_bytes"])
    check(f"blake3:{blake3(data).hexdigest()}" == plain["digest"], "other bytes in a frame")
    return data


def _sizes(items: list[Item], table: Table) -> Json:
    files = [item.size for item in items if item.digest]
    return {
        "entries": len(items),
        "files": len(files),
        "content_bytes": sum(files),
        "device_bytes": table.device_bytes,
        "chunks": len(table.records),
    }
