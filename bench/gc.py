"""Collection of a large store, and resolving references of one, on a directory as 3FS would be one.

The store has 10,000 layers, of which every second has tags, 50,000 tags altogether, and about
70,000 blobs; their contents are small, since a collector never reads packs. It is made without
syncing, then collected by a process of its own.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.report import Metric, Report, peak_mib
from dsec_layers.model import canonical
from dsec_layers.model.manifest import (
    CONFIG_TYPE,
    METADATA_TYPE,
    PACK_TYPE,
    TABLE_TYPE,
    Descriptor,
    LayerConfig,
    LayerManifest,
    Plain,
    Sizes,
)
from dsec_layers.model.reference import Kind, Reference
from dsec_layers.registry.collect import Rules, collect
from dsec_layers.registry.directory import DirectoryStore
from dsec_layers.registry.naming import blob_name, reference_name

LAYERS = 10_000
TAGS = 50_000
SECONDS_GOAL = 60.0
MEMORY_GOAL_MIB = 500.0
RESOLVED_GOAL = 2000.0
_NOTHING = Plain(1, f"blake3:{'0' * 64}")


def main() -> Report:
    """Make the store, resolve from it, collect it."""
    folder = Path(tempfile.mkdtemp(prefix="dsec-bench-", dir="/var/tmp"))
    try:
        store = DirectoryStore.open(folder, create=True)
        references = list(_fill(store))
        found = _child_result("resolve", folder, len(references))
        gone = _child_result("collect", folder, len(references))
    finally:
        shutil.rmtree(folder)
    return Report(
        "gc",
        {
            "collect_seconds": Metric(gone["seconds"], SECONDS_GOAL, "lower"),
            "collect_peak_mib": Metric(gone["peak_mib"], MEMORY_GOAL_MIB, "lower"),
            "removed_blobs": Metric(gone["blobs"], None, "higher"),
            "resolved_per_s": Metric(found["per_s"], RESOLVED_GOAL, "higher"),
        },
    )


def _fill(store: DirectoryStore) -> Iterator[Reference]:
    """Layers of five to nine blobs; of each two, one has ten tags. Yields the tags."""
    chance = random.Random(1)
    shared = [_put(store, chance.randbytes(64), PACK_TYPE) for _ in range(1000)]
    for number in range(LAYERS):
        manifest = _layer(store, number, chance, shared)
        data = manifest.encode()
        target = manifest.descriptor()
        _write(store.root / blob_name(target), data)
        for tag in range(TAGS // LAYERS * 2 if number % 2 == 0 else 0):
            reference = Reference(Kind.WORKSPACE, f"swe/project-{number}", f"v{tag}")
            _write(store.root / "refs" / reference_name(reference), canonical.encode(target))
            yield reference


def _layer(
    store: DirectoryStore, number: int, chance: random.Random, shared: list[Descriptor]
) -> LayerManifest:
    config = LayerConfig(
        kind=Kind.WORKSPACE,
        name=f"swe/project-{number}",
        tree_digest=_NOTHING.digest,
        sizes=Sizes(1, 1, 1, 1, 1),
        metadata=_NOTHING,
        table=_NOTHING,
    )
    own = [_put(store, chance.randbytes(64), PACK_TYPE) for _ in range(chance.randint(1, 4))]
    return LayerManifest(
        packs=(*own, chance.choice(shared)),
        table=_put(store, b"table %d" % number, TABLE_TYPE),
        metadata=_put(store, b"metadata %d" % number, METADATA_TYPE),
        config=_put(store, canonical.encode(config), CONFIG_TYPE),
    )


def _put(store: DirectoryStore, data: bytes, media_type: str) -> Descriptor:
    blob = Descriptor.of(data, media_type)
    _write(store.root / blob_name(blob), data)
    return blob


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _child_result(what: str, folder: Path, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.gc", what, str(folder), str(count)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    result: dict[str, float] = json.loads(output)
    return result


def _resolve(folder: Path, count: int) -> dict[str, float]:
    store = DirectoryStore.open(folder, scheme="threefs")
    per_layer = TAGS // LAYERS * 2
    order = list(range(count))
    random.Random(2).shuffle(order)
    start = time.perf_counter()
    for each in order:
        number, tag = each // per_layer * 2, each % per_layer
        store.resolve(Reference(Kind.WORKSPACE, f"swe/project-{number}", f"v{tag}"))
    return {"per_s": count / (time.perf_counter() - start)}


def _collect(folder: Path) -> dict[str, float]:
    store = DirectoryStore.open(folder, scheme="threefs")
    start = time.perf_counter()
    gone = collect(store, Rules(grace_s=-1))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_mib": peak_mib(), "blobs": gone.blobs}


if __name__ == "__main__":
    _what, _folder, _count = sys.argv[1:]
    _run = _resolve(Path(_folder), int(_count)) if _what == "resolve" else _collect(Path(_folder))
    print(json.dumps(_run))
