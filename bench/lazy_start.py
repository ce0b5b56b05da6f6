"""From nothing local to the end of a command: lazily, against pulling everything and then running.

The environment is real: compilers and a scientific Python stack as the base, Flask's own source
tree as the workspace, a harness as the toolkit; more than a gigabyte. Its store stands behind a
shaper: 5 ms a request, 100 MB/s. Each run has a fresh home, so a fresh daemon and nothing cached.
The layers are built once, by the layerfiles of this repository, into DSEC_BENCH_STATE (default
.bench), which is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.report import Metric, Report, interleaved, ratio
from bench.shaper import Counters

ROOT = Path(__file__).resolve().parent.parent
STATE = Path(os.environ.get("DSEC_BENCH_STATE", ROOT / ".bench"))
ENVIRONMENT = "env/bench/science:v1"
LATENCY_MS, MB_S = 5, 100
SPEED_GOAL, SHARE_GOAL, SIZE_GOAL = 5.0, 0.15, 1e9
# Without bytecode every start would compile the program anew.
_SLOWING = ("PYTHONDONTWRITEBYTECODE",)
COMMANDS = {
    "first_command": ("python3", "-c", "import json, ssl, sqlite3"),
    "tests": ("python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
}


@dataclass(frozen=True)
class Start:
    """One start: seconds to the end of the command, and what went over the line."""

    seconds: float
    requests: int
    bytes: int


def main() -> Report:
    """Measure both commands."""
    measured = environment()
    metrics = {
        "environment_bytes": Metric(measured["content_bytes"], SIZE_GOAL, "higher"),
    }
    for name, command in COMMANDS.items():
        lazily: list[Start] = []
        lazy, eager = interleaved(
            lambda command=command, lazily=lazily: _noted(lazily, _start(command, lazy=True)),  # type: ignore[misc]
            lambda command=command: _start(command, lazy=False).seconds,  # type: ignore[misc]
        )
        share = max(start.bytes for start in lazily) / measured["stored_bytes"]
        goal = SPEED_GOAL if name == "first_command" else None
        runs = list(zip(eager, lazy, strict=True))
        metrics[f"{name}_speedup"] = Metric(ratio(eager, lazy), goal, "higher", runs)
        metrics[f"{name}_share_fetched"] = Metric(
            share,
            SHARE_GOAL if name == "first_command" else None,
            "lower",
            [(start.bytes, start.requests) for start in lazily],
        )
    return Report("lazy_start", metrics)


def _noted(starts: list[Start], start: Start) -> float:
    starts.append(start)
    return start.seconds


def _start(command: tuple[str, ...], *, lazy: bool) -> Start:
    with tempfile.TemporaryDirectory(prefix="home-", dir=STATE) as name:
        home, counted = Path(name) / "home", Path(name) / "counters"
        url = f"shaped+dir://{STATE}/store?latency_ms={LATENCY_MS}&mb_s={MB_S}&counters={counted}"
        started = time.perf_counter()
        try:
            if not lazy:
                dsec(home, "pull", ENVIRONMENT, url)
            dsec(home, *(("--store", url) if lazy else ()), "run", ENVIRONMENT, "--", *command)
            seconds = time.perf_counter() - started
        finally:
            dsec(home, "daemon", "stop", "--force")
        counters = Counters(counted)
        try:
            return Start(seconds, counters.requests, counters.bytes)
        finally:
            counters.close()


def environment() -> dict[str, int]:
    """Build what is missing, and tell the sizes of the environment."""
    build = STATE / "build"
    STATE.mkdir(exist_ok=True)
    if not (STATE / "store").exists():
        _build(build)
        dsec(build, "push", ENVIRONMENT, f"dir://{STATE}/store.part")
        (STATE / "store.part").rename(STATE / "store")
        dsec(build, "daemon", "stop", "--force")
    told: dict[str, int] = json.loads(dsec(build, "inspect", ENVIRONMENT))
    return told


def _build(home: Path) -> None:
    shutil.rmtree(STATE / "store.part", ignore_errors=True)
    archive = STATE / "debian.tar"
    subprocess.run(["mmdebstrap", "--variant=minbase", "bookworm", archive], check=True)
    dsec(home, "import", str(archive), "base/debian:12")
    archive.unlink()
    layers = {
        "python": "base/python:3.11",
        "science": "base/science:v1",
        "workspace-flask": "workspace/pallets/flask:v1",
        "toolkit-harness": "toolkit/harness:v1",
    }
    for folder, reference in layers.items():
        print(f"building {reference}", file=sys.stderr, flush=True)
        dsec(home, "build", str(ROOT / "layerfiles" / folder), "-t", reference, "--host-mirrors")
    parts = [reference for reference in layers.values() if reference != "base/python:3.11"]
    dsec(home, "compose", *parts, "-t", ENVIRONMENT)


def dsec(home: Path, *words: str) -> bytes:
    """What `dsec-layers` with these words prints, over the state in `home`; it must succeed."""
    program = Path(sys.executable).parent / "dsec-layers"
    environ = {
        **{name: value for name, value in os.environ.items() if name not in _SLOWING},
        "DSEC_STORE_PLUGINS": "bench.shaper",
        "PYTHONPATH": str(ROOT),
        "SOURCE_DATE_EPOCH": "1764374400",
    }
    command = [str(program), "--home", str(home), "--json", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environ).stdout
