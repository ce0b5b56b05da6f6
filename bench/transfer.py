"""Pushing and pulling a layer of 1 GB, against rclone and skopeo moving the same bytes.

The stores are SeaweedFS and docker-registry on loopback. The layer is random bytes, so that what is
stored is what it holds. rclone copies its blobs as files, skopeo the same manifest and blobs from
an OCI layout; both check digests as we do. Each program runs as a user starts it, each push goes to
an empty server, and each pull to an empty folder on the disk of the source.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.report import Metric, Report, interleaved, ratio
from dsec_layers.api.workbench import Workbench
from dsec_layers.builder.pack import pack_layer
from dsec_layers.model import canonical
from dsec_layers.model.digest import Digest
from dsec_layers.model.manifest import LayerManifest
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.sources.directory import walk
from tests.support import oci_registry, s3servers

FILES, FILE_BYTES = 16, 64 << 20
GOAL = 1.0
REFERENCE = Reference.parse("workspace/big:v1")
_PREFIX = f"{s3servers.BUCKET}/layers"


def main() -> Report:
    """Measure pushes and pulls of both kinds of store."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-transfer-", dir="/var/tmp") as name,
        s3servers.credentials(),
    ):
        folder = Path(name)
        manifest = _pack(folder)
        _lay_out(folder, manifest)
        metrics: dict[str, Metric] = {}
        for store, measure in (("s3", _measure_s3), ("registry", _measure_registry)):
            for what, (theirs, ours) in measure(folder).items():
                runs = list(zip(theirs, ours, strict=True))
                metrics[f"{store}_{what}"] = Metric(ratio(theirs, ours), GOAL, "higher", runs)
                speed = FILES * FILE_BYTES / 1e6 / sorted(ours)[len(ours) // 2]
                metrics[f"{store}_{what}_mb_per_s"] = Metric(speed, None, "higher")
    return Report("transfer", metrics)


def _pack(folder: Path) -> LayerManifest:
    tree = folder / "tree"
    tree.mkdir()
    for number in range(FILES):
        (tree / f"{number}").write_bytes(os.urandom(FILE_BYTES))
    bench = Workbench(folder / "home")
    layer = pack_layer(
        walk(tree), kind=Kind.WORKSPACE, name=REFERENCE.name, store=bench.local, work_dir=folder
    )
    bench.local.tag(REFERENCE, layer.manifest.descriptor())
    shutil.rmtree(tree)
    return layer.manifest


def _lay_out(folder: Path, manifest: LayerManifest) -> None:
    """The layer's blobs in an OCI layout, for both peers: hard links, no further bytes."""
    stored = {path.name: path for path in (folder / "home/store").rglob("*") if path.is_file()}
    blobs = folder / "layout/blobs/sha256"
    blobs.mkdir(parents=True)
    descriptor = manifest.descriptor()
    for blob in (*manifest.blobs, descriptor):
        name = Digest.parse(blob.digest).hex
        (blobs / name).hardlink_to(stored[name])
    (folder / "layout/oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    index = {"schemaVersion": 2, "manifests": [descriptor]}
    (folder / "layout/index.json").write_bytes(canonical.encode(index))


_Pairs = dict[str, tuple[list[float], list[float]]]


def _measure_s3(folder: Path) -> _Pairs:
    def pushed(command: Callable[[s3servers.S3Server], list[str]]) -> float:
        with _fresh(folder) as place, s3servers.seaweed(place) as server:
            return _timed(command(server))

    pushes = interleaved(
        lambda: pushed(lambda server: _rclone(server, folder / "layout", f"remote:{_PREFIX}")),
        lambda: pushed(lambda server: _ours(folder / "home", "push", server.url("layers"))),
    )
    with _fresh(folder) as place, s3servers.seaweed(place) as server:
        _timed(_rclone(server, folder / "layout", f"remote:{_PREFIX}-peer"))
        _timed(_ours(folder / "home", "push", server.url("layers")))
        pulls = interleaved(
            lambda: _pulled(folder, lambda to: _rclone(server, f"remote:{_PREFIX}-peer", to)),
            lambda: _pulled(folder, lambda to: _ours(to, "pull", server.url("layers"))),
        )
    return {"push": pushes, "pull": pulls}


def _measure_registry(folder: Path) -> _Pairs:
    def pushed(command: Callable[[oci_registry.Registry], list[str]]) -> float:
        with _fresh(folder) as place, oci_registry.running(place) as server:
            return _timed(command(server))

    layout = f"oci:{folder}/layout"
    pushes = interleaved(
        lambda: pushed(lambda server: _skopeo(layout, f"docker://{server.address}/peer:v1")),
        lambda: pushed(lambda server: _ours(folder / "home", "push", server.url())),
    )
    with _fresh(folder) as place, oci_registry.running(place) as server:
        peer = f"docker://{server.address}/peer:v1"
        _timed(_skopeo(layout, peer))
        _timed(_ours(folder / "home", "push", server.url()))
        pulls = interleaved(
            lambda: _pulled(folder, lambda to: _skopeo(peer, f"oci:{to}")),
            lambda: _pulled(folder, lambda to: _ours(to, "pull", server.url())),
        )
    return {"push": pushes, "pull": pulls}


def _ours(home: Path, verb: str, url: str) -> list[str]:
    program = [sys.executable, "-m", "dsec_layers.cli", "--home", str(home)]
    return [*program, "--progress", "quiet", verb, str(REFERENCE), url]


def _rclone(server: s3servers.S3Server, source: Path | str, target: Path | str) -> list[str]:
    remote = f":s3,provider=SeaweedFS,env_auth=true,endpoint='{server.endpoint}':"
    words = [str(word).replace("remote:", remote) for word in (source, target)]
    return [s3servers.program("rclone"), "copy", "--config", os.devnull, *words]


def _skopeo(source: str, target: str) -> list[str]:
    insecure = ("--src-tls-verify=false", "--dest-tls-verify=false")
    return ["skopeo", "copy", "--quiet", *insecure, source, target]


def _pulled(folder: Path, command: Callable[[Path], list[str]]) -> float:
    with _fresh(folder) as place:
        return _timed(command(place / "target"))


def _timed(command: list[str]) -> float:
    os.sync()  # what the run before has left to write is not ours
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


@contextlib.contextmanager
def _fresh(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)
