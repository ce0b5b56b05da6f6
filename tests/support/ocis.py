"""OCI images in memory: blobs by name, written as a layout directory or as an archive."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsec_layers.linux.machine import oci_architecture
from tests.support.tars import archive, member

OCI = "application/vnd.oci.image."
INDEX, MANIFEST = OCI + "index.v1+json", OCI + "manifest.v1+json"
CONFIG, LAYER = OCI + "config.v1+json", OCI + "layer.v1.tar"

Json = dict[str, object]


@dataclass
class Image:
    """A layout that grows: `files` by name, `manifests` of the top index."""

    files: dict[str, bytes] = field(default_factory=dict)
    manifests: list[Json] = field(default_factory=list)

    def blob(self, data: bytes, media_type: str, **fields: object) -> Json:
        """Add a blob and return its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        size = len(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size, **fields}

    def document(self, value: object, media_type: str, **fields: object) -> Json:
        """Add a JSON blob and return its descriptor."""
        return self.blob(json.dumps(value).encode(), media_type, **fields)

    def image(
        self,
        layers: Sequence[bytes],
        *,
        pack: Callable[[bytes], bytes] = bytes,
        layer_type: str = LAYER,
        layer_fields: Json | None = None,
        architecture: str | None = None,
        run: Json | None = None,
        **fields: object,
    ) -> Json:
        """Add an image whose layers are these plain archives; returns its manifest's descriptor."""
        machine = architecture or oci_architecture()
        diff_ids = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
        config = {"architecture": machine, "os": "linux", "rootfs": {"diff_ids": diff_ids}}
        manifest = {
            "schemaVersion": 2,
            "config": self.document({**config, "config": run}, CONFIG),
            "layers": [
                self.blob(pack(layer), layer_type, **(layer_fields or {})) for layer in layers
            ],
        }
        return self.document(manifest, MANIFEST, **fields)

    def all_files(self) -> dict[str, bytes]:
        """The layout's files with its index."""
        index = {"schemaVersion": 2, "manifests": self.manifests}
        return {
            **self.files,
            "index.json": json.dumps(index).encode(),
            "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        }

    def write(self, folder: Path) -> Path:
        """Write a layout directory."""
        for name, data in self.all_files().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder

    def archive(self) -> bytes:
        """The layout as an oci-archive."""
        return files_archive(self.all_files())


def files_archive(files: dict[str, bytes]) -> bytes:
    """Files as a tar archive."""
    return archive([member(name, data=data) for name, data in files.items()])


def docker_archive(layers: Sequence[bytes], *, tags: Sequence[str] = ("x:latest",)) -> bytes:
    """What `docker save` wrote before it wrote layouts: a layer that occurs again is a symlink."""
    diff_ids = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
    config = json.dumps(
        {
            "architecture": oci_architecture(),
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "config": {"Cmd": ["sh"], "Entrypoint": None, "Env": None, "Labels": None},
        }
    ).encode()
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": list(tags), "Layers": names}]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number, (name, layer) in enumerate(zip(names, layers, strict=True)):
            info, data = member(name, data=layer)
            if layers.index(layer) < number:
                info, data = member(
                    name, tarfile.SYMTYPE, link=f"../{layers.index(layer)}/layer.tar"
                )
            tar.addfile(info, io.BytesIO(data))
        for name, data in (
            ("config.json", config),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info, data = member(name, data=data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
