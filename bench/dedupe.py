"""Twenty releases of Django with what they depend on, as workspaces in a store, against restic.

Each release is installed by pip into the same place, at the same SOURCE_DATE_EPOCH, and becomes a
workspace that takes chunks from the two before it (`--chunk-dict`; two, because one of the releases
has other line ends throughout). Each is pushed to a directory store when it is built. restic backs
the same trees up into one repository, and each is also one tar.zst. The packages are fetched with
the settings that pip has on this machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.report import Metric, Report
from dsec_layers.api import building, importing, mounting, moving
from dsec_layers.api.buildrequests import BuildOptions
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.reference import Reference
from dsec_layers.registry.urls import open_store
from tests.support.rootfs import make_rootfs

RELEASES = [f"4.2.{number}" for number in range(1, 21)]
EPOCH_S = 1_700_000_000
DICTIONARIES = 2
STORED_GOAL, ARCHIVES_GOAL, SENT_GOAL = 1.25, 0.25, 1.4
BASE = Reference.parse("base/small:v1")


def main() -> Report:
    """Measure what is stored in all, and what each release adds."""
    with tempfile.TemporaryDirectory(prefix="bench-dedupe-", dir="/var/tmp") as name:
        folder = Path(name)
        bench = Workbench(folder / "home")
        url = f"dir://{folder}/store"
        try:
            make_rootfs(folder / "root")
            importing.import_(bench, str(folder / "root"), BASE)
            base_bytes = moving.push(bench, BASE, url).sent_bytes
            backup = _Restic(folder)
            archives, sent, added = 0, [], []
            for release, tree in _releases(folder):
                sent.append(_push(bench, release, tree, url))
                added.append(backup.add(tree))
                archives += _archive_bytes(tree)
        finally:
            mounting.stop_daemon(bench, force=True)
        stored = sum(blob.size for blob in open_store(url).blobs()) - base_bytes
        theirs = backup.size_bytes()
    later = [ours / peer for ours, peer in zip(sent[1:], added[1:], strict=True)]
    runs = list(zip(sent, added, strict=True))
    return Report(
        "dedupe",
        {
            "stored_vs_restic": Metric(stored / theirs, STORED_GOAL, "lower", [stored, theirs]),
            "stored_vs_tar_zst": Metric(
                stored / archives, ARCHIVES_GOAL, "lower", [stored, archives]
            ),
            "next_release_vs_restic": Metric(statistics.median(later), SENT_GOAL, "lower", runs),
            "next_release_vs_restic_worst": Metric(max(later), SENT_GOAL, "lower"),
        },
    )


def _releases(folder: Path) -> Iterator[tuple[str, Path]]:
    """Each release and the folder that holds its installation and nothing else."""
    context = folder / "context"
    for release in RELEASES:
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir()
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--ignore-installed"]
        options = ["--disable-pip-version-check", "--prefix", str(context / "site")]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH_S)}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run([*command, *options, f"Django=={release}"], check=True, env=environ)
        yield release, context


def _push(bench: Workbench, release: str, context: Path, url: str) -> int:
    """Build the workspace of a release and push it: the bytes sent."""
    layerfile = context.parent / "Layerfile"
    layerfile.write_text(f"LAYER workspace django\nFROM {BASE}\nCOPY site /opt/site\n")
    at = RELEASES.index(release)
    last = [_reference(each) for each in RELEASES[max(0, at - DICTIONARIES) : at]]
    options = BuildOptions(layerfile=layerfile, epoch_s=EPOCH_S, chunk_dicts=tuple(reversed(last)))
    building.build(bench, context, _reference(release), options)
    return moving.push(bench, _reference(release), url).sent_bytes


def _reference(release: str) -> Reference:
    return Reference.parse(f"workspace/django:{release}")


class _Restic:
    """A repository of the peer."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "restic"
        self._environ = {
            **os.environ,
            "RESTIC_REPOSITORY": str(self._path),
            "RESTIC_PASSWORD": "bench",
            "RESTIC_CACHE_DIR": str(folder / "restic-cache"),
        }
        subprocess.run(["restic", "init", "--quiet"], check=True, env=self._environ)

    def add(self, tree: Path) -> int:
        """Back a tree up: the bytes by which the repository grows."""
        before = self.size_bytes()
        subprocess.run(
            ["restic", "backup", "--quiet", "."], check=True, env=self._environ, cwd=tree
        )
        return self.size_bytes() - before

    def size_bytes(self) -> int:
        """What all its files hold."""
        return sum(path.stat().st_size for path in self._path.rglob("*") if path.is_file())


def _archive_bytes(tree: Path) -> int:
    with subprocess.Popen(["tar", "-C", tree, "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
        packed = subprocess.run(
            ["zstd", "-3", "-T2", "-q"], stdin=tar.stdout, stdout=subprocess.PIPE, check=True
        )
    if tar.returncode:
        raise RuntimeError("tar failed")
    return len(packed.stdout)
