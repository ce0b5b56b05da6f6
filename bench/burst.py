"""64 sandboxes start at once on 16 environments: lazily, after pulling, and with all of it local.

An environment is a base with a Python, its bytecode and 1.4 GB of libraries, a workspace of its own
of 8 MB and 48 MB of what that depends on, and a toolkit of 20 MB that all share: somewhat less than
the real one of `bench lazy_start`, and of that too a start reads a small part. The store is behind
a shaper: 5 ms a request, 100 MB/s for all together, as one node of a cluster has it. Each sandbox
has a writable rootfs of its own, and runs in it, by chroot, Python, which imports a handful of
modules, reads a quarter of its workspace and writes a megabyte. No container is started: it would
cost the same in all three.

All three need much the same time of the processors, which is told: where that, and not the line, is
what a machine has too little of, none can be much faster than another.

Pulling is what one does without lazy mounts: the environments come one after the other, all
connections working for one, and a sandbox starts when its own is there. With all local a pull has
been done before the clock starts. Bytes written are what the home takes on disk in the end; uppers
are counted to none, being the same in all. Every run has a home and a daemon of its own.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench import shaper
from bench.report import Metric, Report, ratio
from bench.trees import make_tree
from dsec_layers.api import composing, importing, managing, mounting, moving
from dsec_layers.api.publishing import publish
from dsec_layers.api.workbench import Workbench
from dsec_layers.model.manifest import Provenance
from dsec_layers.model.reference import Reference
from dsec_layers.model.runconfig import RunConfig
from dsec_layers.registry.urls import PLUGINS_VARIABLE
from dsec_layers.sources.directory import walk
from dsec_layers.sources.times import clamp_times
from tests.support.rootfs import add_libraries, make_rootfs

ENVIRONMENTS, SANDBOXES = 16, 64
LATENCY_MS, MB_S = 5, 100
RUNS = 3
SPEEDUP_GOAL, SAVED_GOAL, LOCAL_GOAL = 1.71, 0.57, 1.1
PYTHON = Path("/usr/lib/python3.11")
WORK = (
    "import json, ssl, sqlite3, email.mime.text, unittest, pathlib, hashlib;"
    "found = sorted(pathlib.Path('/workspace/pkg000').glob('module0[0-5]/*'));"
    "assert len(found) > 100;"
    "data = b''.join(map(pathlib.Path.read_bytes, found));"
    "pathlib.Path('/workspace/out').write_bytes((hashlib.sha256(data).digest() * 32768)[:2**20]);"
)
References = list[Reference]


@dataclass(frozen=True)
class Burst:
    """One run: seconds until the last sandbox has ended, bytes that the home takes on disk.

    `cpu_s` are seconds of the processors: of this process, of the sandboxes and of the daemon, a
    pull before the clock starts among them.
    """

    seconds: float
    cpu_s: float
    written_bytes: int


def main() -> Report:
    """Measure the three in turns."""
    os.environ[PLUGINS_VARIABLE] = shaper.__name__
    os.environ["PYTHONPATH"] = str(Path(shaper.__file__).parent.parent)
    ways: dict[str, Callable[[Workbench, References], float]] = {
        "lazily": _lazily,
        "pulled": _pulled,
        "local": _local,
    }
    bursts: dict[str, list[Burst]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(prefix="bench-burst-", dir="/var/tmp") as name:
        folder = Path(name)
        near = Workbench(folder / "near")
        environments = _environments(near, folder)
        url = f"shaped+{near.local.url}?latency_ms={LATENCY_MS}&mb_s={MB_S}"
        for _ in range(RUNS):
            for way, run in ways.items():
                bursts[way].append(_burst(folder, url, environments, run))
    seconds = {way: [burst.seconds for burst in runs] for way, runs in bursts.items()}
    sizes = {
        way: statistics.median(burst.written_bytes for burst in runs)
        for way, runs in bursts.items()
    }
    saved = 1 - sizes["lazily"] / sizes["pulled"]
    return Report(
        "burst",
        {
            "speedup_over_pulling": Metric(
                ratio(seconds["pulled"], seconds["lazily"]),
                SPEEDUP_GOAL,
                "higher",
                list(zip(seconds["pulled"], seconds["lazily"], strict=True)),
            ),
            "share_of_bytes_saved": Metric(saved, SAVED_GOAL, "higher"),
            "time_over_all_local": Metric(
                ratio(seconds["lazily"], seconds["local"]),
                LOCAL_GOAL,
                "lower",
                list(zip(seconds["lazily"], seconds["local"], strict=True)),
            ),
            "lazily_s": Metric(statistics.median(seconds["lazily"]), None, "lower"),
            "pulled_s": Metric(statistics.median(seconds["pulled"]), None, "lower"),
            "local_s": Metric(statistics.median(seconds["local"]), None, "lower"),
            **{
                f"{way}_cpu_s": Metric(
                    statistics.median(burst.cpu_s for burst in runs), None, "lower"
                )
                for way, runs in bursts.items()
            },
            "written_lazily_mb": Metric(sizes["lazily"] / 1e6, None, "lower"),
            "written_pulled_mb": Metric(sizes["pulled"] / 1e6, None, "lower"),
        },
    )


def _burst(
    folder: Path, url: str, environments: References, run: Callable[[Workbench, References], float]
) -> Burst:
    home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
    bench = Workbench(home, [url])
    before = sum(os.times()[:4])
    try:
        seconds = run(bench, environments)
        cpu_s = sum(os.times()[:4]) - before + _daemon_cpu_s(bench)
    finally:
        mounting.stop_daemon(bench, force=True)
    subprocess.run(["sync", "--file-system", home], check=True)  # else nothing is allocated yet
    kept = sum(path.lstat().st_blocks * 512 for path in home.rglob("*"))
    shutil.rmtree(home)
    return Burst(seconds, cpu_s, kept)


def _daemon_cpu_s(bench: Workbench) -> float:
    pid = managing.client(bench).status().pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _lazily(bench: Workbench, environments: References) -> float:
    began = time.perf_counter()
    _sandboxes(bench, environments, lambda _: None)
    return time.perf_counter() - began


def _pulled(bench: Workbench, environments: References) -> float:
    there = {reference: threading.Event() for reference in environments}

    def pull_all() -> None:
        for reference in environments:
            moving.pull(bench, reference)
            there[reference].set()

    began = time.perf_counter()
    with ThreadPoolExecutor(1) as pulling:
        pulled = pulling.submit(pull_all)
        _sandboxes(bench, environments, lambda reference: there[reference].wait())
        pulled.result()
    return time.perf_counter() - began


def _local(bench: Workbench, environments: References) -> float:
    for reference in environments:
        moving.pull(bench, reference)
    began = time.perf_counter()
    _sandboxes(bench, environments, lambda _: None)
    return time.perf_counter() - began


def _sandboxes(
    bench: Workbench, environments: References, ready: Callable[[Reference], object]
) -> None:
    """Run them all at once; raises when one of them fails."""

    def sandbox(number: int) -> None:
        reference = environments[number % len(environments)]
        ready(reference)
        with mounting.mounted(bench, reference) as rootfs:
            command = [
                "/usr/sbin/chroot",
                str(rootfs.target),
                "/usr/bin/python3.11",
                "-S",
                "-c",
                WORK,
            ]
            subprocess.run(command, check=True, env={}, stdout=subprocess.DEVNULL)

    with ThreadPoolExecutor(SANDBOXES) as pool:
        list(pool.map(sandbox, range(SANDBOXES)))


def _environments(bench: Workbench, folder: Path) -> References:
    base = folder / "base"
    make_rootfs(base)
    _add_python(base)
    make_tree(base / "opt/libraries", files=30_000, total_bytes=1_400_000_000)
    importing.import_(bench, str(base), Reference.parse("base/burst:v1"))
    toolkit = Reference.parse("toolkit/burst:v1")
    _layer(bench, folder / "toolkit", "opt/toolkit", toolkit, files=1500, total_bytes=20_000_000)
    made = []
    for number in range(ENVIRONMENTS):
        workspace = Reference.parse(f"workspace/burst{number}:v1")
        place = folder / f"w{number}"
        make_tree(place / "opt/depends", files=1000, total_bytes=48_000_000, seed=200 + number)
        _layer(bench, place, "workspace", workspace, seed=number)
        made.append(Reference.parse(f"env/burst/e{number}:v1"))
        parts = [Reference.parse("base/burst:v1"), workspace, toolkit]
        composing.compose(bench, parts, made[-1])
    return made


def _layer(
    bench: Workbench,
    folder: Path,
    place: str,
    reference: Reference,
    *,
    files: int = 600,
    total_bytes: int = 8_000_000,
    seed: int = 1,
) -> None:
    make_tree(folder / place, files=files, total_bytes=total_bytes, seed=100 + seed)
    base = bench.resolve(Reference.parse("base/burst:v1"))
    provenance = Provenance(source="build", base=base.digest)
    publish(bench, clamp_times(walk(folder), 0), reference, run=RunConfig(), provenance=provenance)


def _add_python(root: Path) -> None:
    """Debian's Python, with bytecode and the libraries that its modules need."""
    program = root / "usr/bin/python3.11"
    program.parent.mkdir(parents=True)
    shutil.copy("/usr/bin/python3.11", program)
    leave = shutil.ignore_patterns("__pycache__", "test")
    shutil.copytree(PYTHON, root / PYTHON.relative_to("/"), symlinks=True, ignore=leave)
    for binary in [program, *(PYTHON / "lib-dynload").glob("*.so")]:
        add_libraries(root, str(binary))
    modules = root / PYTHON.relative_to("/")
    compile_all = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command = [str(program), *compile_all, str(modules)]
    subprocess.run(command, check=True, env={"PYTHONHASHSEED": "0"})
