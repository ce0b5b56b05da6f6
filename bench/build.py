"""Building a real Python environment of 300 MB from a Dockerfile, against buildah.

Both start from the same base and take the same wheels from the context; no network is measured.
One run is three builds, each with the cache that the one before has left: of everything, of
nothing that has changed, and of one copied file that has. buildah builds with `--layers`, which is
its cache, in a chroot, its fastest way; its time ends when the image is in its storage, ours when
the layer is in the store. Each run works on fresh copies of both states.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import pythons
from bench.pythons import BASE, SMALL, build_words, dsec
from bench.report import Metric, Report, ratio
from dsec_layers.linux import mount

RUNS: Final = 5
GOALS: Final = {"cold": 0.9, "unchanged": 0.5, "one_file": 0.7}
_BUILT: Final = "workspace/bench/app:v1"
Seconds = tuple[float, float, float]


def main() -> Report:
    """Measure the three builds, ours over theirs."""
    archive = pythons.debian()
    with tempfile.TemporaryDirectory(prefix="bench-build-", dir="/var/tmp") as name:
        folder = Path(name)
        pythons.make_context(folder / "context", SMALL)
        ours = _Builder(
            folder, "ours", _ours, lambda state: dsec(state, "daemon", "stop", "--force")
        )
        peer = _Builder(folder, "peer", _peers, _unmount)
        dsec(ours.prepared, "import", archive, BASE)
        _import_into_buildah(peer.prepared, archive, folder / "base")
        runs = [(ours.run(), peer.run()) for _ in range(RUNS)]
    return Report("build", _metrics(runs))


def _metrics(runs: list[tuple[Seconds, Seconds]]) -> dict[str, Metric]:
    metrics = {}
    for number, (build, goal) in enumerate(GOALS.items()):
        mine, theirs = ([run[side][number] for run in runs] for side in (0, 1))
        pairs = list(zip(mine, theirs, strict=True))
        metrics[f"{build}_vs_buildah"] = Metric(ratio(mine, theirs), goal, "lower", pairs)
    return metrics


@dataclass(frozen=True)
class _Builder:
    """A program that builds the context of `folder`; `end` is called with a state after use."""

    folder: Path
    name: str
    build: Callable[[Path, Path], None]
    end: Callable[[Path], None]

    @property
    def prepared(self) -> Path:
        """Its state with the base and nothing else."""
        return self.folder / f"{self.name}-prepared"

    def run(self) -> Seconds:
        """The seconds of the three builds on a copy of the state."""
        state = self.folder / self.name
        subprocess.run(["cp", "-a", self.prepared, state], check=True)
        os.sync()
        try:
            cold, unchanged = self._timed(state), self._timed(state)
            changed = self.folder / "context/app/module7.py"
            changed.write_text(f"TIME = {time.time_ns()}\n")
            return cold, unchanged, self._timed(state)
        finally:
            self.end(state)
            shutil.rmtree(state)

    def _timed(self, state: Path) -> float:
        start = time.perf_counter()
        self.build(self.folder / "context", state)
        return time.perf_counter() - start


def _ours(context: Path, state: Path) -> None:
    dsec(state, *build_words(context, _BUILT))


def _peers(context: Path, state: Path) -> None:
    _buildah(state, "build", "--layers", "--isolation", "chroot", "--tag", _BUILT, context)


def _import_into_buildah(state: Path, archive: Path, context: Path) -> None:
    context.mkdir()
    shutil.copy(archive, context / "debian.tar")
    (context / "Dockerfile").write_text("FROM scratch\nADD debian.tar /\n")
    _buildah(state, "build", "--tag", BASE, context)
    _unmount(state)


def _unmount(state: Path) -> None:
    """The mounts that buildah leaves in its storage."""
    for found in reversed(list(mount.mount_points())):
        if Path(found.target).is_relative_to(state):
            mount.unmount(Path(found.target))


def _buildah(state: Path, *words: str | Path) -> None:
    places = ("--root", state / "storage", "--runroot", state / "run")
    command = ["buildah", *places, "--storage-driver", "overlay", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
