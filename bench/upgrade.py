"""A new toolkit in 1,000 environments, against rebuilding each with the toolkit installed.

Rebuilding is what one does without layers: a Layerfile whose last step installs the toolkit into
the workspace's tree. 20 such builds are measured, a workspace each, on workspaces that are there,
and multiplied to 1,000. The upgrade is `dsec-layers upgrade` as a user runs it, in a process of its
own, over environments that each have a workspace of their own. Nothing is fetched from anywhere.

Bytes of an upgrade are what the local store grows by. Those of a rebuild are told twice: what its
layer takes, as any store of images would keep it, and what our store grows by, which has most of
its chunks already.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.report import Metric, Report
from bench.trees import make_tree
from dsec_layers.api import building, importing, mounting
from dsec_layers.api.buildrequests import BuildOptions
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Kind, Reference
from tests.support.packed import pack_files
from tests.support.rootfs import make_rootfs
from tests.support.stores import put_environment, put_layer

ENVIRONMENTS = 1000
REBUILDS = 20
VERSIONS = [f"v{number}" for number in range(1, 7)]
TOOLKIT_FILES, TOOLKIT_BYTES = 2000, 30_000_000
GOAL = 500.0


def main() -> Report:
    """Measure both, in time and in bytes."""
    with tempfile.TemporaryDirectory(prefix="bench-upgrade-", dir="/var/tmp") as name:
        folder = Path(name)
        bench = Workbench(folder / "home")
        try:
            _prepare(bench, folder)
            rebuilds = [_rebuild(bench, folder, number) for number in range(REBUILDS)]
        finally:
            mounting.stop_daemon(bench, force=True)
        _compose(bench)
        upgrades = [_upgrade(bench, version) for version in VERSIONS[1:]]
    rebuild_s = statistics.median(seconds for seconds, _, _ in rebuilds)
    rebuild_bytes = statistics.median(made for _, made, _ in rebuilds)
    grown_bytes = statistics.median(grown for _, _, grown in rebuilds)
    upgrade_s = statistics.median(seconds for seconds, _ in upgrades)
    upgrade_bytes = max(grown for _, grown in upgrades)
    return Report(
        "upgrade",
        {
            "speedup_over_rebuilding": Metric(rebuild_s * ENVIRONMENTS / upgrade_s, GOAL, "higher"),
            "bytes_ratio": Metric(rebuild_bytes * ENVIRONMENTS / upgrade_bytes, GOAL, "higher"),
            "bytes_ratio_when_chunks_are_shared": Metric(
                grown_bytes * ENVIRONMENTS / upgrade_bytes, None, "higher"
            ),
            "upgrade_of_1000_s": Metric(upgrade_s, None, "lower", upgrades),
            "upgrade_of_1000_bytes": Metric(upgrade_bytes, None, "lower"),
            "one_rebuild_s": Metric(rebuild_s, None, "lower", rebuilds),
            "one_rebuild_layer_bytes": Metric(rebuild_bytes, None, "lower"),
            "one_rebuild_grown_bytes": Metric(grown_bytes, None, "lower"),
            "rebuilding_1000_s_extrapolated": Metric(rebuild_s * ENVIRONMENTS, None, "lower"),
        },
    )


def _prepare(bench: Workbench, folder: Path) -> None:
    """A base with a shell, the toolkit as files and as layers, workspaces to rebuild."""
    make_rootfs(folder / "root")
    importing.import_(bench, str(folder / "root"), Reference.parse("base/small:v1"))
    make_tree(folder / "toolkit", files=TOOLKIT_FILES, total_bytes=TOOLKIT_BYTES)
    for version in VERSIONS:
        (folder / "toolkit" / "version").write_text(version)
        layerfile = folder / "Layerfile"
        layerfile.write_text("LAYER toolkit x\nFROM base/small:v1\nCOPY toolkit /opt/x\n")
        building.build(
            bench,
            folder,
            Reference.parse(f"toolkit/x:{version}"),
            BuildOptions(layerfile=layerfile),
        )
    base = bench.resolve(Reference.parse("base/small:v1"))
    for number in range(REBUILDS):
        files = {f"workspace/{index}": b"%d %d" % (number, index) for index in range(50)}
        pack_files(bench, Reference.parse(f"workspace/w{number}:v1"), files, base=base)


def _rebuild(bench: Workbench, folder: Path, number: int) -> tuple[float, int, int]:
    """Install the toolkit into one workspace: seconds, bytes of the layer, growth of the store."""
    layerfile = folder / "Rebuild"
    layerfile.write_text(
        f"LAYER workspace rebuilt{number}\nFROM workspace/w{number}:v1\n"
        "COPY toolkit /tmp/x\nRUN mkdir -p /opt && cp -r /tmp/x /opt/x && rm -r /tmp/x\n"
    )
    before, started = _store_bytes(bench), time.perf_counter()
    row = building.build(bench, folder, None, BuildOptions(layerfile=layerfile))
    seconds = time.perf_counter() - started
    return seconds, row.stored_bytes, _store_bytes(bench) - before


def _compose(bench: Workbench) -> None:
    """The environments: base, toolkit, and a workspace of their own, of which no file is read."""
    base = bench.resolve(Reference.parse("base/small:v1"))
    toolkit = bench.resolve(Reference.parse("toolkit/x:v1"))

    def one(number: int) -> None:
        name = f"workspace/e{number}:v1"
        layers = [
            (Kind.BASE, "base/small:v1", base),
            (Kind.WORKSPACE, name, put_layer(bench.local, Reference.parse(name), [b"%d" % number])),
            (Kind.TOOLKIT, "toolkit/x:v1", toolkit),
        ]
        put_environment(bench.local, Reference.parse(f"env/swe/e{number}:v1"), layers)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(one, range(ENVIRONMENTS)))


def _upgrade(bench: Workbench, version: str) -> tuple[float, int]:
    before, started = _store_bytes(bench), time.perf_counter()
    words = ("upgrade", f"toolkit/x:{version}", "--in", "env/swe/*", "--json")
    command = [sys.executable, "-m", "dsec_layers.cli", "--home", str(bench.home.root), *words]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    seconds = time.perf_counter() - started
    rows = json.loads(output)
    if [row["status"] for row in rows] != ["upgraded"] * ENVIRONMENTS:
        raise RuntimeError("not all environments were upgraded")
    return seconds, _store_bytes(bench) - before


def _store_bytes(bench: Workbench) -> int:
    """What all blobs of the local store take."""
    return sum(blob.size for blob in bench.local.blobs())
